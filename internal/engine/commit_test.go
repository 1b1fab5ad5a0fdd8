// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A refusingStore refuses chosen transitions, as a store does whose journal another
// engine has written to.
type refusingStore struct {
	store.Store
	refuse func(*store.Transition) bool // nil = none
}

func (s *refusingStore) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	verdicts := make([]store.Verdict, len(batch))
	var rest []store.Transition
	var at []int
	for i := range batch {
		if s.refuse != nil && s.refuse(&batch[i]) {
			verdicts[i].Err = fault.New(fault.Conflict, "refused by the test")
			continue
		}
		rest, at = append(rest, batch[i]), append(at, i)
	}
	got, err := s.Store.Commit(ctx, rest)
	for i := range got {
		verdicts[at[i]] = got[i]
	}
	return verdicts, err
}

// published returns how many parts of a run's journal were published.
func (h *harness) published(key store.Key) (n int) {
	for i := range h.frames {
		if h.frames[i].Key == key {
			n++
		}
	}
	return n
}

// A transition that the store refuses has no effect: its events are not published, its
// commands are not carried out, and its run continues from what is stored (I1).
func TestI1_RefusedTransitionIsNotPublished(t *testing.T) {
	st := &refusingStore{Store: memory.New(memory.Options{})}
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, chain(2), noop())
	key, other := h.run(acc, p, nil), h.run(acc, p, nil)
	task, healthy := h.takeTask(), h.takeTask()
	h.frames = nil
	refused := 0
	st.refuse = func(tr *store.Transition) bool {
		if tr.Key != key || refused > 0 || !bytes.Contains(tr.Frames, []byte("mark")) {
			return false
		}
		refused++
		return true
	}
	h.handle(success(task, `{"ok":"mark"}`), success(healthy, `{"ok":"mark"}`))
	h.commit()
	if refused != 1 {
		t.Fatalf("%d transitions were refused, want 1", refused)
	}
	if n := h.published(key); n != 0 {
		t.Errorf("a refused transition was published %d times", n)
	}
	if n := h.published(other); n != 1 {
		t.Errorf("the transition beside it was published %d times", n)
	}
	for _, ef := range h.tasks {
		if ef.id.Key == key {
			t.Error("an attempt of a refused transition was handed out")
		}
	}
	// The report is handled again by the run as it is stored.
	h.runUntilIdle()
	h.finishTasks()
	h.wantStatus(key, "completed")
	h.wantStatus(other, "completed")
	if n := countPrefix(h.trace(key, p), "node.completed s0"); n != 1 {
		t.Errorf("s0 completed %d times", n)
	}
}

// An attempt whose end the store refuses is in flight as before: its action is not told to
// stop, and it has one slot, which is free when the attempt has ended (I22).
func TestI22_RefusedEndOfAnAttempt(t *testing.T) {
	st := &refusingStore{Store: memory.New(memory.Options{})}
	h := newHarness(t, st, Config{}, noop())
	key := h.run(acc, planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: noop}, timeout: 2s}\n", noop()), nil)
	st.refuse = func(tr *store.Transition) bool { return tr.Key == key }
	held := func(want int) {
		t.Helper()
		if attempts, slots := (&Stage{e: &Engine{core: h.c}}).Held(); len(h.tasks) != want || attempts != want || slots != want {
			t.Errorf("%d actions run, %d attempts are in flight, and %d slots are taken, want %d", len(h.tasks), attempts, slots, want)
		}
	}
	for range 2 {
		h.now += 3_000_000
		h.handle()
		if !h.commit() {
			t.Fatal("the attempt does not end")
		}
		held(1)
	}
	st.refuse = nil
	h.runUntilIdle()
	h.wantStatus(key, "failed")
	held(0)
}

