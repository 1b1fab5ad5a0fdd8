// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"

	openai "github.com/sashabaranov/go-openai"

	"github.com/roux-engine/roux/fault"
)

// openAI speaks the protocol of OpenAI's chat completions.
type openAI struct{ caller *caller }

func newOpenAI(c *caller) *openAI { return &openAI{c} }

// A bodyKeeper sends the requests of the library. It keeps the body of the response for the
// adapter and gives the library an empty one, because the library loses what services report
// beside an answer: errors of a choice, errors after a comment or the name of an event, images. It
// also does not tell the end of a stream from the end of the connection.
type bodyKeeper struct {
	caller *caller
	body   io.ReadCloser
}

// Do implements openai.HTTPDoer.
func (k *bodyKeeper) Do(req *http.Request) (*http.Response, error) {
	resp, err := k.caller.Do(req)
	if err != nil {
		return nil, err
	}
	k.body, resp.Body = resp.Body, io.NopCloser(strings.NewReader("{}"))
	return resp, nil
}

// send sends a request and returns the body of the response.
func (o *openAI) send(ctx context.Context, r *Request, stream bool) (io.ReadCloser, error) {
	req, err := o.request(r)
	if err != nil {
		return nil, err
	}
	k := &bodyKeeper{caller: o.caller}
	cfg := openai.DefaultConfig(o.caller.key)
	cfg.BaseURL, cfg.HTTPClient = strings.TrimSuffix(o.caller.URL, "/"), k
	client := openai.NewClientWithConfig(cfg)
	if stream {
		req.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
		_, err = client.CreateChatCompletionStream(sending(ctx, r), req)
	} else {
		_, err = client.CreateChatCompletion(sending(ctx, r), req)
	}
	return k.body, err
}

