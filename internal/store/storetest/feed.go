// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"math"
	"reflect"
	"sync"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
)

// changes reads the changes after a number.
func (h *harness) changes(account string, after uint64, limit int) []store.Change {
	h.Helper()
	changes, err := h.s.Changes(ctx, account, after, limit)
	h.must(err)
	return changes
}

// feedIs fails the test unless the account has exactly these changes, which need no numbers,
// whichever way they are read.
func (h *harness) feedIs(account string, expired uint64, want ...store.Change) {
	h.Helper()
	for i := range want {
		want[i].N = expired + uint64(i) + 1
	}
	for _, page := range []int{1, 2, 3, 100} {
		after := expired
		for i := 0; i < len(want); {
			got := h.changes(account, after, page)
			if n := min(page, len(want)-i); len(got) != n || !reflect.DeepEqual(got, want[i:i+n]) {
				h.Fatalf("%d changes of %s after %d are\n%+v, want\n%+v", page, account, after, got, want[i:i+n])
			}
			i += len(got)
			after = got[len(got)-1].N
		}
		h.equal("changes after the last", len(h.changes(account, after, page)), 0)
	}
	last, gone, err := h.s.Newest(ctx, account)
	h.must(err)
	h.equal("the newest change and the ones that are gone", []uint64{last, gone}, []uint64{expired + uint64(len(want)), expired})
}

// started is the change that harness.start makes.
func started(run string) store.Change {
	return store.Change{At: 1000, Run: run, Recipe: "digest", Status: "running"}
}

// Every head and every entry of an accepted transition is a change, in the order of the
// batch, the head of a transition before its entries. A refused transition makes none.
func changesOfCommits(h *harness) {
	h.feedIs("acme", 0)
	a := h.account("acme", now)
	gift := h.entriesOnly("acme", h.grant(a, 10, "gift", 100))
	start := h.start(key("a"), 3)
	reserve, err := a.Reserve(1500, "a/1/reserve", "a/1", "a", 60, 5000)
	h.must(err)
	start.Entries = []*ledger.Entry{reserve, h.grant(a, 1600, "more", 1)}
	late := h.start(key("b"), 1)
	late.First = 2
	twin := *reserve
	again := h.start(key("c"), 1)
	again.Entries = []*ledger.Entry{&twin}
	stale := h.start(key("d"), 1)
	stale.Epoch--
	verdicts, err := h.s.Commit(ctx, []store.Transition{gift, late, start, again, stale, h.next(key("a"), 4, 4)})
	h.must(err)
	for i, refused := range []bool{false, true, false, true, true, false} {
		if (verdicts[i].Err != nil) != refused {
			h.Fatalf("verdict %d is %v", i, verdicts[i].Err)
		}
	}
	want := []store.Change{
		{At: 10, Entry: 1, Key: "grant/gift", Kind: ledger.Grant},
		started("a"),
		{At: 1500, Entry: 2, Key: "a/1/reserve", Kind: ledger.Reserve},
		{At: 1600, Entry: 3, Key: "grant/more", Kind: ledger.Grant},
	}
	h.feedIs("acme", 0, want...)

	// Times never go back. A head may come without events, and one run several times.
	failed := h.next(key("a"), 5, 6)
	failed.Head = head(key("a"), "failed", 1000)
	failed.Head.Updated, failed.Head.Ended, failed.Head.Code, failed.Head.Quarantine = 1700, 1700, fault.StepTimeout, "it hangs"
	mark := store.Transition{Key: key("a"), Epoch: h.epoch, Head: head(key("a"), "failed", 1000)}
	mark.Head.Updated, mark.Head.Quarantine = 1650, store.ImportedReason+", not verified"
	h.commit(failed, h.start(key("e"), 1), mark)
	want = append(want,
		store.Change{At: 1700, Run: "a", Recipe: "digest", Status: "failed", Ended: 1700, Code: fault.StepTimeout, Quarantined: true},
		store.Change{At: 1700, Run: "e", Recipe: "digest", Status: "running"},
		store.Change{At: 1700, Run: "a", Recipe: "digest", Status: "failed", Quarantined: true, Imported: true})
	h.feedIs("acme", 0, want...)

	// Entries that cross a level of the credits make a change after theirs.
	low := h.start(key("g"), 1)
	more, err := a.ReserveFor(ledger.Count{Key: "ci"}, 1800, "g/1/reserve", "g/1", "g", 30, 5000)
	h.must(err)
	low.Entries = []*ledger.Entry{more}
	low.Watch = &ledger.Watch{Low: []int64{50, 20, 10}, Budgets: ledger.Budgets{Keys: map[string]ledger.Budget{"ci": {Limit: 29, Reset: ledger.Never, Audit: true}}}}
	h.commit(low)
	want = append(want,
		store.Change{At: 1700, Run: "g", Recipe: "digest", Status: "running"},
		store.Change{At: 1800, Entry: 4, Key: "g/1/reserve", Kind: ledger.Reserve},
		store.Change{At: 1800, Notice: ledger.Notice{Source: "account", Limit: 20, Amount: 11}},
		store.Change{At: 1800, Notice: ledger.Notice{Source: "key:ci", Limit: 29, Amount: 30}})
	h.feedIs("acme", 0, want...)

	// Another account has numbers of its own and sees nothing of these.
	h.feedIs("other", 0)
	h.commit(h.start(store.Key{Account: "other", Run: "a"}, 1), h.start(key("f"), 1))
	h.feedIs("other", 0, started("a"))
	h.feedIs("acme", 0, append(want, store.Change{At: 1800, Run: "f", Recipe: "digest", Status: "running"})...)
}

