// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/snapshot"
)

// Schema is the version of the schema that this release writes. It reads older ones too.
const Schema = schemaVersion

// Snapshot implements store.Snapshotter.
func (s *Store) Snapshot(ctx context.Context, progress func(done, total int64)) (*store.Snapshot, error) {
	s.snapshots.Lock()
	defer s.snapshots.Unlock()
	return snapshot.Make(ctx, s, s.path, progress)
}

// CopyBegin implements snapshot.Source. Nothing but the finished copy is used, so it needs
// neither a journal nor a sync.
func (s *Store) CopyBegin(ctx context.Context, path string) (err error) {
	if err := s.lockToWrite(ctx); err != nil {
		return err
	}
	defer s.w.Unlock()
	s.snapshot, err = s.db.Copy(dsnOf(path, "journal_mode(OFF)", "synchronous(OFF)", "cache_size(-256)"))
	return err
}

// CopySome implements snapshot.Source.
func (s *Store) CopySome(ctx context.Context, pages int32) (more bool, done, total int64, err error) {
	if err := s.lockToWrite(ctx); err != nil {
		return false, 0, 0, err
	}
	defer s.w.Unlock()
	more, err = s.snapshot.Step(pages)
	done, total = s.snapshot.Progress()
	return more, done, total, err
}

// CopyEnd implements snapshot.Source.
func (s *Store) CopyEnd() error {
	s.w.Lock()
	defer s.w.Unlock()
	return s.endSnapshot()
}

// endSnapshot closes the file of a snapshot that is being made. The caller holds w. Close
// calls it too, because a connection with a copy under way cannot be closed.
func (s *Store) endSnapshot() error {
	if s.snapshot == nil {
		return nil
	}
	err := s.snapshot.Finish()
	s.snapshot = nil
	return err
}

// Describe implements snapshot.Source. The copy is read without locks, because nothing writes
// to it.
func (s *Store) Describe(ctx context.Context, path string, snap *store.Snapshot) (err error) {
	db, err := sql.Open("sqlite", dsnOf(path, "query_only(1)", readerCache)+"&immutable=1")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if err := db.QueryRowContext(ctx, s.t.schemaVersion).Scan(&snap.Schema); err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	return db.QueryRowContext(ctx, s.t.countRuns).Scan(&snap.Runs)
}
