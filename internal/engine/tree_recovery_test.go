// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// panicsFor is an observer that panics before a turn that it selects.
type panicsFor func(key store.Key, run *machine.Run, in *machine.Input) bool

func (p panicsFor) Before(key store.Key, run *machine.Run, in *machine.Input) {
	if p(key, run, in) {
		panic("on purpose")
	}
}
func (panicsFor) After(store.Key, *machine.Run, *machine.Input, *machine.Turn) {}

const twoBelow = `
name: outer
steps:
  - id: all
    parallel:
      branches:
        - [{id: a, recipe: {inline: {name: inner, steps: [{id: x, action: {name: noop}}, {id: y, action: {name: noop}}]}}}]
        - [{id: b, recipe: {inline: {name: inner, steps: [{id: x, action: {name: noop}}, {id: y, action: {name: noop}}]}}}]
`

func (h *harness) children(key store.Key) (keys []store.Key) {
	for _, id := range childrenOf(h.t, h.st, key.Run) {
		keys = append(keys, store.Key{Account: key.Account, Run: id})
	}
	return keys
}

// A panic in a child run takes back what its tree did in the batch. The child is
// quarantined; its siblings go on, and its parent goes on when it is released (I16).
func TestI16_PanicInAChild(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, twoBelow, noop())
	root := h.run(acc, p, nil)
	below := h.children(root)
	if len(below) != 2 {
		t.Fatalf("%d child runs", len(below))
	}
	bad := below[0]
	h.c.observer = panicsFor(func(key store.Key, _ *machine.Run, in *machine.Input) bool {
		return key == bad && in.Kind == machine.InResult
	})
	one, two := h.takeTask(), h.takeTask()
	h.runUntilIdle(success(one, `{}`), success(two, `{}`))
	if head := h.head(bad); !strings.Contains(head.Quarantine, "on purpose") {
		t.Fatalf("the child's quarantine is %q", head.Quarantine)
	}
	h.finishTasks()
	h.wantStatus(below[1], "completed")
	h.wantStatus(root, "running")
	h.c.observer = nil

	h.release(bad)
	h.finishTasks()
	h.wantStatus(root, "completed")
	checkTree(t, st, acc, root.Run)
	if n := h.c.attempts.Arbiter.InUse(); n != 0 {
		t.Errorf("%d slots are still held", n)
	}
}

// The slot of an action that still runs when its result is known is taken once and freed
// once, also if what its report changed is taken back with the tree and it is handled again
// (I22, X115).
func TestI22_HeldSlotOfATree(t *testing.T) {
	for name, freedFirst := range map[string]bool{"freed at the end": false, "freed before the report is handled again": true} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
			root := h.run(acc, planOf(t, twoBelow, noop()), nil)
			held, bad := h.takeTask(), h.takeTask()
			h.c.observer = panicsFor(func(key store.Key, _ *machine.Run, in *machine.Input) bool {
				return key == bad.id.Key && in.Kind == machine.InResult
			})
			report := success(held, `{}`)
			report.holding = true
			freed := &input{kind: inFreed, key: held.id.Key, m: machine.Input{Ref: held.id.Ref, Fence: held.id.Fence}}
			if freedFirst {
				h.runUntilIdle(report, success(bad, `{}`), freed)
			} else {
				h.runUntilIdle(report, success(bad, `{}`))
				h.runUntilIdle(freed)
			}
			h.c.observer = nil
			h.release(bad.id.Key)
			h.finishTasks()
			h.wantStatus(root, "completed")
			h.wantNoSlots()
		})
	}
}

// I22: the end of an attempt that is taken back with its tree has not happened. Of the two
// child runs that are cancelled one panics: the attempt of the other goes on, with its one
// slot, and that of the first is told to stop.
func TestI22_EndTakenBackWithATree(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
	root := h.run(acc, planOf(t, twoBelow, noop()), nil)
	good, bad := h.takeTask(), h.takeTask()
	h.tasks = []effect{good, bad}
	h.c.observer = panicsFor(func(key store.Key, _ *machine.Run, in *machine.Input) bool {
		return key == bad.id.Key && in.Kind == machine.InCancel
	})
	cancel := request(root, machine.Input{Kind: machine.InCancel})
	h.runUntilIdle(cancel)
	h.c.observer = nil
	if err := h.answer(cancel).err; err == nil {
		t.Error("a cancel that was taken back was acknowledged")
	}
	if len(h.tasks) != 1 || h.tasks[0].id != good.id {
		t.Errorf("the actions that were not told to stop: %d, want that of the run that did not panic", len(h.tasks))
	}
	if _, n := h.c.attempts.Away(); n != 0 {
		t.Errorf("%d attempts count as ended", n)
	}
	if n := h.c.attempts.Arbiter.InUse(); n != 1 {
		t.Errorf("%d slots are held, want that of the attempt that goes on", n)
	}
	h.release(bad.id.Key)
	h.finishTasks()
	h.wantStatus(root, "completed")
	if n := h.c.attempts.Arbiter.InUse(); n != 0 {
		t.Errorf("%d slots are held at the end", n)
	}
}

