// SPDX-License-Identifier: Apache-2.0

//go:build !small

package extend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
)

// equal reports whether two parts of recipes are the same, wherever they stand.
func equal(a, b any) bool {
	x, err := jsonx.Marshal(a)
	if err != nil {
		return false
	}
	y, err := jsonx.Marshal(b)
	return err == nil && bytes.Equal(x, y)
}

// same reports whether two parts are one: two texts may extend the same third one.
func (t *text) same(a, b any, at, other string) bool {
	return t.src.SameOrigin(at, t.src.Source, other) && equal(a, b)
}

// clash reports two definitions of one part. own is set if one of them is in this text, at `at`.
func (t *text) clash(what, at, other, override string, own bool) {
	first, second := t.place(other, "the other one"), t.place(at, "this one")
	msg := what + " is defined twice"
	hint := "rename one of them"
	if override != "" {
		hint = fmt.Sprintf("rename one of them, or define it in this text and say `override: [%s]`", override)
	}
	if own {
		if override != "" {
			hint = fmt.Sprintf("rename one of them, or say `override: [%s]`", override)
		}
		t.report(fault.RecipeInvalid, "extends-clash", at, msg+", here and in what this text extends", hint, first)
		return
	}
	t.report(fault.RecipeInvalid, "extends-clash", t.at+"/extends", msg+" by what this text extends", hint, first, second)
}

// A known step has an id.
type known struct {
	step  *recipe.Step
	inner bool // within another step
}

// ids returns the steps of a list that have ids, and those within them.
func ids(steps []*recipe.Step) (list []known) {
	for _, s := range steps {
		if s == nil {
			continue
		}
		one := &recipe.Recipe{Steps: []*recipe.Step{s}}
		one.Each(func(in *recipe.Step) {
			if in.ID != "" {
				list = append(list, known{in, in != s})
			}
		})
	}
	return list
}

// steps puts the steps of the bases before those of the text, in order.
func (t *text) steps(bases []*base) {
	own := map[string]*recipe.Step{} // those that may be in place of others
	for _, s := range t.r.Steps {
		if s != nil && s.ID != "" {
			own[s.ID] = s
		}
	}
	have, placed := map[string]known{}, map[string]bool{}
	var all []*recipe.Step
	for _, b := range bases {
		t.order(b)
		for _, s := range b.r.Steps {
			if s == nil {
				continue
			}
			if o := own[s.ID]; o != nil && t.overrides(s.ID) {
				if !placed[s.ID] {
					all = append(all, o)
				}
				placed[s.ID] = true
				continue
			}
			if first, ok := have[s.ID]; s.ID != "" && ok && t.same(first.step, s, first.step.Ptr, s.Ptr) {
				continue
			}
			for _, k := range ids([]*recipe.Step{s}) {
				if first, ok := have[k.step.ID]; ok {
					t.clashOfSteps(k, first, false)
					continue
				}
				have[k.step.ID] = k
			}
			all = append(all, s)
		}
	}
	for _, k := range ids(t.r.Steps) {
		if first, ok := have[k.step.ID]; ok {
			t.clashOfSteps(k, first, true)
		}
	}
	for _, s := range t.r.Steps {
		if s == nil || !placed[s.ID] {
			all = append(all, s)
		}
	}
	t.r.Steps = all
}

func (t *text) clashOfSteps(k, first known, own bool) {
	override := k.step.ID
	if k.inner || first.inner {
		override = "" // only a step that is not within another one can be replaced
	}
	t.clash(fmt.Sprintf("the step %q", k.step.ID), k.step.Ptr+"/id", first.step.Ptr+"/id", override, own)
}

// order has the steps of a base keep their order where that of the text is another one.
func (t *text) order(b *base) {
	none := b.r.Order == "none"
	switch {
	case none == (t.r.Order == "none"):
	case none:
		independent(b.r.Steps)
	default:
		t.chained(b.r.Steps)
	}
}

// inner calls f for the lists of steps within a step whose order is that of the recipe.
func inner(s *recipe.Step, f func([]*recipe.Step)) {
	if s.Condition != nil {
		f(s.Condition.Then)
		f(s.Condition.Else)
	}
	if s.Loop != nil {
		f(s.Loop.Steps)
	}
	if s.Parallel != nil { // a branch is always a sequence
		for _, branch := range s.Parallel.Branches {
			for _, one := range branch {
				if one != nil {
					inner(one, f)
				}
			}
		}
	}
}

