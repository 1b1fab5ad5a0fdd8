// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// TestCostWithin: a cost limit other than the default applies to expressions, templates and
// trees, also for functions whose cost depends on counting. The error of an expression that
// costs too much has its own code and a remedy.
func TestCostWithin(t *testing.T) {
	list := make([]any, 20_000)
	for i := range list {
		list[i] = int64(i)
	}
	small := list[:500]
	vars := MapVars{"list": list, "small": small}
	eval := func(kind, src string, cost int64) error {
		var err error
		switch kind {
		case "expression":
			var p *Program
			if p, err = CompileWithin(src, cost); err == nil {
				_, err = p.Eval(vars)
			}
		case "template":
			var p *Program
			if p, err = CompileTemplateWithin("n: {{ "+src+" }}", cost); err == nil {
				_, err = p.Eval(vars)
			}
		case "tree":
			var tree *Tree
			if tree, err = CompileTreeWithin([]byte(`{"a": ["{{ `+src+` }}"]}`), cost); err == nil {
				_, err = tree.Eval(vars)
			}
		}
		return err
	}
	for _, kind := range []string{"expression", "template", "tree"} {
		for _, src := range []string{"size(list.map(x, x * 2 + 1))", "size(small.distinct())", "sets.contains(small, small)"} {
			err := eval(kind, src, CostLimit)
			if !errors.Is(err, fault.ExpressionLimit) {
				t.Errorf("%s %s at %d: %v, want %s", kind, src, CostLimit, err, fault.ExpressionLimit)
				continue
			}
			for _, part := range []string{"limit of 100000;", "limits.max_expression_cost (at most 1000000)", "step or loop of its own"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s %s: the message lacks %q: %v", kind, src, part, err)
				}
			}
			if err := eval(kind, src, MaxCost); err != nil {
				t.Errorf("%s %s at %d: %v", kind, src, MaxCost, err)
			}
		}
		huge := "size(list.map(x, list.map(y, x + y)))"
		if err := eval(kind, huge, 100*MaxCost); !errors.Is(err, fault.ExpressionLimit) || !strings.Contains(err.Error(), "limit of 1000000") {
			t.Errorf("%s: a limit of more than the highest is not the highest: %v", kind, err)
		}
	}
	if ps := Check("lists.range(5).all(a, a > 0)", false, &Env{Cost: 1}, ""); len(ps) != 0 && !strings.Contains(ps[0].Hint, "max_expression_cost") {
		t.Errorf("%+v", ps)
	}
}

// TestLongSources: a sum of many terms compiles; a source that is too long, too deep or has
// too many parts is refused with our message, its position and a remedy.
func TestLongSources(t *testing.T) {
	chain := func(head, link string, n int) string { return head + strings.Repeat(link, n) }
	for _, src := range []string{
		chain("1", " + 1", 120), chain("1", " + 1", 999), chain("'a'", " + 'a'", 500), chain("a", ".b", 500), chain("a", "[0]", 500),
		chain("true", " && true", 900), strings.Repeat("(", 300) + "1" + strings.Repeat(")", 300), strings.Repeat("true ? 1 : ", 300) + "2",
	} {
		if _, err := Compile(src); err != nil {
			t.Errorf("%.40s…: %v", src, err)
		}
		if ps := Check(src, false, nil, ""); len(ps) != 0 {
			t.Errorf("%.40s…: %+v", src, ps)
		}
	}
	if p, err := Compile(chain("1", " + 1", 999)); err == nil {
		if v, err := p.Eval(MapVars{}); v != int64(1000) || err != nil {
			t.Errorf("the sum of 1,000 terms is %v, %v", v, err)
		}
	}
	inner := "[1, 2].map(x, " + chain("x", " + x", 300) + ")"
	for _, tt := range []struct{ name, src, want string }{
		{"deep chain", chain("1", " + 1", 1500), "nests deeper than 1000 levels"},
		{"deep parentheses", strings.Repeat("(", 1500) + "1" + strings.Repeat(")", 1500), "nests deeper than 1000 levels"},
		{"deep selection", chain("a", ".b", 1500), "nests deeper than 1000 levels"},
		{"long", "'" + strings.Repeat("ä", MaxSource) + "'", fmt.Sprintf("has %d characters, the limit is %d", MaxSource+2, MaxSource)},
		{"many parts", "[" + strings.TrimSuffix(strings.Repeat(inner+", ", 12), ", ") + ", " + strings.TrimSuffix(strings.Repeat("1,", 1000), ",") + "]", ""},
	} {
		_, err := Compile(tt.src)
		var f *fault.Error
		if tt.want == "" {
			if err != nil && strings.Contains(err.Error(), "exceeds limit") {
				t.Errorf("%s: the library's words: %v", tt.name, err)
			}
			continue
		}
		if !errors.As(err, &f) || len(f.Diags) != 1 || !strings.Contains(f.Diags[0].Msg, tt.want) {
			t.Errorf("%s: %.300v, want one problem with %q", tt.name, err, tt.want)
			continue
		}
		d := f.Diags[0]
		if d.Rule != RuleCost || !strings.Contains(d.Hint, "transform steps") || d.Pos.Col != 1 || d.Pos.Len != runes(tt.src) {
			t.Errorf("%s: rule %s, hint %q, at %+v", tt.name, d.Rule, d.Hint, d.Pos)
		}
		if _, err := CompileTemplate("the sum: {{ " + tt.src + " }}"); !errors.As(err, &f) || f.Diags[0].Pos.Col != 13 || !strings.Contains(f.Diags[0].Msg, tt.want) {
			t.Errorf("%s in a template: %.300v", tt.name, err)
		}
	}
}
