// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"cmp"
	"encoding/json"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// EncodeLimits writes limits as an event of kind [EvRunLimits] holds them; the
// form is journal format.
func EncodeLimits(l plan.Limits) []byte {
	data, err := json.Marshal(l)
	if err != nil {
		panic("journal: limits are no JSON: " + err.Error()) // they are whole numbers
	}
	return data
}

// DecodeLimits reads what [EncodeLimits] wrote; anything else is fault.StoreCorrupt.
func DecodeLimits(data []byte) (l plan.Limits, err error) {
	if err = json.Unmarshal(data, &l); err != nil {
		err = fault.Wrap(fault.StoreCorrupt, err, "the limits cannot be read: %v", err)
	}
	return l, err
}

// ExpressionCost is what limits let an expression cost: their own bound, or the
// default of package expr.
func ExpressionCost(l plan.Limits) int64 { return cmp.Or(l.ExpressionCost, expr.CostLimit) }

// LostLimit is how many attempts lost to crashes a step instance survives.
const LostLimit = 3

// LostTooOften is the message of a step that is given up because of [LostLimit].
const LostTooOften = "the attempt was lost to a crash for the fourth time"

// InlineLimits bound what comes back from the journal: it was checked on its
// way in, so only the size is given room for references and wrapping.
var InlineLimits = jsonx.Limits{Bytes: 2 << 20, Depth: 128}

// ValueLimits are those of a value that a worker or an expression gave: it may
// refer to texts and lists in files.
var ValueLimits = jsonx.Limits{Bytes: InlineLimits.Bytes, Depth: InlineLimits.Depth, Large: true}
