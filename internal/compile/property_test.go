// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
)

// TestX53_PlansHoldTogether compiles random recipes and checks the invariants of plans that
// the machine relies on.
func TestX53_PlansHoldTogether(t *testing.T) {
	plans, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecipe(t)
		p, diags := Compile(r, nil, Options{Actions: testActions()})
		if p == nil {
			if !HasErrors(diags) {
				t.Fatal("no plan and no error")
			}
			refused++
			return
		}
		plans++
		checkShape(t, p)
		checkReferences(t, p)
		again, _ := Compile(r, nil, Options{Actions: testActions()})
		if again.Hash() != p.Hash() {
			t.Fatal("the same recipe compiled to two plans")
		}
		data, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := plan.Decode(data)
		if err != nil || back.Hash() != p.Hash() {
			t.Fatalf("the plan does not survive its stored form: %v", err)
		}
		if err := back.Check(); err != nil {
			t.Fatalf("Check refuses what compile made: %v", err)
		}
		for order := range uint64(4) {
			checkRuns(t, p, warnings(r, diags), order/2, order)
		}
	})
	t.Logf("%d plans, %d refused", plans, refused)
	if plans*10 < refused {
		t.Errorf("only %d of %d random recipes compile: the property sees too little", plans, plans+refused)
	}
}

func checkShape(t *rapid.T, p *plan.Plan) {
	covered := int32(0)
	for g := range p.Graphs {
		gr := &p.Graphs[g]
		covered += gr.N
		waves := int32(0)
		for i := gr.First; i < gr.First+gr.N; i++ {
			st := &p.Steps[i]
			if st.Graph != int32(g) || gr.Owner >= i {
				t.Fatalf("step %s: graph %d, owner %d", st.ID, st.Graph, gr.Owner)
			}
			wave := int32(0)
			for k, q := range st.Preds {
				if p.Steps[q].Graph != st.Graph || k > 0 && st.Preds[k-1] >= q {
					t.Fatalf("step %s: predecessors %v", st.ID, st.Preds)
				}
				if !slices.Contains(p.Steps[q].Succs, i) {
					t.Fatalf("%s does not know its successor %s", p.Steps[q].ID, st.ID)
				}
				wave = max(wave, p.Steps[q].Wave+1)
			}
			for _, s := range st.Succs {
				if !slices.Contains(p.Steps[s].Preds, i) {
					t.Fatalf("%s does not know its predecessor %s", p.Steps[s].ID, st.ID)
				}
			}
			if st.Wave != wave {
				t.Fatalf("step %s: wave %d, want %d", st.ID, st.Wave, wave)
			}
			waves = max(waves, wave+1)
			if st.Slot != plan.None && st.Slot >= p.Graphs[gr.Frame].Slots {
				t.Fatalf("step %s: slot %d of %d", st.ID, st.Slot, p.Graphs[gr.Frame].Slots)
			}
		}
		if gr.Waves != waves {
			t.Fatalf("graph %d: %d waves, want %d", g, gr.Waves, waves)
		}
	}
	if int(covered) != len(p.Steps) {
		t.Fatalf("the graphs hold %d of %d steps", covered, len(p.Steps))
	}
}

// eachVar calls fn with every variable of every expression and the step that reads it.
func eachVar(p *plan.Plan, fn func(step int32, v plan.Var)) {
	each := func(step int32, vars []plan.Var) {
		for _, v := range vars {
			fn(step, v)
		}
	}
	for i := range p.Steps {
		st := &p.Steps[i]
		if st.When != nil {
			each(int32(i), st.When.Vars)
		}
		if st.Expr != nil {
			each(int32(i), st.Expr.Vars)
		}
		each(int32(i), st.ParamRef)
		for k := range st.Bindings {
			each(int32(i), st.Bindings[k].Expr.Vars)
		}
	}
	for k := range p.Outputs {
		each(plan.None, p.Outputs[k].Expr.Vars)
	}
}

func liftIn(p *plan.Plan, i, g int32) int32 {
	for i != plan.None && p.Steps[i].Graph != g {
		i = p.Graphs[p.Steps[i].Graph].Owner
	}
	return i
}

