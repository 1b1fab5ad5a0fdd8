// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/roux-engine/roux/fault"
)

// openBelow lists the files that this process has open in a directory and below it.
func openBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if at, err := os.Readlink(filepath.Join("/proc/self/fd", d.Name())); err == nil && (at == dir || strings.HasPrefix(at, dir+"/")) {
			names = append(names, at)
		}
	}
	return names
}

// limitFiles limits the size of the files that this process writes, until undo is
// called.
func limitFiles(t *testing.T, n uint64) (undo func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Fatal(err)
		}
	}
}

// On a full disk Put leaves neither a temporary file nor an open one. A limit of the
// file size simulates the full disk. The test runs in its own process, because the
// limit applies to all files of a process.
func TestFullDiskLeavesNothing(t *testing.T) {
	if os.Getenv("ROUX_TEST_FULL") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFullDiskLeavesNothing$")
		cmd.Env = append(os.Environ(), "ROUX_TEST_FULL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	dir := t.TempDir()
	s := open(t, dir)
	for name, write := range map[string]func() error{
		"Put":        func() error { _, err := s.Put(ctx, "a", strings.NewReader("content"), "", ""); return err },
		"writeSmall": func() error { return s.writeSmall("x", []byte("content"), "write x") },
	} {
		undo := limitFiles(t, 3)
		err := write()
		undo()
		if !errors.Is(err, fault.StoreFailed) || !strings.Contains(err.Error(), syscall.EFBIG.Error()) {
			t.Errorf("%s: %v", name, err)
		}
		if left := tree(t, dir); len(left) != 0 {
			t.Errorf("%s left %v behind", name, left)
		}
		if left := openBelow(t, dir); len(left) != 1 { // the store itself
			t.Errorf("%s left open: %v", name, left)
		}
	}
	put(t, s, "a", "content", "") // once there is room again
}

// Calls that are refused or fail leave no file open.
func TestFailuresCloseTheirFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	info := put(t, s, "a", "content", "")
	_, _ = s.Put(ctx, "a", iotest.ErrReader(errors.New("broken off")), "", "")
	if _, _, err := s.Part(ctx, "a", info.Hash, 7, 1); err == nil {
		t.Error("a part that is not in the file")
	}
	overwrite(t, filepath.Join(dir, placeOf("a", info.Hash).file()), []byte("CONTENT"))
	if _, _, err := s.Part(ctx, "a", info.Hash, 0, 1); err == nil {
		t.Error("a part of a damaged file")
	}
	if _, err := s.Check(ctx, func(error) error { return nil }); err != nil {
		t.Error(err)
	}
	if s.alreadyStored(ctx, placeOf("a", info.Hash), 7) {
		t.Error("damage is held to be the content")
	}
	overwrite(t, filepath.Join(dir, placeOf("a", info.Hash).file()), []byte("longer than it was"))
	if _, err := s.Info(ctx, "a", info.Hash); err == nil {
		t.Error("a file of another size")
	}
	if _, err := s.List(ctx, "a", Query{}); err != nil {
		t.Error(err)
	}
	if left := openBelow(t, dir); len(left) != 1 { // the store itself
		t.Errorf("left open: %v", left)
	}
}

// The store removes the access of other users to one of its directories as soon as it
// reads the directory, and does not keep the directory open.
func TestOpenedDirectoriesAreClosed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	info := put(t, s, "a", "content", "")
	p := placeOf("a", info.Hash)
	at := []string{filepath.Join(dir, p.account), filepath.Join(dir, p.shard)}
	for _, name := range at {
		if err := os.Chmod(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Touch(ctx, "a", info.Hash); err != nil {
		t.Error(err)
	}
	for _, name := range at {
		if found, err := os.Stat(name); err != nil || found.Mode().Perm() != 0o700 {
			t.Errorf("%s has the mode %v, %v", name, found.Mode(), err)
		}
	}
	if left := openBelow(t, dir); len(left) != 1 { // the store itself
		t.Errorf("left open: %v", left)
	}
}

// A failed Open does not leave the directory open.
func TestFailedOpenClosesTheDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, tmpDir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(Config{Dir: dir}); err == nil {
		_ = s.Close()
		t.Error("a store whose tmp is a file was opened")
	}
	if left := openBelow(t, dir); len(left) != 0 {
		t.Errorf("left open: %v", left)
	}
}
