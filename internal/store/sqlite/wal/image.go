// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/store/sqlite/directory"
)

// An Image is a data directory with a database that was made from a damaged one, and
// without a log.
type Image struct {
	Dir string
	Way string // how the log was read, for people
}

// Ways to read a damaged log.
const (
	untilDamage  = "up to the damage"
	intactFrames = "all pages that verify"
	everyFrame   = "all pages, also those that do not verify"
)

// Salvage makes databases from that of a data directory, one for each way to read the
// log, each in a directory of its own under to, which must exist. Only reading them
// tells which one has the most. Salvage changes nothing in from, which it locks
// meanwhile; fault.StoreLocked names the process that holds it.
func Salvage(ctx context.Context, from, to string) (images []Image, err error) {
	if err := datadir.Check(from); err != nil {
		return nil, directory.Fault(err, from)
	}
	lock, err := directory.Lock(from)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, directory.Unlock(lock)) }()
	for i, way := range []string{untilDamage, intactFrames, everyFrame} {
		im := Image{Dir: filepath.Join(to, "image-"+string(rune('1'+i))), Way: way}
		if err := os.Mkdir(im.Dir, 0o700); err != nil {
			return nil, directory.Fault(err, im.Dir)
		}
		if err := im.make(ctx, filepath.Join(from, datadir.Database)); err != nil {
			return nil, err
		}
		images = append(images, im)
	}
	return images, nil
}

// make copies a database and writes the pages of its log over it.
func (im Image) make(ctx context.Context, database string) (err error) {
	path := filepath.Join(im.Dir, datadir.Database)
	if err := copyDatabase(ctx, database, path); err != nil {
		return err
	}
	db, err := datadir.Open(path, os.O_RDWR)
	if err != nil {
		return directory.Fault(err, path)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	w, err := Open(database)
	if err != nil {
		return directory.Fault(err, database+"-wal")
	}
	if w == nil {
		return nil
	}
	defer w.Close()
	if !w.Valid {
		if known, err := w.Guess(db); err != nil || !known {
			return err
		}
		if _, _, err := w.Newest(); err != nil { // for the order of bytes
			return err
		}
	}
	return im.apply(ctx, w, db)
}

// apply writes pages of the log over those of a database.
func (im Image) apply(ctx context.Context, w *Log, db *os.File) error {
	info, err := db.Stat()
	if err != nil {
		return fault.Wrap(fault.StoreFailed, err, "cannot examine the copy: %v", err)
	}
	// A commit can have enlarged the database only by the pages in the log. A larger
	// number is damaged.
	most := uint32(min(info.Size()/int64(w.Page)+int64(w.Frames), math.MaxUint32))
	last, size, err := im.end(w, most)
	if err != nil {
		return err
	}
	w.Every = im.Way == everyFrame
	_, err = w.Scan(func(fr Frame) error {
		if fr.N > last || fr.Page == 0 || fr.Page > most {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := db.WriteAt(fr.Data, int64(fr.Page-1)*int64(w.Page))
		return err
	})
	if err == nil && size > 0 {
		err = db.Truncate(int64(size) * int64(w.Page))
	}
	if err == nil {
		err = db.Sync()
	}
	return err
}

// end returns the last frame to be written, which ends a commit, and the size of the
// database in pages after it. What an unfinished commit has left at the end of the log
// does not belong to the database: all ways but one end with the last whole commit.
func (im Image) end(w *Log, most uint32) (last int, size uint32, err error) {
	w.Every = true
	whole := true // all frames of the commit being read verify
	st, err := w.Scan(func(fr Frame) error {
		whole = whole && fr.Intact
		if fr.Size > 0 && fr.Own {
			if fr.Size <= most && (whole || im.Way == everyFrame) {
				last, size = fr.N, fr.Size
			}
			whole = true
		}
		return nil
	})
	if im.Way == untilDamage {
		last, size = st.Frames, st.Size
	}
	return last, size, err
}

func copyDatabase(ctx context.Context, from, to string) (err error) {
	in, err := datadir.Open(from, os.O_RDONLY)
	if err != nil {
		return directory.Fault(err, from)
	}
	defer func() { _ = in.Close() }()
	out, err := datadir.Open(to, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return directory.Fault(err, to)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch _, err := io.CopyN(out, in, 64<<20); {
		case errors.Is(err, io.EOF):
			return nil
		case directory.Full(err):
			return fault.Wrap(fault.StoreFull, err, "no space is left for %s: free some and try again", to)
		case err != nil:
			return fault.Wrap(fault.StoreFailed, err, "cannot copy %s: %v", from, err)
		}
	}
}
