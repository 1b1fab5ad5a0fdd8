// SPDX-License-Identifier: Apache-2.0

package purse

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
)

// A fakeHost is an engine and a store in which nothing is ever in flight for long.
type fakeHost struct {
	now        int64
	stored     *ledger.Account
	extra      [][]*ledger.Entry
	committing bool
	failing    bool
	missing    map[string]int64 // by what waits; absent = it does not wait any more
	budgets    ledger.Budgets
	resumed    []string
	warned     int
}

func newHost() *fakeHost {
	return &fakeHost{now: 1_000, stored: ledger.NewAccount(), missing: map[string]int64{}}
}

func (h *fakeHost) Now() int64               { return h.now }
func (h *fakeHost) Pays(account string) bool { return account != "local" }
func (h *fakeHost) Committing() bool         { return h.committing }

func (h *fakeHost) Budgets(string) ledger.Budgets { return h.budgets }

func (h *fakeHost) Watch(string) *ledger.Watch { return nil }

func (h *fakeHost) Resume(w string) { h.resumed = append(h.resumed, w) }
func (h *fakeHost) Warn(string, string, error) {
	h.warned++
}

func (h *fakeHost) Missing(w string) (int64, bool) {
	n, ok := h.missing[w]
	return n, !ok
}

func (h *fakeHost) Read(string) (*ledger.Account, error) {
	if h.failing {
		return nil, errors.New("the disk does not answer")
	}
	return h.stored.Clone(), nil
}

func (h *fakeHost) Ahead(_ string, fn func([]*ledger.Entry)) {
	for _, entries := range h.extra {
		fn(entries)
	}
}

func (h *fakeHost) Write(_ string, entries []*ledger.Entry) { h.extra = append(h.extra, entries) }

// commit records a batch: what Write added, then the entries of runs.
func (h *fakeHost) commit(t testing.TB, runs ...[]*ledger.Entry) {
	t.Helper()
	for _, entries := range append(h.extra, runs...) {
		if err := h.stored.ApplyAll(entries); err != nil {
			t.Fatal(err)
		}
	}
	h.extra = nil
}

func reserved(seq uint64, n int64) *journal.Event {
	return &journal.Event{Seq: seq, At: 1, Kind: journal.EvCreditsReserved, N: n}
}

func settled(seq uint64, n int64) *journal.Event {
	return &journal.Event{Seq: seq, At: 1, Kind: journal.EvCreditsSettled, N: n}
}

func grantOf(lot string, n int64) *Change {
	return &Change{Lot: lot, Amount: n, Terms: ledger.Terms{Source: ledger.Paid}}
}

// What runs of a batch need is not available to others, and what they release only to
// those of the next batch.
func TestPromises(t *testing.T) {
	h := newHost()
	ps := New[string](h)
	if err := ps.Change("a", grantOf("g", 10)); err != nil {
		t.Fatal(err)
	}
	var one, two Claim
	ps.Note("a", &one, 1, reserved(2, 6))
	if n := ps.Available("a"); n != 4 {
		t.Errorf("%d are available, want 4", n)
	}
	ps.Note("a", &one, 1, settled(3, 1))
	ps.Note("a", &two, 1, reserved(2, 4))
	if n := ps.Available("a"); n != 0 {
		t.Errorf("%d are available, want 0: what the first run releases is not yet", n)
	}
	ps.Withdraw("a", &two)
	if n := ps.Available("a"); n != 4 || !two.Empty() {
		t.Errorf("%d are available after the second run has left, want 4", n)
	}
	entries := ps.Entries("a", "run", &one, 100)
	var kinds []ledger.Kind
	for _, e := range entries {
		kinds = append(kinds, e.Kind)
	}
	if !slices.Equal(kinds, []ledger.Kind{ledger.Reserve, ledger.Settle, ledger.Release}) || entries[0].HoldUntil != 101 {
		t.Errorf("the entries are %v, held until %d", kinds, entries[0].HoldUntil)
	}
	if n := ps.Available("a"); n != 9 {
		t.Errorf("%d are available in the next batch, want 9", n)
	}
	h.commit(t, entries)
}

// An account that does not pay has no purse.
func TestAccountThatDoesNotPay(t *testing.T) {
	ps := New[string](newHost())
	var c Claim
	ps.Note("local", &c, 1, reserved(2, 6))
	if !c.Empty() || ps.Available("local") != 0 {
		t.Error("a run of it has a claim")
	}
	if err := ps.Change("local", grantOf("g", 1)); fault.CodeOf(err) != fault.InputInvalid {
		t.Errorf("a grant to it: %v", err)
	}
}

// When a lot ends between an event and its batch, the batch carries an entry that the
// store refuses, and says why.
func TestLotEndsBeforeTheBatch(t *testing.T) {
	h := newHost()
	ps := New[string](h)
	ch := grantOf("g", 10)
	ch.Terms.Expires = 2_000
	if err := ps.Change("a", ch); err != nil {
		t.Fatal(err)
	}
	var c Claim
	ps.Note("a", &c, 1, reserved(2, 6))
	h.now = 2_000
	entries := ps.Entries("a", "run", &c, 100)
	h.commit(t)
	if fault.CodeOf(c.Unpaid) != fault.InsufficientCredits || h.stored.Apply(entries[0]) == nil {
		t.Errorf("the reason is %v, and the store takes %+v", c.Unpaid, entries[0])
	}
}

