// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// packed makes a store with n runs of three events that share one pack, the
// last one suspended. The events of each run differ from all others'.
func packed(t *testing.T, dir string, n int) *Store {
	t.Helper()
	s := open(t, dir)
	epoch := own(t, s)
	var starts, compactions []store.Transition
	for i := range n {
		tr := startOf(epoch, runKey(i), string(packedEvents(i)))
		tr.Last = 3
		starts = append(starts, tr)
		compactions = append(compactions, store.Transition{Key: runKey(i), Epoch: epoch, Compaction: &store.Compaction{
			First: 1, Last: 3, Chunk: packedEvents(i), Format: 9, State: fmt.Append(nil, "state of ", i),
		}})
	}
	compactions[n-1].Suspension = &store.Suspension{WakeAt: 7}
	mustCommit(t, s, starts...)
	mustCommit(t, s, compactions...)
	wantPacks(t, s, 1)
	return s
}

func packedEvents(i int) []byte { return fmt.Append(nil, "three events of run ", i) }

func wantPacks(t *testing.T, s *Store, n int) {
	t.Helper()
	var got int
	if err := s.read.QueryRow(`SELECT count(*) FROM packs`).Scan(&got); err != nil || got != n {
		t.Fatalf("%d packs, %v, want %d", got, err, n)
	}
}

func wantPacked(t *testing.T, s *Store, i int) {
	t.Helper()
	saved, err := s.Load(ctx, runKey(i))
	if err != nil || string(saved.State) != fmt.Sprint("state of ", i) || saved.Format != 9 || saved.StateLast != 3 || saved.Last != 3 || len(saved.Tail) > 0 {
		t.Fatalf("Load of run %d = %+v, %v", i, saved, err)
	}
	page, err := s.Events(ctx, runKey(i), 0, 1<<20)
	if err != nil || !bytes.Equal(page.Frames, packedEvents(i)) || page.Next != 3 {
		t.Fatalf("Events of run %d = %+v, %v", i, page, err)
	}
}

// Compactions of one commit share a pack; each run finds its own in it, also after
// the store was opened again.
func TestCompactionsOfOneCommitShareAPack(t *testing.T) {
	dir := t.TempDir()
	s := packed(t, dir, 20)
	for i := range 20 {
		wantPacked(t, s, i)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	for i := range 20 {
		wantPacked(t, s, i)
	}
	// The numbers of packs continue.
	epoch := own(t, s)
	tr := startOf(epoch, runKey(99), "1")
	tr.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: []byte("1")}
	mustCommit(t, s, tr)
	wantPacks(t, s, 2)
	wantPacked(t, s, 3)
}

// A pack is bounded, so that damage hurts few runs and reading it is cheap.
func TestPacksAreSmall(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	rng := rand.New(rand.NewPCG(1, 2))
	var batch []store.Transition
	for i := range 100 {
		chunk := make([]byte, 4<<10)
		for k := range chunk {
			chunk[k] = byte(rng.Uint32())
		}
		tr := startOf(epoch, runKey(i), "1")
		tr.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: chunk}
		batch = append(batch, tr)
	}
	mustCommit(t, s, batch...)
	var most, packs int
	if err := s.read.QueryRow(`SELECT max(length(data)), count(*) FROM packs`).Scan(&most, &packs); err != nil {
		t.Fatal(err)
	}
	if most > format.PackSize+format.MaxPiece+format.BlobHead || packs < 12 {
		t.Fatalf("%d packs, the largest of %d bytes", packs, most)
	}
	for i := range batch {
		page, err := s.Events(ctx, runKey(i), 0, 1<<20)
		if err != nil || !bytes.Equal(page.Frames, batch[i].Compaction.Chunk) {
			t.Fatalf("run %d: %d bytes, %v", i, len(page.Frames), err)
		}
	}
}

// Small compactions and large ones of a run follow each other in any order, and every
// event is read from every cursor.
func TestPiecesAndChunksOfOneRun(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	sizes := []int{10, format.MaxPiece + 1, 20, 30, format.MaxPiece + 2, format.MaxPiece + 3, 40}
	var want [][]byte
	for i, size := range sizes {
		n := uint64(i) + 1
		want = append(want, bytes.Repeat([]byte{byte('a' + i)}, size))
		tr := store.Transition{Key: runKey(0), Epoch: epoch, First: n, Last: n, Frames: want[i]}
		if n == 1 {
			tr.Head = startOf(epoch, runKey(0), "").Head
		}
		tr.Compaction = &store.Compaction{First: n, Last: n, Chunk: want[i], Format: 1, State: fmt.Append(nil, n)}
		if i == 3 || i == 6 {
			tr.Compaction.State = nil // the state before it stays
		}
		mustCommit(t, s, tr)
		saved, err := s.Load(ctx, runKey(0))
		at := n
		if tr.Compaction.State == nil {
			at--
		}
		if err != nil || saved.StateLast != at || string(saved.State) != fmt.Sprint(at) || saved.Last != n {
			t.Fatalf("after compaction %d: state %q after event %d, last %d, %v", n, saved.State, saved.StateLast, saved.Last, err)
		}
	}
	for after := range sizes {
		page, err := s.Events(ctx, runKey(0), uint64(after), 1<<20)
		if err != nil || !bytes.Equal(page.Frames, bytes.Join(want[after:], nil)) {
			t.Fatalf("after %d: %d bytes up to event %d, %v", after, len(page.Frames), page.Next, err)
		}
	}
}

