// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files of testdata")

// golden compares got with a file of testdata, or writes it with -rewrite.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; read the difference, then -rewrite\n--- got\n%s\n--- want\n%s", path, got, want)
	}
}

// shared returns a file of the source documents, or skips the test.
func shared(t *testing.T, elem ...string) string {
	t.Helper()
	dir := cmp.Or(os.Getenv("ROUX_SHARED"), "../../../../shared")
	b, err := os.ReadFile(filepath.Join(append([]string{dir}, elem...)...))
	if err != nil {
		t.Skipf("no shared data: %v (set ROUX_SHARED)", err)
	}
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}