// A commit of many accounts and many changes.
func manyChanges(h *harness) {
	const accounts, runs = 20, 150
	var want [accounts][]store.Change
	for round := range 2 {
		var batch []store.Transition
		for i := range runs {
			for n := range accounts {
				account := fmt.Sprint("account", n)
				run := fmt.Sprintf("run_%d_%d", round, i*i)
				t := h.start(store.Key{Account: account, Run: run}, 1)
				t.Head.Recipe, t.Head.Status = fmt.Sprint("recipe", i), fmt.Sprint("status", i%3)
				t.Head.Updated = int64(i*1000 + round*1_000_000)
				batch = append(batch, t)
				want[n] = append(want[n], store.Change{At: t.Head.Updated, Run: run, Recipe: t.Head.Recipe, Status: t.Head.Status})
			}
		}
		h.commit(batch...)
	}
	for n := range accounts {
		h.feedIs(fmt.Sprint("account", n), 0, want[n]...)
	}
}

// A cursor in the future is refused, and a limit of 0 gives nothing.
func cursorsOfFeeds(h *harness) {
	_, err := h.s.Changes(ctx, "acme", 1, 10)
	h.wantCode(err, fault.InputInvalid)
	h.commit(h.start(key("a"), 1), h.start(key("b"), 1))
	h.equal("changes", len(h.changes("acme", 0, 0)), 0)
	h.equal("changes", len(h.changes("acme", 1, -1)), 0)
	h.equal("changes", len(h.changes("acme", 2, 9)), 0)
	for _, after := range []uint64{3, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		_, err := h.s.Changes(ctx, "acme", after, 10)
		h.wantCode(err, fault.InputInvalid)
		_, err = h.s.Changes(ctx, "other", after, 10)
		h.wantCode(err, fault.InputInvalid)
	}
}

// A deleted run is a change of its account.
func deletedRunsAreChanges(h *harness) {
	a, b := key("a"), store.Key{Account: "rival", Run: "b"}
	h.commit(h.settled(a, 10), h.settled(b, 10), h.start(key("live"), 1))
	ended := store.Change{At: 1000, Run: "a", Recipe: "digest", Status: "completed", Ended: 10}
	verdicts, err := h.s.Delete(ctx, h.epoch, 5000, []store.Key{a, b, key("live"), key("nobody"), a})
	h.must(err)
	for i, refused := range []bool{false, false, true, true, true} {
		if (verdicts[i].Err != nil) != refused {
			h.Fatalf("verdict %d is %v", i, verdicts[i].Err)
		}
	}
	live := started("live")
	h.feedIs("acme", 0, ended, live, store.Change{At: 5000, Run: "a", Deleted: true})
	ended.Run = "b"
	h.feedIs("rival", 0, ended, store.Change{At: 5000, Run: "b", Deleted: true})
	again := h.start(a, 1)
	h.commit(again)
	ended.Run = "a"
	h.feedIs("acme", 0, ended, live, store.Change{At: 5000, Run: "a", Deleted: true},
		store.Change{At: 5000, Run: "a", Recipe: "digest", Status: "running"})
}

// at is a start whose head was written at a time.
func (h *harness) at(account, run string, at int64) store.Transition {
	t := h.start(store.Key{Account: account, Run: run}, 1)
	t.Head.Updated = at
	return t
}

