// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// stores are what the benchmarks run over.
func stores(b *testing.B, fn func(b *testing.B, st store.Store)) {
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
	stores(b, func(b *testing.B, st store.Store) {
		e := open(b, st, Config{}, noop())
		p := planOf(b, chain(100), noop())
		b.ResetTimer()
		used := cpu()
		for b.Loop() {
			end(b, e, start(b, e, p, nil))
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/100, "µs/step")
		b.ReportMetric(perStep(b, used, 100), "cpu-µs/step")
	})
}

// perStep is the processor time of a step, in µs.
func perStep(b *testing.B, since time.Duration, steps int) float64 {
	return float64((cpu() - since).Microseconds()) / float64(b.N) / float64(steps)
}

// BenchmarkFan is a fan of 1,000 steps and their join.
func BenchmarkFan(b *testing.B) {
	stores(b, func(b *testing.B, st store.Store) {
		e := open(b, st, Config{}, noop())
		p := planOf(b, fan(1000), noop())
		b.ResetTimer()
		used := cpu()
		for b.Loop() {
			end(b, e, start(b, e, p, nil))
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "ms/fan")
		b.ReportMetric(perStep(b, used, 1001), "cpu-µs/step")
	})
}

// BenchmarkMany is 1,000 runs of 10 steps at once.
func BenchmarkMany(b *testing.B) { many(b, chain(10)) }

// BenchmarkManyBound is Many where each step's input is bound to the output of
// the one before.
func BenchmarkManyBound(b *testing.B) { many(b, bound(10)) }

// bound is a chain whose steps take what the one before gave.
func bound(n int) string {
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
	stores(b, func(b *testing.B, st store.Store) {
		e := open(b, st, Config{}, noop())
		p := planOf(b, src, noop())
		b.ReportAllocs()
		b.ResetTimer()
		used := cpu()
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

// BenchmarkSubmit is the time from a start to the first step's call.
func BenchmarkSubmit(b *testing.B) {
	stores(b, func(b *testing.B, st store.Store) {
		called := make(chan time.Time, 1)
		first := act("first", func(context.Context, *action.Task) (action.Result, error) {
			called <- time.Now()
			return action.Result{}, nil
		})
		e := open(b, st, Config{}, first)
		p := planOf(b, "name: x\nsteps:\n  - {id: a, action: {name: first}}\n", first)
		b.ResetTimer()
		var total time.Duration
		for b.Loop() {
			began := time.Now()
			run := start(b, e, p, nil)
			total += (<-called).Sub(began)
			end(b, e, run)
		}
		b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/first-step")
	})
}

// BenchmarkWaiting is the memory of a run that waits, in memory and parked.
func BenchmarkWaiting(b *testing.B) {
	const runs = 50_000
	for name, loaded := range map[string]int{"loaded": runs + 1, "parked": 100} {
		b.Run(name, func(b *testing.B) {
			st, err := sqlite.Open(b.Context(), sqlite.Options{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer st.Close()
			p := planOf(b, waitRecipe, noop())
			for b.Loop() {
				r := newRig(b, st, Config{MaxLoaded: loaded}, noop())
				before := heap()
				var ins []*input
				for range runs {
					ins = append(ins, r.start(acc, p, nil))
				}
				r.settle(ins...)
				ins, r.frames = nil, nil
				b.ReportMetric(float64(heap()-before)/runs, "B/run")
				runtime.KeepAlive(r)
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkRestart is the time until an engine over 20,000 waiting runs takes
// inputs, and until all of them are on their way again: in memory at the crash,
// and parked.
func BenchmarkRestart(b *testing.B) {
	const runs = 20_000
	for name, loaded := range map[string]int{"loaded": runs + 1, "parked": 100} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			st := disk(b, dir)
			p := planOf(b, waiter, noop())
			r := newRig(b, st, Config{MaxLoaded: loaded}, noop())
			var ins []*input
			for range runs {
				ins = append(ins, r.start(acc, p, map[string]any{"n": int64(1)}))
			}
			r.settle(ins...)
			_ = st.Close()
			var opened time.Duration
			for b.Loop() {
				began := time.Now()
				st := disk(b, dir)
				r = r.reopen(st)
				opened += time.Since(began)
				r.settle()
				b.StopTimer()
				_ = st.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(opened.Milliseconds())/float64(b.N), "ms/open")
		})
	}
}

// BenchmarkLength shows that a step costs the same in a short recipe and in a
// long one.
func BenchmarkLength(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			e := open(b, memory.New(memory.Options{}), Config{}, noop())
			p := planOf(b, chain(n), noop())
			b.ResetTimer()
			for b.Loop() {
				end(b, e, start(b, e, p, nil))
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/step")
		})
	}
}

// BenchmarkTransforms is a run of 100 steps that only compute.
func BenchmarkTransforms(b *testing.B) {
	var src strings.Builder
	src.WriteString("name: transforms\nsteps:\n  - {id: s0, transform: {expression: \"1\"}}\n")
	for i := 1; i < 100; i++ {
		fmt.Fprintf(&src, "  - {id: s%d, transform: {expression: steps.s%d.output + 1}}\n", i, i-1)
	}
	stores(b, func(b *testing.B, st store.Store) {
		e := open(b, st, Config{}, noop())
		p := planOf(b, src.String(), noop())
		b.ReportAllocs()
		b.ResetTimer()
		used := cpu()
		for b.Loop() {
			end(b, e, start(b, e, p, nil))
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/run")
		b.ReportMetric(perStep(b, used, 1), "cpu-µs/run")
	})
}
