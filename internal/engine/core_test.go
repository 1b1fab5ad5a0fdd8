// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// Nothing leaves before its transition is durable: no answer, task or frame.
func TestI1_NothingLeavesBeforeTheCommit(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, chain(2), noop())
	in := h.startInput(acc, p, nil)
	reply := h.replyOf(in)
	h.handle(in)
	b := h.c.pipeline.encodeBatch()
	if b == nil {
		t.Fatal("the start needs no commit")
	}
	// While the commit is running the run's state gets ahead of the disk.
	cancel := request(in.key, machine.Input{Kind: machine.InCancel, Text: "why not"})
	h.handle(cancel)
	if len(in.reply) != 0 || len(cancel.reply) != 0 || len(h.c.effects) != 0 || len(h.c.frames) != 0 {
		t.Fatalf("before the commit: %d and %d answers, %d effects, %d frames left", len(in.reply), len(cancel.reply), len(h.c.effects), len(h.c.frames))
	}
	if h.c.pipeline.encodeBatch() != nil {
		t.Fatal("a second batch was encoded while the first is being committed")
	}
	verdicts, err := st.Commit(context.Background(), b.transitions)
	h.c.pipeline.committed(verdicts, err)
	h.c.pipeline.releaseCommitted()
	if out := reply(); out.err != nil {
		t.Error(out.err)
	}
	if len(cancel.reply) != 0 {
		t.Error("the cancellation was answered with the batch before its own")
	}
	if len(h.c.frames) != 1 {
		t.Errorf("%d frames left, want that of the first batch", len(h.c.frames))
	}
	cancelled := h.replyOf(cancel)
	h.runUntilIdle()
	if out := cancelled(); out.err != nil {
		t.Error(out.err)
	}
	h.wantStatus(in.key, "cancelled")
}

// completed(i), queued(i+1) and started(i+1) are one transition and one commit.
func TestChainCostsOneCommitAStep(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	key := h.run(acc, planOf(t, chain(10), noop()), nil)
	before, _ := st.Stats(context.Background())
	h.finishTasks()
	after, _ := st.Stats(context.Background())
	if n := after.Commits - before.Commits; n != 10 {
		t.Errorf("10 steps took %d commits", n)
	}
	h.wantStatus(key, "completed")
}

// A hundred transforms share the commit of the step that caused them.
func TestComputedStepsNeedNoCommit(t *testing.T) {
	var b strings.Builder
	b.WriteString("name: x\nsteps:\n  - {id: t0, transform: {expression: '1'}}\n")
	for i := 1; i < 100; i++ {
		b.WriteString("  - {id: t" + itoa(i) + ", transform: {expression: 'steps.t" + itoa(i-1) + ".output + 1'}}\n")
	}
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{})
	key := h.run(acc, planOf(t, b.String()), nil)
	h.wantStatus(key, "completed")
	if s, _ := st.Stats(context.Background()); s.Commits != 1 {
		t.Errorf("the run took %d commits, want 1", s.Commits)
	}
}

func itoa(i int) string {
	if i < 10 {
		return string(rune('0' + i))
	}
	return itoa(i/10) + string(rune('0'+i%10))
}

func TestF05_DuplicateResult(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, fan(2), noop())
	key := h.run(acc, p, nil)
	a, b := h.takeTask(), h.takeTask()
	h.runUntilIdle(success(a, `1`), success(a, `2`))
	h.runUntilIdle(success(a, `3`))
	if len(h.tasks) != 0 {
		t.Fatal("the join was released by one parent's repeated report")
	}
	h.runUntilIdle(success(b, `4`))
	h.finishTasks()
	h.wantStatus(key, "completed")
	lines := h.trace(key, p)
	if n := countPrefix(lines, "node.completed s0"); n != 1 {
		t.Errorf("step s0 completed %d times", n)
	}
	if n := countPrefix(lines, "node.ignored s0"); n != 1 {
		t.Errorf("%d node.ignored events, want 1 for the first loser", n)
	}
}

