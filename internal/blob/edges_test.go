// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// What does not belong into the store stands in the way of nothing: walks and lists
// go on behind it, and do not call it a file.
func TestStraysAreSteppedOver(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var want []string
	for i := range 40 {
		want = append(want, put(t, s, "acme", fmt.Sprint("content ", i), "").Hash)
	}
	slices.Sort(want)
	own := accountDir("acme")
	first, last := want[0], want[len(want)-1]
	for _, name := range []string{
		"0", // before the accounts, between the shards, between the files
		own + "/000", own + "/" + first[len(prefix):len(prefix)+2] + "0", own + "/zzz",
		placeOf("acme", first).shard + "/0", placeOf("acme", last).shard + "/zzz",
		placeOf("acme", first).file() + "0",
		own + "/.0", // of the length of a shard, and no directory
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("stray"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Directories with the name of a file, where they come first, in a shard of
	// their own, and in a shard of a wrong name.
	in := func(digits string) string { return prefix + digits + strings.Repeat("0", 64-len(digits)) }
	absent := in("00")
	for _, name := range []string{
		placeOf("acme", absent).file(), own + "/xyz/" + in("ff"),
		placeOf("acme", in(first[len(prefix):len(prefix)+2])).file(),
	} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, own, "xyz", in("fe")), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var walked []string
	if next, err := s.Walk(ctx, "", -1, func(e Entry) error { walked = append(walked, e.Info.Hash); return nil }); err != nil || next != "" {
		t.Errorf("Walk ends at %q, %v", next, err)
	}
	if slices.Sort(walked); !slices.Equal(walked, want) {
		t.Errorf("walked %d files of %d: %q", len(walked), len(want), walked)
	}
	found, err := s.List(ctx, "acme", Query{Limit: 100})
	var listed []string
	for _, e := range found {
		listed = append(listed, e.Info.Hash)
	}
	if slices.Sort(listed); err != nil || !slices.Equal(listed, want) {
		t.Errorf("listed %d files of %d, %v: %q", len(listed), len(want), err, listed)
	}
	for _, hash := range append([]string{first}, last) {
		if e, err := s.Find(ctx, "acme", hash); err != nil || e.Info.Hash != hash {
			t.Errorf("Find(%s) = %+v, %v", hash, e, err)
		}
	}
	if e, err := s.Find(ctx, "acme", absent); !errors.Is(err, fault.FileNotFound) {
		t.Errorf("Find of a directory = %+v, %v", e, err)
	}
}

// An account's name may be as long as what is read of it, and no longer.
func TestLongAccounts(t *testing.T) {
	s := open(t, t.TempDir())
	for more, want := range []int{1, 0} {
		account := strings.Repeat("a", maxSidecar+more)
		put(t, s, account, "content", "")
		n := 0
		if _, err := s.Walk(ctx, "", -1, func(e Entry) error {
			if e.Account == account {
				n++
			}
			return nil
		}); err != nil || n != want {
			t.Errorf("an account of %d bytes: %d files, %v, want %d", len(account), n, err, want)
		}
	}
}

// Each way not to find a file says what it is.
func TestNotFoundSaysWhy(t *testing.T) {
	s := open(t, t.TempDir())
	info := func(hash string) error { _, err := s.Info(ctx, "acme", hash); return err }
	find := func(begin string) error { _, err := s.Find(ctx, "acme", begin); return err }
	digits := strings.Repeat("a", 64)
	for want, err := range map[string]error{
		`no file has the hash "sha256_a": want "sha256_" and 64 hexadecimal digits`:                          info("sha256_a"),
		"file sha256_" + digits + " is not in this account's store":                                          info(prefix + digits),
		"no file has a hash that begins with sha256_" + digits:                                               find(digits),
		`no file has the hash "` + digits + `a": want the beginning of one, such as sha256_1f3a`:             find(digits + "a"),
		`no file has the hash "": want the beginning of one, such as sha256_1f3a`:                            find(""),
		`no file has the hash "xyz": want the beginning of one, such as sha256_1f3a`:                         find("xyz"),
		`no file has the hash "` + digits[:60] + `xyz": want the beginning of one, such as sha256_1f3a`:      find(digits[:60] + "xyz"),
		`no file has the hash "sha256_` + digits[:60] + `_": want the beginning of one, such as sha256_1f3a`: find(prefix + digits[:60] + "_"),
	} {
		if !errors.Is(err, fault.FileNotFound) || fault.Message(err) != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	for _, hash := range []string{prefix + digits[:63], prefix + digits + "a", digits, digits + prefix, "sha255_" + digits, prefix + digits[:63] + "g", prefix + digits[:63] + "/", prefix + digits[:63] + ":", prefix + digits[:63] + "`"} {
		if ValidHash(hash) {
			t.Errorf("%q is taken for a hash", hash)
		}
	}
	for _, d := range "09af" {
		if hash := prefix + strings.Repeat(string(d), 64); !ValidHash(hash) {
			t.Errorf("%q is not taken for a hash", hash)
		}
	}
}

// Four files with one beginning: three are named, and that there are more.
func TestFindNamesThree(t *testing.T) {
	s := open(t, t.TempDir())
	same := map[byte][]string{}
	for i := 0; ; i++ {
		hash := put(t, s, "acme", fmt.Sprint("content ", i), "").Hash
		d := hash[len(prefix)]
		same[d] = append(same[d], hash)
		n := len(same[d])
		_, err := s.Find(ctx, "acme", string(d))
		if n == 1 {
			if err != nil {
				t.Errorf("one file: %v", err)
			}
			continue
		}
		slices.Sort(same[d])
		var some []string
		for _, h := range same[d][:min(n, 3)] {
			some = append(some, h[:len(prefix)+12])
		}
		more := map[bool]string{true: " …"}[n > 3]
		if want := fmt.Sprintf("(%s%s)", strings.Join(some, ", "), more); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d files: %v, want %s", n, err, want)
		}
		if n == 5 {
			return
		}
	}
}

// A sequential read gives bytes before it has seen the end, hashes none twice, and
// never gives bytes and io.EOF together, also after it has come to the end once.
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
			if n, err := f.Read(buf); n != want || (err == io.EOF) != (at == 1) || err != nil && err != io.EOF {
				t.Errorf("read %d of the whole: %d bytes, %v", at+1, n, err)
			}
		}
	}
	f := opened()
	whole(f)
	for _, tail := range []int{1, 2, 10} {
		if _, err := f.Seek(int64(-tail), io.SeekEnd); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 20)
		if n, err := f.Read(buf); n != tail || err != nil || string(buf[:n]) != content[len(content)-tail:] {
			t.Errorf("the last %d: %q, %v", tail, buf[:n], err)
		}
		if n, err := f.Read(buf); n != 0 || err != io.EOF {
			t.Errorf("behind the last %d: %d bytes, %v", tail, n, err)
		}
	}
	// Read from the middle on, of a file that nobody has read before.
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
	if n, err := f.Read(make([]byte, 1)); n != 0 || err != io.EOF {
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

// Positions are counted from where whence says, and none is before the start.
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

// Checksums are recorded for files of more than one piece, and for no more pieces
// than a record has room for; those that do not fit to the file are not used.
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

// A file that is cut while a part of it is read ends in damage, and gives nothing.
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

// All of an empty file is a part of it.
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

// A record of the largest size is read, one byte more is not.
func TestLargestSidecar(t *testing.T) {
	s := open(t, t.TempDir())
	info := put(t, s, "acme", "content", "a.md")
	p := placeOf("acme", info.Hash)
	text, err := s.root.ReadFile(p.sidecar())
	if err != nil {
		t.Fatal(err)
	}
	for more, want := range []string{"text/markdown", "text/plain"} {
		padded := append(bytes.Clone(text), bytes.Repeat([]byte(" "), maxSidecar+more-len(text))...)
		if err := s.root.WriteFile(p.sidecar(), padded, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Info(ctx, "acme", info.Hash); err != nil || got.MimeType != want {
			t.Errorf("a record of %d bytes: %+v, %v, want %s", len(padded), got, err, want)
		}
	}
}

// What an inspection found is recorded up to its bound; a message of the longest
// kind stays whole.
func TestInspectionAtItsBounds(t *testing.T) {
	found := func(n int) json.RawMessage {
		return json.RawMessage(`{"t":"` + strings.Repeat("x", n-len(`{"t":""}`)) + `"}`)
	}
	if got := extended(found(maxExtended), nil); len(got) != maxExtended {
		t.Errorf("%d bytes become %d", maxExtended, len(got))
	}
	if got := extended(found(maxExtended+1), nil); !strings.Contains(string(got), `"FILE_TOO_LARGE"`) || len(got) > 1_000 {
		t.Errorf("one byte more becomes %.100s", got)
	}
	for n, end := range map[int]string{maxProblem: `x"}}`, maxProblem + 1: `x…"}}`} {
		if got := string(extended(nil, errors.New(strings.Repeat("x", n)))); !strings.HasSuffix(got, end) || strings.Count(got, "x") != maxProblem {
			t.Errorf("a problem of %d bytes: …%s", n, got[len(got)-10:])
		}
	}
}

// A later look adds what an earlier one lacked, and takes nothing away.
func TestFactsAreAddedTo(t *testing.T) {
	some, more := json.RawMessage(`{"n":1}`), json.RawMessage(`{"n":2}`)
	for _, c := range []struct {
		name         string
		first, later sidecar
		want         sidecar
		changed      bool
	}{
		{"nothing new", sidecar{}, sidecar{}, sidecar{}, false},
		{"nobody looked", sidecar{Extended: some}, sidecar{}, sidecar{Extended: some}, false},
		{"somebody looked and found nothing", sidecar{Extended: some}, sidecar{Inspected: true}, sidecar{Inspected: true}, true},
		{"a look was cut off again", sidecar{}, sidecar{Extended: more}, sidecar{Extended: more}, true},
		{"a look after one that was cut off", sidecar{Extended: some}, sidecar{Extended: more, Inspected: true}, sidecar{Extended: more, Inspected: true}, true},
		{"a look after a look", sidecar{Extended: some, Inspected: true}, sidecar{Extended: more, Inspected: true}, sidecar{Extended: some, Inspected: true}, false},
		{"sums", sidecar{}, sidecar{Sums: []byte("abcd")}, sidecar{Sums: []byte("abcd")}, true},
		{"other sums", sidecar{Sums: []byte("abcd")}, sidecar{Sums: []byte("efgh")}, sidecar{Sums: []byte("abcd")}, false},
	} {
		got, changed := c.first.and(c.later)
		if fmt.Sprint(got) != fmt.Sprint(c.want) || changed != c.changed {
			t.Errorf("%s: %+v, changed %v; want %+v, %v", c.name, got, changed, c.want, c.changed)
		}
	}
}

// What is said of a kind of text counts where it says more than that it is text.
func TestDeclaredTypes(t *testing.T) {
	for _, c := range []struct{ name, declared, want string }{
		{"a.md", "text/plain", "text/markdown"},
		{"a.md", "text/x-rst", "text/x-rst"},
		{"a.md", "application/yaml", "application/yaml"},
		{"a.csv", "application/pdf", "text/csv"},
		{"a", "image/png", "text/plain"},
		{"A.YML", " Text/Plain ;charset=x", "application/yaml"},
		{"a.txt", "", "text/plain"},
	} {
		if got := detect([]byte("plain words\n"), c.name, c.declared); got != c.want {
			t.Errorf("%s declared as %q is %s, want %s", c.name, c.declared, got, c.want)
		}
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("%PDF-1.4\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := TypeOf(f, "a.txt"); err != nil || got != "application/pdf" {
		t.Errorf("TypeOf = %s, %v", got, err)
	}
	_ = f.Close()
	if got, err := TypeOf(f, "dir/a.txt"); got != "" || !errors.Is(err, fault.StoreFailed) || !strings.Contains(err.Error(), "read a.txt: ") {
		t.Errorf("TypeOf a closed file = %s, %v", got, err)
	}
}

// Names become as long as file systems take them, and not shorter.
func TestLongestName(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", maxName), strings.Repeat("é", maxName/2)} {
		if got := CleanName(name + "é"); got != name {
			t.Errorf("%d bytes and one rune become %d", len(name), len(got))
		}
		if got := CleanName(name); got != name {
			t.Errorf("%d bytes become %d", len(name), len(got))
		}
	}
}

// An error of the disk has the code that tells what to do, and the system's word
// without the path that it was about.
func TestStorageFault(t *testing.T) {
	own := fault.New(fault.FileInvalid, "damaged")
	for _, c := range []struct {
		err  error
		code fault.Code
		text string
	}{
		{own, fault.FileInvalid, "damaged"},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.ENOSPC}, fault.StoreFull, "write a file of 3 bytes: " + syscall.ENOSPC.Error()},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.EROFS}, fault.StoreReadOnly, "write a file of 3 bytes: " + syscall.EROFS.Error()},
		{&os.LinkError{Op: "rename", Old: "/x", New: "/y", Err: syscall.EACCES}, fault.StoreReadOnly, "write a file of 3 bytes: " + syscall.EACCES.Error()},
		{errors.New("100% broken"), fault.StoreFailed, "write a file of 3 bytes: 100% broken"},
	} {
		err := storageFault(c.err, "write a file of %d bytes", 3)
		if !errors.Is(err, c.code) || fault.Message(err) != c.text {
			t.Errorf("%v becomes %v, want %s: %s", c.err, err, c.code, c.text)
		}
	}
}

