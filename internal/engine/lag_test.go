// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A head that lags behind its journal is put right by the next engine, and a mark
// on it stays: neither does an old status hide a cancel, nor a mark vanish.
func TestHeadThatLags(t *testing.T) {
	for _, marked := range []bool{false, true} {
		st := memory.New(memory.Options{})
		r := newRig(t, st, Config{}, noop())
		key := r.run(acc, planOf(t, chain(2), noop()), nil)
		old := r.head(key)
		r.settle(request(key, machine.Input{Kind: machine.InCancel, Text: "enough"}))
		r.wantStatus(key, "cancelled")
		if marked {
			old.Quarantine = "set aside"
		}
		if _, err := r.st.Commit(context.Background(), []store.Transition{{Key: key, Epoch: r.c.epoch, Head: &old}}); err != nil {
			t.Fatal(err)
		}
		r = r.reopen(st.Crash(0))
		r.settle()
		if len(r.tasks) != 0 {
			t.Errorf("marked %t: a step of a cancelled run is handed out", marked)
		}
		if got := r.head(key).Quarantine; (got != "") != marked {
			t.Errorf("marked %t: the head says %q", marked, got)
		}
		if marked {
			release := &input{kind: inRelease, key: key, reply: make(chan answer, 1)}
			reply := r.asked(release)
			r.settle(release)
			if err := reply().err; err != nil {
				t.Error(err)
			}
		}
		r.pass(5_000_000)
		r.wantStatus(key, "cancelled")
		r.consistent(key)
	}
}
