// SPDX-License-Identifier: Apache-2.0

// Package remote shows the runs, files and credits of a server, and those of the process that
// holds a data directory, as those of a data directory that this process holds, so that the
// commands that read and change them are the same for all three.
//
// It decides with which operations of the interface over HTTP a command gets what it asks for.
// It computes nothing about a run: the journal comes from the server as it is stored there,
// without the values that recipes mark as writeOnly.
package remote

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
)

// A Server is a server as its client sees it. It is safe for concurrent use.
type Server struct {
	Client      *client.Client
	AccountName string // whose credits are granted
	Own         string // the account of the client

	// of returns a client of an account; nil = there is only that of Own.
	of    func(account string) *client.Client
	mu    sync.Mutex
	plans map[string]string // by the key of a plan, a run that has it
}

// New returns the runs, files and credits that a client reaches.
func New(c *client.Client, own, account string) *Server {
	return &Server{Client: c, Own: own, AccountName: account, plans: map[string]string{}}
}

var (
	_ Service = (*Server)(nil)
	_ Reader  = (*Server)(nil)
	_ Service = (*Directory)(nil)
)

// as returns the client for an account. The client of a server has one only.
func (s *Server) as(account string) *client.Client {
	if s.of == nil || account == "" || account == s.Own {
		return s.Client
	}
	return cmp.Or(s.of(account), s.Client)
}

// maxChanges is the number of changes in one answer.
const maxChanges = 1_000

// Changes implements store.Feed. One answer has no more than maxChanges.
func (s *Server) Changes(ctx context.Context, account string, after uint64, limit int) ([]store.Change, error) {
	if limit <= 0 {
		return nil, nil
	}
	found, err := s.as(account).Changes(ctx, after, min(limit, maxChanges))
	if err != nil {
		return nil, err
	}
	list := make([]store.Change, len(found.Changes))
	for i := range found.Changes {
		if list[i], err = changeOf(&found.Changes[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func changeOf(c *client.StoredChange) (store.Change, error) {
	out := store.Change{
		N: c.Number, At: c.Time.UnixMicro(), Run: c.RunID, Root: c.RootRunID, Deleted: c.Removed, Recipe: c.Recipe, Status: c.State, Code: fault.Code(c.Code),
		Ended: stamp(c.CompletedAt), Quarantined: c.Quarantined, Imported: c.Imported, Hidden: c.Hidden, Entry: c.Entry, Key: c.Key,
		Notice: ledger.Notice{Source: c.LimitSource, Limit: c.Limit, Amount: c.Amount},
	}
	var err error
	if c.Entry != 0 {
		out.Kind, err = ledger.ParseKind(c.Kind)
	}
	return out, err
}

// Newest implements store.Feed.
func (s *Server) Newest(ctx context.Context, account string) (last, expired uint64, err error) {
	found, err := s.as(account).Changes(ctx, 0, 0)
	if err != nil {
		return 0, 0, err
	}
	return found.Last, found.Expired, nil
}

// timeOf is a time in UTC µs; the zero time for one that never comes.
func timeOf(at int64) time.Time {
	if at >= farthest {
		return time.Time{}
	}
	return time.UnixMicro(at).UTC()
}

// farthest is a time in UTC µs that cannot be written.
const farthest = 253402300800_000_000
