// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "put the table of the newest results into docs/performance.md")

const (
	pageFile  = "../../docs/performance.md"
	pageBegin = "<!-- made by cd bench/peers && go run . -report "
	pageRest  = "; go test -run Page -rewrite . takes the newest -->\n"
	pageEnd   = "<!-- end of peers -->\n"
)

// TestPage: the table in docs/performance.md is generated from the raw results
// it names.
func TestPage(t *testing.T) {
	raw, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), pageBegin)
	file, rest, ok2 := strings.Cut(rest, pageRest)
	old, after, ok3 := strings.Cut(rest, pageEnd)
	if !ok || !ok2 || !ok3 {
		t.Fatalf("%s has no place for the table", pageFile)
	}
	if *rewrite {
		all, err := filepath.Glob("results/*.jsonl")
		if err != nil || len(all) == 0 {
			t.Fatalf("no results: %v", err)
		}
		file = filepath.ToSlash(slices.Max(all)) // they are named by time
	}
	var table strings.Builder
	if err := reportOf(options{report: file, shapes: shapeNames}, &table); err != nil {
		t.Fatal(err)
	}
	want := "\n" + table.String() + "\n"
	if *rewrite {
		if err := os.WriteFile(pageFile, []byte(before+pageBegin+file+pageRest+want+pageEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != want {
		t.Errorf("%s is not current: go test -run Page -rewrite .", pageFile)
	}
}
