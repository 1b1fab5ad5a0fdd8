// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	lib "modernc.org/sqlite/lib"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// TestI06_ReadErrorsEndLoudly has every read of the disk fail once, one after the
// other, while a store is opened, recovered, listed, read and checked. Whatever
// says that it went well has given out everything.
func TestI06_ReadErrorsEndLoudly(t *testing.T) {
	const runs = 450 // more than two pages of live runs
	dir := t.TempDir()
	fillStore(t, dir, runs)
	whole := func() (seen string, err error) { // what a store says of itself
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
		_, complaints, err := s.Check(ctx)
		if err != nil {
			return "", fmt.Errorf("check: %w", err)
		}
		if len(complaints) > 0 {
			return "", fault.New(fault.StoreCorrupt, "%s", complaints[0])
		}
		return fmt.Sprintf("%d live runs of %d bytes, %d heads, %d due", live, bytes, len(heads), len(due)), nil
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
		step = 7 // a store reads alike for long
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

// fillStore makes a store of live, parked and settled runs, with folds of both kinds.
func fillStore(t *testing.T, dir string, runs int) {
	t.Helper()
	s, err := Open(ctx, Options{Dir: dir, cold: true})
	if err != nil {
		t.Fatal(err)
	}
	epoch := own(t, s)
	var batch []store.Transition
	for i := range runs {
		tr := startOf(epoch, runKey(i), "1")
		if i%50 == 0 {
			tr.Fold = &store.Fold{First: 1, Last: 1, Chunk: bytes.Repeat([]byte("1"), i/50%2*(maxPiece+1)+1), Format: 1, State: []byte("state")}
		}
		if i%100 == 0 {
			tr.Park = &store.Park{WakeAt: int64(i) + 1}
		}
		batch = append(batch, tr)
	}
	mustCommit(t, s, batch...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
