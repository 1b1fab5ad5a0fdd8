// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
)

// chmod sets rights, whatever the umask is.
func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// answering listens at a path as a forger would, and counts who comes.
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

// A socket that another user may have put there is asked nothing: neither by
// its own name nor through a pointer file, which any project can bring along.
func TestA15_SocketsThatAreNotOurs(t *testing.T) {
	long := strings.Repeat("l", maxSocketPath)
	point := func(t *testing.T, dir, to string) {
		if err := os.WriteFile(filepath.Join(dir, pointerName), []byte(to), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		long bool // the directory's path is
		// lay puts things into dir; forged is where somebody listens.
		lay  func(t *testing.T, dir, forged string)
		want bool
	}{
		{"ours", false, func(t *testing.T, dir, _ string) { answering(t, filepath.Join(dir, socketName)) }, true},
		{"ours, behind a pointer", true, point, true},
		{"a pointer where none is needed", false, point, false},
		{"a socket that is a link", false, func(t *testing.T, dir, forged string) {
			if err := os.Symlink(forged, filepath.Join(dir, socketName)); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"a directory that others write", false, func(t *testing.T, dir, _ string) {
			answering(t, filepath.Join(dir, socketName))
			chmod(t, dir, 0o777)
		}, false},
		{"a socket that others write", false, func(t *testing.T, dir, _ string) {
			answering(t, filepath.Join(dir, socketName))
			chmod(t, filepath.Join(dir, socketName), 0o666)
		}, false},
		{"a file in its place", false, func(t *testing.T, dir, _ string) {
			if err := os.WriteFile(filepath.Join(dir, socketName), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"a pointer that others write", true, func(t *testing.T, dir, forged string) {
			point(t, dir, forged)
			chmod(t, filepath.Join(dir, pointerName), 0o666)
		}, false},
		{"a pointer that is a link", true, func(t *testing.T, dir, forged string) {
			point(t, filepath.Dir(dir), forged)
			if err := os.Symlink(filepath.Join(filepath.Dir(dir), pointerName), filepath.Join(dir, pointerName)); err != nil {
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
			point(t, dir, filepath.Dir(forged)+"/../"+filepath.Base(filepath.Dir(forged))+"/"+socketName)
		}, false},
		{"a pointer to a path that no socket has", true, func(t *testing.T, dir, forged string) {
			long := filepath.Join(filepath.Dir(forged), strings.Repeat("p", maxSocketPath-len(forged)))
			if err := os.MkdirAll(long, 0o700); err != nil || len(long)+len("/socket") != maxSocketPath+1 {
				t.Fatal(err, len(long))
			}
			answering(t, filepath.Join(long, socketName))
			point(t, dir, filepath.Join(long, socketName))
		}, false},
		{"a pointer without an end", true, func(t *testing.T, dir, forged string) {
			point(t, dir, forged+strings.Repeat("\x00", 1<<20))
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, forged := shortDir(t), filepath.Join(shortDir(t), socketName)
			if tt.long {
				if dir = filepath.Join(dir, long); os.Mkdir(dir, 0o700) != nil {
					t.Skip("names this long are not taken here")
				}
			}
			came := answering(t, forged)
			tt.lay(t, dir, forged)
			if got := dial(t.Context(), dir) != nil; got != tt.want {
				_, why := socketOf(dir)
				t.Errorf("dial finds somebody: %v, want %v (%v)", got, tt.want, why)
			}
			if !tt.want && came.Load() != 0 {
				t.Error("the forger was called")
			}
		})
	}
}

// judge, also for what another user owns.
func TestJudge(t *testing.T) {
	dir := t.TempDir()
	chmod(t, dir, 0o755)
	info, err := os.Lstat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := judge(info, os.ModeDir, os.Geteuid()); err != nil {
		t.Errorf("our own directory %v", err)
	}
	if err := judge(info, os.ModeDir, os.Geteuid()+1); err == nil || err.Error() != "belongs to another user" {
		t.Errorf("another's directory: %v", err)
	}
	if err := judge(info, os.ModeSocket, os.Geteuid()); err == nil {
		t.Error("a directory passes for a socket")
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := trusted(link, os.ModeDir); err == nil || !strings.HasSuffix(err.Error(), "is a symbolic link") {
		t.Errorf("a link: %v", err)
	}
}

// The data directory is closed to others, unless it is no directory of Roux.
func TestDataDirectoryIsSecluded(t *testing.T) {
	for _, tt := range []struct {
		name  string
		other string // a file that is none of ours
		want  os.FileMode
	}{
		{"made by hand", "", 0o700},
		{"with something else in it", "thesis.tex", 0o775},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := shortDir(t)
			chmod(t, dir, 0o775)
			if tt.other != "" {
				if err := os.WriteFile(filepath.Join(dir, tt.other), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("ROUX_DATA", dir)
			for range 2 { // also when all of our files are there
				if _, talk, code := inProcess("x", "files", "put", "-"); code != 0 {
					t.Fatal(talk)
				}
			}
			info, err := os.Stat(dir)
			if err != nil || info.Mode().Perm() != tt.want {
				t.Errorf("its mode is %v, %v; want %v", info.Mode().Perm(), err, tt.want)
			}
		})
	}
}

// A directory of the user's that is called like the one in which sockets are
// made is not emptied for a socket.
func TestForeignNurseryIsLeftAlone(t *testing.T) {
	dir := shortDir(t)
	precious := filepath.Join(dir, nurseryName, "deep", "thesis.tex")
	if err := os.MkdirAll(filepath.Dir(precious), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := listen(dir); !errors.Is(err, fault.StoreFailed) || !strings.Contains(err.Error(), nurseryName) {
		t.Errorf("listen: %v, want an error that names %s", err, nurseryName)
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
		t.Errorf("the user's file: %q, %v", text, err)
	}
}

// While the holder of a directory cannot be asked, the error says why.
func TestHolderIsNotAsked(t *testing.T) {
	h, _ := hosted(t)
	chmod(t, h.dir, 0o777)
	_, talk, code := inProcess("", "runs", "list")
	if code != fault.ExitConflict && code != 7 || !strings.Contains(talk, "STORE_LOCKED") || !strings.Contains(talk, "may be written by others (mode 0777)") {
		t.Errorf("exit %d: %s", code, talk)
	}
	out, _, code := inProcess("", "doctor")
	if code != fault.ExitFailed || !strings.Contains(out, "the socket of the data directory is not used") {
		t.Errorf("doctor: exit %d: %s", code, out)
	}
}

// A ./.roux that came with a project is not used: one of another user, and one
// with links, through which a lock would be written to any file of ours.
func TestA15_LocalDirectoryThatCameAlong(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		lay        func(t *testing.T)
	}{
		{"a link", "is a symbolic link", func(t *testing.T) {
			if err := os.Symlink("../away", config.LocalDir); err != nil {
				t.Fatal(err)
			}
		}},
		{"a link for the lock", "lock is a symbolic link", func(t *testing.T) {
			if err := os.Mkdir(config.LocalDir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("../../away/victim", filepath.Join(config.LocalDir, "lock")); err != nil {
				t.Fatal(err)
			}
		}},
		{"a link for the files", "files is a symbolic link", func(t *testing.T) {
			if err := os.Mkdir(config.LocalDir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("../../away", filepath.Join(config.LocalDir, filesDir)); err != nil {
				t.Fatal(err)
			}
		}},
		{"another user's", "belongs to another user", func(t *testing.T) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			if err := os.Mkdir(config.LocalDir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(config.LocalDir, 4711, 4711); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, sub := range []string{"project", "away"} {
				if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "away", "victim"), []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("ROUX_DATA", "")
			t.Setenv("HOME", filepath.Join(dir, "home"))
			t.Chdir(filepath.Join(dir, "project"))
			tt.lay(t)
			before := fingerprint(t, dir)
			for _, args := range [][]string{{"runs", "list"}, {"files", "put", "-"}, {"files", "ls"}, {"resume"}} {
				_, talk, code := inProcess("x", args...)
				if code != fault.ExitUsage || !strings.Contains(talk, tt.want) || !strings.Contains(talk, "ROUX_DATA") {
					t.Errorf("%v: exit %d: %s", args, code, talk)
				}
			}
			if out, _, code := inProcess("", "doctor"); code != fault.ExitFailed || !strings.Contains(out, tt.want) {
				t.Errorf("doctor: exit %d: %s", code, out)
			}
			if fingerprint(t, dir) != before {
				t.Error("something was written")
			}
		})
	}
}
