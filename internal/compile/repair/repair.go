// SPDX-License-Identifier: Apache-2.0

// Package repair makes a recipe that was read from a malformed text one that can be compiled, so that
// its other problems are found as well.
//
// It decides which parts of the steps are cleared or filled in, and which errors only follow from
// that. It reads no text and reports nothing.
package repair

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// A Repairer clears the malformed parts of the steps of a recovered recipe, and knows
// which further errors follow from that.
type Repairer struct {
	Recovered    *recipe.Recipe
	namesLost    bool     // a name that other steps may use was cleared
	inputsLost   []string // pointers to steps whose inputs were cleared
	incomplete   []string // pointers to objects that lack a field, which has been reported
	invalidNames []string // pointers to names that are not valid and were kept
}

// tokens splits a pointer into its tokens, from the recipe on.
func (m *Repairer) tokens(pointer string) []string {
	return strings.Split(strings.TrimPrefix(pointer, m.Recovered.Ptr+"/"), "/")
}

// InSteps reports whether a pointer leads into a step.
func (m *Repairer) InSteps(pointer string) bool {
	tokens := m.tokens(pointer)
	return len(tokens) > 1 && tokens[0] == "steps"
}

// Repair clears the part of the recipe that a diagnostic is about.
func (m *Repairer) Repair(d fault.Diagnostic) {
	tokens := m.tokens(d.Pointer)
	switch d.Rule {
	case "missing-field", "too-few":
		m.incomplete = append(m.incomplete, d.Pointer) // addPlaceholder fills it in
	case "duplicate-key": // the recovered recipe has the first one
	case "step-kind":
		m.incomplete = append(m.incomplete, d.Pointer)
		switch v := valueOf(reflect.ValueOf(m.Recovered), tokens).Interface().(type) {
		case *recipe.Step:
			if v != nil {
				keepOneKind(v)
			}
		case *recipe.Child:
			if v != nil {
				keepOneOf(v, "ref", "file", "inline", "definition")
			}
		}
	default:
		m.clear(d.Pointer, tokens)
	}
}

// valueOf returns the value at a pointer, or a nil interface when there is none.
func valueOf(v reflect.Value, tokens []string) reflect.Value {
	for _, token := range tokens {
		if v = childOf(v, token); !v.IsValid() {
			return reflect.ValueOf(new(any)).Elem()
		}
	}
	return v
}

// childOf returns the field or entry that a token names, or the zero Value.
func childOf(v reflect.Value, token string) reflect.Value {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(v.Type()) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == token && !f.Anonymous {
				return v.FieldByIndex(f.Index)
			}
		}
	case reflect.Slice:
		if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < v.Len() && v.Type().Elem().Kind() != reflect.Uint8 {
			return v.Index(i)
		}
	}
	return reflect.Value{}
}

// scopeFields are the fields that hold steps; nameFields are those that define names.
var (
	scopeFields = []string{"then", "else", "branches", "steps", "condition", "parallel", "loop"}
	nameFields  = []string{"id", "outputBinding", "as", "index"}
)

func (m *Repairer) clear(pointer string, tokens []string) {
	last := tokens[len(tokens)-1]
	if _, err := strconv.Atoi(last); slices.Contains(scopeFields, last) || err == nil && slices.Contains(scopeFields, tokens[len(tokens)-2]) {
		m.namesLost = true
	}
	v := reflect.ValueOf(m.Recovered)
	for i, token := range tokens {
		if token == "inputBindings" || token == "parameters" || token == "inputs" {
			owner := strings.TrimSuffix(strings.TrimSuffix(strings.Join(tokens[:i], "/"), "/action"), "/recipe")
			m.inputsLost = append(m.inputsLost, pointer[:strings.Index(pointer, owner)+len(owner)]+"/")
		}
		next := childOf(v, token)
		if !next.IsValid() {
			break // in a map, or in a value that is kept as text: all of it is cleared
		}
		v = next
		if v.Type() == reflect.TypeFor[*recipe.OnError]() && last == "strategy" {
			break
		}
		if list, ok := v.Interface().(*[]string); ok && list != nil {
			break
		}
	}
	if last == "maxIterations" {
		m.incomplete = append(m.incomplete, strings.TrimSuffix(pointer, "/"+last)) // its loop lacks it now
	}
	switch {
	case slices.Contains(nameFields, last) && v.Kind() == reflect.String && v.String() != "":
		m.invalidNames = append(m.invalidNames, pointer) // other steps may use it
		return
	case slices.Contains(nameFields, last):
		m.namesLost = true
	}
	if v.Kind() == reflect.Map && !v.IsNil() {
		v.SetMapIndex(reflect.ValueOf(last), reflect.Value{})
		if v.Len() > 0 {
			return
		}
	}
	v.SetZero()
}

