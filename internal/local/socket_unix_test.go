// SPDX-License-Identifier: Apache-2.0

//go:build unix

package local

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
)

// chmod sets rights, whatever the umask is.
func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// shortDir is a directory whose path leaves room for the names of sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// answering listens at a path as a forger would, and counts the connections.
func answering(t *testing.T, path string) *atomic.Int64 {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	chmod(t, path, 0o600)
	came := new(atomic.Int64)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			_ = c.Close()
		}
	}()
	return came
}

// A client does not connect to a socket that another user may have made, neither at the
// usual path nor through a pointer file, which any project can contain.
func TestA15_SocketsThatAreNotOurs(t *testing.T) {
	long := strings.Repeat("l", maxSocketPath)
	point := func(t *testing.T, dir, to string) {
		if err := os.WriteFile(filepath.Join(dir, datadir.Pointer), []byte(to), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		long bool // the directory's path is
		// lay prepares dir. forged is the path of a socket with a listener that must
		// not be called.
		lay  func(t *testing.T, dir, forged string)
		want bool
	}{
		{"ours", false, func(t *testing.T, dir, _ string) { answering(t, filepath.Join(dir, datadir.Socket)) }, true},
		{"ours, behind a pointer", true, point, true},
		{"a pointer where none is needed", false, point, false},
		{"a socket that is a link", false, func(t *testing.T, dir, forged string) {
			if err := os.Symlink(forged, filepath.Join(dir, datadir.Socket)); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"a directory that others write", false, func(t *testing.T, dir, _ string) {
			answering(t, filepath.Join(dir, datadir.Socket))
			chmod(t, dir, 0o777)
		}, false},
		{"a socket that others write", false, func(t *testing.T, dir, _ string) {
			answering(t, filepath.Join(dir, datadir.Socket))
			chmod(t, filepath.Join(dir, datadir.Socket), 0o666)
		}, false},
		{"a file in its place", false, func(t *testing.T, dir, _ string) {
			if err := os.WriteFile(filepath.Join(dir, datadir.Socket), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"a pointer that others write", true, func(t *testing.T, dir, forged string) {
			point(t, dir, forged)
			chmod(t, filepath.Join(dir, datadir.Pointer), 0o666)
		}, false},
		{"a pointer that is a link", true, func(t *testing.T, dir, forged string) {
			point(t, filepath.Dir(dir), forged)
			if err := os.Symlink(filepath.Join(filepath.Dir(dir), datadir.Pointer), filepath.Join(dir, datadir.Pointer)); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"a pointer into a directory that others write", true, func(t *testing.T, dir, forged string) {
			point(t, dir, forged)
			chmod(t, filepath.Dir(forged), 0o777)
		}, false},
		{"a pointer to what is not called so", true, func(t *testing.T, dir, forged string) {
			other := filepath.Join(filepath.Dir(forged), "other")
			answering(t, other)
			point(t, dir, other)
		}, false},
		{"a pointer that goes round", true, func(t *testing.T, dir, forged string) {
			point(t, dir, filepath.Dir(forged)+"/../"+filepath.Base(filepath.Dir(forged))+"/"+datadir.Socket)
		}, false},
		{"a pointer to a path that no socket has", true, func(t *testing.T, dir, forged string) {
			long := filepath.Join(filepath.Dir(forged), strings.Repeat("p", maxSocketPath-len(forged)))
			if err := os.MkdirAll(long, 0o700); err != nil || len(long)+len("/socket") != maxSocketPath+1 {
				t.Fatal(err, len(long))
			}
			answering(t, filepath.Join(long, datadir.Socket))
			point(t, dir, filepath.Join(long, datadir.Socket))
		}, false},
		{"a pointer without an end", true, func(t *testing.T, dir, forged string) {
			point(t, dir, forged+strings.Repeat("\x00", 1<<20))
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, forged := shortDir(t), filepath.Join(shortDir(t), datadir.Socket)
			if tt.long {
				if dir = filepath.Join(dir, long); os.Mkdir(dir, 0o700) != nil {
					t.Skip("names this long are not taken here")
				}
			}
			came := answering(t, forged)
			tt.lay(t, dir, forged)
			if got := Find(t.Context(), dir) != nil; got != tt.want {
				_, why := Socket(dir)
				t.Errorf("dial finds somebody: %v, want %v (%v)", got, tt.want, why)
			}
			if !tt.want && came.Load() != 0 {
				t.Error("the forger was called")
			}
		})
	}
}

// checkOwner and checkPath, also with the id of another user.
func TestCheckOwner(t *testing.T) {
	dir := t.TempDir()
	chmod(t, dir, 0o755)
	info, err := os.Lstat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkOwner(info, os.ModeDir, os.Geteuid()); err != nil {
		t.Errorf("our own directory %v", err)
	}
	if err := checkOwner(info, os.ModeDir, os.Geteuid()+1); err == nil || err.Error() != "belongs to another user" {
		t.Errorf("another's directory: %v", err)
	}
	if err := checkOwner(info, os.ModeSocket, os.Geteuid()); err == nil {
		t.Error("a directory passes for a socket")
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := checkPath(link, os.ModeDir); err == nil || !strings.HasSuffix(err.Error(), "is a symbolic link") {
		t.Errorf("a link: %v", err)
	}
}

// A directory of the user that has the name of the private directory for new sockets
// keeps its content.
func TestForeignNurseryIsLeftAlone(t *testing.T) {
	dir := shortDir(t)
	precious := filepath.Join(dir, datadir.Nursery, "deep", "thesis.tex")
	if err := os.MkdirAll(filepath.Dir(precious), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Listen(dir); !errors.Is(err, fault.StoreFailed) || !strings.Contains(err.Error(), datadir.Nursery) {
		t.Errorf("Listen: %v, want an error that names %s", err, datadir.Nursery)
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
		t.Errorf("the user's file: %q, %v", text, err)
	}
}
