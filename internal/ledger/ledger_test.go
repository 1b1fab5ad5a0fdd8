// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
)

const hour = int64(3_600_000_000)

// The worked example of the design, section 12.
func TestWorkedExample(t *testing.T) {
	opened := func() *Account {
		a := NewAccount()
		grant(t, a, 0, "P", 50, Terms{Source: Promotional, Expires: hour})
		grant(t, a, 0, "Q", 100, Terms{Source: Paid})
		if _, err := a.Reserve(1, "r", "hold", "run", 120, 48*hour); err != nil {
			t.Fatal(err)
		}
		if h, _ := a.Hold("hold"); fmt.Sprint(h.Parts) != "[{P 50} {Q 70}]" {
			t.Fatalf("the hold is %v", h.Parts)
		}
		if es, err := a.Expire(hour); err != nil || len(es) != 0 {
			t.Fatalf("%d entries expire while all is held, %v", len(es), err)
		}
		return a
	}
	for _, tt := range []struct {
		used                      Amount
		policy                    Policy
		failed                    bool
		spentP, spentQ            int64
		spent, available, expired int64
	}{
		{61_300_000, RefundUnused, false, 50, 12, 62, 88, 0},
		{61_300_000, RefundUnused, true, 50, 12, 62, 88, 0},
		{30_200_000, RefundUnused, false, 31, 0, 31, 100, 19},
		{61_300_000, RefundAll, true, 0, 0, 0, 100, 50},
		{61_300_000, NoRefund, true, 50, 46, 96, 54, 0},
	} {
		a := opened()
		due := tt.policy.Due(tt.failed, tt.used, 96, 120)
		if _, err := a.Settle(2*hour, "s", "hold", due); err != nil {
			t.Fatal(err)
		}
		p, _ := a.Lot("P")
		q, _ := a.Lot("Q")
		b := a.Balance(2 * hour)
		if p.Spent != tt.spentP || q.Spent != tt.spentQ || b.Spent != tt.spent || b.Available != tt.available || b.Expired != tt.expired || b.Held != 0 {
			t.Errorf("%+v: P %+v, Q %+v, balance %+v", tt, p, q, b)
		}
	}
	// A retry after the cancel, with 40 to run.
	a := opened()
	if _, err := a.Settle(2*hour, "s", "hold", 62); err != nil {
		t.Fatal(err)
	}
	next := NextReservation(62, 61_300_000, 40, 1000)
	if _, err := a.Reserve(3*hour, "r2", "again", "run", next, 0); err != nil || next != 50 {
		t.Fatalf("the retry holds %d, want 50: %v", next, err)
	}
	settles := Settlement(RefundUnused.Due(false, 81_700_000, 0, 0), 62)
	if _, err := a.Settle(4*hour, "s2", "again", settles); err != nil || settles != 20 {
		t.Fatalf("the retry settles %d, want 20: %v", settles, err)
	}
	if b := a.Balance(4 * hour); b.Spent != 82 || b.Available != 68 {
		t.Errorf("after the retry %+v", b)
	}
	// A retry after a failure under refund_all: 100 are available.
	a = opened()
	if _, err := a.Settle(2*hour, "s", "hold", RefundAll.Due(true, 61_300_000, 96, 120)); err != nil {
		t.Fatal(err)
	}
	next = NextReservation(0, 61_300_000, 40, 1000)
	if _, err := a.Reserve(3*hour, "r2", "again", "run", next, 0); next != 112 || !errors.Is(err, fault.InsufficientCredits) {
		t.Errorf("the retry wants %d, want 112 and too little: %v", next, err)
	}
	if Settlement(61, 62) != 0 {
		t.Error("a settlement is paid back")
	}
}

func grant(t testing.TB, a *Account, now int64, key string, n int64, terms Terms) {
	t.Helper()
	if _, err := a.Grant(now, key, n, terms); err != nil {
		t.Fatal(err)
	}
}

