// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// A tree draws one run and redraws it in place: its steps in the order of the
// recipe, inner steps that are in progress below them, and a line of totals.
type tree struct {
	screen *term.Screen
	now    func() time.Time
	hint   func(command, run string) string
	frame  term.Frame
}

// draw replaces the last drawing by the present state.
func (t *tree) draw(v *view.Run) {
	_, height := t.screen.Size()
	t.frame.Screen = t.screen
	t.frame.Draw(t.lines(v, height-2))
}

// lines returns the drawing, at most height lines of it.
func (t *tree) lines(v *view.Run, height int) []string {
	root := &v.Plan.Graphs[0]
	inner := map[string][]*view.Step{} // open and failed steps by the root step that owns them
	for _, s := range v.Order {
		if v.ByPath[s.Path] != s || s.Ref.Path == "" || quietInside(s.Status) {
			continue
		}
		top, _, _ := strings.Cut(s.Path, ".")
		top, _, _ = strings.Cut(top, "[")
		inner[top] = append(inner[top], s)
	}
	var body []string
	for i := root.First; i < root.First+root.N; i++ {
		step := &v.Plan.Steps[i]
		s := v.ByPath[step.ID]
		if s == nil {
			s = &view.Step{Path: step.ID, Status: "pending", Items: -1}
		}
		body = append(body, t.step(v, s, step, 1))
		for _, in := range inner[step.ID] {
			body = append(body, t.step(v, in, &v.Plan.Steps[in.Ref.Step], 2))
		}
	}
	next := t.next(v)
	body = fit(body, max(height-2-len(next), 3))
	head := t.screen.Paint("running", "▸") + " " + view.Join("  ", view.OneLine(v.Recipe), t.screen.Paint("quiet", v.ID))
	return append(append(append([]string{head}, body...), "  "+t.totals(v)), next...)
}

// next returns the command that the run waits for. It has a line of its own,
// because a narrow terminal would cut it off behind a step.
func (t *tree) next(v *view.Run) []string {
	if v.Unfunded() != nil {
		return []string{"  next: " + t.hint("explain", v.ID) + ", which says how many credits it needs"}
	}
	for _, s := range v.Order {
		if v.ByPath[s.Path] == s && s.WaitsFor() != "" {
			return []string{"  next: " + waitCommand(t.hint, v, s)}
		}
	}
	return nil
}

// quietInside reports whether an inner step of that status has no line.
func quietInside(status string) bool {
	switch status {
	case "completed", "skipped", "cancelled", "invalidated", "pending":
		return true
	}
	return false
}

// fit keeps the n lines around the steps in progress. It drops completed steps
// first, then those far ahead.
func fit(lines []string, n int) []string {
	if len(lines) <= n {
		return lines
	}
	first, last := -1, -1
	for i, l := range lines {
		if !strings.Contains(l, term.Glyph("completed")) && !strings.Contains(l, term.Glyph("pending")) && !strings.Contains(l, term.Glyph("skipped")) {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		first, last = len(lines)-1, len(lines)-1
	}
	start := max(0, min(first, len(lines)-(n-2)))
	end := min(len(lines), start+n-2)
	var out []string
	if start > 0 {
		out = append(out, fmt.Sprintf("  … %d above", start))
	}
	out = append(out, lines[start:end]...)
	if rest := len(lines) - end; rest > 0 {
		note := fmt.Sprintf("  … %d below", rest)
		if last >= end {
			note += ", some of them running"
		}
		out = append(out, note)
	}
	return out
}

func (t *tree) step(v *view.Run, s *view.Step, step *plan.Step, depth int) string {
	name := view.OneLine(s.Path)
	if depth > 1 {
		if i := strings.IndexAny(name, ".["); i > 0 {
			name = strings.TrimPrefix(name[i:], ".")
		}
	}
	if s.Attempts > 1 {
		name += fmt.Sprintf("  try %d/%d", s.Attempts, max(step.Retry.Attempts, int64(s.Attempts)))
	}
	line := strings.Repeat("  ", depth) + t.screen.Glyph(s.Status) + " " + term.Pad(name, 26-2*depth) + " "
	return line + t.detail(v, s)
}

// detail returns the rest of the line of a step after its name.
func (t *tree) detail(v *view.Run, s *view.Step) string {
	now := t.now().UnixMicro()
	left := func(at int64) string { return view.Took(time.Duration(max(0, at-now)) * time.Microsecond) }
	running := ""
	if s.Began > 0 {
		running = view.Took(time.Duration(now-s.Began) * time.Microsecond)
	}
	switch s.Status {
	case "completed":
		what := s.Opened
		if what == "" {
			what = view.Join(", ", s.Cached, s.Summary)
		}
		return term.Pad(left0(s.Micros), 9) + " " + term.Pad(view.Credits(s.Cost), 5) + " " + t.screen.Paint("quiet", view.Join(", ", s.Undone, what))
	case "running":
		what := view.Join(" ", s.Opened, view.OneLine(s.Note))
		if s.Fraction > 0 {
			what = view.Join(" ", fmt.Sprintf("%d %%", int(100*s.Fraction)), what)
		}
		if s.Items >= 0 {
			what = fmt.Sprintf("%d of %s begun", s.Begun, view.Count(int(s.Items), "item"))
		}
		return term.Pad(running, 9) + " " + t.screen.Paint("quiet", what)
	case "retrying":
		return term.Pad("in "+left(s.Due), 9) + " " + t.screen.Paint("failed", view.Join(": ", string(s.Code), view.OneLine(s.Message)))
	case "waiting":
		what := ""
		if on := s.WaitsFor(); on != "" {
			what = "for " + view.OneLine(on)
		}
		if s.Due > 0 {
			what = view.Join(", ", what, "at most "+left(s.Due))
		}
		return term.Pad("waiting", 9) + " " + what
	case "failed", "timed_out":
		what := view.Join(": ", string(s.Code), view.OneLine(s.Message))
		if s.Handled {
			what += " (handled)"
		}
		return term.Pad(left0(s.Micros), 9) + " " + t.screen.Paint(s.Status, what)
	case "pending":
		return ""
	}
	return term.Pad(s.Status, 9) + " " + t.screen.Paint("quiet", view.OneLine(s.Note))
}

func left0(micros int64) string { return view.Took(time.Duration(micros) * time.Microsecond) }

func (t *tree) totals(v *view.Run) string {
	parts := []string{t.screen.Paint(v.Status.String(), v.Status.String())}
	if v.Failures && v.Status == journal.RunCompleted {
		parts = append(parts, "with handled failures")
	}
	if v.Used() > 0 {
		parts = append(parts, fmt.Sprintf("used %d", v.Used()))
	}
	if v.Generation > 1 {
		parts = append(parts, fmt.Sprintf("generation %d", v.Generation))
	}
	if v.Started > 0 {
		end := v.Ended
		if end == 0 {
			end = t.now().UnixMicro()
		}
		parts = append(parts, "elapsed "+view.Took(time.Duration(end-v.Started)*time.Microsecond))
	}
	return strings.Join(parts, " · ")
}
