// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"testing"
	"testing/synctest"

	"github.com/roux-engine/roux/internal/jobs"
)

// A task without a record that is found after a restart is its worker's for a full lease, as one with a
// record is. What is known already is not found again.
func TestFoundTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		id := h.submit("x", "a", "1.0.0", `{}`)
		lease := h.lease(Want{Max: 1})[0].Lease
		found := h.record("x", "a", "1.0.0", id, 1)
		found.Unstored, found.Found = true, true
		again := newFixture(t, nil)
		again.inputs[id] = `{}`
		again.Changed([]jobs.Change{found, found})
		if got := again.lease(Want{Max: 1}); len(got) != 0 {
			t.Errorf("it is handed out before its worker had a full lease: %+v", got)
		}
		if list := again.Unstored("x"); len(list) != 1 || list[0].ID != id || len(again.Unstored("y")) != 0 {
			t.Errorf("tasks without a record: %+v", list)
		}
		if ended := again.Extend([]string{lease}, ""); len(ended) != 0 {
			t.Error("its worker is told to stop")
		}
		stored := found
		stored.Unstored, stored.Found = false, false
		again.Changed([]jobs.Change{stored})
		if list := again.Unstored("x"); len(list) != 0 {
			t.Errorf("tasks without a record: %+v", list)
		}
		if err := again.Finish(t.Context(), &WorkerResult{Lease: lease, Output: []byte(`{}`)}, ""); err != nil {
			t.Error(err)
		}
		if h.Changed([]jobs.Change{found}); len(h.Extend([]string{lease}, "")) != 0 {
			t.Error("a task that is known is found")
		}
	})
}
