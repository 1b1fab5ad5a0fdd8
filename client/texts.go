// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"

	"github.com/roux-engine/roux/fault"
)

// Texts puts together the texts that the steps of a run stream, such as the answers of language
// models, from the events of the run. Its zero value has none. It is not safe for concurrent use.
//
// A step that fails, or whose server was killed, is tried again, and then its text begins again:
// what an earlier attempt has streamed is no part of its result.
type Texts struct {
	last  uint64 // number of the last event
	steps map[string]*stepText
}

type stepText struct {
	attempt int
	text    []byte
}

// A TextPiece is what an event does to the text of a step.
type TextPiece struct {
	Node    string // the step, as nodeId of its events
	Attempt int
	Again   bool   // another attempt has begun: what came before is dropped
	Text    string // is appended
}

// Add takes the next event of the run. Events of all types may be added from the first one on; those
// of the types node.started and node.stream.delta are needed. One that was added before changes
// nothing, so that the events may come from any number of connections. ok reports whether a text
// has changed.
func (t *Texts) Add(e *Event) (p TextPiece, ok bool, err error) {
	if e.ID <= t.last {
		return p, false, nil
	}
	t.last = e.ID
	delta := e.Type == "node.stream.delta"
	if !delta && e.Type != "node.started" {
		return p, false, nil
	}
	var got struct {
		NodeID  string `json:"nodeId"`
		Attempt int    `json:"attempt"`
		Text    string `json:"text"`
	}
	if err := json.Unmarshal(e.Payload, &got); err != nil {
		return p, false, fault.Wrap(fault.InternalError, err, "the event %d cannot be read: %v", e.ID, err)
	}
	s := t.steps[got.NodeID]
	if s == nil {
		if !delta {
			return p, false, nil
		}
		if t.steps == nil {
			t.steps = map[string]*stepText{}
		}
		s = &stepText{attempt: got.Attempt}
		t.steps[got.NodeID] = s
	}
	p = TextPiece{Node: got.NodeID, Attempt: got.Attempt}
	if got.Attempt != s.attempt {
		p.Again = len(s.text) > 0
		s.attempt, s.text = got.Attempt, s.text[:0]
	}
	if delta {
		p.Text = got.Text
		s.text = append(s.text, got.Text...)
	}
	return p, p.Again || p.Text != "", nil
}

// Of returns the text of a step, as its last attempt has streamed it so far.
func (t *Texts) Of(node string) string {
	if s := t.steps[node]; s != nil {
		return string(s.text)
	}
	return ""
}
