// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

const (
	// maxElements bounds the list that a concatenation or a range returns.
	maxElements = 100_000
	// maxString bounds the text that one call may return, even as an intermediate result.
	maxString = MaxInput
)

// implementations are our implementations of functions whose work or result can be larger
// than their arguments, or whose arguments can be larger than the memory they use.
var implementations = map[string]implementation{
	"_==_": {costCompare, func(a []ref.Val) ref.Val { return equal(a[0], a[1]) }},
	"_!=_": {costCompare, func(a []ref.Val) ref.Val {
		switch v := equal(a[0], a[1]).(type) {
		case types.Bool:
			return !v
		case *types.Err:
			if inside := new(contentError); errors.As(v, &inside) {
				return v
			}
		}
		return types.True
	}},
	"@in":     {costIn, runIn},
	"_+_":     {costAdd, runAdd},
	"matches": {costMatches, runMatches},

	"replace":     {costReplace, runReplace},
	"join":        {costJoin, runJoin},
	"split":       {costText, runSplit},
	"indexOf":     {costText, runIndexOf},
	"lastIndexOf": {costText, runLastIndexOf},

	"flatten":               {costFlatten, runFlatten},
	"distinct":              {costDistinct, runDistinct},
	"sort":                  {costSort, runSort},
	"@sortByAssociatedKeys": {costSort, runSortBy},
	"slice":                 {costSlice, runSlice},
	"reverse":               {costReverse, runReverse},
	"lists.range":           {costRange, runRange},
	"sets.contains":         {costPairs, runSetsContains},
	"sets.equivalent":       {costPairs, runSetsEquivalent},
	"sets.intersects":       {costPairs, runSetsIntersects},
	"hasAny":                {costPairs, runSetsIntersects},
	"hasAll":                {costPairs, runSetsContains},
	"hasOnly":               {costPairs, func(a []ref.Val) ref.Val { return runSetsContains([]ref.Val{a[1], a[0]}) }},
	"hasExactly":            {costPairs, runSetsEquivalent},
	mapInsert:               {costInsert, runInsert},

	"base64.decodeUrl": {costText, runDecodeURL},
	"base64.encodeUrl": {costText, runEncodeURL},

	"sum":      {costList, runSum},
	"avg":      {costList, runAvg},
	"zip":      {costList, runZip},
	"merge":    {costMerge, runMerge},
	"@groupBy": {costGroups, runGroups},
	"range":    {costNumbers, runNumbers},

	"format":        {costFormat, runFormat},
	"strings.quote": {costText, runQuote},
	"toJson":        {costString, runToJSON},
	"json.encode":   {costString, runToJSON},
	"fromJson":      {costText, runFromJSON},
	"json.parse":    {costText, runParseJSON},

	"date":    {costText, runDate},
	"addDate": {costOne, runAddDate},
	"startOf": {costOne, runStartOf},
	"@uuid":   {costText, runUUID},
}

func costOne([]ref.Val) uint64 { return 1 }

func noOverload() ref.Val { return types.NewErr("no such overload") }

func size(v ref.Val) int {
	s, ok := v.(traits.Sizer)
	if _, isLarge := v.(large); !ok || isLarge {
		return 0
	}
	n, _ := s.Size().(types.Int)
	return int(n)
}

func costCompare(a []ref.Val) uint64 { return compareCost(a[0], a[1]) }

// costIn is the cost of comparing an element with all elements of a list.
func costIn(a []ref.Val) uint64 {
	l, ok := a[1].(traits.Lister)
	if !ok {
		return 1
	}
	return 1 + smallerParts(a[0], size(l), l)
}

func runIn(a []ref.Val) ref.Val {
	if l, ok := a[1].(traits.Lister); ok {
		return contains(l, a[0])
	}
	c, ok := a[1].(traits.Container)
	if !ok {
		return noOverload()
	}
	if key, isLarge := a[0].(large); isLarge {
		return key.contentError()
	}
	return c.Contains(a[0])
}

