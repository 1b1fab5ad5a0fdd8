// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// soakShapes are what a long-lived engine is busy with: steps in a row, beside
// each other and in loops, waits, retries, failures with compensations. Unit is
// how long a wait is.
func soakShapes(t testing.TB, unit time.Duration) (plans []*plan.Plan, actions []*action.Action) {
	t.Helper()
	flaky := act("flaky", func(_ context.Context, task *action.Task) (action.Result, error) {
		if task.Attempt < 2 {
			return action.Result{}, fault.New(fault.ServiceUnavailable, "not yet")
		}
		return action.Result{Output: int64(task.Attempt)}, nil
	})
	text := act("text", func(_ context.Context, task *action.Task) (action.Result, error) {
		return action.Result{Output: strings.Repeat(task.EffectKey, 20)}, nil
	})
	actions = []*action.Action{noop(), flaky, text}
	for _, src := range []string{`
name: row
steps:
  - {id: a, action: {name: text}, outputBinding: text}
  - {id: nap, wait: {duration: UNIT}}
  - {id: b, transform: {expression: 'size(text)'}}
  - {id: c, action: {name: noop}}
`, `
name: loop
steps:
  - id: each
    loop: {over: '[1, 2, 3, 4, 5, 6, 7, 8]', maxConcurrency: 4, steps: [{id: s, action: {name: text}}]}
  - {id: asked, wait: {signal: go, timeout: UNIT}, on_timeout: continue}
`, `
name: stubborn
steps:
  - {id: a, action: {name: flaky}, retryPolicy: {maxAttempts: 3, initialDelay: UNIT}, compensate: {action: {name: noop}}}
  - {id: no, fail: {message: by design}}
`} {
		src = strings.ReplaceAll(src, "UNIT", unit.String())
		if strings.Contains(src, "on_timeout") {
			src = strings.Replace(src, ", on_timeout: continue", ", continue_on_error: true", 1)
		}
		plans = append(plans, planOf(t, src, actions...))
	}
	return plans, actions
}

// slope is how much a series grows in an hour, as a share of its middle: the
// median over all pairs (Theil and Sen), which single peaks do not move.
func slope(hours, values []float64) float64 {
	var slopes []float64
	for i := range values {
		for j := range i {
			slopes = append(slopes, (values[i]-values[j])/(hours[i]-hours[j]))
		}
	}
	slices.Sort(slopes)
	sorted := slices.Sorted(slices.Values(values))
	return slopes[len(slopes)/2] / sorted[len(sorted)/2]
}

// wantAtRest fails unless an engine holds nothing any more: no run, attempt, slot,
// subscriber, request.
func wantAtRest(t *testing.T, e *Engine) {
	t.Helper()
	attempts, slots := (&Stage{e: e}).Held()
	e.hub.mu.Lock()
	subscribers := len(e.hub.subs)
	e.hub.mu.Unlock()
	if attempts != 0 || slots != 0 || subscribers != 0 || e.pending.Load() != 0 || e.length.Load() != 0 {
		t.Errorf("%d attempts, %d slots, %d subscribers, %d requests and %d messages are left",
			attempts, slots, subscribers, e.pending.Load(), e.length.Load())
	}
	for key, l := range e.core.runs {
		t.Errorf("run %s is still in memory: %v", key.Run, l.run.Status())
	}
}

// F50: an engine works for a day. Runs come every minute, wait, fail, are retried,
// watched, signalled and cancelled, and are removed two hours after they ended.
// After six hours it holds as much memory as after twenty-four, and in the end
// nothing. The day takes seconds: its clock is synctest's.
func TestF50_OneDay(t *testing.T) {
	day := 24
	if testing.Short() || raceOn {
		day = 12
	}
	var hours, heap []float64
	runs := 0
	synctest.Test(t, func(t *testing.T) {
		plans, actions := soakShapes(t, 5*time.Minute)
		st := memory.New(memory.Options{})
		e := open(t, st, Config{Logger: slog.New(slog.DiscardHandler), Blobs: blobs(t), Retention: Retention{Runs: 2 * time.Hour}, ProviderSlots: map[string]int{"p": 3}}, actions...)
		var wg sync.WaitGroup
		for hour := range day {
			for minute := range 60 {
				for i := range 4 {
					n := hour + minute + i
					run := start(t, e, plans[n%len(plans)], nil)
					runs++
					wg.Go(func() { follow(t, e, run, n) })
				}
				time.Sleep(time.Minute)
			}
			if hour >= day/4 {
				synctest.Wait()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				hours, heap = append(hours, float64(hour)), append(heap, float64(m.HeapAlloc))
			}
		}
		wg.Wait()
		time.Sleep(3 * time.Hour) // the last ones are removed
		synctest.Wait()
		heads, err := e.List(t.Context(), store.Query{Account: acc, Limit: 500})
		if err != nil || len(heads) != 0 {
			t.Errorf("%d runs are stored after their time, %v", len(heads), err)
		}
		if _, err := e.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		wantAtRest(t, e)
	}) // which fails when a goroutine is left
	if s := slope(hours, heap); s > 0.01 {
		t.Errorf("the heap grows by %.2f %% an hour: %.0f", 100*s, heap)
	} else {
		t.Logf("%d runs in %d hours, heap %.1f MiB at the end, slope %.2f %% an hour", runs, day, heap[len(heap)-1]/(1<<20), 100*s)
	}
}

