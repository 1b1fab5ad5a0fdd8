// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"

	"github.com/roux-engine/roux/internal/store"
)

// unended: runs that have not ended are counted by account, whatever else is true of
// them (X206).
func unended(h *harness) {
	at := func(run, status string, change func(*store.Transition)) {
		k := key(run)
		tr := h.start(k, 1)
		tr.Head.Status = status
		if change != nil {
			change(&tr)
		}
		h.commit(tr)
	}
	suspended := func(tr *store.Transition) {
		tr.Compaction, tr.Suspension = compaction(tr.Key, 1, 1), &store.Suspension{WakeAt: 9}
	}
	at("running", "running", nil)
	at("suspended", "running", suspended)
	at("quarantined", "running", func(tr *store.Transition) { tr.Head.Quarantine = "it panicked" })
	at("queued", store.StatusQueued, nil)
	at("queued, suspended", store.StatusQueued, suspended)
	at("ended", "completed", func(tr *store.Transition) { tr.Head.Ended = 5 })
	at("ended, owes", "completed", func(tr *store.Transition) { tr.Head.Ended, tr.Head.Owes = 5, true })
	at("imported", "running", func(tr *store.Transition) { tr.Head.Quarantine = store.ImportedReason + " in part" })
	at("imported, queued", store.StatusQueued, func(tr *store.Transition) { tr.Head.Quarantine = store.ImportedReason })
	other := store.Key{Account: "rival", Run: "queued"}
	h.commit(h.start(other, 1))
	for account, want := range map[string]store.Unended{"acme": {Live: 3, Queued: 2}, "rival": {Live: 1}, "nobody": {}, "": {}} {
		got, err := h.s.Unended(ctx, account)
		h.must(err)
		h.equal("runs of "+account, got, want)
	}
	admitted := h.next(key("queued, suspended"), 2, 2)
	admitted.Head = head(admitted.Key, "dispatching", 2000)
	end := h.next(key("suspended"), 2, 2)
	end.Head = head(end.Key, "failed", 2000)
	end.Head.Ended = 2000
	h.commit(admitted, end)
	got, err := h.s.Unended(ctx, "acme")
	h.must(err)
	h.equal("runs after an end", got, store.Unended{Live: 3, Queued: 1})
}

// queued: queued runs are listed by account and in the order in which they were queued
// (X206).
func queued(h *harness) {
	for i, at := range []int64{30, 10, 20, 10} {
		for _, account := range []string{"acme", "rival"} {
			tr := h.start(store.Key{Account: account, Run: fmt.Sprint("q", i)}, 1)
			tr.Head.Status, tr.Head.Updated = store.StatusQueued, at
			if i == 2 {
				tr.Compaction, tr.Suspension = compaction(tr.Key, 1, 1), &store.Suspension{}
			}
			h.commit(tr)
		}
	}
	h.commit(h.start(key("live"), 1))
	list := func(after store.Wake, limit int) (runs string) {
		queued, err := h.s.Queued(ctx, after, limit)
		h.must(err)
		for _, w := range queued {
			runs += fmt.Sprintf("%s/%s@%d ", w.Account, w.Run, w.At)
		}
		return runs
	}
	h.equal("all", list(store.Wake{}, 10), "acme/q1@10 acme/q3@10 acme/q2@20 acme/q0@30 rival/q1@10 rival/q3@10 rival/q2@20 rival/q0@30 ")
	h.equal("the first", list(store.Wake{}, 2), "acme/q1@10 acme/q3@10 ")
	h.equal("the next", list(store.Wake{Key: key("q3"), At: 10}, 3), "acme/q2@20 acme/q0@30 rival/q1@10 ")
	h.equal("none wanted", list(store.Wake{}, 0), "")
	admitted := h.next(key("q1"), 2, 2)
	admitted.Head = head(admitted.Key, "dispatching", 40)
	h.commit(admitted)
	h.equal("after an admission", list(store.Wake{}, 1), "acme/q3@10 ")
}
