// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// TestReadsInOrder: a sequential read returns bytes before it has reached the end,
// hashes no byte twice, and never returns bytes and io.EOF together, also after it has
// reached the end once.
func TestReadsInOrder(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	content := strings.Repeat("precious ", 1_000)
	info := put(t, s, "a", content, "")
	file := filepath.Join(dir, filepath.FromSlash(placeOf("a", info.Hash).file()))
	opened := func() action.File {
		f, err := s.Open(ctx, "a", info.Hash)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	whole := func(f action.File) {
		t.Helper()
		buf := make([]byte, len(content)+1)
		for at, want := range []int{len(content), 0} {
			if n, err := f.Read(buf); n != want || errors.Is(err, io.EOF) != (at == 1) || err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("read %d of the whole: %d bytes, %v", at+1, n, err)
			}
		}
	}
	f := opened()
	if n, err := io.ReadFull(f, make([]byte, len(content))); n != len(content) || err != nil {
		t.Errorf("all bytes: %d, %v", n, err)
	}
	if n, err := f.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("behind them: %d bytes, %v", n, err)
	}
	one, err := s.Open(ctx, "a", put(t, s, "a", "x", "").Hash)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if n, err := one.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("a file of one byte: %d, %v", n, err)
	}
	f = opened()
	whole(f)
	for _, tail := range []int{1, 2, 10} {
		if _, err := f.Seek(int64(-tail), io.SeekEnd); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 20)
		if n, err := f.Read(buf); n != tail || err != nil || string(buf[:n]) != content[len(content)-tail:] {
			t.Errorf("the last %d: %q, %v", tail, buf[:n], err)
		}
		if n, err := f.Read(buf); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("behind the last %d: %d bytes, %v", tail, n, err)
		}
	}
	// Read a fresh file from the middle on.
	f = opened()
	if _, err := f.Seek(100, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{content[100:150], content[150:]} {
		buf := make([]byte, len(part))
		if n, err := io.ReadFull(f, buf); err != nil || string(buf) != part {
			t.Errorf("from the middle on: %d bytes, %v", n, err)
		}
	}
	if n, err := f.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %d bytes, %v", n, err)
	}
	damaged := []byte(content)
	damaged[len(damaged)-1] ^= 1
	overwrite(t, file, damaged)
	f = opened()
	buf := make([]byte, 10)
	if n, err := f.Read(buf); n != 10 || err != nil || string(buf) != content[:10] {
		t.Errorf("the first bytes, before damage: %q, %v", buf, err)
	}
	if _, err := io.Copy(io.Discard, f); !errors.Is(err, fault.FileInvalid) {
		t.Errorf("the rest: %v", err)
	}
	for range 2 {
		if n, err := f.Read(buf); n != 0 || !errors.Is(err, fault.FileInvalid) {
			t.Errorf("after damage was found: %d bytes, %v", n, err)
		}
	}
	f = opened()
	if _, err := f.Seek(1, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n, err := f.Read(buf); n != 0 || !errors.Is(err, fault.FileInvalid) {
			t.Errorf("behind a seek, damaged: %d bytes, %v", n, err)
		}
		if n, err := f.ReadAt(buf, 0); n != 0 || !errors.Is(err, fault.FileInvalid) {
			t.Errorf("at a place, damaged: %d bytes, %v", n, err)
		}
	}
}

// Seek counts from the position that whence names, and refuses positions before the
// start.
func TestSeek(t *testing.T) {
	s := open(t, t.TempDir())
	info := put(t, s, "a", "0123456789", "")
	f, err := s.Open(ctx, "a", info.Hash)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		offset int64
		whence int
		want   int64 // -1: refused
	}{{3, io.SeekStart, 3}, {2, io.SeekCurrent, 5}, {-5, io.SeekCurrent, 0}, {-1, io.SeekCurrent, -1}, {-1, io.SeekEnd, 9}, {5, io.SeekEnd, 15}, {-11, io.SeekEnd, -1}, {0, 3, -1}} {
		at, err := f.Seek(c.offset, c.whence)
		if c.want < 0 && !errors.Is(err, fault.InternalError) || c.want >= 0 && (at != c.want || err != nil) || c.want < 0 && at != 0 {
			t.Errorf("Seek(%d, %d) = %d, %v, want %d", c.offset, c.whence, at, err, c.want)
		}
	}
}

