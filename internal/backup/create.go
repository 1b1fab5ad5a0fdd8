// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/directory"
)

// A Source is an open data directory. All fields are required but Keep.
type Source struct {
	Dir   string
	Store store.Snapshotter
	Files *blob.Store
	// Keep calls a function during which no file is removed. Default: nothing removes files.
	Keep    func(fn func() error) error
	Version string // of this build
	Now     func() time.Time
}

// Create makes a backup of a data directory in the directory named by to, which is created if
// it does not exist. Everything that was committed before the call is in the backup, and
// nothing that was committed after its return. When Create returns, the backup is on stable
// storage. After an error, or a crash, there is no backup; files that were copied stay for the
// next one.
//
// Files are copied before the database and again after it. The first pass takes what there is
// without keeping anything from being removed. The second finds the few that were stored
// meanwhile. A run in the database names only files that were stored before the database was
// copied, and from then until the end of the second pass no file is removed, so the backup has
// every file that a run in it names.
func Create(ctx context.Context, src Source, to string, progress func(Progress)) (m *Manifest, err error) { //nolint:gocritic // called once
	d, err := makeDir(src.Dir, to)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	lock, err := directory.Lock(d.path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, directory.Unlock(lock)) }()
	pool, err := d.files(blob.Config{})
	if err != nil {
		return nil, diskError(d.path, err)
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	c := &creation{Source: src, ctx: ctx, dir: d, pool: pool, progress: progress, m: Manifest{Format: format, Roux: src.Version, Source: src.Dir, CreatedAt: src.Now().UTC()}}
	if c.Keep == nil {
		c.Keep = func(fn func() error) error { return fn() }
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.clear())
		}
	}()
	if err := errors.Join(d.clear(), d.root.Mkdir(partial, 0o700)); err != nil {
		return nil, diskError(d.path, err)
	}
	if err := c.copyFiles(func(entry) error { return nil }); err != nil {
		return nil, err
	}
	if err := c.Keep(c.copyAll); err != nil {
		return nil, err
	}
	return &c.m, c.finish()
}

// makeDir opens the directory for backups, and creates it if it does not exist.
func makeDir(source, to string) (*dir, error) {
	at, err := filepath.Abs(to)
	if err != nil || to == "" {
		return nil, fault.New(fault.Usage, "--to %q: want a directory", to)
	}
	if datadir.LiesIn(at, source) {
		return nil, fault.New(fault.Usage, "--to %s: it lies in the data directory %s, and would be lost with it: name another directory", to, source)
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, diskError(at, err)
	}
	d, err := openDir(at)
	if err != nil {
		return nil, err
	}
	info, err := d.root.Stat(".")
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o002 != 0 {
		err = fault.New(fault.Usage, "--to %s: everybody may write there (mode %04o): name a directory of your own", to, info.Mode().Perm())
	}
	if err != nil {
		return nil, errors.Join(diskError(at, err), d.Close())
	}
	return d, nil
}

// clear removes what is left of a backup that was not completed.
func (d *dir) clear() error {
	if err := d.root.RemoveAll(partial); err != nil {
		return diskError(d.path, err)
	}
	return nil
}

// A creation is a backup that is being made.
type creation struct {
	Source
	ctx      context.Context
	dir      *dir
	pool     *blob.Store
	progress func(Progress)
	m        Manifest
	copied   int64 // bytes of files
}

// copyFiles copies the files that the pool does not have, and calls fn with every one that it
// has then.
func (c *creation) copyFiles(fn func(entry) error) error {
	c.m.Damaged = nil
	_, err := c.Files.Walk(c.ctx, "", -1, func(f blob.Entry) error {
		n, err := c.pool.Take(c.ctx, c.Files, f.Account, f.Info.Hash)
		switch {
		case errors.Is(err, fault.FileNotFound):
			return nil // removed meanwhile
		case errors.Is(err, fault.FileInvalid):
			// The runs that name it cannot read it here either. Everything else is worth
			// keeping.
			if len(c.m.Damaged) < maxDamaged {
				c.m.Damaged = append(c.m.Damaged, f.Info.Hash)
			}
			return nil
		case err != nil:
			return err
		}
		if n > 0 {
			c.copied += n
			c.progress(Progress{What: "files", Done: c.copied})
		}
		return fn(entry{f.Account, f.Info.Hash, f.Info.Size})
	})
	return err
}

