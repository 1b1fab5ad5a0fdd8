// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A head that lags behind its journal is corrected by the next engine, and a mark on it
// stays: an old status does not hide a cancel, and a mark does not vanish.
func TestLaggingHeadIsCorrected(t *testing.T) {
	for _, marked := range []bool{false, true} {
		st := memory.New(memory.Options{})
		h := newHarness(t, st, Config{}, noop())
		key := h.run(acc, planOf(t, chain(2), noop()), nil)
		old := h.head(key)
		h.runUntilIdle(request(key, machine.Input{Kind: machine.InCancel, Text: "enough"}))
		h.wantStatus(key, "cancelled")
		if marked {
			old.Quarantine = "set aside"
		}
		if _, err := h.st.Commit(context.Background(), []store.Transition{{Key: key, Epoch: h.c.epoch, Head: &old}}); err != nil {
			t.Fatal(err)
		}
		h = h.reopen(st.Crash(0))
		h.runUntilIdle()
		if len(h.tasks) != 0 {
			t.Errorf("marked %t: a step of a cancelled run is handed out", marked)
		}
		if got := h.head(key).Quarantine; (got != "") != marked {
			t.Errorf("marked %t: the head has %q", marked, got)
		}
		if marked {
			release := &input{kind: inRelease, key: key, reply: make(chan answer, 1)}
			reply := h.replyOf(release)
			h.runUntilIdle(release)
			if err := reply().err; err != nil {
				t.Error(err)
			}
		}
		h.advanceClock(5_000_000)
		h.wantStatus(key, "cancelled")
		h.checkHead(key)
	}
}
