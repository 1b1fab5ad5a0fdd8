// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"encoding/json"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// Available returns the credits of the account that runs can use.
func (s *Server) Available(ctx context.Context) (int64, error) {
	c, err := s.Client.Credits.Get(ctx, time.Time{})
	if err != nil {
		return 0, err
	}
	return c.Credits.Available, nil
}

// Bill returns the bill of a run.
func (s *Server) Bill(ctx context.Context, run string) (*view.Bill, error) {
	b, err := s.Client.Runs.Ledger(ctx, run)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(b)
	out := new(view.Bill)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, err, "the bill of run %s cannot be read: %v", run, err)
	}
	return out, nil
}

// Lots returns the lots of the account.
func (s *Server) Lots(ctx context.Context) ([]ledger.Lot, error) {
	list := []ledger.Lot{}
	for l, err := range s.Client.Credits.Lots(ctx) {
		if err != nil {
			return nil, err
		}
		list = append(list, lotOf(&l))
	}
	return list, nil
}

func lotOf(l *client.Lot) ledger.Lot {
	return ledger.Lot{
		ID: l.Key, Granted: l.Amount, Created: l.CreatedAt.UnixMicro(), VoidedAt: stamp(l.VoidedAt), Free: l.Free, Held: l.Held, Spent: l.Spent, Expired: l.Expired, Voided: l.Voided,
		Terms: ledger.Terms{Source: ledger.Source(l.Kind), Priority: l.Priority, Effective: l.EffectiveAt.UnixMicro(), Expires: stamp(l.ExpiresAt)},
	}
}

// Account implements Reader.
func (s *Server) Account(ctx context.Context, account string, at int64) (*ledger.Account, error) {
	state, err := s.as(account).Credits.State(ctx, timeOf(at))
	if err != nil {
		return nil, err
	}
	return ledger.DecodeState(state)
}

// Entries implements Reader.
func (s *Server) Entries(ctx context.Context, account string, after uint64, limit int) ([]*ledger.Entry, error) {
	list := []*ledger.Entry{}
	if limit <= 0 {
		return list, nil
	}
	for e, err := range s.as(account).Credits.EntriesAfter(ctx, after) {
		if err != nil {
			return nil, err
		}
		entry, err := entryOfCredits(&e)
		if err != nil {
			return nil, err
		}
		if list = append(list, entry); len(list) >= limit {
			break
		}
	}
	return list, nil
}

func entryOfCredits(e *client.Entry) (*ledger.Entry, error) {
	kind, err := ledger.ParseKind(e.Kind)
	if err != nil {
		return nil, err
	}
	entry := &ledger.Entry{Key: e.Key, Kind: kind, At: e.At.UnixMicro(), Run: e.RunID, Hold: e.ReservationID, Note: e.Note}
	for _, p := range e.Lots {
		entry.Parts = append(entry.Parts, ledger.Part{Lot: p.Lot, Amount: p.Amount})
	}
	if e.Source != "" {
		entry.Terms = &ledger.Terms{Source: ledger.Source(e.Source), Priority: e.Priority, Effective: stamp(e.EffectiveAt), Expires: stamp(e.ExpiresAt)}
	}
	return entry, nil
}

// Unended implements Reader.
func (s *Server) Unended(ctx context.Context, account string) (store.Unended, error) {
	c, err := s.as(account).Credits.Get(ctx, time.Time{})
	if err != nil {
		return store.Unended{}, err
	}
	return store.Unended{Live: c.LiveRuns, Queued: c.QueuedRuns}, nil
}

// MeteredAccounts implements Reader.
func (s *Server) MeteredAccounts(ctx context.Context) (names []string, err error) {
	for a, err := range s.Client.Accounts.List(ctx) {
		if err != nil {
			return nil, err
		}
		names = append(names, a.Account)
	}
	return names, nil
}

// Grant implements Credits.
func (s *Server) Grant(ctx context.Context, key string, amount int64, terms ledger.Terms) (ledger.Lot, error) {
	g := client.Grant{Key: key, Amount: amount, Kind: string(terms.Source), Priority: terms.Priority}
	if terms.Effective != 0 {
		g.EffectiveAt = time.UnixMicro(terms.Effective).UTC()
	}
	if terms.Expires != 0 {
		g.ExpiresAt = time.UnixMicro(terms.Expires).UTC()
	}
	l, err := s.Client.Accounts.Grant(ctx, s.AccountName, g)
	if err != nil {
		return ledger.Lot{}, err
	}
	return lotOf(l), nil
}

// VoidLot implements Credits.
func (s *Server) VoidLot(ctx context.Context, lot, note string) (ledger.Lot, error) {
	l, err := s.Client.Accounts.Void(ctx, s.AccountName, lot, note)
	if err != nil {
		return ledger.Lot{}, err
	}
	return lotOf(l), nil
}

// Adjust implements Credits.
func (s *Server) Adjust(ctx context.Context, run, key string, amount int64, note string) ([]*ledger.Entry, error) {
	found, err := s.Client.Accounts.Adjust(ctx, s.AccountName, client.AdjustmentRequest{RunID: run, Key: key, Amount: amount, Note: note})
	if err != nil {
		return nil, err
	}
	list := make([]*ledger.Entry, len(found))
	for i := range found {
		if list[i], err = entryOfCredits(&found[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}
