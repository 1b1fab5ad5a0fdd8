// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/datadir"
)

// Roux closes a data directory to other users, except one that holds other files as
// well.
func TestDataDirectoryIsSecluded(t *testing.T) {
	for _, tt := range []struct {
		name  string
		other string // a file that Roux did not make
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

// When the socket of the process that holds the directory is not trusted, the error
// says why.
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

// A ./.roux that came with a project is not used if it belongs to another user or
// contains links, because a lock written through a link could overwrite any file of
// this user.
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
			if err := os.Symlink("../../away", filepath.Join(config.LocalDir, datadir.Files)); err != nil {
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

// chmod sets rights, whatever the umask is.
func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
