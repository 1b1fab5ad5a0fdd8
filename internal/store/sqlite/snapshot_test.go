// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/store"
)

// snapshotInto takes a snapshot and opens it as a store of its own.
func snapshotInto(t *testing.T, s *Store, progress func(done, total int64)) *Store {
	t.Helper()
	snap, err := s.Snapshot(ctx, progress)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	to, err := os.OpenFile(filepath.Join(dir, datadir.Database), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(to, snap)
	if err := errors.Join(err, to.Close(), snap.Close()); err != nil || n != snap.Size {
		t.Fatalf("%d bytes of %d, %v", n, snap.Size, err)
	}
	if snap.Schema != Schema {
		t.Errorf("the schema of the snapshot is %d, want %d", snap.Schema, Schema)
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(s.path), datadir.Copy)); !os.IsNotExist(err) {
		t.Errorf("the copy is still there: %v", err)
	}
	return open(t, dir)
}

// filled returns a store with runs of about that many bytes in total.
func filled(t testing.TB, runs, bytes int) *Store {
	t.Helper()
	s := open(t, t.TempDir())
	own(t, s)
	noise := rand.New(rand.NewPCG(1, 1))
	for i := range runs {
		mustCommit(t, s, startOf(s.epoch, runKey(i), "1"))
		frames := make([]byte, bytes/runs)
		for j := range frames {
			frames[j] = byte(noise.Uint32())
		}
		mustCommit(t, s, store.Transition{Key: runKey(i), Epoch: s.epoch, First: 2, Last: 2, Frames: frames})
	}
	return s
}

// I1, F48: a snapshot is taken while commits go on. It has everything that was committed
// before it began and nothing that was begun after it ended, it is consistent, and it keeps
// the log from growing no more than commits alone do.
func TestF48_SnapshotBesideCommits(t *testing.T) {
	const runs = 8
	s := filled(t, runs, 6<<20)
	var mu sync.Mutex
	last := slices.Repeat([]uint64{2}, runs) // acknowledged
	quit, cancel := context.WithCancel(ctx)
	defer cancel()
	var logged int64
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			for range 500 {
				if quit.Err() != nil {
					return
				}
				mu.Lock()
				n := last[i] + 1
				mu.Unlock()
				mustCommit(t, s, store.Transition{Key: runKey(i), Epoch: s.epoch, First: n, Last: n, Frames: make([]byte, 4<<10)})
				mu.Lock()
				last[i] = n
				mu.Unlock()
			}
		})
	}
	for range 2 {
		mu.Lock()
		before := slices.Clone(last)
		mu.Unlock()
		steps := 0
		copied := snapshotInto(t, s, func(done, total int64) {
			steps++
			logged = max(logged, logSize(t, s))
			if done < 0 || done > total {
				t.Errorf("%d of %d pages are copied", done, total)
			}
		})
		mu.Lock()
		after := slices.Clone(last)
		mu.Unlock()
		if slices.Equal(before, after) {
			t.Errorf("nothing was committed during a snapshot of %d steps", steps)
		}
		if _, complaints, err := copied.Check(ctx); err != nil || len(complaints) > 0 {
			t.Fatalf("the snapshot: %v, %v", complaints, err)
		}
		for i := range runs {
			page, err := copied.Events(ctx, runKey(i), 0, 1)
			if err != nil || page.Last < before[i] || page.Last > after[i]+1 { // one may be under way
				t.Errorf("run %d ends at %d in the snapshot, %v; %d were acknowledged before and %d after", i, page.Last, err, before[i], after[i])
			}
		}
	}
	cancel()
	wg.Wait()
	if logged > longWAL {
		t.Errorf("the log grew to %d MiB", logged>>20)
	}
}

// A commit that fails while a snapshot is made does not get into it.
func TestSnapshotBesideARefusedCommit(t *testing.T) {
	s := filled(t, 2, 4<<20)
	once := sync.OnceFunc(func() {
		mustCommit(t, s, startOf(s.epoch, runKey(7), "1"))
		vs, err := s.Commit(ctx, []store.Transition{startOf(s.epoch+1, runKey(8), "1")})
		if err == nil && vs[0].Err == nil {
			t.Error("a commit of a stale owner was accepted")
		}
	})
	copied := snapshotInto(t, s, func(int64, int64) { once() })
	if _, err := copied.Head(ctx, runKey(7)); err != nil {
		t.Errorf("what was committed meanwhile: %v", err)
	}
	if _, err := copied.Head(ctx, runKey(8)); !errors.Is(err, fault.RunNotFound) {
		t.Errorf("what was refused meanwhile: %v", err)
	}
}

// The end of its context or of the store ends a snapshot, and nothing of it stays.
func TestSnapshotEnds(t *testing.T) {
	s := filled(t, 2, 4<<20)
	why := errors.New("enough")
	stopped, stop := context.WithCancelCause(ctx)
	if _, err := s.Snapshot(stopped, func(int64, int64) { stop(why) }); !errors.Is(err, why) {
		t.Errorf("a stopped snapshot: %v", err)
	}
	path := filepath.Join(filepath.Dir(s.path), datadir.Copy)
	if err := os.WriteFile(path, []byte("from a process that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	snapshotInto(t, s, func(int64, int64) {})
	_, err := s.Snapshot(ctx, func(int64, int64) {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(err, fault.StoreFailed) {
		t.Errorf("a snapshot of a store that was closed: %v", err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	open(t, filepath.Dir(s.path))
}

// BenchmarkCommitBesideSnapshots measures a commit of one row, alone and while snapshots of
// a store of 256 MB are made without a pause.
func BenchmarkCommitBesideSnapshots(b *testing.B) {
	s := filled(b, 64, 256<<20)
	n := uint64(3)
	for _, beside := range []bool{false, true} {
		b.Run(map[bool]string{false: "alone", true: "beside"}[beside], func(b *testing.B) {
			quit, cancel := context.WithCancel(ctx)
			var wg sync.WaitGroup
			if beside {
				wg.Go(func() {
					for quit.Err() == nil {
						snap, err := s.Snapshot(quit, func(int64, int64) {})
						if err != nil {
							if quit.Err() == nil {
								b.Error(err)
							}
							return
						}
						if err := snap.Close(); err != nil {
							b.Error(err)
						}
					}
				})
			}
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				mustCommit(b, s, store.Transition{Key: runKey(0), Epoch: s.epoch, First: n, Last: n, Frames: make([]byte, 200)})
				n++
				took = append(took, time.Since(begin))
			}
			cancel()
			wg.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(took[len(took)-1].Microseconds()), "max-µs")
		})
	}
}
