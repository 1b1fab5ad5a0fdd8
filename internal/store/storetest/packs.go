// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// packRuns is the number of runs: more than one pack holds, and more than a store reads
// or writes at once.
const packRuns = 300

func packKey(i int) store.Key { return key(fmt.Sprintf("p%03d", i)) }

// packed takes many runs through their lives side by side, as an engine does: suspended
// by one commit, woken, compacted again, ended and deleted. Of the runs it leaves,
// number 0 modulo 4 is suspended at event 4, 1 is awake with event 5 in the journal,
// and 2 has ended at event 8. Number 3 is deleted.
func (h *harness) packed() {
	h.Helper()
	each := func(change func(i int, tr *store.Transition) bool) {
		h.Helper()
		var batch []store.Transition
		for i := range packRuns {
			tr := store.Transition{Key: packKey(i), Epoch: h.epoch}
			if change(i, &tr) {
				batch = append(batch, tr)
			}
		}
		h.commit(batch...)
	}
	each(func(i int, tr *store.Transition) bool {
		*tr = h.start(tr.Key, 2)
		return true
	})
	each(func(i int, tr *store.Transition) bool {
		*tr = h.next(tr.Key, 3, 4)
		tr.Compaction, tr.Suspension = compaction(tr.Key, 1, 4), &store.Suspension{WakeAt: int64(1 + i)}
		return true
	})
	each(func(i int, tr *store.Transition) bool {
		*tr = h.next(tr.Key, 5, 5)
		return i%4 != 0
	})
	each(func(i int, tr *store.Transition) bool { // a compaction in a transition of its own, half of them with another suspension
		tr.Compaction = compaction(tr.Key, 5, 5)
		if i%8 >= 6 {
			tr.Suspension = &store.Suspension{}
		}
		return i%4 >= 2
	})
	each(func(i int, tr *store.Transition) bool {
		*tr = h.next(tr.Key, 6, 8)
		tr.Head = head(tr.Key, "completed", 1000)
		tr.Head.Ended = int64(100 + i)
		tr.Compaction = compaction(tr.Key, 6, 8)
		tr.Compaction.State = nil
		return i%4 >= 2
	})
	var over []store.Key
	for i := 3; i < packRuns; i += 4 {
		over = append(over, packKey(i))
	}
	h.delete("", over...)
}

// holdsPacked fails the test unless the runs are as packed left them.
func (h *harness) holdsPacked() {
	h.Helper()
	awake := 0
	for i := range packRuns {
		k := packKey(i)
		switch i % 4 {
		case 0:
			h.holds(k, 4)
			saved := h.load(k)
			h.equal("suspension", saved.Suspension, &store.Suspension{WakeAt: int64(1 + i)})
			h.equal("state's and chunk's last", []uint64{saved.StateLast, saved.Chunked}, []uint64{4, 4})
		case 1:
			awake++
			h.holds(k, 5)
			saved := h.load(k)
			h.equal("suspension", saved.Suspension, (*store.Suspension)(nil))
			h.equal("state's and chunk's last", []uint64{saved.StateLast, saved.Chunked}, []uint64{4, 4})
		case 2:
			h.holds(k, 8)
			saved := h.load(k)
			h.equal("state's and chunk's last", []uint64{saved.StateLast, saved.Chunked}, []uint64{5, 8})
			h.equal("status", saved.Head.Status, "completed")
			for after := range uint64(8) {
				h.readAll(k, after, 1)
			}
		case 3:
			_, err := h.s.Load(ctx, k)
			h.wantCode(err, fault.RunNotFound)
		}
	}
	_, events, oldest := h.s.Uncompacted()
	h.equal("uncompacted", []any{events, len(oldest)}, []any{int64(awake), awake})
	found := 0
	h.must(h.s.Recover(ctx, func(s *store.Saved) error {
		found++
		h.equal("recovered "+s.Head.Run, s, h.load(s.Head.Key))
		return s.Err
	}))
	h.equal("recovered", found, awake)
	wakes, err := h.s.Due(ctx, 1<<60, 1000)
	h.must(err)
	h.equal("due", len(wakes), packRuns/4)
}

func packs(h *harness) {
	h.packed()
	h.holdsPacked()
}

func packsSurvive(h *harness, d Disk) {
	h.packed()
	h.s = d.Crash(h.T, h.s)
	h.own()
	h.holdsPacked()
	h.must(h.s.Close())
	h.s = d.Reopen(h.T, h.s)
	h.own()
	h.holdsPacked()
	// Later packs do not disturb earlier ones.
	for i := 1; i < packRuns; i += 4 {
		h.commit(store.Transition{Key: packKey(i), Epoch: h.epoch, Compaction: compaction(packKey(i), 5, 5), Suspension: &store.Suspension{}})
	}
	for i := range packRuns {
		switch i % 4 {
		case 0:
			h.holds(packKey(i), 4)
		case 1:
			h.holds(packKey(i), 5)
			h.equal("state's last", h.load(packKey(i)).StateLast, uint64(5))
		}
	}
}
