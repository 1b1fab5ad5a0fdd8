// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/engine"
)

// A stepTimer measures the time from the start of one step to that of the next, in runs
// that have one step at a time. Regularly it pauses the run and has the floors repeat the
// engine's last commits, so that both measure the same state of the disk.
type stepTimer struct {
	gaps  []time.Duration
	last  time.Time
	steps int
	every int // steps between two pauses; 0 = never
	halt  func() error
	err   error
	off   time.Duration // time spent in pauses
	idle  time.Duration // CPU time spent in pauses
}

func (p *stepTimer) run(context.Context, *action.Task) (action.Result, error) {
	now := time.Now()
	if !p.last.IsZero() {
		p.gaps = append(p.gaps, now.Sub(p.last))
	}
	p.last = now
	if p.steps++; p.every > 0 && p.steps%p.every == 0 {
		used := cpu()
		if err := p.halt(); err != nil && p.err == nil {
			p.err = err
		}
		p.last = time.Now()
		p.off += p.last.Sub(now)
		p.idle += cpu() - used
	}
	return action.Result{Output: map[string]any{"ok": true}}, nil
}

// chain is one run of steps in a row: the latency of a step.
func chain(ctx context.Context, b *bench) ([]Line, error) {
	var lines []Line
	for _, n := range []int{100, b.few(10_000, 300)} {
		l, err := chainOfLength(ctx, b, n)
		if err != nil {
			return lines, err
		}
		lines = append(lines, l)
	}
	l, err := transforms(ctx, b)
	return append(lines, l), err
}

func chainOfLength(ctx context.Context, b *bench, n int) (l Line, err error) {
	l = b.line("chain", n)
	dir := b.fresh()
	p := &stepTimer{gaps: make([]time.Duration, 0, 20_000)}
	w, err := open(ctx, filepath.Join(dir, "data"), p.run, engine.Config{})
	if err != nil {
		return l, err
	}
	defer func() { err = closing(w.close, err) }()
	short, err := planOf(chainOf(100), w.act)
	if err != nil {
		return l, err
	}
	pl, err := planOf(chainOf(n), w.act)
	if err != nil {
		return l, err
	}
	f, err := w.floors(ctx, dir, func() error { return w.once(ctx, short, nil) }) // also warms up
	if err != nil {
		return l, err
	}
	defer func() { err = closing(f.close, err) }()

	// The floors repeat as many commits as the engine made in short chains, and half as
	// many in long ones.
	rounds := b.few(max(4_000/n, 1), 2)
	halves := 50
	if n > 100 {
		p.every, p.halt = 100, func() error { return f.repeat(ctx, halves) }
	}
	p.steps, p.gaps = 0, p.gaps[:0]
	w.st.forget()
	var busy, used time.Duration
	for range rounds {
		p.last = time.Time{}
		began, before := time.Now(), cpu()
		if err := w.once(ctx, pl, nil); err != nil {
			return l, err
		}
		busy += time.Since(began)
		used += cpu() - before
		if p.every == 0 {
			if err := f.whole(ctx); err != nil {
				return l, err
			}
		}
	}
	if p.err != nil {
		return l, p.err
	}
	busy, used = busy-p.off, used-p.idle
	steps := float64(rounds * n)
	l.Seconds, l.StepsPerS, l.CPUPerStepUS = busy.Seconds()/float64(rounds), steps/busy.Seconds(), us(used)/steps
	l.spread(p.gaps)
	c := w.st.count()
	l.BytesPerStep = float64(c.bytes) / steps
	l.RSSMB = rss()
	f.describe(&l, 0)
	l.put("over_store_us", l.P50US-l.More["store_p50_us"])
	// A run has one more commit than steps: the one that starts it.
	l.put("syncs_per_step", float64(c.commits-rounds)/steps)
	l.Hist = w.st.histogram()
	done, err := memoryFloor(&l, func() (int, error) { return walkGraph(pl, func() {}) })
	if err == nil && done != n {
		err = errSteps(done, n)
	}
	return l, err
}

// transforms is a run of 100 steps in a row that only compute.
func transforms(ctx context.Context, b *bench) (Line, error) {
	const n = 100
	return whole(ctx, b, b.line("transforms", n), transformsOf(n), b.few(200, 5))
}