// copyAll copies the database and then the files that were stored meanwhile. No file is
// removed while it runs.
func (c *creation) copyAll() error {
	if err := c.copyDatabase(); err != nil {
		return err
	}
	list, err := c.dir.create(path.Join(partial, listName))
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(list, 256<<10)
	err = c.copyFiles(func(e entry) error {
		line, err := e.line()
		if err != nil {
			return err
		}
		c.m.Files++
		c.m.FileBytes += e.Size
		_, err = w.Write(line)
		return err
	})
	c.m.List, err = list.finish(errors.Join(err, w.Flush()))
	return err
}

// copyDatabase copies the database as it is at one commit.
func (c *creation) copyDatabase() error {
	snap, err := c.Store.Snapshot(c.ctx, func(done, total int64) {
		c.progress(Progress{What: "database", Done: done, Total: 2 * total})
	})
	if err != nil {
		return err
	}
	c.m.Schema, c.m.Runs = snap.Schema, snap.Runs
	to, err := c.dir.create(path.Join(partial, datadir.Database))
	if err == nil {
		var n int64
		n, err = copyBytes(c.ctx, to, snap, func(done int64) {
			c.progress(Progress{What: "database", Done: snap.Size + done, Total: 2 * snap.Size})
		})
		if err == nil && n != snap.Size {
			err = io.ErrUnexpectedEOF
		}
		c.m.Database, err = to.finish(err)
	}
	return errors.Join(err, snap.Close())
}

// finish makes the backup durable under its name.
func (c *creation) finish() error {
	if err := c.ctx.Err(); err != nil {
		return context.Cause(c.ctx)
	}
	root := c.dir.root
	for at := c.m.CreatedAt; ; at = at.Add(time.Millisecond) {
		c.m.ID = at.Format(idLayout)
		if _, err := root.Lstat(c.m.ID); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	var err error
	if c.m.SHA256, err = c.m.sum(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(&c.m, "", "  ")
	if err != nil {
		return err
	}
	w, err := c.dir.create(path.Join(partial, manifestName))
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	if _, err = w.finish(err); err != nil {
		return err
	}
	if err := datadir.Sync(filepath.Join(c.dir.path, partial)); err != nil {
		return diskError(c.dir.path, err)
	}
	if err := root.Rename(partial, c.m.ID); err != nil {
		return diskError(c.dir.path, err)
	}
	if err := datadir.Sync(c.dir.path); err != nil {
		// It is not known whether it would survive a power cut, so it does not count.
		return errors.Join(diskError(c.dir.path, err), root.RemoveAll(c.m.ID))
	}
	return nil
}

// A part is a file of a backup that is being written.
type part struct {
	dir  *dir
	f    *os.File
	sum  hash.Hash
	size int64
}

func (d *dir) create(name string) (*part, error) {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, diskError(d.path, err)
	}
	return &part{dir: d, f: f, sum: sha256.New()}, nil
}

// Write implements io.Writer.
func (p *part) Write(b []byte) (int, error) {
	n, err := p.f.Write(b)
	_, _ = p.sum.Write(b[:n])
	p.size += int64(n)
	return n, err
}

// finish makes what was written durable unless an error came before it.
func (p *part) finish(err error) (Part, error) {
	if err == nil {
		err = p.f.Sync()
	}
	if err = errors.Join(err, p.f.Close()); err != nil {
		return Part{}, diskError(p.dir.path, err)
	}
	return Part{p.size, hex.EncodeToString(p.sum.Sum(nil))}, nil
}
