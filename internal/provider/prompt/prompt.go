// SPDX-License-Identifier: Apache-2.0

// Package prompt asks a model on behalf of a step.
//
// It decides what a step's input is as a request, whether an answer is the JSON document that was
// asked for, when an answer is sent back, and what all calls of a step cost together. It never
// decides which service is asked (package provider does), and stores nothing but media of answers.
package prompt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/provider"
)

// maxFiles bounds the files that a model is to see, together.
const maxFiles = 20 << 20

// maxJSON bounds an answer that is read as JSON.
const maxJSON = 8 << 20

// An Input is the input of an action that calls a model.
type Input struct {
	Prompt, System string
	Messages       []struct{ Role, Content string }
	Files          []string
	Provider       string
	Model          string
	Temperature    *float64
	MaxTokens      int64
	Stop           []string
	OutputSchema   json.RawMessage
	Stream         *bool
}

// An Output is what a model has answered, and what that costs: also if the answer is of no
// use, when there is an error beside it.
type Output struct {
	Answer   provider.Answer
	Provider string          // the name of the one that has answered
	JSON     json.RawMessage // nil = the text is no JSON document
	media    []map[string]any
	usage    provider.Usage // of all calls
	calls    int
	price    string // "" = nothing was answered
}

// Value returns the output of a step.
func (o *Output) Value() map[string]any {
	media := o.media
	if media == nil {
		media = []map[string]any{}
	}
	var value any
	if o.JSON != nil {
		value = o.JSON
	}
	return map[string]any{
		"text": o.Answer.Text, "json": value, "media": media, "model": o.Answer.Model, "provider": o.Provider, "stopReason": o.Answer.StopReason,
		"usage": map[string]any{"inputTokens": o.usage.Input + o.usage.Cached, "cachedTokens": o.usage.Cached, "outputTokens": o.usage.Output, "calls": o.calls},
	}
}

// Result returns the result of a step with an output, and what its calls cost.
func (o *Output) Result(output any) action.Result {
	return action.Result{Output: output, Price: o.price, Tokens: o.usage.Input + o.usage.Cached + o.usage.Output}
}

// Ask calls a model, and once more if its answer does not fit the schema. kind is that of
// the provider that is preferred where the step names none.
func Ask(ctx context.Context, task *action.Task, models *provider.Set, in *Input, kind string) (*Output, error) {
	out := &Output{}
	req, check, err := in.request(ctx, task)
	if err != nil {
		return out, err
	}
	m, err := models.Find(ctx, task.Account, in.Provider, in.Model, kind)
	if err != nil {
		return out, err
	}
	out.Provider = m.Provider
	stream := in.Stream == nil || *in.Stream
	if err := out.call(ctx, task, m, req, stream); err != nil {
		return out, err
	}
	if check == nil {
		out.JSON, _ = documentOf(out.Answer.Text)
		return out, nil
	}
	problem := out.fit(check)
	if problem == "" {
		return out, nil
	}
	say := cmp.Or(task.Report, action.Discard)
	say.Log("info", "the answer does not fit outputSchema and is sent back once: "+problem)
	req.Messages = append(req.Messages,
		provider.Message{Role: provider.Assistant, Text: orBlank(out.Answer.Text)},
		provider.Message{Role: provider.User, Text: "Your answer does not fit the JSON Schema: " + problem + "\nAnswer again with the corrected JSON document and nothing else."})
	if req.EffectKey != "" {
		req.EffectKey += "-repair"
	}
	if err := out.call(ctx, task, m, req, stream); err != nil {
		if !fault.Answers(fault.CodeOf(err)) {
			err = fault.Unsure(err) // with another key the first call would be carried out once more
		}
		return out, err
	}
	if problem = out.fit(check); problem != "" {
		return out, fault.New(fault.OutputContractViolation, "the model's answer does not fit outputSchema, also after it was sent back: %s", problem)
	}
	return out, nil
}

func orBlank(text string) string {
	if strings.TrimSpace(text) == "" {
		return "(nothing)" // services refuse messages without a text
	}
	return text
}

// call calls the model and adds what the call costs.
func (o *Output) call(ctx context.Context, task *action.Task, m *provider.Model, req *provider.Request, stream bool) error {
	o.media = nil
	say := cmp.Or(task.Report, action.Discard)
	var failed error
	take := func(c provider.Chunk) {
		switch {
		case failed != nil:
		case c.Type == provider.Partial:
			say.Delta(c.Text)
		case c.Type == provider.Media:
			failed = o.keep(ctx, task, say, c)
		}
	}
	answer, err := m.Call(ctx, req, stream, take)
	if err != nil {
		return err
	}
	if !stream {
		for _, c := range answer.Media {
			take(c)
		}
	}
	o.Answer, o.calls = *answer, o.calls+1
	o.usage = o.usage.Plus(answer.Usage)
	o.price = m.Price(o.usage).String()
	return failed
}

// keep stores and shows a piece of media.
func (o *Output) keep(ctx context.Context, task *action.Task, say action.Reporter, c provider.Chunk) error {
	kept, err := storeMedia(ctx, task, c)
	if err != nil {
		return err
	}
	o.media = append(o.media, kept)
	shown := map[string]any{"type": provider.Media, "url": kept["file"], "mime": kept["mimeType"]}
	if shown["url"] == nil {
		shown["url"] = kept["url"]
	}
	say.Preview(shown)
	return nil
}