// I6: a run that is cancelled tells its attempts to stop although a child run beside them
// has not ended: the compensation of the child needs the only slot (I22).
func TestI6_CompensationBesideAnAttempt(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{Concurrency: 1}, noop())
	root := h.run(acc, planOf(t, `
name: outer
order: none
steps:
  - {id: a, recipe: {inline: {name: inner, steps: [{id: x, action: {name: noop}, compensate: {action: {name: noop}}}, {id: y, action: {name: noop}}]}}}
  - {id: wait, action: {name: noop}}
  - {id: b, dependsOn: [wait], action: {name: noop}}
`, noop()), nil)
	child := h.children(root)[0]
	task := h.takeTask()
	var done []string
	for ; task.task.StepPath != "b"; task = h.takeTask() {
		done = append(done, task.task.StepPath)
		h.runUntilIdle(success(task, `{}`))
	}
	if !slices.Contains(done, "x") || slices.Contains(done, "y") {
		t.Fatalf("%q are done, want that the child run is midway", done)
	}
	h.tasks = []effect{task} // it does not return by itself
	h.runUntilIdle(request(root, machine.Input{Kind: machine.InCancel}))
	if len(h.tasks) != 1 || h.tasks[0].id == task.id {
		t.Fatalf("%d attempts are under way, want the compensation of the child run alone", len(h.tasks))
	}
	if n := h.c.attempts.Arbiter.InUse(); n != 1 {
		t.Errorf("%d slots are held, want 1", n)
	}
	h.finishTasks()
	h.wantStatus(child, "cancelled")
	h.wantStatus(root, "cancelled")
	h.wantNoSlots()
}

// I3, I22: an attempt of a run that is cancelled while a child run beside it goes on. If it
// has not been handed out it is not any more, and if it is not in flight its slot is free for
// the compensation of the child.
func TestI3_NotHandedOutBesideAChildRun(t *testing.T) {
	for name, reported := range map[string]bool{"before it is handed out": false, "together with its loss": true} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, memory.New(memory.Options{}), Config{Concurrency: 1}, noop())
			root := h.run(acc, planOf(t, `
name: outer
order: none
steps:
  - {id: a, recipe: {inline: {name: inner, steps: [{id: x, action: {name: noop}, compensate: {action: {name: noop}}}, {id: y, wait: {signal: go}}]}}}
  - {id: first, action: {name: noop}}
  - {id: second, dependsOn: [first], action: {name: noop}}
  - {id: b, dependsOn: [second], action: {name: noop}}
`, noop()), nil)
			child := h.children(root)[0]
			task, inner := h.takeTask(), false
			for ; task.task.StepPath != "second"; task = h.takeTask() {
				inner = inner || task.id.Key == child
				h.runUntilIdle(success(task, `{}`))
			}
			if !inner {
				t.Fatal("the child run has done nothing that is to be compensated")
			}
			cancel := request(root, machine.Input{Kind: machine.InCancel})
			if reported {
				h.runUntilIdle(success(task, `{}`))
				last := h.takeTask()
				h.handle(cancel, &input{kind: inRun, key: root, m: machine.Input{Kind: machine.InWorkerLost, Ref: last.id.Ref, Fence: last.id.Fence}})
			} else {
				h.handle(success(task, `{}`))
				h.handle(cancel)
			}
			h.commit()
			if len(h.freed) != 0 {
				t.Errorf("an action was called and told to stop")
			}
			h.runUntilIdle()
			if len(h.tasks) != 1 || h.tasks[0].id.Key != child {
				t.Fatalf("%d attempts are under way, want the compensation of the child run alone", len(h.tasks))
			}
			if n := h.c.attempts.Arbiter.InUse(); n != 1 {
				t.Errorf("%d slots are held, want 1", n)
			}
			h.finishTasks()
			h.wantStatus(child, "cancelled")
			h.wantStatus(root, "cancelled")
			h.wantNoSlots()
		})
	}
}

