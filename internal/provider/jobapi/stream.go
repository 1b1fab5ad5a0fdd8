// SPDX-License-Identifier: Apache-2.0

//go:build !small

package jobapi

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
)

type stream struct {
	*call
	number, text, ended *expr.Program
}

// stream compiles what is said of streams; nil = there are none.
func (b *builder) stream(s *Stream) *stream {
	if s == nil {
		return nil
	}
	return &stream{
		b.call("stream", &s.Call, "GET", []string{"model", "job", "after"}),
		b.reading("stream.number", s.Number, ofResponses), b.reading("stream.text", s.Text, ofResponses), b.reading("stream.ended", s.Ended, ofResponses),
	}
}

// openAIStream is https://platform.openai.com/docs/guides/background#streaming-a-background-response.
func openAIStream() *Stream {
	return &Stream{
		Call:   Call{Path: "/responses/{{ job }}", Query: map[string]string{"stream": "true", "starting_after": "{{ after }}"}},
		Number: "body.sequence_number",
		Text:   "body.type == 'response.output_text.delta' ? dyn(body.delta) : null",
		Ended:  "body.type in ['response.completed', 'response.incomplete', 'response.failed', 'response.cancelled'] ? dyn(body.response) : null",
	}
}

// Streams reports whether jobs can be followed.
func (c *Compiled) Streams() bool { return c.stream != nil }

// Follow is the request that follows a job from behind the event with a number on; -1 = from the
// beginning.
func (c *Compiled) Follow(j Job, after int64) (*Request, error) {
	vars := expr.MapVars{"model": j.Model, "job": j.ID, "after": nil}
	if after >= 0 {
		vars["after"] = after
	}
	req, err := c.request(c.stream.call, j.Model, vars)
	if err == nil {
		req.Header["Accept"] = "text/event-stream"
	}
	return req, err
}

// An Event is what an event of the stream of a job says.
type Event struct {
	Number int64
	Text   string // that it adds
	Ended  bool   // State is how the job has ended
	State  State
}

// Event reads an event of the stream of a job. The error of one with Ended is as that of State.
func (c *Compiled) Event(j Job, data []byte) (ev Event, err error) {
	vars, err := c.response(j, data)
	if err != nil {
		return ev, err
	}
	n, err := c.stream.number.Eval(vars)
	if ok := false; err == nil {
		ev.Number, ok = n.(int64)
		if !ok || ev.Number < 0 {
			err = fault.New(fault.ProviderError, "want a whole number")
		}
	}
	if err != nil {
		return ev, fault.New(fault.ProviderError, "the stream of the job has an event without a number: %s", fault.Message(err))
	}
	text, err := c.stream.text.Eval(vars)
	if err != nil {
		return ev, fault.New(fault.ProviderError, "the stream of the job has an event whose text cannot be read: %s", fault.Message(err))
	}
	ev.Text, _ = text.(string)
	ended, err := c.stream.ended.Eval(vars)
	if err != nil || ended == nil {
		return ev, err
	}
	if id, err := idOf(c.job, vars); err != nil || id != j.ID {
		return ev, fault.New(fault.ProviderError, "the stream of the job has the end of another one")
	}
	vars["body"], ev.Ended = ended, true
	ev.State, err = c.stateOf(vars)
	return ev, err
}
