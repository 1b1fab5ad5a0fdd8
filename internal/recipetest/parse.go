// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/spell"
)

// MaxSource bounds the text of a test file.
const MaxSource = 4 << 20

// The bounds of one test file.
const (
	maxTests   = 1_000
	maxAsserts = 200
)

// Is reports whether a text is that of a test file, which may have problems: by the name of its
// file, or because it has a recipe and tests.
func Is(file string, text []byte) bool {
	if registry.IsTest(file) {
		return true
	}
	if !bytes.Contains(text, []byte("tests")) || len(text) > MaxSource {
		return false
	}
	tree, _ := form.Read(file, text, form.Options{MaxBytes: MaxSource})
	return tree.Child("tests") != nil && tree.Child("recipe") != nil
}

// Parse reads a test file in JSON or YAML. The suite is nil if it has problems, which are then all
// listed. The source, which shows their places, is never nil.
func Parse(file string, text []byte) (*Suite, *form.Source, []fault.Diagnostic) {
	tree, d := form.Read(file, text, form.Options{MaxBytes: MaxSource})
	if tree == nil {
		return nil, d.Source(), d.Diagnostics()
	}
	s := new(Suite)
	d.Document(tree, func(doc *jsonx.Node) { d.Decode(doc, Form, s) })
	diags := d.Diagnostics()
	if len(diags) == 0 {
		c := &checker{src: d.Source()}
		c.suite(s)
		diags = c.diags
	}
	if len(diags) > 0 {
		return nil, d.Source(), diags[:min(len(diags), form.MaxDiagnostics)]
	}
	return s, d.Source(), nil
}

// A checker finds what is wrong with a suite beyond its form.
type checker struct {
	src   *form.Source
	diags []fault.Diagnostic
}

func (c *checker) add(pointer, rule, hint, format string, args ...any) {
	c.diags = append(c.diags, fault.Diagnostic{
		Code: fault.RecipeInvalid, Rule: rule, Msg: fmt.Sprintf(format, args...), Hint: hint, Pointer: pointer, Pos: c.src.Pos(pointer),
	})
}

func (c *checker) suite(s *Suite) {
	c.stamp("/now", s.Now)
	c.mocks("/mocks", &s.Mocks)
	if len(s.Tests) > maxTests {
		c.add("/tests", "too-large", "write another file", "there are %d tests, the limit is %d", len(s.Tests), maxTests)
	}
	names := map[string]bool{}
	for i := range s.Tests {
		t := &s.Tests[i]
		if names[t.Name] {
			c.add(t.pointer+"/name", "duplicate", "", "there are two tests of the name %q", t.Name)
		}
		names[t.Name] = true
		c.stamp(t.pointer+"/now", t.Now)
		c.mocks(t.pointer+"/mocks", &t.Mocks)
		if t.Expect != nil {
			c.expect(t.pointer+"/expect", t.Expect)
		}
	}
}

func (c *checker) stamp(pointer, text string) {
	if _, err := time.Parse(time.RFC3339Nano, text); text != "" && err != nil {
		c.add(pointer, "bad-text", "", "%q is no point in time: want %s", text, wantStamp)
	}
}

