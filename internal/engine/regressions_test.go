// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// Regression tests for what the simulator has found, each reduced to the smallest case.

// failingStore returns a store and the outcomes of its next commits.
func failingStore() (*memory.Store, *[]memory.Outcome) {
	next := new([]memory.Outcome)
	return memory.New(memory.Options{OnCommit: func(int, []store.Transition) memory.Outcome {
		if len(*next) == 0 {
			return memory.OK
		}
		out := (*next)[0]
		*next = (*next)[1:]
		return out
	}}), next
}

// After a restart whose first commit fails, the attempts of the crashed process are
// still lost: none is handed out again under its number (I3), and a step that may be
// attempted once is not attempted twice.
func TestLostAttemptsStayLost(t *testing.T) {
	for _, outcome := range []memory.Outcome{memory.Refused, memory.ReplyLost} {
		st, next := failingStore()
		once := noop()
		once.Delivery = action.AtMostOnce
		p := planOf(t, chain(1), once)
		h := newHarness(t, st, Config{}, once)
		run := h.run(acc, p, nil)
		h.takeTask()
		h.now += 120_000_000
		restarted := h.reopen(st.Crash(0))
		*next = []memory.Outcome{outcome}
		restarted.runUntilIdle()
		restarted.advanceClock(5_000_000)
		if len(restarted.tasks) > 0 {
			t.Errorf("outcome %d: an attempt that may be made once was handed out again: %+v", outcome, restarted.tasks[0].id)
		}
		restarted.wantStatus(run, "failed")
		if code := restarted.head(run).Code; code != fault.Interrupted {
			t.Errorf("outcome %d: the run failed with %s", outcome, code)
		}
	}
}

// A report that had no effect because of a cancel is handled after all if the batch of
// the cancel is lost: its attempt is not repeated.
func TestReportOutlivesALostCancel(t *testing.T) {
	st, next := failingStore()
	h := newHarness(t, st, Config{}, noop())
	run := h.run(acc, planOf(t, chain(1), noop()), nil)
	task := h.takeTask()
	cancel := request(run, machine.Input{Kind: machine.InCancel})
	h.handle(cancel)
	h.handle(success(task, `{"ok":true}`))
	*next = []memory.Outcome{memory.Refused}
	h.runUntilIdle()
	h.advanceClock(5_000_000)
	if h.answer(cancel).err == nil {
		t.Error("a cancel that was lost is acknowledged")
	}
	if len(h.tasks) > 0 {
		t.Errorf("the attempt is repeated: %+v", h.tasks[0].id)
	}
	h.wantStatus(run, "completed")
}

// A worker is told to stop even if the commit of the cancel was written and its reply
// lost (F16).
func TestF16_LostReplyOfACancel(t *testing.T) {
	st, next := failingStore()
	h := newHarness(t, st, Config{}, noop())
	run := h.run(acc, planOf(t, chain(1), noop()), nil)
	*next = []memory.Outcome{memory.ReplyLost}
	cancel := request(run, machine.Input{Kind: machine.InCancel})
	h.runUntilIdle(cancel)
	h.advanceClock(5_000_000)
	h.collectEffects()
	if err := h.answer(cancel).err; err != nil {
		t.Errorf("the cancel is durable, but returns %v", err)
	}
	if len(h.tasks) > 0 {
		t.Error("the worker was not told to stop")
	}
	h.wantStatus(run, "cancelled")
}

// A suspended run that a refused request loads into memory wakes when it is due.
func TestRefusedRequestKeepsTheTimer(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{SuspendAfter: time.Minute}, noop())
	run := h.run(acc, planOf(t, "name: w\nsteps:\n  - {id: w, wait: {duration: 20h}}\n"), nil)
	h.advanceClock(2 * hour)
	if len(h.c.residency.runs) != 0 {
		t.Fatal("the run was not suspended")
	}
	retry := request(run, machine.Input{Kind: machine.InRetry})
	h.runUntilIdle(retry)
	if h.answer(retry).err == nil || len(h.c.residency.runs) != 1 {
		t.Fatalf("the retry returns %v, and %d runs are in memory", h.answer(retry).err, len(h.c.residency.runs))
	}
	h.advanceClock(19 * hour)
	h.wantStatus(run, "completed")
}

