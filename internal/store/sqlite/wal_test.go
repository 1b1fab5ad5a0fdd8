// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/wal"
)

// killed makes a store with n runs and copies its files as a process that is killed
// leaves them. The last commit takes many pages.
func killed(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	s := openWith(t, Options{Dir: dir})
	epoch := own(t, s)
	for i := range n - 1 {
		mustCommit(t, s, startOf(epoch, runKey(i), "1"))
	}
	mustCommit(t, s, startOf(epoch, runKey(n-1), strings.Repeat("1", 200_000)))
	return imageOf(t, dir)
}

// imageOf copies the files of a store that is open.
func imageOf(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range []string{"roux.db", "roux.db-wal", "roux.db-shm"} {
		copyFile(t, filepath.Join(dir, name), filepath.Join(to, name), -1)
	}
	return to
}

// copied is a copy of an image, which may be changed.
func copied(t *testing.T, image string, without ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"roux.db", "roux.db-wal", "roux.db-shm"} {
		copyFile(t, filepath.Join(image, name), filepath.Join(dir, name), -1)
	}
	for _, name := range without {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// edit changes bytes of a file.
func edit(t *testing.T, path string, at int64, n int, change func([]byte)) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	change(b)
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// tried opens a store and closes it again. It returns the number of runs that List
// returns, and of pages that were dropped.
func tried(dir string) (runs int, unfinished int, err error) {
	s, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		return 0, 0, err
	}
	heads, err := s.List(ctx, store.Query{Account: "acme", Limit: 500})
	return len(heads), s.Unfinished(), errors.Join(err, s.Close())
}

// framesOf returns the size of a frame of the log, how many there are, and the numbers
// of those that end a commit.
func framesOf(t *testing.T, dir string) (frame, n int64, commits []int64) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "roux.db-wal"))
	if err != nil {
		t.Fatal(err)
	}
	frame = wal.FrameHeader + int64(binary.BigEndian.Uint32(data[8:]))
	for at := int64(wal.HeaderSize); at+frame <= int64(len(data)) && bytes.Equal(data[at+8:at+16], data[16:24]); at += frame {
		n++
		if binary.BigEndian.Uint32(data[at+4:]) > 0 {
			commits = append(commits, n)
		}
	}
	return frame, n, commits
}

// A flipped bit in the log is never mistaken for the end of the log: the store is
// refused and not changed. SQLite alone would silently drop the commits after it.
func TestFlippedBitsInTheLog(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs without -short")
	}
	image := killed(t, 40)
	if runs, unfinished, err := tried(copied(t, image)); err != nil || runs != 40 || unfinished != 0 {
		t.Fatalf("without a flip: %d runs, %d unfinished, %v", runs, unfinished, err)
	}
	frame, n, commits := framesOf(t, image)
	dice := rand.New(rand.NewPCG(1, 2))
	flips := 120
	if os.Getenv("ROUX_LONG") != "" {
		flips = 2_000
	}
	for i := range flips {
		f := dice.Int64N(n)
		at := wal.HeaderSize + f*frame + dice.Int64N(frame)
		switch i % 8 {
		case 0: // in the header of the log
			at = dice.Int64N(wal.HeaderSize)
		case 1: // in the header of a frame: page, size, salts, checksum
			at = wal.HeaderSize + f*frame + dice.Int64N(wal.FrameHeader)
		case 2: // in the size that ends a commit
			at = wal.HeaderSize + (commits[dice.IntN(len(commits))]-1)*frame + 4 + dice.Int64N(4)
		}
		bit := byte(1) << dice.IntN(8)
		var without []string
		behind := at < wal.HeaderSize || (at-wal.HeaderSize)/frame+1 <= commits[len(commits)-3]
		if behind && i%2 == 0 {
			without = []string{"roux.db-shm"} // as after a power cut
		}
		dir := copied(t, image, without...)
		edit(t, filepath.Join(dir, "roux.db-wal"), at, 1, func(b []byte) { b[0] ^= bit })
		before := contentsOf(t, dir)
		_, _, err := tried(dir)
		if !errors.Is(err, fault.StoreCorrupt) || !strings.Contains(fault.Message(err), "--salvage") {
			t.Errorf("bit %d of byte %d (frame %d of %d, without %v): %v", bit, at, (at-wal.HeaderSize)/frame+1, n, without, err)
		}
		if after := contentsOf(t, dir); after != before {
			t.Errorf("byte %d: the store was changed", at)
		}
	}
}

