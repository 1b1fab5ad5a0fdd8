// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/store/sqlite/directory"
)

// stage is the directory, in the one that is restored, in which the database is made ready.
const stage = ".restore"

// Verify reads everything that belongs to a backup and compares it with what was recorded. It
// returns what is wrong, at most 100 problems. name is a backup, or a directory of backups, of
// which the newest is verified. Nothing is changed.
func Verify(ctx context.Context, name string, progress func(Progress)) (m *Manifest, problems []string, err error) {
	d, id, err := find(name)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if m, err = d.manifest(id); err != nil {
		return nil, nil, err
	}
	problems, err = d.verify(ctx, m, progress)
	return m, problems, err
}

func (d *dir) verify(ctx context.Context, m *Manifest, progress func(Progress)) (problems []string, err error) {
	complain := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(problems) < maxDamaged {
			problems = append(problems, fault.Message(err))
		}
		return nil
	}
	var listed bool
	for _, part := range []struct {
		name string
		want Part
	}{{datadir.Database, m.Database}, {listName, m.List}} {
		err := d.verifyPart(ctx, m.ID, part.name, part.want, progress)
		if listed = part.name == listName && err == nil; err == nil {
			continue
		}
		if err := complain(err); err != nil {
			return nil, err
		}
	}
	if !listed {
		return problems, nil
	}
	if _, err := d.root.Lstat(datadir.Files); m.Files > 0 && errors.Is(err, fs.ErrNotExist) { // opening would create it
		return problems, complain(fault.New(fault.StoreCorrupt, "the directory %s is missing, with the %d files of the backup", filepath.Join(d.path, datadir.Files), m.Files))
	}
	if m.Files == 0 {
		return problems, d.each(ctx, m, func(entry) error { return nil })
	}
	pool, err := d.files(blob.Config{KeepPartial: true})
	if err != nil {
		return problems, complain(err)
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	var read int64
	err = d.each(ctx, m, func(e entry) error {
		n, err := pool.Verify(ctx, e.Account, e.Hash)
		if err == nil && n != e.Size {
			err = fmt.Errorf("file %s has %d bytes, not %d", e.Hash, n, e.Size)
		}
		if err != nil {
			return complain(fmt.Errorf("%w; remove it from %s, and the next backup copies it again", err, filepath.Join(d.path, datadir.Files)))
		}
		read += n
		progress(Progress{What: "files", Done: read, Total: m.FileBytes})
		return nil
	})
	if errors.Is(err, fault.StoreCorrupt) {
		err = complain(err)
	}
	return problems, err
}

// verifyPart compares a part of a backup with its manifest.
func (d *dir) verifyPart(ctx context.Context, id, name string, want Part, progress func(Progress)) error {
	f, err := d.open(id, name)
	if err != nil {
		return err
	}
	got, err := copyPart(ctx, io.Discard, f, want.Size, func(n int64) { progress(Progress{What: "database", Done: n, Total: want.Size}) })
	if err = errors.Join(err, f.Close()); err != nil {
		return d.odd(path.Join(id, name), err)
	}
	if got != want {
		return d.damaged(id, name, "is not as it was written")
	}
	return nil
}

// copyPart copies at most one byte more than there should be.
func copyPart(ctx context.Context, w io.Writer, r io.Reader, size int64, progress func(int64)) (Part, error) {
	sum := sha256.New()
	n, err := copyBytes(ctx, io.MultiWriter(w, sum), io.LimitReader(r, size+1), progress)
	if err != nil {
		return Part{}, err
	}
	return Part{n, hex.EncodeToString(sum.Sum(nil))}, nil
}

// copyBytes copies from r to w until r ends. progress is called with the bytes copied so far.
func copyBytes(ctx context.Context, w io.Writer, r io.Reader, progress func(int64)) (done int64, err error) {
	buf := make([]byte, 1<<20)
	for {
		if ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		n, err := r.Read(buf)
		if _, werr := w.Write(buf[:n]); werr != nil {
			return done, werr
		}
		done += int64(n)
		progress(done)
		if errors.Is(err, io.EOF) {
			return done, nil
		}
		if err != nil {
			return done, err
		}
	}
}

