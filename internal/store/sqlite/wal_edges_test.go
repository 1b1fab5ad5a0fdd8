// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store/sqlite/wal"
)

// Another process reads the database while the store is closed. The log then cannot
// restart, and the next store appends to it, so closing must not clear its header.
func TestCleanEndBesideAReader(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	mustCommit(t, s, startOf(own(t, s), runKey(0), "1"))
	tx, err := rawDB(t, dir).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var n int
	if err := tx.QueryRow(`SELECT count(*) FROM runs`).Scan(&n); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	mustCommit(t, s, startOf(own(t, s), runKey(1), "1"))
	if runs, _, err := tried(copyOf(t, dir)); err != nil || runs != 2 { // the power goes
		t.Errorf("%d of 2 acknowledged runs are there, %v", runs, err)
	}
}

// A log has two commits of the same page. The database has the page of the first
// commit, and the header of the log is damaged. The store is refused, because the
// second commit would be lost.
func TestLostHeaderOfOnePage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	epoch := own(t, s)
	if err := errors.Join(s.SetNote(ctx, epoch, "note", []byte("none")), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	if err := errors.Join(s.SetNote(ctx, epoch, "note", []byte("past")), s.SetNote(ctx, epoch, "note", []byte("last"))); err != nil {
		t.Fatal(err)
	}
	image := copyOf(t, dir)
	frame, n, _ := framesOf(t, image)
	log, err := os.ReadFile(filepath.Join(image, "roux.db-wal"))
	if err != nil {
		t.Fatal(err)
	}
	first, second := log[wal.HeaderSize:wal.HeaderSize+frame], log[wal.HeaderSize+frame:wal.HeaderSize+2*frame]
	page := binary.BigEndian.Uint32(first)
	if n != 2 || page != binary.BigEndian.Uint32(second) {
		t.Fatalf("%d frames, of pages %d and %d", n, page, binary.BigEndian.Uint32(second))
	}
	edit(t, filepath.Join(image, "roux.db"), int64(page-1)*pageSize, pageSize, func(b []byte) { copy(b, first[wal.FrameHeader:]) })
	edit(t, filepath.Join(image, "roux.db-wal"), 20, 1, func(b []byte) { b[0] ^= 1 })
	if _, _, err := tried(image); !errors.Is(err, fault.StoreCorrupt) {
		t.Errorf("the last commit is not in the database: %v", err)
	}
}

// An unfinished commit is dropped, the store is closed cleanly, and the power fails
// while the next store writes the header of the log: nothing is lost.
func TestTornHeaderAfterAnUnfinishedCommit(t *testing.T) {
	dir := copiedLog(t, killed(t, 10))
	log := filepath.Join(dir, "roux.db-wal")
	frame, n, _ := framesOf(t, dir)
	edit(t, log, wal.HeaderSize+(n-1)*frame+512, 1, func(b []byte) { b[0] ^= 1 })
	if runs, unfinished, err := tried(dir); err != nil || runs != 9 || unfinished == 0 {
		t.Fatalf("%d runs, %d pages unfinished, %v", runs, unfinished, err)
	}
	edit(t, log, 0, 8, func(b []byte) { binary.BigEndian.PutUint32(b, wal.Magic) })
	if runs, _, err := tried(dir); err != nil || runs != 9 {
		t.Errorf("%d runs, %v", runs, err)
	}
}

// TestUnfinishedPages: Unfinished counts the torn page of a commit, too.
func TestUnfinishedPages(t *testing.T) {
	image := copiedLog(t, killed(t, 10))
	frame, n, commits := framesOf(t, image)
	last := commits[len(commits)-2]
	for _, written := range []int64{1, 2, n - last} { // of the pages of the last commit
		dir := copiedLog(t, image)
		log := filepath.Join(dir, "roux.db-wal")
		edit(t, log, wal.HeaderSize+last*frame+512, 1, func(b []byte) { b[0] ^= 1 })
		edit(t, log, wal.HeaderSize+(last+written)*frame, int((n-last-written)*frame), func(b []byte) { clear(b) })
		if runs, unfinished, err := tried(dir); err != nil || runs != 9 || unfinished != int(written) {
			t.Errorf("of a torn commit %d pages were written: %d counted, %d runs, %v", written, unfinished, runs, err)
		}
	}
}

// The error for a damaged log names the frame and what can still be read.
func TestDamagedLogNamesWhatIsReadable(t *testing.T) {
	image := killed(t, 20)
	frame, _, commits := framesOf(t, image)
	for _, c := range []struct {
		at   int64 // the frame that is hit; 0 = the header
		want string
	}{
		{0, "its header does not verify"},
		{1, "frame 1 does not verify"},
		{commits[4] + 2, fmt.Sprintf("frame %d does not verify", commits[4]+2)}, // in the middle of a commit
		{commits[len(commits)-1], fmt.Sprintf("frame %d of %d", commits[len(commits)-1], commits[len(commits)-1])},
	} {
		dir := copied(t, image)
		at := int64(20)
		readable := len(commits)
		if c.at > 0 {
			at = wal.HeaderSize + (c.at-1)*frame + 100
			readable = 0
			for _, end := range commits {
				if end < c.at {
					readable++
				}
			}
		}
		edit(t, filepath.Join(dir, "roux.db-wal"), at, 1, func(b []byte) { b[0] ^= 1 })
		_, _, err := tried(dir)
		want := []string{c.want, fmt.Sprintf("and the first %d commits in the log", readable)}
		if readable == 0 {
			want[1] = "What can be read is the database"
		}
		for _, words := range want {
			if !errors.Is(err, fault.StoreCorrupt) || !strings.Contains(fault.Message(err), words) {
				t.Errorf("frame %d: %v, want %q", c.at, err, words)
			}
		}
	}
}

// Bit flips in the index of the log, or in the log of a store that was closed cleanly,
// lose nothing.
func TestFlippedBitsBesideTheLog(t *testing.T) {
	image := killed(t, 20)
	ended := copied(t, image)
	if runs, _, err := tried(ended); err != nil || runs != 20 {
		t.Fatal(runs, err)
	}
	frame, n, _ := framesOf(t, image)
	dice := rand.New(rand.NewPCG(3, 4))
	for i := range 60 {
		from, name, at := image, "roux.db-shm", dice.Int64N(136) // SQLite rebuilds what follows these bytes
		switch i % 3 {
		case 1:
			from, name, at = ended, "roux.db-wal", dice.Int64N(wal.HeaderSize)
		case 2:
			from, name, at = ended, "roux.db-wal", wal.HeaderSize+dice.Int64N(n*frame)
		}
		dir := copied(t, from)
		edit(t, filepath.Join(dir, name), at, 1, func(b []byte) { b[0] ^= 1 << dice.IntN(8) })
		if runs, _, err := tried(dir); err != nil || runs != 20 {
			t.Errorf("byte %d of %s: %d runs, %v", at, name, runs, err)
		}
	}
}
