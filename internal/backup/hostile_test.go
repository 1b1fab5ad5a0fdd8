// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/backup"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/store"
)

// A15, A16, I21: every part of a backup that was changed, cut, lost or replaced by a link is
// found before anything is restored, and nothing is written then.
func TestA16_DamagedBackups(t *testing.T) {
	m := openNode(t, filepath.Join(t.TempDir(), "data"))
	_, err := m.Engine.Wait(t.Context(), "free", m.start(t, "free", makeRecipe))
	must(t, err)
	to := filepath.Join(t.TempDir(), "backups")
	made, err := backup.Create(t.Context(), m.source(), to, quiet)
	must(t, err)
	m.stop(t)
	stored, err := filepath.Glob(filepath.Join(to, "files", "acct_*", "*", "sha256_*"))
	if err != nil || len(stored) != 2 { // with its record
		t.Fatalf("%q, %v", stored, err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, []byte("not of the backup"), 0o600))
	parts := map[string]string{
		"database": filepath.Join(to, made.ID, "roux.db"), "list": filepath.Join(to, made.ID, "files.jsonl"),
		"manifest": filepath.Join(to, made.ID, "manifest.json"), "file": stored[0], "record": stored[1],
	}
	changes := map[string]func(path string, text []byte) error{
		"flipped": func(path string, text []byte) error { text[len(text)/2] ^= 4; return os.WriteFile(path, text, 0o600) },
		"cut":     func(path string, text []byte) error { return os.WriteFile(path, text[:len(text)/2], 0o600) },
		"longer":  func(path string, text []byte) error { return os.WriteFile(path, append(text, " x"...), 0o600) },
		"removed": func(path string, _ []byte) error { return os.Remove(path) },
		"linked":  func(path string, _ []byte) error { return errors.Join(os.Remove(path), os.Symlink(outside, path)) },
		"hard linked": func(path string, _ []byte) error {
			return os.Link(path, filepath.Join(filepath.Dir(outside), "other"))
		},
	}
	for part, path := range parts {
		for how, change := range changes {
			if strings.HasSuffix(how, "linked") && runtime.GOOS == "windows" || part == "record" && how == "removed" { // such a file is whole
				continue
			}
			whole, err := os.ReadFile(path)
			must(t, err)
			must(t, change(path, append([]byte(nil), whole...)))
			_, problems, err := backup.Verify(t.Context(), to, quiet)
			if err == nil && len(problems) == 0 {
				t.Errorf("%s %s: nothing is wrong", part, how)
			}
			dir := filepath.Join(t.TempDir(), "restored")
			if _, err := backup.Restore(t.Context(), to, dir, quiet); err == nil {
				t.Errorf("%s %s: it was restored", part, how)
			}
			if _, err := os.Lstat(dir); !os.IsNotExist(err) {
				t.Errorf("%s %s: something was written: %v", part, how, err)
			}
			must(t, errors.Join(os.RemoveAll(path), os.RemoveAll(filepath.Join(filepath.Dir(outside), "other")), os.WriteFile(path, whole, 0o600)))
		}
	}
	if _, problems, err := backup.Verify(t.Context(), to, quiet); err != nil || len(problems) > 0 {
		t.Errorf("the backup as it was: %v, %v", problems, err)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "not of the backup" {
		t.Errorf("a file that a link led to: %q, %v", text, err)
	}
}

// I23: what a newer release wrote is refused. A directory that is not empty is refused, as is
// a directory of backups inside of the data directory.
func TestRefusedBackups(t *testing.T) {
	m := openNode(t, filepath.Join(t.TempDir(), "data"))
	defer m.stop(t)
	if _, err := backup.Create(t.Context(), m.source(), filepath.Join(m.dir, "backups"), quiet); !errors.Is(err, fault.Usage) {
		t.Errorf("a backup inside of its data directory: %v", err)
	}
	to := filepath.Join(t.TempDir(), "backups")
	made, err := backup.Create(t.Context(), m.source(), to, quiet)
	must(t, err)
	full := t.TempDir()
	must(t, os.WriteFile(filepath.Join(full, "mine"), nil, 0o600))
	if _, err := backup.Restore(t.Context(), to, full, quiet); !errors.Is(err, fault.Usage) {
		t.Errorf("restored over something: %v", err)
	}
	path := filepath.Join(to, made.ID, "manifest.json")
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, []byte(strings.Replace(string(text), `"format": 1`, `"format": 2`, 1)), 0o600))
	if _, err := backup.Restore(t.Context(), to, filepath.Join(t.TempDir(), "restored"), quiet); !errors.Is(err, fault.StoreNewer) {
		t.Errorf("a backup of a newer release: %v", err)
	}
}

