// SPDX-License-Identifier: Apache-2.0

//go:build !small

package dialect

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile/expressions"
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