// Both parents report in one batch, in either order.
func TestF04_TwoParentsInTheSameInstant(t *testing.T) {
	for _, swap := range []bool{false, true} {
		st := memory.New(memory.Options{})
		h := newHarness(t, st, Config{}, noop())
		p := planOf(t, fan(2), noop())
		key := h.run(acc, p, nil)
		inputs := []*input{success(h.takeTask(), `1`), success(h.takeTask(), `2`)}
		if swap {
			slices.Reverse(inputs)
		}
		h.runUntilIdle(inputs...)
		if len(h.tasks) != 1 {
			t.Fatalf("the join was handed out %d times", len(h.tasks))
		}
		h.finishTasks()
		h.wantStatus(key, "completed")
		if n := countPrefix(h.trace(key, p), "node.queued join"); n != 1 {
			t.Errorf("the join was queued %d times", n)
		}
	}
}

func TestI13_F38_IdempotencyKey(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, chain(1), noop())
	withKey := func(account, key, body string) *input {
		in := h.startInput(account, p, nil)
		in.start.idem = &store.Idempotency{Key: key, BodyHash: body, Until: h.now + hour}
		return in
	}
	first, twin := withKey(acc, "k", "a"), withKey(acc, "k", "a")
	h.runUntilIdle(first, twin)
	if first.out.err != nil || twin.out.err != nil || !twin.out.existing || twin.out.run != first.key.Run {
		t.Errorf("twins in one batch: %+v and %+v", first.out, twin.out)
	}
	later := withKey(acc, "k", "a")
	h.runUntilIdle(later)
	if !later.out.existing || later.out.run != first.key.Run {
		t.Errorf("the same request later: %+v", later.out)
	}
	other := withKey(acc, "k", "b")
	h.runUntilIdle(other)
	wantCode(t, other.out.err, fault.IdempotencyMismatch)
	foreign := withKey("other", "k", "b")
	h.runUntilIdle(foreign)
	if foreign.out.err != nil || foreign.out.existing {
		t.Errorf("another account's key: %+v", foreign.out)
	}
	if len(h.tasks) != 2 {
		t.Errorf("%d tasks were handed out, want one for each of two runs", len(h.tasks))
	}
	if len(h.c.residency.runs) != 2 {
		t.Errorf("%d runs in memory, want 2", len(h.c.residency.runs))
	}
}

// The store wrote the batch and the reply was lost: reloading finds out, nothing is
// repeated and every answer is right.
func TestF16_CommitReplyLost(t *testing.T) {
	p := planOf(t, chain(3), noop())
	want := []string(nil)
	for lost := range 5 {
		st := memory.New(memory.Options{OnCommit: func(n int, _ []store.Transition) memory.Outcome {
			if n == lost {
				return memory.ReplyLost
			}
			return memory.OK
		}})
		h := newHarness(t, st, Config{}, noop())
		in := h.startInput(acc, p, nil)
		reply := h.replyOf(in)
		h.runUntilIdle(in)
		h.advanceClock(maxBackoff)
		if out := reply(); out.err != nil || out.run != in.key.Run {
			t.Errorf("commit %d: the start was answered %+v", lost, out)
		}
		for range 5 {
			h.finishTasks()
			h.advanceClock(maxBackoff)
		}
		h.wantStatus(in.key, "completed")
		got := h.trace(in.key, p)
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("commit %d: the journal differs:\n%s", lost, strings.Join(got, "\n"))
		}
		verify(t, st, in.key)
	}
}

// While the disk is full starts are refused with an error. Reports of workers are kept
// and handled when there is space again, without a restart.
func TestF31_DiskFullAndFreed(t *testing.T) {
	full := false
	st := memory.New(memory.Options{OnCommit: func(int, []store.Transition) memory.Outcome {
		if full {
			return memory.Refused
		}
		return memory.OK
	}})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, chain(3), noop())
	key := h.run(acc, p, nil)
	full = true
	task := h.takeTask()
	refused := h.startInput(acc, p, nil)
	reply := h.replyOf(refused)
	h.runUntilIdle(success(task, `{}`), refused)
	if len(refused.reply) > 0 {
		t.Error("the start was answered before it was known whether it is written")
	}
	h.advanceClock(minBackoff)
	wantCode(t, reply().err, fault.StoreFull)
	again := h.startInput(acc, p, nil)
	reply = h.replyOf(again)
	h.runUntilIdle(again)
	wantCode(t, reply().err, fault.StoreFull)
	if _, err := st.Head(context.Background(), key); err != nil {
		t.Errorf("a read while the disk is full: %v", err)
	}
	h.advanceClock(5 * maxBackoff)
	full = false
	h.advanceClock(5 * maxBackoff)
	h.finishTasks()
	h.wantStatus(key, "completed")
	lines := h.trace(key, p)
	if n := countPrefix(lines, "node.started s0"); n != 1 {
		t.Errorf("s0 was attempted %d times although its report had arrived", n)
	}
	if _, err := st.Head(context.Background(), refused.key); fault.CodeOf(err) != fault.RunNotFound {
		t.Errorf("a refused start left a run: %v", err)
	}
	h.run(acc, p, nil)
}