// panicOnce makes one turn of the machine panic.
type panicOnce struct{ left int }

func (p *panicOnce) Before(store.Key, *machine.Run, *machine.Input) {
	if p.left--; p.left == 0 {
		panic("on purpose")
	}
}
func (*panicOnce) After(store.Key, *machine.Run, *machine.Input, *machine.Turn) {}

// A quarantined run stays quarantined: before its mark is durable, and when the mark's
// batch or its reply is lost (I16).
func TestI16_QuarantinedBeforeTheMark(t *testing.T) {
	for _, outcome := range []memory.Outcome{memory.OK, memory.Refused, memory.ReplyLost} {
		st, next := failingStore()
		h := newHarness(t, st, Config{}, noop())
		run, other := h.run(acc, planOf(t, chain(2), noop()), nil), h.run(acc, planOf(t, chain(1), noop()), nil)
		task, healthy := h.takeTask(), h.takeTask()
		h.c.observer = &panicOnce{left: 1}
		h.handle(success(task, `1`))
		signal := request(run, machine.Input{Kind: machine.InSignal, Name: "go"})
		h.handle(signal)
		if code := fault.CodeOf(h.answer(signal).err); code != fault.Quarantined {
			t.Errorf("outcome %d: before its mark is durable the run accepts a signal: %q", outcome, code)
		}
		*next = []memory.Outcome{outcome}
		h.runUntilIdle()
		h.advanceClock(5_000_000)
		if h.head(run).Quarantine == "" {
			t.Errorf("outcome %d: the run is not quarantined", outcome)
		}
		h.runUntilIdle(success(healthy, `1`))
		h.wantStatus(other, "completed")
		release := &input{kind: inRelease, key: run, reply: make(chan answer, 1)}
		h.runUntilIdle(release)
		if err := h.answer(release).err; err != nil {
			t.Errorf("outcome %d: release: %v", outcome, err)
		}
		h.finishTasks()
		h.wantStatus(run, "completed")
	}
}

// A caller that watches a run, or waits for its end, sees a commit that was written but
// whose reply was lost, even if the run does nothing more (I14, F16).
func TestF16_WatchersSeeCommitsWithLostReplies(t *testing.T) {
	ctx := context.Background()
	st, next := failingStore()
	cfg := Config{Store: st, Actions: catalogue.New(noop()), Logger: testLog(t)}
	s, err := OpenStage(ctx, cfg, nil, testEpoch)
	if err != nil {
		t.Fatal(err)
	}
	now := int64(testEpoch)
	pump := func() {
		for {
			batch, ok := s.EncodeBatch()
			if !ok {
				return
			}
			if len(batch) > 0 {
				s.Committed(st.Commit(ctx, batch))
			} else {
				s.Committed(nil, nil)
			}
		}
	}
	m, err := s.Start(&StartRequest{Account: acc, Plan: planOf(t, chain(1), noop())})
	if err != nil {
		t.Fatal(err)
	}
	s.Handle(now, m)
	pump()
	events := 0
	r, err := s.Watch(m.Key(), 0, func(feed.Event) { events++ })
	if err != nil {
		t.Fatal(err)
	}
	if ended, err := r.Poll(); ended || err != nil {
		t.Fatal(ended, err)
	}
	seen := events
	*next = []memory.Outcome{memory.ReplyLost}
	effects := s.Effects()
	s.Handle(now, s.Report(&effects[0], machine.Input{Kind: machine.InResult, Outcome: machine.Success, Output: []byte("1")}, false))
	pump()
	if s.Stalled() == nil {
		t.Fatal("the lost reply was not noticed")
	}
	now += 2_000_000
	s.Handle(now)
	pump()
	if ended, err := r.Poll(); !ended || err != nil || events == seen {
		t.Errorf("after the lost reply the reader reports ended %v, %v, and saw %d events, before %d", ended, err, events, seen)
	}
}