// costAdd is the cost of the text that will result. Lists are joined without a copy.
func costAdd(a []ref.Val) uint64 {
	switch x := a[0].(type) {
	case types.String:
		if y, ok := a[1].(types.String); ok {
			return 1 + uint64((len(x)+len(y))/writeUnit)
		}
	case types.Bytes:
		if y, ok := a[1].(types.Bytes); ok {
			return 1 + uint64((len(x)+len(y))/writeUnit)
		}
	case traits.MutableLister:
		return 1 + uint64(size(a[1]))
	}
	return 1
}

func runAdd(a []ref.Val) ref.Val {
	switch x := a[0].(type) {
	case types.String, types.Bytes:
		if n := textSize(a[0]) + textSize(a[1]); n > maxString {
			return tooLong(n)
		}
	case traits.Lister:
		if n := size(x) + size(a[1]); n > maxElements {
			return tooMany(n)
		}
	}
	x, ok := a[0].(traits.Adder)
	if !ok {
		return noOverload()
	}
	return x.Add(a[1])
}

// textSize returns the size of text in bytes.
func textSize(v ref.Val) int {
	switch x := v.(type) {
	case types.String:
		return len(x)
	case types.Bytes:
		return len(x)
	}
	return 0
}

func tooLong(n int) ref.Val {
	return types.NewErr(tooLarge+"a text of %d bytes; expressions make at most %d", n, maxString)
}

func tooMany(n int) ref.Val {
	return types.NewErr(tooLarge+"a list of %d elements; expressions make at most %d", n, maxElements)
}

// costText is the cost of reading all arguments and writing as much.
func costText(a []ref.Val) uint64 {
	n := uint64(1)
	for _, v := range a {
		n += writeCost(v)
	}
	return n
}

func texts(a []ref.Val) ([]string, bool) {
	out := make([]string, 0, 4)
	for _, v := range a {
		s, ok := v.(types.String)
		if !ok {
			return nil, false
		}
		out = append(out, string(s))
	}
	return out, true
}

// replaceArgs splits replace(text, old, new[, n]).
func replaceArgs(a []ref.Val) (s []string, n int, ok bool) {
	n = -1
	if len(a) == 4 {
		i, isInt := a[3].(types.Int)
		if !isInt {
			return nil, 0, false
		}
		n, a = int(i), a[:3]
	}
	s, ok = texts(a)
	return s, n, ok
}

// replaced returns the length of the result of a replacement.
func replaced(s []string, n int) int {
	count := strings.Count(s[0], s[1])
	if n >= 0 {
		count = min(count, n)
	}
	return len(s[0]) + count*(len(s[2])-len(s[1]))
}

func costReplace(a []ref.Val) uint64 {
	s, n, ok := replaceArgs(a)
	if !ok {
		return 1
	}
	return 1 + uint64(len(s[0])/readUnit) + uint64(max(0, replaced(s, n))/writeUnit)
}

func runReplace(a []ref.Val) ref.Val {
	s, n, ok := replaceArgs(a)
	if !ok {
		return noOverload()
	}
	if size := replaced(s, n); size > maxString {
		return tooLong(size)
	}
	return types.String(strings.Replace(s[0], s[1], s[2], n))
}

func costJoin(a []ref.Val) uint64 {
	return 1 + uint64(size(a[0]))*(1+costText(a[1:])-1)
}

func runJoin(a []ref.Val) ref.Val {
	l, ok := a[0].(traits.Lister)
	if !ok {
		return noOverload()
	}
	sep := ""
	if len(a) == 2 {
		s, ok := a[1].(types.String)
		if !ok {
			return noOverload()
		}
		sep = string(s)
	}
	var b strings.Builder
	n := size(l)
	for i := 0; i < n; i++ {
		s, ok := l.Get(types.Int(i)).(types.String)
		if !ok {
			return types.NewErr("join: element %d is no string", i)
		}
		if i > 0 {
			b.WriteString(sep)
		}
		if b.Len()+len(s)+len(sep) > maxString {
			return tooLong(b.Len() + len(s) + len(sep))
		}
		b.WriteString(string(s))
	}
	return types.String(b.String())
}

