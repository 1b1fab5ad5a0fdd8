// SPDX-License-Identifier: Apache-2.0

package view

import (
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// A LogLine is one message of a step: a log line or streamed text.
type LogLine struct {
	Event   uint64 `json:"event"`
	At      string `json:"at"`
	Step    string `json:"step"`
	Attempt uint32 `json:"attempt,omitempty"`
	Level   string `json:"level"` // of a log line; "stream" for streamed text
	Text    string `json:"text"`
}

// StepLog is the step's message in an event; ok is false for events without one.
func StepLog(p *plan.Plan, ev *journal.Event) (line LogLine, ok bool) {
	line = LogLine{Event: ev.Seq, At: Stamp(ev.At), Attempt: ev.Attempt, Text: ev.Text}
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
