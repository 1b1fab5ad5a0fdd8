// SPDX-License-Identifier: Apache-2.0

package emulate

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

type object = map[string]any

// A message is one of a request. Its content is a text, or parts of which some are texts.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

func textOf(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct{ Type, Text string }
	_ = json.Unmarshal(content, &parts) // what cannot be read has no text
	var all []string
	for _, p := range parts {
		if p.Text != "" {
			all = append(all, p.Text)
		} else {
			all = append(all, "["+p.Type+"]")
		}
	}
	return strings.Join(all, " ")
}

func (a *ask) converse(messages []message) error {
	if len(messages) == 0 {
		return errors.New("messages: at least one is required")
	}
	for _, m := range messages {
		text := textOf(m.Content)
		a.inputTokens += tokens(text)
		switch m.Role {
		case "system":
			a.system += text
		case "assistant":
			a.again = true
		default:
			a.last = text
		}
	}
	return nil
}

func readMessages(body []byte) (*ask, error) {
	var in struct {
		Model     string          `json:"model"`
		System    json.RawMessage `json:"system"`
		Messages  []message       `json:"messages"`
		MaxTokens int             `json:"max_tokens"`
		Stream    bool            `json:"stream"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	if in.MaxTokens < 1 {
		return nil, errors.New("max_tokens: a number of at least 1 is required")
	}
	a := &ask{model: in.Model, stream: in.Stream, system: textOf(in.System)}
	a.inputTokens = tokens(a.system)
	return a, a.converse(in.Messages)
}

func readChat(body []byte) (*ask, error) {
	var in struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
		Stream   bool      `json:"stream"`
		Format   struct {
			Schema struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"json_schema"`
		} `json:"response_format"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	a := &ask{model: in.Model, stream: in.Stream, schema: in.Format.Schema.Schema}
	return a, a.converse(in.Messages)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

// messages is the protocol of Anthropic.
type messages struct{}

func (messages) key(r *http.Request) string { return r.Header.Get("X-Api-Key") }

func (messages) fail(w http.ResponseWriter, status int, kind, text string) {
	writeJSON(w, status, object{"type": "error", "error": object{"type": kind, "message": text}})
}

func (messages) stop(a *reply) string {
	if a.stop == "length" {
		return "max_tokens"
	}
	return "end_turn"
}

func (messages) start(a *reply, content []object, stop any) object {
	return object{
		"id": a.id, "type": "message", "role": "assistant", "model": a.model, "content": content, "stop_reason": stop, "stop_sequence": nil,
		"usage": object{"input_tokens": a.input, "output_tokens": 1},
	}
}

func (p messages) whole(w http.ResponseWriter, a *reply) {
	m := p.start(a, []object{{"type": "text", "text": a.text}}, p.stop(a))
	m["usage"] = object{"input_tokens": a.input, "output_tokens": a.output}
	writeJSON(w, http.StatusOK, m)
}

func (p messages) stream(w *streamWriter, a *reply, mode string) {
	send := func(kind string, fields object) {
		fields["type"] = kind
		w.event(kind, fields)
	}
	send("message_start", object{"message": p.start(a, []object{}, nil)})
	if mode == DoubleStart {
		send("message_start", object{"message": p.start(a, []object{}, nil)})
	}
	send("content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}})
	send("ping", object{})
	all := pieces(a.text)
	for i, text := range all {
		if i == (len(all)+1)/2 || len(all) == 1 {
			if w.halfway(mode) {
				return
			}
			switch mode {
			case ErrorMidstream:
				send("error", object{"error": object{"type": "overloaded_error", "message": "overloaded"}})
				return
			case Splice:
				other := *a
				other.id += "-other"
				send("message_start", object{"message": p.start(&other, []object{}, nil)})
			}
		}
		send("content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": w.piece(text)}})
	}
	send("content_block_stop", object{"index": 0})
	send("message_delta", object{"delta": object{"stop_reason": p.stop(a), "stop_sequence": nil}, "usage": object{"output_tokens": a.output}})
	send("message_stop", object{})
}

// chat is the protocol of OpenAI.
type chat struct{}

func (chat) key(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func (chat) fail(w http.ResponseWriter, status int, kind, text string) {
	writeJSON(w, status, object{"error": object{"message": text, "type": kind, "param": nil, "code": kind}})
}

func (chat) stop(a *reply) string {
	if a.stop == "length" {
		return "length"
	}
	return "stop"
}

func (chat) usage(a *reply) object {
	return object{"prompt_tokens": a.input, "completion_tokens": a.output, "total_tokens": a.input + a.output}
}

func (p chat) whole(w http.ResponseWriter, a *reply) {
	writeJSON(w, http.StatusOK, object{
		"id": a.id, "object": "chat.completion", "created": 0, "model": a.model, "usage": p.usage(a),
		"choices": []object{{"index": 0, "message": object{"role": "assistant", "content": a.text}, "finish_reason": p.stop(a)}},
	})
}

func (p chat) stream(w *streamWriter, a *reply, mode string) {
	id := a.id
	send := func(delta object, finish any) {
		w.event("", object{"id": id, "object": "chat.completion.chunk", "created": 0, "model": a.model,
			"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}}})
	}
	send(object{"role": "assistant", "content": ""}, nil)
	if mode == DoubleStart {
		send(object{"role": "assistant", "content": ""}, nil)
	}
	all := pieces(a.text)
	for i, text := range all {
		if i == (len(all)+1)/2 || len(all) == 1 {
			if w.halfway(mode) {
				return
			}
			switch mode {
			case ErrorMidstream:
				w.event("", object{"error": object{"message": "overloaded", "type": "server_error", "param": nil, "code": nil}})
				return
			case Splice:
				id += "-other"
			}
		}
		send(object{"content": w.piece(text)}, nil)
	}
	send(object{}, p.stop(a))
	w.event("", object{"id": id, "object": "chat.completion.chunk", "created": 0, "model": a.model, "choices": []object{}, "usage": p.usage(a)})
	_, _ = io.WriteString(w.w, "data: [DONE]\n\n")
	_ = w.flush.Flush()
}