// An attempt that is in flight in this process is not handed out again when every run
// is loaded again after a failed commit.
func TestF16_TaskUnderWayIsNotHandedOutAgain(t *testing.T) {
	for _, outcome := range []memory.Outcome{memory.Refused, memory.ReplyLost} {
		fail := false
		st := memory.New(memory.Options{OnCommit: func(int, []store.Transition) memory.Outcome {
			if fail {
				fail = false
				return outcome
			}
			return memory.OK
		}})
		limited := noop()
		limited.Slots = 2
		h := newHarness(t, st, Config{}, limited)
		p := planOf(t, fan(3), limited)
		key := h.run(acc, p, nil)
		a, b := h.takeTask(), h.takeTask()
		fail = true
		h.runUntilIdle(success(a, `{}`))
		h.advanceClock(maxBackoff)
		if len(h.tasks) != 1 || h.tasks[0].id.Ref == b.id.Ref {
			t.Fatalf("outcome %d: %d tasks are handed out while one is in flight and there are 2 slots", outcome, len(h.tasks))
		}
		h.runUntilIdle(success(b, `{}`))
		h.finishTasks()
		h.wantStatus(key, "completed")
		if n := countPrefix(h.trace(key, p), "node.started"); n != 4 {
			t.Errorf("outcome %d: 4 steps took %d attempts", outcome, n)
		}
	}
}

// After a failed sync nothing is acknowledged any more.
func TestI21_FailedSyncStopsAcknowledging(t *testing.T) {
	bad := false
	st := memory.New(memory.Options{OnCommit: func(int, []store.Transition) memory.Outcome {
		if bad {
			return memory.SyncFailed
		}
		return memory.OK
	}})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, chain(2), noop())
	h.run(acc, p, nil)
	bad = true
	in := h.startInput(acc, p, nil)
	reply := h.replyOf(in)
	h.runUntilIdle(success(h.takeTask(), `{}`), in)
	wantCode(t, reply().err, fault.StoreFailed)
	if h.c.recovery.dead == nil {
		t.Fatal("the core continues after a failed sync")
	}
	bad = false
	in = h.startInput(acc, p, nil)
	reply = h.replyOf(in)
	h.runUntilIdle(in)
	wantCode(t, reply().err, fault.StoreFailed)
	if len(h.tasks) != 0 {
		t.Errorf("%d tasks left after the failed sync", len(h.tasks))
	}
}

// A second owner makes the first one's commits fail: the first one stops (X87).
func TestF35_StaleOwnerIsRefused(t *testing.T) {
	st := memory.New(memory.Options{})
	first := newHarness(t, st, Config{}, noop())
	p := planOf(t, chain(2), noop())
	key := first.run(acc, p, nil)
	task := first.takeTask()

	second := newHarness(t, st, Config{}, noop())
	second.runUntilIdle()
	in := first.startInput(acc, p, nil)
	reply := first.replyOf(in)
	first.runUntilIdle(success(task, `"zombie"`), in)
	wantCode(t, reply().err, fault.StaleEpoch)
	if first.c.recovery.dead == nil || len(first.tasks) != 0 {
		t.Error("the first owner continues")
	}
	second.finishTasks()
	second.wantStatus(key, "completed")
	if lines := second.trace(key, p); countPrefix(lines, "run.recovered") != 1 || countPrefix(lines, "node.completed s0") != 1 {
		t.Errorf("the journal:\n%s", strings.Join(lines, "\n"))
	}
}

