// SPDX-License-Identifier: Apache-2.0

package purse

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
)

const day = 24 * 60 * 60 * 1_000_000 // µs

// budgeted returns purses of an account with 1,000 credits.
func budgeted(t testing.TB, b ledger.Budgets) (*fakeHost, *Purses[string]) {
	h := newHost()
	h.now, h.budgets = 100*day+1, b
	ps := New[string](h)
	if err := ps.Change("a", grantOf("g", 1_000)); err != nil {
		t.Fatal(err)
	}
	h.commit(t)
	return h, ps
}

func wantOffer(t testing.TB, ps *Purses[string], key string, n int64, source string) {
	t.Helper()
	if got, by := ps.Offer("a", key); got != n || by.Source() != source {
		t.Errorf("key %q is offered %d (%s), want %d (%s)", key, got, by.Source(), n, source)
	}
}

// The least of balance, day and key is offered; what the batch under construction needs
// is not offered again, and what a run releases is, in the period in which it was held.
func TestX157_Offer(t *testing.T) {
	h, ps := budgeted(t, ledger.Budgets{
		Day:  ledger.Budget{Limit: 100},
		Keys: map[string]ledger.Budget{"ci": {Limit: 40, Reset: ledger.Weekly}, "once": {Limit: 500, Reset: ledger.Never}, "watched": {Limit: 1, Reset: ledger.Daily, Audit: true}},
	})
	wantOffer(t, ps, "", 100, "day")
	wantOffer(t, ps, "ci", 40, "key:ci")
	wantOffer(t, ps, "once", 100, "day")
	wantOffer(t, ps, "watched", 100, "day")
	c := Claim{Key: "ci"}
	ps.Note("a", &c, 1, reserved(2, 30))
	wantOffer(t, ps, "ci", 10, "key:ci")
	wantOffer(t, ps, "", 70, "day")
	h.commit(t, ps.Entries("a", "run", &c, 100))
	wantOffer(t, ps, "ci", 10, "key:ci")
	h.now += day
	wantOffer(t, ps, "ci", 10, "key:ci")
	wantOffer(t, ps, "", 100, "day")
	ps.Note("a", &c, 1, settled(3, 5))
	wantOffer(t, ps, "ci", 10, "key:ci") // what it releases can be used from the next batch on
	h.commit(t, ps.Entries("a", "run", &c, 100))
	wantOffer(t, ps, "ci", 35, "key:ci")
	withdrawn := Claim{Key: "ci"}
	ps.Note("a", &withdrawn, 1, reserved(2, 30))
	ps.Withdraw("a", &withdrawn)
	wantOffer(t, ps, "ci", 35, "key:ci")
	h.now += 7 * day
	wantOffer(t, ps, "ci", 40, "key:ci")
	if _, by := ps.Offer("a", "ci"); by.Until == 0 || by.Limit != 40 {
		t.Errorf("the bound is %+v", by)
	}
}

// A key that may spend nothing more keeps only its own runs waiting, until its period
// ends; then they go on in their order.
func TestX157_WaitForTheReset(t *testing.T) {
	h, ps := budgeted(t, ledger.Budgets{Keys: map[string]ledger.Budget{"ci": {Limit: 10, Reset: ledger.Daily}, "dev": {Limit: 10, Reset: ledger.Daily}}})
	ci, dev := Claim{Key: "ci"}, Claim{Key: "dev"}
	ps.Note("a", &ci, 1, reserved(2, 8))
	h.commit(t, ps.Entries("a", "run", &ci, 100))
	h.missing = map[string]int64{"ci 1": 5, "ci 2": 1, "dev 1": 5}
	ps.Wait("a", &ci, "ci 1")
	ps.Wait("a", &ci, "ci 2")
	ps.Wait("a", &dev, "dev 1")
	serve := func(want ...string) {
		t.Helper()
		h.resumed = nil
		for ps.Serve() {
		}
		if !slices.Equal(h.resumed, want) {
			t.Errorf("%q go on, want %q", h.resumed, want)
		}
	}
	ps.Freed("a", &ci)
	serve("dev 1")
	if want := 101 * int64(day); ps.Next() != want {
		t.Fatalf("the next look is at %d, want %d: the end of the day", ps.Next(), want)
	}
	h.now = ps.Next() - 1
	ps.Tick()
	serve()
	h.now++
	ps.Tick()
	serve("ci 1", "ci 2")
}

