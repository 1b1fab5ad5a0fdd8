// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// observer observes the events of commits, in the goroutine of Telemetry.observe.
type observer struct {
	m     *metrics
	steps *stepLog // nil = none
	plans map[*plan.Plan][]stepMetrics
	run   *commit       // whose events are observed; nil between commits, because the queue is reused
	plan  *plan.Plan    // of the last run
	of    []stepMetrics // of plan
	read  *view.OutcomeReader
}

// A commit is what one commit has made durable of a run, as it waits to be observed.
type commit struct {
	key    store.Key
	plan   *plan.Plan
	start  *journal.Start
	frames []byte
	head   *store.Head // of a run that has ended
}

// maxPlans bounds the plans whose labels are known.
const maxPlans = 1_000

// stepMetrics are the labels of a step and the histogram of its completions, which are
// most of what is observed.
type stepMetrics struct {
	kind, action string
	completed    prometheus.Observer // nil = not known yet
}

func newObserver(m *metrics, steps *stepLog) *observer {
	o := &observer{m: m, steps: steps, plans: map[*plan.Plan][]stepMetrics{}}
	o.read = view.NewOutcomeReader(o.outcome)
	return o
}

// events observes what a commit has made durable of a run.
func (o *observer) events(run *commit) {
	if o.plan != run.plan {
		o.plan, o.of = run.plan, o.labels(run.plan)
	}
	o.run = run
	// What cannot be read was damaged in memory: the store has checked it before.
	_ = o.read.Read(run.frames)
	if run.head != nil && o.steps != nil {
		o.steps.run(run)
	}
	o.run = nil
}

// labels returns the labels of the steps of a plan.
func (o *observer) labels(p *plan.Plan) []stepMetrics {
	if of := o.plans[p]; of != nil {
		return of
	}
	if len(o.plans) >= maxPlans {
		clear(o.plans)
	}
	of := make([]stepMetrics, len(p.Steps))
	for i := range p.Steps {
		step := &p.Steps[i]
		of[i].kind = step.Kind.String()
		if step.Action >= 0 && int(step.Action) < len(p.Actions) {
			of[i].action = o.m.actions.label(p.Actions[step.Action].Name)
		}
	}
	o.plans[p] = of
	return of
}

func (o *observer) outcome(out *view.Outcome) {
	if out.Ref.Step < 0 || int(out.Ref.Step) >= len(o.of) {
		return
	}
	s := &o.of[out.Ref.Step]
	switch out.Status {
	case "completed":
		if s.completed == nil {
			s.completed = o.m.stepSeconds.WithLabelValues(s.kind, s.action, out.Status)
		}
		s.completed.Observe(float64(out.Micros) / 1e6)
	case "failed", "timed_out":
		o.m.stepSeconds.WithLabelValues(s.kind, s.action, out.Status).Observe(float64(out.Micros) / 1e6)
		o.m.failures.WithLabelValues(s.action, codeLabel(out.Code)).Inc()
		o.refused(out)
		if out.Code == fault.DepthExceeded && !out.Ran && o.run.plan.Steps[out.Ref.Step].Child != nil {
			o.tooDeep(out)
		}
	case "cancelled":
		if out.Micros > 0 {
			o.m.stepSeconds.WithLabelValues(s.kind, s.action, out.Status).Observe(float64(out.Micros) / 1e6)
		}
	case "retrying":
		o.m.retries.WithLabelValues(s.action, codeLabel(out.Code)).Inc()
		o.refused(out)
	case "lost":
		o.m.lost.WithLabelValues(s.action).Inc()
	}
	if o.steps != nil {
		o.steps.step(o.run, out)
	}
}

// refused counts the result of a remote worker that its step has refused. Such a result gets a code that
// workers cannot use, unless their action declares it.
func (o *observer) refused(out *view.Outcome) {
	action := int(o.run.plan.Steps[out.Ref.Step].Action)
	if s := o.run.start; s == nil || action < 0 || action >= len(s.Pins) || s.Pins[action].Provider != jobs.Workers {
		return
	}
	switch out.Code {
	case fault.OutputContractViolation:
		o.m.offSchema.Add(1)
	case fault.OutputTooLarge:
		o.m.tooLarge.Add(1)
	}
}

// tooDeep counts a run that was not started, because it would have been too deep.
func (o *observer) tooDeep(out *view.Outcome) {
	p := o.run.plan
	child := &p.Children[p.Steps[out.Ref.Step].Child.Ref]
	o.m.nestedErrors.WithLabelValues(o.m.pipeline(child.Name), errorLabel(out.Code)).Inc()
}