// An engine that was replaced while its commits failed notices before it acts on what
// it has read: those attempts belong to the new owner (F35).
func TestF35_ReplacedWhileStalled(t *testing.T) {
	st, next := failingStore()
	old := newHarness(t, st, Config{}, noop())
	run := old.run(acc, planOf(t, chain(3), noop()), nil)
	old.runUntilIdle(success(old.takeTask(), `1`))
	old.handle(success(old.takeTask(), `1`))
	*next = []memory.Outcome{memory.Refused}
	old.commit()
	successor := old.reopen(st)
	successor.runUntilIdle()
	if len(successor.tasks) != 1 {
		t.Fatalf("the new owner has handed out %d attempts, want 1", len(successor.tasks))
	}
	old.now += 5_000_000
	old.runUntilIdle()
	if fault.CodeOf(old.c.recovery.dead) != fault.StaleEpoch || len(old.tasks) > 0 {
		t.Errorf("the old owner continues: %v, %d attempts handed out", old.c.recovery.dead, len(old.tasks))
	}
	successor.finishTasks()
	successor.wantStatus(run, "completed")
}

// A suspect run is not loaded by a request before its turn, and continues when it has
// been loaded (I6, I16).
func TestSuspectsAreNotLoadedByRequests(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	run := h.run(acc, planOf(t, chain(1), noop()), nil)
	for range 2 {
		h.now += 1_000_000
		h = h.reopen(h.st.(*memory.Store).Crash(0))
	}
	if len(h.c.recovery.suspects) != 1 {
		t.Fatalf("%d suspects after two deaths", len(h.c.recovery.suspects))
	}
	cancel := request(run, machine.Input{Kind: machine.InCancel})
	h.handle(cancel)
	if code := fault.CodeOf(h.answer(cancel).err); code != fault.ServiceUnavailable {
		t.Errorf("the cancel returns %q", code)
	}
	h.runUntilIdle()
	h.advanceClock(5_000_000)
	h.finishTasks()
	h.wantStatus(run, "completed")
}

// A suspect that is due does not wait for progress that need not be committed yet: until
// then the engine would be woken for it again and again (I6).
func TestI6_SuspectsDoNotWaitForProgress(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
	h.run(acc, planOf(t, chain(1), noop()), nil)
	for range 2 {
		h.now += 1_000_000
		h = h.reopen(h.st.(*memory.Store).Crash(0))
	}
	h.runUntilIdle() // loads the suspect
	run := h.run(acc, planOf(t, chain(1), noop()), nil)
	ef := h.tasks[slices.IndexFunc(h.tasks, func(ef effect) bool { return ef.id.Key == run })]
	h.now = h.c.recovery.nextSuspectAt
	progress := &input{kind: inRun, key: run, m: machine.Input{Kind: machine.InProgress, Ref: ef.id.Ref, Fence: ef.id.Fence,
		Progress: &machine.Progress{Kind: machine.ProgressFraction, Fraction: 0.5}}}
	h.runUntilIdle(progress)
	if at := h.c.wakeup(); at != 0 && at <= h.now {
		t.Errorf("the engine is at rest, and asks to be woken %d µs ago", h.now-at)
	}
	if h.c.recovery.suspectMarked {
		t.Error("the last suspect is still marked")
	}
}

// failingNotes is a store whose disk fails to sync a note, after it has written `good`
// of them.
type failingNotes struct {
	*memory.Store
	good int
}

