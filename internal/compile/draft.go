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
// form, so that a person mends all of it in one go. What only tunes a step is left
// out where it is wrong. A step with another problem takes part as a stand-in: its
// name is known, what it does is not looked at.
func secondLook(src *recipe.Source, diags []fault.Diagnostic, opt Options) []fault.Diagnostic {
	draft := src.Draft()
	if draft == nil || len(draft.Steps) == 0 || len(diags) >= recipe.MaxDiagnostics {
		return diags
	}
	broken, unknown := make(map[string]bool, len(diags)), ""
	for _, d := range diags {
		if d.Rule == "unknown-field" {
			unknown = d.Pointer
		}
		within := unknown != "" && (d.Pointer == unknown || strings.HasPrefix(d.Pointer, unknown+"/"))
		if within || forgetSetting(reflect.ValueOf(draft).Elem(), d.Pointer) {
			continue // the draft is without it, and means the rest
		}
		broken[d.Pointer+"/"] = true // the value itself, not only something in it
		for at := d.Pointer; at != ""; at = at[:strings.LastIndexByte(at, '/')] {
			broken[at] = true
		}
	}
	forgetFields(draft, broken)
	draft.Steps = standIns(draft.Steps, broken)
	_, more := Compile(draft, src, opt)
	for _, d := range more {
		if d.Severity == fault.SeverityError && (!src.Partial() || !slices.Contains(needTheRest, d.Rule)) {
			diags = append(diags, d)
		}
	}
	sortDiagnostics(diags)
	return diags[:min(len(diags), recipe.MaxDiagnostics)]
}

// needTheRest are the rules that a step or field breaks only if what it refers to
// is nowhere in the text.
var needTheRest = []string{
	"unknown-step", "undefined-name", "invisible-step", "other-scope", "missing-input", "missing-field", "stray-fallback",
	"no-steps", "not-parallelizable",
}

// settings are the fields that only tune what a step does, or when: without one,
// all that is said of the others holds.
var settings = []string{
	"when", "timeout", "total_timeout", "continue_on_error", "on_parent_failure", "waitFor", "failureStrategy", "maxConcurrency",
	"maxRetries", "retryDelay", "maxAttempts", "initialDelay", "maxDelay", "backoffMultiplier", "jitter", "retryableErrors",
}

// forgetSetting empties the setting of a step that the pointer names; false = it
// names something else.
func forgetSetting(v reflect.Value, pointer string) bool {
	tokens := strings.Split(strings.TrimPrefix(strings.TrimPrefix(pointer, "/plan_definition"), "/"), "/")
	if !slices.Contains(settings, tokens[len(tokens)-1]) {
		return false
	}
	for _, token := range tokens {
		for v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		switch v.Kind() {
		case reflect.Struct:
			i := slices.IndexFunc(reflect.VisibleFields(v.Type()), func(f reflect.StructField) bool {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				return name == token
			})
			if i < 0 {
				return false
			}
			v = v.Field(i)
		case reflect.Slice:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= v.Len() {
				return false
			}
			v = v.Index(i)
		default:
			return false
		}
	}
	v.SetZero()
	return true
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
