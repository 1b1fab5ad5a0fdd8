// SPDX-License-Identifier: Apache-2.0

// Package snapshot copies a database while commits are made to it.
//
// It decides how much is copied between two commits, where the copy is kept until it is
// read, and what is said of it. It opens no database for writing: the store that owns it
// copies pages when it is asked.
package snapshot

import (
	"context"
	"errors"
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

// A snapshot is copied between commits, pagesAtOnce at a time. A commit waits for one such
// piece at most, because each is followed by a pause of its own length, at least pause. When
// all pages are copied that there were, those are next that commits have added meanwhile, in
// pieces of twice the size, and so on. So a snapshot ends even if the database grows faster
// than the first pieces are copied.
const (
	pagesAtOnce = 32
	maxPages    = 1 << 20
	pause       = time.Millisecond
	// spare is how much space a snapshot leaves to the commits on the same disk.
	spare = 64 << 20
)

// A Source is the store of a database.
type Source interface {
	// Size is about how many bytes the database has.
	Size(ctx context.Context) (int64, error)
	// CopyBegin begins to copy the database into an empty file.
	CopyBegin(ctx context.Context, path string) error
	// CopySome copies the next pages between two commits, and reports whether there are more.
	CopySome(ctx context.Context, pages int32) (more bool, done, total int64, err error)
	// CopyEnd closes the file, whether or not everything was copied.
	CopyEnd() error
	// Describe fills in what a copy holds.
	Describe(ctx context.Context, path string, snap *store.Snapshot) error
}

// Make copies a database. The copy is made in the data directory and not where the caller
// wants it: commits write to it as well while it is made, and a slow or absent disk elsewhere
// must not hold them up. One is made at a time.
func Make(ctx context.Context, src Source, database string, progress func(done, total int64)) (_ *store.Snapshot, err error) {
	dir := filepath.Dir(database)
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
	size, err := src.Size(ctx)
	if err != nil {
		return nil, err
	}
	if free, ok := directory.Free(dir); ok && free < size+spare {
		return nil, fault.New(fault.StoreFull, "a snapshot of %s needs %d MB beside it until it is copied, and %d MB are free: free some space", database, (size+spare)>>20, free>>20)
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
	if err := copyTo(ctx, src, path, progress); err != nil {
		return nil, err
	}
	snap := &store.Snapshot{}
	if err := src.Describe(ctx, path, snap); err != nil {
		return nil, err
	}
	if f, err = datadir.Open(path, os.O_RDONLY); err != nil {
		return nil, directory.Fault(err, path)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	snap.Size, snap.ReadCloser = info.Size(), &file{f, path}
	return snap, nil
}

// copyTo copies the database into an empty file.
func copyTo(ctx context.Context, src Source, path string, progress func(done, total int64)) error {
	if err := src.CopyBegin(ctx, path); err != nil {
		return err
	}
	pages, round := int32(pagesAtOnce), int64(0)
	var err error
	for more := true; more; {
		begin := time.Now()
		var done, total int64
		if more, done, total, err = src.CopySome(ctx, pages); err != nil {
			break
		}
		progress(done, total)
		if round == 0 {
			round = total
		} else if done >= round && pages < maxPages {
			round, pages = total, 2*pages
		}
		if more && !sleep(ctx, max(time.Since(begin), pause)) {
			err = context.Cause(ctx)
			break
		}
	}
	return errors.Join(err, src.CopyEnd())
}

// A file is removed when it is closed.
type file struct {
	*os.File
	path string
}

func (f *file) Close() error { return errors.Join(f.File.Close(), removeCopy(f.path)) }

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
