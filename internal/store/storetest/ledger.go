// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
)

const now = math.MaxInt64

// account reads an account as of a time.
func (h *harness) account(name string, at int64) *ledger.Account {
	h.Helper()
	a, err := h.s.Account(ctx, name, at)
	h.must(err)
	return a
}

// entriesOnly is a transition of an account without a run.
func (h *harness) entriesOnly(account string, entries ...*ledger.Entry) store.Transition {
	return store.Transition{Key: store.Key{Account: account}, Epoch: h.epoch, Entries: entries}
}

func (h *harness) grant(a *ledger.Account, at int64, key string, n int64) *ledger.Entry {
	h.Helper()
	e, err := a.Grant(at, key, n, ledger.Terms{Source: ledger.Paid})
	h.must(err)
	return e
}

// A grant, a reservation with the start of a run and a settlement with its end. Another
// account sees nothing of them.
func entries(h *harness) {
	a := h.account("acme", now)
	h.equal("an account without entries", a.Balance(1), ledger.Balance{})
	h.commit(h.entriesOnly("acme", h.grant(a, 10, "welcome", 100)))

	reserve, err := a.Reserve(20, "a/1/reserve", "a/1", "a", 60, 500)
	h.must(err)
	start := h.start(key("a"), 3)
	start.Entries = []*ledger.Entry{reserve}
	h.commit(start)
	h.equal("balance while it runs", h.account("acme", now).Balance(30), ledger.Balance{Granted: 100, Available: 40, Held: 60})

	settled, err := a.Settle(40, "a/1/settle", "a/1", 25)
	h.must(err)
	end := h.next(key("a"), 4, 4)
	end.Entries = settled
	h.commit(end)
	got := h.account("acme", now)
	h.equal("balance at the end", got.Balance(50), ledger.Balance{Granted: 100, Available: 75, Spent: 25})
	h.equal("entries", got.Seq(), uint64(4))
	h.holds(key("a"), 4)

	all, err := h.s.Entries(ctx, "acme", 0, 10)
	h.must(err)
	h.equal("number of entries", len(all), 4)
	h.equal("the reservation", all[1], reserve)
	rest, err := h.s.Entries(ctx, "acme", 2, 1)
	h.must(err)
	h.equal("the entry after 2", rest, all[2:3])
	none, err := h.s.Entries(ctx, "acme", 4, 10)
	h.must(err)
	h.equal("entries after the last", len(none), 0)
	e, n, err := h.s.Entry(ctx, "acme", "a/1/settle")
	h.must(err)
	if n != 3 || !reflect.DeepEqual(e, all[2]) {
		h.Fatalf("entry a/1/settle is %d, %+v", n, e)
	}
	e, n, err = h.s.Entry(ctx, "acme", "a/2/settle")
	h.must(err)
	if e != nil || n != 0 {
		h.Fatalf("an entry that is not there is %d, %+v", n, e)
	}

	other := h.account("other", now)
	foreign, err := h.s.Entries(ctx, "other", 0, 10)
	h.must(err)
	e, _, err = h.s.Entry(ctx, "other", "grant/welcome")
	h.must(err)
	if other.Seq() != 0 || len(foreign) > 0 || e != nil {
		h.Fatalf("another account sees %+v", foreign)
	}
	// What a reader has returned is the caller's.
	h.grant(got, 60, "private", 1)
	h.equal("entries after a change by a reader", h.account("acme", now).Seq(), uint64(4))
}

