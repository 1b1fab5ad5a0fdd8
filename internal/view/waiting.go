// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
)

// A Waiting is where a step that wants an attempt stands at the moment when it is asked about. It
// is in no journal.
type Waiting struct {
	Reason   string       `json:"reason" doc:"The limit where it waits, or why nothing begins there."`
	Ahead    int          `json:"ahead" doc:"Steps of the account that come before it there."`
	Accounts int          `json:"accounts" doc:"Accounts that have steps waiting there, which take turns; its own is one of them."`
	Until    string       `json:"until,omitempty" format:"date-time" doc:"When it may go on at the earliest. Absent: not known."`
	Slots    int          `json:"slots,omitempty" doc:"Of the limit. Absent: it waits for time."`
	Used     int          `json:"used,omitempty" doc:"Slots of the limit that are held."`
	Holders  []WaitedStep `json:"holders,omitempty" doc:"Steps of the account that hold them, of limits with at most eight."`
	Behind   *WaitedStep  `json:"behind,omitempty" doc:"The step before it that waits for the next limit: it goes on after that one."`
}

// A WaitedStep is a step that another one waits for.
type WaitedStep struct {
	Run  string `json:"executionId"`
	Step string `json:"step,omitempty" doc:"Its path. Absent: its run waits outside of memory."`
}

func (w *WaitedStep) text() string {
	if w.Step == "" {
		return "run " + w.Run
	}
	return fmt.Sprintf("%s of run %s", w.Step, w.Run)
}

// Lines says it for people, a sentence each.
func (w *Waiting) Lines() []string {
	lines := []string{"at this moment it " + w.Reason}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if w.Slots > 0 && len(w.Holders) > 0 {
		held := make([]string, len(w.Holders))
		for i := range w.Holders {
			held[i] = w.Holders[i].text()
		}
		add("slots are held by %s", strings.Join(held, ", "))
	}
	if n := w.Used - len(w.Holders); w.Slots > 0 && n > 0 {
		add("%d of its %d slots are held by other steps", n, w.Slots)
	}
	if w.Behind != nil {
		add("it comes after %s", w.Behind.text())
	}
	switch {
	case w.Ahead > 0:
		add("before it come %s of its account", Count(w.Ahead, "step"))
	default:
		add("it is the next one of its account")
	}
	if w.Accounts > 1 {
		add("%d accounts take turns there", w.Accounts)
	}
	if w.Until != "" {
		add("it may go on at %s at the earliest", w.Until)
	}
	return lines
}

// StampOr is Stamp, and "" for a time that is 0.
func StampOr(micros int64) string {
	if micros == 0 {
		return ""
	}
	return Stamp(micros)
}
