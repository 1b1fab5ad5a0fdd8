// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/iotest"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/userfile"
)

// onlyFile fails the test unless a directory holds exactly one file, with that name and
// text.
func onlyFile(t *testing.T, dir, name, text string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Fatalf("the directory holds %v, %v; want only %s", entries, err, name)
	}
	if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
		t.Errorf("%s holds %.40q, %v; want %q", name, got, err, text)
	}
}

// A write that fails half way leaves the old file unchanged and no temporary file.
func TestDraftFailsWhole(t *testing.T) {
	broken := errors.New("the source broke")
	for _, tt := range []struct {
		name string
		src  func(dir string) io.Reader
		want error
	}{
		{"its source breaks", func(string) io.Reader {
			return io.MultiReader(bytes.NewReader(make([]byte, 100<<10)), iotest.ErrReader(broken))
		}, broken},
		{"something came meanwhile", func(dir string) io.Reader {
			return readerFunc(func([]byte) (int, error) {
				if err := errors.Join(os.Remove(filepath.Join(dir, "a.txt")), os.Mkdir(filepath.Join(dir, "a.txt"), 0o700)); err != nil {
					return 0, err
				}
				return 0, io.EOF
			})
		}, fault.Conflict},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			at := filepath.Join(dir, "a.txt")
			if err := os.WriteFile(at, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := userfile.Save(tt.src(dir), at, "", "", true)
			if !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			if info, err := os.Stat(at); err == nil && info.IsDir() {
				if err := errors.Join(os.Remove(at), os.WriteFile(at, []byte("old"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			onlyFile(t, dir, "a.txt", "old")
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// F31: when the disk is full, writing a file for the user fails with STORE_FULL and
// leaves no partial file.
func TestF31_FullDiskUnderADraft(t *testing.T) {
	disk, _ := mount(t, "size=1m")
	at := filepath.Join(disk, "a.bin")
	if err := os.WriteFile(at, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := userfile.Save(bytes.NewReader(make([]byte, 4<<20)), at, "", "", true)
	if !errors.Is(err, fault.StoreFull) {
		t.Errorf("%v, want STORE_FULL", err)
	}
	onlyFile(t, disk, "a.bin", "old")
}

// fmt keeps the mode of a recipe, including bits that the umask would remove from a new
// file, and keeps a symbolic link to it a link.
func TestFormatKeepsRightsAndLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such rights, and links need a privilege")
	}
	path := write(t, "a.yaml", "steps: [{id: a, transform: {expression: \"1\"}}]\nname:   a\n")
	link := filepath.Join(t.TempDir(), "link.yaml")
	if err := errors.Join(os.Chmod(path, 0o666), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, talk, code := inProcess("", "fmt", link); code != 0 {
		t.Fatalf("exit %d\n%s", code, talk)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o666 {
		t.Errorf("the mode is %v, %v; want -rw-rw-rw-", info.Mode(), err)
	}
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if after, err := os.ReadFile(path); err != nil || bytes.Equal(before, after) {
		t.Errorf("the file was not formatted: %s, %v", after, err)
	}
}
