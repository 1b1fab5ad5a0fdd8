// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/roux-engine/roux/internal/store"
)

// A feedRecord holds the changes of an account that are kept, and its end. Changes are only
// added at the end or cut off at the front, so a copy of the struct is enough to undo.
type feedRecord struct {
	end     store.FeedEnd
	changes []store.Change
}

func (f feedRecord) expired() uint64 { return f.end.Last - uint64(len(f.changes)) }

// record numbers changes and adds them to the account's feed.
func (m *model) record(account string, changes []store.Change) {
	if len(changes) == 0 {
		return
	}
	f := m.feeds[account]
	if m.undo != nil {
		old := f
		m.undo = append(m.undo, func() { m.feeds[account] = old })
	}
	for _, c := range changes {
		f.end.Next(&c)
		f.changes = append(f.changes, c)
	}
	m.feeds[account] = f
}

// Changes implements store.Feed.
func (s *Store) Changes(ctx context.Context, account string, after uint64, limit int) ([]store.Change, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil || limit <= 0 {
		return nil, err
	}
	f := s.d.synced.feeds[account]
	if err := store.CheckCursor(account, after, f.end.Last, f.expired()); err != nil {
		return nil, err
	}
	changes := f.changes[after-f.expired():]
	return slices.Clone(changes[:min(len(changes), limit)]), nil
}

// Newest implements store.Feed.
func (s *Store) Newest(ctx context.Context, account string) (last, expired uint64, err error) {
	err = s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return 0, 0, err
	}
	f := s.d.synced.feeds[account]
	return f.end.Last, f.expired(), nil
}

// ForgetChanges implements store.Retention.
func (s *Store) ForgetChanges(ctx context.Context, epoch uint64, before int64, from string, limit int) (next string, err error) {
	err = s.enterToWrite(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return "", err
	}
	m := s.d.synced
	if err := store.Fenced(epoch, m.epoch); err != nil {
		return "", err
	}
	limit = max(limit, 1)
	looked := 0
	for _, account := range slices.Sorted(maps.Keys(m.feeds)) {
		if account < from {
			continue
		}
		if looked++; looked > limit {
			return account, nil
		}
		f := m.feeds[account]
		n := slices.IndexFunc(f.changes, func(c store.Change) bool { return c.At >= before })
		if n < 0 {
			n = len(f.changes)
		}
		n = min(n, limit)
		f.changes = f.changes[n:]
		m.feeds[account] = f
		if limit -= n; limit == 0 {
			return account, nil
		}
	}
	return "", nil
}
