// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
)

// A Disk opens a kind of store whose content outlives the opened Store.
type Disk struct {
	// Open opens the disk's store for the first time.
	Open func(t *testing.T) store.Store
	// Reopen opens it again after s was closed.
	Reopen func(t *testing.T, s store.Store) store.Store
	// Crash opens the store again as if the process of s had died.
	Crash func(t *testing.T, s store.Store) store.Store
	// Damage damages stored events of the run that no chunk covers, and returns the
	// store to go on with. It may close s and open it again; otherwise the open store
	// must notice the damage.
	Damage func(t *testing.T, s store.Store, key store.Key) store.Store
}

// RunCrash checks what a store has when it is opened again.
func RunCrash(t *testing.T, disk func(t *testing.T) Disk) {
	for _, c := range []struct {
		name string
		run  func(*harness, Disk)
	}{
		{"ReopenedStoreHasEverything", reopened},
		{"AcknowledgedCommitsSurviveACrash", survives},
		{"RefusedStartsMoveNoCredits", refusedStarts},
		{"F35_EpochsGrowOverRestarts", epochs},
		{"F20_DamageCostsOneRun", damaged},
		{"DeletedRunsStayDeleted", staysDeleted},
		{"NamesOfFilesSurvive", namesSurvive},
		{"ManyRunsCompactedTogetherSurvive", packsSurvive},
		{"FeedsSurvive", feedSurvives},
		{"GroupsSurvive", groupsSurvive},
		{"TreesSurvive", treesSurvive},
		{"RecordsSurvive", recordsSurvive},
		{"X98_MarksSurvive", marksSurvive},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := disk(t)
			c.run(newHarness(t, d.Open(t)), d)
		})
	}
}

// populate makes a run in every state.
func (h *harness) populate() {
	h.Helper()
	a := ledger.NewAccount()
	h.commit(h.entriesOnly("acme", h.grant(a, 1, "gift", 9)))
	reserve, err := a.Reserve(2, "live/1/reserve", "live/1", "live", 4, 0)
	h.must(err)
	start := h.start(key("live"), 3)
	start.Entries = []*ledger.Entry{reserve}
	start.Plans = []store.EncodedPlan{{Key: "p", Data: []byte("plan")}}
	start.Idempotency = &store.Idempotency{Key: "k", BodyHash: "b"}
	h.commit(start, h.start(key("compacted"), 2))
	tr := h.next(key("compacted"), 3, 5)
	tr.Compaction = compaction(key("compacted"), 1, 5)
	h.commit(tr, h.next(key("live"), 4, 4))
	h.commit(h.next(key("compacted"), 6, 6))
	tr = h.start(key("suspended"), 2)
	tr.Compaction, tr.Suspension = compaction(key("suspended"), 1, 2), &store.Suspension{WakeAt: 42}
	over := h.start(key("ended"), 2)
	over.Head.Ended, over.Head.Status = 9, "completed"
	h.commit(tr, over)
	h.must(h.s.SetNote(ctx, h.epoch, "n", []byte("v")))
}

// populated fails the test unless all of these runs are there.
func (h *harness) populated() {
	h.Helper()
	h.holds(key("live"), 4)
	h.holds(key("compacted"), 6)
	h.holds(key("suspended"), 2)
	h.holds(key("ended"), 2)
	h.equal("chunked", h.load(key("compacted")).Chunked, uint64(5))
	h.equal("head", h.load(key("live")).Head, *head(key("live"), "running", 1000))
	wakes, err := h.s.Due(ctx, 42, 10)
	h.must(err)
	h.equal("due", wakes, []store.Wake{{Key: key("suspended"), At: 42}})
	p, err := h.s.Plan(ctx, "p")
	h.must(err)
	h.equal("plan", string(p), "plan")
	n, err := h.s.Note(ctx, "n")
	h.must(err)
	h.equal("note", string(n), "v")
	_, events, oldest := h.s.Uncompacted()
	h.equal("uncompacted", []any{events, len(oldest)}, []any{int64(7), 3})
	found := map[string]bool{}
	h.must(h.s.Recover(ctx, func(s *store.Saved) error {
		h.must(s.Err)
		h.equal("recovered "+s.Head.Run, s, h.load(s.Head.Key))
		found[s.Head.Run] = true
		return nil
	}))
	h.equal("recovered", found, map[string]bool{"live": true, "compacted": true})
	h.equal("credits", h.account("acme", now).Balance(3), ledger.Balance{Granted: 9, Available: 5, Held: 4})
	again := ledger.NewAccount()
	h.refused(fault.Conflict, h.entriesOnly("acme", h.grant(again, 3, "gift", 9))) // guards know its key
	twin := h.start(key("twin"), 1)
	twin.Idempotency = &store.Idempotency{Key: "k", BodyHash: "b"}
	h.equal("run of the key", h.refused(fault.Conflict, twin).Run, "live")
	for _, k := range []string{"live", "compacted", "suspended", "ended"} { // guards know them
		h.refused(fault.Conflict, h.start(key(k), 1))
		h.refused(fault.Conflict, h.next(key(k), 9, 9))
	}
}

