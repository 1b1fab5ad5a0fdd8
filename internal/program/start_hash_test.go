// SPDX-License-Identifier: Apache-2.0

package program

import (
	"testing"

	"github.com/roux-engine/roux/internal/journal"
)

// Two starts are the same only if everything that decides what runs is equal; otherwise
// the idempotency key is refused (I13).
func TestI13_DifferentRequestsHaveDifferentHashes(t *testing.T) {
	hash := func(most int64, key string, change func(*journal.Start)) string {
		st := &journal.Start{Account: "acme", PlanHash: "plan", Version: "1", Parameters: map[string]any{"a": "x"}, Files: []journal.File{{Hash: "f"}}}
		change(st)
		h, err := StartHash(st, st.Parameters, most, key)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	same := func(*journal.Start) {}
	seen := map[string]int{}
	for i, h := range []string{
		hash(0, "", same),
		hash(7, "", same),
		hash(0, "night", same),
		hash(0, "", func(st *journal.Start) { st.PlanHash = "other" }),
		hash(0, "", func(st *journal.Start) { st.Account = "other" }),
		hash(0, "", func(st *journal.Start) { st.Version = "2" }),
		hash(0, "", func(st *journal.Start) { st.Parameters = map[string]any{"a": "y"} }),
		hash(0, "", func(st *journal.Start) { st.Files = nil }),
		hash(0, "", func(st *journal.Start) { st.Files = append(st.Files, st.Files...) }),
		hash(0, "", func(st *journal.Start) { st.PlanHash, st.Version = "plan1", "" }),
	} {
		if other, same := seen[h]; same {
			t.Errorf("requests %d and %d have the same hash", other, i)
		}
		seen[h] = i
	}
	if _, same := seen[hash(0, "", func(st *journal.Start) { st.Labels = map[string]string{"a": "b"} })]; !same {
		t.Error("labels change the hash")
	}
}
