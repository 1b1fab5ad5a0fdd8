// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// secondLook finds what else is wrong with a text that already has problems of
// form, so that a person mends all of it in one go. Steps with a problem take
// part as stand-ins: their names are known, what they do is not looked at.
func secondLook(src *recipe.Source, diags []fault.Diagnostic, opt Options) []fault.Diagnostic {
	draft := src.Draft()
	if draft == nil || len(draft.Steps) == 0 || len(diags) >= recipe.MaxDiagnostics {
		return diags
	}
	broken := make(map[string]bool, len(diags))
	for _, d := range diags {
		broken[d.Pointer+"/"] = true // the value itself, not only something in it
		for at := d.Pointer; at != ""; at = at[:strings.LastIndexByte(at, '/')] {
			broken[at] = true
		}
	}
	forgetFields(draft, broken)
	draft.Steps = standIns(draft.Steps, broken)
	_, more := Compile(draft, src, opt)
	for _, d := range more {
		if d.Severity == fault.SeverityError {
			diags = append(diags, d)
		}
	}
	sortDiagnostics(diags)
	return diags[:min(len(diags), recipe.MaxDiagnostics)]
}

// forgetFields empties the fields of the recipe itself that have a problem.
func forgetFields(r *recipe.Recipe, broken map[string]bool) {
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name != "steps" && (broken["/"+name] || broken["/plan_definition/"+name]) {
			v.Field(i).SetZero()
		}
	}
}

// standIns replaces the steps that have a problem of their own. A problem deeper
// in leaves what owns it as it is, where only whole steps inside are replaced.
func standIns(steps []*recipe.Step, broken map[string]bool) []*recipe.Step {
	var kept []*recipe.Step
	for _, st := range steps {
		if st == nil {
			continue
		}
		kept = append(kept, st)
		if !broken[st.Ptr] {
			continue
		}
		if broken[st.Ptr+"/"] || !soundAround(st, broken) {
			binding := st.OutputBinding
			if st.Transform != nil {
				binding = cmp.Or(binding, st.Transform.OutputBinding)
			}
			*st = recipe.Step{ID: st.ID, Ptr: st.Ptr, DependsOn: st.DependsOn, OutputBinding: binding,
				Transform: &recipe.Transform{Expression: "null"}}
			continue
		}
		if c := st.Condition; c != nil {
			c.Then, c.Else = standIns(c.Then, broken), standIns(c.Else, broken)
		}
		if p := st.Parallel; p != nil {
			for i := range p.Branches {
				p.Branches[i] = standIns(p.Branches[i], broken)
			}
		}
		if l := st.Loop; l != nil {
			l.Steps = standIns(l.Steps, broken)
		}
	}
	return kept
}

// soundAround says that the problems below a step are all inside steps it owns.
func soundAround(st *recipe.Step, broken map[string]bool) bool {
	var containers, steps []string
	list := func(at string, owned []*recipe.Step) {
		containers = append(containers, at)
		for _, in := range owned {
			if in != nil {
				steps = append(steps, in.Ptr)
			}
		}
	}
	switch {
	case st.Condition != nil:
		containers = append(containers, st.Ptr+"/condition")
		list(st.Ptr+"/condition/then", st.Condition.Then)
		list(st.Ptr+"/condition/else", st.Condition.Else)
	case st.Parallel != nil:
		containers = append(containers, st.Ptr+"/parallel", st.Ptr+"/parallel/branches")
		for i, b := range st.Parallel.Branches {
			list(st.Ptr+"/parallel/branches/"+strconv.Itoa(i), b)
		}
	case st.Loop != nil:
		containers = append(containers, st.Ptr+"/loop")
		list(st.Ptr+"/loop/steps", st.Loop.Steps)
	}
	for at := range broken {
		at = strings.TrimSuffix(at, "/")
		if !strings.HasPrefix(at, st.Ptr+"/") || slices.Contains(containers, at) {
			continue
		}
		if !slices.ContainsFunc(steps, func(in string) bool { return at == in || strings.HasPrefix(at, in+"/") }) {
			return false
		}
	}
	return true
}
