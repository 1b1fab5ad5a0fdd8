// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// An engine with Select carries on the runs it names, those that begin there and
// those that a request is about; the others rest, also when their timers are due and
// when every run is read again after a failed commit.
func TestSelect(t *testing.T) {
	fail := false
	st := memory.New(memory.Options{OnCommit: func(int, []store.Transition) memory.Outcome {
		if fail {
			fail = false
			return memory.Refused
		}
		return memory.OK
	}})
	work := planOf(t, chain(1), noop())
	nap := planOf(t, "name: nap\nsteps:\n  - {id: nap, wait: {duration: PT1M}}\n", noop())
	before := newRig(t, st, Config{SuspendAfter: 1}, noop())
	mine, other := before.run(acc, work, nil), before.run(acc, work, nil)
	myNap, otherNap := before.run(acc, nap, nil), before.run(acc, nap, nil)
	asked := before.run(acc, planOf(t, "name: ask\nsteps:\n  - {id: ask, wait: {signal: go}}\n  - {id: nap, wait: {duration: PT1M}}\n", noop()), nil)
	before.pass(2_000_000) // they leave memory

	var failures []error
	chosen := map[store.Key]bool{mine: true, myNap: true}
	before.cfg.Select = func(key store.Key) bool { return chosen[key] }
	before.cfg.CommitFailed = func(err error) { failures = append(failures, err) }
	r := before.reopen(st)
	r.settle()
	if len(r.c.residency.runs) != 1 || r.c.residency.runs[mine] == nil {
		t.Fatalf("%d runs were loaded, want the one that is chosen and has not left memory", len(r.c.residency.runs))
	}
	began := r.run(acc, nap, nil)
	r.settle(request(asked, machine.Input{Kind: machine.InSignal, Name: "go"}))
	fail = true
	refused := r.start(acc, work, nil)
	r.settle(refused)
	r.pass(5 * maxBackoff)
	if len(failures) != 1 || fault.CodeOf(failures[0]) != fault.StoreFull {
		t.Errorf("of one failed commit this was told: %v", failures)
	}
	r.pass(120_000_000)
	r.work()
	for _, key := range []store.Key{mine, myNap, began, asked} {
		r.wantStatus(key, "completed")
	}
	for _, key := range []store.Key{other, otherNap} {
		r.wantStatus(key, "running")
		if r.c.residency.runs[key] != nil {
			t.Errorf("run %s was taken up", key.Run)
		}
	}
}

// Wake-ups of runs that rest do not stand before those of the runs that are carried
// on, however many they are.
func TestSelectDue(t *testing.T) {
	st := memory.New(memory.Options{})
	nap := planOf(t, "name: nap\nsteps:\n  - {id: nap, wait: {duration: PT1M}}\n", noop())
	before := newRig(t, st, Config{SuspendAfter: 1}, noop())
	const others = maxAhead + 10
	var keys []store.Key
	for range others {
		keys = append(keys, before.run(acc, nap, nil))
	}
	before.pass(2_000_000)
	last := keys[len(keys)-1]
	before.cfg.Select = func(key store.Key) bool { return key == last }
	r := before.reopen(st)
	wakes, more, err := r.c.residency.due(r.now + hour)
	if err != nil || more || len(wakes) != 1 || wakes[0].Key != last {
		t.Errorf("due are %d wake-ups, more %t, %v; want the last run's", len(wakes), more, err)
	}
	r.pass(120_000_000)
	r.wantStatus(last, "completed")
	r.wantStatus(keys[0], "running")
}
