// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

func costSlice(a []ref.Val) uint64 {
	from, _ := a[1].(types.Int)
	to, _ := a[2].(types.Int)
	return 1 + uint64(max(0, min(int64(to)-int64(from), int64(size(a[0])))))
}

func runSlice(a []ref.Val) ref.Val {
	l, ok := a[0].(traits.Lister)
	from, ok1 := a[1].(types.Int)
	to, ok2 := a[2].(types.Int)
	if !ok || !ok1 || !ok2 {
		return noOverload()
	}
	if from < 0 || from > to || int(to) > size(l) {
		return types.NewErr("slice(%d, %d): the list has %d elements", int64(from), int64(to), size(l))
	}
	vals := make([]ref.Val, 0, to-from)
	for i := from; i < to; i++ {
		vals = append(vals, l.Get(i))
	}
	return listOf(vals)
}

// flattenDepth returns the depth of flatten(list[, depth]).
func flattenDepth(a []ref.Val) (int, bool) {
	if len(a) == 1 {
		return 1, true
	}
	d, ok := a[1].(types.Int)
	return int(min(d, maxDepth)), ok && d >= 0
}

// costFlatten counts what flattening would visit, up to the limit, because nested lists
// that share parts can describe far more elements than they hold in memory.
func costFlatten(a []ref.Val) uint64 {
	depth, ok := flattenDepth(a)
	if !ok {
		return 1
	}
	return 1 + uint64(visited(a[0], depth+1, MaxCost+1))
}

func visited(v ref.Val, depth, most int) int {
	l, ok := v.(traits.Lister)
	if !ok || depth == 0 {
		return 1
	}
	n := 1
	for i, end := 0, size(l); i < end && n < most; i++ {
		n += visited(l.Get(types.Int(i)), depth-1, most-n)
	}
	return n
}

func runFlatten(a []ref.Val) ref.Val {
	depth, ok := flattenDepth(a)
	l, isList := a[0].(traits.Lister)
	if !ok || !isList {
		return noOverload()
	}
	out, wrong := flattenInto(nil, l, depth)
	if wrong != nil {
		return wrong
	}
	return listOf(out)
}

func flattenInto(out []ref.Val, l traits.Lister, depth int) (all []ref.Val, wrong ref.Val) {
	for i, n := 0, size(l); i < n; i++ {
		v := l.Get(types.Int(i))
		in, isList := v.(traits.Lister)
		switch far, isLarge := v.(large); {
		case isLarge && far.List && depth > 0:
			return nil, far.contentError()
		case !isList || depth == 0:
			out = append(out, v)
		default:
			if out, wrong = flattenInto(out, in, depth-1); wrong != nil {
				return nil, wrong
			}
		}
	}
	return out, nil
}

// pairwiseCost is the cost of comparing every element of one list with every one of
// another.
func pairwiseCost(x, y ref.Val) uint64 {
	n, m := uint64(size(x)), uint64(size(y))
	px, py := countParts(x, MaxCost+1), countParts(y, MaxCost+1)
	return 1 + min(n*py, m*px) + n*m
}

func costDistinct(a []ref.Val) uint64 { return pairwiseCost(a[0], a[0]) }
func costPairs(a []ref.Val) uint64    { return pairwiseCost(a[0], a[1]) }

func runDistinct(a []ref.Val) ref.Val {
	vals, ok := elements(a[0])
	if !ok {
		return noOverload()
	}
	var out []ref.Val
	for _, v := range vals {
		switch found := isElement(out, v); found {
		case types.True:
		case types.False:
			out = append(out, v)
		default:
			return found
		}
	}
	return listOf(out)
}

// isElement returns whether v is one of vals, or an error when that depends on the content
// of a file.
func isElement(vals []ref.Val, v ref.Val) ref.Val {
	result := ref.Val(types.False)
	for _, o := range vals {
		switch same := equal(v, o).(type) {
		case types.Bool:
			if same {
				return same
			}
		case *types.Err:
			if errors.As(same, new(*contentError)) {
				result = same
			}
		}
	}
	return result
}

// costSort is the cost of n log n comparisons of keys.
func costSort(a []ref.Val) uint64 {
	keys := a[len(a)-1]
	n := uint64(size(keys))
	log := uint64(1)
	for m := n; m > 1; m >>= 1 {
		log++
	}
	return 1 + n*log + countParts(keys, MaxCost+1)
}

func runSort(a []ref.Val) ref.Val { return sortBy(a[0], a[0]) }

func runSortBy(a []ref.Val) ref.Val { return sortBy(a[0], a[1]) }

// sortBy orders a list by keys of one comparable type. Elements with the same
// key keep their order.
func sortBy(list, by ref.Val) ref.Val {
	vals, ok := elements(list)
	keys, ok2 := elements(by)
	if !ok || !ok2 || len(keys) != len(vals) {
		return noOverload()
	}
	index := make([]int, len(vals))
	for i, k := range keys {
		index[i] = i
		if _, ok := k.(traits.Comparer); !ok || k.Type() != keys[0].Type() {
			return types.NewErr("sort: the keys must be of one type that can be ordered, got %s", k.Type().TypeName())
		}
	}
	slices.SortStableFunc(index, func(i, j int) int {
		n, _ := keys[i].(traits.Comparer).Compare(keys[j]).(types.Int)
		return int(n)
	})
	out := make([]ref.Val, len(vals))
	for i, j := range index {
		out[i] = vals[j]
	}
	return listOf(out)
}

func bothElements(a []ref.Val) (x, y []ref.Val, ok bool) {
	x, ok = elements(a[0])
	y, ok2 := elements(a[1])
	return x, y, ok && ok2
}

// subset returns whether all elements of x are in of.
func subset(of, x []ref.Val) ref.Val {
	result := ref.Val(types.True)
	for _, v := range x {
		if result = both(result, isElement(of, v)); result == types.False {
			break
		}
	}
	return result
}

func runSetsContains(a []ref.Val) ref.Val {
	x, y, ok := bothElements(a)
	if !ok {
		return noOverload()
	}
	return subset(x, y)
}

func runSetsEquivalent(a []ref.Val) ref.Val {
	x, y, ok := bothElements(a)
	if !ok {
		return noOverload()
	}
	return both(subset(x, y), subset(y, x))
}

func runSetsIntersects(a []ref.Val) ref.Val {
	x, y, ok := bothElements(a)
	if !ok {
		return noOverload()
	}
	result := ref.Val(types.False)
	for _, v := range x {
		switch found := isElement(y, v); found {
		case types.True:
			return found
		case types.False:
		default:
			result = found
		}
	}
	return result
}