// storeMedia stores a piece of media whose content is in its address.
func storeMedia(ctx context.Context, task *action.Task, c provider.Chunk) (map[string]any, error) {
	out := map[string]any{}
	if c.MIME != "" {
		out["mimeType"] = c.MIME
	}
	rest, inline := strings.CutPrefix(c.URL, "data:")
	if !inline {
		out["url"] = c.URL
		return out, nil
	}
	head, data, _ := strings.Cut(rest, ",")
	if !strings.HasSuffix(head, ";base64") {
		return nil, fault.New(fault.ProviderError, "the model sent media that are not in base64")
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, fault.New(fault.ProviderError, "the model sent media that are not in base64")
	}
	info, err := task.Files.Put(ctx, bytes.NewReader(raw), "", "")
	if err != nil {
		return nil, fault.Unsure(err) // the model has answered
	}
	out["file"], out["mimeType"] = info.Hash, info.MimeType
	return out, nil
}

// request makes the request of an input, and the schema of the answer if there is one.
func (in *Input) request(ctx context.Context, task *action.Task) (*provider.Request, *jsonschema.Schema, error) {
	req := &provider.Request{
		System: in.System, Temperature: in.Temperature, MaxTokens: in.MaxTokens, Stop: in.Stop,
		EffectKey: task.EffectKey, TraceParent: task.TraceParent,
	}
	for i := range in.Messages {
		m := &in.Messages[i]
		if m.Role == "system" {
			req.System = strings.TrimPrefix(req.System+"\n\n"+m.Content, "\n\n")
			continue
		}
		req.Messages = append(req.Messages, provider.Message{Role: m.Role, Text: m.Content})
	}
	if in.Prompt != "" {
		req.Messages = append(req.Messages, provider.Message{Role: provider.User, Text: in.Prompt})
	}
	if len(req.Messages) == 0 || req.Messages[len(req.Messages)-1].Role != provider.User {
		return nil, nil, fault.New(fault.InputInvalid, `the conversation has to end with what the model is asked: give "prompt", or "messages" whose last one is of the user`)
	}
	files, err := readFiles(ctx, task, in.Files)
	if err != nil {
		return nil, nil, err
	}
	req.Messages[len(req.Messages)-1].Files = files
	if in.OutputSchema == nil {
		return req, nil, nil
	}
	check, err := jsonschema.Compile(in.OutputSchema)
	if err != nil {
		return nil, nil, fault.Wrap(fault.InputInvalid, err, "outputSchema: %s", fault.Message(err))
	}
	req.Schema = in.OutputSchema
	req.System = strings.TrimPrefix(req.System+"\n\nAnswer with one JSON document and nothing else. It has to fit this JSON Schema:\n"+string(in.OutputSchema), "\n\n")
	return req, check, nil
}

// readFiles reads the files that a model is to see.
func readFiles(ctx context.Context, task *action.Task, hashes []string) (files []provider.File, err error) {
	left := int64(maxFiles)
	for _, hash := range hashes {
		f, err := task.Files.Open(ctx, hash)
		if err != nil {
			return nil, err
		}
		info := f.Info()
		if left -= info.Size; left < 0 {
			_ = f.Close()
			return nil, fault.New(fault.FileTooLarge, "the files for the model have more than %d MiB together", maxFiles>>20)
		}
		data, err := io.ReadAll(io.LimitReader(f, info.Size))
		_ = f.Close() // it was only read
		if err != nil {
			return nil, err
		}
		files = append(files, provider.File{Name: info.Name, MIME: info.MimeType, Data: data})
	}
	return files, nil
}

// fit takes the answer as JSON and returns what is wrong with it, "" if it fits.
func (o *Output) fit(check *jsonschema.Schema) string {
	if o.Answer.Truncated() {
		return "it was cut off because it had maxTokens"
	}
	raw, v := documentOf(o.Answer.Text)
	if raw == nil {
		return "it is not one JSON document"
	}
	var problems []string
	for i, p := range check.Validate(v) {
		if i == 5 {
			break
		}
		problems = append(problems, fmt.Sprintf("at %q: %s", p.Pointer, p.Msg))
	}
	o.JSON = raw
	return strings.Join(problems, "; ")
}

// documentOf returns the JSON document that a text is, also within a fence of Markdown; nil if
// it is something else. A text that is only a number or a word is no document.
func documentOf(text string) (json.RawMessage, any) {
	text = strings.TrimSpace(text)
	if rest, ok := strings.CutPrefix(text, "```"); ok {
		lang, body, _ := strings.Cut(rest, "\n")
		body, closed := strings.CutSuffix(strings.TrimSpace(body), "```")
		if lang = strings.TrimSpace(lang); !closed || lang != "" && lang != "json" {
			return nil, nil
		}
		text = strings.TrimSpace(body)
	}
	if text == "" || text[0] != '{' && text[0] != '[' {
		return nil, nil
	}
	v, err := jsonx.Decode([]byte(text), jsonx.Limits{Bytes: maxJSON})
	if err != nil {
		return nil, nil
	}
	raw, err := jsonx.Canonical(v)
	if err != nil {
		return nil, nil
	}
	return raw, v
}
