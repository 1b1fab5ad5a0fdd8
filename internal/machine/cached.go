// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// Cache returns when the attempt may use an earlier result in place of a call, and the value
// that must be the same besides the input, as canonical JSON; nil = never. It is pure, as
// Render is, which must have succeeded.
func (t *Task) Cache() (c *plan.Cache, key []byte, fail *Failure) {
	if t.noInput {
		return nil, nil, nil
	}
	c = t.step.Cache
	if c == nil || c.Key == nil {
		return c, nil, nil
	}
	v, err := t.code.cacheKey.Eval(&t.vars)
	if err == nil {
		key, err = jsonx.Canonical(v)
	}
	if err != nil {
		fail = failureOf(err, fault.TemplateError)
		fail.Msg = fmt.Sprintf("the key of the cache: %s", fail.Msg)
		return nil, nil, fail
	}
	return c, key, nil
}

// NoCache reports whether the run uses no earlier results. Its own may be used by others.
func (t *Task) NoCache() bool { return t.start.NoCache }

// completeCached completes a step with the result of an earlier attempt. It costs what the step
// says, at most what a call would have, and what the result says about its cost does not count.
func (r *Run) completeCached(s *scope, i int32, in *Input) {
	attempt := s.steps[i].attempt
	r.emitStep(s, i, in.Cached.Event(attempt))
	most := ledger.Amount(0)
	if c := s.step(r.plan, i).Cache; c != nil {
		most = min(ledger.Amount(c.Price), r.ceiling(s, i))
	}
	if most > 0 {
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCharged, N: int64(most), Attempt: attempt})
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompleted, Data: in.Output, Flag: 2, Attempt: attempt,
		M: r.clock - s.steps[i].at, Hash: in.InputHash})
}
