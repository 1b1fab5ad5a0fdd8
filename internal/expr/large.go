// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A large is a text or a list whose content is in a file. An expression can read its size,
// compare it and pass it on. Access to the content is VALUE_TOO_LARGE, because the content
// is not in memory, and reading it would make the result depend on a disk.
type large struct{ jsonx.Large }

// largeType has ReceiverType so that [large.Receive] gets member calls on a large value.
var largeType = types.NewObjectType("large_value", traits.IndexerType|traits.FieldTesterType|traits.SizerType|traits.ReceiverType)

// A contentError is the error of an expression that accesses the content of a large value.
// The zero contentError is for an access to a large value that is not known.
type contentError struct{ l jsonx.Large }

func (r *contentError) Error() string {
	if r.l.List {
		return tooLarge + "a list of " + thousands(r.l.Size) + " elements in a file"
	}
	return tooLarge + "a text of " + thousands(r.l.Size) + " characters in a file"
}

func (l large) contentError() ref.Val { return types.WrapErr(&contentError{l.Large}) }

// ConvertToNative implements ref.Val.
func (l large) ConvertToNative(reflect.Type) (any, error) { return nil, &contentError{l.Large} }

// ConvertToType implements ref.Val.
func (l large) ConvertToType(t ref.Type) ref.Val {
	switch {
	case t != types.TypeType:
		return l.contentError()
	case l.List:
		return types.ListType
	}
	return types.StringType
}

// Equal implements ref.Val. Values of different type or size differ; whether values of the
// same size are equal depends on the content.
func (l large) Equal(other ref.Val) ref.Val {
	switch o := other.(type) {
	case large:
		if l.Hash != o.Hash && l.List && o.List && l.Large.Size == o.Large.Size && (l.Refs || o.Refs) {
			return l.contentError() // equal values may be in files with different hashes
		}
		return types.Bool(l.Hash == o.Hash && l.List == o.List)
	case types.String:
		if l.List || int64(runes(string(o))) != l.Large.Size {
			return types.False
		}
		return l.contentError()
	case traits.Lister:
		if !l.List || int64(size(o)) != l.Large.Size {
			return types.False
		}
		return l.contentError()
	}
	return types.False
}

// Type implements ref.Val.
func (large) Type() ref.Type { return largeType }

// Value implements ref.Val.
func (l large) Value() any { return l.Large }

// Size implements traits.Sizer.
func (l large) Size() ref.Val { return types.Int(l.Large.Size) }

// Get implements traits.Indexer. It is always an error, also for "size": x.size is a call
// of [sizeOf] instead, and rows['size'] is an error for an inline list too.
func (l large) Get(ref.Val) ref.Val { return l.contentError() }

// IsSet implements traits.FieldTester, which optional selections and has() use. Whether a
// field is set depends on the content, so an empty optional could be wrong.
func (l large) IsSet(ref.Val) ref.Val { return l.contentError() }

// Receive implements traits.Receiver.
func (l large) Receive(string, string, []ref.Val) ref.Val { return l.contentError() }

// largeArg finds a large value among arguments, or among the elements of their lists.
func largeArg(args []ref.Val) (large, bool) {
	for _, a := range args {
		if l, ok := a.(large); ok {
			return l, true
		}
		list, ok := a.(traits.Lister)
		if !ok {
			continue
		}
		for i, n := 0, size(list); i < n; i++ {
			if l, ok := list.Get(types.Int(i)).(large); ok {
				return l, true
			}
		}
	}
	return large{}, false
}

// explainLarge replaces the error of a function that does not accept a large value by one
// that says so.
func explainLarge(v ref.Val, args []ref.Val) ref.Val {
	e, failed := v.(*types.Err)
	if !failed || strings.HasPrefix(e.String(), tooLarge) {
		return v
	}
	if l, ok := largeArg(args); ok {
		return l.contentError()
	}
	return v
}

// recordContentError records in the activation that the evaluation accessed the content of
// a large value.
func recordContentError(frame *interpreter.ExecutionFrame, v ref.Val) ref.Val {
	e, failed := v.(*types.Err)
	var inside *contentError
	if !failed || !errors.As(e, &inside) {
		return v
	}
	if at, ok := frame.ResolveName(contentErrVar); ok {
		if first, ok := at.(**contentError); ok && *first == nil {
			*first = inside
		}
	}
	return v
}

// equal is types.Equal with support for large values, on either side and at any depth: a
// result that depends on their content is an error, never false. It stops at the first
// difference, as its cost assumes.
func equal(a, b ref.Val) ref.Val {
	if l, ok := a.(large); ok {
		return l.Equal(b)
	}
	if l, ok := b.(large); ok {
		return l.Equal(a)
	}
	switch x := a.(type) {
	case traits.Mapper:
		if y, ok := b.(traits.Mapper); ok {
			return equalMaps(x, y)
		}
		return types.False
	case traits.Lister:
		if y, ok := b.(traits.Lister); ok {
			return equalLists(x, y)
		}
		return types.False
	}
	return types.Equal(a, b)
}

