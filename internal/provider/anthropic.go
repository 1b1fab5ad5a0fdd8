// SPDX-License-Identifier: Apache-2.0

//go:build !small

package provider

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/roux-engine/roux/fault"
)

// anthropicMessages speaks the protocol of Anthropic's Messages.
type anthropicMessages struct {
	caller  *caller
	service anthropic.MessageService
}

func newAnthropic(c *caller) (Streamer, error) {
	opts := []option.RequestOption{
		// A service and not a client: a client takes keys and addresses from the environment.
		option.WithBaseURL(strings.TrimSuffix(strings.TrimSuffix(c.URL, "/"), "/v1")), option.WithHTTPClient(c), option.WithMaxRetries(0),
	}
	if c.key != "" {
		opts = append(opts, option.WithAPIKey(c.key))
	}
	return &anthropicMessages{c, anthropic.NewMessageService(opts...)}, nil
}

// Execute implements Provider.
func (a *anthropicMessages) Execute(ctx context.Context, r *Request) (*Answer, error) {
	params, err := a.params(r)
	if err != nil {
		return nil, err
	}
	m, err := a.service.New(sending(ctx, r), params)
	if err != nil {
		return nil, a.explain(err)
	}
	c := &collector{emit: func(Chunk) {}}
	c.start(m)
	c.answer.Usage.Output, c.answer.StopReason = m.Usage.OutputTokens, string(m.StopReason)
	for i := range m.Content {
		if m.Content[i].Type == "text" {
			if err := c.partial(m.Content[i].Text); err != nil {
				return nil, err
			}
		}
	}
	if c.answer.ID == "" || c.answer.StopReason == "" {
		return nil, fault.New(fault.ProviderError, "%s sent what is no answer of its protocol", a.caller.host)
	}
	return &c.answer, c.finish()
}

func (c *collector) start(m *anthropic.Message) {
	c.answer.ID, c.answer.Model = m.ID, m.Model
	c.answer.Usage = Usage{Input: m.Usage.InputTokens + m.Usage.CacheCreationInputTokens, Cached: m.Usage.CacheReadInputTokens, Output: m.Usage.OutputTokens}
}

// Stream implements Streamer.
func (a *anthropicMessages) Stream(ctx context.Context, r *Request, emit func(Chunk)) error {
	params, err := a.params(r)
	if err != nil {
		return err
	}
	a.caller.text = messageTextOf
	stream := a.service.NewStreaming(sending(ctx, r), params)
	defer func() {
		if stream.Err() == nil {
			_ = stream.Close()
		}
	}()
	s := messageStream{collector: collector{emit: emit}, open: map[int64]bool{}}
	for !s.stopped && stream.Next() {
		ev := stream.Current()
		if err := s.event(&ev); err != nil {
			return err
		}
	}
	if err := stream.Err(); err != nil && !s.stopped {
		return a.explain(err)
	}
	if !s.stopped {
		return endedEarly()
	}
	return s.finish()
}

// messageTextOf returns the text of an event that only adds some.
func messageTextOf(data []byte) (string, bool) {
	var ev anthropic.MessageStreamEventUnion
	if json.Unmarshal(data, &ev) != nil {
		return "", false
	}
	return ev.Delta.Text, ev.Type == "content_block_delta" && ev.Delta.Type == "text_delta"
}

// A messageStream follows the events of one message.
type messageStream struct {
	collector
	open    map[int64]bool // blocks that have begun and not ended
	stopped bool
}

// event takes an event. One that cannot follow those before it is refused.
func (s *messageStream) event(ev *anthropic.MessageStreamEventUnion) error {
	if ev.Type == "message_start" {
		again := s.answer.ID != ""
		if err := s.identify(ev.Message.ID); err != nil {
			return err
		}
		if again && (len(s.text) > 0 || len(s.open) > 0) {
			return fault.New(fault.ProviderError, "the stream began anew in its middle: nothing of it is used")
		}
		s.start(&ev.Message)
		return nil
	}
	if s.answer.ID == "" {
		return fault.New(fault.ProviderError, "the stream does not begin at the start of an answer: nothing of it is used")
	}
	switch ev.Type {
	case "content_block_start":
		if s.open[ev.Index] || len(s.open) > 1000 {
			return fault.New(fault.ProviderError, "the stream began a part of its answer twice: nothing of it is used")
		}
		s.open[ev.Index] = true
		if ev.ContentBlock.Type == "text" {
			return s.partial(ev.ContentBlock.Text)
		}
	case "content_block_delta":
		if !s.open[ev.Index] {
			return fault.New(fault.ProviderError, "the stream goes on with a part of its answer that has not begun: nothing of it is used")
		}
		if ev.Delta.Type == "text_delta" {
			return s.partial(ev.Delta.Text)
		}
	case "content_block_stop":
		delete(s.open, ev.Index)
	case "message_delta":
		s.answer.StopReason = string(ev.Delta.StopReason)
		u := &s.answer.Usage
		u.Output = max(u.Output, ev.Usage.OutputTokens) // it counts from the start of the message
		u.Input = max(u.Input, ev.Usage.InputTokens+ev.Usage.CacheCreationInputTokens)
		u.Cached = max(u.Cached, ev.Usage.CacheReadInputTokens)
	case "message_stop":
		s.stopped = true
		if s.answer.StopReason == "" {
			s.answer.StopReason = "end_turn"
		}
	}
	return nil
}

func (a *anthropicMessages) params(r *Request) (anthropic.MessageNewParams, error) {
	p := anthropic.MessageNewParams{Model: r.Model, MaxTokens: r.MaxTokens, StopSequences: r.Stop}
	if r.System != "" {
		p.System = []anthropic.TextBlockParam{{Text: r.System}}
	}
	if r.Temperature != nil {
		p.Temperature = anthropic.Float(*r.Temperature)
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		var blocks []anthropic.ContentBlockParamUnion
		for _, f := range m.Files {
			data := base64.StdEncoding.EncodeToString(f.Data)
			switch f.MIME {
			case "application/pdf":
				blocks = append(blocks, anthropic.NewDocumentBlock(anthropic.Base64PDFSourceParam{Data: data}))
			case "image/jpeg", "image/png", "image/gif", "image/webp":
				blocks = append(blocks, anthropic.NewImageBlockBase64(f.MIME, data))
			default:
				return p, fault.New(fault.FileUnsupported, "file %.80q is %s: providers.%s takes PDF, JPEG, PNG, GIF and WebP", f.Name, f.MIME, a.caller.name)
			}
		}
		if m.Text != "" {
			blocks = append(blocks, anthropic.NewTextBlock(m.Text))
		}
		if m.Role == Assistant {
			p.Messages = append(p.Messages, anthropic.NewAssistantMessage(blocks...))
		} else {
			p.Messages = append(p.Messages, anthropic.NewUserMessage(blocks...))
		}
	}
	return p, nil
}

// explain returns what an error of the library means.
func (a *anthropicMessages) explain(err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	var api *anthropic.Error
	if !errors.As(err, &api) {
		return err
	}
	if api.Response == nil || api.StatusCode != http.StatusOK {
		return fault.New(fault.ProviderError, "%s failed", a.caller.host)
	}
	var e struct {
		Error struct{ Type, Message string }
	}
	if json.Unmarshal([]byte(api.RawJSON()), &e) != nil || e.Error.Type == "" {
		return fault.New(fault.ProviderError, "%s broke off its answer", a.caller.host)
	}
	return a.caller.streamFault(e.Error.Type, e.Error.Message)
}
