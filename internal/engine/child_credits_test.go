// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/purse"
	"github.com/roux-engine/roux/internal/store/memory"
)

// X60: a child run is given more of what its parent holds also while the account of the tree
// cannot be read, and its parent records that.
func TestX60_MoreWhileTheAccountIsReadAgain(t *testing.T) {
	st := memory.New(memory.Options{})
	a := costing(10, nil)
	h := newHarness(t, st, Config{Accounts: paying}, a)
	grant := func(lot string) *input {
		in := creditsInput(acc, &purse.Change{Lot: lot, Amount: 100, Terms: ledger.Terms{Source: ledger.Paid}})
		in.reply = make(chan answer, 1)
		return in
	}
	h.runUntilIdle(grant("first"))
	p := planOf(t, "name: outer\nsteps:\n  - {id: b, recipe: {inline: {name: inner, creditEstimation: {strategy: fixed, fixedCredits: 5, maxCredits: 50}, steps: [{id: p, action: {name: paid}}, {id: q, action: {name: paid}}]}}}\n", a)
	start := h.startInput(acc, p, nil)
	start.m.Start.Credits = &journal.Credits{Estimated: 40, Most: 50, Reserved: 50, Policy: ledger.RefundUnused}
	h.runUntilIdle(start)
	paid := func() *input {
		in := success(h.takeTask(), `{}`)
		in.m.Cost = 10
		return in
	}
	first := paid()
	h.handle(grant("second"))
	h.commitWhile(func() {
		h.c.purses.Forget(acc)
		h.handle(first)
		if err := h.c.purses.Readable(acc); err == nil {
			t.Error("the account can be read")
		}
	})
	h.runUntilIdle()
	h.runUntilIdle(paid())
	h.wantStatus(start.key, "completed")
	checkTree(t, st, acc, start.key.Run)
	wantBalance(t, st, 180, 0, 20)
	extended := 0
	for _, name := range h.trace(start.key, p) {
		if strings.Contains(name, "child_extended") {
			extended++
		}
	}
	if extended != 2 {
		t.Errorf("the parent has recorded %d extensions, want 2", extended)
	}
}
