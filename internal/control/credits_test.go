// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
)

// Credits are read and moved through the socket as without it, for the account on whose
// behalf the client was made.
func TestCreditsThroughTheSocket(t *testing.T) {
	h, _ := hosted(t)
	ctx := t.Context()
	acme, other := Dial(ctx, h.dir, "acme"), Dial(ctx, h.dir, "other")
	terms := ledger.Terms{Source: ledger.Promotional, Priority: 3}
	lot, err := acme.Grant(ctx, "first", 100, terms)
	if err != nil || lot.ID != "first" || lot.Granted != 100 || lot.Free != 100 || lot.Terms.Priority != 3 {
		t.Fatalf("Grant = %+v, %v", lot, err)
	}
	if _, err := acme.Grant(ctx, "first", 99, terms); fault.CodeOf(err) != fault.IdempotencyMismatch {
		t.Errorf("another grant with that key: %v", err)
	}
	if _, err := other.VoidLot(ctx, "first", ""); err == nil {
		t.Error("a lot of another account was voided")
	}
	if lot, err := acme.VoidLot(ctx, "first", "a mistake"); err != nil || lot.Voided != 100 {
		t.Errorf("VoidLot = %+v, %v", lot, err)
	}
	for _, at := range []int64{0, math.MaxInt64} {
		got, err := other.Account(ctx, "acme", at) // whoever reaches the socket reads all accounts
		want, err2 := h.Account(ctx, "acme", at)
		if err != nil || err2 != nil || !bytes.Equal(got.AppendState(nil), want.AppendState(nil)) {
			t.Errorf("as of %d the account is %v, %v; want %v, %v", at, got, err, want, err2)
		}
	}
	got, err := acme.Entries(ctx, "acme", 0, 10)
	want, err2 := h.Entries(ctx, "acme", 0, 10)
	if err != nil || err2 != nil || len(got) != 2 || !reflect.DeepEqual(got, want) || got[1].Note != "a mistake" {
		t.Errorf("Entries = %v, %v; want %v, %v", got, err, want, err2)
	}
	if last, err := acme.Entries(ctx, "acme", 1, math.MaxInt); err != nil || len(last) != 1 {
		t.Errorf("Entries after 1 = %v, %v", last, err)
	}
	if names, err := acme.MeteredAccounts(ctx); err != nil || !slices.Equal(names, []string{"acme"}) {
		t.Errorf("MeteredAccounts = %q, %v", names, err)
	}
}