// A run that was suspended many times can be read from every cursor, and loading it
// takes no more queries than loading a run that was suspended twice.
func TestManyPiecesOfOneRun(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	const last = 2*somePieces + 3
	rest := func(run int, times uint64) {
		t.Helper()
		var batch []store.Transition
		for n := uint64(1); n <= times; n++ {
			tr := store.Transition{Key: runKey(run), Epoch: epoch, First: n, Last: n, Frames: eventOf(run, n), Suspension: &store.Suspension{}}
			if n == 1 {
				tr.Head = startOf(epoch, runKey(run), "").Head
			}
			tr.Compaction = &store.Compaction{First: n, Last: n, Chunk: tr.Frames, Format: 1, State: fmt.Append(nil, "state ", n)}
			batch = append(batch, tr)
		}
		mustCommit(t, s, batch...)
	}
	rest(0, last)
	rest(1, 2)
	var want []byte
	for n := uint64(last); n > 0; n-- {
		want = append(eventOf(0, n), want...)
		page, err := s.Events(ctx, runKey(0), n-1, 1<<20)
		if err != nil || !bytes.Equal(page.Frames, want) || page.Next != last {
			t.Fatalf("Events after %d = %q up to event %d, %v", n-1, page.Frames, page.Next, err)
		}
	}
	load := func(run int, last uint64) float64 {
		return testing.AllocsPerRun(10, func() {
			saved, err := s.Load(ctx, runKey(run))
			if err != nil || saved.StateLast != last || string(saved.State) != fmt.Sprint("state ", last) {
				t.Fatalf("Load of run %d = %+v, %v", run, saved, err)
			}
		})
	}
	if many, two := load(0, last), load(1, 2); many > two+somePieces {
		t.Errorf("Load allocates %.0f times after %d rests, %.0f times after two", many, last, two)
	}
	// Without some of its pieces it is refused.
	if _, err := rawDB(t, filepath.Dir(s.path)).Exec(`DELETE FROM pieces WHERE run = ? AND last < ?`, runKey(0).Run, last); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Events(ctx, runKey(0), 0, 1<<20); !errors.Is(err, fault.StoreCorrupt) {
		t.Fatalf("Events of missing pieces = %v", err)
	}
}

// F20: whichever byte of a pack is damaged, the runs of that pack are refused and no
// others.
func TestF20_DamagedPack(t *testing.T) {
	s := packed(t, t.TempDir(), 5)
	epoch := s.epoch
	other := startOf(epoch, runKey(77), "1")
	other.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: []byte("1")}
	mustCommit(t, s, other)
	var data []byte
	if err := s.read.QueryRow(`SELECT data FROM packs WHERE id = 1`).Scan(&data); err != nil {
		t.Fatal(err)
	}
	put := func(data []byte) {
		s.w.Lock()
		defer s.w.Unlock()
		if _, err := s.st.replacePack.Exec(int64(1), data); err != nil {
			t.Fatal(err)
		}
		s.packs.forget(1)
	}
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 0x10
		put(bad)
		for r := range 5 {
			if _, err := s.Load(ctx, runKey(r)); !errors.Is(err, fault.StoreCorrupt) {
				t.Fatalf("byte %d: Load of run %d = %v", i, r, err)
			}
		}
		if _, err := s.Load(ctx, runKey(77)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Recover(ctx, func(saved *store.Saved) error {
		if (saved.Head.Run != runKey(77).Run) != errors.Is(saved.Err, fault.StoreCorrupt) {
			t.Errorf("run %s is recovered with %v", saved.Head.Run, saved.Err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	put(data)
	wantPacked(t, s, 0)
}

// A deleted run is removed from its pack, and the last one removes the pack.
func TestDeletedRunsLeaveTheirPacks(t *testing.T) {
	s := packed(t, t.TempDir(), 3)
	epoch := s.epoch
	over := func(i int) {
		t.Helper()
		head := *startOf(epoch, runKey(i), "").Head
		head.Ended = 5
		mustCommit(t, s, store.Transition{Key: runKey(i), Epoch: epoch, Head: &head})
		verdicts, err := s.Delete(ctx, epoch, 0, []store.Key{runKey(i)})
		if err != nil || verdicts[0].Err != nil {
			t.Fatal(err, verdicts)
		}
		if _, err := s.Load(ctx, runKey(i)); !errors.Is(err, fault.RunNotFound) {
			t.Fatalf("Load of a deleted run = %v", err)
		}
	}
	over(1)
	data, err := s.readPack(ctx, 1)
	if err != nil || bytes.Contains(data, packedEvents(1)) || !bytes.Contains(data, packedEvents(2)) {
		t.Fatalf("the pack is %q, %v after run 1 was deleted", data, err)
	}
	wantPacked(t, s, 0)
	wantPacked(t, s, 2)
	over(0)
	over(2)
	wantPacks(t, s, 0)
}
