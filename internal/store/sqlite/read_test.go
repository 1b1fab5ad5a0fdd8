// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	lib "modernc.org/sqlite/lib"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// TestI06_ReadErrorsEndLoudly makes each read from the disk fail once, one per attempt,
// while a store is opened, recovered, listed, read and checked. A call that returns no
// error has returned everything.
func TestI06_ReadErrorsEndLoudly(t *testing.T) {
	const runs = 450 // more than two pages of live runs
	dir := t.TempDir()
	fillStore(t, dir, runs)
	whole := func() (seen string, err error) { // all that the store returns
		s, err := Open(ctx, Options{Dir: dir, Readers: 1, vfs: diskVFS, cold: true})
		if err != nil {
			return "", err
		}
		defer s.Close()
		live, bytes := 0, 0
		err = s.Recover(ctx, func(saved *store.Saved) error {
			live++
			bytes += len(saved.Tail) + len(saved.State)
			return saved.Err
		})
		if err != nil {
			return "", fmt.Errorf("recover: %w", err)
		}
		heads, err := s.List(ctx, store.Query{Account: "acme", Limit: 500})
		if err != nil {
			return "", fmt.Errorf("list: %w", err)
		}
		due, err := s.Due(ctx, 1<<60, 500)
		if err != nil {
			return "", fmt.Errorf("due: %w", err)
		}
		seen, err = shownBy(s)
		if err != nil {
			return "", err
		}
		_, complaints, err := s.Check(ctx)
		if err != nil {
			return "", fmt.Errorf("check: %w", err)
		}
		if len(complaints) > 0 {
			return "", fault.New(fault.StoreCorrupt, "%s", complaints[0])
		}
		return fmt.Sprintf("%d live runs of %d bytes, %d heads, %d due, %s", live, bytes, len(heads), len(due), seen), nil
	}
	var reads, failAt atomic.Int64
	useDisk(&disk{read: func(bool, int64) int32 {
		if reads.Add(1) == failAt.Load() {
			return lib.SQLITE_IOERR_READ
		}
		return lib.SQLITE_OK
	}})
	defer useDisk(nil)
	want, err := whole()
	if err != nil {
		t.Fatal(err)
	}
	n, step := reads.Load(), int64(1)
	if testing.Short() {
		step = 61 // neighbouring reads are alike, so a sample is enough
	}
	t.Logf("%s; %d reads, of which each %d. fails", want, n, step)
	loud := 0
	for at := int64(1); at <= n; at += step {
		reads.Store(0)
		failAt.Store(at)
		got, err := whole()
		var own *fault.Error
		switch {
		case err == nil && got != want:
			t.Errorf("read %d of %d failed, and nobody said so: %s, want %s", at, n, got, want)
		case err != nil && !errors.As(err, &own):
			t.Errorf("read %d of %d failed with an error that has no code: %v", at, n, err)
		case errors.Is(err, fault.RunNotFound):
			t.Errorf("read %d of %d: a failed read counts as an absent run: %v", at, n, err)
		case err != nil:
			loud++
		}
	}
	if n < 50 || loud < int(n/step)/2 {
		t.Errorf("%d of %d failing reads were noticed; the test has lost its disk", loud, n/step)
	}
}

// shownBy returns the results of the other read methods on a store that fillStore
// filled.
func shownBy(s *Store) (string, error) {
	var seen []any
	for _, i := range []int{0, 1, 50, 100, 449} {
		saved, err := s.Load(ctx, runKey(i))
		if err != nil {
			return "", fmt.Errorf("load: %w", err)
		}
		page, err := s.Events(ctx, runKey(i), 0, 1<<20)
		if err != nil {
			return "", fmt.Errorf("events: %w", err)
		}
		seen = append(seen, len(saved.Tail), len(saved.State), len(page.Frames), page.Last)
	}
	plan, err := s.Plan(ctx, "plan")
	if err != nil {
		return "", fmt.Errorf("plan: %w", err)
	}
	note, err := s.Note(ctx, "note")
	if err != nil {
		return "", fmt.Errorf("note: %w", err)
	}
	naming, err := s.References(ctx, "acme", "sha256_f", 10)
	if err != nil {
		return "", fmt.Errorf("naming: %w", err)
	}
	ended, err := s.Ended(ctx, 1<<60, store.Wake{}, 10)
	if err != nil {
		return "", fmt.Errorf("ended: %w", err)
	}
	return fmt.Sprintf("%v, plan %s, note %s, naming %v, ended %v", seen, plan, note, naming, ended), nil
}

