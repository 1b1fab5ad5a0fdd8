// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
	"github.com/roux-engine/roux/internal/store/sqlite/directory"
)

// A snapshot is copied between commits, snapshotPages at a time. A commit waits for one such
// piece at most, because each is followed by a pause of its own length, at least
// snapshotPause. When all pages are copied that there were, those are next that commits have
// added meanwhile, in pieces of twice the size, and so on. So a snapshot ends even if the
// database grows faster than the first pieces are copied.
const (
	snapshotPages    = 32
	maxSnapshotPages = 1 << 20
	snapshotPause    = time.Millisecond
	// snapshotSpare is how much space a snapshot leaves to the commits on the same disk.
	snapshotSpare = 64 << 20
)

// Schema is the version of the schema that this release writes. It reads older ones too.
const Schema = schemaVersion

// Snapshot implements store.Snapshotter. The copy is made in the data directory and not where
// the caller wants it: commits write to it as well while it is made, and a slow or absent
// disk elsewhere must not hold them up.
func (s *Store) Snapshot(ctx context.Context, progress func(done, total int64)) (_ *store.Snapshot, err error) {
	s.snapshots.Lock()
	defer s.snapshots.Unlock()
	dir := filepath.Dir(s.path)
	path := filepath.Join(dir, datadir.Copy)
	defer func() {
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			_, err = conn.Explain(path, err)
			err = errors.Join(err, removeCopy(path))
		}
	}()
	size, err := s.Size(ctx)
	if err != nil {
		return nil, err
	}
	if free, ok := directory.Free(dir); ok && free < size+snapshotSpare {
		return nil, fault.New(fault.StoreFull, "a snapshot of %s needs %d MB beside it until it is copied, and %d MB are free: free some space", s.path, (size+snapshotSpare)>>20, free>>20)
	}
	// SQLite gives a file that it creates the mode of the umask.
	if err := removeCopy(path); err != nil {
		return nil, err
	}
	f, err := datadir.Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, directory.Fault(err, path)
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	if err := s.copyTo(ctx, path, progress); err != nil {
		return nil, err
	}
	snap := &store.Snapshot{}
	if err := s.describe(ctx, path, snap); err != nil {
		return nil, err
	}
	if f, err = datadir.Open(path, os.O_RDONLY); err != nil {
		return nil, directory.Fault(err, path)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	snap.Size, snap.ReadCloser = info.Size(), &snapshotFile{f, path}
	return snap, nil
}

// copyTo copies the database into an empty file.
func (s *Store) copyTo(ctx context.Context, path string, progress func(done, total int64)) error {
	if err := s.lockToWrite(ctx); err != nil {
		return err
	}
	var err error
	// Nothing but the finished copy is used, so it needs neither a journal nor a sync.
	s.snapshot, err = s.db.Copy(dsnOf(path, "journal_mode(OFF)", "synchronous(OFF)", "cache_size(-256)"))
	s.w.Unlock()
	if err != nil {
		return err
	}
	pages, round := int32(snapshotPages), int64(0)
	for more := true; more; {
		begin := time.Now()
		var done, total int64
		if more, done, total, err = s.copySome(ctx, pages); err != nil {
			break
		}
		progress(done, total)
		if round == 0 {
			round = total
		} else if done >= round && pages < maxSnapshotPages {
			round, pages = total, 2*pages
		}
		if more && !sleep(ctx, max(time.Since(begin), snapshotPause)) {
			err = context.Cause(ctx)
			break
		}
	}
	s.w.Lock()
	defer s.w.Unlock()
	return errors.Join(err, s.endSnapshot())
}

// copySome copies the next pages between two commits, and reports whether there are more.
func (s *Store) copySome(ctx context.Context, pages int32) (more bool, done, total int64, err error) {
	if err := s.lockToWrite(ctx); err != nil {
		return false, 0, 0, err
	}
	defer s.w.Unlock()
	more, err = s.snapshot.Step(pages)
	done, total = s.snapshot.Progress()
	return more, done, total, err
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

// describe fills in what a copy holds. It is read without locks, because nothing writes to it.
func (s *Store) describe(ctx context.Context, path string, snap *store.Snapshot) (err error) {
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

// A snapshotFile removes its file when it is closed.
type snapshotFile struct {
	*os.File
	path string
}

func (f *snapshotFile) Close() error { return errors.Join(f.File.Close(), removeCopy(f.path)) }

func removeCopy(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return directory.Fault(err, path)
	}
	return nil
}

// sleep waits for d and reports whether ctx is still valid.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
