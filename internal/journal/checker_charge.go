// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"

	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// charges is what a Checker knows of prices and charges (I12).
type charges struct {
	prices []ledger.Amount // of plan.Actions
	most   []ledger.Amount // what an attempt of each costs at most
	once   []bool          // of plan.Actions: it may be attempted only once
	due    bool            // the next event must complete the step that was charged
	ref    Ref
	n      uint64 // number of the event that charged it
}

// pin reads the prices and the terms that a run is started with.
func (c *Checker) pin(ev *Event) {
	st, err := DecodeStart(ev.Data)
	if err != nil {
		return // its charges will have no price
	}
	for i := range st.Pins {
		c.charges.prices = append(c.charges.prices, st.Pins[i].Price)
		c.charges.once = append(c.charges.once, st.Pins[i].Once)
		c.charges.most = append(c.charges.most, st.Pins[i].Most())
	}
	c.credits.start(st)
	c.children.self = st.Child
}

// check asserts that a step that was charged completes at once.
func (c *charges) check(ev *Event) error {
	if c.due && (ev.Kind != EvNodeCompleted || ev.Ref() != c.ref) {
		return fmt.Errorf("I12: event %d charges a step that event %d does not complete", c.n, ev.Seq)
	}
	c.due = false
	return nil
}

// checkCharge checks what an attempt cost: at most the price that was pinned, once.
func (c *Checker) checkCharge(s *stepRecord, ev *Event) error {
	price := ledger.Amount(0)
	if step := &c.plan.Steps[ev.Step]; step.Kind == plan.Action && int(step.Action) < len(c.charges.prices) {
		if price = c.charges.prices[step.Action]; c.cached.seq != 0 {
			price = c.cached.price(ev, c.plan, c.charges.most[step.Action])
		}
	}
	switch {
	case ev.Attempt != s.attempt || s.gen != c.gen:
		return fmt.Errorf("I12: attempt %d is charged, attempt %d was handed out", ev.Attempt, s.attempt)
	case s.charged:
		return fmt.Errorf("I12: attempt %d is charged twice", ev.Attempt)
	case ev.Amount() <= 0 || ev.Amount() > price:
		return fmt.Errorf("I12: it is charged %s credits, its price is %s", ev.Amount(), price)
	}
	s.charged = true
	if ev.Charged() {
		c.charges.due, c.charges.ref, c.charges.n = true, ev.Ref(), ev.Seq
	}
	return nil
}