// Cascades reports whether an error only follows from a part that was cleared.
func (m *Repairer) Cascades(d fault.Diagnostic) bool {
	within := func(all []string) bool {
		return slices.ContainsFunc(all, func(at string) bool { return strings.HasPrefix(d.Pointer+"/", at) })
	}
	switch d.Rule {
	case "bad-id", "bad-name":
		return within(m.invalidNames)
	case "unknown-step", "undefined-name", "invisible-step", "other-scope":
		return m.namesLost
	case "missing-input":
		return within(m.inputsLost)
	case "missing-field", "no-steps", "bad-wait", "stray-fallback", "step-kind":
		return within(m.incomplete)
	}
	return false
}

// keepOneKind clears all but the first of the fields that define what a step does.
func keepOneKind(st *recipe.Step) {
	keepOneOf(st, "action", "condition", "parallel", "transform", "loop", "wait", "fail", "recipe")
	st.Type = ""
}

// keepOneOf clears all but the first of the fields that are set.
func keepOneOf(object any, names ...string) {
	found := false
	for _, name := range names {
		if f := childOf(reflect.ValueOf(object), name); found {
			f.SetZero()
		} else {
			found = !f.IsZero()
		}
	}
}

// unknownValue replaces an expression that could not be read: its value may be
// anything.
const unknownValue = "dyn(null)"

// AddPlaceholders fills in what steps lack, so that they can be compiled.
func AddPlaceholders(steps []*recipe.Step) []*recipe.Step {
	steps = slices.DeleteFunc(steps, func(st *recipe.Step) bool { return st == nil })
	for _, st := range steps {
		addPlaceholder(st)
	}
	return steps
}

func addPlaceholder(st *recipe.Step) {
	orValue := func(src *string, value string) {
		if *src == "" {
			*src = value
		}
	}
	switch {
	case st.Condition != nil:
		orValue(&st.Condition.Expression, "true")
		st.Condition.Then, st.Condition.Else = orPlaceholder(AddPlaceholders(st.Condition.Then)), AddPlaceholders(st.Condition.Else)
	case st.Parallel != nil:
		if len(st.Parallel.Branches) == 0 {
			st.Parallel.Branches = make([][]*recipe.Step, 1)
		}
		for i, branch := range st.Parallel.Branches {
			st.Parallel.Branches[i] = orPlaceholder(AddPlaceholders(branch))
		}
	case st.Loop != nil:
		addLoop(st.Loop)
		st.Loop.Steps = orPlaceholder(AddPlaceholders(st.Loop.Steps))
	case st.Transform != nil:
		if len(st.Transform.Value) == 0 {
			orValue(&st.Transform.Expression, unknownValue)
		}
	case st.Recipe != nil && st.Recipe.Inline != nil:
		st.Recipe.Inline.Steps = orPlaceholder(AddPlaceholders(st.Recipe.Inline.Steps))
	case st.Action != nil && st.Action.Name != "", st.Fail != nil, st.Recipe != nil && (st.Recipe.Ref != "" || st.Recipe.File != "" || st.Recipe.Definition != ""),
		st.Wait != nil && (st.Wait.Duration != "" || st.Wait.Until != "" || st.Wait.Signal != "" || st.Wait.Approval != nil && st.Wait.Approval.Title != ""):
	default:
		*st = recipe.Step{ID: st.ID, Ptr: st.Ptr, DependsOn: st.DependsOn, Common: recipe.Common{OutputBinding: st.OutputBinding, When: st.When},
			Transform: &recipe.Transform{Expression: unknownValue}}
	}
	if h := st.OnError; h != nil {
		if h.FallbackStep == nil && h.Strategy == "fallback" {
			h.FallbackStep = &recipe.Step{}
		}
		if h.FallbackStep != nil {
			addPlaceholder(h.FallbackStep)
		}
	}
	if c := st.Compensate; c != nil && (c.Action == nil || c.Action.Name == "") {
		st.Compensate = nil
	}
}

// addLoop gives a loop what it cannot be without.
func addLoop(l *recipe.Loop) {
	if l.While == "" && l.Until == "" && l.Over == "" {
		l.Over, l.MaxIterations = "dyn([])", 0
	}
	switch a := l.Accumulate; {
	case a == nil:
	case a.As == "":
		l.Accumulate = nil
	case a.Expression == "":
		a.Expression = unknownValue
	}
}

// orPlaceholder returns steps, or a placeholder when there are none.
func orPlaceholder(steps []*recipe.Step) []*recipe.Step {
	if len(steps) > 0 {
		return steps
	}
	return []*recipe.Step{{Transform: &recipe.Transform{Expression: unknownValue}}}
}
