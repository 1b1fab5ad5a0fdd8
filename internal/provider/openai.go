// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"

	openai "github.com/sashabaranov/go-openai"

	"github.com/roux-engine/roux/fault"
)

// openAI speaks the protocol of OpenAI's chat completions.
type openAI struct {
	caller *caller
	client *openai.Client
}

func newOpenAI(c *caller) *openAI {
	cfg := openai.DefaultConfig(c.key)
	cfg.BaseURL, cfg.HTTPClient = strings.TrimSuffix(c.URL, "/"), c
	cfg.EmptyMessagesLimit = 10_000 // comments that keep a connection alive
	return &openAI{c, openai.NewClientWithConfig(cfg)}
}

// Execute implements Provider.
func (o *openAI) Execute(ctx context.Context, r *Request) (*Answer, error) {
	req, err := o.request(r)
	if err != nil {
		return nil, err
	}
	resp, err := o.client.CreateChatCompletion(sending(ctx, r), req)
	if err != nil {
		return nil, o.explain(err)
	}
	if len(resp.Choices) == 0 {
		return nil, fault.New(fault.ProviderError, "%s sent an answer without a choice", o.caller.host)
	}
	c := &collector{emit: func(Chunk) {}, answer: Answer{ID: resp.ID, Model: resp.Model, StopReason: string(resp.Choices[0].FinishReason), Usage: usageOf(&resp.Usage)}}
	if err := c.partial(resp.Choices[0].Message.Content); err != nil {
		return nil, err
	}
	return &c.answer, c.finish()
}

// A chatChunk is what is read of a piece of a stream. Images are as OpenRouter sends them.
type chatChunk struct {
	ID      string        `json:"id"`
	Model   string        `json:"model"`
	Usage   *openai.Usage `json:"usage"`
	Choices []struct {
		Index int `json:"index"`
		Delta struct {
			Content string `json:"content"`
			Images  []struct {
				ImageURL struct {
					URL string `json:"url"`
				} `json:"image_url"`
			} `json:"images"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
}

// Stream implements Streamer.
func (o *openAI) Stream(ctx context.Context, r *Request, emit func(Chunk)) error {
	req, err := o.request(r)
	if err != nil {
		return err
	}
	req.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	stream, err := o.client.CreateChatCompletionStream(sending(ctx, r), req)
	if err != nil {
		return o.explain(err)
	}
	defer func() { _ = stream.Close() }()
	c := &collector{emit: emit}
	for {
		raw, err := stream.RecvRaw()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return o.explain(err)
		}
		var chunk chatChunk
		if err := json.Unmarshal(raw, &chunk); err != nil {
			return err
		}
		if err := c.chat(&chunk); err != nil {
			return err
		}
	}
	if c.answer.StopReason == "" {
		return endedEarly()
	}
	return c.finish()
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

// explain returns what an error of the library means.
func (o *openAI) explain(err error) error {
	var f *fault.Error
	var api *openai.APIError
	if !errors.As(err, &f) && errors.As(err, &api) {
		kind := api.Type
		if code, ok := api.Code.(string); ok {
			kind += " " + code
		}
		return o.caller.streamFault(strings.TrimSpace(kind), api.Message)
	}
	return err
}
