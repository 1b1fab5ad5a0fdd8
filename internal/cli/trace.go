// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) traceCommand() *cobra.Command {
	var flame bool
	most := view.MaxSteps
	cmd := &cobra.Command{
		Use:   "trace RUN",
		Short: "Show a run as a nested tree with times and credits",
		Long: "Show a run as a nested tree: every step instance under the one that owns it, how long it queued, worked, " +
			"waited and backed off before a retry, its credits and its outcome. With --flame the same as bars on one time scale: " +
			"░ in the queue, █ at work, ┄ waiting for something outside, ▒ backing off before a retry.",
		Example: "roux trace @last\nroux trace @last --flame\nroux trace @last -o json",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if most < 1 {
				return fault.New(fault.Usage, "--steps %d: want at least 1", most)
			}
			return a.reading(cmd.Context(), func(ctx context.Context, j store.Reader) error {
				head, err := a.findRun(ctx, j, args[0])
				if err != nil {
					return err
				}
				p, err := store.LoadPlan(ctx, j, head)
				if err != nil {
					return err
				}
				t := view.NewTracer(p, head.Run, most)
				if err := eachShown(ctx, j, head.Key, p, 0, t.Apply); err != nil {
					return err
				}
				out := t.Trace(a.now().UnixMicro())
				out.Imported = head.Imported()
				a.show(out, func() { a.printTrace(t, out, flame) })
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&flame, "flame", false, "bars on one time scale")
	cmd.Flags().IntVar(&most, "steps", view.MaxSteps, "at most this many step instances")
	return cmd
}

func (a *app) printTrace(t *view.Tracer, out *view.Trace, flame bool) {
	// This format is prescribed (X212); depth counts runs inside runs.
	name := view.OneLine(out.Recipe)
	columns, ok := a.stdoutColumns()
	if ok {
		name = term.Cut(name, columns-len("├─  (depth: 0)"))
	}
	head := fmt.Sprintf("├─ %s (depth: %d)  %s  %s\n", name, out.Depth, out.ID,
		view.Join(" · ", importedWord(out.Imported), out.Status, view.Took(micros(out.TookMs)), view.Credits(ledger.Whole(out.Credits)), heldText(out)))
	a.text("Execution Tree:\n%s", a.folded(head, 3))
	w := &traceWriter{app: a, plan: t.Plan, narrow: ok && columns < narrowTrace, start: t.Start, end: t.Start + int64(out.TookMs*1000)}
	roots := slices.SortedStableFunc(slices.Values(out.Steps), func(a, b *view.Span) int { return journal.Compare(t.Plan, a.Ref, b.Ref) })
	for i, s := range roots {
		w.walk(s, "│  ", "", i == len(roots)-1, flame)
	}
	if flame {
		w.bars()
	} else if w.narrow {
		a.table(w.rows, 2, 1, 0)
	} else {
		a.table(w.rows, 4, 2, 0)
	}
	if out.Truncated {
		a.say("only the first %d step instances are shown: --steps shows more", t.Max)
	}
}

// heldText is what was reserved for a run that its account pays for.
func heldText(t *view.Trace) string {
	if t.Reserved == nil || t.Estimated == nil {
		return ""
	}
	return fmt.Sprintf("%d reserved, %d estimated", *t.Reserved, *t.Estimated)
}

func micros(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// A traceWriter formats spans as lines.
type traceWriter struct {
	app        *app
	plan       *plan.Plan
	narrow     bool // only glyphs show the status
	start, end int64
	rows       [][]string
	spans      []*view.Span
}

// narrowTrace is the width of a terminal below which a trace has fewer columns.
const narrowTrace = 60

// walk adds a span and the spans below it.
func (w *traceWriter) walk(s *view.Span, indent, above string, last, flame bool) {
	branch, below := "├─ ", "│  "
	if last {
		branch, below = "└─ ", "   "
	}
	name := view.OneLine(strings.TrimPrefix(strings.TrimPrefix(s.Step, above), "."))
	if s.Attempts > 1 {
		name += fmt.Sprintf("  try %d", s.Attempts)
	}
	label := indent + branch + term.Glyph(s.Status) + " " + name
	switch {
	case flame:
		w.add(s, label)
	case w.narrow:
		w.add(s, label, spanTimes(s), spanSays(s))
	default:
		w.add(s, label, s.Status, spanTimes(s), view.Credits(s.Credits), spanSays(s))
	}
	children, rest := s.Ordered(w.plan)
	for i, c := range children {
		w.walk(c, indent+below, s.Step, i == len(children)-1 && rest == "", flame)
	}
	if rest != "" {
		w.add(nil, indent+below+"└─ … "+rest)
	}
}

// add adds a line. s is nil for a line that stands for several spans.
func (w *traceWriter) add(s *view.Span, cells ...string) {
	w.spans, w.rows = append(w.spans, s), append(w.rows, cells)
}

// spanTimes formats how long a span took, and how much of that was not work.
func spanTimes(s *view.Span) string {
	if s.Status == "skipped" || s.Status == "pending" {
		return ""
	}
	text := view.Took(micros(s.TookMs))
	var rest []string
	for _, part := range []struct {
		ms   float64
		what string
	}{{s.QueueMs, "queued"}, {s.WaitMs, "waited"}, {s.BackoffMs, "stood back"}} {
		if part.ms >= 1 && part.ms >= s.TookMs/100 {
			rest = append(rest, view.Took(micros(part.ms))+" "+part.what)
		}
	}
	if len(rest) > 0 {
		text += " (" + strings.Join(rest, ", ") + ")"
	}
	return text
}

// spanSays formats the outcome of a span.
func spanSays(s *view.Span) string {
	if s.Error != nil {
		return view.Cut(view.OneLine(view.Join(": ", s.Note, s.Error.Code, s.Error.Message)), 80)
	}
	return view.Cut(view.OneLine(s.Note), 80)
}

// bars draws the spans on one time scale.
func (w *traceWriter) bars() {
	columns, ok := w.app.stdoutColumns()
	if !ok {
		columns = 80
	}
	names := 0
	for i, r := range w.rows {
		if w.spans[i] != nil {
			names = max(names, term.Width(r[0]))
		}
	}
	names = min(names, columns/2)
	width := max(columns-names-12, 8)
	total := max(w.end-w.start, 1)
	// In an imported journal times may decrease, or lie far beyond its end.
	at := func(us int64) int {
		return int(max(0, min((float64(us)-float64(w.start))/float64(total), 1)) * float64(width))
	}
	for i, s := range w.spans {
		if s == nil {
			w.app.text("%s\n", term.Cut(w.rows[i][0], columns))
			continue
		}
		bar := []rune(strings.Repeat(" ", width+1))
		for _, p := range s.Phases {
			from, to := at(p.Begin), at(p.End)
			for x := from; x < to || x == from; x++ {
				bar[x] = [...]rune{'░', '█', '┄', '▒'}[p.Kind]
			}
		}
		w.app.text("%s %8s |%s\n", term.Pad(term.Cut(w.rows[i][0], names), names), view.Took(micros(s.TookMs)), strings.TrimRight(string(bar), " "))
	}
	w.app.text("%s %8s |%s %s\n", term.Pad("", names), "", "0", strings.Repeat(" ", max(width-12, 0))+view.Took(time.Duration(total)*time.Microsecond))
}
