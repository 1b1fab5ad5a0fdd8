// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
)

// A rotated key goes on for the overlap and then ends, with what it began; the new one allows
// the same, and the limit is one.
func TestRotate(t *testing.T) {
	w := inMemory(t)
	old, token := w.make(Spec{Account: "acme", Role: Operator, Limit: &Limit{Credits: 5}})
	p := w.want(token, "")
	ctx, end := w.Bind(t.Context(), p)
	defer end()
	owner := Anyone("acme")
	fresh, newToken, err := w.Rotate(t.Context(), owner, "acme", old.ID, 50*time.Millisecond)
	if err != nil || fresh.ID == old.ID || fresh.Role != Operator {
		t.Fatal(fresh, err)
	}
	if got := w.want(newToken, ""); got.Budget != old.ID || p.Budget != old.ID {
		t.Errorf("the budgets are %q and %q", got.Budget, p.Budget)
	}
	w.want(token, "")
	<-ctx.Done() // the test would hang here
	if !errors.Is(context.Cause(ctx), fault.Unauthorized) {
		t.Error(context.Cause(ctx))
	}
	w.clock.Add(50_000)
	w.want(token, fault.Unauthorized)
	w.open(Config{})
	w.want(token, fault.Unauthorized)
	w.want(newToken, "")
	if got := w.Budgets("acme", ledger.Budgets{}).Keys; len(got) != 1 || got[old.ID].Limit != 5 {
		t.Errorf("after the overlap: %v", got)
	}
	last, lastToken, err := w.Rotate(t.Context(), w.want(newToken, ""), "acme", fresh.ID, 0) // by itself
	if err != nil || last.Budget != old.ID {
		t.Fatal(last, err)
	}
	w.want(newToken, fault.Unauthorized)
	w.want(lastToken, "")
	for _, tt := range []struct {
		by      *Principal
		account string
		id      string
		overlap time.Duration
		code    fault.Code
	}{
		{owner, "acme", fresh.ID, 0, fault.Conflict},
		{owner, "acme", last.ID, -1, fault.InputInvalid},
		{owner, "acme", last.ID, MaxOverlap + 1, fault.InputInvalid},
		{owner, "rival", last.ID, 0, fault.KeyNotFound},
		{&Principal{Account: "acme", Scopes: Viewer.Scopes()}, "acme", last.ID, 0, fault.Forbidden},
		{&Principal{Account: "acme", Scopes: Owner.Scopes(), Budget: "x"}, "acme", last.ID, 0, fault.Forbidden},
		{&Principal{Account: "acme", Scopes: Owner.Scopes(), Expires: start + 1e9}, "acme", last.ID, 0, fault.Forbidden},
	} {
		if _, _, err := w.Rotate(t.Context(), tt.by, tt.account, tt.id, tt.overlap); !errors.Is(err, tt.code) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	w.want(lastToken, "")
}

// What an account does ends when it is told to, but not what its administrators do.
func TestEnd(t *testing.T) {
	w := inMemory(t)
	ends := map[string]func() error{}
	for account, role := range map[string]Role{"acme": Developer, "rival": Developer, "boss": Admin} {
		of := account
		if role == Admin {
			of = "acme"
		}
		_, token := w.make(Spec{Account: of, Role: role})
		ctx, end := w.Bind(t.Context(), w.want(token, ""))
		defer end()
		ends[account] = func() error { return context.Cause(ctx) }
	}
	w.End("acme", fault.New(fault.AccountDisabled, "unpaid"))
	if !errors.Is(ends["acme"](), fault.AccountDisabled) || ends["rival"]() != nil || ends["boss"]() != nil {
		t.Errorf("%v %v %v", ends["acme"](), ends["rival"](), ends["boss"]())
	}
}
