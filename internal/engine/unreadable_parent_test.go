// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// unreadable is a store that cannot read one run for a while.
type unreadable struct {
	store.Store
	key    store.Key // "" = it can read all
	failed int
}

func (s *unreadable) Load(ctx context.Context, key store.Key) (*store.Saved, error) {
	if s.key.Run != "" && s.key == key {
		s.failed++
		return nil, fault.New(fault.ServiceUnavailable, "the store does not answer")
	}
	return s.Store.Load(ctx, key)
}

const threeLevels = `
name: outer
steps:
  - id: a
    recipe:
      inline:
        name: middle
        steps:
          - id: b
            recipe:
              inline:
                name: inner
                steps:
                  - {id: go, wait: {signal: go}}
                  - {id: x, action: {name: noop}}
                  - {id: nap, wait: {duration: 10m}}
                  - {id: list, transform: {expression: '[go, x]'}}
                  - {id: y, action: {name: noop}}
`

// large is JSON that needs more memory than a child run has at its start.
var large = fmt.Sprintf(`{"text": %q}`, strings.Repeat("x", 100_000))

// suspendedTree returns a tree of three runs, from the root down, that are not in memory
// because the lowest waits for a signal.
func suspendedTree(t *testing.T, st store.Store) (h *harness, tree []store.Key) {
	t.Helper()
	h = newHarness(t, st, Config{}, noop())
	root := h.run(acc, planOf(t, threeLevels, noop()), nil)
	middle := h.children(root)[0]
	tree = []store.Key{root, middle, h.children(middle)[0]}
	awaitEmpty(t, h)
	return h, tree
}

// awaitEmpty lets time pass until no run is in memory.
func awaitEmpty(t *testing.T, h *harness) {
	t.Helper()
	h.advanceClock(10_000_000)
	if n := len(h.c.residency.runs); n != 0 {
		t.Fatalf("%d runs are in memory", n)
	}
}

func signal(key store.Key, data string) *input {
	return request(key, machine.Input{Kind: machine.InSignal, Name: "go", Data: []byte(data)})
}

// eachAbove runs a test for each run above the lowest of a tree, which the store cannot
// read from some moment on.
func eachAbove(t *testing.T, test func(t *testing.T, st *unreadable, which int)) {
	for which, name := range []string{"root", "parent"} {
		t.Run(name, func(t *testing.T) { test(t, &unreadable{Store: memory.New(memory.Options{})}, which) })
	}
}

// wantWhole finishes a tree, and checks that it is as if nothing had happened.
func wantWhole(t *testing.T, h *harness, tree []store.Key) {
	t.Helper()
	h.advanceClock(2_000_000)
	h.finishTasks()
	h.advanceClock(11 * 60 * 1_000_000)
	h.finishTasks()
	h.wantStatus(tree[0], "completed")
	f := checkTree(t, h.st, acc, tree[0].Run)
	if len(f.heads) != len(tree) {
		t.Errorf("the tree has %d runs, want %d", len(f.heads), len(tree))
	}
	for _, key := range tree {
		verify(t, h.st, key)
		for _, line := range h.trace(key, f.plans[key.Run]) {
			if strings.HasPrefix(line, "node.failed") || strings.HasPrefix(line, "node.retried") || strings.HasPrefix(line, "node.lost") {
				t.Errorf("run %s: %s", key.Run, line)
			}
		}
	}
	if orphans, _ := h.c.attempts.Away(); h.c.attempts.Arbiter.InUse()+orphans+len(h.c.tree.postponed) != 0 {
		n := h.c.attempts.Arbiter.InUse() + orphans + len(h.c.tree.postponed)
		t.Errorf("%d slots, attempts and inputs are left", n)
	}
}

