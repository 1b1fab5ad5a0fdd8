// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/importer/syntax"
	"github.com/roux-engine/roux/internal/jsonx"
)

// choices returns where a Choice leads to.
func (s *state) choices() (exits []exit) {
	list := s.get("Choices")
	if !list.list("Choices") {
		s.refuse("the Choice %q needs Choices", syntax.Short(s.key()))
		return nil
	}
	for _, c := range list.items() {
		if !c.object("a choice") {
			continue
		}
		next := c.get("Next")
		x := exit{to: next.str(), at: next}
		if x.to == end {
			c.refuse("a choice needs Next, the name of a state")
			continue
		}
		c.get("Comment").drop("a comment")
		x.when = func(e env) string {
			cond := s.rule(c, s.input(e), true, 0)
			c.rest("a choice")
			return cond
		}
		if c.peek("Assign").there() || c.peek("Output").there() {
			x.run = func(e env) ([]*recipe.Step, env, bool) {
				out := e
				if o := c.get("Output"); o.there() {
					out = e.with(s.payload(o, e))
				}
				return nil, assigned(s, c, out, e), true
			}
		}
		exits = append(exits, x)
	}
	s.mapped("Choice %q: a condition", syntax.Short(s.key()))
	if d := s.get("Default"); d.there() {
		return append(exits, exit{to: d.str(), at: d})
	}
	return append(exits, exit{to: end, at: s.value, run: func(e env) ([]*recipe.Step, env, bool) {
		return []*recipe.Step{{ID: s.w.id(s.key() + "-none"), Fail: &recipe.Fail{Code: "States.NoChoiceMatched", Message: "no choice matches"}}}, e, false
	}})
}

// rule returns the condition of a choice.
func (s *state) rule(c value, e env, top bool, depth int) string {
	if depth > syntax.MaxNesting {
		c.refuse("choices nest more than %d deep", syntax.MaxNesting)
		return "true"
	}
	if !c.object("a choice") {
		return "true"
	}
	if !top {
		defer c.rest("a choice")
	}
	if cond := c.get("Condition"); cond.there() {
		if cond.is(jsonx.Bool) {
			return literal(cond.n.Bool).src
		}
		src, is := jsonataText(cond.str())
		if !is {
			cond.refuse("a condition is an expression of JSONata: {%% … %%}")
			return "true"
		}
		x, err := s.jsonataExpr(src, e)
		if err != nil {
			cond.refuse("%v", err)
		}
		return x.src
	}
	for _, op := range []struct{ name, sign, none string }{{"And", " && ", "true"}, {"Or", " || ", "false"}} {
		list := c.get(op.name)
		if !list.there() || !list.list(op.name) {
			continue
		}
		var parts []string
		for _, r := range list.items() {
			parts = append(parts, "("+s.rule(r, e, false, depth+1)+")")
		}
		if len(parts) == 0 {
			return op.none
		}
		return strings.Join(parts, op.sign)
	}
	if not := c.get("Not"); not.there() {
		return "!(" + s.rule(not, e, false, depth+1) + ")"
	}
	return s.comparison(c, e)
}

var comparisonName = regexp.MustCompile(`^(String|Numeric|Boolean|Timestamp)(Equals|LessThan|GreaterThan|LessThanEquals|GreaterThanEquals|Matches)(Path)?$`)

// comparison returns the condition of a choice that compares a variable.
func (s *state) comparison(c value, e env) string {
	v := c.get("Variable")
	src, ok := v.text()
	if !ok {
		c.refuse("a choice needs Variable and a comparison")
		return "true"
	}
	p, err := syntax.ParsePath(src)
	if err != nil {
		v.refuse("%v", err)
		return "true"
	}
	for _, f := range c.n.Children {
		switch f.Key {
		case "Variable", "Next", "Comment", "Assign", "Output":
			continue
		}
		test := c.get(f.Key)
		if f.Key == "IsPresent" {
			return s.present(v, p, test, e)
		}
		of, err := s.resolve(p, e)
		if err != nil {
			v.refuse("%v", err)
			return "true"
		}
		if t, ok := typeTests[f.Key]; ok {
			return negated(test, fmt.Sprintf(t, of.loose()))
		}
		m := comparisonName.FindStringSubmatch(f.Key)
		if m == nil {
			test.refuse("the comparison %s is not known", syntax.Short(f.Key))
			return "true"
		}
		return s.compare(of, m, test, e)
	}
	c.refuse("a choice needs a comparison, such as StringEquals")
	return "true"
}

