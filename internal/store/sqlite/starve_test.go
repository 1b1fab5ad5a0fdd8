// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// grow commits n times 256 KiB, checkpoints as upkeep does, and returns the
// largest size of the log.
func grow(t *testing.T, s *Store, from uint64, n int) (most int64) {
	t.Helper()
	for i := range uint64(n) {
		mustCommit(t, s, store.Transition{Key: runKey(0), Epoch: s.epoch, First: from + i, Last: from + i, Frames: make([]byte, 256<<10)})
		s.checkpoint() // when one is due
		most = max(most, logSize(t, s))
	}
	return most
}

func logSize(t *testing.T, s *Store) int64 {
	t.Helper()
	info, err := os.Stat(s.path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// F48: at every moment a reader is under way, and each of them lasts for many commits.
// The log restarts nevertheless.
func TestF48_ReadersWithoutAPause(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector makes these reads longer than a commit waits for one")
	}
	s := open(t, t.TempDir())
	own(t, s)
	mustCommit(t, s, startOf(s.epoch, runKey(0), "1"))
	s.up.one.Lock()
	s.up.limit, s.up.long = 8<<20/pageSize, 8<<20/pageSize
	s.up.one.Unlock()
	quit, cancel := context.WithCancel(ctx)
	var reads atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for quit.Err() == nil {
				var rows int // slow by computing, after it has seen the journal
				err := s.read.QueryRowContext(ctx, `WITH RECURSIVE n(i) AS (SELECT max(id) * 0 FROM journal UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
					SELECT count(*) FROM n`).Scan(&rows)
				if err != nil {
					t.Error(err)
					return
				}
				reads.Add(1)
			}
		})
	}
	most := grow(t, s, 2, 240) // 60 MiB
	cancel()
	wg.Wait()
	if most > 44<<20 { // on a busy machine a restart comes late
		t.Errorf("the log grew to %d MiB of 60 that were written", most>>20)
	}
	t.Logf("the log had at most %d MiB of 60 that were written beside %d reads", most>>20, reads.Load())
}

// A long read transaction of another process makes the log grow, which cannot be
// prevented. Commits continue, and after the transaction ends the log becomes short
// again.
func TestF48_AForeignTransactionIsSurvived(t *testing.T) {
	s := open(t, t.TempDir())
	own(t, s)
	mustCommit(t, s, startOf(s.epoch, runKey(0), "1"))
	db := rawDB(t, filepath.Dir(s.path))
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRow(`SELECT count(*) FROM journal`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	if most := grow(t, s, 2, 320); most < 80<<20 {
		t.Fatalf("the log has %d MiB of 80: no transaction is in its way, and this test sees nothing", most>>20)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	grow(t, s, 322, 80) // enough for a checkpoint
	if size := logSize(t, s); size > longWAL {
		t.Errorf("the log still has %d MiB", size>>20)
	}
}

// F48: what retention and SetNote write to the log is checkpointed too, although they
// are not commits.
func TestF48_EveryWriteIsCheckpointed(t *testing.T) {
	s := open(t, t.TempDir())
	s.stopUpkeep() // it would be faster than this test
	epoch := own(t, s)
	over := startOf(epoch, runKey(0), "1")
	over.Head.Ended = 5
	over.Idempotency = &store.Idempotency{Key: "key"}
	over.Files = []string{"file"}
	over.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: make([]byte, format.MaxPiece+1)}
	small := startOf(epoch, runKey(1), "1")
	small.Head.Ended = 5
	small.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: small.Frames}
	mustCommit(t, s, over, small)
	for _, write := range []struct {
		what string
		do   func() error
	}{
		{"the heads of runs", func() error {
			_, err := (&deletion{s: s}).deleteAll(epoch, 0, []store.Key{runKey(0), runKey(1)})
			return err
		}},
		{"their chunks", func() error { _, err := s.removeChunks(runKey(0)); return err }},
		{"their pieces", func() error { return s.removePieces(ctx, []store.Key{runKey(1)}) }},
		{"keys", func() error { _, err := s.ForgetKeys(ctx, epoch, 1, 1); return err }},
		{"a file", func() error { return s.ForgetFile(ctx, runKey(0).Account, "file") }},
		{"a note", func() error { return s.SetNote(ctx, epoch, "n", []byte("1")) }},
	} {
		s.w.Lock()
		s.up.pages = checkpointPages - 1
		s.w.Unlock()
		if err := write.do(); err != nil {
			t.Fatal(write.what, err)
		}
		select {
		case <-s.up.wake:
		default:
			t.Errorf("%s: no checkpoint is due", write.what)
		}
	}
}
