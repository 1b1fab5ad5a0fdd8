// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"

	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// cachedResult is what a Checker remembers of an attempt that calls nothing: it is charged at
// most the price of such a result, and completes its step at once.
type cachedResult struct {
	ref Ref
	seq uint64 // of its EvNodeCached; 0 = none
}

// check asserts that an attempt completes its step with the events after its EvNodeCached, and
// that no other attempt claims to.
func (c *cachedResult) check(ev *Event, p *plan.Plan) error {
	switch {
	case ev.Kind == EvNodeCached:
		if step := &p.Steps[ev.Step]; c.seq != 0 || step.Cache == nil {
			return fmt.Errorf("I12: event %d has an earlier result for a step that may not use one", ev.Seq)
		}
		if _, err := ev.CachedFrom(); err != nil || ev.Text == "" {
			return fmt.Errorf("I2: event %d names no earlier result: %.60q", ev.Seq, ev.Data)
		}
		c.ref, c.seq = ev.Ref(), ev.Seq
	case c.seq == 0:
		if ev.Kind == EvNodeCompleted && ev.Cached() {
			return fmt.Errorf("I12: event %d completes a step with an earlier result that no event names", ev.Seq)
		}
	case ev.Ref() == c.ref && ev.Kind == EvNodeCharged:
	case ev.Ref() != c.ref || ev.Kind != EvNodeCompleted || !ev.Cached() || ev.Cost() != 0:
		return fmt.Errorf("I12: event %d has an earlier result for a step that event %d does not complete with it", c.seq, ev.Seq)
	default:
		c.seq = 0
	}
	return nil
}

// price is the most that an attempt with an earlier result is charged.
func (c *cachedResult) price(ev *Event, p *plan.Plan, most ledger.Amount) ledger.Amount {
	return min(ledger.Amount(p.Steps[ev.Step].Cache.Price), most)
}
