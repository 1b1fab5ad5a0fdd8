// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// openSQLite opens the store of a data directory.
func openSQLite(t testing.TB, dir string) *sqlite.Store {
	t.Helper()
	st, err := sqlite.Open(context.Background(), sqlite.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// The engine is killed repeatedly over a store on disk. Every acknowledged run ends, no
// recorded step is repeated, and attempts are repeated only under the same effect key
// (F01, F03).
func TestF01_KilledOverSQLite(t *testing.T) {
	dir := t.TempDir()
	dice := rand.New(rand.NewPCG(3, 3))
	var mu sync.Mutex
	keys := map[string]map[string]bool{} // run and step -> effect keys of its attempts
	work := newAction("noop", func(ctx context.Context, task *action.Task) (action.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		at := task.Run + " " + task.Step
		if keys[at] == nil {
			keys[at] = map[string]bool{}
		}
		keys[at][task.EffectKey] = true
		return action.Result{Output: map[string]any{"ok": true}}, nil
	})
	var runs []string
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	p := planOf(t, strings.Replace(fan(20), "order: none\n", "", 1), work)
	clock := time.Now()
	for round := range rounds {
		st := openSQLite(t, dir)
		// The starts are hours apart, so that no run becomes suspect.
		cfg := Config{MaxLoaded: 5, Now: func() time.Time { return clock.Add(time.Duration(round) * time.Hour) }}
		e := openEngine(t, st, cfg, work)
		for range 4 {
			runs = append(runs, start(t, e, p, nil))
		}
		last := runs[len(runs)-1]
		stop := uint64(1 + dice.IntN(40))
		for ev, err := range e.Watch(t.Context(), acc, last, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Seq >= stop {
				break
			}
		}
		e.crash()
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	st := openSQLite(t, dir)
	defer st.Close()
	e := openEngine(t, st, Config{Now: func() time.Time { return clock.Add(20 * time.Hour) }}, work)
	recovered := 0
	for _, run := range runs {
		if head := waitForEnd(t, e, run); head.Status != "completed" {
			t.Errorf("run %s is %s: %s %s", run, head.Status, head.Code, head.Message)
		}
		lines := trace(t, st, p, acc, run)
		recovered += countPrefix(lines, "run.recovered")
		for i := range 20 {
			if n := countPrefix(lines, fmt.Sprintf("node.completed s%d attempt", i)); n != 1 {
				t.Errorf("run %s: step s%d completed %d times", run, i, n)
			}
		}
		verify(t, st, store.Key{Account: acc, Run: run})
	}
	mu.Lock()
	defer mu.Unlock()
	for at, k := range keys {
		if len(k) != 1 {
			t.Errorf("%s was attempted under %d effect keys", at, len(k))
		}
	}
	t.Logf("%d runs, %d times interrupted", len(runs), recovered)
}

// After a crash and after a clean stop the same work continues over the disk, with
// suspended runs, timers and signals.
func TestRestartOverSQLite(t *testing.T) {
	for _, clean := range []bool{false, true} {
		dir := t.TempDir()
		st := openSQLite(t, dir)
		e := openEngine(t, st, Config{MaxLoaded: 3}, noop())
		p := planOf(t, waiterRecipe, noop())
		var runs []string
		for i := range 20 {
			runs = append(runs, start(t, e, p, map[string]any{"n": int64(i)}))
		}
		if clean {
			if _, err := e.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		} else {
			e.crash()
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		st = openSQLite(t, dir)
		now := time.Now().Add(time.Hour)
		var mu sync.Mutex
		clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
		e = openEngine(t, st, Config{MaxLoaded: 3, Now: clock}, noop())
		for i, run := range runs {
			if err := e.Signal(t.Context(), acc, run, "go", int64(i)); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, run := range runs {
				if head, err := e.Wait(t.Context(), acc, run); err != nil || head.Status != "completed" {
					t.Errorf("clean=%v: run is %+v (%v)", clean, head, err)
				}
			}
		}()
		// A day is longer than their waits and shorter than their ttl, however slow a
		// busy machine is.
		day := now.Add(24 * time.Hour)
		for ended := false; !ended; {
			mu.Lock()
			if now.Before(day) {
				now = now.Add(time.Minute)
			}
			mu.Unlock()
			_ = e.Sync(t.Context()) // makes the loop read the clock
			select {
			case <-done:
				ended = true
			default:
				runtime.Gosched()
			}
		}
		if _, err := e.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A loop over 100,000 items keeps a window in memory, and its last items cost as much
// as its first ones.
func TestF22_LoopOf100000Items(t *testing.T) {
	n := 100_000
	if testing.Short() || raceOn {
		n = 10_000
	}
	src := `
name: wide
limits: {max_total_steps: 1000000, max_loop_items: 1000000}
steps:
  - id: each
    loop:
      over: input.items
      maxConcurrency: 200
      steps: [{id: s, action: {name: noop}}]
`
	st := memory.New(memory.Options{})
	e := openEngine(t, st, Config{Files: blobs(t).Files}, noop())
	items := make([]any, n)
	for i := range items {
		items[i] = int64(i)
	}
	p := planOf(t, src, noop())
	run := start(t, e, p, map[string]any{"items": items})
	var first, half, last time.Time
	var most uint64
	for ev, err := range e.Watch(t.Context(), acc, run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		switch ev.Seq {
		case 1:
			first = time.UnixMicro(ev.At)
		case uint64(2*n + 1):
			half = time.UnixMicro(ev.At)
		}
		if ev.Seq%50_000 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
		}
		last = time.UnixMicro(ev.At)
	}
	if head := waitForEnd(t, e, run); head.Status != "completed" {
		t.Fatalf("run is %s: %s %s", head.Status, head.Code, head.Message)
	}
	t.Logf("%d items: first half %s, second half %s, %d MiB heap at most (journal included)", n, half.Sub(first), last.Sub(half), most>>20)
	if most > 1<<30 {
		t.Errorf("%d MiB of heap", most>>20)
	}
}

// The journal stays small and every run can be read from its first event, however much
// has happened. ROUX_LONG=1 runs a million transitions.
func TestJournalStaysBounded(t *testing.T) {
	transitions, limit := int64(20_000), int64(2<<20)
	cfg := Config{CompactBytes: 512 << 10, CompactCheck: 64 << 10}
	if os.Getenv("ROUX_LONG") != "" {
		transitions, limit, cfg = 1_000_000, 64<<20, Config{}
	}
	if testing.Short() {
		transitions = 4_000
	}
	st := openSQLite(t, t.TempDir())
	defer st.Close()
	e := openEngine(t, st, cfg, noop())
	// Runs that end are compacted anyway; these wait in the middle, with work in hand.
	p := planOf(t, `
name: half
order: none
steps:
  - id: each
    loop: {over: 'input.items', steps: [{id: s, action: {name: noop}}]}
  - {id: open, wait: {signal: go}}
`, noop())
	items := make([]any, 20)
	for i := range items {
		items[i] = int64(i)
	}
	var runs []string
	most := int64(0)
	for {
		s, err := st.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, s.JournalBytes)
		if s.Transitions >= transitions {
			t.Logf("%d transitions of %d runs in %d commits, at most %d KiB of journal", s.Transitions, len(runs), s.Commits, most>>10)
			break
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 100 {
			wg.Go(func() {
				run, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Parameters: map[string]any{"items": items}})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				runs = append(runs, run.Run)
				mu.Unlock()
				for ev, err := range e.Watch(t.Context(), acc, run.Run, 0) {
					if err != nil {
						t.Error(err)
					}
					if err != nil || ev.Name() == "node.completed" && ev.Path == "" {
						break // the loop has ended
					}
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
	}
	if most > limit {
		t.Errorf("the journal grew to %d KiB, want at most %d", most>>10, limit>>10)
	}
	for i := 0; i < len(runs); i += max(1, len(runs)/50) {
		if lines := trace(t, st, p, acc, runs[i]); lines[0] != "run.started" || countPrefix(lines, "node.completed each[") != len(items) {
			t.Errorf("run %s reads:\n%s", runs[i], strings.Join(lines, "\n"))
		}
	}
}