// follow is a user of one run: who watches it, steers it, or only waits.
func follow(t *testing.T, e *Engine, run string, n int) {
	var err error
	switch n % 4 {
	case 0:
		for _, err = range e.Watch(t.Context(), acc, run, 0) {
			if err != nil {
				break
			}
		}
	case 1:
		err = e.Signal(t.Context(), acc, run, "go", "on")
	case 2:
		if n%8 == 2 {
			err = e.Cancel(t.Context(), acc, run, "enough")
		}
	}
	if code := fault.CodeOf(err); err != nil && code != fault.TooLate && code != fault.Conflict {
		t.Errorf("run %s: %v", run, err)
	}
	if _, err := e.Wait(t.Context(), acc, run); err != nil && !errors.Is(err, fault.RunNotFound) {
		t.Errorf("run %s: %v", run, err)
	}
}

// F50: the same over the real store on a real disk, for a few seconds; half an hour
// with ROUX_LONG=1, and as long as ROUX_SOAK says. At rest the process holds
// the descriptors, goroutines and temporary files that it had before, and in the
// second half of its time its memory does not grow.
func TestF50_Soak(t *testing.T) {
	length := 5 * time.Second
	if os.Getenv("ROUX_LONG") != "" {
		length = 30 * time.Minute
	}
	if text := os.Getenv("ROUX_SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	before := holdings(t, dir)
	files := blobs(t)
	plans, actions := soakShapes(t, 200*time.Millisecond)
	st := disk(t, dir)
	e := open(t, st, Config{Logger: slog.New(slog.DiscardHandler), Blobs: files, Retention: Retention{Runs: 20 * time.Second}, ParkAfter: time.Second}, actions...)
	var hours, memoryUse, heap []float64
	runs, began := 0, time.Now()
	var opened map[string]int
	for round := 0; time.Since(began) < length; round++ {
		// A round is 50 runs beside each other and their users; they pace it by
		// what they wait for.
		var wg sync.WaitGroup
		for i := range 50 {
			run := start(t, e, plans[(round+i)%len(plans)], nil)
			runs++
			wg.Go(func() { follow(t, e, run, round+i) })
		}
		wg.Wait()
		if round%20 == 0 {
			if _, err := e.Sweep(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
		if at := time.Since(began); round%20 == 0 && at > length/2 {
			debug.FreeOSMemory()
			hours, memoryUse = append(hours, at.Hours()), append(memoryUse, float64(residentBytes(t)))
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			heap = append(heap, float64(m.HeapAlloc))
			now := holdings(t, dir)
			if opened == nil {
				opened = now
			}
			if now["descriptors"] > opened["descriptors"]+2 || now["goroutines"] > opened["goroutines"]+8 {
				t.Errorf("after %s: %v, it was %v", at, now, opened)
			}
		}
	}
	if _, err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	wantAtRest(t, e)
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	if err := files.Close(); err != nil {
		t.Error(err)
	}
	after := holdings(t, dir)
	for try := 0; after["goroutines"] > before["goroutines"] && try < 1_000_000; try++ {
		runtime.Gosched() // one that has been told to end
		after = holdings(t, dir)
	}
	for what, n := range after {
		if n > before[what] {
			t.Errorf("%d %s are left, there were %d", n, what, before[what])
		}
	}
	said := "too short to judge memory"
	if len(memoryUse) >= 10 && length >= 5*time.Minute {
		s := slope(hours, memoryUse)
		said = fmt.Sprintf("%.1f MiB and then %.1f MiB, slope %.2f %% an hour over %d samples; of that %.1f and %.1f MiB of Go's heap",
			memoryUse[0]/(1<<20), memoryUse[len(memoryUse)-1]/(1<<20), 100*s, len(memoryUse), heap[0]/(1<<20), heap[len(heap)-1]/(1<<20))
		if s > 0.01 {
			t.Errorf("resident memory grows: %s", said)
		}
	}
	t.Logf("%s, %d runs: %s", time.Since(began).Truncate(time.Second), runs, said)
}

// holdings are what a process has of things that run out.
func holdings(t *testing.T, dir string) map[string]int {
	t.Helper()
	h := map[string]int{"goroutines": runtime.NumGoroutine()}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		h["descriptors"] = len(fds)
	}
	temp, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
	if err != nil {
		t.Fatal(err)
	}
	h["temporary files"] = len(temp)
	return h
}

// residentBytes is the process's resident set where the system tells it, else
// what the runtime has of memory.
func residentBytes(t *testing.T) int64 {
	t.Helper()
	var pages, resident int64
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if _, err := fmt.Sscan(string(text), &pages, &resident); err != nil {
			t.Fatal(err)
		}
		return resident * int64(os.Getpagesize())
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}
