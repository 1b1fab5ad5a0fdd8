// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/failpoint"
)

const (
	tmpDir    = "tmp"
	tmpPrefix = "put-"
	// maxDurable bounds how many synced directories are remembered.
	maxDurable = 100_000
)

// Put stores the content of r. When it returns, the bytes and their facts survive a
// power cut. Equal content of an account is stored once. The store keeps the name and
// type of the first Put; the result has those of this one where they are known. name
// and mimeType are hints of the caller: the name is only data, and the type counts only
// where the bytes show none.
func (s *Store) Put(ctx context.Context, account string, r io.Reader, name, mimeType string) (action.FileInfo, error) {
	none := action.FileInfo{}
	if s.broken.Load() {
		return none, fault.New(fault.StoreFailed, "the file store takes nothing more: an earlier sync of its disk failed")
	}
	name = CleanName(name)
	temp, f, err := s.createTemp()
	if err != nil {
		return none, err
	}
	// Only a rename gives the bytes their name. Until then only this call knows them.
	renamed := false
	defer func() {
		if !renamed {
			_ = s.root.Remove(temp)
		}
	}()
	most := s.usage.most(account, s.maxBytes)
	w := &writer{f: f, hash: sha256.New(), left: most}
	if err := s.fill(ctx, w, r); err != nil {
		_ = f.Close()
		if most < s.maxBytes && errors.Is(err, fault.FileTooLarge) {
			err = s.usage.larger(ctx, s, account, most)
		}
		return none, err
	}
	err = failpoint.Hit(failpoint.BlobWritten)
	if err == nil {
		err = s.synced(f.Sync())
	}
	if err == nil {
		err = failpoint.Hit(failpoint.BlobSynced)
	}
	if err != nil {
		_ = f.Close()
		return none, storageFault(err, "write a file of %d bytes", w.size)
	}
	hash := sumName(w.hash)
	p := placeOf(account, hash)
	rec := sidecar{Name: name, MimeType: detect(w.head, name, mimeType), Size: w.size, Sums: w.pieces.sums()}
	came := rec // what this call knows of the file
	s.inspectNew(ctx, p, f, &rec)
	if err := f.Close(); err != nil {
		return none, storageFault(err, "write a file of %d bytes", w.size)
	}

	lock := s.stripe(hash)
	lock.Lock()
	defer lock.Unlock()
	if err := s.mkdirs(p); err != nil {
		return none, err
	}
	if err := s.nameAccount(p, account); err != nil {
		return none, err
	}
	if !s.alreadyStored(ctx, p, w.size) {
		if err := s.name(ctx, account, temp, p, w.size); err != nil {
			return none, err
		}
		renamed = true
		if err := failpoint.Hit(failpoint.BlobRenamed); err != nil {
			return none, storageFault(err, "name file %s", hash)
		}
	}
	if err := s.stamp(p); err != nil {
		return none, err
	}
	changed := true
	if old, err := s.readSidecar(p); err == nil && old.Size == w.size {
		rec, changed = old.merge(rec)
		changed = changed || old.CRC32C == nil
	}
	if changed {
		if err := s.writeSidecar(p, rec); err != nil {
			return none, err
		}
	}
	if err := failpoint.Hit(failpoint.BlobFacts); err != nil {
		return none, storageFault(err, "record the facts of file %s", hash)
	}
	// Sync even if this call wrote nothing: the process that wrote it may have died
	// before its sync.
	if err := s.syncDir(p.shard); err != nil {
		return none, err
	}
	if err := failpoint.Hit(failpoint.BlobDone); err != nil {
		return none, storageFault(err, "store file %s", hash)
	}
	info := action.FileInfo{Hash: hash, Name: rec.Name, MimeType: rec.MimeType, Size: w.size, Extended: rec.Extended}
	if came.Name != "" {
		info.Name, info.MimeType = came.Name, came.MimeType
	}
	return info, nil
}

// name gives the bytes of a temporary file their name, if the quota of the account has room.
func (s *Store) name(ctx context.Context, account, temp string, p place, size int64) error {
	if damaged, err := s.regular(p); err == nil { // it is replaced
		size -= damaged.Size()
	}
	return s.usage.add(ctx, s, account, size, func() error {
		if err := s.root.Rename(temp, p.file()); err != nil {
			return storageFault(err, "name file %s", p.name)
		}
		return nil
	})
}

// fill copies r into the temporary file in pieces, so that a cancelled caller does not
// wait for the rest of a large upload.
func (s *Store) fill(ctx context.Context, w *writer, r io.Reader) error {
	const piece = 1 << 20
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := io.CopyN(w, r, piece)
		if w.err != nil {
			return storageFault(w.err, "write a file of more than %d bytes", w.size)
		}
		if w.left < 0 {
			return fault.New(fault.FileTooLarge, "the file has more than %d bytes, which is the limit of one file in the store", s.maxBytes)
		}
		if errors.Is(err, io.EOF) && n < piece {
			return nil
		}
		if err != nil {
			return err // of the caller's reader, as it is
		}
	}
}

