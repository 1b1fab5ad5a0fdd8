// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/roux-engine/roux/internal/jsonx"
)

// A registry converts Go values to CEL values. Unlike the one it embeds, it iterates over
// maps in the order of their keys: Go's order is random, and an expression that iterates
// over a map must have the same result every time.
type registry struct {
	*types.Registry
}

// NativeToValue implements types.Adapter.
func (r *registry) NativeToValue(v any) ref.Val {
	switch x := v.(type) {
	case ref.Val:
		return x
	case jsonx.Large:
		return large{x}
	case Blank:
		return blank{}
	case map[string]any:
		return &orderedMap{Mapper: types.NewStringInterfaceMap(r, x), src: x}
	case []any:
		return &nativeList{Lister: types.NewDynamicList(r, x), src: x}
	case map[ref.Val]ref.Val:
		return &orderedMap{Mapper: types.NewRefValMap(r, x)}
	case []ref.Val:
		return types.NewRefValList(r, x)
	}
	return r.Registry.NativeToValue(v)
}

// CEL's protobuf types are not part of our language: values are JSON.

// EnumValue implements types.Provider.
func (r *registry) EnumValue(name string) ref.Val {
	return types.NewErr("undefined: %s", name)
}

// FindIdent implements types.Provider.
func (r *registry) FindIdent(name string) (ref.Val, bool) {
	if strings.HasPrefix(name, "google.") {
		return nil, false
	}
	return r.Registry.FindIdent(name)
}

// FindStructType implements types.Provider.
func (r *registry) FindStructType(name string) (*types.Type, bool) {
	if strings.HasPrefix(name, "google.") {
		return nil, false
	}
	return r.Registry.FindStructType(name)
}

// A nativeList is a list that is the Go value src of a variable.
type nativeList struct {
	traits.Lister
	src []any
}

// IsZeroValue implements traits.Zeroer.
func (l *nativeList) IsZeroValue() bool { return len(l.src) == 0 }

// An orderedMap is a map that iterates in the order of its keys. src is the Go value of the
// variable, or nil for a map that an expression built.
type orderedMap struct {
	traits.Mapper
	src map[string]any
}

// IsZeroValue implements traits.Zeroer.
func (m *orderedMap) IsZeroValue() bool { return m.Size() == types.IntZero }

// Iterator implements traits.Iterable.
func (m *orderedMap) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, m.keys()).Iterator()
}

// Fold implements traits.Foldable, which comprehensions prefer to Iterator.
func (m *orderedMap) Fold(f traits.Folder) {
	for _, k := range m.keys() {
		if !f.FoldEntry(k, m.Get(k)) {
			return
		}
	}
}

func (m *orderedMap) keys() []ref.Val {
	if m.src != nil {
		names := slices.Sorted(maps.Keys(m.src))
		keys := make([]ref.Val, len(names))
		for i, n := range names {
			keys[i] = types.String(n)
		}
		return keys
	}
	var keys []ref.Val
	for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// compareKeys orders keys by type, then by value.
func compareKeys(a, b ref.Val) int {
	if c := cmp.Compare(a.Type().TypeName(), b.Type().TypeName()); c != 0 {
		return c
	}
	if x, ok := a.(traits.Comparer); ok {
		if n, ok := x.Compare(b).(types.Int); ok {
			return int(n)
		}
	}
	return 0
}

// absent is the value of a variable that does not exist. has() of a member is false; every
// other use is an error with the name of the variable.
type absent string

var absentType = cel.ObjectType("absent")

func (a absent) undefined() ref.Val { return types.NewErr("undefined: %s", NameFor(string(a))) }

// ConvertToNative implements ref.Val.
func (a absent) ConvertToNative(reflect.Type) (any, error) { return nil, errMissing }

// ConvertToType implements ref.Val.
func (a absent) ConvertToType(ref.Type) ref.Val { return a.undefined() }

// Equal implements ref.Val.
func (a absent) Equal(ref.Val) ref.Val { return a.undefined() }

// Type implements ref.Val.
func (a absent) Type() ref.Type { return absentType }

// Value implements ref.Val.
func (a absent) Value() any { return string(a) }

// Get implements traits.Indexer: selecting a member is an error.
func (a absent) Get(ref.Val) ref.Val { return a.undefined() }

// IsSet implements traits.FieldTester: has(name.field) is false.
func (a absent) IsSet(ref.Val) ref.Val { return types.False }

// Blank is the value of a missing variable under substitute_default: it and all of its
// members are empty text (X42).
type Blank struct{}

// A blank is the CEL value of a Blank, whose members can be selected.
type blank struct{ types.String }

// Get implements traits.Indexer.
func (b blank) Get(ref.Val) ref.Val { return b }

// IsSet implements traits.FieldTester: no member exists.
func (blank) IsSet(ref.Val) ref.Val { return types.False }

// withoutBlanks replaces a Blank in a selected value, for callers that do not know the
// type. Only the result object of a step can contain one, as its output.
func withoutBlanks(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	if _, ok := m["output"].(Blank); !ok {
		return v
	}
	m = maps.Clone(m)
	m["output"], m["result"] = "", ""
	return m
}
