// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
)

// A State is what a run has made of a step: of all its instances, when it
// stands in a loop.
type State struct {
	// Counts are the instances by status; those of a loop step are its iterations.
	Counts   map[string]int
	Attempts int   // the most that one instance needed
	Tries    int64 // how many it may need
	Micros   int64 // how long the last one took
	Cost     int64 // credits, of all
	Items    int64 // of a loop; -1 = not known, or no loop
	// Note says what it waits for, why it is held back or was passed over.
	Note    string
	Undone  string // "compensated", or why that failed
	Code    fault.Code
	Message string

	own   string // the status of the step itself, where it has one instance
	began bool
}

// Status is the one status whose look a card has: that of the instance that
// most wants to be seen.
func (s *State) Status() string {
	if s.own != "" {
		return s.own
	}
	for _, status := range statuses {
		if s.Counts[status] > 0 {
			return status
		}
	}
	return "pending"
}

// stacked says that the card stands for many.
func (s *State) stacked(repeated bool) bool { return repeated || s.Items >= 0 }

// countOrder is the order in which counts are read.
var countOrder = []string{
	"completed", "failed", "timed_out", "running", "retrying", "waiting", "queued",
	"blocked", "skipped", "cancelled", "invalidated", "pending",
}

// line says how the step stands: "completed · 41 ms · try 2/3", or for many
// "×240 ✓231 ✕6 ◐3".
func (s *State) line(repeated bool) string {
	var parts []string
	if s.stacked(repeated) {
		total := 0
		for _, n := range s.Counts {
			total += n
		}
		counts := []string{fmt.Sprintf("×%d", max(int64(total), s.Items))}
		for _, status := range countOrder {
			if n := s.Counts[status]; n > 0 {
				counts = append(counts, fmt.Sprintf("%s%d", LookOf(status).Glyph, n))
			}
		}
		parts = append(parts, strings.Join(counts, " "))
		if !repeated {
			parts = append([]string{word(s.Status())}, parts...)
		}
	} else {
		parts = append(parts, word(s.Status()))
	}
	if s.Micros > 0 && !repeated {
		parts = append(parts, took(s.Micros))
	}
	switch {
	case s.Attempts > 1 && s.Tries >= int64(s.Attempts):
		parts = append(parts, fmt.Sprintf("try %d/%d", s.Attempts, s.Tries))
	case s.Attempts > 1:
		parts = append(parts, fmt.Sprintf("try %d", s.Attempts))
	}
	if s.Cost > 0 {
		parts = append(parts, fmt.Sprintf("%d cr", s.Cost))
	}
	return strings.Join(parts, " · ")
}

// words is line for those who hear it.
func (s *State) words(repeated bool) string {
	if !s.stacked(repeated) {
		return s.line(repeated)
	}
	var counts []string
	for _, status := range countOrder {
		if n := s.Counts[status]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, word(status)))
		}
	}
	return word(s.Status()) + ": " + strings.Join(counts, ", ")
}

// details are the lines below: what failed, what it waits for, why it is held back.
func (s *State) details() []string {
	var lines []string
	switch s.Status() {
	case "failed", "timed_out", "retrying":
		lines = []string{line(string(s.Code)), line(s.Message)}
	case "completed":
		lines = []string{line(s.Undone)}
	case "running", "queued":
	default:
		lines = []string{line(s.Note)}
	}
	return slices.DeleteFunc(lines, func(s string) bool { return s == "" })
}

// detail is details in one line.
func (s *State) detail() string { return strings.Join(s.details(), ": ") }

func stamp(micros int64) string {
	return time.UnixMicro(micros).UTC().Format("2006-01-02T15:04:05Z")
}

func waitNote(signal string, due int64) string {
	var parts []string
	if signal != "" {
		parts = append(parts, "for signal "+signal)
	}
	if due > 0 {
		parts = append(parts, "until "+stamp(due))
	}
	return strings.Join(parts, ", ")
}

// reasons say why a step was passed over, in the words of explain.
var reasons = map[journal.Reason]string{
	journal.ByCondition:    "its condition was false",
	journal.BranchNotTaken: "on the side that was not taken",
	journal.ParentFailure:  "what it depends on failed",
	journal.BranchLost:     "another branch decided first",
	journal.ByOnError:      "it failed, and may be skipped",
	journal.RunEnded:       "the run ended before its turn",
	journal.ByCancel:       "the run was cancelled or expired",
}
