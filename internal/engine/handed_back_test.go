// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// processes are one store and the processes that own it, one after the other.
type processes struct {
	t      *testing.T
	st     *memory.Store
	now    int64
	s      *Stage
	unread store.Key // a run that the next process cannot read
}

// begin starts the next process; the previous one has ended, one way or another.
func (l *processes) begin() {
	l.t.Helper()
	if l.s != nil {
		l.st = l.st.Crash(0)
	}
	l.now += 1_000_000
	cfg := Config{Store: &unreadable{Store: l.st, key: l.unread}, Actions: catalogue.New(noop()), Logger: testLog(l.t)}
	var err error
	if l.s, err = OpenStage(l.t.Context(), cfg, nil, l.now); err != nil {
		l.t.Fatal(err)
	}
}

// settle handles everything that follows within a second.
func (l *processes) settle(ms ...*Message) {
	l.t.Helper()
	for end := l.now + 1_000_000; l.now < end; l.now += 10_000 {
		l.s.Handle(l.now, ms...)
		ms = nil
		for batch, ok := l.s.EncodeBatch(); ok; batch, ok = l.s.EncodeBatch() {
			if len(batch) == 0 {
				l.s.Committed(nil, nil)
				continue
			}
			l.s.Committed(l.st.Commit(l.t.Context(), batch))
		}
	}
}

// stop stops the process cleanly; its attempts are abandoned.
func (l *processes) stop() {
	l.t.Helper()
	l.s.Stop()
	for n := 0; !l.s.Stopped(); n++ {
		if n > 10 {
			l.t.Fatal("the engine does not stop")
		}
		for batch, ok := l.s.EncodeBatch(); ok; batch, ok = l.s.EncodeBatch() {
			l.s.Committed(l.st.Commit(l.t.Context(), batch))
		}
	}
}

// losses returns the attempts of a run that were lost, in order: true = handed back.
func (l *processes) losses(key store.Key) (back []bool) {
	l.t.Helper()
	err := store.EachEvent(l.t.Context(), l.st, key, 0, func(ev *journal.Event) error {
		if ev.Kind == journal.EvNodeLost {
			back = append(back, ev.Flag&1 != 0)
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return back
}

// Attempts that a clean stop abandoned are handed back, even if the next process
// crashed before it could record that. Attempts that a crash took are lost, even if a
// process that had not loaded the run was stopped cleanly since (F45, X90).
func TestF45_HandedBackOrLost(t *testing.T) {
	l := &processes{t: t, st: memory.New(memory.Options{}), now: testEpoch}
	l.begin()
	m, err := l.s.Start(&StartRequest{Account: acc, Plan: planOf(t, chain(1), noop())})
	if err != nil {
		t.Fatal(err)
	}
	l.settle(m)
	l.stop()
	l.begin() // and crashes
	l.begin()
	l.settle()
	if got := l.losses(m.Key()); len(got) != 1 || !got[0] {
		t.Fatalf("after a stop in order and a crash the losses are %v, want one that was handed back", got)
	}

	l.begin() // the previous one crashed with the attempt in flight
	l.settle()
	if got := l.losses(m.Key()); len(got) != 2 || got[1] {
		t.Fatalf("after a crash the losses are %v, want another one, not handed back", got)
	}

	l.begin() // the previous one crashed; this is the third crash: runs are loaded one at a time
	l.stop()  // before it loaded this run
	if got := l.losses(m.Key()); len(got) != 2 {
		t.Fatalf("the run recorded %d losses already; the test is useless", len(got))
	}
	l.begin()
	l.settle()
	if got := l.losses(m.Key()); len(got) != 3 || got[2] {
		t.Errorf("after a crash and a stop in order the losses are %v, want another one, not handed back", got)
	}
}

// A process that is stopped in order while a child run waits for the run above it to be
// readable does not hand back what a crash took, even if the clock was turned back (F45).
func TestF45_StoppedBeforeTheParentCouldBeRead(t *testing.T) {
	l := &processes{t: t, st: memory.New(memory.Options{}), now: testEpoch}
	l.begin()
	l.begin()
	m, err := l.s.Start(&StartRequest{Account: acc, Plan: planOf(t, threeLevels, noop())})
	if err != nil {
		t.Fatal(err)
	}
	l.settle(m)
	middle := childrenOf(t, l.st, m.Key().Run)[0]
	child := store.Key{Account: acc, Run: childrenOf(t, l.st, middle)[0]}
	for range 3 {
		l.settle()
	}
	resume, err := l.s.Signal(child, "go", 1)
	if err != nil {
		t.Fatal(err)
	}
	l.settle(resume)
	if effects := l.s.Effects(); len(effects) != 1 {
		t.Fatalf("%d attempts are in flight", len(effects))
	}

	l.now -= 30_000_000
	l.unread = m.Key()
	l.begin() // the second crash: runs are loaded one at a time
	l.settle()
	l.stop()
	l.unread = store.Key{}
	l.begin()
	l.settle()
	if got := l.losses(child); len(got) != 1 || got[0] {
		t.Errorf("after a crash and a stop in order the losses are %v, want one, not handed back", got)
	}
}
