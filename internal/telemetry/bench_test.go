// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/node"
)

// recorded keeps what is observed.
type recorded struct {
	mu    sync.Mutex
	calls [][]feed.Observed
}

func (r *recorded) Commit(int, time.Duration, error) {}

func (r *recorded) Durable(runs []feed.Observed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, append([]feed.Observed(nil), runs...))
}

// BenchmarkObserve is the processor time that the metrics of a step take, of runs of ten
// steps, as in `go run ./bench -shapes many`. The engine's goroutine has the part "commit".
func BenchmarkObserve(b *testing.B) {
	var src strings.Builder
	src.WriteString("name: chain\nsteps:\n")
	const steps = 10
	for i := range steps {
		fmt.Fprintf(&src, "  - {id: s%d, action: {name: noop}}\n", i)
	}
	act := noop()
	dir := b.TempDir()
	st, err := node.OpenStore(b.Context(), dir)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	rec := &recorded{}
	actions := node.Catalogue([]action.Action{act})
	e, err := engine.Open(b.Context(), engine.Config{Store: st, Actions: actions, Observer: rec})
	if err != nil {
		b.Fatal(err)
	}
	r, text, _ := dialect.Parse("chain.yaml", []byte(src.String()), form.Options{})
	p, diags := compile.Compile(r, text, compile.Options{Actions: actions})
	if p == nil {
		b.Fatal(diags)
	}
	const runs = 100
	for range runs {
		s, err := e.Start(b.Context(), engine.StartRequest{Account: engine.LocalAccount, Plan: p, Recipe: "chain"})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.Wait(b.Context(), engine.LocalAccount, s.Run); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := e.Stop(b.Context()); err != nil {
		b.Fatal(err)
	}
	perStep := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/runs/steps, "ns/step")
	}
	b.Run("commit", func(b *testing.B) {
		tel := &Telemetry{metrics: newMetrics(100, 0), signal: make(chan struct{}, 1)}
		for b.Loop() {
			for _, call := range rec.calls {
				tel.Durable(call)
			}
			tel.queue, tel.bytes = tel.queue[:0], 0
		}
		perStep(b)
	})
	b.Run("steps", func(b *testing.B) {
		tel := &Telemetry{metrics: newMetrics(100, 0), signal: make(chan struct{}, 1)}
		for _, call := range rec.calls {
			tel.Durable(call)
		}
		o := newObserver(tel.metrics, nil)
		for b.Loop() {
			for i := range tel.queue {
				o.events(&tel.queue[i])
			}
		}
		perStep(b)
	})
}