// Periods begin at midnight in the time zone of the account, and the entries say in which
// day they count.
func TestX157_TimeZone(t *testing.T) {
	zone := time.FixedZone("east", 3*60*60)
	h, ps := budgeted(t, ledger.Budgets{Zone: zone, Day: ledger.Budget{Limit: 10}})
	h.now = 100*day + 22*(day/24) // 1 o'clock of the next day there
	var c Claim
	ps.Note("a", &c, 1, reserved(2, 8))
	entries := ps.Entries("a", "run", &c, 100)
	h.commit(t, entries)
	if want := int64(100*day + 21*(day/24)); entries[0].Day != want {
		t.Errorf("it counts in the day from %d, want %d", entries[0].Day, want)
	}
	h.now = 101*day + 20*(day/24)
	wantOffer(t, ps, "", 2, "day")
	h.now = 101*day + 21*(day/24)
	wantOffer(t, ps, "", 10, "day")
}

// Whatever runs do, the budgets that refuse are never exceeded by the entries of a batch,
// and purses that begin anew offer the same.
func TestX157_RandomBudgets(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := func(label string, reset ledger.Reset) ledger.Budget {
			return ledger.Budget{Limit: rapid.Int64Range(1, 40).Draw(rt, label), Reset: reset}
		}
		b := ledger.Budgets{Day: limit("day", ledger.Daily), Keys: map[string]ledger.Budget{
			"d": limit("d", ledger.Daily), "w": limit("w", ledger.Weekly), "m": limit("m", ledger.Monthly), "n": limit("n", ledger.Never)}}
		h, ps := budgeted(t, b)
		type run struct {
			id   string
			c    Claim
			held int64
			seq  uint64
		}
		var runs []*run
		check := func() {
			for key, budget := range b.Keys {
				first, _ := budget.Reset.Period(h.now, time.UTC)
				if used := h.stored.Used(key, first); used > budget.Limit {
					rt.Fatalf("key %s has used %d of %d", key, used, budget.Limit)
				}
			}
			if used := h.stored.Used("", ledger.Day(h.now, time.UTC)); used > b.Day.Limit {
				rt.Fatalf("the account has used %d of %d today", used, b.Day.Limit)
			}
		}
		for k := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			h.now += rapid.SampledFrom([]int64{0, 0, 1, day / 5, 9 * day}).Draw(rt, "pass")
			key := rapid.SampledFrom([]string{"", "d", "w", "m", "n"}).Draw(rt, "key")
			n := rapid.Int64Range(1, 15).Draw(rt, "n")
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0, 1:
				if free, _ := ps.Offer("a", key); n <= free {
					r := &run{id: fmt.Sprint("run", k), c: Claim{Key: key}, held: n, seq: 2}
					runs = append(runs, r)
					ps.Note("a", &r.c, 1, reserved(2, n))
				}
			case 2:
				if len(runs) > 0 {
					r := runs[rapid.IntRange(0, len(runs)-1).Draw(rt, "run")]
					if free, _ := ps.Offer("a", r.c.Key); r.held > 0 && n <= free {
						r.held, r.seq = r.held+n, r.seq+1
						ps.Note("a", &r.c, 1, &journal.Event{Seq: r.seq, At: 1, Kind: journal.EvCreditsExtended, N: n})
					}
				}
			case 3:
				if len(runs) > 0 {
					if r := runs[0]; r.held > 0 {
						r.seq++
						ps.Note("a", &r.c, 1, settled(r.seq, rapid.Int64Range(0, r.held).Draw(rt, "due")))
						r.held = 0
					}
				}
			default:
				var batch [][]*ledger.Entry
				kept := runs[:0]
				for _, r := range runs {
					if !r.c.Empty() {
						batch = append(batch, ps.Entries("a", r.id, &r.c, 100))
						if r.c.Unpaid != nil {
							rt.Fatal(r.c.Unpaid)
						}
					}
					if r.held > 0 {
						kept = append(kept, r)
					}
				}
				runs = kept
				h.commit(t, batch...)
				check()
				again := New[string](h)
				for _, key := range []string{"", "d", "w", "m", "n"} {
					n, by := ps.Offer("a", key)
					if m, bound := again.Offer("a", key); m != n || bound != by {
						rt.Fatalf("key %q is offered %d (%+v), after a restart %d (%+v)", key, n, by, m, bound)
					}
					if m, bound := b.Offer(h.stored, key, h.now); m != n || bound != by {
						rt.Fatalf("key %q is offered %d (%+v), by the ledger alone %d (%+v)", key, n, by, m, bound)
					}
				}
			}
		}
	})
}
