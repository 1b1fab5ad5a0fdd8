// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/roux-engine/roux/action"
)

// BenchmarkNoop is what the pool adds to an action that does nothing; compare
// with BenchmarkGoroutine, which is only the goroutine.
func BenchmarkNoop(b *testing.B) {
	for name, timeout := range map[string]int64{"timeout": 600_000, "none": 0} {
		b.Run(name, func(b *testing.B) {
			done := make(chan struct{})
			p := New(Config{Done: func(Result) { done <- struct{}{} }})
			noop := &action.Action{Name: "noop", Run: func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil }}
			b.ReportAllocs()
			i := uint32(0)
			for b.Loop() {
				i++
				if err := p.Run(Task{ID: ID{Run: "r", Attempt: i}, Action: noop, TimeoutMS: timeout, Task: action.Task{Input: json.RawMessage("{}")}}); err != nil {
					b.Fatal(err)
				}
				<-done
			}
			p.Stop(context.Background())
		})
	}
}

func BenchmarkGoroutine(b *testing.B) {
	done := make(chan struct{})
	for b.Loop() {
		go func() { done <- struct{}{} }()
		<-done
	}
}

// BenchmarkNoopBurst starts 1,000 attempts at once, as a wide fan-out does.
func BenchmarkNoopBurst(b *testing.B) {
	for name, output := range map[string]any{"null": nil, "object": map[string]any{"ok": true, "n": int64(1)}} {
		b.Run(name, func(b *testing.B) {
			var wg sync.WaitGroup
			p := New(Config{Done: func(Result) { wg.Done() }})
			noop := &action.Action{Name: "noop", Run: func(context.Context, *action.Task) (action.Result, error) {
				return action.Result{Output: output}, nil
			}}
			i := uint32(0)
			for b.Loop() {
				wg.Add(1_000)
				for range 1_000 {
					i++
					_ = p.Run(Task{ID: ID{Run: "r", Attempt: i}, Action: noop, TimeoutMS: 600_000})
				}
				wg.Wait()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1_000, "ns/task")
			p.Stop(context.Background())
		})
	}
}
