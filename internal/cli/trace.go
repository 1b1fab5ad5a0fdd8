// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
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
	var flame, runs bool
	var folded string
	x := tracing{app: a, most: view.MaxSteps}
	children := strconv.Itoa(expandedRuns)
	cmd := &cobra.Command{
		Use:   "trace RUN",
		Short: "Show a run as a nested tree with times and credits",
		Long: "Show a run as a nested tree: every step instance under the one that owns it, how long it queued, worked, " +
			"waited and backed off before a retry, its credits and its outcome. A child run is shown under the step that started it, with its own steps; " +
			"those that failed are expanded first, at most --children of them. With --flame the same as bars on one time scale: " +
			"░ in the queue, █ at work, ┄ waiting for something outside, ▒ backing off before a retry.\n\n" +
			"With --runs a profile: a line for each run of the tree, those first whose own steps worked longest; \"own\" is the time of their attempts, without the runs " +
			"inside them, and \"waited\" what their steps waited. With --folded own, or --folded wait, the same by step, in the form that flamegraph.pl, inferno and speedscope " +
			"read: `recipe;step;recipe;step N`, where N is µs, all items of a loop together. Both read the journals of the whole tree, one run after the other.",
		Example: "roux trace @last\nroux trace @last --children all\nroux trace @last --flame\nroux trace @last --runs\nroux trace @last --folded own > last.folded\nroux trace @last -o json",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if x.most < 1 {
				return fault.New(fault.Usage, "--steps %d: want at least 1", x.most)
			}
			if folded != "" && folded != "own" && folded != "wait" {
				return fault.New(fault.Usage, "--folded %s: want own or wait", view.OneLine(view.Cut(folded, 40)))
			}
			if flame && (runs || folded != "") || runs && folded != "" {
				return fault.New(fault.Usage, "want one of --flame, --runs and --folded")
			}
			var err error
			if x.left, err = expandedCount(children); err != nil {
				return err
			}
			return a.reading(cmd.Context(), func(ctx context.Context, j store.Reader) error {
				head, err := a.findRun(ctx, j, args[0])
				if err != nil {
					return err
				}
				if runs || folded != "" {
					return a.profileRun(ctx, j, head, x.left, folded)
				}
				out, err := x.trace(ctx, j, head)
				if err != nil {
					return err
				}
				a.show(out, func() { a.printTrace(out, x.most, flame) })
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&flame, "flame", false, "bars on one time scale")
	cmd.Flags().IntVar(&x.most, "steps", view.MaxSteps, "at most this many step instances of a run")
	cmd.Flags().StringVar(&children, "children", children, "expand at most this many child runs, or all; with --runs show that many runs")
	cmd.Flags().BoolVar(&runs, "runs", false, "a profile: the runs of the tree, those first that worked longest")
	cmd.Flags().StringVar(&folded, "folded", "", "a profile by step, as tools for flame graphs read it: own or wait")
	completeFlag(cmd, "folded", func() []string { return []string{"own", "wait"} })
	return cmd
}

// expandedRuns is how many child runs a trace expands by default.
const expandedRuns = 20

// expandedCount reads the value of --children.
func expandedCount(text string) (int, error) {
	if text == "all" {
		return math.MaxInt, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fault.New(fault.Usage, "--children %s: want a number of child runs, or all", view.OneLine(view.Cut(text, 40)))
	}
	return n, nil
}

// tracing makes the trace of a run and of the runs inside it.
type tracing struct {
	app  *app
	most int // step instances of one run
	left int // child runs that it may still expand
	seen map[string]bool
}

// trace makes the trace of a run. A child run whose journal is not here, as that of an
// imported parent, is not expanded.
func (x *tracing) trace(ctx context.Context, j store.Reader, head store.Head) (*view.Trace, error) {
	if x.seen == nil {
		x.seen = map[string]bool{}
	}
	x.seen[head.Run] = true
	p, err := store.LoadPlan(ctx, j, head)
	if err != nil {
		return nil, err
	}
	t := view.NewTracer(p, head.Run, x.most)
	if err := eachShown(ctx, j, head.Key, p, 0, t.Apply); err != nil {
		return nil, err
	}
	out := t.Trace(x.app.now().UnixMicro())
	out.Imported = head.Imported()
	for _, c := range out.Runs() {
		if x.left == 0 {
			break
		}
		if x.seen[c.Run] { // a journal that was made by hand may name a run above
			continue
		}
		inner, err := j.Head(ctx, store.Key{Account: head.Account, Run: c.Run})
		if fault.CodeOf(err) == fault.RunNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		x.left--
		if c.Trace, err = x.trace(ctx, j, inner); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (a *app) printTrace(out *view.Trace, most int, flame bool) {
	// This format is prescribed (X212); depth counts runs inside runs.
	name := view.OneLine(out.Recipe)
	columns, ok := a.stdoutColumns()
	if ok {
		name = term.Cut(name, columns-len("├─  (depth: 0)"))
	}
	head := fmt.Sprintf("├─ %s (depth: %d)  %s  %s\n", name, out.Depth, out.ID,
		view.Join(" · ", importedWord(out.Imported), out.Status, view.Took(micros(out.TookMs)), view.Credits(ledger.Whole(out.Credits)), heldText(out)))
	a.text("Execution Tree:\n%s", a.folded(head, 3))
	w := &traceWriter{app: a, narrow: ok && columns < narrowTrace, flame: flame, start: out.Start, end: out.Start + int64(out.TookMs*1000)}
	w.steps(out, "│  ")
	if flame {
		w.bars()
	} else if w.narrow {
		a.table(w.rows, 2, 1, 0)
	} else {
		a.table(w.rows, 4, 2, 0)
	}
	if w.truncated {
		a.say("only the first %d step instances of a run are shown: --steps shows more", most)
	}
	if w.folded > 0 {
		a.say("%s not expanded: `%s` shows all, and `%s` one of them", view.CountAre(w.folded, "child run"), a.hint("trace", out.ID+" --children all"), a.hint("trace", "RUN"))
	}
}

// steps adds the steps of a run.
func (w *traceWriter) steps(t *view.Trace, indent string) {
	w.truncated = w.truncated || t.Truncated
	roots := slices.SortedStableFunc(slices.Values(t.Steps), func(a, b *view.Span) int { return journal.Compare(t.Plan, a.Ref, b.Ref) })
	for i, s := range roots {
		w.walk(t.Plan, s, indent, "", i == len(roots)-1)
	}
}

// run adds a child run and its steps. It is drawn as the run at the top is (X212), also if nothing follows it.
func (w *traceWriter) run(c *view.Child, indent string) {
	name, depth := view.OneLine(c.Recipe), ""
	if t := c.Trace; t != nil {
		name, depth = view.OneLine(t.Recipe), fmt.Sprintf(" (depth: %d)", t.Depth)
	} else {
		w.folded++
	}
	label := indent + "├─ " + name + depth + " " + term.Glyph(c.Status)
	took := view.Took(micros(c.TookMs))
	switch {
	case w.flame:
		w.add(nil, label+"  "+c.Run)
	case w.narrow:
		w.add(nil, label, took, c.Run)
	default:
		w.add(nil, label, c.Status, took, view.Credits(c.Used), c.Run)
	}
	if c.Trace != nil {
		w.steps(c.Trace, indent+"│  ")
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
	narrow     bool // only glyphs show the status
	flame      bool
	truncated  bool
	folded     int // child runs that are not expanded
	start, end int64
	rows       [][]string
	spans      []*view.Span
}

// narrowTrace is the width of a terminal below which a trace has fewer columns.
const narrowTrace = 60

// walk adds a span and the spans below it.
func (w *traceWriter) walk(p *plan.Plan, s *view.Span, indent, above string, last bool) {
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
	case w.flame:
		w.add(s, label)
	case w.narrow:
		w.add(s, label, spanTimes(s), spanSays(s))
	default:
		w.add(s, label, s.Status, spanTimes(s), view.Credits(s.Credits), spanSays(s))
	}
	children, rest := s.Ordered(p)
	for _, c := range s.Runs {
		w.run(c, indent+below)
	}
	for i, c := range children {
		w.walk(p, c, indent+below, s.Step, i == len(children)-1 && rest == "")
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
	text := s.Note
	if s.Error != nil {
		text = view.Join(": ", s.Note, s.Error.Code, s.Error.Message)
	}
	text = view.Cut(view.OneLine(text), 80)
	if s.Uncharged > 0 {
		text = view.Join("; ", text, view.Credits(s.Uncharged)+" not charged")
	}
	return text
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
