// SPDX-License-Identifier: Apache-2.0

package view

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// creditsPlan is the plan of the machine's journal of a run that an account pays for.
func creditsPlan(t *testing.T) *plan.Plan {
	t.Helper()
	data, err := os.ReadFile("../machine/testdata/journals/credits.plan.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The bill of a run that was extended, failed and was retried: what each attempt cost,
// what each generation paid, and with which lots. The run's view has the same sums.
func TestBillOfTwoGenerations(t *testing.T) {
	p := creditsPlan(t)
	frames, err := os.ReadFile("../machine/testdata/journals/credits.bin")
	if err != nil {
		t.Fatal(err)
	}
	x, run, tracer := NewBiller(p, "run_1"), NewRun(p, "run_1"), NewTracer(p, "run_1", 100)
	var reserved []int64
	unfunded := ""
	err = journal.EachEvent(frames, func(ev *journal.Event) error {
		for _, apply := range []func(*journal.Event) error{x.Apply, run.Apply, tracer.Apply} {
			if err := apply(ev); err != nil {
				return err
			}
		}
		if ev.Kind.Ends() {
			reserved = append(reserved, run.Funds.Reserved)
		}
		if s := run.Unfunded(); s != nil {
			unfunded += s.Path
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	account := ledger.NewAccount()
	enter := func(entries []*ledger.Entry, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			x.Entry(e)
		}
	}
	one := func(e *ledger.Entry, err error) { t.Helper(); enter([]*ledger.Entry{e}, err) }
	one(account.Grant(1, "gift", 2, ledger.Terms{Source: ledger.Promotional}))
	one(account.Grant(2, "paid", 100, ledger.Terms{Source: ledger.Paid}))
	one(account.Reserve(3, "reserve/run_1.1", "run_1.1", "run_1", 1, 9))
	one(account.Reserve(3, "reserve/run_10.1", "run_10.1", "run_10", 1, 9)) // of another run
	one(account.Extend(4, "extend/1", "run_1.1", 2))
	one(account.Extend(4, "extend/2", "run_1.1", 2))
	enter(account.Settle(5, "settle/run_1.1", "run_1.1", 3))
	one(account.Reserve(6, "reserve/run_1.2", "run_1.2", "run_1", 2, 9))
	last, err := account.Settle(7, "settle/run_1.2", "run_1.2", 2)
	enter(last, err)
	enter(account.Adjust(8, "adjust/run_1.2/k", last[0], 0, 1, "a complaint"))

	b := x.Bill()
	if b.Account != "acct" || b.Status != "completed" || !b.Metered || b.Estimated != 1 || b.Reserved != 1 || b.Most != 5 {
		t.Errorf("the terms are %+v", b)
	}
	if b.Used != 4_400_000 || b.Uncharged != 200_000 || b.Paid != 5 || b.Held != 0 || b.Used.Ceil() != run.Used() {
		t.Errorf("used %s, not charged %s, paid %d, held %d; the run has used %d", b.Used, b.Uncharged, b.Paid, b.Held, run.Used())
	}
	if !reflect.DeepEqual(b.Back, []Adjusted{{At: Stamp(8), Amount: 1, Lots: []ledger.Part{{Lot: "paid", Amount: 1}}, Note: "a complaint"}}) {
		t.Errorf("given back: %+v", b.Back)
	}
	wantCharges := []Charge{
		{6, "a", 1, 200_000, false, "the attempt did not complete its step", ""},
		{10, "a", 2, 400_000, true, "", ""},
		{18, "b", 2, 2 * ledger.Credit, true, "", ""},
		{33, "c", 2, 2 * ledger.Credit, true, "", ""},
	}
	if !reflect.DeepEqual(b.Charges, wantCharges) {
		t.Errorf("the charges are %+v", b.Charges)
	}
	if len(b.Generations) != 2 {
		t.Fatalf("%d generations", len(b.Generations))
	}
	first, second := b.Generations[0], b.Generations[1]
	if first.Held != 5 || len(first.Extensions) != 2 || first.Due != 3 || first.Paid != 3 || first.Released != 2 || first.Status != "failed" || first.Used != 2_400_000 {
		t.Errorf("the first generation: %+v", first)
	}
	if second.Held != 2 || second.Expected != 4 || second.Due != 5 || second.PaidBefore != 3 || second.Paid != 2 || second.Released != 0 {
		t.Errorf("the second generation: %+v", second)
	}
	if want := "the run is completed: it owes what it used; it used 4.4, rounded up, so 5; earlier generations have paid 3, so 2 are left to pay; of the 2 held, 2 are paid and 0 released"; second.Why != want {
		t.Errorf("the second generation paid because\n%s, want\n%s", second.Why, want)
	}
	if got, want := first.Lots, []ledger.Part{{Lot: "gift", Amount: 1}, {Lot: "paid", Amount: 2}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the first generation paid with %v, want %v", got, want)
	}
	if got, want := first.Took, []ledger.Part{{Lot: "gift", Amount: 1}, {Lot: "paid", Amount: 4}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the first generation held %v, want %v", got, want)
	}

	if !reflect.DeepEqual(reserved, []int64{5, 2}) || run.Funds.Estimated != 1 || run.Account != "acct" {
		t.Errorf("the view of the run: reserved %v, estimated %d, account %s", reserved, run.Funds.Estimated, run.Account)
	}
	if tr := tracer.Trace(0); tr.Reserved == nil || *tr.Reserved != 2 || *tr.Estimated != 1 {
		t.Errorf("the trace: reserved %v", tr.Reserved)
	}
	// Event 13 blocks b, and event 14 extends: for two events it waits for credits.
	if unfunded != "bb" {
		t.Errorf("waiting for credits: %q", unfunded)
	}
}

// What a run owes by its policy, and what it pays of that, are told with the numbers.
func TestBillTellsThePolicy(t *testing.T) {
	for _, tt := range []struct {
		name    string
		policy  ledger.Policy
		ends    journal.EventKind
		used    ledger.Amount
		settled int64
		want    string
	}{
		{"completed under no_refund", ledger.NoRefund, journal.EvRunCompleted, 61_300_000, 62, "the run is completed: it owes what it used; it used 61.3, rounded up, so 62; nothing was paid before; of the 120 held, 62 are paid and 58 released"},
		{"cancelled", ledger.RefundAll, journal.EvRunCancelled, 61 * ledger.Credit, 61, "the run is cancelled: it owes what it used; it used 61, so 61; nothing"},
		{"failed, unused returned", ledger.RefundUnused, journal.EvRunFailed, 30_200_000, 31, "the run failed and its policy is refund_unused: it owes what its completed steps cost; it used 30.2, rounded up, so 31; nothing"},
		{"failed, all returned", ledger.RefundAll, journal.EvRunFailed, 30_200_000, 0, "the run failed and its policy is refund_all: it owes 0; nothing was paid before; of the 120 held, 0 are paid and 120 released"},
		{"failed, nothing returned", ledger.NoRefund, journal.EvRunFailed, 30_200_000, 96, "the run failed and its policy is no_refund: it owes the estimate of 96, at most what was reserved (120), or what it used (30.2) if that is more, so 96"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data, err := journal.EncodeStart(&journal.Start{Run: "run_1", Account: "acme", Credits: &journal.Credits{Estimated: 96, Reserved: 120, Most: 200, Policy: tt.policy}})
			if err != nil {
				t.Fatal(err)
			}
			x := NewBiller(creditsPlan(t), "run_1")
			for i, ev := range []journal.Event{
				{Kind: journal.EvRunStarted, Step: -1, Data: data},
				{Kind: journal.EvCreditsReserved, Step: -1, N: 120, M: 96},
				{Kind: journal.EvNodeCharged, Step: 0, Attempt: 1, N: int64(tt.used)},
				{Kind: journal.EvCreditsSettled, Step: -1, N: tt.settled, M: 120 - tt.settled},
				{Kind: tt.ends, Step: -1},
			} {
				ev.Seq = uint64(i + 1)
				if held := x.Bill().Held; i > 1 && held != 120 {
					t.Errorf("before event %d the run holds %d", ev.Seq, held)
				}
				if err := x.Apply(&ev); err != nil {
					t.Fatal(err)
				}
			}
			if g := x.Bill().Generations[0]; !strings.HasPrefix(g.Why, tt.want) || g.Paid != tt.settled || g.Due != tt.settled {
				t.Errorf("owes %d, paid %d because\n%s, want\n%s", g.Due, g.Paid, g.Why, tt.want)
			}
		})
	}
}

// The bill of a child run says what its share was, and what was added to it.
func TestX123_BillOfAChildRun(t *testing.T) {
	data, err := journal.EncodeStart(&journal.Start{
		Run: "run_2", Account: "acct", Recipe: "inner", PlanHash: "p", Credits: &journal.Credits{Estimated: 4, Reserved: 3, Most: 9, Policy: ledger.RefundUnused},
		Child: &journal.Child{Root: "run_1", Parent: "run_1", Share: journal.Share{Credits: 3, Steps: 16}},
	})
	if err != nil {
		t.Fatal(err)
	}
	x := NewBiller(&plan.Plan{}, "run_2")
	for _, ev := range []journal.Event{
		{Seq: 1, At: 5, Kind: journal.EvRunStarted, Step: -1, Data: data},
		{Seq: 2, At: 6, Kind: journal.EvRunExtended, Step: -1, Flag: uint8(journal.StepsShare), N: 8},
		{Seq: 3, At: 7, Kind: journal.EvRunExtended, Step: -1, Flag: uint8(journal.CreditsShare), N: 2},
	} {
		if err := x.Apply(&ev); err != nil {
			t.Fatal(err)
		}
	}
	if b := x.Bill(); b.Root != "run_1" || b.Reserved != 3 || !reflect.DeepEqual(b.Added, []Extension{{3, Stamp(7), 2}}) {
		t.Errorf("the bill is %+v", b)
	}
}