func (c *checker) mocks(pointer string, m *Mocks) {
	for _, group := range []struct {
		name string
		of   map[string][]Answer
	}{{"steps", m.Steps}, {"actions", m.Actions}, {"recipes", m.Recipes}} {
		for _, name := range slices.Sorted(maps.Keys(group.of)) {
			for i := range group.of[name] {
				c.answer(&group.of[name][i])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Approvals)) {
		for i, a := range m.Approvals[name] {
			if len(a.Values) > 0 && a.Values[0] != '{' {
				c.add(fmt.Sprintf("%s/approvals/%s/%d/values", pointer, jsonx.EscapeToken(name), i), "wrong-type", "", "values are an object")
			}
		}
	}
}

// answerEnv is what the condition of an answer may read.
var answerEnv = &expr.Env{Vars: map[string]json.RawMessage{
	"input": nil, "step": json.RawMessage(`{"type":"string"}`), "attempt": json.RawMessage(`{"type":"integer"}`),
}}

func (c *checker) answer(a *Answer) {
	if a.When != "" {
		c.expression(a.pointer+"/when", a.When, answerEnv)
	}
	if a.Error != nil && a.Output != nil {
		c.add(a.pointer+"/error", "too-many", "remove one of them", "an answer has an output or an error, and this one has both")
	}
	if a.Error == nil {
		return
	}
	switch e := a.Error; {
	case (e.Code == "") == (e.Cause == ""):
		c.add(a.pointer+"/error", "missing-field", "", "an error has either a code or a cause")
	case e.Code != "":
		if _, known := fault.Lookup(fault.Code(e.Code)); !known {
			if near := spell.Nearest(e.Code, codes()); near != "" {
				c.add(a.pointer+"/error/code", "unknown-code", fmt.Sprintf("did you mean %q?", near), "there is no code %q", e.Code)
			}
		}
	}
}

func codes() (names []string) {
	for _, row := range fault.All() {
		names = append(names, string(row.Code))
	}
	return names
}

// assertEnv is what an assertion may read.
var assertEnv = &expr.Env{Vars: map[string]json.RawMessage{
	"status": json.RawMessage(`{"type":"string"}`), "output": nil, "error": nil, "input": nil, "steps": nil, "calls": nil, "credits": nil,
	"durationMs": json.RawMessage(`{"type":"integer"}`),
}}

func (c *checker) expect(pointer string, e *Expect) {
	if e.Output != nil && e.Exactly != nil {
		c.add(pointer+"/exactly", "too-many", "remove one of them", "output is a part of the outputs and exactly is all of them: want one of the two")
	}
	if len(e.Assert) > maxAsserts {
		c.add(pointer+"/assert", "too-large", "", "there are %d conditions, the limit is %d", len(e.Assert), maxAsserts)
		return
	}
	for i, src := range e.Assert {
		c.expression(fmt.Sprintf("%s/assert/%d", pointer, i), src, assertEnv)
	}
}

// expression checks a condition.
func (c *checker) expression(pointer, src string, env *expr.Env) {
	for _, p := range expr.Check(src, false, env, "bool") {
		c.diags = append(c.diags, fault.Diagnostic{
			Code: fault.RecipeInvalid, Rule: p.Rule, Msg: p.Msg, Hint: p.Hint, Pointer: pointer, Pos: c.src.PosIn(pointer, p.Offset, p.Len),
		})
	}
}

// micros is a duration that the form has accepted, in µs.
func micros(d form.Duration) int64 {
	if d == "" {
		return 0
	}
	ms, err := plan.ParseDuration(string(d))
	if err != nil {
		return 0 // the form has refused it
	}
	return ms * 1000
}

// codeOf returns the code of a mocked error.
func (f *Failure) code() fault.Code {
	switch f.Cause {
	case "":
		return fault.Code(f.Code)
	case "timeout":
		return fault.StepTimeout
	case "rate_limit":
		return fault.RateLimited
	case "contract_violated":
		return fault.OutputContractViolation
	}
	return fault.ProviderError
}

// fault returns the error as an action returns it.
func (f *Failure) fault() *fault.Error {
	msg := f.Message
	if msg == "" {
		msg = "mocked"
	}
	e := fault.New(f.code(), "%s", msg)
	e.RetryAfterMS, e.OutcomeUnknown = micros(f.RetryAfter)/1000, f.Unknown
	return e
}

// merged returns mocks that have those of both, those of m before those of other.
func (m *Mocks) merged(other *Mocks) *Mocks {
	return &Mocks{
		Steps: with(m.Steps, other.Steps), Actions: with(m.Actions, other.Actions), Recipes: with(m.Recipes, other.Recipes), Approvals: with(m.Approvals, other.Approvals),
		Signals: with(m.Signals, other.Signals), Secrets: with(m.Secrets, other.Secrets), Moderators: with(m.Moderators, other.Moderators),
	}
}

// with returns the entries of both maps, and those of a where both have one.
func with[V any](a, b map[string]V) map[string]V {
	sum := maps.Clone(b)
	if sum == nil {
		sum = map[string]V{}
	}
	maps.Copy(sum, a)
	return sum
}
