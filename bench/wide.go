// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/plan"
)

// wide measures the cost of a step in runs of different sizes: the same number of steps
// in runs of ten steps, of a thousand, and of ten thousand.
func wide(ctx context.Context, b *bench) ([]Line, error) {
	total := b.few(10_000, 1_000)
	l := b.line("wide", total)
	for _, shape := range []struct {
		name string
		of   func(n int) *recipe.Recipe
		// Chains run one after another, because a single long chain has no
		// concurrency either; fans run all at once.
		atOnce bool
	}{
		{"fan", func(n int) *recipe.Recipe { return fanOf(n - 1) }, true},
		{"chain", chainOf, false},
	} {
		small := math.MaxFloat64
		for _, size := range []int{10, total / 10, total} {
			cost, err := costOf(ctx, b, shape.of(size), total/size, shape.atOnce, &l)
			if err != nil {
				return nil, err
			}
			l.put(shape.name+"_"+strconv.Itoa(size)+"_us", cost)
			if size == total {
				l.put(shape.name+"_growth", cost/small)
			}
			small = min(small, cost)
		}
	}
	l.put("growth", max(l.More["fan_growth"], l.More["chain_growth"]))
	if err := b.denominators(ctx, &l, fanOf(total-1), nothing, time.Duration(l.Seconds*float64(time.Second))); err != nil {
		return nil, err
	}
	lanes, err := whole(ctx, b, b.line("lanes", b.few(100_000, 1_000)), lanesOf(100, b.few(1_000, 10)), b.few(2, 1))
	return []Line{l, lanes}, err
}

// costOf returns the CPU time of a step in µs, the median of at least three tries. A try of a fan takes a
// tenth of a second, and one differs from the next by half.
func costOf(ctx context.Context, b *bench, r *recipe.Recipe, runs int, atOnce bool, l *Line) (cost float64, err error) {
	w, err := open(ctx, b.fresh(), nothing, engine.Config{})
	if err != nil {
		return 0, err
	}
	defer func() { err = closing(w.close, err) }()
	pl, err := planOf(r, w.act)
	if err != nil {
		return 0, err
	}
	var costs, rates []float64
	first, enough := time.Now(), time.Duration(b.few(int(3*time.Second), 0))
	for try := 0; try < b.few(4, 2) || time.Since(first) < enough; try++ {
		began, used := time.Now(), cpu()
		if atOnce {
			err = together(runs, func(int) error { return w.once(ctx, pl, nil) })
		} else {
			for i := 0; i < runs && err == nil; i++ {
				err = w.once(ctx, pl, nil)
			}
		}
		if err != nil {
			return 0, err
		}
		if try == 0 {
			continue // warms up
		}
		steps := float64(runs * len(pl.Steps))
		costs = append(costs, us(cpu()-used)/steps)
		rates = append(rates, steps/time.Since(began).Seconds())
	}
	if cost = quantile(costs, 0.5); runs == 1 && atOnce {
		l.StepsPerS, l.CPUPerStepUS = quantile(rates, 0.5), cost
		l.Seconds = float64(len(pl.Steps)) / l.StepsPerS
	}
	l.RSSMB = rss()
	return cost, nil
}

