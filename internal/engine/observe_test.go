// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// watcher is an observer that keeps what it is told.
type watcher struct {
	mu      sync.Mutex
	runs    []feed.Observed
	commits int
	errs    []error
	news    chan struct{} // 1 slot
}

func newWatcher() *watcher { return &watcher{news: make(chan struct{}, 1)} }

func (w *watcher) tell() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func (w *watcher) Commit(_ int, _ time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.commits++; err != nil {
		w.errs = append(w.errs, err)
	}
}

func (w *watcher) Durable(runs []feed.Observed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs = append(w.runs, runs...)
	w.tell()
}

// kinds counts the events that are observed of a run.
func (w *watcher) kinds(run string) map[journal.EventKind]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := map[journal.EventKind]int{}
	for i := range w.runs {
		if w.runs[i].Key.Run == run {
			_ = journal.EachEvent(w.runs[i].Frames, func(ev *journal.Event) error { n[ev.Kind]++; return nil })
		}
	}
	return n
}

// first is the number of the first event that is observed of a run.
func (w *watcher) first(t *testing.T, run string) uint64 {
	t.Helper()
	_, _, _, last := w.of(t, run)
	n := 0
	for _, of := range w.kinds(run) {
		n += of
	}
	return last - uint64(n) + 1
}

// runsEnded counts the runs that have ended.
func (w *watcher) runsEnded() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.runs {
		if w.runs[i].Ended {
			n++
		}
	}
	return n
}

// of returns how often a run is said to have started and ended, what it used, and the
// number of its last event. Every event of the run must be observed once, in order.
func (w *watcher) of(t *testing.T, run string) (started, ended int, used int64, last uint64) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.runs {
		o := &w.runs[i]
		if o.Key.Run != run {
			continue
		}
		if o.Started {
			started++
		}
		if o.Ended {
			ended++
		}
		used += o.Used
		if err := journal.EachEvent(o.Frames, func(ev *journal.Event) error {
			if last != 0 && ev.Seq != last+1 {
				t.Errorf("event %d is observed after event %d", ev.Seq, last)
			}
			last = ev.Seq
			return nil
		}); err != nil {
			t.Error(err)
		}
		if len(o.Frames) > 0 && (o.Plan == nil || o.Start == nil || o.Start.Run != run) {
			t.Errorf("an event of run %s comes without its plan or start", run)
		}
	}
	return started, ended, used, last
}

// until waits until ok, which is checked whenever something is observed.
func (w *watcher) until(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-w.news:
		case <-deadline:
			t.Fatal("it was not observed")
		}
	}
}

// X229: an observer is told everything of every run, once, and nothing again after a stop
// or a crash.
func TestX229_ObserverIsToldEverythingOnce(t *testing.T) {
	st := memory.New(memory.Options{})
	w := newWatcher()
	e := openEngine(t, st, Config{Observer: w}, noop())
	p := planOf(t, `
name: a
steps:
  - {id: a, action: {name: noop}}
  - {id: b, recipe: {inline: {name: inner, steps: [{id: c, action: {name: noop}}]}}}
  - {id: w, wait: {signal: go}}
  - {id: v, wait: {signal: on}}
`, noop())
	run := start(t, e, p, nil)
	w.until(t, func() bool { return w.kinds(run)[journal.EvNodeWaiting] == 1 })
	if _, err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	started, ended, _, first := w.of(t, run)
	if started != 1 || ended != 0 || w.runsEnded() != 1 {
		t.Errorf("the run has started %d times and ended %d times; %d runs have ended, want the inner one", started, ended, w.runsEnded())
	}
	w = newWatcher()
	e = openEngine(t, st, Config{Observer: w}, noop())
	if err := e.Signal(t.Context(), acc, run, "go", nil); err != nil {
		t.Fatal(err)
	}
	w.until(t, func() bool { return w.kinds(run)[journal.EvNodeWaiting] == 1 })
	e.crash()
	if started, ended, _, last := w.of(t, run); started != 0 || ended != 0 || w.first(t, run) != first+1 {
		t.Errorf("after the stop it has started %d times and ended %d times, from event %d to %d; %d was the last one before", started, ended, w.first(t, run), last, first)
	}
	w = newWatcher()
	e = openEngine(t, st, Config{Observer: w}, noop())
	if err := e.Signal(t.Context(), acc, run, "on", nil); err != nil {
		t.Fatal(err)
	}
	if head := waitForEnd(t, e, run); head.Status != "completed" {
		t.Fatalf("the run is %s: %s", head.Status, head.Message)
	}
	w.until(t, func() bool { return w.runsEnded() == 1 })
	page, err := st.Events(t.Context(), store.Key{Account: acc, Run: run}, 0, 1<<20)
	if started, ended, _, last := w.of(t, run); err != nil || started != 0 || ended != 1 || last != page.Last {
		t.Errorf("after the crash it has started %d times and ended %d times, up to event %d of %d (%v)", started, ended, last, page.Last, err)
	}
}

// What a run used is told as the difference since its last head, so the sum is right.
func TestObserverIsToldWhatWasUsed(t *testing.T) {
	w := newWatcher()
	a := costing(8, nil)
	e := openEngine(t, memory.New(memory.Options{}), Config{Observer: w}, a)
	run := start(t, e, planOf(t, "name: a\nsteps: [{id: a, action: {name: "+a.Name+"}}, {id: b, action: {name: "+a.Name+"}}]", a), nil)
	head := waitForEnd(t, e, run)
	w.until(t, func() bool { return w.runsEnded() == 1 })
	if _, _, used, _ := w.of(t, run); used != head.Used || used != 16 {
		t.Errorf("the run has used %d credits, observed are %d", head.Used, used)
	}
}

// A fullStore has no room for some commits.
type fullStore struct {
	store.Store
	fails atomic.Int32
}

func (s *fullStore) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	if s.fails.Add(-1) >= 0 {
		return nil, fault.New(fault.StoreFull, "full")
	}
	return s.Store.Commit(ctx, batch)
}

// I1: a commit that failed is told as a failure, and nothing of it is observed.
func TestI1_FailedCommitIsNotObserved(t *testing.T) {
	w := newWatcher()
	st := &fullStore{Store: memory.New(memory.Options{})}
	e := openEngine(t, st, Config{Observer: w}, noop())
	st.fails.Store(1)
	p := planOf(t, chain(1), noop())
	if _, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p}); fault.CodeOf(err) != fault.StoreFull {
		t.Fatalf("the start ended with %v", err)
	}
	w.mu.Lock()
	if len(w.runs) != 0 || len(w.errs) != 1 {
		t.Errorf("%d runs and %d failures are observed", len(w.runs), len(w.errs))
	}
	w.mu.Unlock()
	var run string
	w.until(t, func() bool {
		s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p})
		if run = s.Run; err != nil {
			w.tell() // the engine has not read the store again yet
		}
		return err == nil
	})
	waitForEnd(t, e, run)
	w.until(t, func() bool { return w.runsEnded() == 1 })
	if started, ended, _, _ := w.of(t, run); started != 1 || ended != 1 {
		t.Errorf("the run has started %d times and ended %d times", started, ended)
	}
}
