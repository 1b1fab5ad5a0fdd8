// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// soakShapes returns what a long-lived engine is busy with: steps in sequence, in
// parallel and in loops, waits, retries, failures with compensations. unit is the
// length of a wait.
func soakShapes(t testing.TB, unit time.Duration) (plans []*plan.Plan, actions []*action.Action) {
	t.Helper()
	flaky := newAction("flaky", func(_ context.Context, task *action.Task) (action.Result, error) {
		if task.Attempt < 2 {
			return action.Result{}, fault.New(fault.ServiceUnavailable, "not yet")
		}
		return action.Result{Output: int64(task.Attempt)}, nil
	})
	text := newAction("text", func(_ context.Context, task *action.Task) (action.Result, error) {
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

// slope returns how much a series grows in an hour, relative to its median: the median
// over all pairs (Theil–Sen), which single peaks do not move.
func slope(hours, values []float64) float64 {
	var slopes []float64
	for i := range values {
		for j := range i {
			slopes = append(slopes, (values[i]-values[j])/(hours[i]-hours[j]))
		}
	}
	return median(slopes) / median(values)
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// A leak of 1 % an hour is detected in spite of the noise of garbage collection, and
// noise is not taken for a leak.
func TestSlopeFindsALeakInNoise(t *testing.T) {
	for _, c := range []struct{ leak, least, most float64 }{{0, -0.003, 0.003}, {0.02, 0.017, 0.023}, {0.2, 0.19, 0.21}} {
		dice := rand.New(rand.NewPCG(5, 0))
		var s series
		for at := time.Duration(0); at < 20*time.Minute; at += 3 * time.Second {
			s.add(at, int64(25e6*(1+c.leak*at.Hours())+500e3*dice.Float64()))
		}
		hours, lows := s.lows()
		if got := slope(hours, lows); len(lows) != 19 || got < c.least || got > c.most {
			t.Errorf("a leak of %.1f %% an hour is taken for %.2f %% by %d minutes", 100*c.leak, 100*got, len(lows))
		}
	}
	if hours, lows := (&series{}).lows(); hours != nil || lows != nil {
		t.Errorf("no samples have %v at %v", lows, hours)
	}
}

// wantAtRest fails unless an engine is idle: no run, attempt, slot, subscriber or
// request is left.
func wantAtRest(t *testing.T, e *Engine) {
	t.Helper()
	attempts, slots := (&Stage{e: e}).Held()
	subscribers, _ := e.feed.Usage()
	if attempts != 0 || slots != 0 || subscribers != 0 || e.pending.Load() != 0 || e.inbox.Len() != 0 {
		t.Errorf("%d attempts, %d slots, %d subscribers, %d requests and %d messages are left",
			attempts, slots, subscribers, e.pending.Load(), e.inbox.Len())
	}
	for key, l := range e.core.residency.runs {
		t.Errorf("run %s is still in memory: %v", key.Run, l.run.Status())
	}
}

// F50: an engine works for three days. Runs start every minute, wait, fail, are
// retried, watched, signalled and cancelled, and are removed two hours after they
// ended. After six hours it holds as much memory as at the end, and when all runs are
// removed it holds nothing. The days take seconds, because their clock is synctest's.
// One day is too short: the heap varies by 4 % within hours.
func TestF50_ThreeDays(t *testing.T) {
	long := 72
	if testing.Short() || raceOn {
		long = 48
	}
	var hours, heap []float64
	runs := 0
	synctest.Test(t, func(t *testing.T) {
		plans, actions := soakShapes(t, 5*time.Minute)
		st := memory.New(memory.Options{})
		e := openEngine(t, st, Config{Logger: slog.New(slog.DiscardHandler), Blobs: blobs(t), Retention: retention.Policy{Runs: 2 * time.Hour}, ProviderSlots: map[string]int{"p": 3}}, actions...)
		var wg sync.WaitGroup
		for hour := range long {
			for minute := range 60 {
				for i := range 4 {
					n := hour + minute + i
					run := start(t, e, plans[n%len(plans)], nil)
					runs++
					wg.Go(func() { useRun(t, e, run, n) })
				}
				time.Sleep(time.Minute)
			}
			if hour >= 6 {
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
		t.Logf("%d runs in %d hours, heap %.1f MiB at the end, slope %.2f %% an hour", runs, long, heap[len(heap)-1]/(1<<20), 100*s)
	}
}

// useRun is a client of one run: it watches it, signals or cancels it, or only waits.
func useRun(t *testing.T, e *Engine, run string, n int) {
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

// F50: the same over the real store on a real disk, for a few seconds; for half an hour
// with ROUX_LONG=1, and for ROUX_SOAK if set. When idle the process holds as many
// descriptors, goroutines and temporary files as before, and after warm-up its memory
// does not grow by more than 1 % an hour.
//
// A quarter of the time is warm-up, at three times the load of the rest: the database,
// its page caches and the allocators reach their full size, even if the machine is
// faster later, so that this is not taken for growth.
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
	// A test binary samples allocations, and each call site that is sampled for the first
	// time costs pages for ever. The linker removes this sampling from roux.
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	runtime.MemProfileRate = 0
	dir := t.TempDir()
	before := openResources(t, dir)
	files := blobs(t)
	plans, actions := soakShapes(t, 500*time.Millisecond)
	st := openSQLite(t, dir)
	e := openEngine(t, st, Config{
		Logger: slog.New(slog.DiscardHandler), Blobs: files, SuspendAfter: time.Second,
		Retention: retention.Policy{Runs: min(20*time.Second, length/5)},
	}, actions...)
	var usage series
	parts := map[string]*series{} // of the memory, to locate growth
	resident := make([]int64, 0, 1<<14)
	runs, began := 0, time.Now()
	var plateau map[string]int
	for round := 0; time.Since(began) < length; round++ {
		warmingUp := time.Since(began) < length/4
		concurrent := 50
		if warmingUp {
			concurrent *= 3
		}
		// A round is a number of concurrent runs and their clients; the waits of the
		// runs pace it.
		var wg sync.WaitGroup
		for i := range concurrent {
			run := start(t, e, plans[(round+i)%len(plans)], nil)
			runs++
			wg.Go(func() { useRun(t, e, run, round+i) })
		}
		wg.Wait()
		if round%10 == 0 {
			if _, err := e.Clean(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
		if warmingUp || round%2 != 0 {
			continue
		}
		at := time.Since(began)
		own, all := memoryUse(t)
		usage.add(at, own)
		for part, bytes := range memoryParts(own) {
			if parts[part] == nil {
				parts[part] = &series{}
			}
			parts[part].add(at, bytes)
		}
		resident = append(resident, all)
		resources := openResources(t, dir)
		if plateau == nil {
			plateau = resources
		}
		if resources["descriptors"] > before["descriptors"]+maxDescriptors || resources["goroutines"] > plateau["goroutines"]+8 {
			t.Errorf("after %s: %v, it was %v, before all %v", at, resources, plateau, before)
		}
	}
	wantAllRemoved(t, e)
	if _, err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	wantAtRest(t, e)
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	wantNoRows(t, dir)
	if err := files.Close(); err != nil {
		t.Error(err)
	}
	after := openResources(t, dir)
	for try := 0; after["goroutines"] > before["goroutines"] && try < 1_000_000; try++ {
		runtime.Gosched() // one may be about to end
		after = openResources(t, dir)
	}
	for what, n := range after {
		if n > before[what] {
			t.Errorf("%d %s are left, there were %d", n, what, before[what])
		}
	}
	report := "too short to judge memory"
	if hours, lows := usage.lows(); len(lows) >= 10 {
		slices.Sort(resident)
		all := resident[len(resident)/2]
		s := slope(hours, lows) * median(lows) / float64(all)
		report = fmt.Sprintf("memory grows by %.2f %% of %d KiB an hour over %d samples, the least of each minute in KiB: %d",
			100*s, all>>10, usage.samples, kib(lows))
		if s > 0.01 {
			t.Error("memory grows after warm-up")
		}
		for part, in := range parts {
			_, lows := in.lows()
			t.Logf("of it %s: %d", part, kib(lows))
		}
	}
	t.Logf("%s, %d runs: %s", time.Since(began).Truncate(time.Second), runs, report)
}

// maxDescriptors is how many descriptors an engine with a SQLite store and a file store
// has open at most: four readers, the writer and the upkeep connection, opened on first
// use, each with database, log and index; the lock, the directories, and a file for
// each that is being read or written.
const maxDescriptors = 6*3 + 10

// wantAllRemoved calls Clean until the last run is removed.
func wantAllRemoved(t *testing.T, e *Engine) {
	t.Helper()
	for tick := time.Tick(100 * time.Millisecond); ; <-tick {
		if _, err := e.Clean(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		heads, err := e.List(t.Context(), store.Query{Account: acc, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if len(heads) == 0 {
			return
		}
	}
}

// wantNoRows fails if a closed store without runs has rows of one. The last rows of the
// journal, and the list of removed runs in them, stay until later commits drop them.
func wantNoRows(t *testing.T, dir string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "roux.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, table := range []string{"runs", "chunks", "snapshots", "packs", "pieces", "file_refs", "file_released", "idempotency"} {
		var n int
		if err := db.QueryRow(`SELECT count(*) FROM ` + table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			t.Errorf("%d rows of %s are left", n, table)
		}
	}
}

// A series records the minimum of each minute of what a process holds. A leak is in
// every sample, garbage only in some. Keeping all samples would itself be growth.
type series struct {
	samples int
	minutes []time.Duration
	least   []float64
}

func (s *series) add(at time.Duration, bytes int64) {
	if s.minutes == nil {
		s.minutes, s.least = make([]time.Duration, 0, 128), make([]float64, 0, 128)
	}
	s.samples++
	if m := at.Truncate(time.Minute); len(s.minutes) == 0 || m != s.minutes[len(s.minutes)-1] {
		s.minutes, s.least = append(s.minutes, m), append(s.least, float64(bytes))
	}
	last := len(s.least) - 1
	s.least[last] = min(s.least[last], float64(bytes))
}

// lows returns the minimum of each full minute, and when the minute began.
func (s *series) lows() (hours, lows []float64) {
	for i := range len(s.minutes) - 1 { // the last is not full
		hours, lows = append(hours, s.minutes[i].Hours()), append(lows, s.least[i])
	}
	return hours, lows
}

// kib converts bytes to KiB.
func kib(bytes []float64) []int64 {
	k := make([]int64, len(bytes))
	for i, b := range bytes {
		k[i] = int64(b) >> 10
	}
	return k
}

// openResources returns how many of the limited resources a process holds.
func openResources(t *testing.T, dir string) map[string]int {
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

// memoryUse returns what a process has in memory after garbage collection: its resident
// set, and the part of it that is its own. Pages of programs and libraries are not its
// own: they are loaded when code first runs, and the system reclaims them at will.
// Where the system reports neither, both are what the runtime has.
func memoryUse(t *testing.T) (own, resident int64) {
	t.Helper()
	runtime.GC() // FreeOSMemory collects again, which empties pools
	debug.FreeOSMemory()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.Sys - m.HeapReleased), int64(m.Sys - m.HeapReleased)
	}
	defer f.Close()
	code := false
	lines := bufio.NewScanner(f) // makes little garbage, which would be measured too
	for lines.Scan() {
		kb, isSize := strings.CutPrefix(lines.Text(), "Rss:")
		switch {
		case isSize:
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(kb, "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			resident += n << 10
			if !code {
				own += n << 10
			}
		case lines.Text()[0] < 'A' || lines.Text()[0] > 'Z': // from-to rights offset device inode path
			words := strings.Fields(lines.Text())
			code = len(words) == 6 && words[5][0] == '/' && words[1][1] == '-' && words[1][3] == 'p'
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return own, resident
}

// memoryParts splits the process's own memory. The rest is SQLite's, and memory that
// the runtime no longer uses and the system has not reclaimed.
func memoryParts(own int64) map[string]int64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/memory/classes/metadata/mspan/inuse:bytes"},
		{Name: "/memory/classes/metadata/other:bytes"}, {Name: "/memory/classes/other:bytes"},
	}
	metrics.Read(samples)
	parts := map[string]int64{}
	for _, s := range samples {
		n := int64(s.Value.Uint64())
		parts[strings.TrimSuffix(strings.TrimPrefix(s.Name, "/memory/classes/"), ":bytes")] = n
		own -= n
	}
	parts["rest"] = own
	return parts
}
