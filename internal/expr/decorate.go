// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// decorateWith is decorate for a program with comprehensions. folds are the ids of
// comprehensions that build a map, whose keys are iterated in order too; ranges are the ids
// of the values that comprehensions iterate over.
func decorateWith(folds, ranges []int64) interpreter.InterpretableDecoratorV2 {
	if len(ranges) == 0 {
		return decorate
	}
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		if _, wrapped := i.(*comprehensionRange); wrapped {
			return i, nil
		}
		id := i.ID()
		i, err := decorate(i)
		if err != nil {
			return nil, err
		}
		if _, wrapped := i.(*mapNode); !wrapped && slices.Contains(folds, id) {
			i = &mapNode{InterpretableV2: i}
		}
		if slices.Contains(ranges, id) {
			i = &comprehensionRange{i}
		}
		return i, nil
	}
}

// decorate replaces the nodes of a CEL program whose work could explode with certain
// argument values. CEL charges a call after it has run, and charges only 1 for a call whose
// argument types are unknown before evaluation. Both are too late for `x.replace("", x)` or
// for comparing lists that contain the same part a million times. A call of one of our
// implementations computes its cost from its arguments, is charged, and only then runs.
func decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch n := i.(type) {
	case *implementedCall, *attribute, *mapNode, *libraryCall:
		return i, nil
	case interpreter.InterpretableAttribute:
		return &attribute{InterpretableAttribute: n}, nil
	case interpreter.InterpretableConstructor:
		if n.Type() == types.MapType {
			return newMapNode(n), nil
		}
		return i, nil
	case interpreter.InterpretableCall:
		g, ok := implementations[n.Function()]
		if !ok && timeParts[n.Function()] && len(n.Args()) == 2 {
			g, ok = timePart(n.Function()), true
		}
		if !ok {
			return &libraryCall{InterpretableCall: n}, nil
		}
		call := &implementedCall{InterpretableCall: n, args: n.Args(), implementation: g}
		if n.Function() == "matches" {
			if err := call.precompile(); err != nil {
				return nil, err
			}
		}
		return call, nil
	}
	return i, nil
}

// An implementation is our own implementation of a CEL function.
type implementation struct {
	// cost returns the cost of the call. It may look at sizes but does not do the work;
	// its own time is proportional to its result.
	cost func(args []ref.Val) uint64
	run  func(args []ref.Val) ref.Val
}

type implementedCall struct {
	interpreter.InterpretableCall
	args []interpreter.InterpretableV2
	implementation
}

// Exec implements interpreter.InterpretableV2.
func (c *implementedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	var buf [4]ref.Val
	args := buf[:0]
	for _, a := range c.args {
		v := a.Exec(frame)
		if types.IsUnknownOrError(v) {
			return v
		}
		args = append(args, v)
	}
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalUnary(frame, c.ID(), chargeCall{}, nil, types.Int(c.cost(args)))
	}
	v := explainLarge(c.run(args), args)
	if e, ok := v.(*types.Err); ok {
		return recordContentError(frame, types.LabelErrNode(c.ID(), e))
	}
	return v
}

// Eval implements interpreter.Interpretable.
func (c *implementedCall) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}

// A libraryCall is a call of an implementation of the library. If an argument is a large
// value, its error says so.
type libraryCall struct {
	interpreter.InterpretableCall
}

// Exec implements interpreter.InterpretableV2.
func (c *libraryCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := c.InterpretableCall.Exec(frame)
	// Only its own errors are explained; those of arguments are returned as they are.
	if e, failed := v.(*types.Err); !failed || e.NodeID() != c.ID() {
		return v
	}
	var args []ref.Val
	for _, a := range c.Args() {
		args = append(args, a.Exec(frame)) // evaluation is pure: the same value as before
	}
	return recordContentError(frame, types.LabelErrNode(c.ID(), explainLarge(v, args)))
}

// Eval implements interpreter.Interpretable.
func (c *libraryCall) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}

