// SPDX-License-Identifier: Apache-2.0

//go:build !small

package dialect

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// TestFunctionsAreReplaced: what a call becomes has the value of the function for its arguments, whatever names, texts
// and comments are around it.
func TestFunctionsAreReplaced(t *testing.T) {
	f := map[string]*recipe.Function{
		"half": {Params: []string{"x"}, Expression: "x / 2"}, "twice": {Params: []string{"x"}, Expression: "half(x) + half(x)"},
		"sub": {Params: []string{"x", "x_"}, Expression: "x - x_"}, "said": {Params: []string{"x"}, Expression: "x + 1 // x, or half(x)"},
		"num": {Params: []string{"u", "e3"}, Expression: "int(5u) + u + int(1e3) + e3"}, "field": {Params: []string{"a"}, Expression: "{'a': a}.a + {'a': 1}.a"},
		"each": {Params: []string{"l"}, Expression: "l.map(x, half(x))"}, "none": {Expression: "7"},
		"str": {Params: []string{"x"}, Expression: `"x\"" + r"\" + 'half(x)' + string(x)`},
	}
	e := &expander{functions: f}
	for code, want := range map[string]any{
		"half(8)": int64(4), "half(half(8)) + half( 8 )": int64(6), "twice(8)": int64(8), "sub(5, 2)": int64(3), "said(1)": int64(2), "num(1, 2)": int64(1008),
		"field(2)": int64(3), "each([2, 4])[1]": int64(2), "none() + none()": int64(14), `str(1) == "x\"" + "\\" + "half(x)1"`: true,
		`size('half(1)' + "half(")`: int64(12), "[1].map(half_x, half(half_x * 4))[0]": int64(2), "sub(half(8), [1, 2][1])": int64(2), "half(8) // half(": int64(4),
		"{'half(1)': half(2)}['half(1)']": int64(1),
	} {
		e.made = 0
		got, problem := e.expanded(code)
		if problem != "" {
			t.Errorf("%s: %s", code, problem)
			continue
		}
		p := expressions.NewCache().Program(got, false)
		if len(p.Problems) > 0 || p.Constant != want {
			t.Errorf("%s: %s is %v (%v), want %v", code, got, p.Constant, p.Problems, want)
		}
	}
}

// TestFunctionsAreBounded: hostile functions and calls are refused soon (A09).
func TestFunctionsAreBounded(t *testing.T) {
	chain := map[string]*recipe.Function{"f0": {Params: []string{"x"}, Expression: "x + x"}}
	last := "f0"
	for i := range 60 {
		name := "f" + strings.Repeat("i", i+1)
		chain[name] = &recipe.Function{Params: []string{"x"}, Expression: last + "(x) + " + last + "(x)"}
		last = name
	}
	e := &expander{functions: chain}
	for _, code := range []string{last + "(1)", strings.Repeat("f0(", 5000) + "1" + strings.Repeat(")", 5000), strings.Repeat("f0(1) + ", 6000) + "1"} {
		e.made = 0
		if _, problem := e.expanded(code); problem == "" {
			t.Errorf("%.40s: it is not refused", code)
		}
	}
}

// What all calls of a text become is bounded, also where each of them is in a recipe of its own (A09).
func TestFunctionsOfATextAreBounded(t *testing.T) {
	long := "name: a\nfunctions: {f: {params: [x], expression: 'x + \"" + strings.Repeat("1", 8000) + "\"'}}\nsteps:\n"
	for name, step := range map[string]string{
		"steps":   "- {transform: {expression: f(1)}}\n",
		"recipes": "- {recipe: {inherit: [functions], inline: {name: x, steps: [{id: a, transform: {expression: f(1)}}]}}}\n",
	} {
		for _, n := range []int{50, maxMade / 8000} {
			_, src, diags := Parse("a.yaml", []byte(long+strings.Repeat(step, n)), form.Options{})
			bad := src.SemanticErrors()
			if refused := len(bad) > 0 && strings.Contains(bad[0].Msg, "bytes together"); refused == (n == 50) || len(diags) > 0 {
				t.Errorf("%d %s: %v %v", n, name, diags, bad)
			}
		}
	}
}

// A function that a recipe inherits may call one that only the recipe has.
func TestInheritedFunctionsCallOwn(t *testing.T) {
	text := "name: a\nfunctions: {outer: {expression: inner() + 1}}\nsteps:\n" +
		"- {id: s, recipe: {inherit: [functions], inline: {name: x, functions: {inner: {expression: '2'}}, steps: [{id: a, transform: {expression: outer()}}]}}}\n"
	r, src, diags := Parse("a.yaml", []byte(text), form.Options{})
	if r == nil || len(src.SemanticErrors()) > 0 {
		t.Fatal(diags, src.SemanticErrors())
	}
	if got := r.Steps[0].Recipe.Inline.Steps[0].Transform.Expression; got != "((2) + 1)" {
		t.Error(got)
	}
}