// An answer that depends on an uncommitted change waits for its commit; with nothing to
// commit it does not wait.
func TestBarrierWaitsForWhatItSaw(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	key := h.run(acc, planOf(t, chain(2), noop()), nil)
	log := &input{kind: inRun, key: key, m: machine.Input{Kind: machine.InProgress, Ref: h.tasks[0].id.Ref, Fence: h.tasks[0].id.Fence,
		Progress: &machine.Progress{Kind: machine.ProgressLog, Level: "info", Text: "hello"}}}
	h.handle(log)
	if h.c.pipeline.encodeBatch() != nil {
		t.Fatal("a log line triggered a commit")
	}
	if at := h.c.wakeup(); at != h.now+lazyTick {
		t.Errorf("the line waits until %d µs from now", at-h.now)
	}
	text := *log
	text.m.Progress = &machine.Progress{Kind: machine.ProgressDelta, Text: "hello"}
	h.handle(&text) // it has waited for more of it before
	if at := h.c.wakeup(); h.c.pipeline.encodeBatch() != nil || at != h.now+textTick {
		t.Errorf("text waits until %d µs from now", at-h.now)
	}
	barrier := &input{kind: inBarrier, reply: make(chan answer, 1)}
	h.handle(barrier)
	b := h.c.pipeline.encodeBatch()
	if b == nil || len(b.transitions) != 1 {
		t.Fatal("the barrier does not commit the line")
	}
	verdicts, err := st.Commit(context.Background(), b.transitions)
	h.c.pipeline.committed(verdicts, err)
	h.c.pipeline.releaseCommitted()
	if barrier.reply != nil {
		t.Error("the barrier was not answered")
	}
}

// A batch is bounded even when events are small, so that a flood of starts does not
// make every caller wait for one commit.
func TestI15_BatchIsBounded(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{Concurrency: 10_000}, noop())
	p := planOf(t, chain(1), noop())
	var inputs []*input
	for range 2*maxRuns + 1 {
		inputs = append(inputs, h.startInput(acc, p, nil))
	}
	h.handle(inputs...)
	if n := len(h.c.pipeline.building.dirty); n > maxRuns {
		t.Errorf("%d runs share a batch, want at most %d", n, maxRuns)
	}
	h.runUntilIdle()
	h.finishTasks()
	for _, in := range inputs {
		h.wantStatus(in.key, "completed")
	}
}

// I15: a batch of many runs does not keep its memory.
func TestLargeBatchesFreeTheirMemory(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
	p := planOf(t, chain(1), noop())
	var inputs []*input
	for range maxRuns {
		inputs = append(inputs, h.startInput(acc, p, nil))
	}
	h.handle(inputs...)
	if n := cap(h.c.pipeline.building.dirty); n < maxRuns {
		t.Fatalf("the batch had %d runs", n)
	}
	h.runUntilIdle()
	h.finishTasks()
	h.advanceClock(1_000_000)
	for _, b := range []*batch{h.c.pipeline.building, h.c.pipeline.spare} {
		if n := max(cap(b.dirty), cap(b.inputs), cap(b.commands), cap(b.transitions), cap(b.runs)); n > keptCapacity {
			t.Errorf("capacity for %d runs is kept while there is none", n)
		}
	}
}

// The head of a run records what the run has used, whether it had failures, and when it
// last changed.
func TestHeadRecordsUsage(t *testing.T) {
	for _, fails := range []bool{false, true} {
		h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
		key := h.run(acc, planOf(t, chain(2), noop()), nil)
		h.now += 5_000_000
		in := success(h.takeTask(), `{}`)
		in.m.Cost = 7
		h.runUntilIdle(in)
		h.now += 5_000_000
		task := h.takeTask()
		if in = success(task, `{}`); fails {
			in = failure(task, fault.StepFailed)
		}
		h.runUntilIdle(in)
		head, err := h.st.Head(t.Context(), key)
		if err != nil || head.Used != 7 || head.Failures != fails || head.Updated != h.now || head.Created != h.now-10_000_000 {
			t.Errorf("fails %v: %+v, %v", fails, head, err)
		}
	}
}
