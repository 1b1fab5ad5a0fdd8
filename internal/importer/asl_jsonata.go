// SPDX-License-Identifier: Apache-2.0

package importer

import "github.com/roux-engine/roux/internal/importer/syntax"

// jsonataExpr translates an expression of JSONata, which sees the document as $states.input.
func (s *state) jsonataExpr(src string, e env) (cel, error) {
	t := &translator{g: syntax.JSONata}
	t.root = func() (cel, error) {
		return cel{}, syntax.Cannot("a path that does not begin with $states or a variable has no value")
	}
	t.lookup = func(name string) (cel, error) {
		switch name {
		case "states":
			return cel{}, syntax.Cannot("$states needs a field: input, result, errorOutput or context")
		case "":
			return cel{}, syntax.Cannot("$ has no value in a state")
		}
		if v, ok := e.vars["$"+name]; ok {
			return v, nil
		}
		return cel{}, syntax.Cannot("the variable $%s is not assigned on every way here", syntax.Short(name))
	}
	parsed, err := syntax.Parse(t.g, src)
	if err != nil {
		return atom("null", isNull), err
	}
	if parsed, err = s.states(parsed, e); err != nil {
		return atom("null", isNull), err
	}
	c, err := t.expr(parsed)
	if err == nil && len(c.src) > syntax.MaxExpression {
		err = syntax.Cannot("the expression would have more than %d characters in CEL", syntax.MaxExpression)
	}
	if err != nil {
		return atom("null", isNull), err
	}
	return c, nil
}

// known is an expression that is translated already.
type known struct{ cel }

// states replaces what an expression reads of $states.
func (s *state) states(x *syntax.Expr, e env) (*syntax.Expr, error) {
	out := *x
	out.Args = make([]*syntax.Expr, len(x.Args))
	for i, a := range x.Args {
		if x.Op == "field" && a.Op == "var" && a.Name == "states" {
			return s.statesField(x, e)
		}
		if x.Op == "field" && (x.Name != "") {
			if c, is, err := s.contextPath(x); is {
				return c, err
			}
		}
		var err error
		if out.Args[i], err = s.states(a, e); err != nil {
			return nil, err
		}
	}
	return &out, nil
}

func (s *state) statesField(x *syntax.Expr, e env) (*syntax.Expr, error) {
	switch x.Name {
	case "input":
		if e.lost != "" {
			return nil, syntax.Cannot("%s", e.lost)
		}
		return &syntax.Expr{Op: "known", Value: known{e.doc}}, nil
	case "result", "errorOutput":
		if c, ok := e.vars["states."+x.Name]; ok {
			return &syntax.Expr{Op: "known", Value: known{c}}, nil
		}
	}
	return nil, syntax.Cannot("$states.%s has no value here", syntax.Short(x.Name))
}

// contextPath translates $states.context with the names behind it.
func (s *state) contextPath(x *syntax.Expr) (*syntax.Expr, bool, error) {
	var path []syntax.Hop
	at := x
	for at.Op == "field" && len(at.Args) == 1 {
		if at.Name == "context" && at.Args[0].Op == "var" && at.Args[0].Name == "states" {
			c, err := s.contextValue(path)
			return &syntax.Expr{Op: "known", Value: known{c}}, true, err
		}
		path = append([]syntax.Hop{{Name: at.Name}}, path...)
		at = at.Args[0]
	}
	return nil, false, nil
}

// jsonataFunctions are the functions of JSONata.
var jsonataFunctions = map[string]intrinsicFunc{
	"string":    {1, func(a []cel) (cel, error) { return cel{asText(a[0]), isText, true}, nil }},
	"number":    simple(1, isNumber, func(a []cel) string { return "double(" + a[0].src + ")" }),
	"boolean":   {1, func(a []cel) (cel, error) { return cel{a[0].src, isBool, a[0].atom}, nil }},
	"not":       {1, func(a []cel) (cel, error) { return cel{"!" + a[0].in(), isBool, false}, nil }},
	"exists":    {1, func(a []cel) (cel, error) { return cel{a[0].loose() + " != null", isBool, false}, nil }},
	"count":     simple(1, isNumber, func(a []cel) string { return "size(" + a[0].src + ")" }),
	"sum":       simple(1, isNumber, func(a []cel) string { return a[0].in() + ".sum()" }),
	"average":   simple(1, isNumber, func(a []cel) string { return a[0].in() + ".avg()" }),
	"max":       simple(1, isNumber, func(a []cel) string { return "math.greatest(" + a[0].src + ")" }),
	"min":       simple(1, isNumber, func(a []cel) string { return "math.least(" + a[0].src + ")" }),
	"length":    simple(1, isNumber, func(a []cel) string { return "size(" + a[0].src + ")" }),
	"uppercase": simple(1, isText, func(a []cel) string { return a[0].in() + ".upperAscii()" }),
	"lowercase": simple(1, isText, func(a []cel) string { return a[0].in() + ".lowerAscii()" }),
	"trim":      simple(1, isText, func(a []cel) string { return a[0].in() + ".trim()" }),
	"contains":  simple(2, isBool, func(a []cel) string { return a[0].in() + ".contains(" + a[1].src + ")" }),
	"split":     simple(2, isList, func(a []cel) string { return a[0].in() + ".split(" + a[1].src + ")" }),
	"join":      simple(2, isText, func(a []cel) string { return a[0].in() + ".join(" + a[1].src + ")" }),
	"append":    {2, func(a []cel) (cel, error) { return cel{a[0].in() + " + " + a[1].in(), isList, false}, nil }},
	"reverse":   simple(1, isList, func(a []cel) string { return a[0].in() + ".reverse()" }),
	"distinct":  simple(1, isList, func(a []cel) string { return a[0].in() + ".distinct()" }),
	"abs":       simple(1, isNumber, func(a []cel) string { return "math.abs(" + a[0].src + ")" }),
	"floor":     simple(1, isNumber, func(a []cel) string { return "int(math.floor(double(" + a[0].src + ")))" }),
	"ceil":      simple(1, isNumber, func(a []cel) string { return "int(math.ceil(double(" + a[0].src + ")))" }),
	"now":       simple(0, isText, func([]cel) string { return "string(now())" }),
	"uuid":      simple(0, isText, func([]cel) string { return "uuid()" }),
	"parse":     simple(1, unknown, func(a []cel) string { return "fromJson(" + a[0].src + ")" }),
}
