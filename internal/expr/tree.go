// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A Tree is a compiled JSON value whose string leaves may be templates. It is
// immutable and safe for concurrent use.
type Tree struct {
	root   treeNode
	refs   []Ref
	inputs []Ref // distinct refs
	leaves int
	cost   int64 // the cost limit of each leaf
	// secrets permits references to secrets in the templates.
	secrets bool
}

// maxLeaves bounds the templates of one tree.
const maxLeaves = 2000

// A treeNode is a value with templates somewhere inside, or a constant.
type treeNode struct {
	constant any // when the others are nil
	leaf     *Program
	list     []treeNode
	object   []treeField
}

type treeField struct {
	key   string
	value treeNode
}

// CompileTree compiles every string in a JSON value that is a template. Keys are never templates.
func CompileTree(raw []byte) (*Tree, error) { return CompileTreeWithin(raw, CostLimit) }

// CompileTreeWithin is CompileTree with another cost limit for each template, up to
// MaxCost. All templates together may cost ten times as much.
func CompileTreeWithin(raw []byte, cost int64) (*Tree, error) { return compileTree(raw, cost, false) }

// CompileParameters is CompileTreeWithin for the parameters of an action. There a template may contain
// {{ secret('name') }}; its result is then a jsonx.Secret, which has the name and not the value.
func CompileParameters(raw []byte, cost int64) (*Tree, error) { return compileTree(raw, cost, true) }

func compileTree(raw []byte, cost int64, secrets bool) (*Tree, error) {
	v, err := jsonx.DecodeLenient(raw)
	if err != nil {
		return nil, fault.Wrap(fault.TemplateError, err, "no JSON: %v", err)
	}
	t := &Tree{cost: cost, secrets: secrets}
	var diags []fault.Diagnostic
	t.root = t.compile(v, "", &diags)
	if len(diags) > 0 {
		return nil, fault.Invalid(fault.TemplateError, diags)
	}
	t.inputs = distinctRefs(t.refs)
	return t, nil
}

func (t *Tree) compile(v any, pointer string, diags *[]fault.Diagnostic) treeNode {
	switch x := v.(type) {
	case string:
		if !IsTemplate(x) {
			break
		}
		if t.leaves++; t.leaves > maxLeaves {
			if t.leaves == maxLeaves+1 {
				*diags = append(*diags, fault.Diagnostic{Code: fault.TemplateError, Rule: RuleSyntax, Pointer: pointer,
					Msg: fmt.Sprintf("the value has more than %d templates", maxLeaves)})
			}
			break
		}
		p, err := compileTemplate(x, t.cost, t.secrets)
		if err != nil {
			var f *fault.Error
			errors.As(err, &f)
			for _, d := range f.Diags {
				d.Pointer = pointer
				*diags = append(*diags, d)
			}
			break
		}
		for _, r := range p.refs {
			r.Pointer = pointer
			t.refs = append(t.refs, r)
		}
		return treeNode{leaf: p}
	case []any:
		n := treeNode{list: make([]treeNode, len(x))}
		varies := false
		for i, e := range x {
			n.list[i] = t.compile(e, pointer+"/"+strconv.Itoa(i), diags)
			varies = varies || !n.list[i].fixed()
		}
		if varies {
			return n
		}
	case map[string]any:
		n := treeNode{}
		varies := false
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if k == jsonx.LargeName {
				*diags = append(*diags, fault.Diagnostic{Code: fault.TemplateError, Rule: RuleSyntax, Pointer: pointer + "/" + k,
					Msg: fault.Message(reservedKey())})
			}
			f := treeField{k, t.compile(x[k], pointer+"/"+jsonx.EscapeToken(k), diags)}
			varies = varies || !f.value.fixed()
			n.object = append(n.object, f)
		}
		if varies {
			return n
		}
	}
	return treeNode{constant: v}
}

func (n *treeNode) fixed() bool { return n.leaf == nil && n.list == nil && n.object == nil }

// Refs returns the variables that the tree may read; Ref.Pointer is that of the string.
// The caller must not modify them.
func (t *Tree) Refs() []Ref { return t.refs }

// Constant reports whether the tree holds no template.
func (t *Tree) Constant() bool { return t.root.fixed() }

// Field returns the field of a tree that is an object: its value, or the template that gives it.
// Both are nil if there is no such field, or it is a list or an object with templates inside.
func (t *Tree) Field(key string) (any, *Program) {
	if v, ok := t.root.constant.(map[string]any); ok {
		return v[key], nil
	}
	for i := range t.root.object {
		if f := &t.root.object[i]; f.key == key {
			return f.value.constant, f.value.leaf
		}
	}
	return nil, nil
}

// Eval evaluates all templates of the tree.
func (t *Tree) Eval(vars Vars) (any, error) {
	if t.Constant() {
		return t.root.constant, nil
	}
	m := newMemo(vars)
	defer m.free()
	if err := checkInputs(t.inputs, m); err != nil {
		return nil, err
	}
	e := treeEval{vars: m, b: *newBudget(10 * within(t.cost)), left: MaxInput}
	return e.eval(&t.root, "")
}

type treeEval struct {
	vars Vars
	b    budget
	left int // bytes left of the limit of the whole value
}

func (e *treeEval) eval(n *treeNode, pointer string) (any, error) {
	switch {
	case n.leaf != nil:
		share := &budget{cost: min(n.leaf.cost, e.b.cost), most: n.leaf.cost}
		before := share.cost
		v, err := n.leaf.eval(e.vars, share)
		if err != nil {
			var f *fault.Error
			errors.As(err, &f)
			return nil, &fault.Error{Code: f.Code, Msg: pointer + ": " + f.Msg, Err: f.Err}
		}
		e.b.cost -= before - share.cost
		return e.take(v)
	case n.list != nil:
		out := make([]any, len(n.list))
		for i := range n.list {
			v, err := e.eval(&n.list[i], pointer+"/"+strconv.Itoa(i))
			if err != nil {
				return nil, err
			}
			out[i] = v
		}
		return out, nil
	case n.object != nil:
		out := make(map[string]any, len(n.object))
		for i := range n.object {
			f := &n.object[i]
			v, err := e.eval(&f.value, pointer+"/"+jsonx.EscapeToken(f.key))
			if err != nil {
				return nil, err
			}
			out[f.key] = v
		}
		return out, nil
	}
	return n.constant, nil
}

// take counts the result of a template against the limit of the whole value.
func (e *treeEval) take(v any) (any, error) {
	if e.left -= measure(v, e.left); e.left < 0 {
		return nil, fault.New(fault.ValueTooLarge, "the values together are larger than %d bytes; pass the large ones as files", MaxInput)
	}
	return v, nil
}
