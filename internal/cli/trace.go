// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// A span is one step instance in a trace, with what it owned below it.
type span struct {
	Step      string       `json:"step"`
	Name      string       `json:"name"`
	Kind      string       `json:"kind"`
	Depth     int          `json:"depth"`
	Status    string       `json:"status"`
	Attempts  uint32       `json:"attempts,omitempty"`
	StartMs   float64      `json:"startMs"` // after the run's start
	TookMs    float64      `json:"durationMs"`
	QueueMs   float64      `json:"queueMs,omitempty"`
	WorkMs    float64      `json:"workMs,omitempty"`
	WaitMs    float64      `json:"waitMs,omitempty"`
	BackoffMs float64      `json:"backoffMs,omitempty"`
	Credits   int64        `json:"credits,omitempty"`
	Note      string       `json:"note,omitempty"`
	Error     *resultError `json:"error,omitempty"`
	Children  []*span      `json:"children,omitempty"`

	ref        journal.Ref
	begin, end int64 // UTC µs
	opened     string
	items      int64 // of a loop, where they are known
	phases     []phase
}

// A phase is a stretch of a span: what the step did then.
type phase struct {
	kind       phaseKind
	begin, end int64
}

type phaseKind uint8

const (
	inQueue phaseKind = iota
	atWork
	inWait
	inBackoff
)

// A traced is a run as trace shows it.
type traced struct {
	ID        string  `json:"id"`
	Recipe    string  `json:"recipe"`
	Depth     int     `json:"depth"` // of the run: 0, the runs that it contains below it
	Status    string  `json:"status"`
	Imported  bool    `json:"imported,omitempty"`
	StartedAt string  `json:"startedAt,omitempty"`
	TookMs    float64 `json:"durationMs"`
	Credits   int64   `json:"credits"`
	Steps     []*span `json:"steps"`
	Truncated bool    `json:"truncated,omitempty"`
}