// After a refusal the account is read again, together with what the batch under
// construction adds, but not while a commit is in flight.
func TestForget(t *testing.T) {
	h := newHost()
	ps := New[string](h)
	if err := ps.Change("a", grantOf("g", 10)); err != nil {
		t.Fatal(err)
	}
	h.commit(t)
	var c Claim
	ps.Note("a", &c, 1, reserved(2, 6))
	ps.Entries("a", "run", &c, 100) // the store refuses it
	ps.Forget("a")
	if err := ps.Change("a", grantOf("h", 5)); err != nil {
		t.Fatal(err)
	}
	ps.Forget("a")
	h.committing = true
	if n := ps.Available("a"); n != 0 {
		t.Errorf("%d are available while nobody knows", n)
	}
	h.committing = false
	if n := ps.Available("a"); n != 15 {
		t.Errorf("%d are available, want 15", n)
	}
	h.commit(t)
}

// Those who wait go on in order when the account grows: a smaller need does not overtake
// a larger one, except that what needs nothing any more goes on at once.
func TestServe(t *testing.T) {
	h := newHost()
	ps := New[string](h)
	if err := ps.Change("a", grantOf("g", 1)); err != nil {
		t.Fatal(err)
	}
	var c Claim
	for _, w := range []string{"first", "second", "third", "fourth", "gone"} {
		ps.Wait("a", &c, w)
	}
	h.missing = map[string]int64{"first": 3, "second": 5, "third": 1, "fourth": 0}
	if ps.Serve() {
		t.Error("something goes on before the account has grown")
	}
	if err := ps.Change("a", grantOf("h", 6)); err != nil {
		t.Fatal(err)
	}
	for ps.Serve() {
	}
	if want := []string{"first", "fourth"}; !slices.Equal(h.resumed, want) {
		t.Errorf("%v go on, want %v", h.resumed, want)
	}
	ch := grantOf("later", 5)
	ch.Terms.Effective = 9_000
	if err := ps.Change("a", ch); err != nil {
		t.Fatal(err)
	}
	ps.Available("a")
	if ps.Next() != 9_000 {
		t.Errorf("the next change is at %d", ps.Next())
	}
	h.now, h.resumed = 9_000, nil
	ps.Tick()
	for ps.Serve() {
	}
	if want := []string{"second", "third"}; !slices.Equal(h.resumed, want) {
		t.Errorf("%v go on when the lot takes effect, want %v", h.resumed, want)
	}
}

// An account that cannot be read gives nothing, and is read again later.
func TestUnreadable(t *testing.T) {
	h := newHost()
	ps := New[string](h)
	h.failing = true
	var c Claim
	if n := ps.Available("a"); n != 0 || h.warned == 0 || ps.Next() != h.now+retryAfter {
		t.Errorf("%d are available, next %d", n, ps.Next())
	}
	ps.Wait("a", &c, "w")
	h.missing["w"] = 0
	h.failing, h.now = false, h.now+retryAfter
	ps.Tick()
	ps.Serve()
	if !slices.Equal(h.resumed, []string{"w"}) {
		t.Errorf("%v goes on", h.resumed)
	}
}

// Whatever arrives in whatever order, no promise is broken: the entries of every batch
// fit the account as stored, and what is available is never negative.
func TestRandomBatches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHost()
		ps := New[string](h)
		type run struct {
			id   string
			c    Claim
			held int64
			seq  uint64
		}
		var runs []*run
		lots, started := 0, 0
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			h.now += rapid.Int64Range(0, 50).Draw(rt, "pass")
			ps.Tick()
			switch rapid.IntRange(0, 6).Draw(rt, "what") {
			case 0:
				ch := grantOf(fmt.Sprint("lot", lots), rapid.Int64Range(1, 30).Draw(rt, "n"))
				if rapid.Bool().Draw(rt, "ends") {
					ch.Terms.Expires = h.now + rapid.Int64Range(1, 300).Draw(rt, "expires")
				}
				lots++
				if err := ps.Change("a", ch); err != nil {
					rt.Fatal(err)
				}
			case 1:
				if lots > 0 {
					_ = ps.Change("a", &Change{Void: true, Lot: fmt.Sprint("lot", rapid.IntRange(0, lots-1).Draw(rt, "lot"))})
				}
			case 2, 3:
				free := ps.Available("a")
				if n := rapid.Int64Range(1, 12).Draw(rt, "n"); n <= free {
					started++
					r := &run{id: fmt.Sprint("run", started), held: n, seq: 2}
					runs = append(runs, r)
					ps.Note("a", &r.c, 1, reserved(r.seq, n))
				}
			case 4:
				for _, r := range runs {
					if r.held > 0 {
						r.seq++
						ps.Note("a", &r.c, 1, settled(r.seq, rapid.Int64Range(0, r.held).Draw(rt, "due")))
						r.held = 0
						break
					}
				}
			default:
				var batch [][]*ledger.Entry
				kept := runs[:0]
				for _, r := range runs {
					if r.c.Empty() {
						kept = append(kept, r)
						continue
					}
					entries := ps.Entries("a", r.id, &r.c, 100)
					if r.c.Unpaid != nil {
						if !errors.Is(r.c.Unpaid, fault.InsufficientCredits) {
							rt.Fatal(r.c.Unpaid)
						}
						continue // refused; the run is not there
					}
					batch = append(batch, entries)
					if r.held > 0 {
						kept = append(kept, r)
					}
				}
				runs = kept
				h.commit(t, batch...)
				if ps.byName["a"] != nil && ps.byName["a"].account != nil {
					if a, b := ps.byName["a"].account.Balance(math.MaxInt64), h.stored.Balance(math.MaxInt64); a != b {
						rt.Fatalf("the purse has %+v, stored is %+v", a, b)
					}
				}
			}
		}
	})
}