// Events and entries are written together or not at all, whichever of them is refused.
func entriesTogether(h *harness) {
	a := h.account("acme", now)
	h.commit(h.entriesOnly("acme", h.grant(a, 10, "welcome", 10)))
	before := a.AppendState(nil)
	same := func(why string) {
		h.Helper()
		if got := h.account("acme", now).AppendState(nil); !bytes.Equal(got, before) {
			h.Fatalf("%s changed the account", why)
		}
	}
	// The second entry takes more than there is.
	start := h.start(key("a"), 2)
	for i := range 2 {
		start.Entries = append(start.Entries, &ledger.Entry{
			Key: fmt.Sprint("reserve", i), Kind: ledger.Reserve, At: 20, Hold: fmt.Sprint("hold", i), Run: "a",
			Parts: []ledger.Part{{Lot: "welcome", Amount: 6}},
		})
	}
	start.Idempotency = &store.Idempotency{Key: "k", BodyHash: "b", Until: 1 << 50}
	start.Plans = []store.EncodedPlan{{Key: "plan", Data: []byte("plan")}}
	h.refused(fault.Conflict, start)
	same("a refused entry")
	_, err := h.s.Head(ctx, key("a"))
	h.wantCode(err, fault.RunNotFound)
	_, err = h.s.Plan(ctx, "plan")
	h.wantCode(err, fault.RecipeNotFound)

	// With one of them the start is written; the key is unused.
	start.Entries = start.Entries[:1]
	h.commit(start)
	before = h.account("acme", now).AppendState(nil)

	// The events are refused: out of order, again, under an old epoch, with a used key.
	settle := &ledger.Entry{Key: "settle", Kind: ledger.Settle, At: 30, Hold: "hold0", Run: "a", Parts: []ledger.Part{{Lot: "welcome", Amount: 6}}}
	for _, t := range []store.Transition{h.next(key("a"), 4, 4), h.next(key("a"), 2, 2), h.start(key("a"), 2), h.next(key("b"), 2, 2)} {
		t.Entries = []*ledger.Entry{settle}
		h.refused(fault.Conflict, t)
	}
	old := h.next(key("a"), 3, 3)
	old.Epoch, old.Entries = h.epoch-1, []*ledger.Entry{settle}
	h.refused(fault.StaleEpoch, old)
	grant := h.entriesOnly("acme", h.grant(a, 40, "late", 1))
	grant.Epoch--
	h.refused(fault.StaleEpoch, grant)
	twin := h.start(key("c"), 1)
	twin.Idempotency = start.Idempotency
	twin.Entries = []*ledger.Entry{{Key: "twin", Kind: ledger.Reserve, At: 30, Hold: "twin", Run: "c", Parts: []ledger.Part{{Lot: "welcome", Amount: 1}}}}
	h.refused(fault.Conflict, twin)
	same("refused events")

	// What a run reserves or pays belongs to its own events.
	for _, t := range []store.Transition{
		h.entriesOnly("acme", settle),
		{Key: key("a"), Epoch: h.epoch, Head: head(key("a"), "failed", 1), Entries: []*ledger.Entry{settle}},
		h.start(key("d"), 1),
	} {
		t.Entries = []*ledger.Entry{settle}
		h.refused(fault.Conflict, t)
	}
	same("entries of another run")
	// A refusal in the middle of a batch leaves the others alone.
	end := h.next(key("a"), 3, 3)
	end.Entries = []*ledger.Entry{settle}
	wrong := h.start(key("e"), 1)
	wrong.Entries = []*ledger.Entry{{Key: "e", Kind: ledger.Reserve, At: 35, Hold: "e", Run: "e", Parts: []ledger.Part{{Lot: "welcome", Amount: 5}}}}
	verdicts, err := h.s.Commit(ctx, []store.Transition{end, wrong, h.start(key("f"), 1)})
	h.must(err)
	if verdicts[0].Err != nil || verdicts[1].Err == nil || verdicts[2].Err != nil {
		h.Fatalf("verdicts = %+v, want the second alone refused", verdicts)
	}
	h.equal("balance", h.account("acme", now).Balance(40), ledger.Balance{Granted: 10, Available: 4, Spent: 6})
	h.holds(key("a"), 3)
	h.holds(key("f"), 1)
	_, err = h.s.Head(ctx, key("e"))
	h.wantCode(err, fault.RunNotFound)
}

// A key that an account has used changes nothing again: in a later commit, in the same
// batch, in the same transition. Another account may use it.
func entryKeys(h *harness) {
	a, b := h.account("acme", now), h.account("other", now)
	first := h.grant(a, 10, "gift", 5)
	h.commit(h.entriesOnly("acme", first))
	again := *first
	again.Parts = []ledger.Part{{Lot: "another", Amount: 5}}
	h.refused(fault.Conflict, h.entriesOnly("acme", &again))
	second := h.grant(a, 20, "second", 5)
	same := *second
	same.Parts = []ledger.Part{{Lot: "third", Amount: 5}}
	h.refused(fault.Conflict, h.entriesOnly("acme", second, &same))
	verdicts, err := h.s.Commit(ctx, []store.Transition{h.entriesOnly("acme", second), h.entriesOnly("acme", &same), h.entriesOnly("other", h.grant(b, 20, "gift", 7))})
	h.must(err)
	h.must(verdicts[0].Err)
	h.wantCode(verdicts[1].Err, fault.Conflict)
	h.must(verdicts[2].Err)
	h.equal("acme", h.account("acme", now).Balance(30), ledger.Balance{Granted: 10, Available: 10})
	h.equal("other", h.account("other", now).Balance(30), ledger.Balance{Granted: 7, Available: 7})
}