// independent has steps that name no others wait for none.
func independent(steps []*recipe.Step) {
	for _, s := range steps {
		if s == nil {
			continue
		}
		if s.DependsOn == nil {
			s.DependsOn = &[]string{}
		}
		inner(s, independent)
	}
}

// chained has steps that name no others wait for the one before.
func (t *text) chained(steps []*recipe.Step) {
	var before *recipe.Step
	for _, s := range steps {
		if s == nil {
			continue
		}
		switch {
		case before == nil || s.DependsOn != nil:
		case before.ID == "":
			t.report(fault.RecipeInvalid, "missing-field", before.Ptr, "the step needs an id: the text that extends this one has another order, in which the next step names it", `for example "id": "first"`)
		default:
			s.DependsOn = &[]string{before.ID}
		}
		inner(s, t.chained)
		before = s
	}
}

// parts adds the named parts of the bases.
func (t *text) parts(bases []*base) {
	t.r.Values = join(t, bases, "values", "the value", t.r.Values, func(r *recipe.Recipe) map[string]json.RawMessage { return r.Values })
	t.r.Functions = join(t, bases, "functions", "the function", t.r.Functions, func(r *recipe.Recipe) map[string]*recipe.Function { return r.Functions })
	t.r.Outputs = join(t, bases, "outputs", "the output", t.r.Outputs, func(r *recipe.Recipe) map[string]string { return r.Outputs })
	t.r.Providers = join(t, bases, "providers", "the provider", t.r.Providers, func(r *recipe.Recipe) map[string]map[string]json.RawMessage { return r.Providers })
}

// join returns the entries of a map of the text and of those of its bases. field is its pointer in a recipe.
func join[V any](t *text, bases []*base, field, what string, own map[string]V, of func(*recipe.Recipe) map[string]V) map[string]V {
	name, _, _ := strings.Cut(field, "/")
	all := maps.Clone(own)
	places := map[string]string{}
	for _, b := range bases {
		entries := of(b.r)
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			token := "/" + field + "/" + jsonx.EscapeToken(key)
			mine, label := t.at+token, fmt.Sprintf("%s %q", what, key)
			if _, has := own[key]; has {
				if !t.overrides(name + "." + key) {
					t.clash(label, mine, b.at+token, name+"."+key, true)
				}
				continue
			}
			if at, has := places[key]; has {
				if !t.same(all[key], entries[key], at, b.at+token) {
					t.clash(label, b.at+token, at, name+"."+key, false)
				}
				continue
			}
			if all == nil {
				all = map[string]V{}
			}
			all[key], places[key] = entries[key], b.at+token
		}
	}
	for key, at := range places {
		t.src.Graft(t.at+"/"+field+"/"+jsonx.EscapeToken(key), t.src.Source, at)
	}
	return all
}

// settings are those of a recipe as a whole, by their names. The order of steps is not among them.
var settings = []string{
	"inputPolicy", "outputSchema", "result", "creditEstimation", "scheduling", "failure_policy", "on_upstream_failure", "result_rule", "credit_policy", "service_retry", "ttl",
}

// settings takes the settings that the text does not have from its bases. What a dialect sets where a text says nothing is
// that of this text.
func (t *text) settings(bases []*base) {
	for _, name := range settings {
		t.setting(bases, "/"+name, func(r *recipe.Recipe) reflect.Value { return field(reflect.ValueOf(&r.Settings).Elem(), name) })
	}
	for i := range reflect.TypeFor[recipe.Limits]().NumField() {
		name := nameOf(reflect.TypeFor[recipe.Limits]().Field(i))
		t.setting(bases, "/limits/"+name, func(r *recipe.Recipe) reflect.Value {
			if r.Limits == nil {
				r.Limits = &recipe.Limits{}
			}
			return reflect.ValueOf(r.Limits).Elem().Field(i)
		})
	}
	if t.r.Limits != nil && *t.r.Limits == (recipe.Limits{}) && !t.src.Given(t.at+"/limits") {
		t.r.Limits = nil
	}
}

