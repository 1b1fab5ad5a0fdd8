// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"encoding/json"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// encodeLimits is the form of limits in an event; it is journal format.
func encodeLimits(l plan.Limits) []byte {
	data, err := json.Marshal(l)
	if err != nil {
		panic("machine: limits are no JSON: " + err.Error()) // they are whole numbers
	}
	return data
}

func decodeLimits(data []byte) (l plan.Limits, err error) {
	if err = json.Unmarshal(data, &l); err != nil {
		err = fault.Wrap(fault.StoreCorrupt, err, "the limits cannot be read: %v", err)
	}
	return l, err
}

// expressionCost is what limits let an expression cost.
func expressionCost(l plan.Limits) int64 { return cmp.Or(l.ExpressionCost, expr.CostLimit) }

// lostLimit is how many lost attempts a step instance survives.
const lostLimit = 3

const lostTooOften = "the attempt was lost to a crash for the fourth time"

// inlineLimits bound what comes back from the journal: it was checked on its
// way in, so only the size is given room for references and wrapping.
var inlineLimits = jsonx.Limits{Bytes: 2 << 20, Depth: 128}

// valueLimits are those of a value that a worker or an expression gave: it may
// refer to texts and lists in files.
var valueLimits = jsonx.Limits{Bytes: inlineLimits.Bytes, Depth: inlineLimits.Depth, Large: true}