// A backup or a restoration that ends early leaves nothing that counts, at whatever moment.
func TestStoppedBackups(t *testing.T) {
	m := openNode(t, filepath.Join(t.TempDir(), "data"))
	for range 20 {
		_, err := m.Engine.Wait(t.Context(), "free", m.start(t, "free", makeRecipe))
		must(t, err)
	}
	defer m.stop(t)
	to := filepath.Join(t.TempDir(), "backups")
	why := errors.New("enough")
	for stop := 1; ; stop += 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		steps := 0
		_, err := backup.Create(ctx, m.source(), to, func(backup.Progress) {
			if steps++; steps == stop {
				cancel(why)
			}
		})
		list, lerr := backup.List(to)
		must(t, lerr)
		if err == nil {
			if len(list) != 1 || steps >= stop {
				t.Errorf("%d backups after %d steps", len(list), steps)
			}
			break
		}
		if !errors.Is(err, why) || len(list) != 0 {
			t.Fatalf("stopped at step %d: %v, %d backups", stop, err, len(list))
		}
		if _, err := os.Lstat(filepath.Join(to, ".partial")); !os.IsNotExist(err) {
			t.Errorf("stopped at step %d: half a backup is left: %v", stop, err)
		}
	}
	for stop := 1; ; stop += 7 {
		ctx, cancel := context.WithCancelCause(t.Context())
		steps, dir := 0, filepath.Join(t.TempDir(), "restored")
		_, err := backup.Restore(ctx, to, dir, func(backup.Progress) {
			if steps++; steps == stop {
				cancel(why)
			}
		})
		if err == nil {
			break
		}
		if _, lerr := os.Lstat(dir); !errors.Is(err, why) || !os.IsNotExist(lerr) {
			t.Fatalf("stopped at step %d: %v, and %v", stop, err, lerr)
		}
	}
}

// Prune removes old backups and the files that only they had.
func TestPrune(t *testing.T) {
	m := openNode(t, filepath.Join(t.TempDir(), "data"))
	to := filepath.Join(t.TempDir(), "backups")
	for i := range 3 {
		run := m.start(t, "free", makeRecipe)
		_, err := m.Engine.Wait(t.Context(), "free", run)
		must(t, err)
		made, err := backup.Create(t.Context(), m.source(), to, quiet)
		must(t, err)
		if made.Files != 1 {
			t.Errorf("backup %d has %d files", i, made.Files)
		}
		_, err = m.Store.Delete(t.Context(), 1, 1<<60, []store.Key{{Account: "free", Run: run}})
		must(t, err)
		entries, err := m.Files.List(t.Context(), "free", blob.Query{})
		must(t, err)
		for _, e := range entries {
			must(t, m.Engine.Files().RemoveFile(t.Context(), "free", e.Info.Hash))
		}
	}
	m.stop(t)
	out, err := backup.Prune(t.Context(), to, 1)
	if err != nil || len(out.Backups) != 2 || out.Files != 2 || out.Kept != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	if m, problems, err := backup.Verify(t.Context(), to, quiet); err != nil || len(problems) > 0 || m.Files != 1 {
		t.Errorf("what was kept: %v, %v", problems, err)
	}
}
