// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
)

// A draft is a file that is written beside the one whose place it takes: nobody
// sees half of it, and what fails leaves nothing behind. Every file that a
// command writes where the user wants it begins as one.
type draft struct {
	f     *os.File
	root  *os.Root
	temp  string
	name  string // below root, with slashes
	shown string // as the user calls it
	force bool   // it may take the place of a file
}

// newDraft begins a file. Of the mode the system takes off what the user's mask
// says. Whoever begins a draft drops it in the end.
func newDraft(root *os.Root, name, shown string, mode fs.FileMode, force bool) (*draft, error) {
	if err := mayReplace(root, name, shown, force); err != nil {
		return nil, err // before the work
	}
	temp := path.Join(path.Dir(name), ".roux-"+rand.Text()+".tmp")
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, writeError(shown, err)
	}
	return &draft{f, root, temp, name, shown, force}, nil
}

// Write implements io.Writer. An error of the disk says so here, which tells it
// from those of what is copied into the draft.
func (d *draft) Write(p []byte) (int, error) {
	n, err := d.f.Write(p)
	if err != nil {
		err = writeError(d.shown, err)
	}
	return n, err
}

// place makes the draft durable and puts it where it belongs, name and all: who
// exports a run may delete it then.
func (d *draft) place() error {
	err := errors.Join(d.f.Sync(), d.f.Close())
	if err == nil {
		err = mayReplace(d.root, d.name, d.shown, d.force) // something may have come meanwhile
	}
	if err == nil {
		err = d.root.Rename(d.temp, d.name)
	}
	if err != nil {
		return writeError(d.shown, err)
	}
	d.temp = ""
	dir, err := d.root.Open(path.Dir(d.name))
	if err != nil {
		return nil // one may write in it and not read it
	}
	err = errors.Join(dir.Sync(), dir.Close())
	if !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) {
		return nil // not every system can sync a directory
	}
	return writeError(d.shown, err)
}

// drop removes a draft that was not placed.
func (d *draft) drop() {
	if d.temp != "" {
		_ = d.f.Close() // once more where placing failed
		_ = d.root.Remove(d.temp)
	}
}

// replaceFile puts a text in the place of what is there.
func replaceFile(root *os.Root, name, shown string, text []byte) error {
	d, err := newDraft(root, name, shown, 0o644, true)
	if err != nil {
		return err
	}
	defer d.drop()
	if _, err := d.Write(text); err != nil {
		return err
	}
	return d.place()
}

// openBeside opens the directory in which a file lies that the user named.
func openBeside(name string) (root *os.Root, base string, err error) {
	dir, base := filepath.Split(name)
	if base == "" {
		return nil, "", fault.New(fault.Usage, "%s cannot be written: it names no file", view.Cut(name, 200))
	}
	if root, err = os.OpenRoot(filepath.Clean(dir)); err != nil {
		return nil, "", writeError(name, err)
	}
	return root, base, nil
}

// mayReplace refuses to write over what is there, and to replace what is no file
// even when told to.
func mayReplace(root *os.Root, name, shown string, force bool) error {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return writeError(shown, err)
	case !info.Mode().IsRegular():
		return fault.New(fault.Conflict, "%s is no regular file and is not replaced", view.Cut(shown, 200))
	case !force:
		return fault.New(fault.Conflict, "%s is there already: --force replaces it, -O names another", view.Cut(shown, 200))
	}
	return nil
}

// writeError says why a file that the user named cannot be there. An error that
// has a code keeps it.
func writeError(shown string, err error) error {
	var known *fault.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, syscall.ENOSPC):
		return fault.Wrap(fault.StoreFull, err, "%s cannot be written: no space is left on the disk", view.Cut(shown, 200))
	case errors.Is(err, fs.ErrPermission):
		return fault.Wrap(fault.Unauthorized, err, "%s cannot be written: you may not write in %s", view.Cut(shown, 200), view.Cut(filepath.Dir(shown), 200))
	}
	return fault.Wrap(fault.Usage, err, "%s cannot be written: %v", view.Cut(shown, 200), err)
}