// What is remembered of directories is bounded; what is remembered is not synced again.
func TestDurableNamesAreBounded(t *testing.T) {
	s := open(t, t.TempDir())
	held := func() (n int) { s.durable.Range(func(any, any) bool { n++; return true }); return n }
	for range 3 {
		put(t, s, "a", "content", "")
		if held() != 2 || s.remembered.Load() != 2 {
			t.Fatalf("%d of %d names are remembered, want 2", held(), s.remembered.Load())
		}
	}
	s.remembered.Store(maxDurable - 1)
	put(t, s, "b", "content", "")
	if held() != 2 || s.remembered.Load() != maxDurable+1 {
		t.Errorf("%d of %d names are remembered, want the 2 new ones", held(), s.remembered.Load())
	}
	// A directory that went and is made again is synced again.
	if err := s.root.RemoveAll(placeOf("b", hashOf("content")).shard); err != nil {
		t.Fatal(err)
	}
	put(t, s, "b", "content", "")
	if held() != 2 || s.remembered.Load() != maxDurable+2 {
		t.Errorf("%d of %d names are remembered, want 2 and one more", held(), s.remembered.Load())
	}
}

// A Put that cannot give its bytes or its facts a name leaves no temporary file.
func TestFailedNamesLeaveNothing(t *testing.T) {
	p := placeOf("a", hashOf("content"))
	for _, inTheWay := range []string{p.account, p.shard, p.file(), p.sidecar(), p.account + "/" + accountFile} {
		dir := t.TempDir()
		s := open(t, dir)
		at := filepath.Join(dir, inTheWay)
		if inTheWay == p.account || inTheWay == p.shard {
			at = filepath.Dir(at)
		} else {
			at = filepath.Join(at, "full")
		}
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if inTheWay == p.account || inTheWay == p.shard {
			if err := os.WriteFile(filepath.Join(dir, inTheWay), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if info, err := s.Put(ctx, "a", strings.NewReader("content"), "", ""); err == nil || info.Hash != "" {
			t.Errorf("%s is taken: Put = %+v, %v", inTheWay, info, err)
		}
		if left, err := os.ReadDir(filepath.Join(dir, tmpDir)); err != nil || len(left) != 0 {
			t.Errorf("%s is taken: temporary files %v, %v", inTheWay, left, err)
		}
	}
}

// What ends with its context gives no bytes any more.
func TestChecksEnd(t *testing.T) {
	ended, cancel := context.WithCancelCause(ctx)
	cancel(fault.New(fault.Stopping, "stopping"))
	if n, err := (&untilDone{ended, strings.NewReader("x")}).Read(make([]byte, 1)); n != 0 || !errors.Is(err, fault.Stopping) {
		t.Errorf("%d bytes, %v", n, err)
	}
	s := open(t, t.TempDir())
	info := put(t, s, "a", "content", "")
	for name, err := range map[string]error{
		"Check": func() error { _, err := s.Check(ended, func(error) error { return nil }); return err }(),
		"Walk":  func() error { _, err := s.Walk(ended, "", -1, func(Entry) error { return nil }); return err }(),
		"List":  func() error { _, err := s.List(ended, "a", Query{}); return err }(),
		"Find":  func() error { _, err := s.Find(ended, "a", info.Hash); return err }(),
		"Info":  func() error { _, err := s.Info(ended, "a", info.Hash); return err }(),
		"Touch": s.Touch(ended, "a", info.Hash),
		"Remove": func() error {
			_, err := s.Remove(ended, "a", info.Hash, s.now())
			return err
		}(),
	} {
		if !errors.Is(err, fault.Stopping) {
			t.Errorf("%s: %v", name, err)
		}
	}
	stop := errors.New("enough")
	n := 0
	if next, err := s.Walk(ctx, "", -1, func(Entry) error { n++; return stop }); !errors.Is(err, stop) || n != 1 || next == "" {
		t.Errorf("Walk ends at %q after %d files, %v", next, n, err)
	}
}