func (a *app) traceCommand() *cobra.Command {
	var flame bool
	most := maxSteps
	cmd := &cobra.Command{
		Use:   "trace RUN",
		Short: "Show a run as a nested tree with times and credits",
		Long: "Show a run as a nested tree: every step instance under the one that owns it, how long it queued, worked, " +
			"waited and stood back before a retry, its credits and its outcome. With --flame the same as bars on one time scale: " +
			"░ in the queue, █ at work, ┄ waiting for something outside, ▒ standing back before a retry.",
		Example: "roux trace @last\nroux trace @last --flame\nroux trace @last -o json",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if most < 1 {
				return fault.New(fault.Usage, "--steps %d: want at least 1", most)
			}
			return a.reading(cmd.Context(), func(ctx context.Context, j store.Reader) error {
				head, err := findRun(ctx, j, args[0])
				if err != nil {
					return err
				}
				p, err := planOf(ctx, j, head)
				if err != nil {
					return err
				}
				t := newTracer(p, head.Run, most)
				if err := eachShown(ctx, j, head.Key, p, 0, t.apply); err != nil {
					return err
				}
				out := t.done(a.now().UnixMicro())
				out.Imported = head.Imported()
				a.show(out, func() { a.printTrace(t, out, flame) })
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&flame, "flame", false, "bars on one time scale")
	cmd.Flags().IntVar(&most, "steps", maxSteps, "at most this many step instances")
	return cmd
}

// A tracer folds a journal into spans. Beside the view, which says how each
// step stands, it remembers since when.
type tracer struct {
	*runView
	most   int
	spans  map[journal.Ref]*span
	roots  []*span
	cut    bool
	start  int64
	recent int64 // time of the last event
}

func newTracer(p *plan.Plan, run string, most int) *tracer {
	return &tracer{runView: newView(p, run), most: most, spans: map[journal.Ref]*span{}}
}

// apply folds one event.
func (t *tracer) apply(ev *journal.Event) error {
	if t.start == 0 {
		t.start = ev.At
	}
	t.recent = ev.At
	if err := t.runView.apply(ev); err != nil || ev.Step < 0 {
		return err
	}
	s := t.span(ev)
	if s == nil {
		return nil
	}
	switch ev.Kind {
	case journal.EvNodeQueued, journal.EvNodeBlocked, journal.EvNodeLost:
		s.enter(inQueue, ev.At)
	case journal.EvNodeStarted, journal.EvNodeOpened, journal.EvNodeFallback, journal.EvNodeCompensating:
		s.enter(atWork, ev.At)
		s.Attempts = max(s.Attempts, ev.Attempt)
		if ev.Kind == journal.EvNodeOpened {
			s.opened, s.items = openedText(t.plan, ev), max(ev.Items(), 0)
		}
	case journal.EvNodeWaiting:
		s.enter(inWait, ev.At)
	case journal.EvNodeRetried:
		s.enter(inBackoff, ev.At)
	case journal.EvNodeCompleted, journal.EvNodeFailed, journal.EvNodeSkipped, journal.EvNodeCancelled:
		s.leave(ev.At)
		t.settleSpan(s, ev)
	case journal.EvNodeInvalidated:
		// A retry begins the step anew; what it did before stays in the picture.
		s.Status, s.Error, s.Note, s.end = "invalidated", nil, "", 0
	}
	return nil
}

func (t *tracer) settleSpan(s *span, ev *journal.Event) {
	s.Error, s.Note = nil, ""
	switch ev.Kind {
	case journal.EvNodeCompleted:
		if s.Status, s.Note = "completed", s.opened; s.Note == "" {
			s.Note = brief(ev.Data)
		}
		s.Credits += ev.Cost()
	case journal.EvNodeFailed:
		s.Status, s.Error = failedStatus(ev.Code), &resultError{ev.Code, strings.Clone(ev.Text)}
	case journal.EvNodeSkipped:
		s.Status, s.Note = "skipped", ev.Reason().String()
		if ev.Code != "" {
			s.Error = &resultError{ev.Code, strings.Clone(ev.Text)}
		}
	case journal.EvNodeCancelled:
		s.Status, s.Note = "cancelled", ev.Reason().String()
	}
}

// span finds or makes the span of an event's step, under the step that owns
// its scope. It is nil when there are too many already.
func (t *tracer) span(ev *journal.Event) *span {
	ref := ev.Ref()
	if s := t.spans[ref]; s != nil {
		return s
	}
	if len(t.spans) >= t.most {
		t.cut = true
		return nil
	}
	step := &t.plan.Steps[ref.Step]
	s := &span{
		ref:  journal.Ref{Path: journal.Path(strings.Clone(string(ref.Path))), Step: ref.Step},
		Step: journal.StepPath(t.plan, ref), Name: t.plan.Label(ref.Step), Kind: step.Kind.String(),
		Status: "pending", Depth: int(t.plan.Graphs[step.Graph].Depth), begin: ev.At,
	}
	owner, ok := journal.Owner(t.plan, ref.Path)
	switch above := t.spans[owner]; {
	case ok && above != nil:
		above.Children = append(above.Children, s)
	case ok:
		t.cut = true // its owner was one too many
		return nil
	default:
		t.roots = append(t.roots, s)
	}
	t.spans[s.ref] = s
	return s
}

func (s *span) enter(kind phaseKind, at int64) {
	s.leave(at)
	s.end = 0
	s.phases = append(s.phases, phase{kind: kind, begin: at})
	s.Status = [...]string{"queued", "running", "waiting", "retrying"}[kind]
}

func (s *span) leave(at int64) {
	if n := len(s.phases); n > 0 && s.phases[n-1].end == 0 {
		s.phases[n-1].end = at
	}
	s.end = at
}

// done sums up. What is still open lasts until now, or, where nobody carries
// the run on, at least until its last event.
func (t *tracer) done(now int64) *traced {
	end := t.Ended
	if end == 0 {
		end = max(now, t.recent)
	}
	for _, s := range t.spans {
		s.sum(t.start, end)
	}
	return &traced{
		ID: t.id, Recipe: t.recipe, Status: t.Status.String(), StartedAt: stamp(t.start),
		TookMs: millis(end - t.start), Credits: t.Used, Steps: append([]*span{}, t.roots...), Truncated: t.cut,
	}
}

func (s *span) sum(start, end int64) {
	open := s.Status == "queued" || s.Status == "running" || s.Status == "waiting" || s.Status == "retrying"
	if s.end == 0 || open {
		s.end = s.begin
		if open {
			s.end = end
		}
	}
	for i := range s.phases {
		p := &s.phases[i]
		if p.end == 0 {
			p.end = s.end
		}
		to := [...]*float64{&s.QueueMs, &s.WorkMs, &s.WaitMs, &s.BackoffMs}[p.kind]
		*to += millis(p.end - p.begin)
	}
	s.StartMs, s.TookMs = millis(s.begin-start), millis(s.end-s.begin)
}

func millis(us int64) float64 { return math.Round(float64(us)) / 1000 }

func (a *app) printTrace(t *tracer, out *traced, flame bool) {
	// The form of the sources (X212): depth counts runs inside runs.
	name := oneLine(out.Recipe)
	columns, ok := a.stdoutColumns()
	if ok {
		name = cutColumns(name, columns-len("├─  (depth: 0)"))
	}
	head := fmt.Sprintf("├─ %s (depth: %d)  %s  %s\n", name, out.Depth, out.ID,
		join(" · ", importedWord(out.Imported), out.Status, took(micros(out.TookMs)), credits(out.Credits)))
	a.text("Execution Tree:\n%s", a.folded(head, 3))
	w := &traceWriter{app: a, plan: t.plan, narrow: ok && columns < narrowTrace, start: t.start, end: t.start + int64(out.TookMs*1000)}
	roots := slices.SortedStableFunc(slices.Values(out.Steps), func(a, b *span) int { return journal.Compare(t.plan, a.ref, b.ref) })
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
		a.say("only the first %d step instances are shown: --steps shows more", t.most)
	}
}

func micros(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// A traceWriter lays spans out as lines.
type traceWriter struct {
	app        *app
	plan       *plan.Plan
	narrow     bool // the glyphs say the status
	start, end int64
	rows       [][]string
	spans      []*span
}

// narrowTrace is the width of a terminal below which a trace leaves columns out.
const narrowTrace = 60

// walk lays out a span and what is under it.
func (w *traceWriter) walk(s *span, indent, above string, last, flame bool) {
	branch, below := "├─ ", "│  "
	if last {
		branch, below = "└─ ", "   "
	}
	name := oneLine(strings.TrimPrefix(strings.TrimPrefix(s.Step, above), "."))
	if s.Attempts > 1 {
		name += fmt.Sprintf("  try %d", s.Attempts)
	}
	label := indent + branch + lookOf(s.Status).Glyph + " " + name
	switch {
	case flame:
		w.add(s, label)
	case w.narrow:
		w.add(s, label, s.times(), s.says())
	default:
		w.add(s, label, s.Status, s.times(), credits(s.Credits), s.says())
	}
	children, rest := s.ordered(w.plan)
	for i, c := range children {
		w.walk(c, indent+below, s.Step, i == len(children)-1 && rest == "", flame)
	}
	if rest != "" {
		w.add(nil, indent+below+"└─ … "+rest)
	}
}

// add takes a line; span is nil for one that stands for several.
func (w *traceWriter) add(s *span, cells ...string) {
	w.spans, w.rows = append(w.spans, s), append(w.rows, cells)
}

// times is how long it took, and of that what was not work.
func (s *span) times() string {
	if s.Status == "skipped" || s.Status == "pending" {
		return ""
	}
	text := took(micros(s.TookMs))
	var rest []string
	for _, part := range []struct {
		ms   float64
		what string
	}{{s.QueueMs, "queued"}, {s.WaitMs, "waited"}, {s.BackoffMs, "stood back"}} {
		if part.ms >= 1 && part.ms >= s.TookMs/100 {
			rest = append(rest, took(micros(part.ms))+" "+part.what)
		}
	}
	if len(rest) > 0 {
		text += " (" + strings.Join(rest, ", ") + ")"
	}
	return text
}

// says is the outcome in a few words.
func (s *span) says() string {
	if s.Error != nil {
		return cut(oneLine(join(": ", s.Note, string(s.Error.Code), s.Error.Message)), 80)
	}
	return cut(oneLine(s.Note), 80)
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
			names = max(names, lipgloss.Width(r[0]))
		}
	}
	names = min(names, columns/2)
	width := max(columns-names-12, 8)
	total := max(w.end-w.start, 1)
	// The times of a journal from elsewhere may fall, or lie far beyond its end.
	at := func(us int64) int {
		return int(max(0, min((float64(us)-float64(w.start))/float64(total), 1)) * float64(width))
	}
	for i, s := range w.spans {
		if s == nil {
			w.app.text("%s\n", cutColumns(w.rows[i][0], columns))
			continue
		}
		bar := []rune(strings.Repeat(" ", width+1))
		for _, p := range s.phases {
			from, to := at(p.begin), at(p.end)
			for x := from; x < to || x == from; x++ {
				bar[x] = [...]rune{'░', '█', '┄', '▒'}[p.kind]
			}
		}
		w.app.text("%s %8s |%s\n", toWidth(cutColumns(w.rows[i][0], names), names), took(micros(s.TookMs)), strings.TrimRight(string(bar), " "))
	}
	w.app.text("%s %8s |%s %s\n", toWidth("", names), "", "0", strings.Repeat(" ", max(width-12, 0))+took(time.Duration(total)*time.Microsecond))
}

// toWidth makes s n columns wide.
func toWidth(s string, n int) string {
	return s + strings.Repeat(" ", max(n-lipgloss.Width(s), 0))
}
