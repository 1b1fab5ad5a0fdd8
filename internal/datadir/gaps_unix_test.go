// SPDX-License-Identifier: Apache-2.0

//go:build unix

package datadir

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Another process may replace a file between the check of its name and its opening. The
// replacement is not opened, waited for, created, truncated or given another mode.
func TestGaps(t *testing.T) {
	const name = Lock
	file := func(at, _ string) error { return os.WriteFile(at, []byte("first"), 0o600) }
	dirAt := func(at, _ string) error { return os.Mkdir(at, 0o700) }
	none := func(string, string) error { return nil }
	for _, op := range []struct {
		name  string
		first func(at, away string) error // creates what is checked
		open  func(dir, at string, between gap) (fs.FileInfo, error)
	}{
		{"open", file, openedAt(os.O_RDONLY)},
		{"open to write", file, openedAt(os.O_RDWR | os.O_CREATE)},
		{"make", none, openedAt(os.O_RDWR | os.O_CREATE)},
		{"open below", file, func(dir, _ string, between gap) (fs.FileInfo, error) { return openedBelow(dir, name, 0, between) }},
		{"open a directory below", dirAt, func(dir, _ string, between gap) (fs.FileInfo, error) {
			return openedBelow(dir, name, fs.ModeDir, between)
		}},
		{"open a root", dirAt, func(_, at string, between gap) (fs.FileInfo, error) {
			r, err := openRoot(at, between)
			if err != nil {
				return nil, err
			}
			defer func() { _ = r.Close() }()
			return r.Stat(".")
		}},
	} {
		t.Run(op.name, func(t *testing.T) {
			each(t, "unused", func(t *testing.T, th *thing, dir, unused string) {
				at, away := filepath.Join(dir, name), filepath.Join(filepath.Dir(dir), "a")
				says(t, "make", op.first(at, away), "")
				before, _ := os.Lstat(unused)
				info, err := op.open(dir, at, func() {
					_ = os.RemoveAll(at)
					says(t, "swap", os.Rename(unused, at), "")
				})
				after, statErr := os.Lstat(at)
				if statErr != nil || !os.SameFile(before, after) || after.Mode() != before.Mode() {
					t.Errorf("what was put there is %v, was %v: %v", after, before, statErr)
				}
				// If the name did not exist at the check, a file of this user that was
				// created since is opened.
				if mine := th.name == "file" && op.name == "make"; mine != (err == nil) {
					t.Errorf("opened %v, %v", info, err)
				}
			})
		})
	}
}

// openedAt returns an operation that calls open with flag and returns the FileInfo of
// the opened file.
func openedAt(flag int) func(dir, at string, between gap) (fs.FileInfo, error) {
	return func(_, at string, between gap) (fs.FileInfo, error) {
		f, err := open(at, flag, between)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		return f.Stat()
	}
}

func openedBelow(dir, name string, kind fs.FileMode, between gap) (fs.FileInfo, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	f, err := openBelow(root, name, kind, between)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.Stat()
}
