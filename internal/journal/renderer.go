// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/hex"
	"slices"

	"github.com/roux-engine/roux/internal/plan"
)

// A Renderer makes the envelopes of one run. In addition to what [Render] says of an event
// it says which recipe the run executes, which trace it belongs to, and which event caused
// the event. It must see the events of the run in order, from the first; the events before
// the first one shown are passed to [Renderer.Note]. It keeps an entry for each scope that
// is open, so a loop over a million items needs memory for its window only.
type Renderer struct {
	plan     *plan.Plan
	run      string
	workflow string
	trace    string
	causes   causes
}

// NewRenderer returns a renderer of a run of p, which has seen no event.
func NewRenderer(p *plan.Plan, run string) *Renderer {
	return &Renderer{plan: p, run: run, trace: traceText(TraceOf("", run)), causes: causes{plan: p, scopes: map[Path]*scopeCauses{}}}
}

// Note takes the next event without showing it.
func (r *Renderer) Note(ev *Event) { r.note(ev) }

// Render returns the public form of the next event.
func (r *Renderer) Render(ev *Event) Envelope {
	parent := r.note(ev)
	env := Render(r.plan, r.run, ev)
	env.WorkflowID = r.workflow
	if env.Correlation == nil {
		env.Correlation = &Correlation{Phase: enginePhase}
	}
	env.Correlation.TraceID, env.Correlation.ParentEventID = r.trace, parent
	return env
}

// note follows an event and returns the one that caused it.
func (r *Renderer) note(ev *Event) (parent uint64) {
	if ev.Kind == EvRunStarted {
		// A masked start may have no contents; the run is then a trace of its own.
		if st, err := DecodeStart(ev.Data); err == nil {
			r.workflow, r.trace = st.Recipe, traceText(st.Trace())
		}
	}
	return r.causes.add(ev)
}

// flowTypes are the types of events that the workflow engine of the sources publishes
// (X175, X176, X177). A client of its stream knows these and no others.
var flowTypes = []string{
	"run.started", "run.status.changed", "run.completed", "run.failed", "run.cancelled", "run.timed_out", "run.recovered", "heartbeat",
	"node.queued", "node.started", "node.stream.delta", "node.log", "node.retried", "node.completed", "node.failed", "node.cancelled",
	"node.skipped", "node.timed_out", "node.blocked", "node.invalidated",
	"moderation.flagged", "contract.violated",
}

// FlowTypes lists the types of events that a client of the workflow stream knows. A
// heartbeat is sent and never recorded.
func FlowTypes() []string { return slices.Clone(flowTypes) }

// ForFlow reports whether a client of the workflow stream knows a type of event.
func ForFlow(name string) bool { return slices.Contains(flowTypes, name) }

// traceText is a trace as envelopes have it: 32 hexadecimal digits.
func traceText(c TraceContext) string { return hex.EncodeToString(c.Trace[:]) }
