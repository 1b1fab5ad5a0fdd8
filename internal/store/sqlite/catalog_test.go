// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestEverySQLTextIsUsed: opening a store takes every text of sql/*.sql by its name, and
// no name that is not there.
func TestEverySQLTextIsUsed(t *testing.T) {
	s := open(t, t.TempDir())
	c, err := loadCatalog(sqlFiles)
	if err != nil {
		t.Fatal(err)
	}
	var q queries
	for _, err := range []error{s.t.load(c), new(statements).prepare(s.db, c), q.prepare(t.Context(), s.read, c), q.close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.texts)) {
		if !c.taken[name] {
			t.Errorf("nothing uses the text %q", name)
		}
	}
	var code strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if text, err := os.ReadFile(f); err != nil {
			t.Fatal(err)
		} else if !strings.HasSuffix(f, "_test.go") {
			code.Write(text)
		}
	}
	for f := range reflect.TypeFor[rareTexts]().Fields() {
		if !regexp.MustCompile(`[^&]\bt\.` + f.Name + `\b`).MatchString(code.String()) {
			t.Errorf("the text %s is taken when a store opens and read by nothing", f.Name)
		}
	}
	if len(c.texts) < 50 {
		t.Errorf("only %d texts were found", len(c.texts))
	}
}

func TestCatalog(t *testing.T) {
	load := func(data string) (*catalog, error) {
		return loadCatalog(fstest.MapFS{"sql/a.sql": {Data: []byte(data)}})
	}
	c, err := load("-- License\n\n-- name: one\n-- What it does.\nSELECT {columns}\nFROM t;\n\n-- name: columns\na, b;\n")
	if err != nil || c.text("one") != "SELECT a, b\nFROM t" || c.err != nil {
		t.Fatalf("text one = %q, %v, %v", c.texts["one"], err, c.err)
	}
	if got := c.text("two"); got != "" || c.err == nil || !strings.Contains(c.err.Error(), `"two"`) {
		t.Errorf("text two = %q, %v", got, c.err)
	}
	for _, bad := range []struct{ what, data string }{
		{"a text without a semicolon", "-- name: one\nSELECT 1\n"},
		{"two texts under one name", "-- name: one\nSELECT 1;\nSELECT 2;\n"},
		{"a name used twice", "-- name: one\nSELECT 1;\n-- name: one\nSELECT 2;\n"},
		{"a text before the first name", "SELECT 1;\n"},
		{"a name without a text", "-- name: one\n-- name: two\nSELECT 1;\n"},
	} {
		if _, err := load(bad.data); err == nil || !strings.HasPrefix(err.Error(), "sql/a.sql: ") {
			t.Errorf("%s: %v", bad.what, err)
		}
	}
	if c, err = load("-- name: one\nSELECT {gone};\n"); err == nil && c.text("one") != "" && c.err == nil {
		t.Error("a fragment that is nowhere is not missed")
	}
}
