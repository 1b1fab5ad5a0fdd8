// SPDX-License-Identifier: Apache-2.0

// Package fuzztest has what the fuzz targets of the language share: texts to begin with, and the bounds on
// what reading a text may cost.
//
// It decides which texts these are and how much is too much: 100 ms of processor time, and 64 MiB that are
// allocated. It never decides whether a text is right, and nothing but tests imports it.
package fuzztest

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/cputime"
)

// The bounds on one piece of work.
const (
	MaxTime  = 100 * time.Millisecond
	MaxBytes = 64 << 20
)

// Bounded runs work that reads a text, and fails the test when that takes more than [MaxTime] of processor
// time or allocates more than [MaxBytes]. All that is allocated counts, also what is free again, so no more
// than that is ever in use. Work that seems slow is done again twice and the least time counts, because a
// collection of garbage only adds to it: the work must be repeatable.
func Bounded(t testing.TB, what string, work func()) {
	t.Helper()
	before, began := allocated(), cputime.Used()
	work()
	took, bytes := cputime.Used()-began, allocated()-before
	if bytes > MaxBytes {
		t.Errorf("%s allocated %d MiB: want at most %d", what, bytes>>20, MaxBytes>>20)
	}
	if took > MaxTime {
		took = min(took, cputime.Of(2, work))
	}
	if took > MaxTime {
		t.Errorf("%s took %v of processor time: want at most %v", what, took, MaxTime)
	}
}

// allocated is how many bytes this process has allocated in its heap since it began.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// Recipes returns texts of recipes in every dialect: the examples, the blocks of the documentation, those that
// the dialects are tested with, also malformed ones, and, where they are here, the definitions of the source
// documents. There are no two of the same.
func Recipes(t testing.TB) [][]byte {
	t.Helper()
	root := root(t)
	var texts [][]byte
	for _, pattern := range []string{"examples/*.yaml", "internal/compile/*/testdata/valid/*.yaml", "internal/compile/*/testdata/diagnostics/*.yaml", "internal/compile/*/testdata/diagnostics/*.json"} {
		texts = append(texts, read(t, filepath.Join(root, pattern))...)
	}
	for _, page := range read(t, filepath.Join(root, "docs/*.md")) {
		for _, m := range block.FindAllSubmatch(page, -1) {
			texts = append(texts, m[1])
		}
	}
	shared := cmp.Or(os.Getenv("ROUX_SHARED"), filepath.Join(root, "../shared"))
	if files, _ := filepath.Glob(filepath.Join(shared, "sources/*.txt")); len(files) > 0 {
		texts = append(texts, definitions(read(t, filepath.Join(shared, "sources/*.txt")))...)
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(texts, func(text []byte) bool {
		again := seen[string(text)]
		seen[string(text)] = true
		return again || len(text) > 32<<10
	})
}

// block is a block of a page that may be a recipe.
var block = regexp.MustCompile("(?ms)^```(?:yaml|json)[^\n]*\n(.*?)^```")

// definitions are the parts of the source documents that are definitions: what begins with `workflow:` has lost
// its indentation there, and ends before an empty line or a heading; a recipe in JSON ends with its last brace.
func definitions(documents [][]byte) (texts [][]byte) {
	for _, text := range documents {
		text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
		texts = append(texts, regexp.MustCompile(`(?m)^workflow:\n(?:.+\n){1,60}`).FindAll(text, -1)...)
		if at := bytes.Index(text, []byte("\n{\n")); at >= 0 {
			if end := bytes.Index(text[at:], []byte("\n}\n")); end >= 0 {
				texts = append(texts, text[at+1:at+end+3])
			}
		}
	}
	return texts
}

// root is the directory of the module.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		above := filepath.Dir(dir)
		if above == dir {
			t.Fatal("no go.mod above this directory")
		}
		dir = above
	}
}

func read(t testing.TB, pattern string) (texts [][]byte) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	return texts
}

// Strings are texts as fuzz targets of strings want them.
func Strings(texts [][]byte) []string {
	list := make([]string, 0, len(texts))
	for _, text := range texts {
		list = append(list, strings.ToValidUTF8(string(text), ""))
	}
	return list
}
