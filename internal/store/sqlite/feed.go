// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"

	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/store"
)

// The changes of a commit are in its journal row, which is written anyway. Now and then a
// commit also writes those of the commits before it to the table feed.

// addChanges collects the changes that a transition makes, which was accepted.
func (s *Store) addChanges(t *store.Transition) error {
	if t.Head == nil && len(t.Entries) == 0 {
		return nil
	}
	first := uint64(0)
	if n := len(t.Entries); n > 0 {
		first = s.accounts[t.Account].account.Seq() - uint64(n) + 1
	}
	s.c.changes = store.AppendChanges(s.c.changes[:0], t, first)
	err := s.feed.Add(t.Account, s.c.changes)
	clear(s.c.changes)
	return err
}

// writeChanges decides where the changes of the commit under way are written.
func (s *Store) writeChanges() error {
	many := s.feed.ManyAccounts()
	if many || s.feed.Full() {
		err := s.begin()
		if err == nil {
			err = s.writePending()
		}
		if err != nil {
			return err
		}
		s.c.rows++
	}
	if many {
		written, err := s.feed.Write()
		s.c.bytes += written
		return err
	}
	s.c.fed = s.feed.Records()
	return nil
}

// writePending writes the changes that only the journal has to the table, in the transaction
// that is open.
func (s *Store) writePending() error {
	if err := failpoint.Hit(failpoint.ChangesWrite); err != nil {
		return err
	}
	return s.feed.Flush()
}

// publishChanges makes the changes of a durable commit visible. The caller holds x.
func (s *Store) publishChanges() {
	kept, released := s.feed.Publish()
	for _, id := range kept {
		s.keepFor(id)
	}
	for _, id := range released {
		s.x.releaseChanges(id)
	}
}

// keepFor keeps a row of the journal for the changes in it. The caller holds x.
func (s *Store) keepFor(id int64) {
	info := s.x.rows[id]
	if !info.kept {
		info.kept = true
		s.feed.Keep(info.size)
	}
}

// flushChanges is writePending in a transaction of its own.
func (s *Store) flushChanges(ctx context.Context) error {
	if err := s.lockToWrite(ctx); err != nil {
		return err
	}
	defer s.w.Unlock()
	return s.flushChangesLocked()
}

func (s *Store) flushChangesLocked() error {
	if !s.feed.Pending() {
		return nil
	}
	if err := s.inTx(s.writePending); err != nil {
		s.feed.Discard()
		return s.fail(err)
	}
	s.x.Lock()
	defer s.x.Unlock()
	s.publishChanges()
	s.countPages(4)
	return nil
}

// Changes implements store.Feed.
func (s *Store) Changes(ctx context.Context, account string, after uint64, limit int) ([]store.Change, error) {
	if err := s.ready(ctx); err != nil || limit <= 0 {
		return nil, err
	}
	changes, err := s.feed.After(ctx, account, after, limit)
	if _, err = s.explain(err); err != nil {
		return nil, err
	}
	return changes, nil
}

// Newest implements store.Feed.
func (s *Store) Newest(ctx context.Context, account string) (last, expired uint64, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, 0, err
	}
	last, expired, err = s.feed.Newest(ctx, account)
	if _, err = s.explain(err); err != nil {
		return 0, 0, err
	}
	return last, expired, nil
}

// ForgetChanges implements store.Retention.
func (s *Store) ForgetChanges(ctx context.Context, epoch uint64, before int64, from string, limit int) (next string, err error) {
	if err := s.lockToWrite(ctx); err != nil {
		return "", err
	}
	defer s.w.Unlock()
	if err := store.Fenced(epoch, s.epoch); err != nil {
		return "", err
	}
	if err := s.flushChangesLocked(); err != nil {
		return "", err
	}
	limit = max(limit, 1)
	accounts, err := s.feed.Accounts(ctx, from, limit+1)
	if err != nil {
		_, err = s.explain(err)
		return "", err
	}
	if len(accounts) > limit {
		next = accounts[limit]
		accounts = accounts[:limit]
	}
	err = s.inTx(func() error {
		for _, account := range accounts {
			n, err := s.feed.Forget(ctx, account, before, limit)
			if err != nil {
				return err
			}
			s.countPages(int64(2 * n))
			if limit -= n; limit == 0 {
				next = account
				break
			}
		}
		return nil
	})
	if err != nil {
		return "", s.fail(err)
	}
	return next, nil
}