var typeTests = map[string]string{
	"IsNull": "%s == null", "IsString": "type(%s) == string", "IsBoolean": "type(%s) == bool", "IsNumeric": "type(%s) in [int, double]",
	"IsTimestamp": `string(%s).matches('^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}([.]\\d+)?(Z|[+-]\\d{2}:\\d{2})$')`,
}

func negated(test value, cond string) string {
	if test.is(jsonx.Bool) && !test.n.Bool {
		return "!(" + cond + ")"
	}
	return cond
}

func (s *state) present(v value, p syntax.JSONPath, test value, e env) string {
	base := e.doc
	switch {
	case p.Root == "$" && e.lost == "":
	case p.Root != "$$" && e.vars[p.Root].src != "":
		base = e.vars[p.Root]
	default:
		v.refuse("whether %s is present cannot be told here", syntax.Short(v.str()))
		return "true"
	}
	if len(p.Steps) == 0 {
		return negated(test, "true")
	}
	return negated(test, base.optional(p.Steps)+".hasValue()")
}

// compare returns the condition of a comparison. It is false for a value of another type, as in the States Language.
func (s *state) compare(of cel, m []string, test value, e env) string {
	kind, op := m[1], map[string]string{"Equals": "==", "LessThan": "<", "GreaterThan": ">", "LessThanEquals": "<=", "GreaterThanEquals": ">="}[m[2]]
	var with cel
	if m[3] != "" {
		with = s.pathOf(test, e)
	} else {
		with = literal(test.literal())
	}
	if m[2] == "Matches" {
		if kind != "String" || m[3] != "" {
			test.refuse("the comparison %s is not known", syntax.Short(test.key()))
			return "true"
		}
		return fmt.Sprintf("type(%s) == string && string(%s).matches(%s)", of.src, of.src, quote(globPattern(test.str())))
	}
	if kind == "Timestamp" {
		if op == "==" || m[3] == "" && with.shape == isText || m[3] != "" {
			return fmt.Sprintf("timestamp(string(%s)) %s timestamp(string(%s))", of.src, op, with.src)
		}
	}
	if m[3] == "" && with.shape != map[string]shape{"String": isText, "Numeric": isNumber, "Boolean": isBool, "Timestamp": isText}[kind] {
		test.refuse("%s compares with a value of another type", syntax.Short(test.key()))
		return "true"
	}
	right := with.in()
	if m[3] != "" {
		right = with.loose()
	}
	if op == "==" {
		cond := of.loose() + " == " + right
		if m[3] != "" && kind != "Boolean" {
			cond = fmt.Sprintf("%s && %s", typeOf(of, kind), cond)
		}
		return cond
	}
	cond := fmt.Sprintf("%s && %s %s %s", typeOf(of, kind), of.loose(), op, right)
	if m[3] != "" {
		cond = fmt.Sprintf("%s && %s", typeOf(with, kind), cond)
	}
	return cond
}

func typeOf(c cel, kind string) string {
	switch kind {
	case "String":
		return "type(" + c.src + ") == string"
	case "Boolean":
		return "type(" + c.src + ") == bool"
	}
	return "type(" + c.src + ") in [int, double]"
}

// globPattern returns the regular expression of a text with * for any characters.
func globPattern(glob string) string {
	var b strings.Builder
	b.WriteString("^(?s)")
	for i := 0; i < len(glob); i++ {
		switch {
		case glob[i] == '*':
			b.WriteString(".*")
		case glob[i] == '\\' && i+1 < len(glob):
			i++
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		}
	}
	return b.String() + "$"
}