// A request that needs the runs above a child run is refused while they cannot be read, and
// succeeds afterwards.
func TestSignalWhileTheParentCannotBeRead(t *testing.T) {
	eachAbove(t, func(t *testing.T, st *unreadable, which int) {
		h, tree := suspendedTree(t, st)
		st.key = tree[which]
		in := signal(tree[2], large)
		h.runUntilIdle(in)
		wantCode(t, h.answer(in).err, fault.ServiceUnavailable)
		h.advanceClock(10_000_000)
		st.key = store.Key{}
		in = signal(tree[2], large)
		h.runUntilIdle(in)
		if err := h.answer(in).err; err != nil {
			t.Fatal(err)
		}
		wantWhole(t, h, tree)
	})
}

// The report of a worker waits while the runs above its child run cannot be read. They are
// read again now and then.
func TestReportWhileTheParentCannotBeRead(t *testing.T) {
	eachAbove(t, func(t *testing.T, st *unreadable, which int) {
		lost := false
		st.Store = memory.New(memory.Options{OnCommit: func(int, []store.Transition) memory.Outcome {
			if lost {
				lost = false
				return memory.Refused
			}
			return memory.OK
		}})
		h, tree := suspendedTree(t, st)
		h.runUntilIdle(signal(tree[2], `1`))
		task := h.takeTask()

		// A failed commit takes the runs out of memory; the attempt goes on.
		lost = true
		h.runUntilIdle(h.startInput(acc, planOf(t, chain(1), noop()), nil))
		st.key = tree[which]
		h.advanceClock(5_000_000)
		if h.c.recovery.stalled != nil || h.c.residency.runs[tree[2]] != nil || st.failed == 0 {
			t.Fatalf("stalled %v, child in memory %v, reads that failed %d", h.c.recovery.stalled, h.c.residency.runs[tree[2]] != nil, st.failed)
		}
		h.runUntilIdle(success(task, large))
		stop := request(tree[2], machine.Input{Kind: machine.InCancel})
		h.runUntilIdle(stop)
		wantCode(t, h.answer(stop).err, fault.ServiceUnavailable)
		st.failed = 0
		h.advanceClock(60_000_000)
		if st.failed < 20 || st.failed > 200 {
			t.Errorf("%d reads failed in a minute", st.failed)
		}
		h.wantStatus(tree[2], "running")
		if len(h.tasks) != 0 {
			t.Fatal("the attempt is handed out again")
		}
		st.key = store.Key{}
		h.advanceClock(2_000_000)
		h.wantStatus(tree[2], "running")
		wantWhole(t, h, tree)
	})
}

// After a restart no attempt of a child run begins before the runs above it can be read.
func TestRestartWhileTheParentCannotBeRead(t *testing.T) {
	eachAbove(t, func(t *testing.T, st *unreadable, which int) {
		mem := st.Store.(*memory.Store)
		h, tree := suspendedTree(t, st)
		h.runUntilIdle(signal(tree[2], `1`))
		h.takeTask()
		st.Store, st.key = mem.Crash(0), tree[which]
		h = h.reopen(st)
		h.runUntilIdle()
		h.advanceClock(10_000_000)
		if len(h.tasks) != 0 {
			t.Fatalf("%d attempts begin", len(h.tasks))
		}
		st.key = store.Key{}
		h.advanceClock(2_000_000)
		h.runUntilIdle(success(h.takeTask(), large))
		h.advanceClock(11 * 60 * 1_000_000)
		h.finishTasks()
		h.wantStatus(tree[0], "completed")
		checkTree(t, st, acc, tree[0].Run)
	})
}

// The timer of a child run fires once the runs above it can be read.
func TestTimerWhileTheParentCannotBeRead(t *testing.T) {
	eachAbove(t, func(t *testing.T, st *unreadable, which int) {
		h, tree := suspendedTree(t, st)
		h.runUntilIdle(signal(tree[2], `1`))
		h.runUntilIdle(success(h.takeTask(), `"`+strings.Repeat("x", 9_000)+`"`))
		awaitEmpty(t, h)
		st.key = tree[which]
		h.advanceClock(15 * 60 * 1_000_000)
		if st.failed < 100 || st.failed > 2_000 {
			t.Errorf("%d reads failed in five minutes", st.failed)
		}
		h.wantStatus(tree[2], "running")
		st.key = store.Key{}
		wantWhole(t, h, tree)
	})
}

