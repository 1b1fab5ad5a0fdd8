// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveAll removes a directory, also one that a program has nested deeper than there are file
// descriptors and longer than a path may be, and one in which it has taken permissions away. Links
// are removed and not followed. The error is of something that remains; it is no error if there is no
// directory.
func RemoveAll(dir string) error {
	if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_ = os.Chmod(dir, 0o700) //nolint:gosec // it is a directory
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(empty(root), root.Close(), os.Remove(dir))
}

// empty removes what is in a directory.
func empty(root *os.Root) (err error) {
	for removed := 1; removed > 0; {
		removed, err = eachName(root, ".", func(name string) error { return removeEntry(root, name) })
	}
	return err
}

// removeEntry removes a file or a directory in the root. It moves what is in a directory of that
// directory up into the root, from which the next pass removes it, so that nothing that is touched
// is deeper than that.
func removeEntry(root *os.Root, name string) error {
	if filled, err := remove(root, name); !filled {
		return err // nil: it is removed
	}
	done, err := eachName(root, name, func(entry string) error {
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

// eachName calls fn for the names in a directory. It returns how many calls succeeded, and the error
// of one that did not.
func eachName(root *os.Root, dir string, fn func(name string) error) (succeeded int, err error) {
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
