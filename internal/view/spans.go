// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// A TraceSpan is a span of a distributed trace: a generation of a run, a step instance in
// it, or an attempt of that. It has names, times, codes and numbers, and no text of the run.
type TraceSpan struct {
	ID, Parent [8]byte // no parent: it begins the trace
	Name       string
	Step       string // for example pages[3].resize; "" = the run
	Kind       string // of the step
	Action     string // of the step; "" = none
	Attempt    uint32 // 0 = no attempt
	Child      string // the run that is the attempt
	Pipeline   string // its recipe: a file, the name of a registered one, or "inline"
	Begin, End int64  // UTC µs
	Status     string
	Code       fault.Code
	Model      *ModelCall // of an attempt that asks a language model
}

// Failed reports whether the span shows an error.
func (s *TraceSpan) Failed() bool {
	switch s.Status {
	case "failed", "timed_out", "expired", "retrying", "lost":
		return true
	}
	return false
}

// A RunTrace is the part of a trace that one run has.
type RunTrace struct {
	Start   *journal.Start
	Context journal.TraceContext // Span is the parent of the run's span; zero = it begins the trace
	Gen     uint32
	Plan    *plan.Plan
	// Spans are in the order in which they began; the first is the run's.
	Spans []*TraceSpan
	Cut   int // how many spans were left out
}

// Depth is how deep the run is in its tree; 0 = it is the root.
func (t *RunTrace) Depth() int64 {
	if t.Start.Child == nil {
		return 0
	}
	return t.Start.Child.Depth
}

// A TraceBuilder builds the spans of a run's last generation from its journal. Earlier
// generations ended before, and their spans were complete then.
type TraceBuilder struct {
	RunTrace
	most  int
	steps map[journal.Ref]*stepSpans
}

// stepSpans are the spans of a step instance.
type stepSpans struct {
	step    *TraceSpan
	attempt *TraceSpan // that is open, or nil
}

// NewTraceBuilder returns a builder of a run of p that keeps at most that many spans.
func NewTraceBuilder(p *plan.Plan, most int) *TraceBuilder {
	return &TraceBuilder{RunTrace: RunTrace{Plan: p}, most: most, steps: map[journal.Ref]*stepSpans{}}
}

// Apply adds the next event.
func (b *TraceBuilder) Apply(ev *journal.Event) (err error) {
	switch {
	case ev.Kind == journal.EvRunStarted:
		if b.Start, err = journal.DecodeStart(ev.Data); err == nil {
			b.begin(ev.At, 1)
		}
		return err
	case b.Start == nil:
		return fault.New(fault.StoreCorrupt, "the journal does not begin with run.started")
	case ev.Kind == journal.EvRunRetried:
		b.begin(ev.At, uint32(ev.Generation()))
	case ev.Kind == journal.EvRunResumed:
		return b.resume(ev)
	case ev.Kind.Ends():
		b.end(ev)
	case ev.Step >= 0 && int(ev.Step) < len(b.Plan.Steps) && b.Spans[0].End == 0:
		b.stepEvent(ev)
	}
	return nil
}

// begin begins a generation of the run.
func (b *TraceBuilder) begin(at int64, gen uint32) {
	b.Context, b.Gen = b.Start.Trace(), gen
	if c := b.Start.Child; c != nil {
		b.Context.Span = journal.SpanID(c.Parent, c.Ref(), c.Fence())
	}
	run := &TraceSpan{
		ID: b.id(journal.Ref{Step: -1}, 0), Parent: b.Context.Span, Begin: at,
		Name: cmp.Or(b.Start.Recipe, "inline"), Kind: plan.Recipe.String(),
	}
	b.Spans, b.Cut = []*TraceSpan{run}, 0
	clear(b.steps)
}

// resume makes the generation that has just begun another attempt of the step that started the run.
func (b *TraceBuilder) resume(ev *journal.Event) error {
	place, err := ev.Resumed(b.Start.Child)
	if err != nil {
		return fault.Wrap(fault.StoreCorrupt, err, "%v", err)
	}
	start := *b.Start
	start.Child, b.Start = place, &start
	b.begin(ev.At, b.Gen)
	return nil
}

func (b *TraceBuilder) id(ref journal.Ref, attempt uint32) [8]byte {
	return journal.SpanID(b.Start.Run, ref, journal.Fence{Gen: b.Gen, Attempt: attempt})
}

// end ends the run, and with it everything that is open.
func (b *TraceBuilder) end(ev *journal.Event) {
	run := b.Spans[0]
	run.Status, run.Code, run.End = ev.Kind.EndStatus().String(), ev.Code, ev.At
	for _, s := range b.Spans {
		if s.End == 0 {
			s.Status, s.End = "unfinished", ev.At
		}
	}
}