func (h *harness) reopen(s store.Store) {
	h.Helper()
	h.s = s
	h.own()
}

func reopened(h *harness, d Disk) {
	h.populate()
	h.populated()
	for range 2 {
		h.must(h.s.Close())
		h.reopen(d.Reopen(h.T, h.s))
		h.populated()
	}
	h.commit(h.next(key("live"), 5, 5), h.next(key("compacted"), 7, 7), h.next(key("suspended"), 3, 3), h.next(key("ended"), 3, 3))
	h.must(h.s.Close())
	h.reopen(d.Reopen(h.T, h.s))
	for k, last := range map[string]uint64{"live": 5, "compacted": 7, "suspended": 3, "ended": 3} {
		h.holds(key(k), last)
	}
}

func survives(h *harness, d Disk) {
	h.populate()
	h.reopen(d.Crash(h.T, h.s))
	h.populated()
	for n := uint64(5); n < 40; n++ {
		tr := h.next(key("live"), n, n)
		if n%10 == 0 {
			saved := h.load(key("live"))
			tr.Compaction = compaction(key("live"), saved.Chunked+1, n)
		}
		h.commit(tr)
		if n%4 == 0 {
			h.reopen(d.Crash(h.T, h.s))
		}
		h.holds(key("live"), n)
	}
}

// A start of a run that is stored, and in memory nowhere, is refused with its entries.
func refusedStarts(h *harness, d Disk) {
	h.populate()
	h.must(h.s.Close())
	h.reopen(d.Reopen(h.T, h.s))
	a := h.account("acme", now)
	again := h.start(key("suspended"), 2)
	again.Entries = []*ledger.Entry{h.grant(a.Clone(), 5, "never", 100)}
	h.refused(fault.Conflict, again)
	h.commit(h.entriesOnly("acme", h.grant(a, 5, "more", 1)))
	h.equal("credits", h.account("acme", now).Balance(6), ledger.Balance{Granted: 10, Available: 6, Held: 4})
}

func epochs(h *harness, d Disk) {
	h.commit(h.start(key("a"), 1))
	old := h.next(key("a"), 2, 2)
	h.reopen(d.Crash(h.T, h.s)) // own() checks that the epoch grows
	h.refused(fault.StaleEpoch, old)
	h.must(h.s.Close())
	h.reopen(d.Reopen(h.T, h.s))
	h.refused(fault.StaleEpoch, old)
	// Until there is a new owner, the last one stays the owner.
	h.must(h.s.Close())
	h.s = d.Reopen(h.T, h.s)
	h.commit(h.next(key("a"), 2, 2))
}

func damaged(h *harness, d Disk) {
	var batch []store.Transition
	for r := range 5 {
		batch = append(batch, h.start(key(fmt.Sprint("r", r)), 3))
	}
	h.commit(batch...)
	hurt := key("r2")
	h.s = d.Damage(h.T, h.s, hurt)
	h.own()
	_, err := h.s.Load(ctx, hurt)
	h.wantCode(err, fault.StoreCorrupt)
	_, err = h.s.Events(ctx, hurt, 0, 1000)
	h.wantCode(err, fault.StoreCorrupt)
	seen := map[string]bool{}
	h.must(h.s.Recover(ctx, func(s *store.Saved) error {
		seen[s.Head.Run] = s.Err == nil
		if s.Err != nil {
			h.wantCode(s.Err, fault.StoreCorrupt)
		}
		return nil
	}))
	h.equal("recovered whole", seen, map[string]bool{"r0": true, "r1": true, "r2": false, "r3": true, "r4": true})
	h.refused(fault.StoreCorrupt, h.next(hurt, 4, 4))
	h.refused(fault.StoreCorrupt, store.Transition{Key: hurt, Epoch: h.epoch, Compaction: compaction(hurt, 1, 3)})
	// It can be quarantined, and the others go on.
	apart := head(hurt, "running", 1)
	apart.Quarantine = "damaged"
	h.commit(store.Transition{Key: hurt, Epoch: h.epoch, Head: apart}, h.next(key("r1"), 4, 4))
	got, err := h.s.Head(ctx, hurt)
	h.must(err)
	h.equal("quarantine", got.Quarantine, "damaged")
	for _, r := range []string{"r0", "r3", "r4"} {
		h.holds(key(r), 3)
	}
	h.holds(key("r1"), 4)
}
