// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"runtime"
	"slices"
	"testing"

	"github.com/roux-engine/roux/internal/program"
)

// F50: a simulated day of faults, world after world. When a world ends nothing is left
// of it: no attempt, no slot (I22), no goroutine, no memory.
func TestF50_ADayOfDisasters(t *testing.T) {
	const hour = 3_600_000_000
	day := int64(24 * hour)
	if testing.Short() {
		day /= 8
	}
	goroutines := runtime.NumGoroutine()
	opt := Options{Source: Drawn{}}
	var heap []uint64
	var lived, faults int64
	worlds, sampled := uint64(0), int64(0)
	var c *Case
	var progs programs
	for ; lived < day; worlds++ {
		seed := 5_000_000 + worlds
		if worlds%SeedsPerCase == 0 {
			var err error
			if c, err = opt.Source.Case(seed / SeedsPerCase); err != nil {
				t.Fatal(err)
			}
			progs = prepare(c)
		}
		w := newWorld(seed, c, progs, program.NewCache(10), &opt)
		if err := w.play(); err != nil {
			t.Fatalf("seed %d: %v\nreplay: go run ./sim -seed %d -schedules 1 -v", seed, err, seed)
		}
		for _, p := range w.procs {
			if attempts, slots := p.stage.Held(); !p.dead && (attempts != 0 || slots != 0) {
				t.Fatalf("seed %d: %d attempts and %d slots are left", seed, attempts, slots)
			}
		}
		// Some runs wait for years; a world counts for the hours with faults only.
		lived += min(w.mono, hour)
		faults += w.stats.FaultCount()
		if lived-sampled >= hour {
			sampled = lived
			w = nil
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			heap = append(heap, m.HeapAlloc)
		}
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines are left, there were %d", n, goroutines)
	}
	first, last := slices.Min(heap[:len(heap)/2+1]), slices.Min(heap[len(heap)/2:])
	if last > first+first/8 {
		t.Errorf("the worlds leave memory behind: %d", heap)
	}
	t.Logf("%d worlds, %d faults, heap after each hour at least %d KiB and then %d KiB", worlds, faults, first>>10, last>>10)
}