// A child run that panics as it starts is not stored: the run above it is quarantined, so
// that it is not started again and again.
func TestI16_PanicAsAChildStarts(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, "name: outer\nsteps:\n  - {id: first, action: {name: noop}}\n  - {id: a, recipe: {inline: {name: inner, steps: [{id: x, action: {name: noop}}]}}}\n", noop())
	root := h.run(acc, p, nil)
	h.c.observer = panicsFor(func(_ store.Key, _ *machine.Run, in *machine.Input) bool {
		return in.Kind == machine.InStart && in.Start.Child != nil
	})
	h.runUntilIdle(success(h.takeTask(), `{}`))
	if head := h.head(root); !strings.Contains(head.Quarantine, "on purpose") || !strings.Contains(head.Quarantine, "child run") {
		t.Fatalf("the root's quarantine is %q", head.Quarantine)
	}
	if n := len(childrenOf(t, st, root.Run)); n != 0 {
		t.Fatalf("the root says that it has %d child runs", n)
	}
	h.c.observer = nil
	h.release(root)
	h.finishTasks()
	h.wantStatus(root, "completed")
	checkTree(t, st, acc, root.Run)
}

// A child run is started in a turn that also goes on with what the last one left over, and
// needs more than the share of its run for that. If the run above panics as it gives more,
// all of it is taken back, and the child run is not started: its parent would not say so
// (F44, I16).
func TestF44_PanicAsMoreIsGiven(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{MaxTurn: 4}, noop())
	p := planOf(t, `
name: outer
steps:
  - {id: first, action: {name: noop}}
  - id: a
    recipe:
      inline:
        name: middle
        order: none
        steps:
          - {id: m, recipe: {inline: {name: inner, steps: [{id: x, action: {name: noop}}]}}}
          - {id: b, transform: {expression: '1'}}
          - {id: c, transform: {expression: '"`+strings.Repeat("x", 12<<10)+`"'}}
`, noop())
	root := h.run(acc, p, nil)
	asked, panicked := false, false
	h.c.observer = panicsFor(func(key store.Key, _ *machine.Run, in *machine.Input) bool {
		if panicked = panicked || asked && key == root && in.Kind == machine.InChildExtended; panicked {
			return true
		}
		asked = key != root && in.Kind == machine.InGranted && in.Child != nil
		return false
	})
	h.runUntilIdle(success(h.takeTask(), `{}`))
	if !panicked {
		t.Fatal("no run asked for more as its child run was started: this proves nothing")
	}
	if head := h.head(root); !strings.Contains(head.Quarantine, "on purpose") {
		t.Fatalf("the root's quarantine is %q", head.Quarantine)
	}
	if stored, err := st.List(t.Context(), store.Query{Account: acc}); err != nil || len(stored) != 1 {
		t.Fatalf("%d runs are stored, want the root alone: %v", len(stored), err)
	}
	h.c.observer = nil
	h.release(root)
	h.finishTasks()
	h.wantStatus(root, "completed")
	checkTree(t, st, acc, root.Run)
	h.wantNoSlots()
}

// A parent that is quarantined while its child ends is told of the end when it is
// released, also after a restart; until then the child owes that.
func TestChildEndsUnderAQuarantinedParent(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, "name: outer\norder: none\nsteps:\n  - {id: a, recipe: {inline: {name: inner, steps: [{id: x, action: {name: noop}}]}}}\n  - {id: b, action: {name: noop}}\n", noop())
	root := h.run(acc, p, nil)
	child := h.children(root)[0]
	var inner, outer effect
	for range 2 {
		if task := h.takeTask(); task.id.Key == child {
			inner = task
		} else {
			outer = task
		}
	}
	h.c.observer = panicsFor(func(key store.Key, _ *machine.Run, in *machine.Input) bool { return key == root })
	h.runUntilIdle(success(outer, `{}`))
	if head := h.head(root); head.Quarantine == "" {
		t.Fatal("the root is not quarantined")
	}
	h.c.observer = nil
	h.runUntilIdle(success(inner, `{}`))
	if head := h.head(child); head.Status != "completed" || !head.Owes {
		t.Fatalf("the child is %s, owes %v", head.Status, head.Owes)
	}
	h = h.reopen(st.Crash(0))
	h.runUntilIdle()
	h.release(root)
	h.finishTasks()
	h.wantStatus(root, "completed")
	checkTree(t, h.st, acc, root.Run)
}

// refusing is a store that refuses one transition of a run: it says that the events do
// not follow.
type refusing struct {
	store.Store
	refuse func(t *store.Transition) bool
}

func (s *refusing) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	changed := append([]store.Transition(nil), batch...)
	for i := range changed {
		if s.refuse != nil && s.refuse(&changed[i]) {
			changed[i].First, changed[i].Last = changed[i].First+1000, changed[i].Last+1000
		}
	}
	return s.Store.Commit(ctx, changed)
}