// Every policy with every verdict, and what is reserved.
func TestPolicies(t *testing.T) {
	for _, tt := range []struct {
		policy              Policy
		failed              bool
		used                Amount
		estimated, reserved int64
		want                int64
	}{
		{RefundUnused, false, 61_300_001, 120, 150, 62},
		{RefundUnused, true, 61_000_000, 120, 150, 61},
		{RefundUnused, true, 0, 120, 150, 0},
		{RefundAll, false, 61_300_000, 120, 150, 62},
		{RefundAll, true, 61_300_000, 120, 150, 0},
		{NoRefund, false, 61_300_000, 120, 150, 62},
		{NoRefund, true, 61_300_000, 120, 150, 120},
		{NoRefund, true, 130_000_000, 120, 150, 130},
		{NoRefund, true, 1, 120, 100, 100}, // maxCredits was lower than the estimate
	} {
		if got := tt.policy.Due(tt.failed, tt.used, tt.estimated, tt.reserved); got != tt.want {
			t.Errorf("%+v: due are %d", tt, got)
		}
	}
	for _, tt := range [][3]int64{{120, 1000, 150}, {1, 1000, 2}, {0, 1000, 0}, {4, 1000, 5}, {120, 140, 140}, {1 << 62, 500, 500}, {math.MaxInt64 / 5, 1000, 1000}, {math.MaxInt64, 1000, 1000}} {
		if got := Reservation(tt[0], tt[1]); got != tt[2] {
			t.Errorf("an estimate of %d with at most %d reserves %d, want %d", tt[0], tt[1], got, tt[2])
		}
	}
}

// However large the figures, a further generation holds what is left and not less.
func TestNextReservationOfHugeEstimates(t *testing.T) {
	for _, remaining := range []int64{math.MaxInt64 / 4, math.MaxInt64} {
		if n := NextReservation(0, 1, remaining, 1000); n != 1000 {
			t.Errorf("an estimate of %d holds %d, want 1000", remaining, n)
		}
	}
}