// Old changes are removed, commit by commit, and numbers go on, also when none is left. A
// reader that needs what was removed is told the oldest that is kept.
func forgottenChanges(h *harness) {
	forget := func(before int64, from string, limit int, want string) {
		h.Helper()
		next, err := h.s.ForgetChanges(ctx, h.epoch, before, from, limit)
		h.must(err)
		h.equal("next", next, want)
	}
	change := func(run string, at int64) store.Change {
		return store.Change{At: at, Run: run, Recipe: "digest", Status: "running"}
	}
	forget(1<<50, "", 10, "")
	for i := range 5 {
		h.commit(h.at("acme", fmt.Sprint("r", i), int64(10*i+10)), h.at("rival", fmt.Sprint("r", i), int64(10*i+10)))
	}
	_, err := h.s.ForgetChanges(ctx, h.epoch-1, 1<<50, "", 10)
	h.wantCode(err, fault.StaleEpoch)
	forget(10, "", 10, "")
	h.feedIs("acme", 0, change("r0", 10), change("r1", 20), change("r2", 30), change("r3", 40), change("r4", 50))
	forget(21, "acme", 1, "acme")
	h.feedIs("acme", 1, change("r1", 20), change("r2", 30), change("r3", 40), change("r4", 50))
	forget(31, "b", 10, "") // accounts before b stay as they are
	h.feedIs("acme", 1, change("r1", 20), change("r2", 30), change("r3", 40), change("r4", 50))
	h.feedIs("rival", 3, change("r3", 40), change("r4", 50))
	forget(31, "", 1, "acme")
	forget(31, "", 5, "")
	h.feedIs("acme", 3, change("r3", 40), change("r4", 50))
	for _, after := range []uint64{0, 1, 2} {
		_, err := h.s.Changes(ctx, "acme", after, 10)
		h.wantCode(err, fault.CursorExpired)
		h.equal("the message", fault.Message(err), fmt.Sprintf(`the changes of account "acme" after %d are no longer kept: the oldest kept is 4, so start after 3`, after))
	}
	h.equal("changes", len(h.changes("acme", 3, 10)), 2)

	// The last change goes like any other.
	forget(1<<50, "", 10, "")
	for range 2 {
		h.feedIs("acme", 5)
		h.feedIs("rival", 5)
		_, err = h.s.Changes(ctx, "acme", 4, 10)
		h.wantCode(err, fault.CursorExpired)
		_, err = h.s.Changes(ctx, "acme", 6, 10)
		h.wantCode(err, fault.InputInvalid)
		forget(1<<50, "", 10, "")
	}
	h.commit(h.at("acme", "next", 20))
	h.feedIs("acme", 5, change("next", 50))
	_, err = h.s.Changes(ctx, "acme", 4, 10)
	h.wantCode(err, fault.CursorExpired)
	forget(51, "", 10, "")
	h.commit(h.at("acme", "last", 60))
	h.feedIs("acme", 6, change("last", 60))
	h.feedIs("rival", 5)
}

// Several commits at once and a reader: the numbers are dense and in order.
func changesUnderLoad(h *harness) {
	const writers, runs = 4, 40
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			for i := range runs {
				verdicts, err := h.s.Commit(ctx, []store.Transition{h.start(key(fmt.Sprintf("r%d_%d", w, i)), 1)})
				if err != nil || verdicts[0].Err != nil {
					h.Error(err, verdicts)
					return
				}
			}
		})
	}
	seen := map[string]bool{}
	for after := uint64(0); len(seen) < writers*runs && !h.Failed(); {
		for _, c := range h.changes("acme", after, 7) {
			if after++; c.N != after || seen[c.Run] {
				h.Fatalf("change %d comes as number %d, %+v", c.N, after, c)
			}
			seen[c.Run] = true
		}
	}
	wait.Wait()
}

// The changes survive with their commits, and numbers go on after them.
func feedSurvives(h *harness, d Disk) {
	h.commit(h.at("acme", "a", 10), h.at("acme", "b", 20))
	h.commit(h.at("acme", "c", 30), h.at("rival", "a", 30))
	forgotten := uint64(0)
	for round := range 4 {
		if round%2 == 0 {
			h.reopen(d.Crash(h.T, h.s))
		} else {
			h.must(h.s.Close())
			h.reopen(d.Reopen(h.T, h.s))
		}
		last, expired, err := h.s.Newest(ctx, "acme")
		h.must(err)
		h.equal("the newest change and the ones that are gone", []uint64{last, expired}, []uint64{3 + uint64(round), forgotten})
		h.commit(h.at("acme", fmt.Sprint("more", round), 15))
		got := h.changes("acme", last, 10)
		h.equal("changes", got, []store.Change{{N: 4 + uint64(round), At: 30, Run: fmt.Sprint("more", round), Recipe: "digest", Status: "running"}})
		if round == 1 {
			_, err := h.s.ForgetChanges(ctx, h.epoch, 1<<50, "", 100)
			h.must(err)
			forgotten = 5
		}
	}
	h.equal("of the rival", len(h.changes("rival", 1, 10)), 0)
}
