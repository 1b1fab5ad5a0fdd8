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

// Account implements control.Reader. The state of an account stays with its server, which
// answers what commands ask of it.
func (s *Server) Account(context.Context, string, int64) (*ledger.Account, error) {
	return nil, Unsupported("the state of an account")
}

// Entries implements control.Reader.
func (s *Server) Entries(ctx context.Context, _ string, after uint64, limit int) ([]*ledger.Entry, error) {
	list := []*ledger.Entry{}
	for e, err := range s.Client.Credits.Entries(ctx) {
		if err != nil {
			return nil, err
		}
		if e.Number <= after {
			continue
		}
		if len(list) >= limit {
			break
		}
		kind, err := ledger.ParseKind(e.Kind)
		if err != nil {
			return nil, err
		}
		entry := &ledger.Entry{Key: e.Key, Kind: kind, At: e.At.UnixMicro(), Run: e.RunID, Hold: e.ReservationID, Note: e.Note}
		for _, p := range e.Lots {
			entry.Parts = append(entry.Parts, ledger.Part{Lot: p.Lot, Amount: p.Amount})
		}
		if e.Source != "" {
			entry.Terms = &ledger.Terms{Source: ledger.Source(e.Source), Effective: stamp(e.EffectiveAt), Expires: stamp(e.ExpiresAt)}
		}
		list = append(list, entry)
	}
	return list, nil
}

// Unended implements control.Reader.
func (s *Server) Unended(ctx context.Context, _ string) (store.Unended, error) {
	c, err := s.Client.Credits.Get(ctx, time.Time{})
	if err != nil {
		return store.Unended{}, err
	}
	return store.Unended{Live: c.LiveRuns, Queued: c.QueuedRuns}, nil
}

// MeteredAccounts implements control.Reader.
func (s *Server) MeteredAccounts(ctx context.Context) (names []string, err error) {
	for a, err := range s.Client.Accounts.List(ctx) {
		if err != nil {
			return nil, err
		}
		names = append(names, a.Account)
	}
	return names, nil
}

// Grant implements control.Credits.
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

// VoidLot implements control.Credits.
func (s *Server) VoidLot(ctx context.Context, lot, note string) (ledger.Lot, error) {
	l, err := s.Client.Accounts.Void(ctx, s.AccountName, lot, note)
	if err != nil {
		return ledger.Lot{}, err
	}
	return lotOf(l), nil
}

// Adjust implements control.Credits.
func (s *Server) Adjust(context.Context, string, string, int64, string) ([]*ledger.Entry, error) {
	return nil, Unsupported("giving credits back")
}