// Lots burn by priority, then by expiry, then by creation.
func TestOrderOfLots(t *testing.T) {
	a := NewAccount()
	for i, l := range []struct {
		key      string
		priority int32
		expires  int64
	}{
		{"late", 0, 0}, {"second", 0, 5 * hour}, {"third", 0, 5 * hour}, {"first", 0, 2 * hour}, {"never", 7, hour}, {"urgent", -1, 0},
	} {
		grant(t, a, int64(i), l.key, 1, Terms{Source: Paid, Priority: l.priority, Expires: l.expires})
	}
	grant(t, a, 9, "future", 1, Terms{Source: Paid, Priority: -9, Effective: 100})
	e, err := a.Reserve(10, "r", "h", "run", 6, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(e.Parts), "[{urgent 1} {first 1} {second 1} {third 1} {late 1} {never 1}]"; got != want {
		t.Errorf("taken are %s, want %s", got, want)
	}
	if _, err := a.Reserve(11, "r2", "h2", "run", 1, 0); !errors.Is(err, fault.InsufficientCredits) {
		t.Errorf("credits that are not in effect were reserved: %v", err)
	}
	if b := a.Balance(11); b.Pending != 1 || b.Available != 0 {
		t.Errorf("%+v", b)
	}
}

// A hold whose lots come twice, in an order that changed while it was extended: what it
// returns after one lot has expired and another was voided goes with them, each amount
// once; the dates are those of the ends.
func TestReturnsToEndedLots(t *testing.T) {
	a := NewAccount()
	grant(t, a, 0, "Q", 20, Terms{Source: Paid})
	if _, err := a.Reserve(1, "r", "h", "run", 10, hour); err != nil {
		t.Fatal(err)
	}
	grant(t, a, 2, "P", 5, Terms{Source: Promotional, Expires: hour})
	grant(t, a, 2, "spare", 3, Terms{Source: Promotional, Priority: 5, Expires: hour})
	if _, err := a.Extend(3, "x", "h", 8); err != nil {
		t.Fatal(err)
	}
	if h, _ := a.Hold("h"); fmt.Sprint(h.Parts) != "[{Q 10} {P 5} {Q 3}]" {
		t.Fatalf("the hold is %v", h.Parts)
	}
	if _, err := a.Void(5, "v", "Q", "a mistake"); err != nil {
		t.Fatal(err)
	}
	es, err := a.Expire(2 * hour)
	if err != nil || len(es) != 1 || es[0].At != hour || fmt.Sprint(es[0].Parts) != "[{spare 3}]" {
		t.Fatalf("expired are %+v, %v", es, err)
	}
	es, err = a.Settle(3*hour, "s", "h", 4)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range es {
		got = append(got, fmt.Sprint(e.Kind, " ", e.Key, " ", e.Parts))
	}
	want := []string{"settle s [{Q 4}]", "release s/release [{Q 6} {P 5} {Q 3}]", "void s/void/Q [{Q 9}]", "expire s/expire/P [{P 5}]"}
	if !slices.Equal(got, want) {
		t.Errorf("the settlement is %q, want %q", got, want)
	}
	if q, _ := a.Lot("Q"); q.VoidedAt != 5 || q.Voided != 16 || q.Spent != 4 {
		t.Errorf("Q is %+v", q)
	}
}

// An adjustment unwinds a charge from its end, in the order that was recorded, whatever
// the order of lots is now.
func TestAdjustmentsUnwind(t *testing.T) {
	a := NewAccount()
	grant(t, a, 0, "A", 5, Terms{Source: Promotional})
	grant(t, a, 0, "B", 5, Terms{Source: Paid})
	if _, err := a.Reserve(1, "r", "h", "run", 8, 0); err != nil {
		t.Fatal(err)
	}
	charge, err := a.Settle(2, "s", "h", 8)
	if err != nil {
		t.Fatal(err)
	}
	grant(t, a, 3, "C", 5, Terms{Source: Paid, Priority: -1})
	es, err := a.Adjust(4, "back", charge[0], 0, 4, "a complaint")
	if err != nil || len(es) != 1 || fmt.Sprint(es[0].Parts) != "[{B 3} {A 1}]" || es[0].Run != "run" || es[0].Hold != "h" {
		t.Fatalf("returned are %+v, %v", es, err)
	}
	if es, err = a.Adjust(5, "back2", charge[0], 4, 3, "another"); err != nil || fmt.Sprint(es[0].Parts) != "[{A 3}]" {
		t.Fatalf("then returned are %+v, %v", es, err)
	}
	if _, err := a.Adjust(6, "back3", charge[0], 7, 2, "one too many"); err == nil {
		t.Error("more was returned than was charged")
	}
	if b := a.Balance(6); b.Spent != 1 || b.Available != 14 {
		t.Errorf("%+v", b)
	}
}

// What an operation is refused for, and that a refusal changes nothing.
func TestRefusals(t *testing.T) {
	a := NewAccount()
	grant(t, a, 0, "lot", 10, Terms{Source: Paid, Expires: hour})
	if _, err := a.Reserve(1, "r", "h", "run", 4, hour); err != nil {
		t.Fatal(err)
	}
	before, seq := a.Balance(1), a.Seq()
	if _, err := a.Grant(1, "50%off", 1, Terms{Source: "gift"}); err == nil {
		t.Error("a grant from nowhere was accepted")
	}
	grantTwice := second(a.Grant(1, "lot", 1, Terms{Source: Paid}))
	if got := fmt.Sprint(grantTwice); got != "CONFLICT: entry grant/lot (grant): there is a lot lot" {
		t.Errorf("a lot twice: %s", got)
	}
	for name, err := range map[string]error{
		"a negative grant":            second(a.Grant(1, "g", -1, Terms{Source: Paid})),
		"a huge grant":                second(a.Grant(1, "g", MaxAmount+1, Terms{Source: Paid})),
		"more than an account holds":  second(a.Grant(1, "g", MaxAmount, Terms{Source: Paid})),
		"a grant that has ended":      second(a.Grant(1, "g", 1, Terms{Source: Paid, Expires: 1})),
		"a grant from nowhere":        second(a.Grant(1, "g", 1, Terms{})),
		"a lot twice":                 second(a.Grant(1, "lot", 1, Terms{Source: Paid})),
		"a reservation of nothing":    second(a.Reserve(1, "r2", "h2", "run", 0, 0)),
		"a reservation twice":         second(a.Reserve(1, "r2", "h", "run", 1, 0)),
		"too large a reservation":     second(a.Reserve(1, "r2", "h2", "run", 7, 0)),
		"one after the end":           second(a.Reserve(hour, "r2", "h2", "run", 1, 0)),
		"an extension of nothing":     second(a.Extend(1, "x", "none", 1)),
		"too large an extension":      second(a.Extend(1, "x", "h", 7)),
		"a settlement of nothing":     second(a.Settle(1, "s", "none", 1)),
		"too large a settlement":      second(a.Settle(1, "s", "h", 5)),
		"a negative settlement":       second(a.Settle(1, "s", "h", -1)),
		"an unknown lot":              second(a.Void(1, "v", "none", "")),
		"a lot that has expired":      second(a.Void(hour, "v", "lot", "")),
		"more than was charged":       second(a.Adjust(1, "a", &Entry{Kind: Settle, Parts: []Part{{"lot", 1}}}, 0, 2, "")),
		"what was not spent":          second(a.Adjust(1, "a", &Entry{Kind: Settle, Parts: []Part{{"lot", 1}}}, 0, 1, "")),
		"what was adjusted before":    second(a.Adjust(1, "a", &Entry{Kind: Settle, Parts: []Part{{"lot", 1}}}, 1, 1, "")),
		"what is no charge":           second(a.Adjust(1, "a", &Entry{Kind: Reserve, Parts: []Part{{"lot", 1}}}, 0, 1, "")),
		"a part of a lot":             a.Apply(&Entry{Key: "e", Kind: Void, At: 1, Parts: []Part{{"lot", 4}}}),
		"a void of nothing":           a.Apply(&Entry{Key: "e", Kind: Void, At: 1}),
		"an entry that moves nothing": a.Apply(&Entry{Key: "e", Kind: Settle, Hold: "h"}),
		"the end of a hold":           a.Apply(&Entry{Key: "e", Kind: Settle, Hold: "h", Parts: []Part{{"lot", 5}}}),
		"an unknown kind":             a.Apply(&Entry{Key: "e", Kind: 99, Parts: []Part{{"lot", 1}}}),
		"a negative part":             a.Apply(&Entry{Key: "e", Kind: Void, Parts: []Part{{"lot", -1}}}),
		"a grant without a key":       second(a.Grant(1, "", 1, Terms{Source: Paid})),
		"a grant with a long key":     second(a.Grant(1, strings.Repeat("k", MaxKey+1), 1, Terms{Source: Paid})),
		"a long note":                 second(a.Void(1, "v", "lot", strings.Repeat("n", MaxNote+1))),
		"an entry without a key":      a.Apply(&Entry{Kind: Void, At: 1, Parts: []Part{{"lot", 6}}}),
		"an entry before the last":    a.Apply(&Entry{Key: "e", Kind: Void, At: 0, Parts: []Part{{"lot", 6}}}),
		"a lot without a name":        a.Apply(&Entry{Key: "e", Kind: Grant, At: 1, Terms: &Terms{}, Parts: []Part{{"", 6}}}),
		"an expiry before its time":   a.Apply(&Entry{Key: "e", Kind: Expire, At: 5, Parts: []Part{{"lot", 1}}}),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if after := a.Balance(1); after != before || a.Seq() != seq {
		t.Errorf("refusals changed %+v to %+v", before, after)
	}
}

func second[T any](_ T, err error) error { return err }

// Whatever happens in whatever order: the identity holds after every entry, nothing is
// negative, another account that applies the entries is the same, no later entry
// changes an earlier view, and when all holds are settled nothing is held (I11).
func TestI11_RandomHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, copied := NewAccount(), NewAccount()
		var journal []*Entry
		views := map[int64]Balance{}
		var lots, holds []string
		now := int64(1)
		asOf := func(at int64) Balance {
			past := NewAccount()
			for _, e := range journal {
				if e.At <= at {
					if err := past.Apply(e); err != nil {
						rt.Fatalf("as of %d: %v", at, err)
					}
				}
			}
			return past.Balance(at)
		}
		keep := func(entries ...*Entry) {
			before := copied.AppendState(nil)
			stored := make([]*Entry, len(entries))
			for i, e := range entries {
				got, err := DecodeEntry(e.Key, e.Append(nil))
				if err != nil || !reflect.DeepEqual(got, e) {
					rt.Fatalf("%+v is read as %+v, %v", e, got, err)
				}
				stored[i] = got
			}
			wrong := append(slices.Clone(stored), &Entry{Key: "wrong", Kind: Settle, At: now, Hold: "none", Parts: []Part{{"none", 1}}})
			if err := copied.ApplyAll(wrong); err == nil || !bytes.Equal(copied.AppendState(nil), before) {
				rt.Fatalf("a refused group changed the account: %v", err)
			}
			clone := copied.Clone()
			if err := copied.ApplyAll(stored); err != nil {
				rt.Fatalf("another account refuses: %v", err)
			}
			if !bytes.Equal(clone.AppendState(nil), before) {
				rt.Fatal("a clone changed with its origin")
			}
			again, err := DecodeState(copied.AppendState(nil))
			if err != nil || !bytes.Equal(again.AppendState(nil), a.AppendState(nil)) || !slices.EqualFunc(again.order, a.order, func(l, m *Lot) bool { return *l == *m }) {
				rt.Fatalf("a stored state is another one: %v", err)
			}
			copied = again
			journal = append(journal, entries...)
		}
		n := 0
		for range rapid.IntRange(1, 40).Draw(rt, "operations") {
			views[now] = a.Balance(now)
			now += int64(rapid.IntRange(1, 20).Draw(rt, "time"))
			n++
			key := fmt.Sprint("k", n)
			amount := int64(rapid.IntRange(1, 60).Draw(rt, "amount"))
			switch rapid.IntRange(0, 6).Draw(rt, "what") {
			case 0, 1:
				terms := Terms{Source: Paid, Priority: int32(rapid.IntRange(0, 2).Draw(rt, "priority")), Effective: now + int64(rapid.IntRange(0, 15).Draw(rt, "effective"))}
				if rapid.Bool().Draw(rt, "expires") {
					terms.Expires = terms.Effective + int64(rapid.IntRange(1, 60).Draw(rt, "lasts"))
				}
				if e, err := a.Grant(now, key, amount, terms); err == nil {
					lots = append(lots, key)
					keep(e)
				} else {
					rt.Fatal(err)
				}
			case 2:
				have := a.Available(now)
				e, err := a.Reserve(now, key, key, "run", amount, now+100)
				if (err == nil) != (have >= amount) {
					rt.Fatalf("a reservation of %d of %d: %v", amount, have, err)
				}
				if err == nil {
					holds = append(holds, key)
					keep(e)
				}
			case 3:
				if len(holds) > 0 {
					if e, err := a.Extend(now, key, rapid.SampledFrom(holds).Draw(rt, "hold"), amount); err == nil {
						keep(e)
					}
				}
			case 4:
				if len(holds) > 0 {
					i := rapid.IntRange(0, len(holds)-1).Draw(rt, "hold")
					h, _ := a.Hold(holds[i])
					due := int64(rapid.IntRange(0, int(h.Amount())).Draw(rt, "due"))
					es, err := a.Settle(now, key, holds[i], due)
					if err != nil {
						rt.Fatal(err)
					}
					holds = append(holds[:i:i], holds[i+1:]...)
					keep(es...)
					if len(es) > 0 && es[0].Kind == Settle && rapid.Bool().Draw(rt, "complaint") {
						es, err = a.Adjust(now, key+"-back", es[0], 0, 1+due/2, "")
						if due > 1 && err != nil {
							rt.Fatal(err)
						}
						keep(es...)
					}
				}
			case 5:
				if len(lots) > 0 {
					if e, err := a.Void(now, key, rapid.SampledFrom(lots).Draw(rt, "lot"), "test"); err == nil {
						keep(e)
					}
				}
			case 6:
				es, err := a.Expire(now)
				if err != nil {
					rt.Fatal(err)
				}
				keep(es...)
			}
			b := a.Balance(now)
			if b.Granted != b.Pending+b.Available+b.Held+b.Spent+b.Expired+b.Voided {
				rt.Fatalf("the books do not balance: %+v", b)
			}
			if min(b.Pending, b.Available, b.Held, b.Spent, b.Expired, b.Voided) < 0 {
				rt.Fatalf("less than nothing: %+v", b)
			}
			if b.Available != a.Available(now) || b != copied.Balance(now) || b != asOf(now) {
				rt.Fatalf("%+v, available %d, copied %+v, as of now %+v", b, a.Available(now), copied.Balance(now), asOf(now))
			}
		}
		for at, b := range views {
			if got := asOf(at); got != b {
				rt.Fatalf("as of %d the balance was %+v and has become %+v", at, b, got)
			}
		}
		for _, h := range holds {
			es, err := a.Settle(now, "end-"+h, h, 0)
			if err != nil {
				rt.Fatal(err)
			}
			keep(es...)
		}
		if b := a.Balance(now); b.Held != 0 {
			rt.Fatalf("at the end %d credits are held", b.Held)
		}
	})
}
