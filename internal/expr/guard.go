// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// guard replaces the nodes of a plan whose work a caller could blow up by the
// values it feeds them. CEL charges a call after it has run, and charges one
// whose argument types are unknown before evaluation nothing but 1: both come
// too late for `x.replace("", x)` or for comparing lists that name the same
// part a million times. A guarded call is priced from its arguments, charged,
// and only then carried out.
func guard(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch n := i.(type) {
	case *guardedCall, *guardedAttr, *guardedMap, *plainCall:
		return i, nil
	case interpreter.InterpretableAttribute:
		return &guardedAttr{InterpretableAttribute: n}, nil
	case interpreter.InterpretableConstructor:
		if n.Type() == types.MapType {
			return &guardedMap{InterpretableV2: n}, nil
		}
		return i, nil
	case interpreter.InterpretableCall:
		g, ok := guards[n.Function()]
		if !ok && timeParts[n.Function()] && len(n.Args()) == 2 {
			g, ok = zoned(n.Function()), true
		}
		if !ok {
			return &plainCall{InterpretableCall: n}, nil
		}
		call := &guardedCall{InterpretableCall: n, args: n.Args(), guarded: g}
		if n.Function() == "matches" {
			if err := call.precompile(); err != nil {
				return nil, err
			}
		}
		return call, nil
	}
	return i, nil
}

// A guarded function is our own implementation of a CEL function.
type guarded struct {
	// price is what the call costs. It may look at sizes but does not do the
	// work, and takes time in proportion to what it returns.
	price func(args []ref.Val) uint64
	run   func(args []ref.Val) ref.Val
}

type guardedCall struct {
	interpreter.InterpretableCall
	args []interpreter.InterpretableV2
	guarded
}

// Exec implements interpreter.InterpretableV2.
func (c *guardedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
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
		costs.EvalUnary(frame, c.ID(), charge{}, nil, types.Int(c.price(args)))
	}
	v := blame(c.run(args), args)
	if e, ok := v.(*types.Err); ok {
		return types.LabelErrNode(c.ID(), e)
	}
	return v
}

// Eval implements interpreter.Interpretable.
func (c *guardedCall) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}

// A plainCall is a call that needs no guard. Its error says when an argument is a
// large value.
type plainCall struct {
	interpreter.InterpretableCall
}

// Exec implements interpreter.InterpretableV2.
func (c *plainCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := c.InterpretableCall.Exec(frame)
	// An error of an argument passes through: only its own is looked into.
	if e, failed := v.(*types.Err); !failed || e.NodeID() != c.ID() {
		return v
	}
	var args []ref.Val
	for _, a := range c.Args() {
		args = append(args, a.Exec(frame)) // pure: the same as before
	}
	return types.LabelErrNode(c.ID(), blame(v, args))
}

// Eval implements interpreter.Interpretable.
func (c *plainCall) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}

// A guardedAttr is a variable, a selection or an index. It turns the value of
// an absent variable into an error wherever the value is used as such.
type guardedAttr struct {
	interpreter.InterpretableAttribute
}

// Exec implements interpreter.InterpretableV2.
func (a *guardedAttr) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := a.InterpretableAttribute.Exec(frame)
	if x, ok := v.(absent); ok {
		return types.LabelErrNode(a.ID(), x.undefined())
	}
	return v
}

// Eval implements interpreter.Interpretable.
func (a *guardedAttr) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, a.Exec)
}

// A guardedMap makes a map of an expression walk its keys in order.
type guardedMap struct {
	interpreter.InterpretableV2
}

// Exec implements interpreter.InterpretableV2.
func (m *guardedMap) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := m.InterpretableV2.Exec(frame)
	if x, ok := v.(traits.Mapper); ok {
		return &orderedMap{Mapper: x}
	}
	return v
}

// Eval implements interpreter.Interpretable.
func (m *guardedMap) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, m.Exec)
}

// charge is the pseudo call through which a guarded call pays its price: the
// cost tracker takes payments for calls only.
type charge struct{}

func (charge) Function() string   { return "@charge" }
func (charge) OverloadID() string { return "" }
