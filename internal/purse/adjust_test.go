// SPDX-License-Identifier: Apache-2.0

package purse

import (
	"fmt"
	"math"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
)

// An adjustment gives back what a run has paid, what was paid last first, and never more.
// Adjustments that are not recorded yet count, too.
func TestAdjust(t *testing.T) {
	h := newHost()
	ps := New[string](h)
	for _, lot := range []string{"p", "q"} {
		if err := ps.Change("a", grantOf(lot, 10)); err != nil {
			t.Fatal(err)
		}
	}
	var charges []*ledger.Entry
	for gen, n := range []int64{6, 8} {
		var c Claim
		ps.Note("a", &c, uint32(gen+1), reserved(2, n))
		ps.Note("a", &c, uint32(gen+1), settled(3, n))
		for _, e := range ps.Entries("a", "run", &c, 100) {
			if e.Kind == ledger.Settle {
				charges = append(charges, e)
			}
		}
	}
	if len(charges) != 2 {
		t.Fatalf("the charges are %v", charges)
	}
	// No entry of what follows is recorded: the second argument stays as it was read.
	adjust := func(run, key string, n int64) (*Change, error) {
		ch := &Change{Adjust: &Adjustment{Run: run, Key: key}, Amount: n}
		if run == "run" {
			ch.Adjust.Charges = charges
		}
		return ch, ps.Change("a", ch)
	}
	parts := func(ch *Change) (text string) {
		for _, e := range ch.Made {
			text += fmt.Sprint(e.Hold, e.Parts)
		}
		return text
	}
	for _, tt := range []struct {
		key  string
		n    int64
		want string
		made int
	}{
		{"one", 3, "run.2[{q 3}]", 1},
		{"one", 3, "run.2[{q 3}]", 0},
		{"two", 9, "run.2[{q 1} {p 4}]run.1[{p 4}]", 2},
	} {
		if ch, err := adjust("run", tt.key, tt.n); err != nil || parts(ch) != tt.want || len(ch.Entries) != tt.made {
			t.Errorf("%s: %s with %d entries, %v; want %s with %d", tt.key, parts(ch), len(ch.Entries), err, tt.want, tt.made)
		}
	}
	for _, tt := range []struct {
		name, run, key string
		n              int64
		want           fault.Code
	}{
		{"more than is left", "run", "three", 3, fault.InputInvalid},
		{"another amount", "run", "one", 2, fault.IdempotencyMismatch},
		{"nothing", "run", "three", 0, fault.InputInvalid},
		{"less than nothing", "run", "three", -1, fault.InputInvalid},
		{"more than there can be", "run", "three", math.MaxInt64, fault.InputInvalid},
		{"without a key", "run", "", 1, fault.InputInvalid},
		{"a run that paid nothing", "other", "three", 1, fault.InputInvalid},
	} {
		if ch, err := adjust(tt.run, tt.key, tt.n); fault.CodeOf(err) != tt.want || len(ch.Entries) > 0 {
			t.Errorf("%s: %v, %v; want %s", tt.name, err, ch.Entries, tt.want)
		}
	}
	// One that the store has refused does not count.
	ch, err := adjust("run", "three", 2)
	if err != nil {
		t.Fatal(err)
	}
	given := len(ps.byName["a"].given)
	ps.Refused("a", ch)
	if n := len(ps.byName["a"].given); n != given-1 {
		t.Errorf("%d entries count after a refusal, want %d", n, given-1)
	}
}
