// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A rig drives a core by hand, without goroutines: the test is the clock, the
// committer and every worker.
type rig struct {
	t       testing.TB
	c       *core
	cfg     *Config
	st      store.Store
	now     int64
	seq     int
	tasks   []effect // handed out and not finished
	freed   []*input // slots of cancelled tasks, which obey at once
	effects []effect // of other kinds
	frames  []feed.Published
}

const rigEpoch = 1_700_000_000_000_000

func newRig(t testing.TB, st store.Store, cfg Config, actions ...*action.Action) *rig {
	t.Helper()
	r := rigOver(t, st, cfg, actions...)
	if err := r.c.recovery.open(r.now); err != nil {
		t.Fatal(err)
	}
	return r
}

// rigOver is a rig whose core does not own its store yet.
func rigOver(t testing.TB, st store.Store, cfg Config, actions ...*action.Action) *rig {
	t.Helper()
	cfg.Store, cfg.Actions = st, compile.NewCatalogue(actions...)
	if cfg.Logger == nil {
		cfg.Logger = testLog(t)
	}
	if err := cfg.defaults(); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, st: st, cfg: &cfg, now: rigEpoch}
	r.c = newCore(context.Background(), r.cfg)
	return r
}

// reopen is what the next process does after this one died.
func (r *rig) reopen(st store.Store) *rig {
	r.t.Helper()
	n := &rig{t: r.t, st: st, cfg: r.cfg, now: r.now, seq: r.seq}
	n.cfg.Store = st
	n.c = newCore(context.Background(), n.cfg)
	if err := n.c.recovery.open(n.now); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// handle gives inputs to the core and commits nothing.
func (r *rig) handle(ins ...*input) { r.c.handle(r.now, ins) }

// commit commits what is due and takes what is released. It says whether there
// was anything.
func (r *rig) commit() bool {
	b := r.c.pipeline.encodeBatch()
	if b == nil {
		return false
	}
	var verdicts []store.Verdict
	var err error
	if len(b.trans) > 0 {
		verdicts, err = r.st.Commit(context.Background(), b.trans)
	}
	r.c.pipeline.committed(verdicts, err)
	r.c.pipeline.releaseCommitted()
	r.take()
	return true
}

func (r *rig) take() {
	for _, ef := range r.c.effects {
		switch ef.kind {
		case machine.CmdDispatch:
			r.tasks = append(r.tasks, ef)
		case machine.CmdCancelTask:
			before := len(r.tasks)
			r.tasks = slices.DeleteFunc(r.tasks, func(t effect) bool { return t.id == ef.id })
			if len(r.tasks) < before {
				r.freed = append(r.freed, &input{kind: inFreed, key: ef.id.key, m: machine.Input{Ref: ef.id.ref, Fence: ef.id.fence}})
			}
		default:
			r.effects = append(r.effects, ef)
		}
	}
	r.c.effects = r.c.effects[:0]
	r.frames = append(r.frames, r.c.frames...)
	r.c.frames = nil
}

// settle goes on until nothing more follows at this moment.
func (r *rig) settle(ins ...*input) {
	r.t.Helper()
	r.handle(ins...)
	for n := 0; r.commit() || r.c.busy() || len(r.freed) > 0; n++ {
		if n > 100_000 {
			r.t.Fatal("the core never comes to rest")
		}
		freed := r.freed
		r.freed = nil
		r.handle(freed...)
	}
}

// pass moves the clock and rings what is due on the way.
func (r *rig) pass(us int64) {
	r.t.Helper()
	until := r.now + us
	for n := 0; ; n++ {
		at := r.c.wakeup()
		if at == 0 || at > until {
			break
		}
		if n > 1_000_000 {
			r.t.Fatalf("the core wants to be woken for ever, next in %d µs", at-r.now)
		}
		r.now = max(at, r.now+1)
		r.settle()
	}
	r.now = until
	r.settle()
}

// start posts a start; its answer comes through the input.
func (r *rig) start(account string, p *plan.Plan, params map[string]any) *input {
	r.t.Helper()
	prog, err := r.c.programs.of(p)
	if err != nil {
		r.t.Fatal(err)
	}
	r.seq++
	id := fmt.Sprintf("run_%08d", r.seq)
	e := &Engine{cfg: *r.cfg}
	pins, err := e.pin(p)
	if err != nil {
		r.t.Fatal(err)
	}
	return &input{
		kind: inStart, key: store.Key{Account: account, Run: id}, reply: make(chan answer, 1),
		begin: &begin{prog: prog, recipe: "test"},
		m: machine.Input{Kind: machine.InStart, Start: &journal.Start{
			Run: id, Account: account, Recipe: "test", PlanHash: prog.hash, Parameters: params, Seed: uint64(r.seq), Pins: pins,
		}},
	}
}

// run starts a run, commits it and returns its key.
func (r *rig) run(account string, p *plan.Plan, params map[string]any) store.Key {
	r.t.Helper()
	in := r.start(account, p, params)
	r.settle(in)
	if out := r.answer(in); out.err != nil {
		r.t.Fatal(out.err)
	}
	return in.key
}

func request(key store.Key, m machine.Input) *input {
	return &input{kind: inRun, key: key, m: m, reply: make(chan answer, 1)}
}

// replied keeps the channel of an input that is answered, since the core forgets it.
func (r *rig) asked(in *input) func() answer {
	ch := in.reply
	return func() answer {
		r.t.Helper()
		select {
		case out := <-ch:
			return out
		default:
			r.t.Fatal("no answer has come")
			return answer{}
		}
	}
}

func (r *rig) answer(in *input) answer { return in.out }

// done is the report of a task that succeeded.
func done(ef effect, output string) *input {
	return &input{kind: inRun, key: ef.id.key, m: machine.Input{
		Kind: machine.InResult, Ref: ef.id.ref, Fence: ef.id.fence, Outcome: machine.Success, Output: []byte(output)}}
}

// broken is the report of a task that failed.
func broken(ef effect, code fault.Code) *input {
	return &input{kind: inRun, key: ef.id.key, m: machine.Input{
		Kind: machine.InResult, Ref: ef.id.ref, Fence: ef.id.fence, Outcome: machine.Failed,
		Err: &machine.Failure{Code: code, Msg: "broken by the test"}}}
}

// pull takes the first task that is handed out.
func (r *rig) pull() effect {
	r.t.Helper()
	if len(r.tasks) == 0 {
		r.t.Fatal("no task is handed out")
	}
	ef := r.tasks[0]
	r.tasks = r.tasks[1:]
	return ef
}

// work finishes every task until none is left.
func (r *rig) work() {
	r.t.Helper()
	for len(r.tasks) > 0 {
		tasks := r.tasks
		r.tasks = nil
		var ins []*input
		for _, ef := range tasks {
			ins = append(ins, done(ef, `{"ok":true}`))
		}
		r.settle(ins...)
	}
}

func (r *rig) head(key store.Key) store.Head {
	r.t.Helper()
	h, err := r.st.Head(context.Background(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

func (r *rig) wantStatus(key store.Key, status string) {
	r.t.Helper()
	if h := r.head(key); h.Status != status {
		r.t.Errorf("run %s is %s (%s %s), want %s", key.Run, h.Status, h.Code, h.Message, status)
	}
}

func (r *rig) trace(key store.Key, p *plan.Plan) []string {
	r.t.Helper()
	return trace(r.t, r.st, p, key.Account, key.Run)
}

// verify folds the stored journal and compares the state with the snapshot way.
func verify(t testing.TB, st store.Store, key store.Key) {
	t.Helper()
	ctx := context.Background()
	saved, err := st.Load(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	prog, err := newPrograms(10).load(ctx, st, saved.Head.PlanHash)
	if err != nil {
		t.Fatal(err)
	}
	direct := machine.NewRun(prog.machine)
	if err := store.EachEvent(ctx, st, key, 0, direct.Apply); err != nil {
		t.Fatalf("run %s: %v", key.Run, err)
	}
	short, err := refold(ctx, st, prog, saved, 0)
	if err != nil {
		t.Fatalf("run %s: %v", key.Run, err)
	}
	if a, b := string(direct.Snapshot(nil)), string(short.Snapshot(nil)); a != b {
		t.Errorf("run %s: the journal folds to another state than snapshot and tail", key.Run)
	}
}

var (
	_ = memory.New
	_ = fault.CodeOf
)
