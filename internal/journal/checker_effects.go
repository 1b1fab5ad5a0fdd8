// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/plan"
)

// An effect is what an observer knows about the last attempt of a step instance.
type effect struct {
	key     string
	gen     uint32
	attempt uint32
	open    bool // it has not ended
	doubt   bool // an attempt with the key before it may have had its effect
	unknown bool // it ended, and its effect may or may not have happened
}

// CheckEffectKey asserts I4: while the outcome of an attempt is unknown the next
// attempt has the same key; otherwise it has a key that was never used. In inner
// scopes a retry may start over with new keys. ev is an event of generation gen; key
// is the effect key of the attempt that an EvNodeStarted starts, "" when it is not
// known.
func (c *Checker) CheckEffectKey(ev *Event, gen uint32, key string) error {
	e := c.effects[ev.Ref()]
	switch ev.Kind {
	case EvNodeStarted:
		if key == "" {
			return nil
		}
		anew := e == nil || e.gen != gen && ev.Path != ""
		switch {
		case e != nil && e.unknown && key != e.key && !anew:
			return fmt.Errorf("I4: %s: the outcome of the last attempt is unknown and its key has changed", StepPath(c.plan, ev.Ref()))
		case (e == nil || !e.unknown) && c.keys[key]:
			return fmt.Errorf("I4: %s: a new effect has the key of an old one", StepPath(c.plan, ev.Ref()))
		case e != nil && e.unknown && e.gen == gen && c.once(ev.Step):
			return fmt.Errorf("X90: %s: the action may be attempted only once, and the outcome of the last attempt is unknown", StepPath(c.plan, ev.Ref()))
		}
		doubt := e != nil && e.unknown && key == e.key
		if doubt && !ev.Unknown {
			return fmt.Errorf("I4: %s: attempt %d does not say that an effect with its key may have happened", StepPath(c.plan, ev.Ref()), ev.Attempt)
		}
		c.keys[key] = true
		c.effects[ev.Ref()] = &effect{key: key, gen: gen, attempt: ev.Attempt, open: true, doubt: doubt}
	case EvNodeCompensated:
		if e != nil {
			e.unknown = false // the compensation has undone whatever happened
		}
	case EvNodeLost, EvNodeCancelled, EvNodeRetried, EvNodeFailed, EvNodeFallback, EvNodeSkipped, EvNodeCompleted:
		if e == nil || !e.open {
			return nil
		}
		e.open, e.unknown = false, ev.Kind == EvNodeCancelled || ev.OutcomeUnknown()
		if e.doubt && !e.unknown && ev.Kind != EvNodeCompleted && !fault.Answers(ev.Code) {
			return fmt.Errorf("I4: %s: an attempt that failed with %s says nothing about the ones before it with the same key, whose outcome is unknown", StepPath(c.plan, ev.Ref()), string(ev.Code))
		}
	}
	return nil
}

// once reports whether the action of a step may be attempted only once.
func (c *Checker) once(step int32) bool {
	s := &c.plan.Steps[step]
	return s.Kind == plan.Action && int(s.Action) < len(c.charges.once) && c.charges.once[s.Action]
}

// checkUnknown asserts that an event that says that an effect may have happened is about an
// attempt, and can say so.
func checkUnknown(ev *Event) error {
	if ev.Unknown && ev.Kind != EvNodeStarted && (!ev.OutcomeUnknown() || ev.Kind == EvNodeLost) {
		return fmt.Errorf("I4: event %d (%s) has no outcome that could be unknown", ev.Seq, ev.Name())
	}
	return nil
}

// EffectKey is the effect key of an attempt; ok is false unless it is the step's last
// attempt.
func (c *Checker) EffectKey(ref Ref, fence Fence) (key string, ok bool) {
	e := c.effects[ref]
	if e == nil || e.gen != fence.Gen || e.attempt != fence.Attempt {
		return "", false
	}
	return e.key, true
}