func equalMaps(x, y traits.Mapper) ref.Val {
	if x.Size() != y.Size() {
		return types.False
	}
	result := ref.Val(types.True)
	for it := x.Iterator(); it.HasNext() == types.True; {
		k := it.Next()
		v, found := y.Find(k)
		if !found {
			return types.False
		}
		if result = both(result, equal(x.Get(k), v)); result == types.False {
			break
		}
	}
	return result
}

func equalLists(x, y traits.Lister) ref.Val {
	n := size(x)
	if n != size(y) {
		return types.False
	}
	result := ref.Val(types.True)
	for i := 0; i < n && result != types.False; i++ {
		result = both(result, equal(x.Get(types.Int(i)), y.Get(types.Int(i))))
	}
	return result
}

// both returns false if either is false, else an error if either is an error.
func both(a, b ref.Val) ref.Val {
	if a == types.True || b == types.False {
		return b
	}
	return a
}

// contains is `needle in list`. It is an error if no element is equal for certain but one
// may be.
func contains(l traits.Lister, needle ref.Val) ref.Val {
	result := ref.Val(types.False)
	for i, n := 0, size(l); i < n; i++ {
		switch v := equal(needle, l.Get(types.Int(i))); {
		case v == types.True:
			return v
		case v != types.False:
			result = v
		}
	}
	return result
}

// sizeField is the one field of texts and lists, both inline and in a file, so that a
// recipe need not distinguish them.
const sizeField = "size"

// sizeOf is the function for a selection of .size. No source can contain its name, because
// of the "@".
const sizeOf = "@sizeOf"

func sizeFunction() cel.EnvOption {
	return cel.Function(sizeOf, cel.Overload("size_of_dyn", []*cel.Type{cel.DynType}, cel.DynType), cel.SingletonUnaryBinding(runSizeOf))
}

func runSizeOf(v ref.Val) ref.Val {
	key := types.String(sizeField)
	switch x := v.(type) {
	case large:
		return x.Size()
	case types.String:
		return x.Size()
	case traits.Mapper:
		if field, found := x.Find(key); found {
			return field
		}
		return types.NewErr("no such key: %s", sizeField)
	case traits.Lister:
		return x.Size()
	case *types.Optional:
		if !x.HasValue() {
			return x
		}
		return types.OptionalOf(runSizeOf(x.GetValue()))
	case traits.Indexer:
		return x.Get(key)
	}
	return noOverload()
}

// selectSizes rewrites x.size to a call, because CEL's own selection supports only maps.
// It reports whether there was one.
func selectSizes(e ast.Expr) (found bool) {
	fac := ast.NewExprFactory()
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.SelectKind || e.AsSelect().FieldName() != sizeField || e.AsSelect().IsTestOnly() {
			return
		}
		found = true
		e.SetKindCase(fac.NewCall(e.ID(), sizeOf, e.AsSelect().Operand()))
	}))
	return found
}

// contentFault returns the error of an expression that accesses the content of a large
// value. name is the expression of the value, or "".
func contentFault(l jsonx.Large, name string) error {
	what, of, with := "text", "characters", "an action such as text-split, text-replace or word-count reaches inside"
	if l.List {
		what, of, with = "list", "elements", "a loop runs over it, and an action such as json-path reaches inside"
	}
	if name == "" {
		name = "the value"
	}
	return &fault.Error{Code: fault.ValueTooLarge, Err: &contentError{l}, Msg: fmt.Sprintf(
		"%s is a %s of %s %s, which is kept in file %s: expressions can read its .size and pass it on; %s",
		name, what, thousands(l.Size), of, l.Hash, with)}
}

// nameContentError adds to a contentError the name of the large value. The evaluation does
// not know it, so it searches for the value in the variables of the program.
func nameContentError(err error, refs []Ref, vars Vars) error {
	var r *contentError
	if !errors.As(err, &r) {
		return err
	}
	for i := range refs {
		v, ok := vars.Lookup(refs[i].Name)
		if !ok {
			continue
		}
		at := refs[i].Name
		for _, p := range refs[i].Path {
			m, isMap := v.(map[string]any)
			if !isMap || m[p] == nil {
				break
			}
			v, at = m[p], at+"."+p
		}
		if l, name, ok := find(v, r.l, at); ok {
			return contentFault(l, name)
		}
	}
	return contentFault(r.l, "")
}

// find searches v for the large value l, or for any one when l is zero.
func find(v any, l jsonx.Large, at string) (found jsonx.Large, name string, ok bool) {
	switch x := v.(type) {
	case jsonx.Large:
		return x, at, x == l || l == jsonx.Large{}
	case []any:
		for i, e := range x {
			if found, name, ok = find(e, l, at+"["+strconv.Itoa(i)+"]"); ok {
				return found, name, true
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if found, name, ok = find(x[k], l, at+"."+k); ok {
				return found, name, true
			}
		}
	}
	return l, "", false
}

// thousands formats a number with commas.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
