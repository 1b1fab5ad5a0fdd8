// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"fmt"

	"github.com/roux-engine/roux/internal/jsonx"
)

// A resetRecord is a step instance that a retry reset.
type resetRecord struct {
	ref    Ref
	reopen bool
}

// checkResets asserts, after all resets of a retry were read, that they are complete:
// the dependents and the owner of a reset step are reset too (X119), and no step is
// reopened whose predecessors will run again (I5).
func (c *Checker) checkResets() error {
	resets := c.resets
	c.resets = c.resets[:0]
	for _, x := range resets {
		step := &c.plan.Steps[x.ref.Step]
		name := StepPath(c.plan, x.ref)
		for _, next := range step.Succs {
			if st := c.StepStatus(Ref{x.ref.Path, next}); st.Settled() {
				return fmt.Errorf("X119: %s is reset, and %s, which waits for it, stays %s", name, c.plan.Steps[next].ID, st)
			}
		}
		if owner, ok := Owner(c.plan, x.ref.Path); ok && c.StepStatus(owner).Settled() {
			return fmt.Errorf("X119: %s is reset, and %s, which owns it, stays %s", name, StepPath(c.plan, owner), c.StepStatus(owner))
		}
		for _, p := range step.Preds {
			if st := c.StepStatus(Ref{x.ref.Path, p}); x.reopen && !st.Settled() {
				return fmt.Errorf("I5: %s goes on in the middle while %s, which it waits for, is %s", name, c.plan.Steps[p].ID, st)
			}
		}
	}
	return nil
}

// checkLost asserts that attempts lost to crashes count against lost_limit, and that
// attempts handed back by an orderly stop do not (X90, F45).
func (c *Checker) checkLost(s *stepRecord, ev *Event) error {
	switch {
	case ev.Kind == EvNodeLost && !ev.HandedBack():
		if s.lost++; s.lost > LostLimit {
			return fmt.Errorf("X90: attempt %d is lost after %d others, and it goes on", ev.Attempt, LostLimit)
		}
	case ev.Attempt > 0 && ev.Text == LostTooOften && s.lost != LostLimit:
		return fmt.Errorf("X90: it is given up after %d attempts that were lost to crashes", s.lost)
	}
	return nil
}

// bindings are the names bound in the run's outermost frame: for each name the steps
// that bind it and were not reset since, the last one last.
type bindings map[string][]bound

type bound struct {
	ref  Ref
	data []byte // nil = the output of an inner scope, which is not tracked
}

// resultName is the name that the output of a step has in a result without outputs: what it binds in
// the outermost frame, or its id; "" when it has none.
func (c *Checker) resultName(step int32) string {
	st := &c.plan.Steps[step]
	if c.plan.OfSteps {
		if st.Graph == 0 {
			return st.ID
		}
		return ""
	}
	if !st.Keep || st.Slot < 0 || c.plan.Graphs[st.Graph].Frame != 0 {
		return ""
	}
	return st.Bind
}

func (c *Checker) recordBinding(ev *Event) {
	if ev.Kind != EvNodeCompleted || c.resultName(ev.Step) == "" {
		return
	}
	b := bound{ref: ev.Ref()}
	if !ev.FromInner() {
		b.data = bytes.Clone(ev.Data)
	}
	if c.bound == nil {
		c.bound = bindings{}
	}
	name := c.resultName(ev.Step)
	c.bound[name] = append(c.bound[name], b)
}

// dropBindings removes the bindings of a step that is reset. The values bound in its
// inner scopes are no longer tracked.
func (c *Checker) dropBindings(ev *Event) {
	for name, list := range c.bound {
		var kept []bound
		for _, b := range list {
			switch {
			case b.ref == ev.Ref():
			case !ev.Reopened() && c.ownedBy(b.ref, ev.Ref()):
				kept = append(kept, bound{ref: b.ref})
			default:
				kept = append(kept, b)
			}
		}
		c.bound[name] = kept
	}
}

// ownedBy reports whether a step instance is in a scope that owner owns, at any depth.
func (c *Checker) ownedBy(ref, owner Ref) bool {
	for {
		above, ok := Owner(c.plan, ref.Path)
		if !ok || above == owner {
			return ok
		}
		ref = above
	}
}

// checkOutputs asserts that a completed run outputs, for each name, the value bound
// last, if its outputs are all its bindings or those of its steps (R41).
func (c *Checker) checkOutputs(ev *Event) error {
	if ev.Kind != EvRunCompleted || len(c.plan.Outputs) > 0 || len(c.plan.OutputSchema) > 0 {
		return nil
	}
	v, err := jsonx.Decode(ev.Data, ValueLimits)
	outputs, ok := v.(map[string]any)
	if err != nil || !ok {
		return fmt.Errorf("R41: event %d gives outputs that are no object: %.60s", ev.Seq, ev.Data)
	}
	for name, list := range c.bound {
		if len(list) == 0 || list[len(list)-1].data == nil {
			continue
		}
		b := list[len(list)-1]
		got, err := jsonx.Canonical(outputs[name])
		if err != nil || !bytes.Equal(got, b.data) {
			return fmt.Errorf("R41: event %d gives %q as %.60s; %s bound it last, to %.60s", ev.Seq, name, got, StepPath(c.plan, b.ref), b.data)
		}
	}
	return nil
}
