// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/storetest"
)

var ctx = context.Background()

func open(t testing.TB, dir string) *Store {
	t.Helper()
	return openWith(t, Options{Dir: dir, cold: true})
}

func openWith(t testing.TB, opt Options) *Store {
	t.Helper()
	s, err := Open(ctx, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, t.TempDir()) })
}

func TestCrashes(t *testing.T) {
	storetest.RunCrash(t, func(t *testing.T) storetest.Disk {
		dir := t.TempDir()
		return storetest.Disk{
			Open:   func(t *testing.T) store.Store { return open(t, dir) },
			Reopen: func(t *testing.T, _ store.Store) store.Store { return open(t, dir) },
			Crash: func(t *testing.T, s store.Store) store.Store {
				dir = copyOf(t, filepath.Dir(s.(*Store).path))
				return open(t, dir)
			},
			Damage: func(t *testing.T, s store.Store, key store.Key) store.Store {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				damage(t, dir, key)
				return open(t, dir)
			},
		}
	})
}

// copyOf copies a data directory in use, as a crash would leave it: everything
// written is there, the lock is not held.
func copyOf(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range []string{"roux.db", "roux.db-wal"} {
		copyFile(t, filepath.Join(dir, name), filepath.Join(to, name), -1)
	}
	return to
}

// copyFile copies the first n bytes, or all.
func copyFile(t testing.TB, from, to string, n int64) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	if n < 0 {
		_, err = io.Copy(out, in)
	} else {
		_, err = io.CopyN(out, in, n)
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// rawDB opens the database file without this package, as the sqlite3 shell would.
func rawDB(t testing.TB, dir string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "roux.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// damage flips a bit in the frames of a run's last record.
func damage(t testing.TB, dir string, key store.Key) {
	t.Helper()
	db := rawDB(t, dir)
	defer db.Close()
	rewriteRow(t, db, func(data []byte) []byte {
		format.ParseRow(data, nil, func(r format.Record) {
			if r.Key == key {
				data[r.Off+r.N-1] ^= 1
			}
		})
		return data
	})
}

// rewriteRow changes the last journal row.
func rewriteRow(t testing.TB, db *sql.DB, change func([]byte) []byte) {
	t.Helper()
	var id int64
	var data []byte
	if err := db.QueryRow(`SELECT id, data FROM journal ORDER BY id DESC LIMIT 1`).Scan(&id, &data); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`UPDATE journal SET data = ? WHERE id = ?`, change(data), id); err != nil {
		t.Fatal(err)
	}
}

// runKey returns the key of run i. The functions below make small runs for the tests of
// this package.
func runKey(i int) store.Key { return store.Key{Account: "acme", Run: fmt.Sprintf("run_%06d", i)} }

func startOf(epoch uint64, key store.Key, frames string) store.Transition {
	return store.Transition{
		Key: key, Epoch: epoch, First: 1, Last: 1, Frames: []byte(frames),
		Head: &store.Head{Key: key, Recipe: "r", Status: "running", Created: 1, Updated: 1},
	}
}

func own(t testing.TB, s store.Store) uint64 {
	t.Helper()
	epoch, err := s.Own(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return epoch
}

func mustCommit(t testing.TB, s store.Store, batch ...store.Transition) {
	t.Helper()
	verdicts, err := s.Commit(ctx, batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range verdicts {
		if v.Err != nil {
			t.Fatalf("transition %d: %v", i, v.Err)
		}
	}
}

// wantRuns fails unless exactly the runs 0..n-1 are there.
func wantRuns(t *testing.T, s *Store, n int) {
	t.Helper()
	for i := range n {
		saved, err := s.Load(ctx, runKey(i))
		if err != nil || string(saved.Tail) != "1" {
			t.Fatalf("acknowledged run %d: %+v, %v", i, saved, err)
		}
	}
	if _, err := s.Load(ctx, runKey(n)); !errors.Is(err, fault.RunNotFound) {
		t.Fatalf("run %d: %v, want RUN_NOT_FOUND", n, err)
	}
}