// An attribute is a variable, a selection or an index. It turns the value of an absent
// variable into an error when the value itself is used.
type attribute struct {
	interpreter.InterpretableAttribute
}

// Exec implements interpreter.InterpretableV2.
func (a *attribute) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := a.InterpretableAttribute.Exec(frame)
	switch x := v.(type) {
	case absent:
		return types.LabelErrNode(a.ID(), x.undefined())
	case blank:
		return x.String
	case *types.Err:
		if x.String() == "invalid qualifier type: expr.large" { // an index; CEL's error has no more information
			v = types.LabelErrNode(a.ID(), types.WrapErr(&contentError{}))
		}
		return recordContentError(frame, v)
	}
	return v
}

// Eval implements interpreter.Interpretable.
func (a *attribute) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, a.Exec)
}

// A comprehensionRange is what a comprehension iterates over. It refuses a large value.
type comprehensionRange struct {
	interpreter.InterpretableV2
}

// Exec implements interpreter.InterpretableV2.
func (r *comprehensionRange) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := r.InterpretableV2.Exec(frame)
	if l, ok := v.(large); ok {
		return recordContentError(frame, l.contentError())
	}
	return v
}

// Eval implements interpreter.Interpretable.
func (r *comprehensionRange) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, r.Exec)
}

// A mapNode makes the keys of a map that an expression builds iterate in order. It refuses
// duplicate keys, and a large value as a key.
type mapNode struct {
	interpreter.InterpretableV2
	entries []interpreter.InterpretableV2 // of a literal: keys and values alternate
	dynamic bool                          // one of the keys is not a constant
}

func newMapNode(n interpreter.InterpretableConstructor) *mapNode {
	m := &mapNode{InterpretableV2: n, entries: n.InitVals()}
	for i := 0; i < len(m.entries); i += 2 {
		if _, constant := m.entries[i].(interpreter.InterpretableConst); !constant {
			m.dynamic = true
		}
	}
	return m
}

// Exec implements interpreter.InterpretableV2.
func (m *mapNode) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := m.InterpretableV2.Exec(frame)
	x, ok := v.(traits.Mapper)
	if !ok {
		return v
	}
	if m.dynamic {
		for it := x.Iterator(); it.HasNext() == types.True; {
			if key, isLarge := it.Next().(large); isLarge {
				return recordContentError(frame, key.contentError())
			}
		}
	}
	if size(x) < len(m.entries)/2 {
		if key := m.duplicateKey(frame, size(x)); key != nil {
			return types.LabelErrNode(m.ID(), types.NewErr("%s", duplicateKeyMessage(key)).(*types.Err))
		}
	}
	return &orderedMap{Mapper: x}
}

// duplicateKey returns the duplicate key of a literal whose map has fewer keys than the
// literal has entries, or nil when the missing entries are absent optional ones.
func (m *mapNode) duplicateKey(frame *interpreter.ExecutionFrame, keys int) (key ref.Val) {
	seen, present := map[ref.Val]bool{}, 0
	for i := 0; i+1 < len(m.entries); i += 2 {
		if o, ok := m.entries[i+1].Exec(frame).(*types.Optional); ok && !o.HasValue() {
			continue
		}
		present++
		k := m.entries[i].Exec(frame)
		if seen[k] && key == nil {
			key = k
		}
		seen[k] = true
	}
	if present <= keys {
		return nil
	}
	return key
}

func duplicateKeyMessage(key ref.Val) string {
	text, _ := key.ConvertToType(types.StringType).(types.String)
	return "the key " + quoteSource(string(text)) + " occurs twice in a map"
}

// Eval implements interpreter.Interpretable.
func (m *mapNode) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, m.Exec)
}

// A chargeCall is the pseudo call by which one of our implementations is charged, because
// the cost tracker accepts charges only for calls.
type chargeCall struct{}

func (chargeCall) Function() string   { return "@charge" }
func (chargeCall) OverloadID() string { return "" }
