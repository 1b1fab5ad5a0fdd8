// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
	"github.com/roux-engine/roux/internal/store/sqlite/changes"
	"github.com/roux-engine/roux/internal/store/sqlite/check"
	"github.com/roux-engine/roux/internal/store/sqlite/marks"
	"github.com/roux-engine/roux/internal/store/sqlite/records"
)

// TestEverySQLTextIsUsed: opening a store takes every text of sql/*.sql by its name, and
// no name that is not there.
func TestEverySQLTextIsUsed(t *testing.T) {
	s := open(t, t.TempDir())
	c, err := catalog.Load(sqlFiles)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.Unused()); n < 50 {
		t.Errorf("only %d texts were found", n)
	}
	var q queries
	check.NewTexts(c)
	documents, err := records.Open(t.Context(), c, s.db, s.read)
	_, marked := marks.Open(c, s.db, s.read)
	for _, err := range []error{err, marked, documents.Close(), s.t.load(c), new(statements).prepare(s.db, c, new(starts)), second(changes.Open(c, s.db, s.read)), q.prepare(t.Context(), s.read, c), q.close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if unused := c.Unused(); len(unused) > 0 {
		t.Errorf("nothing uses the texts %q", unused)
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
}
