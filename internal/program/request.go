// SPDX-License-Identifier: Apache-2.0

package program

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/plan"
)

// CheckLimits refuses limits of a retry that exceed those of the server.
func CheckLimits(requested, limit plan.Limits) error {
	for _, f := range []struct {
		name             string
		want, most, unit int64
	}{
		{"max_total_steps", requested.TotalSteps, limit.TotalSteps, 1},
		{"max_loop_items", requested.LoopItems, limit.LoopItems, 1},
		{"memory_limit_mb", requested.MemoryBytes, limit.MemoryBytes, 1 << 20},
		{"max_expression_cost", requested.ExpressionCost, limit.ExpressionCost, 1},
	} {
		if f.want < 0 || f.want > f.most {
			return fault.New(fault.InputInvalid, "limits.%s is %d: want at least 1 and at most %d", f.name, f.want/f.unit, f.most/f.unit)
		}
	}
	if requested.ScopeDepth != 0 {
		return fault.New(fault.InputInvalid, "limits.max_scope_depth is checked when a recipe is compiled: a retry cannot raise it")
	}
	return nil
}