// checkReferences checks that a name refers to something visible, whose output is kept and
// which has settled before the reader begins.
func checkReferences(t *rapid.T, p *plan.Plan) {
	ancestors := make([]map[int32]bool, len(p.Steps))
	for _, i := range byWave(p) {
		ancestors[i] = map[int32]bool{}
		for _, q := range p.Steps[i].Preds {
			ancestors[i][q] = true
			for a := range ancestors[q] {
				ancestors[i][a] = true
			}
		}
	}
	eachVar(p, func(step int32, v plan.Var) {
		reader := plan.None
		if step != plan.None {
			if reader = liftIn(p, step, v.Graph); reader == plan.None && v.Kind != plan.VarInput {
				t.Fatalf("%s reads %+v, which it cannot see", p.Steps[step].ID, v)
			}
		}
		switch v.Kind {
		case plan.VarStep:
			if !p.Steps[v.Index].Keep || p.Steps[v.Index].Graph != v.Graph {
				t.Fatalf("%+v: the step's output is not kept", v)
			}
			undo := step != plan.None && p.Graphs[p.Steps[step].Graph].Role == plan.Compensation
			if step != plan.None && reader != v.Index && !undo && !ancestors[reader][v.Index] {
				t.Fatalf("%s reads %s and does not wait for it", p.Steps[step].ID, p.Steps[v.Index].ID)
			}
		case plan.VarBinding:
			bound := false
			for i := range p.Steps {
				st := &p.Steps[i]
				if st.Slot == v.Index && p.Graphs[st.Graph].Frame == v.Graph {
					bound = true
					if !st.Keep {
						t.Fatalf("%s binds %s, which is read, and is not kept", st.ID, v.Name)
					}
				}
			}
			if !bound {
				t.Fatalf("nothing binds %+v", v)
			}
		}
	})
}

func byWave(p *plan.Plan) []int32 {
	order := make([]int32, len(p.Steps))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return int(p.Steps[a].Wave - p.Steps[b].Wave) })
	return order
}

// A dryRun executes a plan without values. It records which step had bound a slot when it
// was read. `choice` determines which sides are taken, what fails and how many items there
// are; `order` determines the order of ready steps.
type dryRun struct {
	p             *plan.Plan
	choice, order uint64
	reads         map[string]int32 // reader/name -> the step that had bound it, or None
}

type dryFrame struct {
	graph int32
	slots []int32
	outer *dryFrame
}

func mix(a, b uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019
	x ^= x >> 31
	x *= 0xbf58476d1ce4e5b9
	return x ^ x>>27
}

func (d *dryRun) choose(what string, n int) int {
	h := d.choice
	for _, b := range []byte(what) {
		h = mix(h, uint64(b))
	}
	return int(h % uint64(n))
}

// scope runs a graph; it returns false if the graph failed or was cancelled.
func (d *dryRun) scope(g int32, f *dryFrame, path string) bool {
	gr := &d.p.Graphs[g]
	if gr.Frame == g {
		f = &dryFrame{graph: g, slots: make([]int32, gr.Slots), outer: f}
		for k := range f.slots {
			f.slots[k] = plan.None
		}
	}
	left := make([]int, gr.N)
	var ready []int32
	for i := gr.First; i < gr.First+gr.N; i++ {
		if left[i-gr.First] = len(d.p.Steps[i].Preds); left[i-gr.First] == 0 {
			ready = append(ready, i)
		}
	}
	ok := true
	for n := uint64(0); len(ready) > 0; n++ {
		k := int(mix(mix(d.order, uint64(g)), n) % uint64(len(ready)))
		i := ready[k]
		ready = slices.Delete(ready, k, k+1)
		if !d.step(i, f, path) {
			// Steps below a failed step never run. Its siblings continue here, because
			// otherwise the reads would depend on the order.
			ok = false
			continue
		}
		for _, s := range d.p.Steps[i].Succs {
			if left[s-gr.First]--; left[s-gr.First] == 0 {
				ready = append(ready, s)
			}
		}
	}
	if g == 0 && ok {
		for k := range d.p.Outputs {
			d.read(fmt.Sprintf("output %d", k), d.p.Outputs[k].Expr.Vars, f)
		}
	}
	return ok
}

