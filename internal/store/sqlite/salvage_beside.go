// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/changes"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
	"github.com/roux-engine/roux/internal/store/sqlite/records"
	"github.com/roux-engine/roux/internal/store/sqlite/wal"
)

// Accounts returns the accounts that have runs here.
func (s *Store) Accounts(ctx context.Context) ([]string, error) {
	return s.texts(ctx, s.t.accounts)
}

// texts returns the one column of a query.
func (s *Store) texts(ctx context.Context, query string, args ...any) (texts []string, err error) {
	if err := s.isOpen(ctx); err != nil {
		return nil, err
	}
	texts, err = conn.Texts(ctx, s.read, query, args...)
	_, err = s.explain(err)
	return texts, err
}

// Deleted returns the deleted runs of which something may still be stored.
func (s *Store) Deleted(ctx context.Context) (map[store.Key]bool, error) {
	if err := s.isOpen(ctx); err != nil {
		return nil, err
	}
	marks, err := s.deletedRuns(ctx)
	if err != nil {
		_, err = s.explain(err)
		return nil, err
	}
	gone := map[store.Key]bool{}
	for key := range marks {
		gone[key] = true
	}
	return gone, nil
}

// TakeOver copies what an image has beside runs: the idempotency keys of runs that are
// here and, with all set, notes, the times when files were released, the credits of
// accounts, and records.
func (s *Store) TakeOver(ctx context.Context, from wal.Image, all bool) error {
	return s.beside(ctx, &from, func() error {
		queries := []string{s.t.takeKeys}
		if all {
			clear(s.accounts) // they may get entries
			queries = append(queries, s.t.takeNotes, s.t.takeReleases, s.t.takeEntries, s.t.takeEntryKeys, s.t.takeAccounts, s.t.takeRecords)
		}
		var errs []error
		if all {
			errs = append(errs, s.skipRevisions(s.t.takeRevisions))
		}
		for _, query := range queries {
			errs = append(errs, s.db.Once(query))
		}
		return errors.Join(errs...)
	})
}

// TakeFeedEnds makes the feeds of the accounts in an image go on here, at numbers that it
// cannot have used, also if its last changes are lost. A reader with a number from before is
// told that it is no longer kept. Call it before runs are written.
func (s *Store) TakeFeedEnds(ctx context.Context, from wal.Image) error {
	return s.beside(ctx, &from, func() error { return s.feedEnds(s.t.takeFeedEnds) })
}

// EndFeeds is TakeFeedEnds for a store that is an image itself: the changes that it has are
// no longer kept. Its records go on at revisions that were not used either.
func (s *Store) EndFeeds(ctx context.Context) error {
	if err := s.flushChanges(ctx); err != nil {
		return err
	}
	return s.beside(ctx, nil, func() error {
		if err := s.feedEnds(s.t.endFeeds); err != nil {
			return err
		}
		return errors.Join(s.db.Once(s.t.dropEndedFeeds), s.skipRevisions(s.t.skipRevisions))
	})
}

// skipRevisions makes the revisions of records go on where none was used.
func (s *Store) skipRevisions(query string) error {
	s.records.Reread()
	return s.db.Once(query, int64(records.Skipped))
}

// beside calls fn, which writes, with an image attached unless that is nil.
func (s *Store) beside(ctx context.Context, from *wal.Image, fn func() error) (err error) {
	if err := s.lockToWrite(ctx); err != nil {
		return err
	}
	defer s.w.Unlock()
	defer func() { _, err = s.explain(err) }()
	if from != nil {
		if err := s.db.Once(s.t.attachImage, filepath.Join(from.Dir, datadir.Database)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.db.Once(s.t.detachImage)) }()
	}
	return fn()
}

func (s *Store) feedEnds(query string) error {
	s.feed.Discard()
	return s.db.Once(query, int64(changes.Skipped), changes.NoChanges())
}
