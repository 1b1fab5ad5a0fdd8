// SPDX-License-Identifier: Apache-2.0

//go:build !small

package workspace

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// runs are runs that a test ends.
type runs struct {
	mu    sync.Mutex
	ended map[store.Key]bool // false = it goes on; missing = there is none
	told  map[store.Key][]func()
}

func (r *runs) Head(_ context.Context, key store.Key) (store.Head, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended, ok := r.ended[key]
	switch {
	case !ok:
		return store.Head{}, fault.New(fault.RunNotFound, "there is no run %s", key.Run)
	case ended:
		return store.Head{Ended: 1}, nil
	}
	return store.Head{}, nil
}

func (r *runs) OnEnd(key store.Key, fn func()) (cancel func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		r.told = map[store.Key][]func(){}
	}
	r.told[key] = append(r.told[key], fn)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.told, key)
	}
}

func (r *runs) end(key store.Key) {
	r.mu.Lock()
	r.ended[key] = true
	told := r.told[key]
	r.mu.Unlock()
	for _, fn := range told {
		fn()
	}
}

// tree returns what is below a directory: its files with their content, links and directories.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		all[rel] = d.Type().String()
		if d.Type().IsRegular() {
			text, err := os.ReadFile(path)
			all[rel] += " " + string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func keys() (a, b store.Key) {
	return store.Key{Account: "acme", Run: "run_1"}, store.Key{Account: "acme", Run: "run_2"}
}

// X162, X235: two runs with the same text have a workspace each, which is removed when the run has ended
// and its attempts have returned. What else is there stays, byte for byte.
func TestX235_RemovedWithItsRun(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "workspaces")
	for _, name := range []string{"notes", "ws_short", "ws_" + "0123456789012345678901234567890123456789", "ws_ABCDEF78901234567890123456789012345678ff"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "mine"), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// It has the name of a workspace, and says that it is that of another run.
	if err := os.WriteFile(filepath.Join(dir, "ws_0123456789012345678901234567890123456789", ownerFile), []byte("run_9\nacme"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := tree(t, parent)
	synctest.Test(t, func(t *testing.T) {
		one, two := keys()
		r := &runs{ended: map[store.Key]bool{one: false, two: false}}
		k := New(slog.New(slog.DiscardHandler))
		k.Attach(dir, r)
		ctx, cancel := context.WithCancel(t.Context())
		go k.Run(ctx)
		open := func(key store.Key) (*os.Root, func()) {
			root, release, err := k.Open(ctx, key.Account, key.Run, "nested/same")
			if err != nil {
				t.Fatal(err)
			}
			return root, func() { _ = root.Close(); release() }
		}
		first, release := open(one)
		again, releaseAgain := open(one)
		other, releaseOther := open(two)
		if err := first.WriteFile("secret", []byte("of one"), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := again.ReadFile("secret"); string(text) != "of one" {
			t.Errorf("another attempt of the run sees %q, %v", text, err)
		}
		if text, err := other.ReadFile("secret"); err == nil {
			t.Errorf("another run sees %q", text)
		}
		if got := filepath.Base(first.Name()); got != "same" {
			t.Errorf("the workspace is at %s, want it to end with its path", first.Name())
		}
		release()
		r.end(one)
		synctest.Wait()
		if _, err := again.Stat("secret"); err != nil {
			t.Errorf("it was removed while an attempt had it open: %v", err)
		}
		releaseAgain()
		synctest.Wait()
		if left := tree(t, dir); left[filepath.Join(nameOf(one), filesDir)] != "" || left[filepath.Join(nameOf(two), filesDir)] == "" {
			t.Errorf("after the end of one run: %v", left)
		}
		releaseOther()
		r.end(two)
		cancel()
		synctest.Wait()
		k.Close(t.Context()) // what has ended meanwhile
		if len(r.told) > 0 {
			t.Errorf("%d subscriptions remain", len(r.told))
		}
	})
	if after := tree(t, parent); !maps.Equal(before, after) {
		t.Errorf("the directory is %v, want %v", after, before)
	}
}

// X235, R25: what a process that was killed has left is removed by the next one, but not what belongs to a
// run that goes on, nor what somebody has put beside it, nor what links lead to.
func TestR25_LeftoversOfAKilledProcess(t *testing.T) {
	parent := t.TempDir()
	dir, outside := filepath.Join(parent, "workspaces"), filepath.Join(parent, "outside")
	if err := os.MkdirAll(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "file"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	gone, alive := keys()
	beside := store.Key{Account: "other", Run: "run_1"}
	for _, key := range []store.Key{gone, alive, beside} {
		root, err := open(dir, nameOf(key), key, "nested/x")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"out", "dir/out"} {
			if err := root.MkdirAll("dir", 0o700); err != nil {
				t.Fatal(err)
			}
			if err := root.Symlink(outside, name); err != nil {
				t.Fatal(err)
			}
		}
		_ = root.Close()
	}
	half := filepath.Join(dir, nameOf(store.Key{Account: "acme", Run: "half"}))
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, ownerFile), nil, 0o600); err != nil { // a power cut
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, nameOf(beside), "note"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, nameOf(store.Key{Run: "link"}))); err != nil {
		t.Fatal(err)
	}
	want := tree(t, parent)
	for path := range want {
		for _, key := range []store.Key{gone, beside, {Account: "acme", Run: "half"}} {
			if rel, err := filepath.Rel(filepath.Join("workspaces", nameOf(key)), path); err == nil && filepath.IsLocal(rel) && rel != "note" && (rel != "." || key != beside) {
				delete(want, path)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		k := New(slog.New(slog.DiscardHandler))
		k.Attach(dir, &runs{ended: map[store.Key]bool{alive: false, beside: true}})
		ctx, cancel := context.WithCancel(t.Context())
		go k.Run(ctx)
		synctest.Wait()
		cancel()
	})
	if after := tree(t, parent); !maps.Equal(want, after) {
		t.Errorf("the directory is %v, want %v", after, want)
	}
}

// A15: no path that a journal has leads out of what is the run's alone.
func TestX162_HostilePaths(t *testing.T) {
	dir := t.TempDir()
	key, _ := keys()
	for _, path := range []string{"", ".", "..", "../x", "a/../../x", "/tmp/x", "a\x00b", `..\x`} {
		if root, err := open(filepath.Join(dir, "w"), nameOf(key), key, path); err == nil {
			t.Errorf("%q was opened at %s", path, root.Name())
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("something was made: %v", left)
	}
	// A link in place of a part of the way is not followed.
	root, err := open(filepath.Join(dir, "w"), nameOf(key), key, "a")
	if err != nil {
		t.Fatal(err)
	}
	_ = root.Close()
	at := filepath.Join(dir, "w", nameOf(key), filesDir, "link")
	if err := os.Symlink(dir, at); err != nil {
		t.Fatal(err)
	}
	if root, err := open(filepath.Join(dir, "w"), nameOf(key), key, "link/b"); err == nil {
		t.Errorf("a link was followed to %s", root.Name())
	}
}

// A run that was retried while its end was looked up keeps what the retry has written.
func TestX235_RetriedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, _ := keys()
		r := &retried{runs: runs{ended: map[store.Key]bool{key: false}}}
		k := New(slog.New(slog.DiscardHandler))
		k.Attach(filepath.Join(t.TempDir(), "workspaces"), r)
		go k.Run(t.Context())
		work := func() {
			root, release, err := k.Open(t.Context(), key.Account, key.Run, "a")
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(root.WriteFile("kept", nil, 0o600), root.Close()); err != nil {
				t.Error(err)
			}
			release()
		}
		work()
		synctest.Wait()
		r.read = func() { // after the end was read
			r.read = nil
			r.ended[key] = false
			r.mu.Unlock()
			work()
			r.mu.Lock()
		}
		r.end(key)
		synctest.Wait()
		if left := tree(t, k.dir); left[filepath.Join(nameOf(key), filesDir, "a", "kept")] == "" {
			t.Errorf("of the run that goes on there is %v", left)
		}
		r.end(key)
		synctest.Wait()
		if left, err := os.ReadDir(k.dir); err != nil || len(left) > 0 {
			t.Errorf("when it has ended again there is %v, %v", left, err)
		}
	})
}

// retried are runs of which one is retried when its end has been read.
type retried struct {
	runs
	read func()
}

func (r *retried) Head(ctx context.Context, key store.Key) (store.Head, error) {
	head, err := r.runs.Head(ctx, key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read != nil && head.Ended != 0 {
		r.read()
	}
	return head, err
}

// A disk that is full or cannot be written is no fault of the file: a step is tried again when there is room.
func TestDiskFaults(t *testing.T) {
	for err, want := range map[error]fault.Code{
		syscall.ENOSPC: fault.StoreFull, syscall.EDQUOT: fault.StoreFull, syscall.EROFS: fault.StoreReadOnly, syscall.EIO: fault.StoreFailed,
		syscall.ENOTDIR: fault.FileInvalid, fs.ErrNotExist: fault.FileNotFound,
	} {
		if got := fault.CodeOf(failed("a", &fs.PathError{Op: "write", Path: "a", Err: err})); got != want {
			t.Errorf("%v is %s, want %s", err, got, want)
		}
	}
}
