// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A node is a part of a compiled template.
type node interface {
	render(r *renderer) error
}

type (
	textNode   string
	outputNode struct{ value *pipeline }
	setNode    struct {
		name  string
		value *pipeline
	}
	branch struct {
		cond *pipeline
		body []node
	}
	ifNode struct {
		branches  []branch
		otherwise []node
	}
	forNode struct {
		names     []string
		over      *pipeline
		body      []node
		otherwise []node
	}
)

// A renderer renders one template. It is the Vars of its expressions: names that for and
// set have bound hide the variables outside.
type renderer struct {
	out    strings.Builder
	vars   Vars
	locals []local
	b      *budget
	// secrets are the references to secrets in out.
	secrets []secretAt
}

type local struct {
	name  string
	value any
}

// Lookup implements Vars.
func (r *renderer) Lookup(name string) (any, bool) {
	for i := len(r.locals) - 1; i >= 0; i-- {
		if r.locals[i].name == name {
			return r.locals[i].value, true
		}
	}
	return r.vars.Lookup(name)
}

// render returns the text of a template. Values become text once; placeholders inside them
// are not evaluated.
func render(nodes []node, vars Vars, b *budget) (any, error) {
	r := renderer{vars: vars, b: b}
	if err := r.all(nodes); err != nil {
		return nil, err
	}
	if r.secrets != nil {
		return r.withSecrets(), nil
	}
	return r.out.String(), nil
}

// all renders nodes. Every node has a cost, so that a loop without output is bounded too.
func (r *renderer) all(nodes []node) error {
	for _, n := range nodes {
		if err := r.b.spend(1); err != nil {
			return err
		}
		if err := n.render(r); err != nil {
			return err
		}
	}
	return nil
}

func (r *renderer) write(s string) error {
	if r.out.Len()+len(s) > MaxResult {
		return resultTooLarge(MaxResult)
	}
	r.out.WriteString(s)
	return nil
}

func (t textNode) render(r *renderer) error { return r.write(string(t)) }

func (n *outputNode) render(r *renderer) error {
	v, err := n.value.eval(r, r.b)
	if err != nil {
		return err
	}
	s, err := Text(v, MaxResult-r.out.Len())
	if err != nil {
		return err
	}
	return r.write(s)
}

func (n *setNode) render(r *renderer) error {
	v, err := n.value.eval(r, r.b)
	if err != nil {
		return err
	}
	r.locals = append(r.locals, local{n.name, v})
	return nil
}

func (n *ifNode) render(r *renderer) error {
	for _, br := range n.branches {
		v, err := br.cond.eval(r, r.b)
		if err != nil {
			return err
		}
		if truthy(v) {
			return r.all(br.body)
		}
	}
	return r.all(n.otherwise)
}

// truthy reports whether a value counts as true in a template: it is not empty, zero, false
// or null.
func truthy(v any) bool {
	switch x := v.(type) {
	case nil:
		return false
	case bool:
		return x
	case string:
		return x != ""
	case int64:
		return x != 0
	case float64:
		return x != 0
	case []any:
		return len(x) > 0
	case map[string]any:
		return len(x) > 0
	}
	return true
}

func (n *forNode) render(r *renderer) error {
	v, err := n.over.eval(r, r.b)
	if err != nil {
		return err
	}
	var count int
	var turn func(i int) ([]any, error)
	switch x := v.(type) {
	case []any:
		count = len(x)
		turn = func(i int) ([]any, error) { return n.unpack(x[i]) }
	case map[string]any:
		keys := slices.Sorted(maps.Keys(x))
		count = len(keys)
		turn = func(i int) ([]any, error) { return []any{keys[i], x[keys[i]]}, nil }
	case string:
		// The letters of a text, as in Jinja.
		letters := []rune(x)
		count = len(letters)
		turn = func(i int) ([]any, error) { return n.unpack(string(letters[i])) }
	case jsonx.Large:
		return &contentError{x}
	default:
		return fault.New(fault.TemplateError, "a loop over %s: want a list, a map or a text", jsonx.TypeName(v))
	}
	if count == 0 {
		return r.all(n.otherwise)
	}
	mark := len(r.locals)
	for i := range count {
		if err := r.b.spend(2); err != nil {
			return err
		}
		vals, err := turn(i)
		if err != nil {
			return err
		}
		for j, name := range n.names {
			r.locals = append(r.locals, local{name, vals[j]})
		}
		r.locals = append(r.locals, local{loopName, loopValue(i, count)})
		if err := r.all(n.body); err != nil {
			return err
		}
		// Names that the body has set end with the iteration.
		r.locals = r.locals[:mark]
	}
	return nil
}

// unpack returns the values of the loop's variables for one element.
func (n *forNode) unpack(v any) ([]any, error) {
	if len(n.names) == 1 {
		return []any{v}, nil
	}
	if l, isLarge := v.(jsonx.Large); isLarge {
		return nil, &contentError{l}
	}
	pair, ok := v.([]any)
	if !ok || len(pair) != len(n.names) {
		return nil, fault.New(fault.TemplateError, "a loop with %d variables over %s: want lists of that length, or a map", len(n.names), jsonx.TypeName(v))
	}
	return pair, nil
}

// loopValue returns the value of the variable loop.
func loopValue(i, n int) map[string]any {
	return map[string]any{
		"index": int64(i + 1), "index0": int64(i),
		"revindex": int64(n - i), "revindex0": int64(n - i - 1),
		"first": i == 0, "last": i == n-1, "length": int64(n),
	}
}
