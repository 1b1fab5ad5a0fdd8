// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/fuzztest"
	"github.com/roux-engine/roux/internal/jsonx"
)

// FuzzCEL: no source panics, hangs, or returns a value that is not JSON; errors have our
// type; positions are inside the source.
func FuzzCEL(f *testing.F) {
	for _, s := range []string{
		"a.b + 1", "has(a.b) && a['c'].d", "[1,2].map(x, x*2)", "{'a': [1, 2.0, 'x', b'y', null]}", "a.?b.orValue(1)", "-1u", "type(1)",
		"'a'.replace('', 'b')", "lists.range(3).sortBy(x, -x)", "timestamp('2026-01-01T00:00:00Z').getHours('UTC')", "math.greatest([1, 2])", "`a`", "a[b][c]",
		"\x00", "é.ü", "r'\\' + \"\"\"x\"\"\"", "1e999", "0x", "a ? b : c", "sets.contains([1], [])", "duration('1h') + duration('1m')", "[].all(x, x)", "{b'a': 1, 1u: 2, null: 3, [1]: 4, {1: 2}: 5}", "{bytes('a'): 1}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		var p *Program
		var err error
		var found []Problem
		fuzztest.Bounded(t, "Compile", func() { p, err = Compile(src) })
		checkFault(t, src, err)
		fuzztest.Bounded(t, "Check", func() { found = Check(src, false, &Env{}, "bool") })
		for _, pr := range found {
			inside(t, src, pr.Offset, pr.Len)
		}
		if err != nil {
			return
		}
		for _, r := range p.Refs() {
			inside(t, src, r.Offset, r.Len)
		}
		var v any
		fuzztest.Bounded(t, "Eval", func() { v, err = p.Eval(vars) })
		checkFault(t, src, err)
		if err == nil {
			isJSON(t, src, v)
		}
		again, err2 := p.Eval(vars)
		if (err == nil) != (err2 == nil) {
			t.Errorf("%q: %v and then %v", src, err, err2)
		}
		if err == nil {
			a, _ := jsonx.AppendLimited(nil, v, 1<<22)
			b, _ := jsonx.AppendLimited(nil, again, 1<<22)
			if string(a) != string(b) {
				t.Errorf("%q: %s and then %s", src, a, b)
			}
		}
	})
}

// FuzzTemplate is FuzzCEL for templates; text without delimiters renders as itself.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		"{{ a }}", "x {{ a.b | upper }} y", "{% for x in list %}{{ loop.index }}{% else %}n{% endfor %}", "{% if a %}b{% elif c %}d{% else %}e{% endif %}",
		"{% set a = 1 %}{{ a }}", "{# c #}", "{{- a -}}", "{{ '}}' }}", "{{ {'a': {}} }}", "{{ evil }}", "{%", "{{", "{#", "}}", "{{ a | default('x') | join }}", "{% for a, b in m %}{% endfor %}",
		"{{ r'\\' }}", "{{ '''a''' }}", "é{{ é }}", "{{ list | join(\"|\") }}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		var p *Program
		var err error
		var found []Problem
		fuzztest.Bounded(t, "CompileTemplate", func() { p, err = CompileTemplate(src) })
		checkFault(t, src, err)
		fuzztest.Bounded(t, "Check", func() { found = Check(src, true, &Env{}, "") })
		for _, pr := range found {
			inside(t, src, pr.Offset, pr.Len)
		}
		if err != nil {
			if !IsTemplate(src) && len(src) <= MaxTemplate {
				t.Errorf("%q is no template but: %v", src, err)
			}
			return
		}
		var v any
		fuzztest.Bounded(t, "Eval", func() { v, err = p.Eval(vars) })
		checkFault(t, src, err)
		if err == nil {
			isJSON(t, src, v)
		}
		if !IsTemplate(src) && v != src && len(src) <= MaxResult {
			t.Errorf("%q became %v", src, v)
		}
	})
}

func checkFault(t *testing.T, src string, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, fault.TemplateError) && !errors.Is(err, fault.ValueTooLarge) {
		t.Errorf("%q: %v", src, err)
	}
}

func inside(t *testing.T, src string, offset, n int) {
	t.Helper()
	if total := utf8.RuneCountInString(src); offset < 0 || n < 0 || offset > total {
		t.Errorf("%q: place %d+%d of %d", src, offset, n, total)
	}
}

func isJSON(t *testing.T, src string, v any) {
	t.Helper()
	switch x := v.(type) {
	case nil, bool, int64, string:
	case float64:
		if !finite(x) {
			t.Errorf("%q gave %v", src, x)
		}
	case []any:
		for _, e := range x {
			isJSON(t, src, e)
		}
	case map[string]any:
		for _, e := range x {
			isJSON(t, src, e)
		}
	default:
		t.Errorf("%q gave a %T", src, v)
	}
}
