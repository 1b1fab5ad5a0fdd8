// SPDX-License-Identifier: Apache-2.0

package command

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// removeAll removes a directory, also one that a program has nested deeper than there are file
// descriptors and longer than a path may be, and one in which it has taken permissions away. Links
// are removed and not followed. The error is of something that remains.
func removeAll(dir string) error {
	if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_ = os.Chmod(dir, 0o700) //nolint:gosec // it is a directory
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	removed, err := 1, nil
	for removed > 0 {
		removed, err = each(root, ".", func(name string) error { return removeEntry(root, name) })
	}
	return errors.Join(err, root.Close(), os.Remove(dir))
}

// removeEntry removes a file or a directory in the root. It moves what is in a directory of that
// directory up into the root, from which the next pass removes it, so that nothing that is touched
// is deeper than that.
func removeEntry(root *os.Root, name string) error {
	if filled, err := remove(root, name); !filled {
		return err // nil: it is removed
	}
	done, err := each(root, name, func(entry string) error {
		inner := filepath.Join(name, entry)
		filled, err := remove(root, inner)
		if filled {
			err = root.Rename(inner, rand.Text())
		}
		return err
	})
	if removeErr := root.Remove(name); done == 0 {
		return errors.Join(err, removeErr)
	}
	return nil
}

// remove removes a file or an empty directory. A directory that is filled is left, and may be
// changed and moved.
func remove(root *os.Root, name string) (filled bool, err error) {
	if err = root.Remove(name); err == nil {
		return false, nil
	}
	if info, statErr := root.Lstat(name); statErr != nil || !info.IsDir() {
		return false, err
	}
	return true, root.Chmod(name, 0o700)
}

// each calls fn for the names in a directory. It returns how many calls succeeded, and the error
// of one that did not.
func each(root *os.Root, dir string, fn func(name string) error) (succeeded int, err error) {
	f, err := root.Open(dir)
	if err != nil {
		return 0, err
	}
	names, err := f.Readdirnames(-1)
	_ = f.Close()
	for _, name := range names {
		if failed := fn(name); failed != nil {
			err = failed
			continue
		}
		succeeded++
	}
	return succeeded, err
}
