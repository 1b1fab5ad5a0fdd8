// SPDX-License-Identifier: Apache-2.0

// Package texts finds the expressions and templates of recipes: it visits them, lists what they read, and replaces
// code in them.
//
// It decides where a recipe has code, and remembers where a text differs from its source. It never decides what code
// or a name means (package compile does).
package texts

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A Kind says what a text is.
type Kind uint8

// The kinds of texts.
const (
	Expression Kind = iota // CEL
	Formula                // CEL of the estimation of credits, whose names have rules of their own
	Template               // text that may have placeholders
	Value                  // JSON whose texts are templates
)

// A Text is the value of a field of a recipe that takes an expression or templates.
type Text struct {
	Kind    Kind
	Step    *recipe.Step // nil = it is outside of steps
	Pointer string       // in the model
	Source  string
	Inside  bool // evaluated between the iterations of the loop Step, whose names it sees
}

// Each calls f with each text of a recipe, but not with those of recipes within it: those of its steps in their order,
// then those of its outputs and its estimation. Fields that are not given are left out. f may change the Source, and
// keeps no pointer to a text.
func Each(r *recipe.Recipe, f func(*Text)) {
	w := walker{visit: f}
	r.Each(w.step)
	w.text.Step = nil
	each(r.Outputs, r.Ptr, "/outputs", func(v *string, at, token string) { w.string(Expression, v, at, token) })
	if e := r.CreditEstimation; e != nil {
		w.string(Formula, &e.Formula, r.Ptr, "/creditEstimation/formula")
	}
}

// Code is [Each] for what is code: of a [Value] f is called with each template in it, and what has no placeholder is
// left out.
func Code(r *recipe.Recipe, f func(*Text)) {
	Each(r, func(t *Text) {
		switch {
		case t.Kind == Expression, t.Kind == Formula:
			f(t)
		case !expr.IsTemplate(t.Source):
		case t.Kind == Template:
			f(t)
		case t.Kind == Value:
			t.templates(f)
		}
	})
}

// templates calls f with each template in a JSON value.
func (t *Text) templates(f func(*Text)) {
	in, changed := Text{Kind: Template, Step: t.Step}, false
	v := within([]byte(t.Source), t.Pointer, func(pointer, text string) string {
		if !expr.IsTemplate(text) {
			return text
		}
		in.Pointer, in.Source = pointer, text
		f(&in)
		changed = changed || in.Source != text
		return in.Source
	})
	if changed {
		if out, err := jsonx.Canonical(v); err == nil {
			t.Source = string(out)
		}
	}
}

// In calls f with each text in a JSON value and its pointer.
func In(raw json.RawMessage, at string, f func(pointer, text string)) {
	within(raw, at, func(pointer, text string) string {
		f(pointer, text)
		return text
	})
}

// within returns a JSON value with its texts replaced by what f returns.
func within(raw json.RawMessage, at string, f func(pointer, text string) string) any {
	v, err := jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1})
	if err != nil {
		return nil
	}
	return replaced(v, at, f)
}

func replaced(v any, at string, f func(pointer, text string) string) any {
	switch v := v.(type) {
	case string:
		return f(at, v)
	case []any:
		for i := range v {
			v[i] = replaced(v[i], at+"/"+strconv.Itoa(i), f)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			v[name] = replaced(v[name], at+"/"+jsonx.EscapeToken(name), f)
		}
	}
	return v
}

// A walker visits the fields of a recipe.
type walker struct {
	visit func(*Text)
	text  Text // that is visited
}

// string visits a text, whose pointer has two parts.
func (w *walker) string(kind Kind, text *string, at, field string) {
	if *text == "" {
		return
	}
	w.text.Kind, w.text.Pointer, w.text.Source = kind, at+field, *text
	w.visit(&w.text)
	if w.text.Source != *text {
		*text = w.text.Source
	}
}

// value visits a JSON value.
func (w *walker) value(raw *json.RawMessage, at, field string) {
	was := string(*raw)
	now := was
	if w.string(Value, &now, at, field); now != was {
		*raw = json.RawMessage(now)
	}
}

// each calls f with each value of a map, which it may change.
func each[T string | json.RawMessage](all map[string]T, at, field string, f func(v *T, at, token string)) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v := all[name]
		if f(&v, at+field+"/", jsonx.EscapeToken(name)); string(v) != string(all[name]) {
			all[name] = v // not while others read it
		}
	}
}

func (w *walker) step(s *recipe.Step) {
	w.text.Step = s
	w.string(Expression, &s.When, s.Ptr, "/when")
	w.bindings(s.InputBindings, s.Ptr)
	w.action(s.Action, s.Ptr)
	if s.Cache != nil {
		w.string(Expression, &s.Cache.Key, s.Ptr, "/cache/key")
	}
	if k := s.Compensate; k != nil {
		w.bindings(k.InputBindings, s.Ptr+"/compensate")
		w.action(k.Action, s.Ptr+"/compensate")
	}
	if c := s.Condition; c != nil {
		w.string(Expression, &c.Expression, s.Ptr, "/condition/expression")
	}
	if t := s.Transform; t != nil {
		w.string(Expression, &t.Expression, s.Ptr, "/transform/expression")
		w.value(&t.Value, s.Ptr, "/transform/value")
	}
	if l := s.Loop; l != nil {
		w.loop(l, s.Ptr)
	}
	if t := s.Wait; t != nil {
		w.string(Expression, &t.Until, s.Ptr, "/wait/until")
		w.approval(t.Approval, s.Ptr)
	}
	if f := s.Fail; f != nil {
		w.string(Template, &f.Message, s.Ptr, "/fail/message")
	}
	if k := s.Recipe; k != nil {
		w.string(Template, &k.Ref, s.Ptr, "/recipe/ref")
		w.string(Expression, &k.Definition, s.Ptr, "/recipe/definition")
		each(k.Inputs, s.Ptr, "/recipe/inputs", w.value)
		w.string(Expression, &k.Files, s.Ptr, "/recipe/files")
	}
}

func (w *walker) loop(l *recipe.Loop, at string) {
	w.string(Expression, &l.Over, at, "/loop/over")
	if l.Accumulate != nil {
		w.value(&l.Accumulate.Initial, at, "/loop/accumulate/initial")
	}
	w.text.Inside = true
	w.string(Expression, &l.While, at, "/loop/while")
	w.string(Expression, &l.Until, at, "/loop/until")
	if l.Accumulate != nil {
		w.string(Expression, &l.Accumulate.Expression, at, "/loop/accumulate/expression")
	}
	w.text.Inside = false
}

func (w *walker) action(a *recipe.Action, at string) {
	if a != nil {
		each(a.Parameters, at, "/action/parameters", w.value)
	}
}

func (w *walker) approval(a *recipe.Approval, at string) {
	if a != nil {
		w.string(Template, &a.Title, at, "/wait/approval/title")
		w.string(Template, &a.Text, at, "/wait/approval/text")
		w.value(&a.Form, at, "/wait/approval/form")
		w.value(&a.Value, at, "/wait/approval/value")
	}
}

func (w *walker) bindings(bindings map[string]recipe.Binding, at string) {
	for _, name := range slices.Sorted(maps.Keys(bindings)) {
		b, at := bindings[name], at+"/inputBindings/"+jsonx.EscapeToken(name)
		if w.string(Expression, &b.Expression, at, "/expression"); b.Expression != bindings[name].Expression {
			bindings[name] = b
		}
		for i, part := range b.From {
			if part != nil {
				w.string(Expression, &part.Expression, at+"/from/"+strconv.Itoa(i), "/expression")
			}
		}
	}
}