func (d *dryRun) read(who string, vars []plan.Var, f *dryFrame) {
	for _, v := range vars {
		if v.Kind != plan.VarBinding {
			continue
		}
		at := f
		for at.graph != v.Graph {
			at = at.outer
		}
		d.reads[who+" "+v.Name] = at.slots[v.Index]
	}
}

// step runs one step; it returns false if it failed, so that steps that wait for it do not
// run.
func (d *dryRun) step(i int32, f *dryFrame, path string) bool {
	st := &d.p.Steps[i]
	who := path + "/" + st.ID
	if st.When != nil {
		d.read(who, st.When.Vars, f)
		if d.choose(who+" when", 3) == 0 {
			return true
		}
	}
	if st.Expr != nil {
		d.read(who, st.Expr.Vars, f)
	}
	for k := range st.Bindings {
		d.read(who, st.Bindings[k].Expr.Vars, f)
	}
	ok := true
	switch st.Kind {
	case plan.Fail:
		ok = false
	case plan.Action, plan.Recipe:
		ok = st.OnError == plan.OnErrorFail && !st.ContinueOnError || d.choose(who+" fails", 2) == 0
	case plan.Condition:
		side := st.Then
		if d.choose(who+" side", 2) == 0 {
			side = st.Else
		}
		ok = side == plan.None || d.scope(side, f, who)
	case plan.Loop:
		for k := range d.choose(who+" items", 3) {
			ok = d.scope(st.Body, f, fmt.Sprintf("%s[%d]", who, k)) && ok
		}
	case plan.Parallel:
		won := 0
		for k, b := range st.Branches {
			cut := st.WaitFor != plan.WaitAll && k != d.choose(who+" winner", len(st.Branches)) && d.choose(fmt.Sprint(who, k), 2) == 0
			cut = cut || st.Strategy == plan.Ignore && d.choose(fmt.Sprint(who, k, "fails"), 3) == 0
			if !cut && d.scope(b, f, who) {
				won++
			}
		}
		ok = won == len(st.Branches) || st.Strategy == plan.Ignore || st.WaitFor != plan.WaitAll && won > 0
	}
	if !ok && st.OnError == plan.OnErrorFallback {
		ok = d.scope(st.Fallback, f, who)
	} else if !ok && (st.OnError == plan.OnErrorSkip || st.ContinueOnError) {
		return true // skipped: it binds nothing
	}
	if ok && st.Slot != plan.None {
		at := f
		for at.graph != d.p.Graphs[st.Graph].Frame {
			at = at.outer
		}
		at.slots[st.Slot] = i
	}
	return ok
}

// warnings returns the names that may be unbound, each with the step that reads it.
func warnings(r *recipe.Recipe, diags []fault.Diagnostic) map[string]bool {
	c := newCompiler(r, nil, Options{})
	c.flatten()
	c.assignIDs()
	warned := map[string]bool{}
	for _, d := range diags {
		if d.Rule != "maybe-unbound" {
			continue
		}
		who, longest := "output 0", ""
		for i, n := range c.nodes {
			if strings.HasPrefix(d.Pointer, n.ptr+"/") && len(n.ptr) > len(longest) {
				who, longest = c.p.Steps[i].ID, n.ptr
			}
		}
		warned[who+" "+strings.Trim(strings.Fields(d.Msg)[0], `"`)] = true
	}
	return warned
}

// checkRuns checks that a name without a warning is always bound, and that the step that
// bound it does not depend on which of two steps is faster (R13, R40).
func checkRuns(t *rapid.T, p *plan.Plan, warned map[string]bool, choice, order uint64) {
	runs := [2]dryRun{}
	for k := range runs {
		runs[k] = dryRun{p: p, choice: choice, order: order*2 + uint64(k), reads: map[string]int32{}}
		runs[k].scope(0, nil, "")
	}
	for who, by := range runs[0].reads {
		if by == plan.None && !warned[who[strings.LastIndexByte(who, '/')+1:]] {
			t.Fatalf("%s is not bound, and nobody warned:\n%s", who, dump(p))
		}
		if other, ok := runs[1].reads[who]; ok && other != by {
			t.Fatalf("%s was bound by %d in one order and by %d in another:\n%s", who, by, other, dump(p))
		}
	}
}
