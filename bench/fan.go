// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/plan"
)

// callCounter counts calls.
type callCounter struct{ calls atomic.Int64 }

func (t *callCounter) run(ctx context.Context, task *action.Task) (action.Result, error) {
	t.calls.Add(1)
	return nothing(ctx, task)
}

// fan is one run of steps at once and their join.
func fan(ctx context.Context, b *bench) ([]Line, error) {
	var lines []Line
	for _, n := range []int{b.few(1_000, 100), b.few(10_000, 300)} {
		l, err := whole(ctx, b, b.line("fan", n), fanOf(n), b.few(200_000/n, 2))
		if err != nil {
			return lines, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// whole measures runs of a recipe, one after another, each from start to end, and the
// floors of one of them.
func whole(ctx context.Context, b *bench, l Line, r *recipe.Recipe, rounds int) (_ Line, err error) {
	dir := b.fresh()
	var t callCounter
	w, err := open(ctx, filepath.Join(dir, "data"), t.run, engine.Config{})
	if err != nil {
		return l, err
	}
	defer func() { err = closing(w.close, err) }()
	pl, err := planOf(r, w.act)
	if err != nil {
		return l, err
	}
	round := func() error { return w.once(ctx, pl, map[string]any{"n": int64(1)}) }
	if err := round(); err != nil { // warms up
		return l, err
	}
	f, err := w.floors(ctx, dir, round)
	if err != nil {
		return l, err
	}
	defer func() { err = closing(f.close, err) }()
	w.st.forget()
	t.calls.Store(0)
	took, err := f.rounds(ctx, rounds, round)
	if err != nil {
		return l, err
	}
	steps := rounds * len(pl.Steps)
	calls := 0
	for i := range pl.Steps {
		if pl.Steps[i].Kind == plan.Action {
			calls += rounds
		}
	}
	if got := int(t.calls.Load()); got != calls {
		return l, errSteps(got, calls)
	}
	total := sum(took.times).Seconds()
	l.Seconds, l.StepsPerS, l.CPUPerStepUS = total/float64(rounds), float64(steps)/total, us(took.cpu)/float64(steps)
	l.spread(took.times)
	c := w.st.count()
	l.BytesPerStep = float64(c.bytes) / float64(steps)
	l.RSSMB = rss()
	f.describe(&l, quantile(took.times, 0.5))
	l.put("best_us", us(slices.Min(took.times)))
	l.put("syncs_per_run", float64(c.commits)/float64(rounds))
	l.put("written_per_step", float64(took.wrote)/float64(steps))
	l.Hist = w.st.histogram()
	_, err = memoryFloor(&l, func() (int, error) { return walkGraph(pl, func() {}) })
	return l, err
}

// submit is the time from the call of Start until the first step's action runs,
// while nothing else runs.
func submit(ctx context.Context, b *bench) ([]Line, error) {
	const n = 1
	l := b.line("submit", n)
	dir := b.fresh()
	called := make(chan time.Time, 1)
	w, err := open(ctx, filepath.Join(dir, "data"), func(context.Context, *action.Task) (action.Result, error) {
		called <- time.Now()
		return action.Result{}, nil
	}, engine.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(w.close, err) }()
	pl, err := planOf(chainOf(n), w.act)
	if err != nil {
		return nil, err
	}
	one := func() (first, answered, ended time.Duration, err error) {
		began := time.Now()
		s, err := w.e.Start(ctx, engine.StartRequest{Account: account, Plan: pl, Recipe: "bench"})
		answered = time.Since(began)
		if err == nil {
			first = (<-called).Sub(began)
			err = w.end(ctx, s.Run)
		}
		return first, answered, time.Since(began), err
	}
	f, err := w.floors(ctx, dir, func() error {
		_, _, _, err := one()
		return err
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(f.close, err) }()
	w.st.forget()
	var firsts, answers, ends []time.Duration
	var used time.Duration
	rounds := b.few(1_000, 10)
	for range rounds {
		before := cpu()
		first, answered, ended, err := one()
		if err != nil {
			return nil, err
		}
		used += cpu() - before
		firsts, answers, ends = append(firsts, first), append(answers, answered), append(ends, ended)
		if err := f.whole(ctx); err != nil {
			return nil, err
		}
	}
	total := sum(ends).Seconds()
	l.Seconds, l.StepsPerS, l.CPUPerStepUS = total/float64(rounds), float64(rounds)/total, us(used)/float64(rounds)
	l.spread(firsts)
	c := w.st.count()
	l.BytesPerStep = float64(c.bytes) / float64(rounds)
	l.RSSMB = rss()
	f.describe(&l, 0)
	l.put("answer_p50_us", us(quantile(answers, 0.5)))
	l.put("end_p50_us", us(quantile(ends, 0.5)))
	l.put("syncs_per_run", float64(c.commits)/float64(rounds))
	l.Hist = w.st.histogram()
	_, err = memoryFloor(&l, func() (int, error) { return walkGraph(pl, func() {}) })
	return []Line{l}, err
}
