// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlite

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	lib "modernc.org/sqlite/lib"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// openOn opens a store on a disk that may fail.
func openOn(t *testing.T, d *disk) *Store {
	t.Helper()
	name := useDisk(d)
	t.Cleanup(func() { useDisk(nil) })
	s, err := Open(ctx, Options{Dir: t.TempDir(), vfs: name, cold: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		useDisk(nil)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// tryCommit commits the start of run i and returns the error of the commit.
func tryCommit(t *testing.T, s *Store, i int) error {
	t.Helper()
	verdicts, err := s.Commit(ctx, []store.Transition{startOf(s.epoch, runKey(i), "1")})
	if err == nil && verdicts[0].Err != nil {
		t.Fatal(verdicts[0].Err)
	}
	return err
}

// I21, F32: after one failed write or sync of a commit nothing is acknowledged
// until the store is opened again, although the disk works once more.
func TestI21_FailedCommitStopsAcknowledging(t *testing.T) {
	for _, c := range []struct {
		name        string
		write, sync int32
	}{
		{"sync", 0, lib.SQLITE_IOERR_FSYNC},
		{"write", lib.SQLITE_IOERR_WRITE, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var armed, hits int
			fail := func(rc int32) int32 {
				if rc == 0 || armed == 0 {
					return 0
				}
				armed--
				hits++
				return rc
			}
			d := &disk{
				write: func(bool, []byte, int64) int32 { return fail(c.write) },
				sync:  func(bool) int32 { return fail(c.sync) },
			}
			s := openOn(t, d)
			own(t, s)
			for i := range 3 {
				if err := tryCommit(t, s, i); err != nil {
					t.Fatal(err)
				}
			}
			armed = 1
			if err := tryCommit(t, s, 3); !errors.Is(err, fault.StoreFailed) {
				t.Fatalf("Commit = %v, want STORE_FAILED", err)
			}
			for range 3 {
				if err := tryCommit(t, s, 3); !errors.Is(err, fault.StoreFailed) {
					t.Fatalf("later Commit = %v, want STORE_FAILED", err)
				}
			}
			if err := s.SetNote(ctx, s.epoch, "n", nil); !errors.Is(err, fault.StoreFailed) {
				t.Fatalf("SetNote = %v, want STORE_FAILED", err)
			}
			if _, err := s.Own(ctx); !errors.Is(err, fault.StoreFailed) {
				t.Fatalf("Own = %v, want STORE_FAILED", err)
			}
			if hits != 1 {
				t.Fatalf("the disk was asked %d times after it failed", hits)
			}
			wantRuns(t, s, 3) // reads are served
			// F16: the caller cannot know whether the commit was written. After the
			// store is opened again the commit is whole or absent, and all earlier ones
			// are there.
			s = open(t, copyOf(t, filepath.Dir(s.path)))
			own(t, s)
			n := 3
			if _, err := s.Load(ctx, runKey(3)); err == nil {
				n = 4
			}
			wantRuns(t, s, n)
			if err := tryCommit(t, s, n); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// I21: a failed sync in a checkpoint stops the store too, because a checkpoint syncs
// the log first.
func TestI21_FailedCheckpointStopsAcknowledging(t *testing.T) {
	armed := false
	s := openOn(t, &disk{sync: func(wal bool) int32 {
		if armed {
			armed = false
			return lib.SQLITE_IOERR_FSYNC
		}
		return 0
	}})
	own(t, s)
	if err := tryCommit(t, s, 0); err != nil {
		t.Fatal(err)
	}
	armed = true
	s.w.Lock()
	s.up.pages = checkpointPages
	s.w.Unlock()
	s.checkpoint()
	if err := tryCommit(t, s, 1); !errors.Is(err, fault.StoreFailed) {
		t.Fatalf("Commit = %v, want STORE_FAILED", err)
	}
	wantRuns(t, s, 1)
}

// I21: closing a store whose disk has failed neither syncs nor writes, because what the
// kernel then reports as written may be lost already.
func TestI21_CloseAfterAFailedSync(t *testing.T) {
	armed, failed, after := false, false, 0
	touched := func() {
		if failed {
			after++
		}
	}
	s := openOn(t, &disk{
		write: func(bool, []byte, int64) int32 {
			touched()
			return 0
		},
		sync: func(bool) int32 {
			touched()
			if !armed || failed {
				return 0
			}
			failed = true
			return lib.SQLITE_IOERR_FSYNC
		},
	})
	own(t, s)
	if err := tryCommit(t, s, 0); err != nil {
		t.Fatal(err)
	}
	armed = true
	if err := tryCommit(t, s, 1); !errors.Is(err, fault.StoreFailed) {
		t.Fatalf("Commit = %v, want STORE_FAILED", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if after != 0 {
		t.Errorf("%d writes and syncs after the disk had failed", after)
	}
	again := open(t, filepath.Dir(s.path)) // in the same process
	own(t, again)
	if err := tryCommit(t, again, 2); err != nil {
		t.Fatal(err)
	}
}

// fullAfter is a disk that is full after *left writes, and never while that is
// negative. It counts the writes that it refuses.
func fullAfter(left, full *int) *disk {
	return &disk{write: func(bool, []byte, int64) int32 {
		switch {
		case *left < 0:
			return 0
		case *left > 0:
			*left--
			return 0
		}
		*full++
		return lib.SQLITE_FULL
	}}
}

// F31: the disk is full at the nth write of a commit, or in a checkpoint, and
// has space again afterwards.
func TestF31_FullDisk(t *testing.T) {
	left := -1 // writes until the disk is full; -1 = never
	full := 0
	s := openOn(t, fullAfter(&left, &full))
	own(t, s)
	n := 0
	for nth := range 12 {
		left = nth
		err := tryCommit(t, s, n)
		if err == nil {
			n++
		} else if !errors.Is(err, fault.StoreFull) {
			t.Fatalf("write %d: Commit = %v, want STORE_FULL", nth, err)
		}
		wantRuns(t, s, n)
		if err == nil {
			break // a commit needs no more writes than that
		}
		left = -1
		if err := tryCommit(t, s, n); err != nil {
			t.Fatalf("write %d: with space again: %v", nth, err)
		}
		n++
		wantRuns(t, s, n)
	}
	if full < 3 || n < 4 {
		t.Fatalf("the disk was full %d times in %d commits", full, n)
	}
	left = 0
	s.w.Lock()
	s.up.pages = checkpointPages
	s.w.Unlock()
	s.checkpoint()
	left = -1
	if err := tryCommit(t, s, n); err != nil {
		t.Fatalf("after a checkpoint on a full disk: %v", err)
	}
	wantRuns(t, open(t, copyOf(t, filepath.Dir(s.path))), n+1)
}

// F31: the disk is full in the middle of a commit with entries. The account is as it was
// before, and the same entries are written when there is space again.
func TestF31_FullDiskInAGrant(t *testing.T) {
	left, full := -1, 0
	s := openOn(t, fullAfter(&left, &full))
	own(t, s)
	grant(t, s, "acme", 0, 1)
	failed := 0
	for n := 1; n < 12; n++ {
		batch := []store.Transition{grants(t, s, "acme", n, n+1)}
		left = n - 1
		_, err := s.Commit(ctx, batch)
		left = -1
		if err != nil {
			if failed++; !errors.Is(err, fault.StoreFull) {
				t.Fatalf("Commit = %v, want STORE_FULL", err)
			}
			if a, err := s.Account(ctx, "acme", math.MaxInt64); err != nil || a.Seq() != uint64(n) {
				t.Fatalf("after a failed grant the account has %d entries, %v", a.Seq(), err)
			}
			mustCommit(t, s, batch...)
		}
	}
	if failed < 2 || full < failed {
		t.Fatalf("%d grants failed, the disk was full %d times", failed, full)
	}
	if c := checkOf(t, s); len(c) > 0 {
		t.Errorf("the check says %q", c)
	}
}

// A batch that needs several rows is still one transaction.
func TestALargeBatchIsWholeOrAbsent(t *testing.T) {
	left := -1
	s := openOn(t, &disk{write: func(bool, []byte, int64) int32 {
		if left == 0 {
			return lib.SQLITE_FULL
		}
		left--
		return 0
	}})
	epoch := own(t, s)
	mustCommit(t, s, startOf(epoch, runKey(0), "1"), startOf(epoch, runKey(1), "1"), startOf(epoch, runKey(2), "1"))
	var batch []store.Transition
	for i := range 3 {
		batch = append(batch, store.Transition{Key: runKey(i), Epoch: epoch, First: 2, Last: 2, Frames: make([]byte, 3<<20)})
	}
	for _, left = range []int{100, 500, 1000, 2000} { // a row takes about 770 writes
		if _, err := s.Commit(ctx, batch); !errors.Is(err, fault.StoreFull) {
			t.Fatalf("Commit = %v, want STORE_FULL", err)
		}
		left = -1
		again := open(t, copyOf(t, filepath.Dir(s.path)))
		for i := range 3 {
			for _, s := range []*Store{s, again} {
				if saved, err := s.Load(ctx, runKey(i)); err != nil || saved.Last != 1 {
					t.Fatalf("run %d: %v, want no part of a batch that failed", i, err)
				}
			}
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
	mustCommit(t, s, batch...)
	var rows, longest int
	if err := s.read.QueryRow(`SELECT count(*), max(length(data)) FROM journal`).Scan(&rows, &longest); err != nil {
		t.Fatal(err)
	}
	if rows != 4 || longest > maxRow {
		t.Fatalf("%d rows, the longest of %d bytes", rows, longest)
	}
	for i := range 3 {
		if saved, err := s.Load(ctx, runKey(i)); err != nil || saved.Last != 2 {
			t.Fatalf("run %d: %v", i, err)
		}
	}
}

// The log restarts from its beginning even if a commit is made during every checkpoint
// in the background.
func TestLogRestartsUnderContinuousWrites(t *testing.T) {
	var s *Store
	n, overtake := uint64(0), false
	add := func() {
		n++
		tr := store.Transition{Key: runKey(0), Epoch: s.epoch, First: n, Last: n, Frames: make([]byte, 256<<10)}
		if n == 1 {
			tr = startOf(s.epoch, runKey(0), "1")
		}
		mustCommit(t, s, tr)
	}
	s = openOn(t, &disk{sync: func(wal bool) int32 {
		if !wal && overtake {
			overtake = false
			add()
		}
		return 0
	}})
	own(t, s)
	s.w.Lock()
	s.up.pages = -1 << 40 // keeps the upkeep goroutine from checkpointing; this test does it
	s.w.Unlock()
	checkpoints := 0
	for n < 200 { // 50 MiB
		add()
		if n%10 == 0 {
			s.w.Lock()
			s.up.pages = checkpointPages
			s.w.Unlock()
			overtake = true
			s.checkpoint()
			if !overtake {
				checkpoints++
			}
			overtake = false
			s.w.Lock()
			s.up.pages = -1 << 40
			s.w.Unlock()
		}
	}
	info, err := os.Stat(s.path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if checkpoints < 10 || info.Size() > 8<<20 {
		t.Fatalf("after %d overtaken checkpoints the log has %d bytes", checkpoints, info.Size())
	}
}