// A writer hashes and counts bytes on their way to the disk and keeps the first ones.
type writer struct {
	f    *os.File
	hash hash.Hash
	head []byte
	size int64
	left int64
	// pieces sums the pieces up.
	pieces pieceSums
	err    error // of the disk, told apart from the source's
}

var errTooLarge = errors.New("file exceeds the limit")

func (w *writer) Write(p []byte) (int, error) {
	if w.left -= int64(len(p)); w.left < 0 {
		return 0, errTooLarge
	}
	if n := headBytes - len(w.head); n > 0 {
		w.head = append(w.head, p[:min(n, len(p))]...)
	}
	_, _ = w.hash.Write(p)
	w.pieces.write(p)
	n, err := w.f.Write(p)
	w.size += int64(n)
	w.err = err
	return n, err
}

// alreadyStored reports whether the store already has these bytes, undamaged. Storing the
// content again repairs a damaged copy.
func (s *Store) alreadyStored(ctx context.Context, p place, size int64) bool {
	f, have, err := s.openRegular(p)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return have == size && verify(ctx, f, size, p.name) == nil
}

func (s *Store) writeSidecar(p place, rec sidecar) error {
	data, err := rec.text()
	if err != nil {
		return fault.Wrap(fault.InternalError, err, "record the facts of file %s", p.name)
	}
	return s.writeSmall(p.sidecar(), data, "record the facts of file "+p.name)
}

// writeSmall writes a small file whole or not at all.
func (s *Store) writeSmall(at string, data []byte, why string) error {
	temp, f, err := s.createTemp()
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, s.synced(f.Sync()), f.Close()); err != nil {
		_ = s.root.Remove(temp)
		return storageFault(err, "%s", why)
	}
	if err := s.root.Rename(temp, at); err != nil {
		_ = s.root.Remove(temp)
		return storageFault(err, "%s", why)
	}
	return nil
}

// mkdirs makes the directories of a place durable before a file is stored in them. An
// existing one may have been made just now by another call, or by a process that died
// before its sync, so each process syncs each name once.
func (s *Store) mkdirs(p place) error {
	for _, step := range [][2]string{{".", p.account}, {p.account, p.shard}} {
		parent, dir := step[0], step[1]
		if err := s.root.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
			if err := s.wantDir(dir); err != nil {
				return err
			}
		} else if err != nil {
			return storageFault(err, "create a directory of the file store")
		} else {
			s.durable.Delete(dir)
		}
		if _, is := s.durable.Load(dir); !is {
			if err := s.syncDir(parent); err != nil {
				return err
			}
			if s.remembered.Add(1)%maxDurable == 0 {
				s.durable.Clear() // at worst they are synced again
			}
			s.durable.Store(dir, nil)
		}
	}
	return nil
}

// syncDir makes renames in a directory durable. Windows has no such call: its file
// systems journal names by themselves.
func (s *Store) syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := s.openBelow(dir, fs.ModeDir)
	if err != nil {
		return storageFault(err, "sync the file store")
	}
	if err := errors.Join(s.synced(d.Sync()), d.Close()); err != nil {
		return storageFault(err, "sync the file store")
	}
	return nil
}

// synced records a failed sync permanently. The kernel may have dropped the pages, and
// a second sync of them would report success (I21).
func (s *Store) synced(err error) error {
	if err != nil {
		s.broken.Store(true)
	}
	return err
}

func (s *Store) createTemp() (string, *os.File, error) {
	name := path.Join(tmpDir, tmpPrefix+rand.Text())
	f, err := s.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", nil, storageFault(err, "create a temporary file")
	}
	return name, f, nil
}

// sweep creates the directory of temporary files and removes the store's files from it.
func (s *Store) sweep() error {
	if err := s.root.Mkdir(tmpDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return storageFault(err, "create the directory of temporary files")
	}
	names, err := s.names(tmpDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, tmpPrefix) {
			continue
		}
		if err := s.root.Remove(path.Join(tmpDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return storageFault(err, "remove a temporary file")
		}
	}
	return nil
}

// storageFault gives an error of the disk the code that tells people what to do.
func storageFault(err error, format string, args ...any) error {
	var known *fault.Error
	if errors.As(err, &known) {
		return err
	}
	code := datadir.Code(err, fault.StoreFailed)
	if errors.Is(err, fs.ErrPermission) {
		code = fault.StoreReadOnly
	}
	return fault.Wrap(code, err, format+": "+reason(err), args...)
}

// reason returns the operating system's message without the path.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		err = le.Err
	}
	return strings.ReplaceAll(err.Error(), "%", "%%")
}
