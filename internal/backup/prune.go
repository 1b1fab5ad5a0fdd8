// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/store/sqlite/directory"
)

// A Pruned says what was removed from a directory of backups.
type Pruned struct {
	Backups []string `json:"backups"`
	Files   int      `json:"files"`
	Bytes   int64    `json:"bytes"` // of files
	Kept    int      `json:"kept"`  // backups
}

// Prune removes all backups but the newest keep, and then the files that no backup has any
// more. A backup whose manifest or list is damaged stops it, because it is not known which
// files belong to it.
func Prune(ctx context.Context, name string, keep int) (out Pruned, err error) {
	if keep < 1 {
		return out, fault.New(fault.Usage, "--keep %d: want at least 1; to remove all backups, remove the directory", keep)
	}
	d, err := openDir(name)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	lock, err := directory.Lock(d.path)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, directory.Unlock(lock)) }()
	ids, err := d.ids()
	if err != nil {
		return out, err
	}
	drop := max(len(ids)-keep, 0)
	type file struct{ account, hash string }
	kept := map[file]struct{}{}
	for _, id := range ids[drop:] { // before anything is removed
		m, err := d.manifest(id)
		if err == nil {
			err = d.verifyPart(ctx, id, listName, m.List, func(Progress) {})
		}
		if err == nil {
			err = d.each(ctx, m, func(e entry) error {
				kept[file{e.Account, e.Hash}] = struct{}{}
				return nil
			})
		}
		if err != nil {
			return out, err
		}
	}
	out.Kept = len(ids) - drop
	for _, id := range ids[:drop] {
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		// A backup that is removed in part has no name that counts.
		if err := errors.Join(d.clear(), d.root.Rename(id, partial), datadir.Sync(d.path), d.clear()); err != nil {
			return out, diskError(d.path, err)
		}
		out.Backups = append(out.Backups, filepath.Join(d.path, id))
	}
	pool, err := d.files(blob.Config{})
	if err != nil {
		return out, diskError(d.path, err)
	}
	out.Files, out.Bytes, err = pool.Prune(ctx, func(account, hash string) bool {
		_, is := kept[file{account, hash}]
		return is
	})
	return out, errors.Join(err, pool.Close())
}
