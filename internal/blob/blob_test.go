// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

var ctx = context.Background()

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(t *testing.T, s *Store, account, content, name string) action.FileInfo {
	t.Helper()
	info, err := s.Put(ctx, account, strings.NewReader(content), name, "")
	if err != nil {
		t.Fatalf("Put: %v", err)
	}
	return info
}

func hashOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256_" + hex.EncodeToString(sum[:])
}

// tree lists what lies under a directory, with contents.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(p)
		out[filepath.ToSlash(rel)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// X158: a file is addressed by the hash of its content.
func TestX158_PutAndOpen(t *testing.T) {
	s := open(t, t.TempDir())
	for _, tt := range []struct{ name, content, upload, declared, mime string }{
		{"empty", "", "", "", "text/plain"},
		{"text", "hello\n", "a.txt", "", "text/plain"},
		{"markdown by name", "# hello\n", "a.md", "", "text/markdown"},
		{"markdown by declaration", "# hi\n", "", "text/markdown; charset=utf-8", "text/markdown"},
		{"PDF by content", "%PDF-1.4\nx", "a.txt", "text/plain", "application/pdf"},
		{"a PNG that poses as PDF", "\x89PNG\r\n\x1a\n" + strings.Repeat("\x00", 30), "a.pdf", "application/pdf", "image/png"}, // A10
		{"larger than one piece", strings.Repeat("0123456789abcdef", 1<<16+1), "", "", "text/plain"},
		{"exactly one piece", strings.Repeat("x", 1<<20), "", "", "text/plain"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			info, err := s.Files("acme").Put(ctx, iotest.OneByteReader(strings.NewReader(tt.content[:min(len(tt.content), 100)])), "x", "")
			if err != nil || info.Hash != hashOf(tt.content[:min(len(tt.content), 100)]) {
				t.Fatalf("Put of single bytes = %+v, %v", info, err)
			}
			info, err = s.Put(ctx, tt.name, strings.NewReader(tt.content), tt.upload, tt.declared)
			want := action.FileInfo{Hash: hashOf(tt.content), Name: tt.upload, MimeType: tt.mime, Size: int64(len(tt.content))}
			if err != nil || !reflect.DeepEqual(info, want) {
				t.Fatalf("Put = %+v, %v\nwant %+v", info, err, want)
			}
			again, err := s.Info(ctx, tt.name, info.Hash)
			if err != nil || !reflect.DeepEqual(again, want) {
				t.Errorf("Info = %+v, %v", again, err)
			}
			f, err := s.Files(tt.name).Open(ctx, info.Hash)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if len(tt.content) > 1_000 { // too slow for TestReader
				if data, err := io.ReadAll(f); err != nil || string(data) != tt.content {
					t.Errorf("read %d bytes, %v", len(data), err)
				}
			} else if err := iotest.TestReader(f, []byte(tt.content)); err != nil {
				t.Error(err)
			}
			if !reflect.DeepEqual(f.Info(), want) {
				t.Errorf("the open file's Info = %+v", f.Info())
			}
		})
	}
}

// Content is shared only within an account, and another account's file gives the same
// error as a missing one (I17).
func TestDeduplicatedWithinAnAccountOnly(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	one := put(t, s, "acme", "same", "first.txt")
	before := tree(t, dir)
	// Put returns the name of its own upload; the store keeps the first name.
	two := put(t, s, "acme", "same", "second.csv")
	if two.Hash != one.Hash || two.Size != one.Size || two.Name != "second.csv" || two.MimeType != "text/csv" {
		t.Errorf("equal content of one account: %+v, the first was %+v", two, one)
	}
	if three := put(t, s, "acme", "same", ""); !reflect.DeepEqual(three, one) {
		t.Errorf("equal content without a name: %+v, want %+v", three, one)
	}
	if kept, err := s.Info(ctx, "acme", one.Hash); err != nil || !reflect.DeepEqual(kept, one) {
		t.Errorf("the store keeps %+v (%v), want %+v", kept, err, one)
	}
	if after := tree(t, dir); len(after) != len(before) {
		t.Errorf("equal content made %d files of %d", len(after), len(before))
	}
	if _, err := s.Open(ctx, "other", one.Hash); !errors.Is(err, fault.FileNotFound) {
		t.Errorf("another account's file: %v, want FILE_NOT_FOUND", err)
	}
	put(t, s, "other", "same", "")
	if after := tree(t, dir); len(after) != 2*len(before) {
		t.Errorf("two accounts share files: %d and %d", len(after), len(before))
	}
	// Accounts that differ only in case stay separate, although some file systems
	// ignore case.
	if _, err := s.Open(ctx, "ACME", one.Hash); !errors.Is(err, fault.FileNotFound) {
		t.Errorf("account ACME reads the files of acme: %v", err)
	}
}