// contentsOf is all that the database and its log hold.
func contentsOf(t *testing.T, dir string) string {
	t.Helper()
	var all []byte
	for _, name := range []string{"roux.db", "roux.db-wal"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data...)
	}
	return string(all)
}

// What a power cut leaves of a commit that was never acknowledged is dropped and
// counted, also when the end of an older torn commit follows newer commits and looks
// like a whole one.
func TestUnfinishedCommits(t *testing.T) {
	image := killed(t, 10)
	frame, n, commits := framesOf(t, image)
	last := commits[len(commits)-2] // the frames after it are the last commit, which has many pages
	if n-last < 10 {
		t.Fatalf("the last commit has %d frames", n-last)
	}
	for name, torn := range map[string]int64{"its beginning": last + 1, "its middle": last + (n-last)/2, "its end": n} {
		dir := copied(t, image, "roux.db-shm")
		edit(t, filepath.Join(dir, "roux.db-wal"), wal.HeaderSize+(torn-1)*frame+512, 512, func(b []byte) { copy(b, bytes.Repeat([]byte{0xa5}, 512)) })
		runs, unfinished, err := tried(copiedLog(t, dir))
		if err != nil || runs != 9 || unfinished == 0 {
			t.Fatalf("torn at %s: %d runs, %d unfinished pages, %v", name, runs, unfinished, err)
		}
		// A newer commit overwrites the torn one from its first frame on, with the same
		// salts; the rest of the torn commit, with its end, follows it.
		s, err := Open(ctx, Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		mustCommit(t, s, startOf(own(t, s), runKey(100), "1"))
		again := imageOf(t, dir)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, without := range [][]string{nil, {"roux.db-shm"}} {
			if runs, _, err := tried(copied(t, again, without...)); err != nil || runs != 10 {
				t.Errorf("torn at %s, then a newer commit, without %v: %d runs, %v", name, without, runs, err)
			}
		}
	}
}

// copiedLog is a copy of an image without an index.
func copiedLog(t *testing.T, image string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"roux.db", "roux.db-wal"} {
		copyFile(t, filepath.Join(image, name), filepath.Join(dir, name), -1)
	}
	return dir
}

// Close leaves everything in the database, and a log of unchanged length whose header
// is zero. A header that is neither zero nor valid is harmless only if the log has
// nothing that the database lacks.
func TestCleanEndOfTheLog(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	epoch := own(t, s)
	for i := range 20 {
		mustCommit(t, s, startOf(epoch, runKey(i), "1"))
	}
	open := imageOf(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "roux.db-wal")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) < warmWAL || !bytes.Equal(data[:wal.HeaderSize], make([]byte, wal.HeaderSize)) || bytes.Equal(data[wal.HeaderSize:4096], make([]byte, 4096-wal.HeaderSize)) {
		t.Fatalf("a log of %d bytes begins with %x", len(data), data[:64])
	}
	if err := os.Remove(path); err != nil { // everything is in the database
		t.Fatal(err)
	}
	if runs, _, err := tried(dir); err != nil || runs != 20 {
		t.Fatalf("without the log: %d runs, %v", runs, err)
	}
	// The header was about to be zeroed, or written anew, when the power went.
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{1, 8, 31} {
		edit(t, path, 32-n, int(n), func(b []byte) { b[0] = 7 })
		if runs, _, err := tried(dir); err != nil || runs != 20 {
			t.Errorf("%d bytes of a header: %d runs, %v", n, runs, err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A lost header is damage if the log has commits that the database lacks.
	edit(t, filepath.Join(open, "roux.db-wal"), 16, 4, func(b []byte) { clear(b) })
	if _, _, err := tried(copied(t, open, "roux.db-shm")); !errors.Is(err, fault.StoreCorrupt) {
		t.Errorf("a header that was lost: %v", err)
	}
}

// BenchmarkExamineLog reads the log, of 16 MiB, of a store that was not closed.
func BenchmarkExamineLog(b *testing.B) {
	dir := b.TempDir()
	s := openWith(b, Options{Dir: dir})
	epoch := own(b, s)
	s.stopUpkeep() // nothing is copied meanwhile
	for i := range 60 {
		mustCommit(b, s, startOf(epoch, runKey(i), strings.Repeat("1", 256<<10)))
	}
	b.ReportAllocs()
	for b.Loop() {
		st, err := wal.Read(filepath.Join(dir, "roux.db"))
		if err != nil || st.Damage != "" {
			b.Fatal(st, err)
		}
		b.SetBytes(int64(st.Frames) * (pageSize + wal.FrameHeader))
	}
}
