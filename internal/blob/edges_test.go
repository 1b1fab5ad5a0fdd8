// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// Walk and List skip files and directories that the store did not make, and continue
// after them.
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
		own + "/.0", // a name as long as a shard's, but not a directory
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("stray"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Directories with the name of a file: alone in a shard, in a shard with a wrong
	// name, and before the files of a shard.
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
	for _, hash := range []string{in("fe"), first} {
		if err := os.WriteFile(filepath.Join(dir, own, "xyz", hash), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var walked []string
	for from := ""; ; { // in steps, some of which end within a shard
		next, err := s.Walk(ctx, from, 1, func(e Entry) error { walked = append(walked, e.Info.Hash); return nil })
		if err != nil || next != "" && next <= from {
			t.Fatalf("from %q Walk goes on at %q, %v", from, next, err)
		}
		if from = next; next == "" {
			break
		}
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

// A file whose sidecar is damaged is listed, with the facts that are known without the
// sidecar.
func TestListNamesDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	info := put(t, s, "acme", "content", "a.md")
	put(t, s, "acme", "more content", "b.md")
	if err := os.Truncate(filepath.Join(dir, placeOf("acme", info.Hash).file()), 3); err != nil {
		t.Fatal(err)
	}
	found, err := s.List(ctx, "acme", Query{})
	if err != nil || len(found) != 2 {
		t.Fatalf("%d files, %v", len(found), err)
	}
	sizes := map[string]int64{}
	for _, e := range found {
		sizes[e.Info.Hash] = e.Info.Size
	}
	if sizes[info.Hash] != 3 || sizes[hashOf("more content")] != 12 {
		t.Errorf("listed %v", sizes)
	}
}

// The name of an account may be as long as the store reads of it, and no longer.
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

// Each error for a file that is not found gives the reason.
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

// If the hashes of four files have the same beginning, the error of Find names three of
// them and says that there are more.
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

// A sidecar of the largest size is read, and one that is a byte longer is not.
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

// What an inspection found is recorded up to maxExtended bytes, and the message of a
// problem up to maxProblem bytes.
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
	if got := extended(json.RawMessage("1"), nil); !strings.Contains(string(got), "the inspection found no JSON object") {
		t.Errorf("a digit becomes %s", got)
	}
	for n, end := range map[int]string{maxProblem: `x"}}`, maxProblem + 1: `x…"}}`} {
		if got := string(extended(nil, errors.New(strings.Repeat("x", n)))); !strings.HasSuffix(got, end) || strings.Count(got, "x") != maxProblem {
			t.Errorf("a problem of %d bytes: …%s", n, got[len(got)-10:])
		}
	}
}

// A sidecar that fails its checksum is not used. One of an earlier release, which has
// no checksum, is used. Storing the content again gives both a checksum.
func TestRecordsAreSummed(t *testing.T) {
	s := open(t, t.TempDir())
	info := put(t, s, "acme", "content", "a.md")
	at := placeOf("acme", info.Hash).sidecar()
	sound, err := s.root.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		strings.Replace(string(sound), "a.md", "b.md", 1):         "",
		`{"name":"old.md","mimeType":"text/x-old","sizeBytes":7}`: "old.md",
	} {
		if err := s.root.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Info(ctx, "acme", info.Hash); err != nil || got.Name != want {
			t.Errorf("%s: %+v, %v, want the name %q", text, got, err, want)
		}
		put(t, s, "acme", "content", want)
		if rec, err := s.readSidecar(placeOf("acme", info.Hash)); err != nil || rec.Name != want || rec.CRC32C == nil {
			t.Errorf("%s: stored again it is %+v, %v", text, rec, err)
		}
	}
	before, err := s.root.Lstat(at)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "acme", "content", "c.md")
	if after, err := s.root.Lstat(at); err != nil || !os.SameFile(before, after) {
		t.Errorf("a record to which nothing was added is written again, %v", err)
	}
}

// The account of a directory is written once, and again if its file was truncated.
func TestAccountIsWrittenOnce(t *testing.T) {
	s := open(t, t.TempDir())
	info := put(t, s, "acme", "content", "")
	at := accountDir("acme") + "/" + accountFile
	before, err := s.root.Lstat(at)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "acme", "more", "")
	if after, err := s.root.Lstat(at); err != nil || !os.SameFile(before, after) {
		t.Errorf("it is written again, %v", err)
	}
	if err := s.root.WriteFile(at, []byte("ac"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Touch(ctx, "acme", info.Hash); err != nil {
		t.Fatal(err)
	}
	if data, err := s.root.ReadFile(at); err != nil || string(data) != "acme" {
		t.Errorf("after Touch it says %q, %v", data, err)
	}
}

// A walk does not go through a link, although an account lies behind it.
func TestWalkFollowsNoLink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("making links needs a privilege on Windows")
	}
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "acme", "content", "")
	at := filepath.Join(dir, accountDir("acme"))
	if err := errors.Join(os.Rename(at, filepath.Join(dir, "elsewhere")), os.Symlink("elsewhere", at)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Walk(ctx, "", -1, func(e Entry) error { t.Errorf("walked %+v", e); return nil }); err != nil {
		t.Error(err)
	}
}

// merge adds facts that only the later inspection found. A completed inspection
// replaces the facts of one that was cut off, and nothing else is removed.
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
		got, changed := c.first.merge(c.later)
		if fmt.Sprint(got) != fmt.Sprint(c.want) || changed != c.changed {
			t.Errorf("%s: %+v, changed %v; want %+v, %v", c.name, got, changed, c.want, c.changed)
		}
	}
}

// The declared type of a text counts only if it says more than text/plain.
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

// CleanName cuts names only to the length that file systems allow, and keeps only the
// last element of a path.
func TestLongestName(t *testing.T) {
	for path, want := range map[string]string{"/x": "x", `\x`: "x", "a/b": "b", "a/": ""} {
		if got := CleanName(path); got != want {
			t.Errorf("%s becomes %q, want %q", path, got, want)
		}
	}
	for _, name := range []string{strings.Repeat("x", maxName), strings.Repeat("é", maxName/2)} {
		if got := CleanName(name + "é"); got != name {
			t.Errorf("%d bytes and one rune become %d", len(name), len(got))
		}
		if got := CleanName(name); got != name {
			t.Errorf("%d bytes become %d", len(name), len(got))
		}
	}
}

// storageFault gives an error of the disk the code that tells what to do, and the
// system's message without the path.
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

// The number of directories that are remembered as synced is bounded; a remembered one
// is not synced again.
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
	// A directory that was removed and created again is synced again.
	if err := s.root.RemoveAll(placeOf("b", hashOf("content")).shard); err != nil {
		t.Fatal(err)
	}
	put(t, s, "b", "content", "")
	if held() != 2 || s.remembered.Load() != maxDurable+2 {
		t.Errorf("%d of %d names are remembered, want 2 and one more", held(), s.remembered.Load())
	}
}

// A Put that cannot rename its bytes or its sidecar leaves no temporary file.
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

// Calls with an ended context return its cause, and a reader returns no more bytes.
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
