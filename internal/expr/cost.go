// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/roux-engine/roux/internal/jsonx"
)

// Reading and writing text and lists, in units of cost.
const (
	readUnit  = jsonx.PartBytes
	writeUnit = 16 // bytes
)

// callCosts computes the cost of calls that the library implements. Their work is at most
// proportional to their arguments, so it is enough to charge them afterwards.
type callCosts struct{}

// CallCost implements cost.ActualCostEstimator.
func (callCosts) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	if function == "@charge" {
		n, _ := result.(types.Int)
		return costOf(uint64(n))
	}
	n := uint64(1)
	if function != "size" || !isList(args) {
		for _, a := range args {
			n += readCost(a)
		}
	}
	return costOf(n + writeCost(result))
}

func isList(args []ref.Val) bool {
	if len(args) != 1 {
		return false
	}
	switch args[0].(type) {
	case traits.Lister, traits.Mapper:
		return true
	}
	return false
}

// smallCosts are the most frequent costs, so that they need no allocation.
var smallCosts = func() (t [256]uint64) {
	for i := range t {
		t[i] = uint64(i)
	}
	return t
}()

func costOf(n uint64) *uint64 {
	if n < uint64(len(smallCosts)) {
		return &smallCosts[n]
	}
	return &n
}

// readCost is the cost of reading all of a value.
func readCost(v ref.Val) uint64 {
	switch x := v.(type) {
	case types.Bool, types.Int, types.Double, types.Null:
		return 0
	case types.String:
		return uint64(len(x) / readUnit)
	case types.Bytes:
		return uint64(len(x) / readUnit)
	case traits.Lister:
		n, _ := x.Size().(types.Int)
		return uint64(n)
	}
	return 0
}

// writeCost is the cost of creating a value.
func writeCost(v ref.Val) uint64 {
	switch x := v.(type) {
	case types.String:
		return uint64(len(x) / writeUnit)
	case types.Bytes:
		return uint64(len(x) / writeUnit)
	}
	return 0
}

// compareCost is the cost of comparing two values: the number of parts of the smaller one.
func compareCost(a, b ref.Val) uint64 { return smallerParts(a, 1, b) }

// smallerParts returns the number of parts of a, multiplied by times, or that of b,
// whichever is smaller. Its own work is proportional to its result: a list that is compared
// with a word is not counted completely. It stops counting beyond any budget.
func smallerParts(a ref.Val, times int, b ref.Val) uint64 {
	for most := 16; ; most *= 16 {
		n := min(uint64(times)*countParts(a, most), countParts(b, most))
		if n < uint64(most) || most > MaxCost {
			return n
		}
	}
}

// countParts counts the values inside v and their text, up to most.
func countParts(v ref.Val, most int) uint64 {
	switch x := v.(type) {
	case *nativeList:
		return uint64(jsonx.Parts(x.src, most))
	case *orderedMap:
		if x.src != nil {
			return uint64(jsonx.Parts(x.src, most))
		}
	}
	switch x := v.(type) {
	case traits.Mapper:
		n := uint64(1)
		for it := x.Iterator(); it.HasNext() == types.True && n < uint64(most); {
			k := it.Next()
			n += 1 + readCost(k) + countParts(x.Get(k), most-int(n))
		}
		return n
	case traits.Lister:
		n := uint64(1)
		size, _ := x.Size().(types.Int)
		for i := types.Int(0); i < size && n < uint64(most); i++ {
			n += countParts(x.Get(i), most-int(n))
		}
		return n
	}
	return 1 + readCost(v)
}
