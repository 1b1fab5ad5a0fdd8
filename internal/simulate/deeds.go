// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
)

// deeds are the books of the services that attempts call: what they have done for which effect
// key, and whether they have said how that ended. A service that honours keys does the same thing
// once for a key, so it does it twice if a step comes with another key although it was never told
// how the first ended (I4).
type deeds struct {
	dice *rand.Rand // their own, so that attempts end as they did before there were books
	of   map[deedOf]*deed
	last map[stepOf]string // the key of the last attempt of a step
}

type stepOf struct {
	run string
	ref journal.Ref
}

type deedOf struct {
	stepOf
	key string
}

// A deed is what a service knows about an effect key.
type deed struct {
	gen      uint32          // of the last attempt with the key
	attempts map[uint32]bool // those that have not ended, and whether the service has acted
	done     bool            // it has acted for one that has
	answered bool            // it has told one how that ended
}

func newDeeds(seed uint64) deeds {
	return deeds{dice: rand.New(rand.NewPCG(seed, 0x6465656473)), of: map[deedOf]*deed{}, last: map[stepOf]string{}}
}

// calls lets an attempt call its service, and asserts that no call is one too many. What becomes of
// it is drawn now, so that it counts if the attempt never ends.
func (w *World) calls(k *task) {
	d, t := &w.deeds, k.ef.Task
	step := stepOf{k.ef.Key.Run, k.ef.Ref}
	before := d.of[deedOf{step, d.last[step]}]
	if before != nil && before.perhaps() {
		same := before.gen == k.ef.Fence.Gen
		switch {
		case d.last[step] != t.EffectKey && (same || k.ef.Ref.Path == ""):
			w.fail("I4: run %s: step %s calls with another effect key, and nobody has said what became of its last call, which was carried out", k.ef.Key.Run, t.StepPath)
		case same && t.Pin.Once:
			w.fail("X90: run %s: step %s may be attempted once, and is called again although its last call was carried out", k.ef.Key.Run, t.StepPath)
		}
	}
	at := deedOf{step, t.EffectKey}
	if d.of[at] == nil {
		d.of[at] = &deed{attempts: map[uint32]bool{}}
	}
	d.last[step] = t.EffectKey
	d.of[at].gen, d.of[at].attempts[k.ef.Fence.Attempt] = k.ef.Fence.Gen, d.dice.IntN(2) == 0
}

// perhaps reports whether the service has acted, and nobody was told how that ended.
func (d *deed) perhaps() bool {
	for _, acted := range d.attempts {
		if acted && !d.answered {
			return true
		}
	}
	return d.done && !d.answered
}

// ends records what the service has done for an attempt, and what it has said of it. f is why the
// attempt has failed; nil = it has not.
func (w *World) ends(run string, t *machine.Task, f *machine.Failure) {
	e := w.deeds.of[deedOf{stepOf{run, t.Ref}, t.EffectKey}]
	if e == nil {
		return
	}
	acted := e.attempts[t.Fence.Attempt]
	delete(e.attempts, t.Fence.Attempt)
	switch {
	case f == nil:
		e.done, e.answered = true, true
	case f.Unknown || fault.EndsUnknown(f.Code):
		e.done = e.done || acted
	case fault.Answers(f.Code):
		e.done, e.answered = e.done || acted, true
	}
}

// notCalled is why the service has nothing to say of an attempt.
var notCalled = machine.Failure{Code: fault.ServiceUnavailable}

// told records what the journal has of how a call ended.
func (d *deeds) told(run string, ev *journal.Event) {
	step := stepOf{run, ev.Ref()}
	if e := d.of[deedOf{step, d.last[step]}]; e != nil && ev.SettlesEffect() {
		e.answered = true
	}
}
