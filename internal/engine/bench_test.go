// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// Go benchmarks of the quick shapes, for comparing two builds. The command bench has
// the others (floors, idle, recover, latencies).

// eachStore runs a benchmark over each store.
func eachStore(b *testing.B, fn func(b *testing.B, st store.Store)) {
	b.Run("memory", func(b *testing.B) { fn(b, memory.New(memory.Options{})) })
	b.Run("sqlite", func(b *testing.B) {
		st, err := sqlite.Open(b.Context(), sqlite.Options{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = st.Close() }) // the engine's own clean-up comes first
		fn(b, st)
	})
}

// BenchmarkChain is the time of one step of a chain of 100.
func BenchmarkChain(b *testing.B) {
	eachStore(b, func(b *testing.B, st store.Store) {
		e := openEngine(b, st, Config{}, noop())
		p := planOf(b, chain(100), noop())
		b.ResetTimer()
		used := processorTime()
		for b.Loop() {
			waitForEnd(b, e, start(b, e, p, nil))
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/100, "µs/step")
		b.ReportMetric(perStep(b, used, 100), "cpu-µs/step")
	})
}

// perStep is the processor time of a step, in µs.
func perStep(b *testing.B, since time.Duration, steps int) float64 {
	return float64((processorTime() - since).Microseconds()) / float64(b.N) / float64(steps)
}

// BenchmarkFan is a fan of 1,000 steps and their join.
func BenchmarkFan(b *testing.B) {
	eachStore(b, func(b *testing.B, st store.Store) {
		e := openEngine(b, st, Config{}, noop())
		p := planOf(b, fan(1000), noop())
		b.ResetTimer()
		used := processorTime()
		for b.Loop() {
			waitForEnd(b, e, start(b, e, p, nil))
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "ms/fan")
		b.ReportMetric(perStep(b, used, 1001), "cpu-µs/step")
	})
}

// BenchmarkMany is 1,000 runs of 10 steps at once.
func BenchmarkMany(b *testing.B) { many(b, chain(10)) }

// BenchmarkManyBound is BenchmarkMany with each step's input bound to the previous
// step's output.
func BenchmarkManyBound(b *testing.B) { many(b, boundChain(10)) }

// boundChain is a chain whose steps use the output of the previous step.
func boundChain(n int) string {
	var s strings.Builder
	s.WriteString("name: bound\nsteps:\n")
	for i := range n {
		from := "1"
		if i > 0 {
			from = fmt.Sprintf("s%d.output.ok", i-1)
		}
		fmt.Fprintf(&s, "  - {id: s%d, action: {name: noop}, inputBindings: {x: %q}}\n", i, from)
	}
	return s.String()
}

func many(b *testing.B, src string) {
	eachStore(b, func(b *testing.B, st store.Store) {
		e := openEngine(b, st, Config{}, noop())
		p := planOf(b, src, noop())
		b.ReportAllocs()
		b.ResetTimer()
		used := processorTime()
		for b.Loop() {
			var wg sync.WaitGroup
			for range 1000 {
				wg.Go(func() {
					s, err := e.Start(b.Context(), StartRequest{Account: acc, Plan: p})
					if err == nil {
						_, err = e.Wait(b.Context(), acc, s.Run)
					}
					if err != nil {
						b.Error(err)
					}
				})
			}
			wg.Wait()
		}
		b.ReportMetric(10_000*float64(b.N)/b.Elapsed().Seconds(), "steps/s")
		b.ReportMetric(perStep(b, used, 10_000), "cpu-µs/step")
	})
}

// BenchmarkTransforms is a run of 100 steps that only compute.
func BenchmarkTransforms(b *testing.B) {
	var src strings.Builder
	src.WriteString("name: transforms\nsteps:\n  - {id: s0, transform: {expression: \"1\"}}\n")
	for i := 1; i < 100; i++ {
		fmt.Fprintf(&src, "  - {id: s%d, transform: {expression: steps.s%d.output + 1}}\n", i, i-1)
	}
	eachStore(b, func(b *testing.B, st store.Store) {
		e := openEngine(b, st, Config{}, noop())
		p := planOf(b, src.String(), noop())
		b.ReportAllocs()
		b.ResetTimer()
		used := processorTime()
		for b.Loop() {
			waitForEnd(b, e, start(b, e, p, nil))
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/run")
		b.ReportMetric(perStep(b, used, 1), "cpu-µs/run")
	})
}
