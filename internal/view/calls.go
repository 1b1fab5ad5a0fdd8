// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// Calls are the calls of actions that a run has made, and how each ended. They are not bounded: a
// run is read whole.
type Calls struct {
	// ByPath are the calls of each step instance, in the order of its attempts: those of the last
	// generation in which it ran.
	ByPath map[string][]*Call
	// Children are the paths of the steps that have started child runs, by run.
	Children map[string]string
	// Waits are the signals that steps have waited for.
	Waits map[string]bool
	// Lost are the step instances with attempts that were lost.
	Lost map[string]bool

	plan *plan.Plan
	pins []journal.Pin
	gen  int64
	open map[journal.Ref]*openCall
	gens map[string]int64 // by path: the generation of its calls
}

// A Call is one attempt that has ended.
type Call struct {
	Path            string
	Action, Version string
	InputHash       string       // "" = not recorded
	Output          []byte       // canonical JSON of a success
	Err             *fault.Error // nil = success
	Micros          int64
	Job             bool // it was an external job
	// Cost and Price are what it cost, if that is not what the action declared when the run
	// started: in whole credits, or as decimal text; nil, "" = it is.
	Cost  *int64
	Price string
}

type openCall struct {
	began  int64
	job    bool
	hash   string // of the input of a job
	amount *ledger.Amount
}

// NewCalls returns the calls of a run of p, without events.
func NewCalls(p *plan.Plan) *Calls {
	return &Calls{
		ByPath: map[string][]*Call{}, Children: map[string]string{}, Waits: map[string]bool{}, Lost: map[string]bool{},
		plan: p, gen: 1, open: map[journal.Ref]*openCall{}, gens: map[string]int64{},
	}
}

// Apply adds the run's next event.
func (c *Calls) Apply(ev *journal.Event) error {
	switch ev.Kind {
	case journal.EvRunStarted:
		st, err := journal.DecodeStart(ev.Data)
		if err != nil {
			return err
		}
		c.pins = st.Pins
	case journal.EvRunRetried:
		c.gen = ev.Generation()
		clear(c.open)
	case journal.EvNodeWaiting:
		c.Waits[strings.Clone(ev.Text)] = true
	case journal.EvChildStarted:
		c.Children[strings.Clone(ev.Text)] = journal.StepPath(c.plan, ev.Ref())
	}
	if ev.Step >= 0 && c.plan.Steps[ev.Step].Kind == plan.Action {
		c.step(ev)
	}
	return nil
}

func (c *Calls) step(ev *journal.Event) {
	ref := ev.Ref()
	at := c.open[ref]
	if ev.Kind == journal.EvNodeStarted {
		c.open[ref] = &openCall{began: ev.At}
		return
	}
	if at == nil {
		return
	}
	switch ev.Kind {
	case journal.EvNodeSubmitted:
		at.job, at.hash = true, string(ev.Hash)
	case journal.EvNodeCharged:
		if amount := ev.Amount(); ev.Charged() {
			at.amount = &amount
		}
	case journal.EvNodeLost:
		c.Lost[journal.StepPath(c.plan, ref)] = true
		delete(c.open, ref)
	case journal.EvNodeCompleted, journal.EvNodeRetried, journal.EvNodeFailed, journal.EvNodeFallback, journal.EvNodeSkipped:
		c.ended(ev, at)
		delete(c.open, ref)
	}
}

// ended adds a call.
func (c *Calls) ended(ev *journal.Event, at *openCall) {
	ref := c.plan.Actions[c.plan.Steps[ev.Step].Action]
	call := &Call{Path: journal.StepPath(c.plan, ev.Ref()), Action: ref.Name, InputHash: cmp.Or(string(ev.Hash), at.hash), Micros: max(0, ev.At-at.began), Job: at.job}
	var pin *journal.Pin
	if k := c.plan.Steps[ev.Step].Action; int(k) < len(c.pins) {
		pin = &c.pins[k]
		call.Version = pin.Version
	}
	if ev.Kind == journal.EvNodeCompleted {
		call.Output = bytes.Clone(ev.Data)
		if cost := ev.Cost(); pin == nil || cost != pin.Cost {
			call.Cost = &cost
		}
		if at.amount != nil && (pin == nil || *at.amount != pin.Price) {
			call.Price = at.amount.String()
		}
	} else {
		call.Err = fault.New(ev.Code, "%s", strings.Clone(ev.Text))
		call.Err.OutcomeUnknown = ev.Unknown
		if ev.Kind == journal.EvNodeRetried && ev.Code == fault.RateLimited {
			call.Err.RetryAfterMS = ev.Delay().Milliseconds()
		}
	}
	if c.gens[call.Path] != c.gen { // a retry has reset the step
		c.gens[call.Path] = c.gen
		c.ByPath[call.Path] = nil
	}
	c.ByPath[call.Path] = append(c.ByPath[call.Path], call)
}
