// SPDX-License-Identifier: Apache-2.0

//go:build !small

package datadir

import (
	"errors"
	"io/fs"
	"os"
)

// RemoveBelow removes a file or a directory in a root, as [RemoveAll] does.
func RemoveBelow(parent *os.Root, name string) error {
	if filled, err := remove(parent, name); !filled {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	root, err := parent.OpenRoot(name)
	if err != nil {
		return err
	}
	return errors.Join(empty(root), root.Close(), parent.Remove(name))
}
