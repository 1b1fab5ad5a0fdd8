// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/view"
)

// A State is the state of a step in a run, as its card shows it.
type State struct{ view.StepTally }

// aggregated reports whether the card stands for many instances.
func (s *State) aggregated(repeated bool) bool { return repeated || s.Items >= 0 }

// countOrder is the order in which counts are shown.
var countOrder = []string{
	"completed", "failed", "timed_out", "running", "retrying", "waiting", "queued",
	"blocked", "skipped", "cancelled", "invalidated", "pending",
}

// summary describes the state: "completed · 41 ms · try 2/3", or for many
// instances "×240 ✓231 ✕6 ◐3".
func (s *State) summary(repeated bool) string {
	var parts []string
	if s.aggregated(repeated) {
		total := 0
		for _, n := range s.Counts {
			total += n
		}
		counts := []string{fmt.Sprintf("×%d", max(int64(total), s.Items))}
		for _, status := range countOrder {
			if n := s.Counts[status]; n > 0 {
				counts = append(counts, fmt.Sprintf("%s%d", StyleOf(status).Glyph, n))
			}
		}
		parts = append(parts, strings.Join(counts, " "))
		if !repeated {
			parts = append([]string{statusWord(s.Status())}, parts...)
		}
	} else {
		parts = append(parts, statusWord(s.Status()))
	}
	if s.Micros > 0 && !repeated {
		parts = append(parts, formatDuration(s.Micros))
	}
	switch {
	case s.Attempts > 1 && s.Tries >= int64(s.Attempts):
		parts = append(parts, fmt.Sprintf("try %d/%d", s.Attempts, s.Tries))
	case s.Attempts > 1:
		parts = append(parts, fmt.Sprintf("try %d", s.Attempts))
	}
	if s.Cost > 0 {
		parts = append(parts, view.Credits(s.Cost))
	}
	return strings.Join(parts, " · ")
}

// accessibleText is summary for screen readers.
func (s *State) accessibleText(repeated bool) string {
	if !s.aggregated(repeated) {
		return s.summary(repeated)
	}
	var counts []string
	for _, status := range countOrder {
		if n := s.Counts[status]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, statusWord(status)))
		}
	}
	return statusWord(s.Status()) + ": " + strings.Join(counts, ", ")
}

// details are the lines below the summary: the error, what the step waits for,
// or why it is blocked; and the child run.
func (s *State) details() []string {
	var lines []string
	switch s.Status() {
	case "failed", "timed_out", "retrying":
		lines = []string{oneLine(string(s.Code)), oneLine(s.Message)}
	case "completed":
		lines = []string{oneLine(s.Undone)}
	case "running", "queued":
	default:
		lines = []string{oneLine(s.Note)}
	}
	if s.Run != "" {
		lines = append(lines, "run "+oneLine(s.Run))
	}
	return slices.DeleteFunc(lines, func(s string) bool { return s == "" })
}

// detailLine is details in one line.
func (s *State) detailLine() string { return strings.Join(s.details(), ": ") }
