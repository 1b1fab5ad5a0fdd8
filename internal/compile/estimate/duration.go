// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"slices"

	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/plan"
)

// enoughRuns is how many past runs say more about a duration than what actions declare.
const enoughRuns = 3

// Duration returns how long a run of p is expected to take, in milliseconds (X202). past are
// the durations of earlier runs of the same version of the recipe, in milliseconds, in any
// order. With at least three of them it is their median.
//
// Otherwise it is the sum along the longest chain of steps, in which an action takes the
// middle of its durationRange, a parallel step as long as its longest branch, a condition as
// long as its longer side, and a loop one round for as many items as it runs at a time; a
// loop whose items are not known has one round. actions and known are those of [Of].
func Duration(p *plan.Plan, actions catalogue.Finder, known Known, past []int64) (ms int64) {
	if len(past) >= enoughRuns {
		return median(past)
	}
	e := &estimator{p: p, actions: actions, vars: known.vars(p), children: newChildEstimates(p), most: rootDepth(p)}
	return e.expected(0)
}

func median(values []int64) int64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return middle(sorted[half-1], sorted[half])
}

// middle is the middle of two numbers that are not negative; their sum may overflow.
func middle(a, b int64) int64 { return a/2 + b/2 + (a%2+b%2)/2 }

// expected is how long the steps of a graph take together.
func (e *estimator) expected(graph int32) (ms int64) {
	if graph == plan.None {
		return 0
	}
	g := &e.p.Graphs[graph]
	ends := make([]int64, g.N)
	for _, i := range e.inWaves(g) {
		begin := int64(0)
		for _, pred := range e.p.Steps[i].Preds {
			begin = max(begin, ends[pred-g.First])
		}
		ends[i-g.First] = addSaturating(begin, e.expectedStep(&e.p.Steps[i]))
		ms = max(ms, ends[i-g.First])
	}
	return ms
}

func (e *estimator) expectedStep(st *plan.Step) (ms int64) {
	switch st.Kind {
	case plan.Action:
		a := e.action(st)
		return middle(a.ms[0], max(a.ms[0], a.ms[1]))
	case plan.Condition:
		return max(e.expected(st.Then), e.expected(st.Else))
	case plan.Parallel:
		for _, g := range st.Branches {
			ms = max(ms, e.expected(g))
		}
		return ms
	case plan.Loop:
		rounds := int64(1)
		if st.Conditional() {
			rounds = (st.Rounds.Max + 1) / 2
		} else if n, known := e.items(st); known {
			lanes := max(int64(st.Concurrency), 1)
			rounds = (n + lanes - 1) / lanes
		}
		return mulSaturating(e.expected(st.Body), rounds)
	case plan.Recipe:
		return e.expectedChild(st)
	case plan.Wait:
		return st.DurationMS
	}
	return 0
}

// expectedChild is how long the run takes that a step starts; 0 if its recipe is not found,
// or if it would be deeper than runs may nest.
func (e *estimator) expectedChild(st *plan.Step) (ms int64) {
	run, ok := e.below(st)
	if !ok {
		return 0
	}
	ms, done := e.children.expected[run]
	if !done && e.children.counted <= maxCounted {
		e.children.counted += len(run.plan.Steps)
		ms = e.inside(st, run).expected(0)
		e.children.expected[run] = ms
	}
	if st.TimeoutMS > 0 {
		ms = min(ms, st.TimeoutMS)
	}
	return ms
}