// A transition without a run has entries and nothing else.
func withoutRun(h *harness) {
	a := h.account("acme", now)
	e := h.grant(a, 10, "gift", 5)
	for _, change := range []func(t *store.Transition){
		func(t *store.Transition) { t.Entries = nil },
		func(t *store.Transition) { t.First, t.Last, t.Frames = 1, 1, []byte("1") },
		func(t *store.Transition) { t.Head = head(key(""), "running", 1) },
		func(t *store.Transition) { t.Plans = []store.EncodedPlan{{Key: "plan", Data: []byte("plan")}} },
		func(t *store.Transition) { t.Files = []string{"sha256_f"} },
		func(t *store.Transition) { t.Idempotency = &store.Idempotency{Key: "k", BodyHash: "b"} },
		func(t *store.Transition) { t.Compaction = compaction(key(""), 1, 1) },
		func(t *store.Transition) { t.Suspension = &store.Suspension{} },
	} {
		t := h.entriesOnly("acme", e)
		change(&t)
		h.refused(fault.Conflict, t)
	}
	h.equal("entries", h.account("acme", now).Seq(), uint64(0))
	h.commit(h.entriesOnly("acme", e))
	heads, err := h.s.List(ctx, store.Query{Account: "acme"})
	h.must(err)
	h.equal("runs", len(heads), 0)
	h.must(h.s.Recover(ctx, func(saved *store.Saved) error {
		h.Errorf("run %q is recovered", saved.Head.Run)
		return nil
	}))
}

// Over a history longer than any that a store reads at once, the account as of each
// time is the fold of what had been recorded then.
func accountsAsOf(h *harness) {
	const turns = 700
	dice := rand.New(rand.NewPCG(11, 12))
	a := h.account("acme", now)
	views := map[int64][]byte{0: a.AppendState(nil)}
	h.commit(h.start(key("a"), 1))
	last, at := uint64(1), int64(10)
	for i := range turns {
		at += int64(dice.IntN(3)) // several entries may have the same time
		t := h.next(key("a"), last+1, last+1)
		last++
		id := fmt.Sprint(i)
		switch {
		case i%10 == 0:
			e, err := a.Grant(at, id, 50+int64(dice.IntN(50)), ledger.Terms{Source: ledger.Promotional, Expires: at + 1 + int64(dice.IntN(100))})
			h.must(err)
			t.Entries = append(t.Entries, e)
		case i%97 == 0:
			es, err := a.Expire(at)
			h.must(err)
			t.Entries = append(t.Entries, es...)
		default:
			e, err := a.Reserve(at, id, id, "a", 1+int64(dice.IntN(9)), 0)
			if err != nil {
				break
			}
			t.Entries = append(t.Entries, e)
			if i%3 == 0 {
				es, err := a.Settle(at, id+"/settle", id, e.Amount()/2)
				h.must(err)
				t.Entries = append(t.Entries, es...)
			}
		}
		h.commit(t)
		views[a.At()] = a.AppendState(nil) // the last at that time
	}
	if a.Seq() < turns {
		h.Fatalf("only %d entries", a.Seq())
	}
	for at, want := range views {
		if got := h.account("acme", at).AppendState(nil); !bytes.Equal(got, want) {
			h.Fatalf("the account as of %d is another one", at)
		}
	}
	if got := h.account("acme", now).AppendState(nil); !bytes.Equal(got, a.AppendState(nil)) {
		h.Fatal("the account now is another one")
	}
	fold := ledger.NewAccount()
	for {
		page, err := h.s.Entries(ctx, "acme", fold.Seq(), 100)
		h.must(err)
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			h.must(fold.Apply(e))
		}
	}
	if !bytes.Equal(fold.AppendState(nil), a.AppendState(nil)) {
		h.Fatal("the fold of all entries is another account")
	}
}
