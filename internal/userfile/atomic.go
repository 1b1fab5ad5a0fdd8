// SPDX-License-Identifier: Apache-2.0

package userfile

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

// An Atomic is a file that is written under a temporary name and renamed when it
// is complete. No reader sees half of it, and a failure leaves nothing behind.
// Every file that a command writes for the user is written this way.
type Atomic struct {
	f     *os.File
	root  *os.Root
	temp  string
	name  string // below root, with slashes
	shown string // as the user calls it
	force bool   // it may take the place of a file
}

// NewAtomic creates the temporary file, with the given mode less the user's
// umask. shown is the name that messages show. The caller calls Discard at the
// end, also after Place.
func NewAtomic(root *os.Root, name, shown string, mode fs.FileMode, force bool) (*Atomic, error) {
	if err := mayReplace(root, name, shown, force); err != nil {
		return nil, err // before the work
	}
	temp := path.Join(path.Dir(name), ".roux-"+rand.Text()+".tmp")
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, WriteError(shown, err)
	}
	return &Atomic{f, root, temp, name, shown, force}, nil
}

// Write implements io.Writer. Its errors say that the file cannot be written,
// which distinguishes them from errors of the source.
func (d *Atomic) Write(p []byte) (int, error) {
	n, err := d.f.Write(p)
	if err != nil {
		err = WriteError(d.shown, err)
	}
	return n, err
}

// Place makes the file durable under its final name, the directory entry
// included, because a user may delete a run once it is exported.
func (d *Atomic) Place() error {
	err := errors.Join(d.f.Sync(), d.f.Close())
	if err == nil {
		err = mayReplace(d.root, d.name, d.shown, d.force) // something may have been created meanwhile
	}
	if err == nil {
		err = d.root.Rename(d.temp, d.name)
	}
	if err != nil {
		return WriteError(d.shown, err)
	}
	d.temp = ""
	dir, err := d.root.Open(path.Dir(d.name))
	if err != nil {
		return nil // a directory may be writable and not readable
	}
	err = errors.Join(dir.Sync(), dir.Close())
	if !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) {
		return nil // not every system can sync a directory
	}
	return WriteError(d.shown, err)
}

// Chmod changes the mode of the file, whatever the umask is.
func (d *Atomic) Chmod(mode fs.FileMode) error { return WriteError(d.shown, d.f.Chmod(mode)) }

// Size returns how many bytes have been written.
func (d *Atomic) Size() (int64, error) {
	info, err := d.f.Stat()
	if err != nil {
		return 0, WriteError(d.shown, err)
	}
	return info.Size(), nil
}

// Discard removes a file that was not placed.
func (d *Atomic) Discard() {
	if d.temp != "" {
		_ = d.f.Close() // again, when Place has failed
		_ = d.root.Remove(d.temp)
	}
}

// Replace writes a file, and replaces it when it exists.
func Replace(root *os.Root, name, shown string, text []byte) error {
	d, err := NewAtomic(root, name, shown, 0o644, true)
	if err != nil {
		return err
	}
	defer d.Discard()
	if _, err := d.Write(text); err != nil {
		return err
	}
	return d.Place()
}

// OpenParent opens the directory of a file that the user named.
func OpenParent(name string) (root *os.Root, base string, err error) {
	dir, base := filepath.Split(name)
	if base == "" {
		return nil, "", fault.New(fault.Usage, "%s cannot be written: it names no file", view.Cut(name, 200))
	}
	if root, err = os.OpenRoot(filepath.Clean(dir)); err != nil {
		return nil, "", WriteError(name, err)
	}
	return root, base, nil
}

// mayReplace refuses to replace a file unless force is set, and to replace what
// is not a regular file at all.
func mayReplace(root *os.Root, name, shown string, force bool) error {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return WriteError(shown, err)
	case !info.Mode().IsRegular():
		return fault.New(fault.Conflict, "%s is no regular file and is not replaced", view.Cut(shown, 200))
	case !force:
		return fault.New(fault.Conflict, "%s is there already: --force replaces it, -O names another", view.Cut(shown, 200))
	}
	return nil
}

// WriteError returns the error for a file that the user named and that cannot be
// written. An error that has a code keeps it.
func WriteError(shown string, err error) error {
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
