// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/view"
)

// A State is what a run has made of a step, as its card shows it.
type State struct{ view.StepTally }

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
