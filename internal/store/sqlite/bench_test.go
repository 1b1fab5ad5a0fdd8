// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/store"
)

// BenchmarkCommit measures one durable commit of a batch whose transitions carry only
// events, two of 60 bytes each, over 10,000 live runs, beside a bare append and sync of
// the same bytes in the same run. Every 512 commits the runs that Uncompacted returns are
// compacted while the timer is stopped.
func BenchmarkCommit(b *testing.B) {
	frames := bytes.Repeat([]byte("event-------"), 10)
	for _, n := range []int{1, 16, 256, 1024} {
		b.Run(fmt.Sprintf("batch=%d/roux", n), func(b *testing.B) {
			s := openWith(b, Options{Dir: b.TempDir()})
			epoch := own(b, s)
			runs := max(10_000, n)
			last := make([]uint64, runs)
			compacted := make([]uint64, runs)
			var batch []store.Transition
			for i := range runs {
				t := startOf(epoch, runKey(i), "start")
				batch = append(batch, t)
				last[i] = 1
			}
			mustCommit(b, s, batch...)
			batch = make([]store.Transition, n)
			next := 0
			b.ReportAllocs()
			for b.Loop() {
				for i := range batch {
					r := next % runs
					next += 7919
					batch[i] = store.Transition{Key: keys[r], Epoch: epoch, First: last[r] + 1, Last: last[r] + 2, Frames: frames}
					last[r] += 2
				}
				mustCommit(b, s, batch...)
				if size, _, _ := s.uncompacted(); size > store.CompactBytes {
					b.StopTimer()
					compactAll(b, s, epoch, last, compacted)
					b.StartTimer()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n)/1000, "µs/transition")
		})
		b.Run(fmt.Sprintf("batch=%d/append+sync", n), func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "log"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			buf := bytes.Repeat(frames, n)
			for b.Loop() {
				if _, err := f.Write(buf); err != nil {
					b.Fatal(err)
				}
				if err := datasync(f); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n)/1000, "µs/transition")
		})
	}
}

var keys = func() (keys [10_000]store.Key) {
	for i := range keys {
		keys[i] = runKey(i)
	}
	return keys
}()

// uncompacted is Uncompacted without the list, for tests that ask often.
func (s *Store) uncompacted() (size, events int64, runs int) {
	s.x.RLock()
	defer s.x.RUnlock()
	return s.x.uncoveredBytes, s.x.uncoveredEvents, len(s.x.runs)
}

// compactAll compacts every run with uncompacted events, as the engine would.
func compactAll(t testing.TB, s *Store, epoch uint64, last, compacted []uint64) {
	t.Helper()
	for {
		_, _, oldest := s.Uncompacted()
		if len(oldest) == 0 {
			return
		}
		var batch []store.Transition
		for _, k := range oldest {
			var i int
			if _, err := fmt.Sscanf(k.Run, "run_%d", &i); err != nil {
				t.Fatal(err)
			}
			batch = append(batch, store.Transition{Key: k, Epoch: epoch, Compaction: &store.Compaction{
				First: compacted[i] + 1, Last: last[i], Chunk: make([]byte, 60*(last[i]-compacted[i])), Format: 1, State: make([]byte, 200),
			}})
			compacted[i] = last[i]
		}
		mustCommit(t, s, batch...)
	}
}

// BenchmarkLife is a run's whole life of ten transitions in batches of 256:
// head rows at start and end, and a compaction of all events at the end.
func BenchmarkLife(b *testing.B) {
	frames := bytes.Repeat([]byte("event-------"), 10)
	s := openWith(b, Options{Dir: b.TempDir()})
	epoch := own(b, s)
	b.ReportAllocs()
	n := 0
	batch := make([]store.Transition, 256)
	for b.Loop() {
		for step := range 10 {
			for i := range batch {
				t := &batch[i]
				switch step {
				case 0:
					*t = startOf(epoch, runKey(n+i), string(frames))
				case 9:
					head := store.Head{Recipe: "r", Status: "completed", Created: 1, Updated: 2, Ended: 3}
					*t = store.Transition{Key: runKey(n + i), Epoch: epoch, First: 10, Last: 10, Frames: frames, Head: &head,
						Compaction: &store.Compaction{First: 1, Last: 10, Chunk: bytes.Repeat(frames, 10)}}
				default:
					*t = store.Transition{Key: runKey(n + i), Epoch: epoch, First: uint64(step) + 1, Last: uint64(step) + 1, Frames: frames}
				}
			}
			mustCommit(b, s, batch...)
		}
		n += len(batch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2560/1000, "µs/transition")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256/1000, "µs/run")
}

// BenchmarkHead reads the head of a run, as a caller that waits for the run's end does.
func BenchmarkHead(b *testing.B) {
	s := openWith(b, Options{Dir: b.TempDir()})
	epoch := own(b, s)
	var batch []store.Transition
	for i := range 1000 {
		batch = append(batch, startOf(epoch, runKey(i), "start"))
	}
	mustCommit(b, s, batch...)
	live, stop := context.WithCancel(ctx)
	defer stop()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if _, err := s.Head(live, keys[n%1000]); err != nil {
			b.Fatal(err)
		}
		n++
	}
}

// BenchmarkTree lists roots beside a tree of 10,000 runs, lists its children, and deletes
// it. The commits of others wait for the longest transaction of a deletion, first/op.
func BenchmarkTree(b *testing.B) {
	const children = 10_000
	s := openWith(b, Options{Dir: b.TempDir()})
	epoch := own(b, s)
	for i := range 200 {
		mustCommit(b, s, startOf(epoch, runKey(i), "start"))
	}
	tree := func(root store.Key) {
		b.Helper()
		batch := []store.Transition{settledBelow(epoch, "", root)}
		for i := range children {
			k := store.Key{Account: root.Account, Run: fmt.Sprintf("%s_%d", root.Run, i)}
			if batch = append(batch, settledBelow(epoch, root.Run, k)); len(batch) == 512 || i == children-1 {
				mustCommit(b, s, batch...)
				batch = batch[:0]
			}
		}
	}
	root := runKey(1_000)
	tree(root)
	list := func(name string, q store.Query) {
		b.Run(name, func(b *testing.B) {
			q.Account = root.Account
			for b.Loop() {
				if heads, err := s.List(ctx, q); err != nil || len(heads) != 50 {
					b.Fatal(len(heads), err)
				}
			}
		})
	}
	list("roots", store.Query{})
	list("children", store.Query{Parent: root.Run})
	list("tree", store.Query{Root: root.Run, After: fmt.Sprintf("%s_%d", root.Run, 5_000)})
	b.Run("delete", func(b *testing.B) {
		var first time.Duration
		n := 1_001
		for b.Loop() {
			b.StopTimer()
			n++
			tree(runKey(n))
			b.StartTimer()
			d := deletion{s: s}
			begin := time.Now()
			if v, err := d.deleteAll(epoch, 0, []store.Key{runKey(n)}); err != nil || v[0].Err != nil {
				b.Fatal(v, err)
			}
			first += time.Since(begin)
			if err := s.removeTrees(ctx, d.trees); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(first.Milliseconds())/float64(b.N), "ms-first/op")
	})
}