func runSplit(a []ref.Val) ref.Val {
	n := -1
	if len(a) == 3 {
		i, ok := a[2].(types.Int)
		if !ok {
			return noOverload()
		}
		n, a = int(i), a[:2]
	}
	s, ok := texts(a)
	if !ok {
		return noOverload()
	}
	if c := strings.Count(s[0], s[1]); c > maxElements && (n < 0 || n > maxElements) {
		return tooMany(c)
	}
	return types.DefaultTypeAdapter.NativeToValue(strings.SplitN(s[0], s[1], n))
}

// indexArgs splits indexOf(text, part[, offset]); offset is -1 when absent.
func indexArgs(a []ref.Val) (s []string, offset int, ok bool) {
	offset = -1
	if len(a) == 3 {
		i, isInt := a[2].(types.Int)
		if !isInt {
			return nil, 0, false
		}
		offset, a = int(i), a[:2]
		if offset < 0 {
			return nil, 0, false
		}
	}
	s, ok = texts(a)
	return s, offset, ok
}

// byteOffset returns the offset at which the nth rune begins; ok is false at the end and
// beyond.
func byteOffset(s string, n int) (int, bool) {
	for i := range s {
		if n == 0 {
			return i, true
		}
		n--
	}
	return len(s), false
}

func runIndexOf(a []ref.Val) ref.Val {
	s, offset, ok := indexArgs(a)
	if !ok {
		return noOverload()
	}
	from, inside := byteOffset(s[0], max(0, offset))
	if !inside && s[1] != "" {
		return types.Int(-1)
	}
	i := strings.Index(s[0][from:], s[1])
	if i < 0 {
		return types.Int(-1)
	}
	return types.Int(runes(s[0][:from+i]))
}

// runLastIndexOf is text.lastIndexOf(part[, offset]), which finds the last match that
// begins at the offset or before. As in the library, an offset beyond the end finds only
// the empty part.
func runLastIndexOf(a []ref.Val) ref.Val {
	s, offset, ok := indexArgs(a)
	if !ok {
		return noOverload()
	}
	text := s[0]
	if offset >= 0 {
		end, inside := byteOffset(text, offset)
		if !inside && s[1] != "" {
			return types.Int(-1)
		}
		text = text[:min(len(text), end+len(s[1]))]
	}
	i := strings.LastIndex(text, s[1])
	if i < 0 {
		return types.Int(-1)
	}
	return types.Int(runes(text[:i]))
}

func elements(v ref.Val) ([]ref.Val, bool) {
	l, ok := v.(traits.Lister)
	if !ok {
		return nil, false
	}
	out := make([]ref.Val, size(l))
	for i := range out {
		out[i] = l.Get(types.Int(i))
	}
	return out, true
}

func listOf(vals []ref.Val) ref.Val {
	return types.NewRefValList(base().CELTypeAdapter(), vals)
}

func costList(a []ref.Val) uint64 { return 1 + uint64(size(a[0])) }

func costRange(a []ref.Val) uint64 {
	n, _ := a[0].(types.Int)
	return 1 + uint64(max(0, min(n, MaxCost)))
}

func runRange(a []ref.Val) ref.Val {
	n, ok := a[0].(types.Int)
	if !ok {
		return noOverload()
	}
	if n < 0 {
		return types.NewErr("lists.range: %d is negative", int64(n))
	}
	if n > maxElements {
		return tooMany(int(n))
	}
	vals := make([]ref.Val, n)
	for i := range vals {
		vals[i] = types.Int(i)
	}
	return listOf(vals)
}
