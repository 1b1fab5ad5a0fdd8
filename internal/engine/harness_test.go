// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/store"
)

// A harness drives a core without goroutines: the test is the clock, the committer and
// every worker.
type harness struct {
	t       testing.TB
	c       *core
	cfg     *Config
	st      store.Store
	now     int64
	seq     int
	tasks   []effect // handed out and not finished
	freed   []*input // slots of cancelled tasks, which stop at once
	effects []effect // of other kinds
	frames  []feed.Published
}

const testEpoch = 1_700_000_000_000_000

func newHarness(t testing.TB, st store.Store, cfg Config, actions ...*action.Action) *harness {
	t.Helper()
	h := unopenedHarness(t, st, cfg, actions...)
	if err := h.c.recovery.open(h.now); err != nil {
		t.Fatal(err)
	}
	return h
}

// unopenedHarness returns a harness whose core does not own its store yet.
func unopenedHarness(t testing.TB, st store.Store, cfg Config, actions ...*action.Action) *harness {
	t.Helper()
	cfg.Store, cfg.Actions = st, catalogue.New(actions...)
	if cfg.Logger == nil {
		cfg.Logger = testLog(t)
	}
	if cfg.Accounts == nil {
		cfg.Accounts = unmetered
	}
	if err := cfg.defaults(); err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, st: st, cfg: &cfg, now: testEpoch}
	h.c = newCore(context.Background(), h.cfg)
	return h
}

// reopen returns the harness of the next process, after this one crashed.
func (h *harness) reopen(st store.Store) *harness {
	h.t.Helper()
	restarted := &harness{t: h.t, st: st, cfg: h.cfg, now: h.now, seq: h.seq}
	restarted.cfg.Store = st
	restarted.c = newCore(context.Background(), restarted.cfg)
	if err := restarted.c.recovery.open(restarted.now); err != nil {
		h.t.Fatal(err)
	}
	return restarted
}

// handle passes inputs to the core and commits nothing.
func (h *harness) handle(inputs ...*input) { h.c.handle(h.now, inputs) }

// commit commits what is due and collects what is released. It reports whether there
// was anything.
func (h *harness) commit() bool {
	b := h.c.pipeline.encodeBatch()
	if b == nil {
		return false
	}
	var verdicts []store.Verdict
	var err error
	if len(b.transitions) > 0 {
		verdicts, err = h.st.Commit(context.Background(), b.transitions)
	}
	h.c.pipeline.committed(verdicts, err)
	h.c.pipeline.releaseCommitted()
	h.collectEffects()
	return true
}

// commitWhile is commit, and calls fn while the store writes.
func (h *harness) commitWhile(fn func()) {
	h.t.Helper()
	b := h.c.pipeline.encodeBatch()
	if b == nil {
		h.t.Fatal("there is nothing to commit")
	}
	fn()
	h.c.pipeline.committed(h.st.Commit(context.Background(), b.transitions))
	h.c.pipeline.releaseCommitted()
	h.collectEffects()
}

func (h *harness) collectEffects() {
	for _, ef := range h.c.effects {
		switch ef.kind {
		case machine.CmdDispatch:
			h.tasks = append(h.tasks, ef)
		case machine.CmdCancelTask:
			before := len(h.tasks)
			h.tasks = slices.DeleteFunc(h.tasks, func(t effect) bool { return t.id == ef.id })
			if len(h.tasks) < before {
				h.freed = append(h.freed, &input{kind: inFreed, key: ef.id.Key, m: machine.Input{Ref: ef.id.Ref, Fence: ef.id.Fence}})
			}
		default:
			h.effects = append(h.effects, ef)
		}
	}
	h.c.effects = h.c.effects[:0]
	h.frames = append(h.frames, h.c.frames...)
	h.c.frames = nil
}

// release releases a quarantined run.
func (h *harness) release(key store.Key) {
	h.t.Helper()
	h.runUntilIdle(&input{kind: inRelease, key: key, reply: make(chan answer, 1)})
}

// runUntilIdle handles inputs and commits until nothing more follows at this moment.
func (h *harness) runUntilIdle(inputs ...*input) {
	h.t.Helper()
	h.handle(inputs...)
	for n := 0; h.commit() || h.c.busy() || len(h.freed) > 0; n++ {
		if n > 100_000 {
			h.t.Fatal("the core never becomes idle")
		}
		freed := h.freed
		h.freed = nil
		h.handle(freed...)
	}
}

// advanceClock advances the clock and fires the timers that are due on the way.
func (h *harness) advanceClock(micros int64) {
	h.t.Helper()
	until := h.now + micros
	for n := 0; ; n++ {
		at := h.c.wakeup()
		if at == 0 || at > until {
			break
		}
		if n > 1_000_000 {
			h.t.Fatalf("the core asks to be woken without end, next in %d µs", at-h.now)
		}
		h.now = max(at, h.now+1)
		h.runUntilIdle()
	}
	h.now = until
	h.runUntilIdle()
}

