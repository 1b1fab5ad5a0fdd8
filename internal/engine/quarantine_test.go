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

// breakSnapshot damages the state of a run so that its snapshot panics: it adds a scope
// that does not exist.
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

// checkHead fails the test if a head does not agree with the run's journal.
func (h *harness) checkHead(key store.Key) {
	h.t.Helper()
	saved, err := h.st.Load(context.Background(), key)
	if err != nil {
		h.t.Fatal(err)
	}
	prog, err := h.c.programs.Load(context.Background(), h.st, saved.Head.PlanHash)
	if err != nil {
		h.t.Fatal(err)
	}
	run, err := prog.Fold(context.Background(), h.st, saved, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	if head := saved.Head; head.Status != run.Status().String() || (head.Ended != 0) != run.Status().Terminal() {
		h.t.Errorf("the head has status %s (ended %d), the journal %s", head.Status, head.Ended, run.Status())
	}
}

// A run whose snapshot panics is quarantined, and its mark is stored: it stays
// quarantined after a restart. Its head describes what is stored, not the transition
// that was given up with the snapshot (I16).
func TestI16_MarkOfAFailedSnapshot(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	key := h.run(acc, planOf(t, "name: w\nsteps:\n  - {id: a, action: {name: noop}}\n  - {id: w, wait: {signal: go}}\n", noop()), nil)
	task := h.takeTask()
	l := h.c.residency.runs[key]
	l.compact = true
	h.handle(success(task, `1`))
	breakSnapshot(t, l.run)
	h.runUntilIdle()
	if head := h.head(key); !strings.Contains(head.Quarantine, "panicked") {
		t.Errorf("the run's quarantine is %q", head.Quarantine)
	}
	h.checkHead(key)
	h = h.reopen(st.Crash(0))
	h.runUntilIdle()
	if len(h.tasks) != 0 || h.c.residency.runs[key] != nil {
		t.Error("after a restart the run continues although it was quarantined")
	}
	release := &input{kind: inRelease, key: key, reply: make(chan answer, 1)}
	h.runUntilIdle(release)
	if err := h.answer(release).err; err != nil {
		t.Fatal(err)
	}
	h.finishTasks()
	h.runUntilIdle(request(key, machine.Input{Kind: machine.InSignal, Name: "go"}))
	h.wantStatus(key, "completed")
}

// If a run panics while its last transition is being committed, and the store refuses
// that transition, the mark has the head that is stored.
func TestI16_MarkAfterARefusedTransition(t *testing.T) {
	st := &refusingStore{Store: memory.New(memory.Options{})}
	h := newHarness(t, st, Config{}, noop())
	key := h.run(acc, planOf(t, chain(1), noop()), nil)
	task := h.takeTask()
	h.handle(success(task, `1`))
	b := h.c.pipeline.encodeBatch()
	if b == nil || len(b.transitions) != 1 || b.transitions[0].Head == nil || b.transitions[0].Head.Status != "completed" {
		t.Fatalf("the end of the run is not in the batch: %+v", b)
	}
	h.c.observer = &panicOnce{left: 1}
	h.handle(request(key, machine.Input{Kind: machine.InSignal, Name: "go"}))
	st.refuse = func(*store.Transition) bool { return true }
	verdicts, err := st.Commit(context.Background(), b.transitions)
	h.c.pipeline.committed(verdicts, err)
	st.refuse = nil
	h.runUntilIdle()
	if head := h.head(key); head.Quarantine == "" {
		t.Error("the run is not quarantined")
	}
	h.checkHead(key)
}

// The same with the start of a run: there is nothing to mark, and the run is forgotten.
func TestI16_NoMarkOfARefusedStart(t *testing.T) {
	st := &refusingStore{Store: memory.New(memory.Options{})}
	h := newHarness(t, st, Config{}, noop())
	in := h.startInput(acc, planOf(t, chain(1), noop()), nil)
	h.handle(in)
	b := h.c.pipeline.encodeBatch()
	h.c.observer = &panicOnce{left: 1}
	h.handle(request(in.key, machine.Input{Kind: machine.InSignal, Name: "go"}))
	st.refuse = func(*store.Transition) bool { return true }
	verdicts, err := st.Commit(context.Background(), b.transitions)
	h.c.pipeline.committed(verdicts, err)
	st.refuse = nil
	h.runUntilIdle()
	if len(h.c.recovery.quarantined) != 0 {
		t.Errorf("a run that does not exist is quarantined: %v", h.c.recovery.quarantined)
	}
	if _, err := h.st.Head(context.Background(), in.key); fault.CodeOf(err) != fault.RunNotFound {
		t.Errorf("the refused start left %v", err)
	}
}

// An accepted cancel survives a quarantine that follows it: after its release the run
// ends cancelled (I8). A cancel that was not stored yet is refused.
func TestI8_CancelAndMark(t *testing.T) {
	for _, stored := range []bool{true, false} {
		st := memory.New(memory.Options{})
		h := newHarness(t, st, Config{}, noop())
		key := h.run(acc, planOf(t, chain(2), noop()), nil)
		h.takeTask() // the attempt is told to stop, and has not reported
		cancel := request(key, machine.Input{Kind: machine.InCancel, Text: "enough"})
		reply := h.replyOf(cancel)
		h.handle(cancel)
		if stored {
			h.runUntilIdle()
			if err := reply().err; err != nil {
				t.Fatal(err)
			}
		}
		h.c.observer = &panicOnce{left: 1}
		h.runUntilIdle(request(key, machine.Input{Kind: machine.InSignal, Name: "go"}))
		if !stored {
			wantCode(t, reply().err, fault.Quarantined)
		}
		h.c.observer = nil
		h.checkHead(key)
		if h.head(key).Ended != 0 { // nothing was left to cancel
			h.wantStatus(key, "cancelled")
			continue
		}
		h = h.reopen(st.Crash(0))
		release := &input{kind: inRelease, key: key, reply: make(chan answer, 1)}
		h.runUntilIdle(release)
		if err := h.answer(release).err; err != nil {
			t.Fatal(err)
		}
		h.finishTasks()
		want := "completed"
		if stored {
			want = "cancelled"
		}
		h.wantStatus(key, want)
		h.checkHead(key)
	}
}

// A release of a run whose mark is not stored yet is not refused with "not
// quarantined".
func TestReleaseBeforeTheMark(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	key := h.run(acc, planOf(t, chain(2), noop()), nil)
	h.takeTask()
	h.c.observer = &panicOnce{left: 1}
	h.handle(request(key, machine.Input{Kind: machine.InSignal, Name: "go"}))
	h.c.observer = nil
	release := &input{kind: inRelease, key: key, reply: make(chan answer, 1)}
	reply := h.replyOf(release)
	h.runUntilIdle(release)
	wantCode(t, reply().err, fault.ServiceUnavailable)
	again := &input{kind: inRelease, key: key, reply: make(chan answer, 1)}
	reply = h.replyOf(again)
	h.runUntilIdle(again)
	if err := reply().err; err != nil {
		t.Error(err)
	}
	h.finishTasks()
	h.wantStatus(key, "completed")
}

// A run that is quarantined while its start is being committed is not one that does not
// exist.
func TestReleaseBeforeTheStart(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
	start := h.startInput(acc, planOf(t, chain(2), noop()), nil)
	started := h.replyOf(start)
	h.handle(start)
	b := h.c.pipeline.encodeBatch()
	h.c.observer = &panicOnce{left: 1}
	h.handle(request(start.key, machine.Input{Kind: machine.InSignal, Name: "go"}))
	h.c.observer = nil
	release := func() func() answer {
		in := &input{kind: inRelease, key: start.key, reply: make(chan answer, 1)}
		reply := h.replyOf(in)
		h.handle(in)
		return reply
	}
	early := release()
	verdicts, err := h.st.Commit(context.Background(), b.transitions)
	h.c.pipeline.committed(verdicts, err)
	h.c.pipeline.releaseCommitted()
	h.collectEffects()
	h.runUntilIdle()
	if err := started().err; err != nil {
		t.Fatal(err)
	}
	wantCode(t, early().err, fault.ServiceUnavailable)
	later := release()
	h.runUntilIdle()
	if err := later().err; err != nil {
		t.Error(err)
	}
	h.finishTasks()
	h.wantStatus(start.key, "completed")
}

// A release succeeds when the stored head says so, and only then, even if the batch of
// the release is lost: a mark that was removed does not come back. A run that has
// ended, or that only waits, records no event with its release.
func TestReleaseInALostBatch(t *testing.T) {
	for name, recipe := range map[string]string{
		"ended":   chain(1),
		"waiting": "name: w\nsteps:\n  - {id: w, wait: {signal: go}}\n",
	} {
		for _, outcome := range []memory.Outcome{memory.OK, memory.Refused, memory.ReplyLost} {
			st, next := failingStore()
			h := newHarness(t, st, Config{}, noop())
			key := h.run(acc, planOf(t, recipe, noop()), nil)
			if name == "ended" {
				h.finishTasks()
			}
			h = h.reopen(st.Crash(0))
			if l := h.c.residency.runs[key]; l != nil {
				h.c.residency.drop(l)
			}
			h.c.recovery.quarantine(h.head(key), store.ImportedReason)
			h.runUntilIdle()
			if h.head(key).Quarantine == "" {
				t.Fatal("the run is not quarantined")
			}
			release := func() error {
				in := &input{kind: inRelease, key: key, reply: make(chan answer, 1)}
				reply := h.replyOf(in)
				h.runUntilIdle(in)
				h.advanceClock(5_000_000)
				return reply().err
			}
			*next = []memory.Outcome{outcome}
			err := release()
			if reason := h.head(key).Quarantine; (err == nil) != (outcome != memory.Refused) || (err == nil) != (reason == "") {
				t.Errorf("%s, outcome %d: the release returns %v, and the head has %q", name, outcome, err, reason)
			}
			if err != nil {
				if err := release(); err != nil {
					t.Errorf("%s, outcome %d: released again: %v", name, outcome, err)
				}
			}
			h = h.reopen(st.Crash(0))
			if name == "waiting" {
				h.runUntilIdle(request(key, machine.Input{Kind: machine.InSignal, Name: "go"}))
			}
			h.wantStatus(key, "completed")
			if reason := h.head(key).Quarantine; reason != "" {
				t.Errorf("%s, outcome %d: after a restart it is quarantined: %s", name, outcome, reason)
			}
			h.checkHead(key)
		}
	}
}

// An engine that was replaced, and stops before it notices, does not record a clean
// stop for its successor: otherwise a crash of the successor would go unnoticed.
func TestReplacedEngineSavesNoHistory(t *testing.T) {
	st := memory.New(memory.Options{})
	old := newHarness(t, st, Config{}, noop())
	next := newHarness(t, st, Config{}, noop())
	old.c.recovery.history.Running = false
	if err := old.c.recovery.saveHistory(); fault.CodeOf(err) != fault.StaleEpoch {
		t.Errorf("the replaced engine saves its history: %v, want STALE_EPOCH", err)
	}
	last := next.reopen(st.Crash(0))
	if n := len(last.c.recovery.history.Crashes); n < 1 {
		t.Errorf("%d crashes are recorded, want that of the engine that took over", n)
	}
}
