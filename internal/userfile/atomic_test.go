// SPDX-License-Identifier: Apache-2.0

package userfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/roux-engine/roux/fault"
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
func TestAtomicLeavesNoPart(t *testing.T) {
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
			_, err := Save(tt.src(dir), at, "", "", true)
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