// A start that the store refuses leaves no run: not in memory, where it would accept
// inputs and hold slots, not for watchers, and not in the store.
func TestRefusedStartLeavesNothing(t *testing.T) {
	st := &refusingStore{Store: memory.New(memory.Options{})}
	h := newHarness(t, st, Config{}, noop())
	in := h.startInput(acc, planOf(t, chain(2), noop()), nil)
	st.refuse = func(tr *store.Transition) bool { return tr.Key == in.key }
	h.runUntilIdle(in)
	wantCode(t, h.answer(in).err, fault.Conflict)
	if len(h.c.residency.runs) != 0 {
		t.Errorf("%d runs are in memory", len(h.c.residency.runs))
	}
	if used := h.c.attempts.Arbiter.InUse(); used != 0 {
		t.Errorf("%d slots are held", used)
	}
	if n := h.published(in.key); n != 0 || len(h.tasks) != 0 {
		t.Errorf("the start was published %d times and handed out %d attempts", n, len(h.tasks))
	}
	st.refuse = nil
	cancel := request(in.key, machine.Input{Kind: machine.InCancel})
	h.runUntilIdle(cancel)
	wantCode(t, h.answer(cancel).err, fault.RunNotFound)
	if _, err := st.Head(t.Context(), in.key); fault.CodeOf(err) != fault.RunNotFound {
		t.Errorf("the refused start left a run in the store: %v", err)
	}
}

// Of two starts with one idempotency key, the second gets the run of the first.
// Requests to the run that the second would have created are refused, not acknowledged.
func TestI1_RequestsToARefusedDuplicate(t *testing.T) {
	for _, encoded := range []bool{false, true} {
		h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
		p := planOf(t, chain(1), noop())
		twin := func() *input {
			in := h.startInput(acc, p, nil)
			in.start.idem = &store.Idempotency{Key: "k", BodyHash: "a", Until: h.now + hour}
			return in
		}
		first, second := twin(), twin()
		h.runUntilIdle(first)
		h.handle(second)
		cancel := request(second.key, machine.Input{Kind: machine.InCancel})
		if !encoded { // in the batch of the start
			h.handle(cancel)
		}
		b := h.c.pipeline.encodeBatch()
		if encoded { // while that batch is being written
			h.handle(cancel)
		}
		verdicts, err := h.st.Commit(t.Context(), b.transitions)
		h.c.pipeline.committed(verdicts, err)
		h.c.pipeline.releaseCommitted()
		h.collectEffects()
		h.runUntilIdle()
		if out := h.answer(second); out.err != nil || !out.existing || out.run != first.key.Run {
			t.Errorf("encoded %v: the second start is answered %+v", encoded, out)
		}
		wantCode(t, h.answer(cancel).err, fault.RunNotFound)
		h.finishTasks()
		h.wantStatus(first.key, "completed")
	}
}

// A command to hand out an attempt that has ended before the command became durable
// does not block the step's newer attempt.
func TestAnOldDispatchDoesNotBlockTheNewOne(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
	in := h.startInput(acc, planOf(t, chain(1), noop()), nil)
	h.handle(in)
	b := h.c.pipeline.encodeBatch()
	if b == nil {
		t.Fatal("the start needs no commit")
	}
	// While the start is being written the run is cancelled and tried again: its
	// step has another attempt, of another generation.
	cancel := request(in.key, machine.Input{Kind: machine.InCancel})
	retry := request(in.key, machine.Input{Kind: machine.InRetry})
	h.handle(cancel, retry)
	if err := h.answer(retry).err; err != nil {
		t.Fatal(err)
	}
	verdicts, err := h.st.Commit(t.Context(), b.transitions)
	h.c.pipeline.committed(verdicts, err)
	h.c.pipeline.releaseCommitted()
	h.collectEffects()
	if len(h.tasks) != 0 {
		t.Fatalf("an attempt that has ended was handed out: %+v", h.tasks[0].id)
	}
	h.runUntilIdle()
	if len(h.tasks) != 1 || h.tasks[0].id.Fence.Gen != 2 {
		t.Fatalf("%d attempts are handed out, want the one of generation 2", len(h.tasks))
	}
	h.finishTasks()
	h.wantStatus(in.key, "completed")
}