// If the store refuses the transition of one run, it refuses those of its whole tree, and
// the engine decides all of them again.
func TestTreeIsRefused(t *testing.T) {
	for name, refused := range map[string]func(t *store.Transition, root store.Key) bool{
		"the start of a child": func(t *store.Transition, root store.Key) bool { return t.First == 1 && t.Run != root.Run },
		"the end of a child": func(t *store.Transition, root store.Key) bool {
			return t.Run != root.Run && t.Head != nil && t.Head.Ended != 0
		},
		"the parent": func(t *store.Transition, root store.Key) bool { return t.Run == root.Run && t.First > 1 },
	} {
		t.Run(name, func(t *testing.T) {
			mem := memory.New(memory.Options{})
			st := &refusing{Store: mem}
			h := newHarness(t, st, Config{}, noop())
			p := planOf(t, "name: outer\nsteps:\n  - {id: first, action: {name: noop}}\n"+strings.TrimPrefix(twoBelow, "\nname: outer\nsteps:\n"), noop())
			root := h.run(acc, p, nil)
			times := 0
			st.refuse = func(t *store.Transition) bool {
				if times > 0 || !refused(t, root) {
					return false
				}
				times++
				return true
			}
			h.finishTasks()
			h.wantStatus(root, "completed")
			if times != 1 {
				t.Errorf("%d transitions were refused", times)
			}
			checkTree(t, mem, acc, root.Run)
			if n := h.c.attempts.Arbiter.InUse(); n != 0 {
				t.Errorf("%d slots are still held", n)
			}
		})
	}
}

// What is pinned when the root run starts holds for the whole tree (R28, A26): a child
// run of a later generation has the recipe of the start, whatever is registered now.
func TestR28_TreeIsPinned(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	inner := planOf(t, "name: inner\nsteps: [{id: x, action: {name: noop}}]\n", noop())
	p := planOf(t, "name: outer\nsteps:\n  - {id: a, recipe: {ref: inner}}\n", noop())
	in := &StartRequest{Account: acc, Plan: p, Recipe: "outer"}
	p.Registered = []plan.Registered{{Ref: p.Children[0], Name: "inner", Version: "1.0.0", Plan: inner}}
	root := h.run(acc, in.Plan, nil)
	h.runUntilIdle(failure(h.takeTask(), fault.InputInvalid))
	h.wantStatus(root, "failed")
	p.Registered = nil
	h = h.reopen(st.Crash(0))
	h.runUntilIdle(request(root, machine.Input{Kind: machine.InRetry}))
	h.finishTasks()
	h.wantStatus(root, "completed")
	if f := checkTree(t, h.st, acc, root.Run); len(f.heads) != 3 {
		t.Errorf("the tree has %d runs, want 3", len(f.heads))
	}
	var start *journal.Start
	if err := store.EachEvent(context.Background(), h.st, h.children(root)[1], 0, func(ev *journal.Event) (err error) {
		if ev.Kind == journal.EvRunStarted {
			start, err = journal.DecodeStart(ev.Data)
		}
		return err
	}); err != nil || start.Version != "1.0.0" || start.Child.Gen != 2 {
		t.Errorf("the second child run starts with %+v, %v", start, err)
	}
}

// While a run is paused the runs below it begin no attempt, and start no child run; what
// is in flight goes on.
func TestPausedTree(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, twoBelow, noop())
	root := h.run(acc, p, nil)
	h.runUntilIdle(request(root, machine.Input{Kind: machine.InPause}))
	one, two := h.takeTask(), h.takeTask()
	h.runUntilIdle(success(one, `{}`), success(two, `{}`))
	if len(h.tasks) != 0 {
		t.Fatalf("%d attempts begin below a paused run", len(h.tasks))
	}
	h = h.reopen(st.Crash(0))
	h.runUntilIdle()
	if len(h.tasks) != 0 {
		t.Fatalf("%d attempts begin below a paused run after a restart", len(h.tasks))
	}
	h.runUntilIdle(request(root, machine.Input{Kind: machine.InUnpause}))
	if len(h.tasks) != 2 {
		t.Fatalf("%d attempts begin when the run goes on, want 2", len(h.tasks))
	}
	h.finishTasks()
	h.wantStatus(root, "completed")
	checkTree(t, h.st, acc, root.Run)
}

// An engine that continues selected runs continues their child runs.
func TestSelectedTree(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	root := h.run(acc, planOf(t, twoBelow, noop()), nil)
	h.run(acc, planOf(t, twoBelow, noop()), nil)
	h = newHarness(t, st.Crash(0), Config{Select: func(key store.Key) bool { return key == root }}, noop())
	h.runUntilIdle()
	if len(h.tasks) != 2 {
		t.Fatalf("%d attempts begin, want those of one tree", len(h.tasks))
	}
	h.finishTasks()
	h.wantStatus(root, "completed")
}
