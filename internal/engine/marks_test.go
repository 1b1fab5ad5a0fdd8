// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// breakSnapshot makes the state of a run one of which no snapshot can be made: it
// has a scope that is none.
func breakSnapshot(t *testing.T, run *machine.Run) {
	t.Helper()
	field := reflect.ValueOf(run).Elem().FieldByName("scopes")
	scopes := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
	scopes.Set(reflect.MakeMap(field.Type()))
	scopes.SetMapIndex(reflect.ValueOf(journal.Path("broken")), reflect.Zero(field.Type().Elem()))
	defer func() {
		if recover() == nil {
			t.Fatal("the snapshot of a broken run does not panic")
		}
	}()
	run.Snapshot(nil)
}

// consistent reports a head that tells of another state than the run's journal.
func (r *rig) consistent(key store.Key) {
	r.t.Helper()
	saved, err := r.st.Load(context.Background(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	prog, err := r.c.programs.load(context.Background(), r.st, saved.Head.PlanHash)
	if err != nil {
		r.t.Fatal(err)
	}
	run, err := refold(context.Background(), r.st, prog, saved, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	if h := saved.Head; h.Status != run.Status().String() || (h.Ended != 0) != run.Status().Terminal() {
		r.t.Errorf("the head says %s (ended %d), the journal %s", h.Status, h.Ended, run.Status())
	}
}

// A run of which no snapshot can be made is quarantined, and its mark is stored: it
// stays quarantined after a restart. Its head tells of what is stored, not of the
// transition that was given up with the snapshot (I16).
func TestI16_MarkOfAFailedSnapshot(t *testing.T) {
	st := memory.New(memory.Options{})
	r := newRig(t, st, Config{}, noop())
	key := r.run(acc, planOf(t, "name: w\nsteps:\n  - {id: a, action: {name: noop}}\n  - {id: w, wait: {signal: go}}\n", noop()), nil)
	task := r.pull()
	l := r.c.residency.runs[key]
	l.compact = true
	r.handle(done(task, `1`))
	breakSnapshot(t, l.run)
	r.settle()
	if head := r.head(key); !strings.Contains(head.Quarantine, "panicked") {
		t.Errorf("the run's quarantine says %q", head.Quarantine)
	}
	r.consistent(key)
	r = r.reopen(st.Crash(0))
	r.settle()
	if len(r.tasks) != 0 || r.c.residency.runs[key] != nil {
		t.Error("after a restart the run goes on though it was quarantined")
	}
	release := &input{kind: inRelease, key: key, reply: make(chan answer, 1)}
	r.settle(release)
	if err := r.answer(release).err; err != nil {
		t.Fatal(err)
	}
	r.work()
	r.settle(request(key, machine.Input{Kind: machine.InSignal, Name: "go"}))
	r.wantStatus(key, "completed")
}

// A run that breaks while its last transition is on the way to the store, which
// refuses it, is marked with the head that is stored.
func TestI16_MarkAfterARefusedTransition(t *testing.T) {
	st := &choosy{Store: memory.New(memory.Options{})}
	r := newRig(t, st, Config{}, noop())
	key := r.run(acc, planOf(t, chain(1), noop()), nil)
	task := r.pull()
	r.handle(done(task, `1`))
	b := r.c.pipeline.encodeBatch()
	if b == nil || len(b.trans) != 1 || b.trans[0].Head == nil || b.trans[0].Head.Status != "completed" {
		t.Fatalf("the end of the run is not on its way: %+v", b)
	}
	r.c.watch = &panicker{left: 1}
	r.handle(request(key, machine.Input{Kind: machine.InSignal, Name: "go"}))
	st.refuse = func(*store.Transition) bool { return true }
	verdicts, err := st.Commit(context.Background(), b.trans)
	r.c.pipeline.committed(verdicts, err)
	st.refuse = nil
	r.settle()
	if head := r.head(key); head.Quarantine == "" {
		t.Error("the run is not quarantined")
	}
	r.consistent(key)
}

// The same with the start of a run: there is nothing that could be marked, and
// the name is forgotten.
func TestI16_NoMarkOfARefusedStart(t *testing.T) {
	st := &choosy{Store: memory.New(memory.Options{})}
	r := newRig(t, st, Config{}, noop())
	in := r.start(acc, planOf(t, chain(1), noop()), nil)
	r.handle(in)
	b := r.c.pipeline.encodeBatch()
	r.c.watch = &panicker{left: 1}
	r.handle(request(in.key, machine.Input{Kind: machine.InSignal, Name: "go"}))
	st.refuse = func(*store.Transition) bool { return true }
	verdicts, err := st.Commit(context.Background(), b.trans)
	r.c.pipeline.committed(verdicts, err)
	st.refuse = nil
	r.settle()
	if len(r.c.recovery.quarantined) != 0 {
		t.Errorf("a run that does not exist is quarantined: %v", r.c.recovery.quarantined)
	}
	if _, err := r.st.Head(context.Background(), in.key); fault.CodeOf(err) != fault.RunNotFound {
		t.Errorf("the refused start left %v", err)
	}
}

// A cancel that was accepted outlives a mark that follows it: released, the run
// ends cancelled (I8). One that was not stored yet is refused with the mark.
func TestI8_CancelAndMark(t *testing.T) {
	for _, stored := range []bool{true, false} {
		st := memory.New(memory.Options{})
		r := newRig(t, st, Config{}, noop())
		key := r.run(acc, planOf(t, chain(2), noop()), nil)
		r.pull() // what runs is told to stop, and has not answered
		cancel := request(key, machine.Input{Kind: machine.InCancel, Text: "enough"})
		reply := r.asked(cancel)
		r.handle(cancel)
		if stored {
			r.settle()
			if err := reply().err; err != nil {
				t.Fatal(err)
			}
		}
		r.c.watch = &panicker{left: 1}
		r.settle(request(key, machine.Input{Kind: machine.InSignal, Name: "go"}))
		if !stored {
			wantCode(t, reply().err, fault.Quarantined)
		}
		r.c.watch = nil
		r.consistent(key)
		if r.head(key).Ended != 0 { // it had nothing left to end
			r.wantStatus(key, "cancelled")
			continue
		}
		r = r.reopen(st.Crash(0))
		release := &input{kind: inRelease, key: key, reply: make(chan answer, 1)}
		r.settle(release)
		if err := r.answer(release).err; err != nil {
			t.Fatal(err)
		}
		r.work()
		want := "completed"
		if stored {
			want = "cancelled"
		}
		r.wantStatus(key, want)
		r.consistent(key)
	}
}

// Who asks to release a run before its mark is stored is not told that it is not
// quarantined.
func TestReleaseBeforeTheMark(t *testing.T) {
	st := memory.New(memory.Options{})
	r := newRig(t, st, Config{}, noop())
	key := r.run(acc, planOf(t, chain(2), noop()), nil)
	r.pull()
	r.c.watch = &panicker{left: 1}
	r.handle(request(key, machine.Input{Kind: machine.InSignal, Name: "go"}))
	r.c.watch = nil
	release := &input{kind: inRelease, key: key, reply: make(chan answer, 1)}
	reply := r.asked(release)
	r.settle(release)
	wantCode(t, reply().err, fault.ServiceUnavailable)
	again := &input{kind: inRelease, key: key, reply: make(chan answer, 1)}
	reply = r.asked(again)
	r.settle(again)
	if err := reply().err; err != nil {
		t.Error(err)
	}
	r.work()
	r.wantStatus(key, "completed")
}

// Whoever releases a run is told of success when its head says so in the store, and
// only then, also when the batch of the release is lost: no mark that was taken back
// comes again. A run that has ended, or that only waits, records no event with it.
func TestReleaseInALostBatch(t *testing.T) {
	for name, recipe := range map[string]string{
		"ended":   chain(1),
		"waiting": "name: w\nsteps:\n  - {id: w, wait: {signal: go}}\n",
	} {
		for _, outcome := range []memory.Outcome{memory.OK, memory.Refused, memory.ReplyLost} {
			st, next := failing()
			r := newRig(t, st, Config{}, noop())
			key := r.run(acc, planOf(t, recipe, noop()), nil)
			if name == "ended" {
				r.work()
			}
			r = r.reopen(st.Crash(0))
			if l := r.c.residency.runs[key]; l != nil {
				r.c.residency.drop(l)
			}
			r.c.recovery.quarantine(r.head(key), store.ImportedReason)
			r.settle()
			if r.head(key).Quarantine == "" {
				t.Fatal("the run is not quarantined")
			}
			release := func() error {
				in := &input{kind: inRelease, key: key, reply: make(chan answer, 1)}
				reply := r.asked(in)
				r.settle(in)
				r.pass(5_000_000)
				return reply().err
			}
			*next = []memory.Outcome{outcome}
			err := release()
			if why := r.head(key).Quarantine; (err == nil) != (outcome != memory.Refused) || (err == nil) != (why == "") {
				t.Errorf("%s, outcome %d: the release is answered %v, and the head says %q", name, outcome, err, why)
			}
			if err != nil {
				if err := release(); err != nil {
					t.Errorf("%s, outcome %d: released again: %v", name, outcome, err)
				}
			}
			r = r.reopen(st.Crash(0))
			if name == "waiting" {
				r.settle(request(key, machine.Input{Kind: machine.InSignal, Name: "go"}))
			}
			r.wantStatus(key, "completed")
			if why := r.head(key).Quarantine; why != "" {
				t.Errorf("%s, outcome %d: after a restart it is quarantined: %s", name, outcome, why)
			}
			r.consistent(key)
		}
	}
}

// An engine that was replaced, and ends in order before it has met the fence, does not
// note a clean end for the one that took over: the death of that one would not be seen.
func TestReplacedEngineNotesNothing(t *testing.T) {
	st := memory.New(memory.Options{})
	old := newRig(t, st, Config{}, noop())
	next := newRig(t, st, Config{}, noop())
	old.c.recovery.history.Running = false
	if err := old.c.recovery.saveHistory(); fault.CodeOf(err) != fault.StaleEpoch {
		t.Errorf("the replaced engine's note: %v, want STALE_EPOCH", err)
	}
	last := next.reopen(st.Crash(0))
	if n := len(last.c.recovery.history.Crashes); n < 1 {
		t.Errorf("%d crashes are known, want that of the engine that took over", n)
	}
}