func TestConcurrentPutsOfEqualContent(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	content := strings.Repeat("concurrent ", 50_000)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			info, err := s.Put(ctx, "a", strings.NewReader(content), "n.txt", "")
			if err != nil || info.Hash != hashOf(content) {
				t.Errorf("Put = %+v, %v", info, err)
				return
			}
			f, err := s.Open(ctx, "a", info.Hash)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if data, err := io.ReadAll(f); err != nil || string(data) != content {
				t.Errorf("read %d bytes, %v", len(data), err)
			}
		})
	}
	wg.Wait()
	if files := tree(t, dir); len(files) != 3 {
		t.Errorf("%d files remain, want the content, its facts and the account", len(files))
	}
}

// A15, I19: whatever account, hash or name says, nothing outside the directory
// is touched and nothing inside is named after it.
func TestA15_I19_NamesNeverBecomePaths(t *testing.T) {
	outer := t.TempDir()
	dir := filepath.Join(outer, "store")
	if err := os.WriteFile(filepath.Join(outer, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	put(t, s, "acme", "content", "")
	hostile := []string{
		"..", "../secret", "../../secret", "/etc/passwd", `..\secret`, `C:\secret`, "%2e%2e/secret", "a\x00b", "", ".", "con", "NUL",
		"store/../../secret", "\u202Egnp.exe", strings.Repeat("x", 5_000), "sha256_..", "sha256_" + strings.Repeat("/", 64),
		"sha256_" + strings.Repeat("../", 21) + "a", "SHA256_" + strings.Repeat("a", 64), "sha256_" + strings.Repeat("A", 64),
		hashOf("content") + "/../x", hashOf("content") + ".json", hashOf("content")[:70],
	}
	before := tree(t, outer)
	for _, h := range hostile {
		if f, err := s.Open(ctx, "acme", h); !errors.Is(err, fault.FileNotFound) {
			t.Errorf("Open(%.80q) = %v, %v, want FILE_NOT_FOUND", h, f, err)
		}
		if _, err := s.Info(ctx, "acme", h); !errors.Is(err, fault.FileNotFound) {
			t.Errorf("Info(%.80q): %v, want FILE_NOT_FOUND", h, err)
		}
		if _, _, err := s.Part(ctx, "acme", h, 0, 1); !errors.Is(err, fault.FileNotFound) {
			t.Errorf("Part(%.80q): %v, want FILE_NOT_FOUND", h, err)
		}
		if err := s.Touch(ctx, "acme", h); !errors.Is(err, fault.FileNotFound) {
			t.Errorf("Touch(%.80q): %v, want FILE_NOT_FOUND", h, err)
		}
		if done, err := s.Remove(ctx, "acme", h, time.Now().Add(time.Hour)); done || !errors.Is(err, fault.FileNotFound) {
			t.Errorf("Remove(%.80q) = %v, %v, want FILE_NOT_FOUND", h, done, err)
		}
		if e, err := s.Find(ctx, "acme", h); !errors.Is(err, fault.FileNotFound) && e.Info.Hash != hashOf("content") {
			t.Errorf("Find(%.80q) = %+v, %v, want FILE_NOT_FOUND", h, e, err)
		}
		if _, err := s.Info(ctx, h, hashOf("content")); !errors.Is(err, fault.FileNotFound) {
			t.Errorf("account %.80q sees a file of acme: %v", h, err)
		}
	}
	if after := tree(t, outer); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("reading changed the tree")
	}
	for _, h := range hostile {
		info := put(t, s, h, "content", h)
		if strings.ContainsAny(info.Name, "/\\\x00\u202E") || info.Name == ".." || info.Name == "." || len(info.Name) > maxName {
			t.Errorf("upload name %.80q became %q", h, info.Name)
		}
	}
	for p := range tree(t, outer) {
		parts := strings.Split(p, "/")
		ok := p == "secret" || len(parts) == 3 && strings.HasPrefix(parts[1], "acct_") && parts[2] == accountFile || len(parts) == 4 && parts[0] == "store" && strings.HasPrefix(parts[1], "acct_") &&
			len(parts[2]) == 2 && ValidHash(strings.TrimSuffix(parts[3], ".json"))
		if !ok {
			t.Errorf("a name became part of the path %q", p)
		}
	}
}

// A15: links in the directory lead nowhere, neither out of it nor to another
// account.
func TestA15_LinksAreNotFollowed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("making links needs a privilege on Windows")
	}
	hash := hashOf("victim's file")
	setup := func(t *testing.T) (outer, dir string, s *Store) {
		outer = t.TempDir()
		dir = filepath.Join(outer, "store")
		s = open(t, dir)
		put(t, s, "victim", "victim's file", "")
		put(t, s, "thief", "own file", "")
		if err := os.WriteFile(filepath.Join(outer, hash), []byte("victim's file"), 0o600); err != nil {
			t.Fatal(err)
		}
		return outer, dir, s
	}
	at := func(dir string, p string) string { return filepath.Join(dir, filepath.FromSlash(p)) }
	thief, victim := placeOf("thief", hash), placeOf("victim", hash)
	link := func(t *testing.T, target, name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		link func(t *testing.T, outer, dir string)
	}{
		{"file out of the store", func(t *testing.T, outer, dir string) { link(t, filepath.Join(outer, hash), at(dir, thief.file())) }},
		{"directory in place of the file", func(t *testing.T, _, dir string) {
			if err := os.MkdirAll(at(dir, thief.file()), 0o700); err != nil {
				t.Fatal(err)
			}
		}},
		{"file of another account", func(t *testing.T, _, dir string) { link(t, at(dir, victim.file()), at(dir, thief.file())) }},
		{"relative link to another account", func(t *testing.T, _, dir string) {
			link(t, "../../"+victim.file(), at(dir, thief.file()))
		}},
		{"shard of another account", func(t *testing.T, _, dir string) { link(t, "../"+victim.shard, at(dir, thief.shard)) }},
		{"directory of another account", func(t *testing.T, _, dir string) { link(t, victim.account, at(dir, thief.account)) }},
		{"directory out of the store", func(t *testing.T, outer, dir string) { link(t, outer, at(dir, thief.account)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			outer, dir, s := setup(t)
			tt.link(t, outer, dir)
			before := tree(t, outer)
			f, err := s.Open(ctx, "thief", hash)
			if err == nil {
				data, _ := io.ReadAll(f)
				t.Errorf("read %q through a link", data)
			} else if !errors.Is(err, fault.FileInvalid) {
				t.Errorf("error = %v, want FILE_INVALID", err)
			}
			_, err = s.Put(ctx, "thief", strings.NewReader("victim's file"), "", "")
			for p, content := range before {
				if got := tree(t, outer)[p]; got != content && !strings.Contains(p, thief.name) {
					t.Errorf("Put (%v) changed %s", err, p)
				}
			}
			if got, _ := os.ReadFile(filepath.Join(outer, hash)); string(got) != "victim's file" {
				t.Errorf("Put wrote through a link: %q", got)
			}
		})
	}
	for name, target := range map[string]string{"out of the store": "../keep", "within it": "keep"} {
		t.Run("directory of temporary files, "+name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			keep := filepath.Join(dir, target)
			if err := errors.Join(os.MkdirAll(keep, 0o700), os.WriteFile(filepath.Join(keep, tmpPrefix+"x"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			link(t, target, filepath.Join(dir, tmpDir))
			if s, err := Open(Config{Dir: dir}); err == nil {
				_ = s.Close()
				t.Error("a store whose tmp is a link was opened")
			}
			if _, err := os.Stat(filepath.Join(keep, tmpPrefix+"x")); err != nil {
				t.Errorf("the sweep went through a link: %v", err)
			}
		})
	}
}

// I16, I21: damage on the disk is fault.FileInvalid, however the file is read.
func TestDamageIsFound(t *testing.T) {
	content := strings.Repeat("precious ", 100_000)
	flip := func(p string) error {
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		data[len(data)/2] ^= 1
		return os.WriteFile(p, data, 0o600)
	}
	for _, tt := range []struct {
		name   string
		damage func(file string) error
		read   func(f action.File) error
	}{
		{"a flipped bit, read in order", flip, func(f action.File) error { _, err := io.Copy(io.Discard, f); return err }},
		{"a flipped bit elsewhere, read at random", flip, func(f action.File) error { _, err := f.ReadAt(make([]byte, 10), 0); return err }},
		{"a flipped bit elsewhere, read after seek", flip, func(f action.File) error {
			if _, err := f.Seek(-10, io.SeekEnd); err != nil {
				return err
			}
			_, err := f.Read(make([]byte, 10))
			return err
		}},
		{"a flipped bit, read twice", flip, func(f action.File) error {
			_, _ = io.ReadAll(f)
			_, _ = f.Seek(0, io.SeekStart)
			_, err := f.Read(make([]byte, 10))
			return err
		}},
		{"truncated", func(p string) error { return os.Truncate(p, 100) }, nil},
		{"longer", func(p string) error { return os.WriteFile(p, []byte(content+"x"), 0o600) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			info := put(t, s, "a", content, "")
			file := filepath.Join(dir, filepath.FromSlash(placeOf("a", info.Hash).file()))
			if err := tt.damage(file); err != nil {
				t.Fatal(err)
			}
			f, err := s.Open(ctx, "a", info.Hash)
			if tt.read != nil {
				if err != nil {
					t.Fatal(err)
				}
				err = tt.read(f)
				f.Close()
			}
			if !errors.Is(err, fault.FileInvalid) {
				t.Errorf("damage gave %v, want FILE_INVALID", err)
			}
			// Storing the content again mends it.
			put(t, s, "a", content, "")
			f, err = s.Open(ctx, "a", info.Hash)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if data, err := io.ReadAll(f); err != nil || string(data) != content {
				t.Errorf("after storing it again: %d bytes, %v", len(data), err)
			}
		})
	}
}

// A crash leaves temporary files, which Open removes, or bytes without a sidecar, whose
// facts are detected again.
func TestCrashLeavesOnlyTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	info := put(t, s, "a", "%PDF-1.4 kept", "kept.pdf")
	p := placeOf("a", info.Hash)
	for _, name := range []string{tmpPrefix + "ABC", tmpPrefix + "DEF"} {
		if err := os.WriteFile(filepath.Join(dir, tmpDir, name), []byte("torn"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, filepath.FromSlash(p.sidecar()))); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	s = open(t, dir)
	left, err := os.ReadDir(filepath.Join(dir, tmpDir))
	if err != nil || len(left) != 0 {
		t.Errorf("temporary files after Open: %v, %v", left, err)
	}
	got, err := s.Info(ctx, "a", info.Hash)
	if err != nil || got.MimeType != "application/pdf" || got.Size != info.Size {
		t.Errorf("facts without sidecar: %+v, %v", got, err)
	}
	if got := put(t, s, "a", "%PDF-1.4 kept", "again.pdf"); got.Name != "again.pdf" {
		t.Errorf("the facts were not written again: %+v", got)
	}
	for _, torn := range []string{"", "{", "{}", strings.Repeat(" ", maxSidecar+1)} {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(p.sidecar())), []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Info(ctx, "a", info.Hash); err != nil || got.MimeType != "application/pdf" {
			t.Errorf("sidecar %.10q: %+v, %v", torn, got, err)
		}
	}
}

// A failed Put leaves no files, and its error names the cause: the size, the caller's
// reader or its context.
func TestFailedPutLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	broken := errors.New("the upload broke off")
	cancelled, cancel := context.WithCancelCause(ctx)
	cancel(fault.New(fault.ExecutionCancelled, "cancelled"))
	for _, tt := range []struct {
		name string
		ctx  context.Context
		r    io.Reader
		want error
	}{
		{"one byte over the limit", ctx, bytes.NewReader(make([]byte, 1<<20+1)), fault.FileTooLarge}, // I15
		{"an endless source", ctx, iotest.HalfReader(endless{}), fault.FileTooLarge},
		{"a source that fails", ctx, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)), broken},
		{"a cancelled caller", cancelled, endless{}, fault.ExecutionCancelled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := s.Put(tt.ctx, "a", tt.r, "", ""); !errors.Is(err, tt.want) {
				t.Errorf("Put = %v, want %v", err, tt.want)
			}
			if left := tree(t, dir); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	if info, err := s.Put(ctx, "a", bytes.NewReader(make([]byte, 1<<20)), "", ""); err != nil || info.Size != 1<<20 {
		t.Errorf("exactly the limit: %+v, %v", info, err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestReadOnlyDirectory(t *testing.T) {
	if runtime.GOOS == "windows" || os.Getuid() == 0 {
		t.Skip("permissions do not bind this user")
	}
	dir := t.TempDir()
	s := open(t, dir)
	if err := os.Chmod(filepath.Join(dir, tmpDir), 0o500); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(filepath.Join(dir, tmpDir), 0o700)
	if _, err := s.Put(ctx, "a", strings.NewReader("x"), "", ""); !errors.Is(err, fault.StoreReadOnly) {
		t.Errorf("Put = %v, want STORE_READ_ONLY", err)
	}
}

// I21: after a failed sync nothing is acknowledged any more.
func TestI21_FailedSyncStopsTheStore(t *testing.T) {
	s := open(t, t.TempDir())
	if s.synced(errors.New("input/output error")) == nil {
		t.Fatal("the error was swallowed")
	}
	if _, err := s.Put(ctx, "a", strings.NewReader("x"), "", ""); !errors.Is(err, fault.StoreFailed) {
		t.Errorf("Put = %v, want STORE_FAILED", err)
	}
}

func BenchmarkPut(b *testing.B) {
	s, err := Open(Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	data := make([]byte, 100<<10)
	i := 0
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		i++
		copy(data, fmt.Sprint(i))
		if _, err := s.Put(ctx, "a", bytes.NewReader(data), "", ""); err != nil {
			b.Fatal(err)
		}
	}
}
