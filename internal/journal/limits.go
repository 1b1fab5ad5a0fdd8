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

// EncodeLimits encodes limits for an event of kind [EvRunLimits]. The encoding is
// journal format.
func EncodeLimits(l plan.Limits) []byte {
	data, err := json.Marshal(l)
	if err != nil {
		panic("journal: limits are no JSON: " + err.Error()) // impossible: they are whole numbers
	}
	return data
}

// DecodeLimits reads what [EncodeLimits] wrote; any other input is fault.StoreCorrupt.
func DecodeLimits(data []byte) (l plan.Limits, err error) {
	if err = json.Unmarshal(data, &l); err != nil {
		err = fault.Wrap(fault.StoreCorrupt, err, "the limits cannot be read: %v", err)
	}
	return l, err
}

// ExpressionCost is the most that an expression may cost: the bound in the limits, or
// the default of package expr.
func ExpressionCost(l plan.Limits) int64 { return cmp.Or(l.ExpressionCost, expr.CostLimit) }

// LostLimit is how many attempts lost to crashes a step instance survives.
const LostLimit = 3

// LostTooOften is the message of a step that is given up because of [LostLimit].
const LostTooOften = "the attempt was lost to a crash for the fourth time"

// InlineLimits bound JSON that is read back from the journal. It was checked when it
// was written; only the size is larger here, to leave room for references and wrapping.
var InlineLimits = jsonx.Limits{Bytes: 2 << 20, Depth: 128}

// ValueLimits bound a value that a worker or an expression produced: it may refer to
// texts and lists in files.
var ValueLimits = jsonx.Limits{Bytes: InlineLimits.Bytes, Depth: InlineLimits.Depth, Large: true}