// TestChecksumsOfPieces: checksums are recorded for files of more than one piece, and
// for no more pieces than a sidecar has room for. Checksums whose number does not fit
// the file are not used.
func TestChecksumsOfPieces(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	sums := func(done, n int) int { return len((&pieceSums{done: make([]byte, done), n: n}).sums()) }
	for _, c := range [][3]int{{0, 0, 0}, {0, 1, 0}, {4, 0, 4}, {4, 1, 8}, {4*maxPieces - 4, 1, 4 * maxPieces}, {4 * maxPieces, 0, 4 * maxPieces}, {4*maxPieces + 4, 0, 0}} {
		if got := sums(c[0], c[1]); got != c[2] {
			t.Errorf("%d bytes of sums and %d of a piece: %d, want %d", c[0], c[1], got, c[2])
		}
	}
	content := strings.Repeat("0123456789abcdef", (2*pieceBytes+16)/16)
	var evenly pieceSums
	evenly.write([]byte(content))
	for _, step := range []int{pieceBytes - 1, pieceBytes + 1, 1 << 20} {
		var oddly pieceSums
		for at := 0; at < len(content); at += step {
			oddly.write([]byte(content[at:min(len(content), at+step)]))
		}
		if !bytes.Equal(evenly.sums(), oddly.sums()) {
			t.Errorf("written in one go the sums are %x, by %d bytes %x", evenly.sums(), step, oddly.sums())
		}
	}
	info := put(t, s, "a", content, "")
	p := placeOf("a", info.Hash)
	rec, err := s.readSidecar(p)
	if err != nil || len(rec.Sums) != 12 {
		t.Fatalf("%d bytes of sums, %v", len(rec.Sums), err)
	}
	whole := rec.Sums
	for n := range len(whole) {
		rec.Sums = whole[:n]
		if err := s.writeSidecar(p, rec); err != nil {
			t.Fatal(err)
		}
		r, _, err := s.Part(ctx, "a", info.Hash, 2*pieceBytes, -1)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(r); err != nil || string(data) != content[2*pieceBytes:] {
			t.Errorf("with %d bytes of sums: %d bytes, %v", n, len(data), err)
		}
		_ = r.Close()
	}
	// One piece that is full, and nothing behind it.
	info = put(t, s, "a", content[:pieceBytes], "")
	if rec, err := s.readSidecar(placeOf("a", info.Hash)); err != nil || len(rec.Sums) != 4 {
		t.Errorf("one piece: %d bytes of sums, %v", len(rec.Sums), err)
	}
}

// A file that is truncated while a part of it is read gives an error and no bytes.
func TestPartOfAFileThatIsCut(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, size := range []int{10, pieceBytes + 10} {
		info := put(t, s, "a", strings.Repeat("x", size), "")
		r, _, err := s.Part(ctx, "a", info.Hash, int64(size-10), -1)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, placeOf("a", info.Hash).file()), int64(size-1)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if n, err := r.Read(make([]byte, 5)); n != 0 || !errors.Is(err, fault.FileInvalid) {
				t.Errorf("of %d bytes: %d, %v", size, n, err)
			}
		}
		_ = r.Close()
	}
}

// Part of an empty file returns no bytes and no error.
func TestPartOfNothing(t *testing.T) {
	s := open(t, t.TempDir())
	info := put(t, s, "a", "", "")
	r, _, err := s.Part(ctx, "a", info.Hash, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if data, err := io.ReadAll(r); err != nil || len(data) != 0 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if _, _, err := s.Part(ctx, "a", info.Hash, 1, -1); !errors.Is(err, fault.InputInvalid) {
		t.Errorf("from byte 1 on: %v", err)
	}
}
