// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/program"
)

// Two starts are the same only if everything that decides what runs is equal; otherwise
// the idempotency key is refused (I13).
func TestI13_DifferentRequestsHaveDifferentHashes(t *testing.T) {
	hash := func(plan string, change func(*StartRequest)) string {
		req := &StartRequest{Account: acc, Version: "1", Parameters: map[string]any{"a": "x"}, Files: []journal.File{{Hash: "f"}}}
		change(req)
		h, err := program.RequestHash(req.Account, plan, req.Version, req.Parameters, req.Files, req.MaxCredits, req.Key)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	seen := map[string]int{}
	for i, h := range []string{
		hash("plan", func(*StartRequest) {}),
		hash("other", func(*StartRequest) {}),
		hash("plan", func(r *StartRequest) { r.Account = "other" }),
		hash("plan", func(r *StartRequest) { r.Version = "2" }),
		hash("plan", func(r *StartRequest) { r.Parameters = map[string]any{"a": "y"} }),
		hash("plan", func(r *StartRequest) { r.Files = nil }),
		hash("plan", func(r *StartRequest) { r.Files = append(r.Files, r.Files...) }),
		hash("plan1", func(r *StartRequest) { r.Version = "" }),
	} {
		if other, same := seen[h]; same {
			t.Errorf("requests %d and %d have the same hash", other, i)
		}
		seen[h] = i
	}
}
