// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
)

// An Image is a data directory with a database that was made out of a damaged one,
// and no log.
type Image struct {
	Dir string
	Way string // in which the log was read, for people
}

// Ways to read a damaged log.
const (
	untilDamage  = "up to the damage"
	intactFrames = "all pages that verify"
	everyFrame   = "all pages, also those that do not verify"
)

// Salvage makes databases out of that of a data directory, in directories of their
// own under to, which must be there: one for each way to read the log. Which of them
// has most of what is readable only its reader can tell. Nothing is changed in from,
// which is locked meanwhile; fault.StoreLocked names the process that has it.
func Salvage(ctx context.Context, from, to string) (images []Image, err error) {
	if err := datadir.Check(from); err != nil {
		return nil, dirFault(err, from)
	}
	lock, err := lockDir(from)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlockDir(lock)) }()
	for i, way := range []string{untilDamage, intactFrames, everyFrame} {
		im := Image{Dir: filepath.Join(to, "image-"+string(rune('1'+i))), Way: way}
		if err := os.Mkdir(im.Dir, 0o700); err != nil {
			return nil, dirFault(err, im.Dir)
		}
		if err := im.make(ctx, filepath.Join(from, datadir.Database)); err != nil {
			return nil, err
		}
		images = append(images, im)
	}
	return images, nil
}

// make copies a database and writes what is in its log over it.
func (im Image) make(ctx context.Context, database string) (err error) {
	path := filepath.Join(im.Dir, datadir.Database)
	if err := copyDatabase(ctx, database, path); err != nil {
		return err
	}
	db, err := datadir.Open(path, os.O_RDWR)
	if err != nil {
		return dirFault(err, path)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	f, err := openWAL(database)
	if err != nil || f == nil {
		return err
	}
	defer func() { _ = f.Close() }()
	w, err := newWAL(f)
	if err != nil || w == nil {
		return err
	}
	if !w.valid {
		if known, err := w.guess(db); err != nil || !known {
			return err
		}
	}
	last := 0
	if im.Way == untilDamage {
		st, err := w.scan(nil)
		if err != nil {
			return err
		}
		last = st.Frames
	}
	size := int64(0)
	w.every = im.Way == everyFrame
	_, err = w.scan(func(fr frame) error {
		if im.Way == untilDamage && fr.n > last {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if fr.size > 0 {
			size = int64(fr.size)
		}
		if int64(fr.page) > maxPages {
			return nil // its number was hit
		}
		_, err := db.WriteAt(fr.data, int64(fr.page-1)*int64(w.page))
		return err
	})
	if err == nil && size > 0 && size < maxPages {
		err = db.Truncate(size * int64(w.page))
	}
	if err == nil {
		err = db.Sync()
	}
	return err
}

// maxPages bounds what a page number may be: 16 TiB.
const maxPages = 1 << 31

func copyDatabase(ctx context.Context, from, to string) (err error) {
	in, err := datadir.Open(from, os.O_RDONLY)
	if err != nil {
		return dirFault(err, from)
	}
	defer func() { _ = in.Close() }()
	out, err := datadir.Open(to, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return dirFault(err, to)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch _, err := io.CopyN(out, in, 64<<20); {
		case errors.Is(err, io.EOF):
			return nil
		case isFull(err):
			return fault.Wrap(fault.StoreFull, err, "no space is left for %s: free some and try again", to)
		case err != nil:
			return fault.Wrap(fault.StoreFailed, err, "cannot copy %s: %v", from, err)
		}
	}
}
