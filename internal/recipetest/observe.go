// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// statusRefused is the status of a run that did not start.
const statusRefused = "refused"

// An outcome is what became of a run.
type outcome struct {
	status  string
	error   *journal.StepError
	outputs json.RawMessage
	input   map[string]any
	// steps are those of the run, and those of its child runs, whose paths begin with the path of
	// the step that ran them and a slash.
	steps  map[string]*journal.StepResult
	paths  []string // in the order in which they appeared, of the run itself
	seq    *view.Sequence
	bill   *view.Bill
	calls  map[string]int64
	micros int64
	tally  *view.Tally // nil if the run was refused
	side   *view.Side
}

// refused is the outcome of a start that was refused.
func refused(err error, input map[string]any) *outcome {
	return &outcome{
		status: statusRefused, error: &journal.StepError{Code: string(fault.CodeOf(err)), Message: fault.Message(err)}, input: input,
		steps: map[string]*journal.StepResult{}, bill: &view.Bill{}, seq: view.NewSequence(nil),
	}
}

// outcomeOf reads what became of a run.
func (s *sandbox) outcomeOf(p *plan.Plan, run string) (*outcome, error) {
	key := store.Key{Account: account, Run: run}
	o := &outcome{seq: view.NewSequence(p), tally: view.NewTally(p, false), side: view.NewSide(p, run, false)}
	biller := view.NewBiller(p, run)
	err := s.eachEvent(key, func(ev *journal.Event) error {
		o.tally.Add(ev)
		o.seq.Apply(ev)
		if err := biller.Apply(ev); err != nil {
			return err
		}
		return o.side.Apply(ev)
	})
	if err != nil {
		return nil, err
	}
	v := o.side.Run
	o.status, o.error, o.outputs, o.bill, o.micros = v.Status.String(), v.Error, v.Outputs, biller.Bill(), v.Ended-v.Started
	if st := biller.Start(); st != nil {
		o.input = st.Parameters
	}
	o.steps, o.paths = v.Steps()
	return o, s.addChildren(o, v, "")
}

// addChildren adds the steps of the child runs of a run. above is the path of the run itself.
func (s *sandbox) addChildren(o *outcome, v *view.Run, above string) error {
	for _, st := range v.Order {
		if st.Child == nil || st.Child.Run == "" {
			continue
		}
		key := store.Key{Account: account, Run: st.Child.Run}
		head, err := s.store.Head(s.ctx, key)
		if err != nil {
			return err
		}
		p, err := s.programs.Plan(s.ctx, s.store, head.PlanHash)
		if err != nil {
			return err
		}
		child := view.NewRun(p, key.Run)
		if err := s.eachEvent(key, child.Apply); err != nil {
			return err
		}
		path := above + st.Path + "/"
		steps, _ := child.Steps()
		for name, res := range steps {
			o.steps[path+name] = res
		}
		if err := s.addChildren(o, child, path); err != nil {
			return err
		}
	}
	return nil
}

// find returns the path of the step that a name stands for: its path, or its id if there is one
// instance of it. problem says why there is none.
func (o *outcome) find(name string) (path, problem string) {
	if o.steps[name] != nil {
		return name, ""
	}
	var found []string
	for path := range o.steps {
		if stepID(path[strings.LastIndexByte(path, '/')+1:]) == name {
			found = append(found, path)
		}
	}
	slices.Sort(found)
	switch len(found) {
	case 1:
		return found[0], ""
	case 0:
		problem = "the run has not come to this step"
		if near := spell.Nearest(name, slices.Sorted(maps.Keys(o.steps))); near != "" {
			problem += fmt.Sprintf("; did you mean %q?", near)
		}
		return "", problem
	}
	return "", fmt.Sprintf("it has run %d times: name one by its path, such as %q", len(found), found[0])
}

// ran lists the steps that ran, in the order in which they began.
func (o *outcome) ran() (paths []string) {
	for _, path := range o.paths {
		if st := o.steps[path]; o.seq.Began[path] > 0 && st.Status != journal.Skipped.String() {
			paths = append(paths, path)
		}
	}
	slices.SortStableFunc(paths, func(a, b string) int { return int(o.seq.Began[a]) - int(o.seq.Began[b]) })
	return paths
}

// vars are what assertions read.
func (o *outcome) vars() map[string]any {
	steps := map[string]any{}
	for path, st := range o.steps {
		steps[path] = map[string]any{
			"status": st.Status, "reason": st.Reason, "attempts": int64(st.Attempts), "output": view.Decoded(st.Output), "error": errorValue(st.Error),
			"durationMs": int64(st.DurationMS),
		}
	}
	calls := map[string]any{}
	for name, n := range o.calls {
		calls[name] = n
	}
	input := map[string]any{}
	for k, v := range o.input {
		input[k] = v
	}
	return map[string]any{
		"status": o.status, "error": errorValue(o.error), "output": view.Decoded(o.outputs), "input": input, "steps": steps, "calls": calls,
		"credits":    map[string]any{"estimated": o.bill.Estimated, "reserved": o.bill.Reserved, "charged": o.bill.Paid},
		"durationMs": o.micros / 1000,
	}
}

func errorValue(e *journal.StepError) any {
	if e == nil {
		return nil
	}
	return map[string]any{"code": e.Code, "message": e.Message}
}

// decoded decodes a value of the text of a test.
func decoded(raw json.RawMessage) any {
	v, err := jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1})
	if err != nil {
		return string(raw)
	}
	return v
}
