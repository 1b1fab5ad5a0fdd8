// SPDX-License-Identifier: Apache-2.0

package view

import (
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// A Said is one thing that a step said.
type Said struct {
	Event   uint64 `json:"event"`
	At      string `json:"at"`
	Step    string `json:"step"`
	Attempt uint32 `json:"attempt,omitempty"`
	Level   string `json:"level"` // of a log line; "stream" for streamed text
	Text    string `json:"text"`
}

// SaidBy is what an event says of a step's own words; ok is false for others.
func SaidBy(p *plan.Plan, ev *journal.Event) (line Said, ok bool) {
	line = Said{Event: ev.Seq, At: Stamp(ev.At), Attempt: ev.Attempt, Text: ev.Text}
	switch ev.Kind {
	case journal.EvNodeLog:
		line.Level = string(ev.Code)
	case journal.EvNodeDelta:
		line.Level = "stream"
	default:
		return line, false
	}
	line.Step = journal.StepPath(p, ev.Ref())
	return line, true
}
