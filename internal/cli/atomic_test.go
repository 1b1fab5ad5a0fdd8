// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/userfile"
)

// F31: when the disk is full, writing a file for the user fails with STORE_FULL and
// leaves no partial file.
func TestF31_FullDiskUnderAFile(t *testing.T) {
	disk, _ := mount(t, "size=1m")
	at := filepath.Join(disk, "a.bin")
	if err := os.WriteFile(at, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := userfile.Save(bytes.NewReader(make([]byte, 4<<20)), at, "", "", true)
	if !errors.Is(err, fault.StoreFull) {
		t.Errorf("%v, want STORE_FULL", err)
	}
	entries, err := os.ReadDir(disk)
	if err != nil || len(entries) != 1 || entries[0].Name() != "a.bin" {
		t.Fatalf("the directory holds %v, %v; want only a.bin", entries, err)
	}
	if got, err := os.ReadFile(at); err != nil || string(got) != "old" {
		t.Errorf("a.bin holds %.40q, %v; want \"old\"", got, err)
	}
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
