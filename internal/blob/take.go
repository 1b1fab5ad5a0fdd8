// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// Take copies a file of another store with the record of its name and type, and returns how
// many bytes it wrote: none if it has a file of that hash and size. The hash is verified
// while the file is copied. When Take returns, the file survives a power cut.
func (s *Store) Take(ctx context.Context, from *Store, account, hash string) (copied int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, context.Cause(ctx)
	}
	if !ValidHash(hash) {
		return 0, notFound(hash)
	}
	p := placeOf(account, hash)
	lock := s.stripe(hash)
	lock.Lock()
	defer lock.Unlock()
	src, size, err := from.openRegular(p)
	if err != nil {
		return 0, missing(err, hash)
	}
	defer func() { _ = src.Close() }()
	if err := s.mkdirs(p); err != nil {
		return 0, err
	}
	if err := s.nameAccount(p, account); err != nil {
		return 0, err
	}
	if have, err := s.regular(p); err != nil || have.Size() != size {
		if err := s.copyBytes(ctx, src, p, size); err != nil {
			return 0, err
		}
		copied = size
	}
	// A file without a record is whole: its type follows from its bytes.
	facts, err := from.readSidecar(p)
	if err == nil {
		text, err := facts.text()
		if err != nil {
			return 0, fault.Wrap(fault.InternalError, err, "record the facts of file %s", hash)
		}
		if have, err := s.readSmall(p.sidecar()); err != nil || !bytes.Equal(have, text) {
			if err := s.writeSidecar(p, facts); err != nil {
				return 0, err
			}
		}
	}
	// Also if nothing was written: the process that wrote it may have died before its sync.
	return copied, s.syncDir(p.shard)
}

// copyBytes writes the bytes of an open file under the name of a place, if they have its hash.
func (s *Store) copyBytes(ctx context.Context, src io.Reader, p place, size int64) error {
	temp, f, err := s.createTemp()
	if err != nil {
		return err
	}
	w := &writer{f: f, hash: sha256.New(), left: size}
	err = s.fill(ctx, w, src)
	switch {
	case errors.Is(err, fault.FileTooLarge):
		err = damaged(p.name) // it grew
	case err == nil && (w.size != size || sumName(w.hash) != p.name):
		err = damaged(p.name)
	case err == nil:
		err = s.synced(f.Sync())
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = s.root.Rename(temp, p.file())
	}
	if err != nil {
		_ = s.root.Remove(temp)
		return storageFault(err, "copy file %s", p.name)
	}
	return nil
}

// Prune removes every file that keep does not want, and returns how many it removed and their
// size. Nothing else may use the store meanwhile.
func (s *Store) Prune(ctx context.Context, keep func(account, hash string) bool) (files int, size int64, err error) {
	_, err = s.Walk(ctx, "", -1, func(e Entry) error {
		if keep(e.Account, e.Info.Hash) {
			return nil
		}
		p := placeOf(e.Account, e.Info.Hash)
		if err := s.root.Remove(p.sidecar()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return storageFault(err, "remove file %s", p.name)
		}
		if err := s.root.Remove(p.file()); err != nil {
			return storageFault(err, "remove file %s", p.name)
		}
		files++
		size += e.Info.Size
		return nil
	})
	return files, size, err
}

// Verify reads a file to its end and reports whether its bytes have their hash. It returns
// the size.
func (s *Store) Verify(ctx context.Context, account, hash string) (size int64, err error) {
	return s.readWhole(ctx, Entry{Account: account, Info: action.FileInfo{Hash: hash}})
}
