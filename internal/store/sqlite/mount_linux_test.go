// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/directory"
)

// mounted mounts a file system of the given size and returns its directory. It skips
// the test where that is not possible.
func mounted(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("roux-test", dir, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		t.Skipf("mounting a small file system needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// F31 on a real file system: 12 MiB with a ballast file.
func TestF31_SmallFileSystem(t *testing.T) {
	dir := mounted(t, "12m")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 6<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	epoch := own(t, s)
	mustCommit(t, s, startOf(epoch, runKey(0), "1"))
	last := uint64(1)
	fill := func() (refused error) {
		for range 1000 {
			_, err := s.Commit(ctx, []store.Transition{{Key: runKey(0), Epoch: epoch, First: last + 1, Last: last + 1, Frames: make([]byte, 100<<10)}})
			if err != nil {
				return err
			}
			last++
		}
		return nil
	}
	check := func() {
		t.Helper()
		saved, err := s.Load(ctx, runKey(0))
		if err != nil || saved.Last != last {
			t.Fatalf("Load = %v, want %d events", err, last)
		}
	}
	for range 3 { // full, and full again
		if err := fill(); !errors.Is(err, fault.StoreFull) {
			t.Fatalf("Commit on a full disk = %v, want STORE_FULL", err)
		}
		check()
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	before := last
	if err := fill(); !errors.Is(err, fault.StoreFull) {
		t.Fatalf("Commit on a full disk = %v, want STORE_FULL", err)
	}
	if last == before {
		t.Fatal("no commit succeeded after space was freed")
	}
	check()
}

// F31: full before start.
func TestF31_FullBeforeStart(t *testing.T) {
	dir := mounted(t, "2m")
	ballast := filepath.Join(dir, "ballast")
	err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	wantRefusal(t, dir, fault.StoreFull, dir, "free some")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	mustCommit(t, s, startOf(own(t, s), runKey(0), "1"))
}

func TestReadOnlyDirectoryIsNamed(t *testing.T) {
	dir := mounted(t, "8m")
	sub := filepath.Join(dir, "data")
	s := open(t, sub)
	own(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	readOnly := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount("roux-test", dir, "tmpfs", unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	readOnly(unix.MS_RDONLY)
	wantRefusal(t, sub, fault.StoreReadOnly, filepath.Join(sub, "lock"), "permissions")
	wantRefusal(t, filepath.Join(dir, "new"), fault.StoreReadOnly, filepath.Join(dir, "new"))
	readOnly(0)
	open(t, sub)
}

// TestReadOnlyFilesAreNamed: a read-only file in a writable directory is named in the
// error. Root may write to every file, so the test calls the check itself.
func TestReadOnlyFilesAreNamed(t *testing.T) {
	for _, err := range []error{unix.EACCES, unix.EPERM, unix.EROFS} {
		got := directory.Fault(&os.PathError{Op: "open", Path: "p", Err: err}, "/data/roux.db")
		if !errors.Is(got, fault.StoreReadOnly) || got.Error() != "STORE_READ_ONLY: /data/roux.db cannot be written: correct its permissions, or use another directory" {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// F31: the store of a killed process can be read on a disk that is full to the last
// byte, although the index of its log must grow for that.
func TestF31_FullDiskIsReadAfterACrash(t *testing.T) {
	dir := mounted(t, "60m")
	data := filepath.Join(dir, "data")
	s, err := Open(ctx, Options{Dir: data})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	epoch := own(t, s)
	s.w.Lock()
	s.up.pages = -1 << 40 // no checkpoint: the log grows beyond what its index holds
	s.w.Unlock()
	mustCommit(t, s, startOf(epoch, runKey(0), "1"))
	last := uint64(1)
	for range 90 { // of 200 KiB: 18 MB
		mustCommit(t, s, store.Transition{Key: runKey(0), Epoch: epoch, First: last + 1, Last: last + 1, Frames: make([]byte, 200<<10)})
		last++
	}
	// What a killed process leaves is a copy of its files.
	left := filepath.Join(dir, "left")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"roux.db", "roux.db-wal", datadir.Reserve} {
		content, err := os.ReadFile(filepath.Join(data, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(left, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fill(t, filepath.Join(dir, "ballast"))
	after, err := Open(ctx, Options{Dir: left})
	if err != nil {
		t.Fatalf("Open on a full disk = %v", err)
	}
	defer func() { _ = after.Close() }()
	if saved, err := after.Load(ctx, runKey(0)); err != nil || saved.Last != last {
		t.Errorf("Load = %v, want %d events", err, last)
	}
}

// fill writes a file until the file system is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for piece := make([]byte, 64<<10); len(piece) > 0; {
		if _, err := f.Write(piece); err != nil {
			piece = piece[:len(piece)/2]
		}
	}
}
