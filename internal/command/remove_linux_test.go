// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/roux-engine/roux/internal/datadir"
)

// unprivileged makes this process, if it is root's, that of another user until the test ends, and
// returns a directory of that user.
func unprivileged(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "command")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = datadir.RemoveAll(dir) })
	if os.Geteuid() != 0 {
		return dir
	}
	const other = 65534
	if err := os.Chown(dir, other, other); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setreuid(-1, other); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setreuid(-1, 0); err != nil {
			t.Fatal(err)
		}
	})
	return dir
}

// nested makes directories in each other, with a file in some, and takes the permissions of some
// away.
func nested(t *testing.T, dir string, levels int) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	for i := 0; i < levels && err == nil; i++ {
		var next *os.Root
		if i%100 == 0 {
			err = root.WriteFile("file", []byte("x"), 0o400)
		}
		if err == nil {
			err = root.Mkdir("d", 0o700)
		}
		if err == nil {
			next, err = root.OpenRoot("d")
		}
		if err == nil && i%100 == 50 {
			err = root.Chmod(".", 0)
		}
		_ = root.Close()
		root = next
	}
	if err == nil {
		err = root.Chmod(".", 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = root.Close()
}

// A program cannot leave a directory that is too deep to be removed.
func TestRemoveNested(t *testing.T) {
	parent := unprivileged(t)
	target, dir := filepath.Join(parent, "target"), filepath.Join(parent, "commands")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, levels := range map[string]int{"a": 2200, "b/c": 300} { // a path has at most 4096 bytes
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		nested(t, at, levels)
	}
	if err := os.Symlink(target, filepath.Join(dir, "b", "link")); err != nil {
		t.Fatal(err)
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 100, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	err := datadir.RemoveAll(dir)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if _, gone := os.Lstat(dir); err != nil || !os.IsNotExist(gone) {
		t.Errorf("it is there: %v, %v", gone, err)
	}
	if _, err := os.Stat(target); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
	if err := datadir.RemoveAll(dir); err != nil {
		t.Errorf("nothing to remove: %v", err)
	}
}

// A server starts although a directory of the last one cannot be removed.
func TestOpenTolerates(t *testing.T) {
	parent := unprivileged(t)
	dir := filepath.Join(parent, "commands")
	if err := os.MkdirAll(filepath.Join(dir, "run-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	set, _ := parsed(t, `{"run": ["true"], "confine": "none"}`)
	for _, mode := range []os.FileMode{0o500, 0o700} {
		if err := os.Chmod(parent, mode); err != nil {
			t.Fatal(err)
		}
		if err := set.Open(t.Context(), dir); err != nil {
			t.Errorf("mode %s: %v", mode, err)
		}
	}
	// It does not where it has no place for its directories.
	if err := os.Chmod(parent, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := set.Open(t.Context(), filepath.Join(parent, "none")); err == nil {
		t.Error("it started without a directory")
	}
	if err := os.Chmod(parent, 0o700); err != nil {
		t.Fatal(err)
	}
}
