// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/roux-engine/roux/fault"
)

// clocked returns a store and the time of its clock, which the test sets.
func clocked(t *testing.T, dir string) (*Store, *time.Time) {
	t.Helper()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	s, err := Open(Config{Dir: dir, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, &now
}

// The clock of a store never goes back, even if the wall clock is set back or ahead
// (I10).
func TestI10_ClockGoesOnward(t *testing.T) {
	began := time.Now()
	wall := began
	now := monotonic(func() time.Time { return wall })
	// set sets the wall clock without its monotonic reading.
	set := func(passed, by time.Duration) {
		wall = began.Add(passed)
		*(*uint64)(unsafe.Pointer(&wall)) += uint64(by/time.Second) << 30
	}
	for _, tt := range []struct{ passed, by, want time.Duration }{
		{0, 0, 0}, {time.Second, 0, time.Second}, {2 * time.Second, -48 * time.Hour, 2 * time.Second},
		{3 * time.Second, 48 * time.Hour, 48*time.Hour + 3*time.Second}, {4 * time.Second, 0, 4 * time.Second},
	} {
		set(tt.passed, tt.by)
		if got := now().Sub(began.Round(0)); got != tt.want {
			t.Errorf("after %s, with a clock that is set by %s, it is %s later, want %s", tt.passed, tt.by, got, tt.want)
		}
	}
}

// Remove deletes a file only if it was neither put nor touched after notAfter; putting
// equal content again counts. So retention cannot delete a file with which a run is
// just being started.
func TestRemoveSparesWhatWasJustUsed(t *testing.T) {
	for _, use := range []struct {
		name string
		fn   func(s *Store, hash string) error
	}{
		{"touched", func(s *Store, hash string) error { return s.Touch(ctx, "acme", hash) }},
		{"put again", func(s *Store, _ string) error {
			_, err := s.Put(ctx, "acme", strings.NewReader("content"), "", "")
			return err
		}},
	} {
		t.Run(use.name, func(t *testing.T) {
			dir := t.TempDir()
			s, now := clocked(t, dir)
			info := put(t, s, "acme", "content", "a.txt")
			stored := *now
			*now = now.Add(48 * time.Hour)
			if err := use.fn(s, info.Hash); err != nil {
				t.Fatal(err)
			}
			if done, err := s.Remove(ctx, "acme", info.Hash, now.Add(-24*time.Hour)); done || err != nil {
				t.Fatalf("Remove of a file used just now = %v, %v", done, err)
			}
			if got, err := s.Info(ctx, "acme", info.Hash); err != nil || got.Name != "a.txt" {
				t.Fatalf("Info = %+v, %v", got, err)
			}
			*now = now.Add(24 * time.Hour)
			if done, err := s.Remove(ctx, "acme", info.Hash, stored); done || err != nil {
				t.Errorf("Remove as of its first upload = %v, %v", done, err)
			}
			if done, err := s.Remove(ctx, "acme", info.Hash, now.Add(-24*time.Hour)); !done || err != nil {
				t.Errorf("Remove after its time = %v, %v", done, err)
			}
			for p := range tree(t, dir) {
				if filepath.Base(p) != accountFile {
					t.Errorf("%s is left", p)
				}
			}
			if err := s.Touch(ctx, "acme", info.Hash); !errors.Is(err, fault.FileNotFound) {
				t.Errorf("Touch of what is gone: %v", err)
			}
		})
	}
}

// Walk visits all files of all accounts in several calls, each file once.
func TestWalkInSteps(t *testing.T) {
	dir := t.TempDir()
	s, now := clocked(t, dir)
	want := map[string]string{}
	for i := range 40 {
		account := fmt.Sprintf("acct%d", i%3)
		info := put(t, s, account, fmt.Sprint("content ", i), "")
		want[info.Hash] = account
	}
	if err := os.WriteFile(filepath.Join(dir, "acct_stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{1, 7, 40, 100} {
		got, calls, from := map[string]string{}, 0, ""
		for {
			n := 0
			next, err := s.Walk(ctx, from, limit, func(e Entry) error {
				if _, twice := got[e.Info.Hash]; twice || !e.Stored.Equal(*now) {
					t.Errorf("%+v, seen before: %v", e, twice)
				}
				got[e.Info.Hash] = e.Account
				n++
				return nil
			})
			if err != nil || n > limit {
				t.Fatalf("a step of %d of at most %d: %v", n, limit, err)
			}
			calls++
			if from = next; next == "" {
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("in steps of %d: %d of %d files", limit, len(got), len(want))
		}
		if most := 40/limit + 1; calls > most {
			t.Errorf("%d steps of %d, want at most %d", calls, limit, most)
		}
	}
}

// Walk skips a directory whose account is not known, because it is not known what is
// needed in it. The next Put or Touch records the account.
func TestUnknownAccountsAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	s, _ := clocked(t, dir)
	info := put(t, s, "acme", "content", "")
	at := filepath.Join(dir, accountDir("acme"), accountFile)
	seen := func() (n int) {
		if _, err := s.Walk(ctx, "", 10, func(Entry) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := os.WriteFile(at, []byte("rival"), 0o600); err != nil || seen() != 0 {
		t.Errorf("a directory of a wrong account is walked, %v", err)
	}
	if err := os.Remove(at); err != nil || seen() != 0 {
		t.Errorf("a directory of no account is walked, %v", err)
	}
	if err := s.Touch(ctx, "acme", info.Hash); err != nil || seen() != 1 {
		t.Errorf("after Touch: %v, %d files", err, seen())
	}
}

func TestList(t *testing.T) {
	s, now := clocked(t, t.TempDir())
	for i, name := range []string{"a.pdf", "Photo.png", "notes.md", "photo.md"} {
		*now = now.Add(time.Minute)
		content := map[int]string{0: "%PDF-1.4 x", 1: "\x89PNG\r\n\x1a\n" + strings.Repeat("\x00", 30)}[i]
		put(t, s, "acme", content+fmt.Sprint(i), name)
	}
	put(t, s, "rival", "theirs", "theirs.md")
	for _, tt := range []struct {
		q    Query
		want string
	}{
		{Query{}, "photo.md notes.md Photo.png a.pdf"},
		{Query{Limit: 2}, "photo.md notes.md"},
		{Query{Name: "PHOTO"}, "photo.md Photo.png"},
		{Query{Type: "text/markdown"}, "photo.md notes.md"},
		{Query{Type: "image/*"}, "Photo.png"},
		{Query{Type: "IMAGE/*", Name: "x"}, ""},
		{Query{Name: "photo", Type: "text/*", Limit: 1}, "photo.md"},
	} {
		found, err := s.List(ctx, "acme", tt.q)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range found {
			names = append(names, e.Info.Name)
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.q, got, tt.want)
		}
	}
	if found, err := s.List(ctx, "nobody", Query{}); err != nil || len(found) != 0 {
		t.Errorf("an account without files has %d, %v", len(found), err)
	}
}

// Any beginning of a hash that only one file has names it.
func TestFind(t *testing.T) {
	s, _ := clocked(t, t.TempDir())
	var hashes []string
	for i := range 60 {
		hashes = append(hashes, put(t, s, "acme", fmt.Sprint("content ", i), "").Hash)
	}
	put(t, s, "rival", "theirs", "")
	slices.Sort(hashes)
	for i, h := range hashes {
		n := len(prefix) + 1
		for (i > 0 && hashes[i-1][:n] == h[:n]) || (i+1 < len(hashes) && hashes[i+1][:n] == h[:n]) {
			n++
		}
		for _, begin := range []string{h, h[:n], h[len(prefix):n], strings.ToUpper(h[len(prefix):n])} {
			if e, err := s.Find(ctx, "acme", begin); err != nil || e.Info.Hash != h || e.Info.MimeType == "" {
				t.Fatalf("Find(%q) = %+v, %v", begin, e, err)
			}
		}
		if n > len(prefix)+1 {
			_, err := s.Find(ctx, "acme", h[:n-1])
			if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "is the beginning of several hashes (sha256_") {
				t.Errorf("Find(%q): %v", h[:n-1], err)
			}
		}
	}
	if _, err := s.Find(ctx, "acme", hashOf("theirs")); !errors.Is(err, fault.FileNotFound) {
		t.Errorf("a file of another account: %v", err)
	}
}

// Part does not read the rest of the file, so damage outside the pieces of the part
// does no harm. Damage inside them is an error.
func TestPart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	content := make([]byte, 2*pieceBytes+1000)
	for i := range content {
		content[i] = byte(i*7 + i/251)
	}
	large := put(t, s, "acme", string(content), "")
	small := put(t, s, "acme", "0123456789", "")
	read := func(hash string, from, n int64) (string, error) {
		r, _, err := s.Part(ctx, "acme", hash, from, n)
		if err != nil {
			return "", err
		}
		defer r.Close()
		data, err := io.ReadAll(r)
		return string(data), err
	}
	size := int64(len(content))
	for _, c := range [][2]int64{{0, 1}, {0, -1}, {5, 10}, {pieceBytes - 3, 6}, {pieceBytes, pieceBytes}, {2 * pieceBytes, -1}, {size - 1, 100}, {7, 0}} {
		from, n := c[0], c[1]
		end := size
		if n >= 0 {
			end = min(size, from+n)
		}
		if got, err := read(large.Hash, from, n); err != nil || got != string(content[from:end]) {
			t.Errorf("part %v: %d bytes, %v", c, len(got), err)
		}
	}
	if got, err := read(small.Hash, 3, 4); err != nil || got != "3456" {
		t.Errorf("part of a small file = %q, %v", got, err)
	}
	for _, from := range []int64{-1, 10, 11} {
		if _, err := read(small.Hash, from, 1); !errors.Is(err, fault.InputInvalid) || !strings.Contains(err.Error(), "has 10 bytes") {
			t.Errorf("a part from byte %d: %v", from, err)
		}
	}
	spoil := func(hash string, at int64) {
		t.Helper()
		f, err := s.root.OpenFile(placeOf("acme", hash).file(), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte{0xEE}, at); err != nil {
			t.Fatal(err)
		}
	}
	spoil(large.Hash, pieceBytes+77)
	if got, err := read(large.Hash, 10, 20); err != nil || got != string(content[10:30]) {
		t.Errorf("a part before the damage = %d bytes, %v", len(got), err)
	}
	if got, err := read(large.Hash, pieceBytes-5, 10); !errors.Is(err, fault.FileInvalid) || len(got) != 5 {
		t.Errorf("a part that runs into the damage = %d bytes, %v, want the 5 before it", len(got), err)
	}
	// Without checksums the whole file is hashed for every part.
	spoil(small.Hash, 9)
	if _, err := read(small.Hash, 0, 1); !errors.Is(err, fault.FileInvalid) {
		t.Errorf("a part of a small damaged file: %v", err)
	}
}
