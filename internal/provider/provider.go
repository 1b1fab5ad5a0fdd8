// SPDX-License-Identifier: Apache-2.0

// Package provider talks to the services behind actions: those that have language models.
//
// It decides which service a call goes to, what the call costs by the table of prices, what is
// sent in the words of the service's protocol, and what a failure of the service means. Requests
// go through package egress, are sent once (the engine tries again), and have bounds of size and
// silence.
//
// It never decides whether a call is tried again, keeps nothing between calls, and shows no key.
package provider

import (
	"context"
	"encoding/json"

	"github.com/roux-engine/roux/fault"
)

// A Provider is a service that answers requests (X129, X130). Each kind of service has an
// adapter of its own.
type Provider interface {
	// Execute sends a request and returns the whole answer. The error is a *fault.Error, or the
	// cause of ctx.
	Execute(ctx context.Context, r *Request) (*Answer, error)
}

// A Streamer is a Provider that can also send an answer piece by piece (X129).
type Streamer interface {
	Provider
	// Stream calls emit with the chunks of the answer in their order. The last one has the type
	// Final, and its Answer is that of Execute; there is none if Stream fails.
	Stream(ctx context.Context, r *Request, emit func(Chunk)) error
}

// The types of chunks (X173).
const (
	Partial = "partial"
	Media   = "media"
	Final   = "final"
)

// A Chunk is a piece of an answer (X164, X173).
type Chunk struct {
	Type   string  // Partial, Media or Final
	Text   string  // of Partial: what follows the text before
	URL    string  // of Media: an address, or the content as a data: URL
	MIME   string  // of Media; "" = unknown
	Answer *Answer // of Final
}

// A Request is a call of a model.
type Request struct {
	Model       string
	System      string
	Messages    []Message
	Temperature *float64 // nil = the service's default
	MaxTokens   int64    // of the answer
	Stop        []string
	Schema      json.RawMessage // JSON Schema of the answer; nil = any text
	EffectKey   string          // sent as the idempotency key; "" = none
	TraceParent string          // W3C trace context; "" = none
}

// The roles of messages.
const (
	User      = "user"
	Assistant = "assistant"
)

// A Message is one of a conversation.
type Message struct {
	Role  string
	Text  string
	Files []File // before the text
}

// A File is an image or a PDF that a message has.
type File struct {
	Name, MIME string
	Data       []byte
}

// An Answer is what a model has said.
type Answer struct {
	ID         string
	Model      string // as the service names it
	Text       string
	Media      []Chunk // those of type Media
	StopReason string  // in the service's words: end_turn, stop, max_tokens, length, …
	Usage      Usage
}

// Truncated reports whether the answer ended because it had MaxTokens.
func (a *Answer) Truncated() bool { return a.StopReason == "max_tokens" || a.StopReason == "length" }

// Usage is what a call has used, in tokens. Input does not count those that are Cached.
type Usage struct {
	Input, Cached, Output int64
}

// Plus is the sum of two usages.
func (u Usage) Plus(v Usage) Usage {
	return Usage{u.Input + v.Input, u.Cached + v.Cached, u.Output + v.Output}
}

// The bounds of an answer.
const (
	maxBody   = 32 << 20 // bytes of a response
	maxText   = 8 << 20  // bytes of the text
	maxMedia  = 16       // pieces
	maxTokens = 1 << 30  // of any count that a service reports
)

// checkUsage refuses counts that cannot be. They would make a price of any size.
func checkUsage(u Usage) error {
	for _, n := range []int64{u.Input, u.Cached, u.Output} {
		if n < 0 || n > maxTokens {
			return fault.New(fault.ProviderError, "the service reported %d tokens, which cannot be", n)
		}
	}
	return nil
}

// A collector makes an answer of the pieces of a stream.
type collector struct {
	emit   func(Chunk)
	answer Answer
	text   []byte
}

func (c *collector) partial(text string) error {
	if text == "" {
		return nil
	}
	if len(c.text)+len(text) > maxText {
		return fault.New(fault.OutputTooLarge, "the answer of the model is larger than %d MiB: lower maxTokens", maxText>>20)
	}
	c.text = append(c.text, text...)
	c.emit(Chunk{Type: Partial, Text: text})
	return nil
}

func (c *collector) media(url, mime string) error {
	if len(c.answer.Media) == maxMedia {
		return fault.New(fault.OutputTooLarge, "the answer of the model has more than %d images or other media", maxMedia)
	}
	m := Chunk{Type: Media, URL: url, MIME: mime}
	c.answer.Media = append(c.answer.Media, m)
	c.emit(m)
	return nil
}

// identify takes the id of a piece. A piece of another answer is refused: a proxy that mixes two
// streams would make one text of both.
func (c *collector) identify(id string) error {
	switch {
	case id == "" || id == c.answer.ID:
	case c.answer.ID == "":
		c.answer.ID = id
	default:
		return fault.New(fault.ProviderError, "the stream has pieces of two answers, %.40q and %.40q: nothing of it is used", c.answer.ID, id)
	}
	return nil
}

func (c *collector) finish() error {
	if err := checkUsage(c.answer.Usage); err != nil {
		return err
	}
	c.answer.Text = string(c.text)
	c.emit(Chunk{Type: Final, Answer: &c.answer})
	return nil
}

// endedEarly is the error for a stream that ends before the answer does. What was answered may
// have to be paid.
func endedEarly() error {
	return fault.Unsure(fault.New(fault.ServiceUnavailable, "the stream ended before the answer was complete"))
}