// fairness measures how long a step of one account waits while another account has
// flooded the engine, as a multiple of the duration of a task.
func fairness(ctx context.Context, b *bench) (_ []Line, err error) {
	const task = 100 * time.Millisecond
	flood := b.few(10_000, 3_000)
	l := b.line("fairness", flood)
	called := make(chan time.Time, 1)
	// On a busy machine a task takes longer than 100 ms, so its real duration is
	// used.
	var mu sync.Mutex
	var tasks []time.Duration
	w, err := open(ctx, filepath.Join(b.fresh(), "data"), func(ctx context.Context, t *action.Task) (action.Result, error) {
		began := time.Now()
		if t.Account != account {
			called <- began
			return action.Result{}, nil
		}
		select {
		case <-time.After(task):
			mu.Lock()
			tasks = append(tasks, time.Since(began))
			mu.Unlock()
		case <-ctx.Done():
		}
		return action.Result{}, ctx.Err()
	}, engine.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(w.close, err) }()
	big, err := planOf(fanOf(flood), w.act)
	if err != nil {
		return nil, err
	}
	one, err := planOf(chainOf(1), w.act)
	if err != nil {
		return nil, err
	}
	var waits []time.Duration
	began := time.Now()
	for try := range b.few(4, 1) {
		s, err := w.e.Start(ctx, engine.StartRequest{Account: account, Plan: big, Recipe: "flood"})
		if err != nil {
			return nil, err
		}
		if try == 0 {
			// The first flood is observed from its start.
			waits, err = askers(ctx, w, one, called, waits, 3)
		} else {
			waits, err = askers(ctx, w, one, called, waits, 5)
		}
		if err != nil {
			return nil, err
		}
		if err := w.e.Cancel(ctx, account, s.Run, "enough was seen"); err != nil {
			return nil, err
		}
		if _, err := w.e.Wait(ctx, account, s.Run); err != nil {
			return nil, err
		}
	}
	l.Seconds = time.Since(began).Seconds()
	l.spread(waits)
	l.put("waits", float64(len(waits)))
	mu.Lock()
	defer mu.Unlock()
	took := quantile(tasks, 0.5)
	l.put("task_us", us(took))
	l.put("worst_in_tasks", float64(quantile(waits, 1))/float64(took))
	l.put("p50_in_tasks", float64(quantile(waits, 0.5))/float64(took))
	l.RSSMB = rss()
	return []Line{l}, nil
}

// askers starts runs of one step each for another account, one after the other.
func askers(ctx context.Context, w *instance, one *plan.Plan, called chan time.Time, waits []time.Duration, n int) ([]time.Duration, error) {
	for range n {
		began := time.Now()
		if _, err := w.e.Start(ctx, engine.StartRequest{Account: "other", Plan: one, Recipe: "one"}); err != nil {
			return waits, err
		}
		waits = append(waits, (<-called).Sub(began))
	}
	return waits, nil
}

// disk measures how many bytes a million completed steps occupy and how many were written
// for them.
func disk(ctx context.Context, b *bench) (_ []Line, err error) {
	runs := b.few(100_000, 500)
	l := b.line("disk", runs*chainSteps)
	dir := b.fresh()
	c := newConcurrentRuns(1_000)
	w, err := open(ctx, dir, c.run, engine.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(w.close, err) }()
	pl, err := planOf(boundOf(chainSteps), w.act)
	if err != nil {
		return nil, err
	}
	before := written()
	began, used := time.Now(), cpu()
	crowd := min(runs, len(c.last))
	err = together(crowd, func(i int) error {
		for n := i; n < runs; n += crowd {
			c.last[i] = time.Time{}
			if err := w.once(ctx, pl, map[string]any{"n": int64(i)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	took, steps := time.Since(began), float64(runs*chainSteps)
	used = cpu() - used
	l.Seconds, l.StepsPerS, l.CPUPerStepUS = took.Seconds(), steps/took.Seconds(), us(used)/steps
	l.spread(c.all())
	open, err := diskUse(dir)
	if err != nil {
		return nil, err
	}
	l.put("open_mb", float64(open)/(1<<20))
	l.put("given_per_step", float64(w.st.count().bytes)/steps)
	l.Hist = w.st.histogram()
	l.RSSMB = rss()
	if err := w.close(); err != nil {
		return nil, err
	}
	l.put("written_per_step", float64(written()-before)/steps)
	closed, err := diskUse(dir)
	l.BytesPerStep = float64(closed) / steps
	l.put("closed_mb", float64(closed)/(1<<20))
	l.put("mb_per_million_steps", float64(closed)/(1<<20)/steps*1e6)
	return []Line{l}, err
}
