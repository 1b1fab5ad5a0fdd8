// SPDX-License-Identifier: Apache-2.0

package emulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// openAI is the protocol of OpenAI's responses in the background:
// https://developers.openai.com/api/docs/guides/background.
type openAI struct{ webhook string }

func (openAI) name() string     { return "openai" }
func (openAI) scheme() string   { return "Bearer" }
func (openAI) idempotent() bool { return false }

func (openAI) sign(by *signer, m *signedMessage, h http.Header) { standardWebhooks{}.sign(by, m, h) }

func (openAI) failed(status int, message string) object {
	kind := "invalid_request_error"
	if status >= 500 {
		kind = "server_error"
	}
	return object{"error": object{"message": message, "type": kind, "param": nil, "code": nil}}
}

// A responseRequest is what is used of a request for a response.
type responseRequest struct {
	Model        string            `json:"model"`
	Input        json.RawMessage   `json:"input"`
	Instructions string            `json:"instructions"`
	Background   bool              `json:"background"`
	Stream       bool              `json:"stream"`
	MaxTokens    int               `json:"max_output_tokens"`
	Metadata     map[string]string `json:"metadata"`
	Text         struct {
		Format struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"text"`
}

func (p openAI) read(_ *http.Request, body []byte) (*job, error) {
	var in responseRequest
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	switch {
	case in.Model == "":
		return nil, errors.New("model is required")
	case in.Input == nil:
		return nil, errors.New("input is required")
	case !in.Background:
		return nil, errors.New("only responses in the background are emulated")
	}
	var given json.RawMessage
	if text, ok := in.Metadata["emulate"]; ok {
		given = json.RawMessage(text)
	}
	// The job's input is the request, because a response repeats some of it.
	j, err := newJob(in.Model, body, p.webhook, given)
	if err != nil {
		return nil, err
	}
	j.id, j.streamed = newID("resp_"), in.Stream
	if in.MaxTokens > 0 && tokens(in.text(j.result)) > in.MaxTokens && j.outcome == JobDone {
		j.outcome = JobIncomplete
	}
	return j, nil
}

// asked returns the text of the input: it is a text, or a list of messages.
func (in *responseRequest) asked() string {
	var items []message
	if json.Unmarshal(in.Input, &items) != nil {
		return textOf(in.Input)
	}
	var all []string
	for _, m := range items {
		if text := textOf(m.Content); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, "\n")
}

// text returns the text of the answer: the result that is given, what fits the schema, or what
// was asked.
func (in *responseRequest) text(result json.RawMessage) string {
	var text string
	switch {
	case result != nil && json.Unmarshal(result, &text) == nil:
		return text
	case result != nil:
		return string(result)
	case in.Text.Format.Schema != nil:
		var schema any
		_ = json.Unmarshal(in.Text.Format.Schema, &schema) // it was decoded from JSON
		if sampled, err := json.Marshal(sample(schema, 0)); err == nil {
			return string(sampled)
		}
	}
	return in.asked()
}

var responseStates = map[string]string{
	JobQueued: "queued", JobRunning: "in_progress", JobDone: "completed", JobFailed: "failed", JobIncomplete: "incomplete", JobCancelled: "cancelled",
}

// show returns a response.
func (p openAI) show(j *job) object {
	var in responseRequest
	_ = json.Unmarshal(j.input, &in) // it was decoded when the job was accepted
	o := object{
		"id": j.id, "object": "response", "created_at": j.created.Unix(), "status": responseStates[j.state], "background": true, "model": j.model,
		"error": nil, "incomplete_details": nil, "instructions": nil, "max_output_tokens": nil, "metadata": object{}, "output": []object{}, "usage": nil,
		"previous_response_id": nil, "parallel_tool_calls": true, "store": true, "temperature": 1, "top_p": 1, "tool_choice": "auto", "tools": []object{},
		"text": object{"format": object{"type": "text"}}, "truncation": "disabled",
	}
	if in.Instructions != "" {
		o["instructions"] = in.Instructions
	}
	if in.MaxTokens > 0 {
		o["max_output_tokens"] = in.MaxTokens
	}
	if in.Metadata != nil {
		o["metadata"] = in.Metadata
	}
	switch j.state {
	case JobDone, JobIncomplete:
		o["completed_at"] = j.ended.Unix()
		p.answer(o, j, &in)
	case JobFailed:
		o["error"] = object{"code": "server_error", "message": j.failure}
	}
	return o
}

// answer adds the answer and what it costs to a response.
func (openAI) answer(o object, j *job, in *responseRequest) {
	text, status := in.text(j.result), "completed"
	if j.state == JobIncomplete {
		text, status = strings.ToValidUTF8(text[:min(len(text), in.MaxTokens*4)], ""), "incomplete"
		o["incomplete_details"] = object{"reason": "max_output_tokens"}
	}
	o["output"] = []object{{
		"type": "message", "id": "msg_" + strings.TrimPrefix(j.id, "resp_"), "status": status, "role": "assistant",
		"content": []object{{"type": "output_text", "text": text, "annotations": []object{}}},
	}}
	input, output := tokens(in.Instructions)+tokens(in.asked()), tokens(text)
	o["usage"] = object{
		"input_tokens": input, "input_tokens_details": object{"cached_tokens": 0},
		"output_tokens": output, "output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": input + output,
	}
}

func (p openAI) accepted(j *job) (int, object)          { return http.StatusOK, p.show(j) }
func (p openAI) polled(j *job) (int, object)            { return http.StatusOK, p.show(j) }
func (p openAI) cancelled(j *job, _ bool) (int, object) { return http.StatusOK, p.show(j) }

// event says only that there is something to know: it has no result.
func (openAI) event(j *job, delivery string) object {
	return object{
		"id": "evt_" + strings.TrimPrefix(delivery, "msg_"), "object": "event", "created_at": j.ended.Unix(),
		"type": fmt.Sprintf("response.%s", responseStates[j.state]), "data": object{"id": j.id},
	}
}
