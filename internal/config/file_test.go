// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestForeignConfiguration checks that a roux.yaml of another user in a parent
// directory is reported and not read, because it could decide where runs are stored.
func TestForeignConfiguration(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() != 0 {
		t.Skip("only root can give a file to somebody else")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, ProjectFile)
	if err := os.WriteFile(path, []byte("time: iso\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	read := func() (int, string) {
		var talk bytes.Buffer
		c := New(func(string) string { return "" }, new(string))
		if err := c.Read(func(format string, args ...any) { fmt.Fprintf(&talk, format+"\n", args...) }); err != nil {
			t.Fatal(err)
		}
		return len(c.Files()), talk.String()
	}
	if n, talk := read(); n != 1 || talk != "" {
		t.Errorf("our own: %d files, %q", n, talk)
	}
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if n, talk := read(); n != 0 || !strings.Contains(talk, "roux.yaml belongs to another user: it is not read") {
		t.Errorf("another's: %d files, %q", n, talk)
	}
}
