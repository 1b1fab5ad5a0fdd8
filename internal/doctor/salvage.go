// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/store/sqlite/wal"
)

// A Salvaged reports what was saved from a damaged data directory.
type Salvaged struct {
	Dir     string     `json:"dir"`
	Read    string     `json:"read"`             // how the log was read
	Runs    int        `json:"runs"`             // that verify
	Others  []OtherRun `json:"others,omitempty"` // those that come from another reading of the log
	Damaged []LostRun  `json:"damaged"`          // that do not
	Rest    string     `json:"rest,omitempty"`   // a data directory with what can be read of those
	Files   int        `json:"files"`            // that were copied
	Store   []string   `json:"store,omitempty"`
}

// An OtherRun is a run that is taken from another reading of the log than most runs,
// because that reading has more of its events.
type OtherRun struct {
	Run  string `json:"run"`
	Read string `json:"read"`
}

// A LostRun is a run that is missing or incomplete in the new directory.
type LostRun struct {
	Run string `json:"run"`
	Why string `json:"why"`
}

// Salvage makes a new data directory, named by to, of everything that verifies in the
// damaged directory from, which it does not change. to must be an empty directory made
// by [EmptyDir].
func Salvage(ctx context.Context, from, to string) (Salvaged, error) {
	images, err := wal.Salvage(ctx, from, to)
	if err != nil {
		return Salvaged{}, datadir.Error(from, err)
	}
	out, err := gather(ctx, images, to)
	if err != nil {
		return out, datadir.Error(to, err)
	}
	for _, name := range []string{datadir.Files, datadir.Secrets} {
		copied, err := copyFiles(ctx, name, from, to)
		if err != nil {
			return out, datadir.Error(to, err)
		}
		out.Files, out.Store = out.Files+copied.files, append(out.Store, copied.odd...)
	}
	return out, datadir.Error(to, copyKey(from, to))
}

// copyKey copies the master key of the sealed secrets, if there is one.
func copyKey(from, to string) error {
	in, err := datadir.Open(filepath.Join(from, datadir.MasterKey), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := datadir.Open(filepath.Join(to, datadir.MasterKey), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// EmptyDir returns the absolute path of a new or empty directory and closes it to
// other users. It refuses one inside the damaged directory, which would be changed
// and copied into itself.
func EmptyDir(path, damaged string) (string, error) {
	dir, err := filepath.Abs(path)
	if err != nil {
		return "", fault.New(fault.Usage, "--salvage %q: want a path", path)
	}
	if datadir.LiesIn(dir, damaged) {
		return "", fault.New(fault.Usage, "--salvage %s: it lies in %s, where nothing is to be changed", dir, damaged)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", datadir.Error(dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", datadir.Error(dir, err)
	}
	if len(entries) > 0 {
		return "", fault.New(fault.Usage, "%s is not empty: --salvage makes a new data directory", dir)
	}
	// From here on no other user can put anything into it.
	return dir, datadir.Error(dir, datadir.Secure(dir))
}

// A copier copies the files of runs. It does not check them, because a file is
// verified whenever it is read.
type copier struct {
	ctx      context.Context
	what     string // the directory that is copied
	from, to *os.Root
	files    int      // copied, their metadata not counted
	odd      []string // what is not copied because Roux has not made it
}

// copyFiles copies a directory of a data directory into a new one.
func copyFiles(ctx context.Context, what, fromDir, toDir string) (c *copier, err error) {
	c = &copier{ctx: ctx, what: what}
	from, to := filepath.Join(fromDir, what), filepath.Join(toDir, what)
	if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) { // OpenRoot would create it
		return c, nil
	}
	if c.from, err = datadir.OpenRoot(from); err != nil {
		return c, err
	}
	defer func() { _ = c.from.Close() }()
	if c.to, err = datadir.OpenRoot(to); err != nil {
		return c, err
	}
	defer func() { _ = c.to.Close() }()
	return c, c.dir(".")
}

// passOver notes what package datadir refuses.
func (c *copier) passOver(err error) error {
	if odd := new(datadir.Refusal); errors.As(err, &odd) {
		c.odd = append(c.odd, c.what+"/"+odd.Error()+" and was not copied")
		return nil
	}
	return err
}

func (c *copier) dir(name string) error {
	d, err := datadir.OpenBelow(c.from, name, fs.ModeDir)
	if err != nil {
		return c.passOver(err)
	}
	entries, err := d.ReadDir(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	if name != "." {
		if err := c.to.Mkdir(name, 0o700); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		one := c.file
		if e.IsDir() {
			one = c.dir
		}
		if err := one(path.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) file(name string) error {
	in, err := datadir.OpenBelow(c.from, name, 0)
	if err != nil {
		return c.passOver(err)
	}
	defer func() { _ = in.Close() }()
	out, err := c.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	if strings.HasPrefix(path.Base(name), "sha256_") && path.Ext(name) == "" { // the others are metadata
		c.files++
	}
	return nil
}
