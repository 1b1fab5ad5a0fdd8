// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"math"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// A listTotal adds up the elements of a list: numbers, or durations.
type listTotal struct {
	Total
	length  time.Duration
	lengths int
	n       int
}

// addAll adds the elements of a list. It returns an error, or nil.
func (t *listTotal) addAll(name string, list ref.Val) ref.Val {
	l, ok := list.(traits.Lister)
	if !ok {
		return noOverload()
	}
	t.n = size(l)
	for i := range t.n {
		switch x := l.Get(types.Int(i)).(type) {
		case types.Int:
			t.AddInt(int64(x))
		case types.Uint:
			t.AddUint(uint64(x))
		case types.Double:
			t.AddDouble(float64(x))
		case types.Duration:
			if d := x.Duration; d > 0 && t.length > math.MaxInt64-d || d < 0 && t.length < math.MinInt64-d {
				return types.NewErr("%s: the duration is too long", name)
			}
			t.length += x.Duration
			t.lengths++
		case *types.Err:
			return x
		case large:
			return x.contentError()
		default:
			return types.NewErr("%s: element %d is of type %s, want numbers", name, i, x.Type().TypeName())
		}
	}
	if t.lengths > 0 && t.lengths < t.n {
		return types.NewErr("%s: want numbers or durations, not both", name)
	}
	return nil
}

func runSum(a []ref.Val) ref.Val {
	var t listTotal
	switch wrong := t.addAll("sum", a[0]); {
	case wrong != nil:
		return wrong
	case t.lengths > 0:
		return types.Duration{Duration: t.length}
	}
	sum, ok := t.Sum()
	if !ok {
		return types.NewErr("sum: %s does not fit into a 64-bit integer", t.String())
	}
	return types.DefaultTypeAdapter.NativeToValue(sum)
}

// runAvg returns the arithmetic mean as a double; that of integers is correctly rounded.
func runAvg(a []ref.Val) ref.Val {
	var t listTotal
	switch wrong := t.addAll("avg", a[0]); {
	case wrong != nil:
		return wrong
	case t.n == 0:
		return types.NewErr("avg: the list is empty")
	case t.lengths > 0:
		return types.NewErr("avg: want numbers, got durations")
	}
	return types.Double(t.Mean(int64(t.n)))
}

func runZip(a []ref.Val) ref.Val {
	x, y, ok := bothElements(a)
	if !ok {
		return noOverload()
	}
	if len(x) != len(y) {
		return types.NewErr("zip: one list has %d elements, the other %d", len(x), len(y))
	}
	out := make([]ref.Val, len(x))
	for i := range x {
		out[i] = listOf([]ref.Val{x[i], y[i]})
	}
	return listOf(out)
}

func costMerge(a []ref.Val) uint64 { return 1 + uint64(size(a[0])) + uint64(size(a[1])) }

// runMerge merges two maps. The second one takes precedence.
func runMerge(a []ref.Val) ref.Val {
	entries := map[ref.Val]ref.Val{}
	for _, v := range a {
		m, ok := v.(traits.Mapper)
		if !ok {
			return noOverload()
		}
		for it := m.Iterator(); it.HasNext() == types.True; {
			k := it.Next()
			entries[k] = m.Get(k)
		}
	}
	return base().CELTypeAdapter().NativeToValue(entries)
}

func costGroups(a []ref.Val) uint64 { return 1 + uint64(size(a[0])) + countParts(a[1], MaxCost+1) }

// runGroups groups the elements of one list by the keys in the other. Within a group they
// keep their order.
func runGroups(a []ref.Val) ref.Val {
	vals, keys, ok := bothElements(a)
	if !ok || len(vals) != len(keys) {
		return noOverload()
	}
	groups := map[ref.Val][]ref.Val{}
	for i, k := range keys {
		switch k := k.(type) {
		case types.String, types.Int, types.Uint, types.Bool:
		case large:
			return k.contentError()
		default:
			return types.NewErr("groupBy: the key of element %d is of type %s, want a string, an integer or a bool", i, k.Type().TypeName())
		}
		groups[k] = append(groups[k], vals[i])
	}
	entries := make(map[ref.Val]ref.Val, len(groups))
	for k, vals := range groups {
		entries[k] = listOf(vals)
	}
	return base().CELTypeAdapter().NativeToValue(entries)
}

// rangeArgs splits range(to), range(from, to) and range(from, to, step); n is the
// number of elements.
func rangeArgs(a []ref.Val) (from, step types.Int, n uint64, wrong ref.Val) {
	var v [3]types.Int
	for i := range a {
		x, ok := a[i].(types.Int)
		if !ok {
			return 0, 0, 0, noOverload()
		}
		v[i] = x
	}
	from, to, step := v[0], v[1], types.Int(1)
	switch len(a) {
	case 1:
		from, to = 0, v[0]
	case 3:
		step = v[2]
	}
	switch {
	case step == 0:
		return 0, 0, 0, types.NewErr("range: the step is 0")
	case step > 0 && from < to:
		n = (uint64(to)-uint64(from)-1)/uint64(step) + 1
	case step < 0 && from > to:
		n = (uint64(from)-uint64(to)-1)/-uint64(step) + 1
	}
	return from, step, n, nil
}

func costNumbers(a []ref.Val) uint64 {
	_, _, n, _ := rangeArgs(a)
	return 1 + min(n, MaxCost)
}

func runNumbers(a []ref.Val) ref.Val {
	from, step, n, wrong := rangeArgs(a)
	if wrong != nil {
		return wrong
	}
	if n > maxElements {
		return tooMany(int(min(n, math.MaxInt64)))
	}
	vals := make([]ref.Val, n)
	for i := range vals {
		vals[i] = from + types.Int(i)*step
	}
	return listOf(vals)
}