// fillStore makes a store of live, suspended and settled runs, with compactions of both kinds.
func fillStore(t *testing.T, dir string, runs int) {
	t.Helper()
	s, err := Open(ctx, Options{Dir: dir, cold: true})
	if err != nil {
		t.Fatal(err)
	}
	fillWith(t, s, runs)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func fillWith(t *testing.T, s *Store, runs int) {
	t.Helper()
	epoch := own(t, s)
	var batch []store.Transition
	for i := range runs {
		tr := startOf(epoch, runKey(i), "1")
		if i%50 == 0 {
			tr.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: bytes.Repeat([]byte("1"), i/50%2*(format.MaxPiece+1)+1), Format: 1, State: []byte("state")}
		}
		if i%100 == 0 {
			tr.Suspension = &store.Suspension{WakeAt: int64(i) + 1}
		}
		switch i {
		case 1:
			tr.Plans, tr.Files = []store.EncodedPlan{{Key: "plan", Data: []byte("a plan")}}, []string{"sha256_f"}
			tr.Idempotency = &store.Idempotency{Key: "key", BodyHash: "body", Until: 5}
		case 2:
			tr.Head.Ended, tr.Files = 7, []string{"sha256_g"}
			tr.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: []byte("1")}
		}
		batch = append(batch, tr)
	}
	mustCommit(t, s, batch...)
	if err := s.SetNote(ctx, epoch, "note", []byte("value")); err != nil {
		t.Fatal(err)
	}
}

// TestI06_ReadErrorsInWrites makes each read from the disk fail once while a store that
// was not closed is opened and written to. A write is refused when a read that it needs
// fails: no key counts as unused and no run as absent because of it, and nothing is
// lost.
func TestI06_ReadErrorsInWrites(t *testing.T) {
	const runs = 60
	live := open(t, t.TempDir())
	fillWith(t, live, runs)
	image := copyOf(t, filepath.Dir(live.path)) // before a clean end
	var reads, failAt atomic.Int64
	try := func() (seen string, dir string, err error) {
		dir = copyOf(t, image)
		useDisk(&disk{read: func(bool, int64) int32 {
			if reads.Add(1) == failAt.Load() {
				return lib.SQLITE_IOERR_READ
			}
			return lib.SQLITE_OK
		}})
		defer useDisk(nil)
		s, err := Open(ctx, Options{Dir: dir, Readers: 1, vfs: diskVFS, cold: true})
		if err != nil {
			return "", dir, err
		}
		seen, err = writesTo(s)
		return seen, dir, errors.Join(err, s.Close())
	}
	want, _, err := try()
	if err != nil {
		t.Fatal(err)
	}
	n, loud, step := reads.Load(), 0, int64(1)
	if testing.Short() {
		step = 7
	}
	for at := int64(1); at <= n; at += step {
		reads.Store(0)
		failAt.Store(at)
		got, dir, err := try()
		var own *fault.Error
		switch {
		case err == nil && got != want:
			t.Errorf("read %d of %d failed, and nobody said so: %s, want %s", at, n, got, want)
		case err != nil && !errors.As(err, &own):
			t.Errorf("read %d of %d failed with an error that has no code: %v", at, n, err)
		case err != nil:
			loud++
		}
		s := open(t, dir)
		if c := checkOf(t, s); len(c) > 0 {
			t.Errorf("read %d of %d left %q", at, n, c)
		}
		for i := range runs {
			if _, err := s.Load(ctx, runKey(i)); err != nil && i != 2 { // which may be deleted
				t.Errorf("read %d of %d: run %d: %v", at, n, i, err)
			}
		}
		if err := errors.Join(s.Close(), os.RemoveAll(dir)); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s; %d reads, %d of %d that failed were noticed", want, n, loud, (n+step-1)/step)
	if n < 50 || loud < int(n/step)/2 {
		t.Errorf("%d of %d failing reads were noticed; the test has lost its disk", loud, n/step)
	}
}

// writesTo makes one write of each kind, and returns the results as text.
func writesTo(s *Store) (string, error) {
	epoch, err := s.Own(ctx)
	if err != nil {
		return "", err
	}
	again, other, second := startOf(epoch, runKey(1001), "1"), startOf(epoch, runKey(1002), "1"), startOf(epoch, runKey(4), "1")
	again.Idempotency = &store.Idempotency{Key: "key", BodyHash: "body", Until: 5}
	other.Idempotency = &store.Idempotency{Key: "key", BodyHash: "other", Until: 5}
	verdicts, err := s.Commit(ctx, []store.Transition{
		again, other, second, startOf(epoch, runKey(1003), "1"),
		{Key: runKey(0), Epoch: epoch, First: 2, Last: 2, Frames: []byte("2")},  // suspended
		{Key: runKey(50), Epoch: epoch, First: 2, Last: 2, Frames: []byte("2")}, // in a chunk
		{Key: runKey(5), Epoch: epoch, First: 5, Last: 5, Frames: []byte("5")},  // a gap
		{Key: runKey(6), Epoch: epoch, First: 2, Last: 2, Frames: []byte("2")},
	})
	if err != nil {
		return "", err
	}
	gone, err := s.Delete(ctx, epoch, 0, []store.Key{runKey(2), runKey(3)})
	if err != nil {
		return "", err
	}
	keys, err := s.ForgetKeys(ctx, epoch, 10, 10)
	if err != nil {
		return "", err
	}
	if err := errors.Join(s.ForgetFile(ctx, "acme", "sha256_g"), s.SetNote(ctx, epoch, "note", []byte("new"))); err != nil {
		return "", err
	}
	var said []string
	for _, v := range append(verdicts, gone...) {
		said = append(said, string(fault.CodeOf(v.Err))+v.Run)
	}
	return fmt.Sprintf("epoch %d, %q, %d keys", epoch, said, keys), nil
}
