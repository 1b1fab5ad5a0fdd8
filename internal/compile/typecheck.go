// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/plan"
)

// openSteps is how the schema of `steps` begins.
const openSteps = `{"type":"object","additionalProperties":false,"properties":{`

// env returns the types of an expression's variables, whether any of them is known, and
// a signature of them for cache keys.
func (c *compiler) env(refs []expr.Ref, vars []plan.Var) (*expr.Env, bool, string) {
	env := &expr.Env{Vars: make(map[string]json.RawMessage, len(vars)+1), Cost: c.expressionCost()}
	some := false
	sig := make([]byte, 0, 64)
	var members []byte // each with a comma behind it
	for i := range vars {
		v := &vars[i]
		t := c.typeOf(v)
		some = some || t.id != 0
		sig = append(append(append(append(sig, v.Name...), '.'), v.Member...), ':')
		sig = append(strconv.AppendInt(sig, int64(t.id), 10), ',')
		if v.Member != "" {
			if t.id == 0 {
				t.raw = json.RawMessage("{}")
			}
			members = slices.Grow(members, len(openSteps)+len(v.Member)+len(t.raw)+8)
			if len(members) == 0 {
				members = append(members, openSteps...)
			}
			members = append(append(append(strconv.AppendQuote(members, v.Member), ':'), t.raw...), ',')
			continue
		}
		env.Vars[v.Name] = t.raw
	}
	if len(members) > 0 {
		env.Vars["steps"] = append(members[:len(members)-1], "}}"...)
	}
	for _, r := range refs {
		if _, ok := env.Vars[r.Name]; !ok {
			env.Vars[r.Name] = nil // reported by resolveNames; not reported again here
			sig = append(append(sig, r.Name...), '?')
		}
	}
	return env, some, string(sig)
}

// check checks an expression against the types of its variables.
func (c *compiler) check(at site, template bool, refs []expr.Ref, vars []plan.Var) {
	if at.want == "" && len(vars) == 1 && c.programs.Program(at.src, template).Selects && c.hasPath(&vars[0], refs[0].Path[1:]) {
		return
	}
	env, typed, sig := c.env(refs, vars)
	if !typed && at.want == "" {
		return // expr.Compile has checked everything already
	}
	var first []problem
	for _, want := range strings.Split(at.want, "|") {
		key := strings.Join([]string{at.src, strconv.FormatBool(template), want, sig}, "\x00")
		ps, ok := c.checks[key]
		if !ok {
			ps = c.programs.Check(at.src, template, env, want)
			c.checks[key] = ps
		}
		if len(ps) == 0 {
			return
		}
		if first == nil {
			first = ps
		}
	}
	if _, both, ok := strings.Cut(at.want, "|"); ok && len(first) == 1 && strings.Contains(first[0].Msg, ", want ") {
		first = slices.Clone(first)
		first[0].Msg += " or " + strings.ReplaceAll(both, "|", " or ")
	}
	c.problems(at, first)
}

// hasPath reports whether a variable surely has what a path selects of it: its schema has each name, or
// excludes none.
func (c *compiler) hasPath(v *plan.Var, path []string) bool {
	t := c.typeOf(v)
	if t.id == 0 {
		return true
	}
	at, parsed := c.schemas[t.id]
	if !parsed {
		_ = json.Unmarshal(t.raw, &at) // compiled before
		c.schemas[t.id] = at
	}
	for _, name := range path {
		m, isObject := at.(map[string]any)
		for keyword := range m {
			isObject = isObject && (keyword == "type" && m[keyword] == "object" || slices.Contains(objectKeywords, keyword))
		}
		if !isObject {
			return false
		}
		if m["properties"] == nil {
			return m["additionalProperties"] == nil // it is open, which it is not beside properties
		}
		properties, _ := m["properties"].(map[string]any)
		if at = properties[name]; at == nil {
			return false
		}
	}
	return true
}

// objectKeywords are keywords of schemas of objects that say nothing more of what an object may have.
var objectKeywords = []string{"properties", "additionalProperties", "required", "title", "description", "examples"}

// checkTree is check for the templates in a JSON value.
func (c *compiler) checkTree(at site, raw json.RawMessage, refs []expr.Ref, vars []plan.Var) {
	if env, typed, _ := c.env(refs, vars); typed {
		env.Secrets = at.secrets
		c.problems(at, c.programs.CheckTree(raw, env))
	}
}