// startInput returns an input that starts a run.
func (h *harness) startInput(account string, p *plan.Plan, params map[string]any) *input {
	h.t.Helper()
	prog, err := h.c.programs.Of(p)
	if err != nil {
		h.t.Fatal(err)
	}
	h.seq++
	id := fmt.Sprintf("run_%08d", h.seq)
	pins, tree, err := prog.Pin(h.cfg.Actions)
	if err != nil {
		h.t.Fatal(err)
	}
	return &input{
		kind: inStart, key: store.Key{Account: account, Run: id}, reply: make(chan answer, 1),
		start: &runStart{prog: prog, recipe: "test", limited: h.cfg.Accounts(account).LiveLimit() > 0},
		m: machine.Input{Kind: machine.InStart, Start: &journal.Start{
			Run: id, Account: account, Recipe: "test", PlanHash: prog.Hash(), Parameters: params, Seed: uint64(h.seq), Pins: pins, Tree: tree,
		}},
	}
}

// run starts a run, commits it and returns its key.
func (h *harness) run(account string, p *plan.Plan, params map[string]any) store.Key {
	h.t.Helper()
	in := h.startInput(account, p, params)
	h.runUntilIdle(in)
	if out := h.answer(in); out.err != nil {
		h.t.Fatal(out.err)
	}
	return in.key
}

func request(key store.Key, m machine.Input) *input {
	return &input{kind: inRun, key: key, m: m, reply: make(chan answer, 1)}
}

// replyOf returns a function that returns the answer to an input. It keeps the channel,
// because the core forgets it.
func (h *harness) replyOf(in *input) func() answer {
	ch := in.reply
	return func() answer {
		h.t.Helper()
		select {
		case out := <-ch:
			return out
		default:
			h.t.Fatal("there is no answer yet")
			return answer{}
		}
	}
}

func (h *harness) answer(in *input) answer { return in.out }

// success is the report of a task that succeeded.
func success(ef effect, output string) *input {
	return &input{kind: inRun, key: ef.id.Key, m: machine.Input{
		Kind: machine.InResult, Ref: ef.id.Ref, Fence: ef.id.Fence, Outcome: machine.Success, Output: []byte(output)}}
}

// failure is the report of a task that failed.
func failure(ef effect, code fault.Code) *input {
	return &input{kind: inRun, key: ef.id.Key, m: machine.Input{
		Kind: machine.InResult, Ref: ef.id.Ref, Fence: ef.id.Fence, Outcome: machine.Failed,
		Err: &machine.Failure{Code: code, Msg: "failed by the test"}}}
}

// takeTask returns and removes the first task that is handed out.
func (h *harness) takeTask() effect {
	h.t.Helper()
	if len(h.tasks) == 0 {
		h.t.Fatal("no task is handed out")
	}
	ef := h.tasks[0]
	h.tasks = h.tasks[1:]
	return ef
}

// finishTasks finishes every task until none is left.
func (h *harness) finishTasks() {
	h.t.Helper()
	for len(h.tasks) > 0 {
		tasks := h.tasks
		h.tasks = nil
		var inputs []*input
		for _, ef := range tasks {
			inputs = append(inputs, success(ef, `{"ok":true}`))
		}
		h.runUntilIdle(inputs...)
	}
}

func (h *harness) head(key store.Key) store.Head {
	h.t.Helper()
	head, err := h.st.Head(context.Background(), key)
	if err != nil {
		h.t.Fatal(err)
	}
	return head
}

func (h *harness) wantStatus(key store.Key, status string) {
	h.t.Helper()
	if head := h.head(key); head.Status != status {
		h.t.Errorf("run %s is %s (%s %s), want %s", key.Run, head.Status, head.Code, head.Message, status)
	}
}

// wantNoSlots checks that no slot is taken, nor will be freed later (I22).
func (h *harness) wantNoSlots() {
	h.t.Helper()
	_, overdue := h.c.attempts.Away()
	if n := h.c.attempts.Arbiter.InUse(); n != 0 || overdue != 0 {
		h.t.Errorf("%d slots are held, %d overdue", n, overdue)
	}
}

func (h *harness) trace(key store.Key, p *plan.Plan) []string {
	h.t.Helper()
	return trace(h.t, h.st, p, key.Account, key.Run)
}

// verify folds the stored journal and compares the result with the state from snapshot
// and tail.
func verify(t testing.TB, st store.Store, key store.Key) {
	t.Helper()
	ctx := context.Background()
	saved, err := st.Load(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	prog, err := program.NewCache(10).Load(ctx, st, saved.Head.PlanHash)
	if err != nil {
		t.Fatal(err)
	}
	direct := machine.NewRun(prog.Machine())
	if err := store.EachEvent(ctx, st, key, 0, direct.Apply); err != nil {
		t.Fatalf("run %s: %v", key.Run, err)
	}
	short, err := prog.Fold(ctx, st, saved, 0)
	if err != nil {
		t.Fatalf("run %s: %v", key.Run, err)
	}
	if a, b := string(direct.Snapshot(nil)), string(short.Snapshot(nil)); a != b {
		t.Errorf("run %s: the journal folds to another state than snapshot and tail", key.Run)
	}
}