func (b *TraceBuilder) stepEvent(ev *journal.Event) {
	switch ev.Kind {
	case journal.EvNodeReady, journal.EvNodeQueued, journal.EvNodeBlocked, journal.EvNodeOpened, journal.EvNodeWaiting:
		b.open(ev)
	case journal.EvNodeInvalidated:
		if ev.Reopened() { // it goes on in this generation
			b.open(ev)
		}
	case journal.EvNodeStarted, journal.EvChildStarted:
		if s := b.open(ev); s != nil {
			b.openAttempt(s, ev)
		}
	case journal.EvNodeRetried, journal.EvNodeFallback:
		b.endAttempt(ev, "retrying")
	case journal.EvNodeLost:
		b.endAttempt(ev, "lost")
	case journal.EvChildEnded:
		b.endAttempt(ev, ev.ChildStatus().String())
	case journal.EvNodeCompleted:
		if s := b.steps[ev.Ref()]; s != nil && s.attempt != nil && s.attempt.Model != nil {
			s.attempt.Model.answer(ev)
		}
		b.settle(ev, "completed")
	case journal.EvNodeFailed:
		b.settle(ev, failedStatus(ev.Code))
	case journal.EvNodeCancelled:
		b.settle(ev, "cancelled")
	case journal.EvNodeSkipped:
		b.settle(ev, "skipped")
	}
}

// open returns the spans of the event's step instance, and begins its span if there is
// none. It returns nil if there are too many.
func (b *TraceBuilder) open(ev *journal.Event) *stepSpans {
	ref := ev.Ref()
	if s := b.steps[ref]; s != nil {
		return s
	}
	if len(b.Spans) >= b.most {
		b.Cut++
		return nil
	}
	step := &b.Plan.Steps[ev.Step]
	s := &stepSpans{step: &TraceSpan{
		ID: b.id(ref, 0), Parent: b.above(ref), Name: step.ID, Step: journal.StepPath(b.Plan, ref), Kind: step.Kind.String(), Begin: ev.At,
	}}
	if step.Action >= 0 && int(step.Action) < len(b.Plan.Actions) {
		s.step.Action = b.Plan.Actions[step.Action].Name
	}
	b.Spans = append(b.Spans, s.step)
	b.steps[ref] = s
	return s
}

// above is the span of the step that owns the scope of a step instance, or of one further
// out if that has none in this generation.
func (b *TraceBuilder) above(ref journal.Ref) [8]byte {
	for ref.Path != "" {
		owner, ok := journal.Owner(b.Plan, ref.Path)
		if !ok {
			break
		}
		if s := b.steps[owner]; s != nil {
			return s.step.ID
		}
		ref = owner
	}
	return b.Spans[0].ID
}

func (b *TraceBuilder) openAttempt(s *stepSpans, ev *journal.Event) {
	if s.attempt != nil { // its end was not recorded
		s.attempt.End, s.attempt.Status = ev.At, "lost"
		s.attempt = nil
	}
	if len(b.Spans) >= b.most {
		b.Cut++
		return
	}
	s.attempt = &TraceSpan{
		ID: b.id(ev.Ref(), ev.Attempt), Parent: s.step.ID, Name: s.step.Name + " attempt",
		Step: s.step.Step, Kind: s.step.Kind, Action: s.step.Action, Attempt: ev.Attempt, Begin: ev.At,
	}
	if ev.Kind == journal.EvChildStarted {
		s.attempt.Child, s.attempt.Pipeline = strings.Clone(ev.Text), b.pipeline(ev.Step)
	} else {
		s.attempt.Model = modelCall(b.Plan, &b.Plan.Steps[ev.Step])
	}
	b.Spans = append(b.Spans, s.attempt)
}

// pipeline says where the recipe is that a step runs (X227).
func (b *TraceBuilder) pipeline(step int32) string {
	child := b.Plan.Steps[step].Child
	if child == nil {
		return ""
	}
	return b.Plan.Children[child.Ref].Source()
}

func (b *TraceBuilder) endAttempt(ev *journal.Event, status string) {
	if s := b.steps[ev.Ref()]; s != nil && s.attempt != nil {
		s.attempt.End, s.attempt.Status, s.attempt.Code = ev.At, status, ev.Code
		s.attempt = nil
	}
}

func (b *TraceBuilder) settle(ev *journal.Event, status string) {
	s := b.steps[ev.Ref()]
	if s == nil {
		if ev.Kind == journal.EvNodeSkipped || ev.NotTaken() {
			return // it took no time
		}
		if s = b.open(ev); s == nil { // for example a transform, which is computed at once
			return
		}
	}
	b.endAttempt(ev, status)
	s.step.End, s.step.Status, s.step.Code = ev.At, status, ev.Code
}

// Trace returns the spans, or nil if the run has not ended.
func (b *TraceBuilder) Trace() *RunTrace {
	if len(b.Spans) == 0 || b.Spans[0].End == 0 {
		return nil
	}
	return &b.RunTrace
}
