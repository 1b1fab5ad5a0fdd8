// SPDX-License-Identifier: Apache-2.0

package view

import (
	"math"
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// A Span is one step instance in a trace, with the spans of the steps it owned.
type Span struct {
	Step      string             `json:"step"`
	Name      string             `json:"name"`
	Kind      string             `json:"kind"`
	Depth     int                `json:"depth"`
	Status    string             `json:"status"`
	Attempts  uint32             `json:"attempts,omitempty"`
	StartMs   float64            `json:"startMs"` // after the start of the run
	TookMs    float64            `json:"durationMs"`
	QueueMs   float64            `json:"queueMs,omitempty"`
	WorkMs    float64            `json:"workMs,omitempty"`
	WaitMs    float64            `json:"waitMs,omitempty"`
	BackoffMs float64            `json:"backoffMs,omitempty"`
	Credits   ledger.Amount      `json:"credits,omitempty"`
	Cached    bool               `json:"cached,omitempty"` // it has an earlier result, and its action was not called
	Note      string             `json:"note,omitempty"`
	Error     *journal.StepError `json:"error,omitempty"`
	Children  []*Span            `json:"children,omitempty"`
	Uncharged ledger.Amount      `json:"uncharged,omitempty"` // what attempts cost that did not complete it
	// Runs are the child runs of a step that runs a recipe: one for each attempt.
	Runs []*Child `json:"runs,omitempty"`

	Ref        journal.Ref `json:"-"`
	Begin, End int64       `json:"-"` // UTC µs
	Phases     []Phase     `json:"-"`

	opened string
	items  int64 // of a loop, if known
}

// A Phase is a part of a span in which the step did one thing.
type Phase struct {
	Kind       PhaseKind
	Begin, End int64 // UTC µs
}

// A PhaseKind is what a step did during a phase.
type PhaseKind uint8

// The kinds of phases.
const (
	Queueing PhaseKind = iota
	Working
	Pausing // waiting for something outside, or for a time
	BackingOff
)

// A Trace is a run as `roux trace` shows it.
type Trace struct {
	ID        string  `json:"id"`
	Recipe    string  `json:"recipe"`
	Depth     int     `json:"depth"` // 0 for the run itself, more for the runs inside it
	Status    string  `json:"status"`
	Imported  bool    `json:"imported,omitempty"`
	StartedAt string  `json:"startedAt,omitempty"`
	TookMs    float64 `json:"durationMs"`
	Credits   int64   `json:"credits"`
	// Reserved and Estimated are set for a run that its account pays for.
	Reserved  *int64  `json:"creditsReserved,omitempty"`
	Estimated *int64  `json:"creditsEstimated,omitempty"`
	Steps     []*Span `json:"steps"`
	Truncated bool    `json:"truncated,omitempty"`
	// Parent and Root are those of a child run.
	Parent string `json:"parentRunId,omitempty"`
	Root   string `json:"rootRunId,omitempty"`

	Plan  *plan.Plan `json:"-"`
	Start int64      `json:"-"` // UTC µs
}

// A Tracer builds spans from a journal. In addition to the view of the run it records
// since when each step has its status.
type Tracer struct {
	*Run
	Max   int   // the most step instances it records
	Start int64 // of the run, UTC µs

	spans  map[journal.Ref]*Span
	roots  []*Span
	cut    bool
	recent int64 // time of the last event
}

// NewTracer returns a tracer of a run of p, without events. It records no more step
// instances than most.
func NewTracer(p *plan.Plan, run string, most int) *Tracer {
	return &Tracer{Run: NewRun(p, run), Max: most, spans: map[journal.Ref]*Span{}}
}

// Apply adds the next event.
func (t *Tracer) Apply(ev *journal.Event) error {
	if t.Start == 0 {
		t.Start = ev.At
	}
	t.recent = ev.At
	if err := t.Run.Apply(ev); err != nil || ev.Step < 0 {
		return err
	}
	s := t.span(ev)
	if s == nil {
		return nil
	}
	switch ev.Kind {
	case journal.EvNodeQueued, journal.EvNodeBlocked, journal.EvNodeLost:
		s.enter(Queueing, ev.At)
		if ev.Kind == journal.EvNodeBlocked {
			s.Note = strings.Clone(ev.Text)
		}
	case journal.EvChildStarted:
		s.enter(Working, ev.At)
		s.Attempts = max(s.Attempts, ev.Attempt)
		s.startRun(newChild(t.Plan, ev), ev)
	case journal.EvChildEnded:
		if n := len(s.Runs); n > 0 {
			s.Runs[n-1].end(ev)
		}
		s.Credits = s.Credits.Plus(ev.ChildUsed())
	case journal.EvNodeStarted, journal.EvNodeOpened, journal.EvNodeFallback, journal.EvNodeCompensating:
		s.enter(Working, ev.At)
		s.Attempts = max(s.Attempts, ev.Attempt)
		if ev.Kind == journal.EvNodeOpened {
			s.opened, s.items = openedText(t.Plan, ev), max(ev.Items(), 0)
		}
	case journal.EvNodeWaiting, journal.EvNodeSubmitted:
		s.enter(Pausing, ev.At)
	case journal.EvNodeRetried:
		s.enter(BackingOff, ev.At)
	case journal.EvNodeCompleted, journal.EvNodeFailed, journal.EvNodeSkipped, journal.EvNodeCancelled:
		s.leave(ev.At)
		t.settleSpan(s, ev)
	case journal.EvNodeCharged:
		if ev.Charged() {
			s.Credits = s.Credits.Plus(ev.Amount())
		} else {
			s.Uncharged = s.Uncharged.Plus(ev.Amount())
		}
	case journal.EvNodeInvalidated:
		// A retry starts the step again; its earlier phases stay in the trace.
		s.Status, s.Error, s.Note, s.End = "invalidated", nil, "", 0
	}
	return nil
}

func (t *Tracer) settleSpan(s *Span, ev *journal.Event) {
	s.Error, s.Note = nil, ""
	switch ev.Kind {
	case journal.EvNodeCompleted:
		if s.Status, s.Note = "completed", s.opened; s.Note == "" {
			s.Note = Brief(ev.Data)
		}
		if s.Cached = ev.Cached(); s.Cached {
			s.Note = Join(", ", "cached", s.Note)
		}
		if n := len(s.Runs); n > 0 && s.Note == "" {
			s.Note = s.Runs[n-1].summary
		}
		s.Credits = s.Credits.Plus(ledger.Whole(ev.Cost()))
	case journal.EvNodeFailed:
		s.Status, s.Error = failedStatus(ev.Code), &journal.StepError{Code: string(ev.Code), Message: strings.Clone(ev.Text)}
	case journal.EvNodeSkipped:
		s.Status, s.Note = "skipped", ev.Reason().String()
		if ev.Code != "" {
			s.Error = &journal.StepError{Code: string(ev.Code), Message: strings.Clone(ev.Text)}
		}
	case journal.EvNodeCancelled:
		s.Status, s.Note = "cancelled", ev.Reason().String()
	}
}

// span finds or makes the span of an event's step, under the span of the step that
// owns its scope; nil when there are too many already.
func (t *Tracer) span(ev *journal.Event) *Span {
	ref := ev.Ref()
	if s := t.spans[ref]; s != nil {
		return s
	}
	if len(t.spans) >= t.Max {
		t.cut = true
		return nil
	}
	step := &t.Plan.Steps[ref.Step]
	s := &Span{
		Ref:  journal.Ref{Path: journal.Path(strings.Clone(string(ref.Path))), Step: ref.Step},
		Step: journal.StepPath(t.Plan, ref), Name: t.Plan.Label(ref.Step), Kind: step.Kind.String(),
		Status: "pending", Depth: int(t.Plan.Graphs[step.Graph].Depth), Begin: ev.At,
	}
	owner, ok := journal.Owner(t.Plan, ref.Path)
	switch above := t.spans[owner]; {
	case ok && above != nil:
		above.Children = append(above.Children, s)
	case ok:
		t.cut = true // its owner was beyond the limit
		return nil
	default:
		t.roots = append(t.roots, s)
	}
	t.spans[s.Ref] = s
	return s
}

func (s *Span) enter(kind PhaseKind, at int64) {
	s.leave(at)
	s.End, s.Note = 0, ""
	s.Phases = append(s.Phases, Phase{Kind: kind, Begin: at})
	s.Status = [...]string{"queued", "running", "waiting", "retrying"}[kind]
}

func (s *Span) leave(at int64) {
	if n := len(s.Phases); n > 0 && s.Phases[n-1].End == 0 {
		s.Phases[n-1].End = at
	}
	s.End = at
}

// Trace returns the trace. An open span lasts until now, or, if no process carries the
// run on, until its last event.
func (t *Tracer) Trace(now int64) *Trace {
	end := t.Ended
	if end == 0 {
		end = max(now, t.recent)
	}
	for _, s := range t.spans {
		s.sum(t.Start, end)
	}
	out := &Trace{
		ID: t.ID, Recipe: t.Recipe, Status: t.Status.String(), StartedAt: Stamp(t.Start),
		TookMs: millis(end - t.Start), Credits: t.Used(), Steps: append([]*Span{}, t.roots...), Truncated: t.cut,
	}
	out.Plan, out.Start = t.Plan, t.Start
	if c := t.Place; c != nil {
		out.Depth, out.Parent, out.Root = int(c.Depth), c.Parent, c.Root
	}
	for _, s := range t.spans {
		for _, c := range s.Runs {
			if c.End == 0 {
				c.TookMs = millis(max(0, end-c.Begin))
			}
		}
	}
	if f := t.Funds; f != nil {
		out.Reserved, out.Estimated = &f.Reserved, &f.Estimated
	}
	return out
}

func (s *Span) sum(start, end int64) {
	open := s.Status == "queued" || s.Status == "running" || s.Status == "waiting" || s.Status == "retrying"
	if s.End == 0 || open {
		s.End = s.Begin
		if open {
			s.End = end
		}
	}
	for i := range s.Phases {
		p := &s.Phases[i]
		if p.End == 0 {
			p.End = s.End
		}
		to := [...]*float64{&s.QueueMs, &s.WorkMs, &s.WaitMs, &s.BackoffMs}[p.Kind]
		*to += millis(p.End - p.Begin)
	}
	s.StartMs, s.TookMs = millis(s.Begin-start), millis(s.End-s.Begin)
}

func millis(us int64) float64 { return math.Round(float64(us)) / 1000 }