// Restore makes a data directory of a backup. name is a backup, or a directory of backups, of
// which the newest is taken; to is a directory that is empty or does not exist. All of the
// backup is verified before anything is written, and again while it is copied. After an error
// to is as it was before.
//
// The numbers of changes go on far above those of the backup. A reader of the feed of the
// original may have seen numbers from after the backup, and is told that its place in the feed
// is no longer kept; it would otherwise miss what the restored directory numbers alike.
func Restore(ctx context.Context, name, to string, progress func(Progress)) (m *Manifest, err error) {
	d, id, err := find(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if m, err = d.manifest(id); err != nil {
		return nil, err
	}
	if m.Schema > node.Schema {
		return nil, fault.New(fault.StoreNewer, "a newer release of Roux (%q) wrote the backup %s (schema version %d, this release knows %d): use that release", m.Roux, name, m.Schema, node.Schema)
	}
	if err := wantEmpty(to); err != nil { // before the backup is read
		return nil, err
	}
	problems, err := d.verify(ctx, m, progress)
	if err == nil && len(problems) > 0 {
		err = fault.New(fault.StoreCorrupt, "the backup %s is damaged, and nothing was restored: %s. `roux backup list %s` shows older ones", filepath.Join(d.path, id), problems[0], d.path)
	}
	if err != nil {
		return nil, err
	}
	r := &restoring{ctx: ctx, dir: d, m: m, progress: progress}
	if err := r.begin(to); err != nil {
		return nil, err
	}
	err = r.copy()
	if err != nil {
		return nil, errors.Join(diskError(r.to, err), r.undo())
	}
	return m, errors.Join(r.root.Close(), directory.Unlock(r.lock))
}

// wantEmpty refuses a directory that is not empty.
func wantEmpty(to string) error {
	if to == "" {
		return fault.New(fault.Usage, "--data: want the directory to restore into")
	}
	f, err := os.Open(to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return diskError(to, err)
	}
	names, err := f.Readdirnames(1)
	if err := f.Close(); err != nil {
		return diskError(to, err)
	}
	switch {
	case len(names) > 0:
		return fault.New(fault.Usage, "%s is not empty (it has %q): restore into a new directory, with --data DIR", to, names[0])
	case !errors.Is(err, io.EOF):
		return fault.New(fault.Usage, "%s is not a directory: restore into a new one, with --data DIR", to)
	}
	return nil
}

// A restoring is a data directory that is being made of a backup.
type restoring struct {
	ctx      context.Context
	dir      *dir
	m        *Manifest
	progress func(Progress)
	to       string
	made     bool // the directory did not exist
	root     *os.Root
	lock     *os.File
}

// begin makes the directory, closes it to others and locks it.
func (r *restoring) begin(to string) (err error) {
	if r.to, err = filepath.Abs(to); err != nil {
		return fault.New(fault.Usage, "--data %q: want a path", to)
	}
	if _, err := os.Lstat(r.to); errors.Is(err, fs.ErrNotExist) {
		r.made = true
	}
	if err := os.MkdirAll(r.to, 0o700); err != nil {
		return diskError(r.to, err)
	}
	if err := datadir.Secure(r.to); err != nil {
		return diskError(r.to, err)
	}
	if r.lock, err = directory.Lock(r.to); err != nil {
		return err
	}
	if r.root, err = os.OpenRoot(r.to); err == nil {
		err = r.wantLockAlone()
	}
	if err != nil {
		return errors.Join(diskError(r.to, err), directory.Unlock(r.lock))
	}
	return nil
}

// wantLockAlone checks under the lock that nobody has used the directory meanwhile.
func (r *restoring) wantLockAlone() error {
	f, err := r.root.Open(".")
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if len(names) != 1 || names[0] != datadir.Lock {
		return fault.New(fault.Usage, "%s is not empty any more: restore into a new directory, with --data DIR", r.to)
	}
	return nil
}

// copy copies the files and then the database, whose name makes it a data directory.
func (r *restoring) copy() error {
	if free, ok := directory.Free(r.to); ok && free < r.m.Database.Size+r.m.FileBytes {
		return fault.New(fault.StoreFull, "the backup has %d MB, and %d MB are free under %s: free some space", (r.m.Database.Size+r.m.FileBytes)>>20, free>>20, r.to)
	}
	if err := r.root.Mkdir(stage, 0o700); err != nil {
		return err
	}
	if err := r.copyDatabase(); err != nil {
		return err
	}
	if err := endFeeds(r.ctx, filepath.Join(r.to, stage)); err != nil {
		return err
	}
	if err := r.copyFiles(); err != nil {
		return err
	}
	if err := r.ctx.Err(); err != nil {
		return context.Cause(r.ctx)
	}
	if err := r.root.Rename(stage+"/"+datadir.Database, datadir.Database); err != nil {
		return err
	}
	if err := r.root.RemoveAll(stage); err != nil {
		return err
	}
	return errors.Join(datadir.Sync(r.to), datadir.Sync(filepath.Dir(r.to)))
}

func (r *restoring) copyDatabase() error {
	from, err := r.dir.open(r.m.ID, datadir.Database)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := r.root.OpenFile(stage+"/"+datadir.Database, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	size := r.m.Database.Size
	got, err := copyPart(r.ctx, to, from, size, func(n int64) { r.progress(Progress{What: "database", Done: n, Total: size}) })
	if err == nil && got != r.m.Database {
		err = r.dir.damaged(r.m.ID, datadir.Database, "has changed since it was verified")
	}
	if err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}

// endFeeds opens the restored database for the first time. It is whole in one file again
// when it is closed.
func endFeeds(ctx context.Context, dir string) error {
	st, err := node.OpenStore(ctx, dir)
	if err != nil {
		return err
	}
	return errors.Join(st.EndFeeds(ctx), st.Close())
}

func (r *restoring) copyFiles() (err error) {
	if r.m.Files == 0 {
		return nil
	}
	pool, err := r.dir.files(blob.Config{KeepPartial: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	files, err := blob.Open(blob.Config{Dir: filepath.Join(r.to, datadir.Files)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	var done int64
	return r.dir.each(r.ctx, r.m, func(e entry) error {
		n, err := files.Take(r.ctx, pool, e.Account, e.Hash)
		done += n
		r.progress(Progress{What: "files", Done: done, Total: r.m.FileBytes})
		return err
	})
}

// undo removes everything that was made.
func (r *restoring) undo() error {
	var errs []error
	for _, name := range []string{stage, datadir.Files, datadir.Database} {
		errs = append(errs, r.root.RemoveAll(name))
	}
	errs = append(errs, directory.Unlock(r.lock), r.root.Remove(datadir.Lock), r.root.Close())
	if r.made {
		errs = append(errs, os.Remove(r.to))
	}
	return errors.Join(errs...)
}