func (s *failingNotes) SetNote(ctx context.Context, epoch uint64, name string, value []byte) error {
	if s.good == 0 {
		return fault.New(fault.StoreFailed, "the disk refused to sync")
	}
	s.good--
	return s.Store.SetNote(ctx, epoch, name, value)
}

// An engine that cannot mark a suspect because the disk has failed ends, even if it has
// nothing to commit: otherwise the suspects would wait for ever (I6).
func TestI6_SuspectsOfAFailedDisk(t *testing.T) {
	for name, good := range map[string]int{"marked": 1, "unmarked": 2} {
		h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
		h.run(acc, planOf(t, chain(1), noop()), nil)
		h.now += 1_000_000
		h = h.reopen(h.st.(*memory.Store).Crash(0))
		h.now += 1_000_000
		h = h.reopen(&failingNotes{h.st.(*memory.Store).Crash(0), good}) // the first note is written at the start
		h.runUntilIdle()
		h.advanceClock(5_000_000)
		if fault.CodeOf(h.c.recovery.dead) != fault.StoreFailed {
			t.Errorf("the last suspect is not %s, and the engine continues: %v", name, h.c.recovery.dead)
		}
	}
}

// The slot of an attempt whose worker is lost is free again (I22).
func TestI22_LostWorkerFreesItsSlot(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{Concurrency: 1}, noop())
	run := h.run(acc, planOf(t, fan(3), noop()), nil)
	lost := h.takeTask()
	h.runUntilIdle(&input{kind: inRun, key: run, m: machine.Input{Kind: machine.InWorkerLost, Ref: lost.id.Ref, Fence: lost.id.Fence}})
	h.finishTasks()
	h.wantStatus(run, "completed")
	if orphans, overdue := h.c.attempts.Away(); h.c.attempts.Arbiter.InUse() != 0 || orphans+overdue != 0 {
		t.Errorf("at the end %d slots are taken, %d attempts are orphans, %d overdue", h.c.attempts.Arbiter.InUse(), orphans, overdue)
	}
}

// Sync fails if the batch that it waited for was lost with earlier inputs.
func TestSyncOfALostBatch(t *testing.T) {
	for outcome, durable := range map[memory.Outcome]bool{memory.Refused: false, memory.ReplyLost: true} {
		st, next := failingStore()
		h := newHarness(t, st, Config{}, noop())
		h.run(acc, planOf(t, chain(1), noop()), nil)
		barrier := &input{kind: inBarrier, reply: make(chan answer, 1)}
		*next = []memory.Outcome{outcome}
		h.runUntilIdle(success(h.takeTask(), `1`), barrier)
		reply := h.replyOf(barrier)
		h.advanceClock(5_000_000)
		if err := reply().err; (err == nil) != durable {
			t.Errorf("outcome %d: Sync returns %v", outcome, err)
		}
	}
}

// An attempt that became an orphan in a reload is told to stop if its run is
// quarantined before it has found the attempt again: nothing else would tell it (I22).
func TestI22_QuarantinedAfterAReload(t *testing.T) {
	st, next := failingStore()
	h := newHarness(t, st, Config{}, noop())
	run := h.run(acc, planOf(t, fan(2), noop()), nil)
	first := h.takeTask()
	if len(h.tasks) != 1 {
		t.Fatalf("%d attempts are handed out, want 2", len(h.tasks)+1)
	}
	*next = []memory.Outcome{memory.Refused}
	h.handle(success(first, `1`))
	h.c.observer = &panicOnce{left: 1}
	h.runUntilIdle()
	h.advanceClock(5_000_000)
	if h.head(run).Quarantine == "" {
		t.Fatal("the run is not quarantined")
	}
	if attempts, slots := (&Stage{e: &Engine{core: h.c}}).Held(); len(h.tasks) != 0 || attempts != 0 || slots != 0 {
		t.Errorf("%d attempts continue, %d are in flight, and %d slots are taken", len(h.tasks), attempts, slots)
	}
}
