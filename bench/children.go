// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/engine"
)

// rowOf returns a recipe of n child runs in a row, each of one step.
func rowOf(n int) *recipe.Recipe {
	r := &recipe.Recipe{Head: recipe.Head{Name: "row"}}
	for i := range n {
		r.Steps = append(r.Steps, &recipe.Step{ID: stepID(i), Recipe: &recipe.Child{Inline: chainOf(1)}})
	}
	return r
}

// atOnceOf returns a recipe of n child runs at once, each of one step, and a step that
// joins them.
func atOnceOf(n int) *recipe.Recipe {
	r := &recipe.Recipe{Head: recipe.Head{Name: "at-once"}, Settings: recipe.Settings{Order: "none"}}
	ids := make([]string, n)
	for i := range n {
		ids[i] = stepID(i)
		r.Steps = append(r.Steps, &recipe.Step{ID: ids[i], Recipe: &recipe.Child{Inline: chainOf(1)}, DependsOn: &[]string{}})
	}
	r.Steps = append(r.Steps, call("join", ids...))
	return r
}

// towersOf returns a recipe with a loop that starts a child run for each item, 1,000 at a
// time. Each has another one below it, and so on for as many levels; the lowest has one
// step.
func towersOf(levels int) *recipe.Recipe {
	below := chainOf(1)
	for range levels - 1 {
		below = &recipe.Recipe{Head: recipe.Head{Name: "level"}, Steps: []*recipe.Step{{ID: "below", Recipe: &recipe.Child{Inline: below}}}}
	}
	return &recipe.Recipe{Head: recipe.Head{Name: "towers"}, Settings: recipe.Settings{InputSchema: []byte(`{"type":"object","properties":{"items":{"type":"array"}}}`)}, Steps: []*recipe.Step{{ID: "all", Loop: &recipe.Loop{
		Over: "input.items", As: "item", MaxConcurrency: 1_000,
		Steps: []*recipe.Step{{ID: "tower", Recipe: &recipe.Child{Inline: below}}},
	}}}}
}

// children compares runs of child runs with runs of the same shape without them: in a
// row, all at once, and nested.
func children(ctx context.Context, b *bench) ([]Line, error) {
	row, once, towers := b.few(100, 10), b.few(1_000, 20), b.few(1_000, 5)
	var lines []Line
	for _, s := range []struct {
		shape      string
		n          int
		tree, flat *recipe.Recipe
		items      [2]int
		rounds     int
	}{
		{"children", row, rowOf(row), chainOf(row), [2]int{}, b.few(20, 2)},
		{"children", once, atOnceOf(once), fanOf(once), [2]int{}, b.few(20, 2)},
		{"towers", towers, towersOf(10), towersOf(1), [2]int{towers, 10 * towers}, b.few(5, 1)},
	} {
		l, err := compared(ctx, b, b.line(s.shape, s.n), s.tree, s.flat, s.items, s.rounds)
		if err != nil {
			return lines, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// compared runs two recipes in turn and puts the ratios of their medians into the line of
// the first: of the time from start to end, and of the processor time.
func compared(ctx context.Context, b *bench, l Line, tree, flat *recipe.Recipe, items [2]int, rounds int) (_ Line, err error) {
	w, err := open(ctx, filepath.Join(b.fresh(), "data"), nothing, engine.Config{})
	if err != nil {
		return l, err
	}
	defer func() { err = closing(w.close, err) }()
	type figures struct{ times, cpu []time.Duration }
	var of [2]figures
	var commits int
	for round := range rounds + 1 {
		for k, r := range [...]*recipe.Recipe{tree, flat} {
			pl, err := planOf(r, w.act)
			if err != nil {
				return l, err
			}
			params := map[string]any{"items": make([]any, items[k])}
			w.st.forget()
			began, before := time.Now(), cpu()
			if err := w.once(ctx, pl, params); err != nil {
				return l, err
			}
			if round == 0 {
				continue // warms up
			}
			of[k].times = append(of[k].times, time.Since(began))
			of[k].cpu = append(of[k].cpu, cpu()-before)
			if k == 0 {
				commits += w.st.count().commits
			}
		}
	}
	n := float64(l.N)
	l.Seconds = quantile(of[0].times, 0.5).Seconds()
	l.StepsPerS, l.CPUPerStepUS = n/l.Seconds, us(quantile(of[0].cpu, 0.5))/n
	l.spread(of[0].times)
	l.RSSMB = rss()
	l.put("over_flat", float64(quantile(of[0].times, 0.5))/float64(quantile(of[1].times, 0.5)))
	l.put("cpu_over_flat", float64(quantile(of[0].cpu, 0.5))/float64(quantile(of[1].cpu, 0.5)))
	l.put("syncs_per_child", float64(commits)/float64(rounds)/n)
	return l, nil
}