// Execute implements Provider.
func (o *openAI) Execute(ctx context.Context, r *Request) (*Answer, error) {
	body, err := o.send(ctx, r, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	c := &collector{emit: func(Chunk) {}}
	if err := o.take(c, raw, true); err != nil {
		return nil, err
	}
	if c.answer.StopReason == "" {
		return nil, fault.New(fault.ProviderError, "%s sent what is no answer of its protocol", o.caller.host)
	}
	return &c.answer, c.finish()
}

// Stream implements Streamer.
func (o *openAI) Stream(ctx context.Context, r *Request, emit func(Chunk)) error {
	o.caller.text = chatTextOf
	body, err := o.send(ctx, r, true)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	c := &collector{emit: emit}
	done, err := o.lines(c, body)
	if err != nil {
		return err
	}
	// The usage comes after the end of the answer, so without [DONE] it may be what is missing.
	// A free answer does not need it.
	uncounted := c.answer.Usage == (Usage{}) && !o.caller.prices[r.Model].free()
	if c.answer.StopReason == "" || !done && uncounted {
		return endedEarly()
	}
	return c.finish()
}

// lines takes the lines of a stream. done reports whether it ends as the protocol says, with [DONE].
//
// Package sse is too strict for this: it drops an event without an empty line behind it, with
// which some services end, and documents between events, in which some report errors.
func (o *openAI) lines(c *collector, body io.Reader) (done bool, err error) {
	for lines := bufio.NewReader(body); ; {
		line, readErr := lines.ReadBytes('\n')
		if readErr != nil && readErr != io.EOF {
			return false, readErr
		}
		data, isEvent := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:"))
		switch data = bytes.TrimSpace(data); {
		case string(data) == "[DONE]":
			return true, nil
		case len(data) == 0 || !isEvent && data[0] != '{':
			// A comment or the name of an event. A document is the answer of a service that does
			// not stream, or does not stream its errors.
		case readErr == io.EOF && !json.Valid(data):
			// The line was cut off.
		default:
			if err := o.take(c, data, !isEvent); err != nil {
				return false, err
			}
		}
		if readErr == io.EOF {
			return false, nil
		}
	}
}

// A chatChunk is what is read of an answer or of a piece of one.
type chatChunk struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Usage   *openai.Usage   `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Index        int             `json:"index"`
		Delta        chatText        `json:"delta"`
		Message      chatText        `json:"message"` // of a whole answer
		FinishReason string          `json:"finish_reason"`
		Error        json.RawMessage `json:"error"`
	} `json:"choices"`
}

// A chatText is what the model has said. Images are as OpenRouter sends them.
type chatText struct {
	Content string `json:"content"`
	Images  []struct {
		ImageURL struct {
			URL string `json:"url"`
		} `json:"image_url"`
	} `json:"images"`
}

// take takes an answer, or a piece of one.
func (o *openAI) take(c *collector, raw []byte, whole bool) error {
	var chunk chatChunk
	if err := json.Unmarshal(raw, &chunk); err != nil {
		return err
	}
	if err := o.failed(chunk.Error, ""); err != nil {
		return err
	}
	for i := range chunk.Choices {
		choice := &chunk.Choices[i]
		if err := o.failed(choice.Error, choice.FinishReason); err != nil {
			return err
		}
		if whole {
			choice.Delta = choice.Message
		}
	}
	return c.chat(&chunk)
}

// chatTextOf returns the text of a piece of a stream that has nothing else.
func chatTextOf(data []byte) (string, bool) {
	var chunk chatChunk
	if json.Unmarshal(data, &chunk) != nil || len(chunk.Choices) != 1 {
		return "", false
	}
	c := &chunk.Choices[0]
	return c.Delta.Content, c.Index == 0 && c.FinishReason == "" && len(c.Delta.Images) == 0
}

// failed returns the error that an answer, a piece of one or a choice has. OpenRouter sends errors
// in any of them, also beside text.
func (o *openAI) failed(raw json.RawMessage, finishReason string) error {
	switch string(raw) {
	case "", "null", `""`, "{}", "false":
		if finishReason == "error" {
			return o.caller.streamFault("error", "it does not say why")
		}
		return nil
	}
	var e struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    any    `json:"code"` // a word, or a status
	}
	if json.Unmarshal(raw, &e.Message) != nil {
		_ = json.Unmarshal(raw, &e) // a field of another type says nothing
	}
	kind := e.Type
	if e.Code != nil {
		kind += " " + fmt.Sprint(e.Code)
	}
	return o.caller.streamFault(strings.TrimSpace(kind), e.Message)
}

// chat takes a piece of a stream.
func (c *collector) chat(chunk *chatChunk) error {
	if err := c.identify(chunk.ID); err != nil {
		return err
	}
	if chunk.Model != "" {
		c.answer.Model = chunk.Model
	}
	if chunk.Usage != nil {
		c.answer.Usage = usageOf(chunk.Usage)
	}
	for i := range chunk.Choices {
		choice := &chunk.Choices[i]
		if choice.Index != 0 {
			continue // one is asked for
		}
		if c.answer.StopReason != "" && choice.Delta.Content != "" {
			return fault.New(fault.ProviderError, "the stream goes on after its answer has ended: nothing of it is used")
		}
		if err := c.partial(choice.Delta.Content); err != nil {
			return err
		}
		for _, image := range choice.Delta.Images {
			if err := c.media(image.ImageURL.URL, mimeOf(image.ImageURL.URL)); err != nil {
				return err
			}
		}
		if choice.FinishReason != "" {
			c.answer.StopReason = choice.FinishReason
		}
	}
	return nil
}

// mimeOf returns the type that a data: URL names.
func mimeOf(url string) string {
	rest, ok := strings.CutPrefix(url, "data:")
	if !ok {
		return ""
	}
	mime, _, _ := strings.Cut(rest, ",")
	mime, _, _ = strings.Cut(mime, ";")
	return mime
}

func usageOf(u *openai.Usage) Usage {
	cached := 0
	if u.PromptTokensDetails != nil {
		cached = max(0, min(u.PromptTokensDetails.CachedTokens, u.PromptTokens))
	}
	return Usage{Input: int64(u.PromptTokens - cached), Cached: int64(cached), Output: int64(u.CompletionTokens)}
}

func (o *openAI) request(r *Request) (openai.ChatCompletionRequest, error) {
	req := openai.ChatCompletionRequest{Model: r.Model, Stop: r.Stop}
	if newTokenField(r.Model) {
		req.MaxCompletionTokens = int(r.MaxTokens)
	} else {
		req.MaxTokens = int(r.MaxTokens) //nolint:staticcheck // most services other than OpenAI know no other
	}
	if t := r.Temperature; t != nil {
		// The library leaves out 0, which is not the service's default.
		req.Temperature = max(float32(*t), math.SmallestNonzeroFloat32)
	}
	if r.Schema != nil {
		req.ResponseFormat = &openai.ChatCompletionResponseFormat{
			Type:       openai.ChatCompletionResponseFormatTypeJSONSchema,
			JSONSchema: &openai.ChatCompletionResponseFormatJSONSchema{Name: "answer", Schema: r.Schema},
		}
	}
	if r.System != "" {
		req.Messages = append(req.Messages, openai.ChatCompletionMessage{Role: openai.ChatMessageRoleSystem, Content: r.System})
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		if len(m.Files) == 0 {
			req.Messages = append(req.Messages, openai.ChatCompletionMessage{Role: m.Role, Content: m.Text})
			continue
		}
		var parts []openai.ChatMessagePart
		for _, f := range m.Files {
			if !strings.HasPrefix(f.MIME, "image/") {
				return req, fault.New(fault.FileUnsupported, "file %.80q is %s: providers.%s takes images; a PDF can be read with pdf-to-markdown, or sent to a provider of the kind %s", f.Name, f.MIME, o.caller.name, Anthropic)
			}
			parts = append(parts, openai.ChatMessagePart{Type: openai.ChatMessagePartTypeImageURL, ImageURL: &openai.ChatMessageImageURL{
				URL: "data:" + f.MIME + ";base64," + base64.StdEncoding.EncodeToString(f.Data),
			}})
		}
		if m.Text != "" {
			parts = append(parts, openai.ChatMessagePart{Type: openai.ChatMessagePartTypeText, Text: m.Text})
		}
		req.Messages = append(req.Messages, openai.ChatCompletionMessage{Role: m.Role, MultiContent: parts})
	}
	return req, nil
}

// newTokenField reports whether a model wants max_completion_tokens. Services other than OpenAI
// know max_tokens only.
func newTokenField(model string) bool {
	for _, family := range []string{"o1", "o3", "o4", "gpt-5"} {
		if strings.HasPrefix(model, family) {
			return true
		}
	}
	return false
}
