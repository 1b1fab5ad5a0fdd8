// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "put the tables of the newest results into docs/performance.md")

const pageFile = "../../docs/performance.md"

// places are where the page has tables of results.
var places = []struct {
	name, begin, rest, end string
	shapes                 []string
}{
	{"peers", "<!-- made by cd bench/peers && go run . -report ", "; go test -run Page -rewrite . takes the newest -->\n", "<!-- end of peers -->\n", shapeNames},
	{"ingress", "<!-- made by cd bench/peers && go run . -shapes ingress -report ", "; go test -run Page -rewrite . takes the newest -->\n", "<!-- end of ingress -->\n", []string{ingressShape}},
}

// TestPage: the tables in docs/performance.md are generated from the raw results
// they name.
func TestPage(t *testing.T) {
	for _, place := range places {
		t.Run(place.name, func(t *testing.T) {
			raw, err := os.ReadFile(pageFile)
			if err != nil {
				t.Fatal(err)
			}
			before, rest, ok := strings.Cut(string(raw), place.begin)
			file, rest, ok2 := strings.Cut(rest, place.rest)
			old, after, ok3 := strings.Cut(rest, place.end)
			if !ok || !ok2 || !ok3 {
				t.Fatalf("%s has no place for the table", pageFile)
			}
			if *rewrite {
				file = newest(t, place.shapes)
			}
			var table strings.Builder
			if err := reportOf(options{report: file, shapes: place.shapes}, &table); err != nil {
				t.Fatal(err)
			}
			want := "\n" + table.String() + "\n"
			if *rewrite {
				if err := os.WriteFile(pageFile, []byte(before+place.begin+file+place.rest+want+place.end+after), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if old != want {
				t.Errorf("%s is not current: go test -run Page -rewrite .", pageFile)
			}
		})
	}
}

// newest returns the newest raw results with the first of these shapes.
func newest(t *testing.T, shapes []string) string {
	t.Helper()
	all, err := filepath.Glob("results/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all) // they are named by time
	for _, file := range slices.Backward(all) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(`"shape":"`+shapes[0]+`"`)) {
			return filepath.ToSlash(file)
		}
	}
	t.Fatalf("no results with %s", shapes[0])
	return ""
}
