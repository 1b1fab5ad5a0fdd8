// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"maps"
	"slices"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// A Tally counts what happened to one recipe in simulated schedules, from durable
// events alone. The frequencies say nothing about runs outside of simulations.
type Tally struct {
	plan  *plan.Plan
	steps []StepTally
	ends  map[End]int64
	runs  map[store.Key]*runTally // of the current schedule
}

// A StepTally counts the outcomes of one step of a recipe, over all runs, iterations
// and generations.
type StepTally struct {
	Step   string `json:"step"`
	Kind   string `json:"kind"`
	Action string `json:"action,omitempty"`
	// Attempts is the largest number of attempts with one effect key. An attempt
	// repeats the key when the outcome of the previous one was unknown.
	Attempts  int   `json:"attemptsOfOneEffect,omitempty"`
	Tries     int   `json:"attemptsAtMost,omitempty"` // the most attempts of one step instance
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
	Skipped   int64 `json:"skipped"`
	Cancelled int64 `json:"cancelled"`
}

// An End is a way in which runs ended.
type End struct {
	Status string `json:"status"`
	Code   string `json:"code,omitempty"`
}

type runTally struct {
	end     End
	effects map[string]int // attempts by effect key
	tries   map[journal.Ref]int
}

// NewTally returns a tally of runs of p.
func NewTally(p *plan.Plan) *Tally {
	t := &Tally{plan: p, steps: make([]StepTally, len(p.Steps)), ends: map[End]int64{}, runs: map[store.Key]*runTally{}}
	for i := range p.Steps {
		s := &p.Steps[i]
		t.steps[i] = StepTally{Step: stepName(p, int32(i)), Kind: s.Kind.String()}
		if s.Kind == plan.Action && s.Action >= 0 {
			t.steps[i].Action = p.Actions[s.Action].Name
		}
	}
	return t
}

// stepName is a step's id, preceded by those of the steps that own it.
func stepName(p *plan.Plan, i int32) string {
	name := p.Steps[i].ID
	for g := p.Steps[i].Graph; p.Graphs[g].Owner >= 0; g = p.Steps[p.Graphs[g].Owner].Graph {
		name = p.Steps[p.Graphs[g].Owner].ID + "." + name
	}
	return name
}

// Observe adds an event that has become durable, and the run after that event. Of a tree
// of runs only the root counts.
func (t *Tally) Observe(key store.Key, run *machine.Run, ev *journal.Event) {
	if st := run.Start(); st != nil && st.Child != nil {
		return
	}
	r := t.runs[key]
	if r == nil {
		r = &runTally{effects: map[string]int{}, tries: map[journal.Ref]int{}}
		t.runs[key] = r
	}
	switch ev.Kind {
	case journal.EvRunCompleted, journal.EvRunFailed, journal.EvRunCancelled, journal.EvRunExpired:
		code, _ := run.Failure()
		r.end = End{run.Status().String(), string(code)}
		return
	case journal.EvRunRetried:
		r.end = End{}
		return
	}
	if ev.Step < 0 {
		return
	}
	s := &t.steps[ev.Step]
	switch ev.Kind {
	case journal.EvNodeStarted:
		effect := run.EffectKey(ev.Ref())
		r.effects[effect]++
		r.tries[ev.Ref()]++
		s.Attempts, s.Tries = max(s.Attempts, r.effects[effect]), max(s.Tries, r.tries[ev.Ref()])
	case journal.EvNodeCompleted:
		s.Completed++
	case journal.EvNodeFailed:
		s.Failed++
	case journal.EvNodeSkipped:
		s.Skipped++
	case journal.EvNodeCancelled:
		s.Cancelled++
	}
}

// Close counts the ends of the runs of the finished schedule.
func (t *Tally) Close() {
	for _, r := range t.runs {
		if r.end.Status != "" {
			t.ends[r.end]++
		}
	}
	clear(t.runs)
}

// Add adds the counts of another tally of the same recipe.
func (t *Tally) Add(o *Tally) {
	for i := range o.steps {
		s, from := &t.steps[i], &o.steps[i]
		s.Attempts, s.Tries = max(s.Attempts, from.Attempts), max(s.Tries, from.Tries)
		s.Completed += from.Completed
		s.Failed += from.Failed
		s.Skipped += from.Skipped
		s.Cancelled += from.Cancelled
	}
	for end, n := range o.ends {
		t.ends[end] += n
	}
}

// Steps lists the steps in the order of the plan.
func (t *Tally) Steps() []StepTally { return slices.Clone(t.steps) }

// Ends returns how often runs ended in each way.
func (t *Tally) Ends() map[End]int64 { return maps.Clone(t.ends) }
