// SPDX-License-Identifier: Apache-2.0

// Package rewrite replaces code in the texts of recipes: in their expressions, and in the placeholders of their
// templates.
//
// It decides where a recipe has code, and remembers where a text differs from its source. It never decides what
// code means (package compile does).
package rewrite

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A Rewriter replaces parts of the code in the texts of a recipe: in the placeholders and blocks of its
// templates, and in its expressions.
type Rewriter struct {
	// Code returns what is replaced in an expression or between a pair of braces, in order.
	Code func(at Place, code string) []Replacement
	// Templates is set if expressions stay as they are.
	Templates bool
	// Source learns where the texts differ; nil = nobody has to know.
	Source *form.Source
}

// A Replacement replaces the bytes of a text from From to To.
type Replacement struct {
	From, To int
	With     string
}

// A Place is where code is: in the text at a pointer, after so many characters.
type Place struct {
	Pointer string
	Offset  int
}

// Recipe rewrites the texts of a recipe, but not those of recipes within it.
func (w *Rewriter) Recipe(r *recipe.Recipe) {
	r.Each(w.step)
	for _, name := range slices.Sorted(maps.Keys(r.Outputs)) {
		r.Outputs[name] = w.expression(r.Outputs[name], r.Ptr+"/outputs/"+jsonx.EscapeToken(name))
	}
	if e := r.CreditEstimation; e != nil {
		e.Formula = w.expression(e.Formula, r.Ptr+"/creditEstimation/formula")
	}
}

func (w *Rewriter) step(s *recipe.Step) {
	s.When = w.expression(s.When, s.Ptr+"/when")
	w.bindings(s.InputBindings, s.Ptr)
	w.action(s.Action, s.Ptr)
	if c := s.Condition; c != nil {
		c.Expression = w.expression(c.Expression, s.Ptr+"/condition/expression")
	}
	if t := s.Transform; t != nil {
		t.Expression = w.expression(t.Expression, s.Ptr+"/transform/expression")
		t.Value = w.raw(t.Value, s.Ptr+"/transform/value")
	}
	if l := s.Loop; l != nil {
		l.Over = w.expression(l.Over, s.Ptr+"/loop/over")
	}
	if k := s.Recipe; k != nil {
		w.values(k.Inputs, s.Ptr+"/recipe/inputs")
		k.Files = w.expression(k.Files, s.Ptr+"/recipe/files")
	}
	if f := s.Fail; f != nil {
		f.Message = w.template(f.Message, s.Ptr+"/fail/message")
	}
	if s.Cache != nil {
		s.Cache.Key = w.expression(s.Cache.Key, s.Ptr+"/cache/key")
	}
	if k := s.Compensate; k != nil {
		w.action(k.Action, s.Ptr+"/compensate")
		w.bindings(k.InputBindings, s.Ptr+"/compensate")
	}
	if t := s.Wait; t != nil {
		t.Until = w.expression(t.Until, s.Ptr+"/wait/until")
		if a, at := t.Approval, s.Ptr+"/wait/approval"; a != nil {
			a.Title, a.Text = w.template(a.Title, at+"/title"), w.template(a.Text, at+"/text")
			a.Value = w.raw(a.Value, at+"/value")
		}
	}
}

func (w *Rewriter) action(a *recipe.Action, at string) {
	if a != nil {
		w.values(a.Parameters, at+"/action/parameters")
	}
}

func (w *Rewriter) bindings(bindings map[string]recipe.Binding, at string) {
	for _, name := range slices.Sorted(maps.Keys(bindings)) {
		b, at := bindings[name], at+"/inputBindings/"+jsonx.EscapeToken(name)
		b.Expression = w.expression(b.Expression, at)
		for i, part := range b.From {
			if part != nil {
				part.Expression = w.expression(part.Expression, at+"/from/"+strconv.Itoa(i)+"/expression")
			}
		}
		bindings[name] = b
	}
}

func (w *Rewriter) values(values map[string]json.RawMessage, at string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		values[name] = w.raw(values[name], at+"/"+jsonx.EscapeToken(name))
	}
}

func (w *Rewriter) raw(raw json.RawMessage, at string) json.RawMessage {
	if !expr.IsTemplate(string(raw)) {
		return raw
	}
	v, err := jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1})
	if err != nil {
		return raw
	}
	out, e := jsonx.Canonical(w.value(v, at))
	if e != nil {
		return raw
	}
	return out
}

func (w *Rewriter) value(v any, at string) any {
	switch v := v.(type) {
	case string:
		return w.template(v, at)
	case []any:
		for i := range v {
			v[i] = w.value(v[i], at+"/"+strconv.Itoa(i))
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			v[name] = w.value(v[name], at+"/"+jsonx.EscapeToken(name))
		}
	}
	return v
}

func (w *Rewriter) expression(text, at string) string {
	if text == "" || w.Templates {
		return text
	}
	return w.text(text, at, []expr.Span{{From: 0, To: len(text)}})
}

func (w *Rewriter) template(text, at string) string {
	if !expr.IsTemplate(text) {
		return text
	}
	return w.text(text, at, expr.Code(text))
}

// text replaces in the parts of a text that are code.
func (w *Rewriter) text(text, at string, code []expr.Span) string {
	var b strings.Builder
	var edits []form.Edit
	done, length := 0, 0 // of text in bytes, and of the new one in characters
	keep := func(until int) {
		b.WriteString(text[done:until])
		length += utf8.RuneCountInString(text[done:until])
		done = until
	}
	place, until := Place{Pointer: at}, 0
	for _, part := range code {
		place.Offset, until = place.Offset+utf8.RuneCountInString(text[until:part.From]), part.From
		for _, r := range w.Code(place, text[part.From:part.To]) {
			keep(part.From + r.From)
			is := utf8.RuneCountInString(r.With)
			edits = append(edits, form.Edit{At: length, Is: is, Was: utf8.RuneCountInString(text[part.From+r.From : part.From+r.To])})
			b.WriteString(r.With)
			length, done = length+is, part.From+r.To
		}
	}
	if edits == nil {
		return text
	}
	keep(len(text))
	if w.Source != nil {
		w.Source.Edit(at, edits)
	}
	return b.String()
}
