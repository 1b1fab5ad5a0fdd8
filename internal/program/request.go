// SPDX-License-Identifier: Apache-2.0

package program

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// RequestHash returns the hash that identifies a request to start a run: two starts with one
// idempotency key are the same if their hashes are equal. Fields are length-prefixed so that
// different lists of fields never give the same bytes.
func RequestHash(account, plan, version string, parameters map[string]any, files []journal.File, maxCredits int64, key string) (string, error) {
	params, err := jsonx.Canonical(parameters)
	if err != nil {
		return "", fault.Wrap(fault.InputInvalid, err, "the parameters are no JSON object: %v", err)
	}
	h := sha256.New()
	put := func(b []byte) {
		h.Write(binary.AppendUvarint(nil, uint64(len(b))))
		h.Write(b)
	}
	put([]byte(account))
	put([]byte(plan))
	put([]byte(version))
	put(params)
	for _, f := range files {
		put([]byte(f.Hash))
	}
	if maxCredits != 0 {
		put(binary.AppendVarint(nil, maxCredits))
	}
	if key != "" {
		put([]byte("key " + key))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

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