// A child run that needs more than its share while a run above it is quarantined does not
// fail. It is quarantined as well, with those between them, until that run is released.
func TestMoreThanItsShareUnderAQuarantinedParent(t *testing.T) {
	eachAbove(t, func(t *testing.T, st *unreadable, which int) {
		h, tree := suspendedTree(t, st)
		h.runUntilIdle(signal(tree[2], `1`))
		task := h.takeTask()
		h.c.observer = panicsFor(func(key store.Key, _ *machine.Run, _ *machine.Input) bool { return key == tree[which] })
		h.runUntilIdle(request(tree[which], machine.Input{Kind: machine.InPause}))
		h.c.observer = nil
		if h.head(tree[which]).Quarantine == "" {
			t.Fatal("the run above is not quarantined")
		}
		in := signal(tree[2], large)
		h.runUntilIdle(in)
		wantCode(t, h.answer(in).err, fault.Quarantined)
		if msg := fault.Message(h.answer(in).err); !strings.Contains(msg, tree[which].Run) {
			t.Errorf("the message does not name the run above: %s", msg)
		}
		if h.head(tree[2]).Quarantine != "" {
			t.Fatal("a request that is refused quarantines the run")
		}

		h.runUntilIdle(success(task, large))
		for k := which + 1; k < len(tree); k++ {
			if q := h.head(tree[k]).Quarantine; !strings.HasPrefix(q, store.CutOffReason) || !strings.Contains(q, tree[k-1].Run) {
				t.Fatalf("the run at depth %d is quarantined for %q", k, q)
			}
		}
		h = h.reopen(st)
		h.release(tree[2]) // too early
		h.runUntilIdle(success(h.takeTask(), large))
		if q := h.head(tree[2]).Quarantine; !strings.HasPrefix(q, store.CutOffReason) {
			t.Fatalf("the child is quarantined for %q", q)
		}
		h.release(tree[which])
		h.runUntilIdle(success(h.takeTask(), large))
		h.advanceClock(11 * 60 * 1_000_000)
		h.finishTasks()
		h.wantStatus(tree[0], "completed")
		checkTree(t, st, acc, tree[0].Run)
	})
}

// Suspects of one tree are loaded one at a time, the parent first, although it comes last
// in the store.
func TestSuspectsOfATree(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	h.seq = 99_999_998 // of run_99999999, which comes after its child
	p := planOf(t, "name: outer\norder: none\nsteps:\n  - {id: a, recipe: {inline: {name: inner, steps: [{id: x, action: {name: noop}}]}}}\n  - {id: b, action: {name: noop}}\n", noop())
	root := h.run(acc, p, nil)
	child := h.children(root)[0]
	if child.Run > root.Run {
		t.Fatalf("child %s, root %s", child.Run, root.Run)
	}
	for range 2 {
		h = h.reopen(st)
	}
	if n := len(h.c.recovery.suspects); n != 2 {
		t.Fatalf("%d suspects", n)
	}
	in := request(child, machine.Input{Kind: machine.InPause})
	h.runUntilIdle(in)
	wantCode(t, h.answer(in).err, fault.ServiceUnavailable)
	h.advanceClock(suspectPause / 2)
	if h.c.residency.runs[root] == nil || h.c.residency.runs[child] != nil {
		t.Fatalf("in memory are the root %v, the child %v; want the root alone", h.c.residency.runs[root] != nil, h.c.residency.runs[child] != nil)
	}
	h.advanceClock(suspectPause)
	if h.c.residency.runs[child] == nil {
		t.Fatal("the child is not loaded after its parent")
	}
	h.advanceClock(2 * lastSuspectPause)
	h.finishTasks()
	h.wantStatus(root, "completed")
	checkTree(t, st, acc, root.Run)
}