func (t *text) setting(bases []*base, pointer string, of func(*recipe.Recipe) reflect.Value) {
	if t.src.Given(t.at + pointer) {
		return
	}
	var from *base
	for _, b := range bases {
		switch {
		case !b.src.Given(b.own + pointer):
		case from == nil:
			from = b
		case !equal(of(from.r).Interface(), of(b.r).Interface()):
			t.report(fault.RecipeInvalid, "extends-clash", t.at+"/extends", fmt.Sprintf("%q is set twice by what this text extends", strings.ReplaceAll(pointer[1:], "/", ".")), "set it in this text",
				t.place(from.at+pointer, "the other one"), t.place(b.at+pointer, "this one"))
		}
	}
	if from != nil {
		of(t.r).Set(of(from.r))
		t.src.Graft(t.at+pointer, t.src.Source, from.at+pointer)
	}
}

func nameOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func field(v reflect.Value, name string) reflect.Value {
	for i := range v.NumField() {
		if nameOf(v.Type().Field(i)) == name {
			return v.Field(i)
		}
	}
	panic("extend: a recipe has no setting " + name)
}

// inputs adds the properties of the inputSchemas of the bases.
func (t *text) inputs(bases []*base) {
	const pointer = "/inputSchema"
	with := slices.DeleteFunc(slices.Clone(bases), func(b *base) bool { return len(b.r.InputSchema) == 0 })
	switch {
	case len(with) == 0:
		return
	case len(with) == 1 && len(t.r.InputSchema) == 0:
		t.r.InputSchema = with[0].r.InputSchema
		t.src.Graft(t.at+pointer, t.src.Source, with[0].at+pointer)
		return
	}
	own := schemaOf(t.r)
	sum := maps.Clone(own)
	if sum == nil {
		sum = map[string]any{}
	}
	for _, key := range []string{"properties", "$defs", "definitions"} {
		what := "the definition"
		if key == "properties" {
			what = "the input"
		}
		mine, _ := own[key].(map[string]any)
		all := join(t, with, "inputSchema/"+key, what, mine, func(r *recipe.Recipe) map[string]any {
			m, _ := schemaOf(r)[key].(map[string]any)
			return m
		})
		if all != nil {
			sum[key] = all
		}
	}
	if list := t.required(with, own); list != nil {
		sum["required"] = list
	}
	t.keywords(with, own, sum)
	if raw, err := jsonx.Canonical(sum); err == nil {
		t.r.InputSchema = raw
	}
}

func schemaOf(r *recipe.Recipe) map[string]any {
	v, _ := jsonx.Decode(r.InputSchema, jsonx.Limits{Bytes: len(r.InputSchema) + 1})
	m, _ := v.(map[string]any)
	return m
}

// required returns the inputs that one of the schemas requires; of an input that the text overrides its own schema says it.
func (t *text) required(bases []*base, own map[string]any) (all []any) {
	have := map[string]bool{}
	add := func(schema map[string]any, but func(string) bool) {
		list, _ := schema["required"].([]any)
		for _, v := range list {
			if name, ok := v.(string); ok && !have[name] && !but(name) {
				have[name], all = true, append(all, v)
			}
		}
	}
	for _, b := range bases {
		add(schemaOf(b.r), func(name string) bool { _, own := t.override["inputSchema."+name]; return own })
	}
	add(own, func(string) bool { return false })
	return all
}

// keywords takes the other keywords of the schemas: those of the text, else those of its bases.
func (t *text) keywords(bases []*base, own, sum map[string]any) {
	from := map[string]*base{}
	for _, b := range bases {
		schema := schemaOf(b.r)
		for _, key := range slices.Sorted(maps.Keys(schema)) {
			if _, has := own[key]; has || slices.Contains([]string{"properties", "$defs", "definitions", "required"}, key) {
				continue
			}
			token := "/inputSchema/" + jsonx.EscapeToken(key)
			if first := from[key]; first != nil {
				if !equal(sum[key], schema[key]) {
					t.report(fault.RecipeInvalid, "extends-clash", t.at+"/extends", fmt.Sprintf("the inputSchemas of what this text extends have another %q each", key), "give the inputSchema of this text one",
						t.place(first.at+token, "the other one"), t.place(b.at+token, "this one"))
				}
				continue
			}
			from[key], sum[key] = b, schema[key]
			t.src.Graft(t.at+token, t.src.Source, b.at+token)
		}
	}
}
