// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"

	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
)

// maxEntries is the number of entries in one answer. It is also the largest --limit.
const maxEntries = 10_000

// A creditRequest is the part of a request about credits.
type creditRequest struct {
	Lot    string       `json:"lot,omitempty"`
	Key    string       `json:"key,omitempty"` // of an adjustment
	Amount int64        `json:"amount,omitempty"`
	Terms  ledger.Terms `json:"terms,omitzero"`
	Note   string       `json:"note,omitempty"`
	At     int64        `json:"at,omitempty"`
	Limit  int          `json:"limit,omitempty"`
}

// serveCredits adds the operations on credits.
func serveCredits(on func(op string, fn func(ctx context.Context, in *request) (any, error)), j Reader, of func(account string) Service) {
	on("account", func(ctx context.Context, in *request) (any, error) {
		account, err := j.Account(ctx, in.Key.Account, in.Credits.At)
		if err != nil {
			return nil, err
		}
		return account.AppendState(nil), nil
	})
	on("entries", func(ctx context.Context, in *request) (any, error) {
		return j.Entries(ctx, in.Key.Account, in.After, min(max(in.Credits.Limit, 0), maxEntries))
	})
	on("unended", func(ctx context.Context, in *request) (any, error) { return j.Unended(ctx, in.Key.Account) })
	on("accounts", func(ctx context.Context, _ *request) (any, error) { return j.MeteredAccounts(ctx) })
	on("grant", func(ctx context.Context, in *request) (any, error) {
		return of(in.Key.Account).Grant(ctx, in.Credits.Lot, in.Credits.Amount, in.Credits.Terms)
	})
	on("void", func(ctx context.Context, in *request) (any, error) {
		return of(in.Key.Account).VoidLot(ctx, in.Credits.Lot, in.Credits.Note)
	})
	on("adjust", func(ctx context.Context, in *request) (any, error) {
		return of(in.Key.Account).Adjust(ctx, in.Key.Run, in.Credits.Key, in.Credits.Amount, in.Credits.Note)
	})
}

// Account implements Reader.
func (r *Remote) Account(ctx context.Context, account string, at int64) (*ledger.Account, error) {
	state, err := call[[]byte](ctx, r, "account", request{Key: store.Key{Account: account}, Credits: creditRequest{At: at}})
	if err != nil {
		return nil, err
	}
	return ledger.DecodeState(state)
}

// Entries implements Reader.
func (r *Remote) Entries(ctx context.Context, account string, after uint64, limit int) ([]*ledger.Entry, error) {
	return call[[]*ledger.Entry](ctx, r, "entries", request{Key: store.Key{Account: account}, After: after, Credits: creditRequest{Limit: limit}})
}

// Unended implements Reader.
func (r *Remote) Unended(ctx context.Context, account string) (store.Unended, error) {
	return call[store.Unended](ctx, r, "unended", request{Key: store.Key{Account: account}})
}

// MeteredAccounts implements Reader.
func (r *Remote) MeteredAccounts(ctx context.Context) ([]string, error) {
	return call[[]string](ctx, r, "accounts", request{})
}

// Grant implements Credits.
func (r *Remote) Grant(ctx context.Context, key string, amount int64, terms ledger.Terms) (ledger.Lot, error) {
	return call[ledger.Lot](ctx, r, "grant", request{Key: r.key(""), Credits: creditRequest{Lot: key, Amount: amount, Terms: terms}})
}

// VoidLot implements Credits.
func (r *Remote) VoidLot(ctx context.Context, lot, note string) (ledger.Lot, error) {
	return call[ledger.Lot](ctx, r, "void", request{Key: r.key(""), Credits: creditRequest{Lot: lot, Note: note}})
}

// Adjust implements Credits.
func (r *Remote) Adjust(ctx context.Context, run, key string, amount int64, note string) ([]*ledger.Entry, error) {
	return call[[]*ledger.Entry](ctx, r, "adjust", request{Key: r.key(run), Credits: creditRequest{Key: key, Amount: amount, Note: note}})
}
