// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// inputExpressions checks the inputs of an action that are CEL expressions. The
// annotation "x-cel" of their schema lists the variables that the action provides.
// An expression that a template produces is known only at run time.
func (c *compiler) inputExpressions(ptr string, v any, schema any) {
	s, ok := schema.(map[string]any)
	if !ok {
		return
	}
	switch v := v.(type) {
	case string:
		if names, ok := s["x-cel"].([]any); ok {
			c.inputExpression(ptr, v, names)
		}
	case []any:
		for i, e := range v {
			c.inputExpressions(ptr+"/"+strconv.Itoa(i), e, s["items"])
		}
	case map[string]any:
		props, _ := s["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			member, known := props[name]
			if !known {
				member = s["additionalProperties"]
			}
			c.inputExpressions(ptr+"/"+jsonx.EscapeToken(name), v[name], member)
		}
	}
}

func (c *compiler) inputExpression(ptr, src string, names []any) {
	at := c.valueAt(ptr)
	if expr.IsTemplate(src) {
		if uses, _ := expr.Secrets(src); len(uses) > 0 {
			c.fail(fault.RecipeInvalid, "secret", at.in(uses[0].Offset, uses[0].Len), "this input is an expression, and a secret is not known to expressions",
				"pass it as another input of the action")
			return
		}
		if text := strings.TrimSpace(src); !strings.HasPrefix(text, "{{") || strings.Index(text, "}}") != len(text)-2 {
			c.warn("template-in-cel", at, "a template writes a part of this expression", "pass the value as an input of its own, and name that here")
		}
		return
	}
	env := &expr.Env{Vars: map[string]json.RawMessage{}}
	for _, v := range names {
		if name, ok := v.(string); ok {
			env.Vars[name] = nil
		}
	}
	ps := expr.Check(src, false, env, "")
	for i := range ps {
		if ps[i].Rule == expr.RuleCost { // a step of its own cannot see the action's variables
			ps[i].Hint = "make it shorter, or compute a part of it in a step before and pass that as an input of the action"
		}
	}
	c.problems(site{step: -1, at: at, src: src}, ps)
}
