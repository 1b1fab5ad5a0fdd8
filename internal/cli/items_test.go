// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// manyItems is a run over 60 items, 8 at once, which end in no order: the last of
// them first. Of the later ones three fail.
const manyItems = `name: many
steps:
  - id: before
    transform: {expression: "1"}
  - id: each
    loop:
      over: range(60)
      maxConcurrency: 8
      failureStrategy: continue
      steps:
        - id: work
          transform: {expression: "item % 20 == 5 && item > 20 ? 1 / (item - item) : item"}
        - id: next
          when: "item < 30"
          transform: {expression: item}
    continue_on_error: true
`

// TestItemsAreInOrder: `runs get` and `trace` list the items of a loop by their index,
// the first 20 and those that failed; what is left out is counted. Programs get all.
func TestItemsAreInOrder(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("ROUX_DATA", filepath.Join(dir, "data"))
	list := make([]string, 60)
	for i := range list {
		list[i] = fmt.Sprint(i)
	}
	recipe := filepath.Join(dir, "many.yaml")
	text := strings.Replace(manyItems, "range(60)", `"[`+strings.Join(list, ", ")+`]"`, 1)
	if err := os.WriteFile(recipe, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, _ = inProcess("", "run", recipe, "-q") // ends with handled failures
	for _, command := range []string{"runs get", "trace"} {
		out, talk, code := inProcess("", append(strings.Fields(command), "@last")...)
		if code != 0 {
			t.Fatalf("%s: exit %d: %s", command, code, talk)
		}
		var items []string
		for _, m := range regexp.MustCompile(`\[(\d+)\]\.work`).FindAllStringSubmatch(out, -1) {
			items = append(items, m[1])
		}
		want := strings.Join(append(append([]string{}, list[:20]...), "25", "45"), " ")
		if got := strings.Join(items, " "); got != want {
			t.Errorf("%s lists %s, want %s\n%s", command, got, want, out)
		}
		if n := strings.Count(out, "38 more items: 38 completed"); n != 1 {
			t.Errorf("%s does not count the others:\n%s", command, out)
		}
		if before, each := strings.Index(out, "before"), strings.Index(out, "each"); before > each {
			t.Errorf("%s: the loop stands before the step before it\n%s", command, out)
		}
	}
	all, _, _ := inProcess("", "trace", "@last", "-o", "json")
	if n := strings.Count(all, `.work"`); n < 60 {
		t.Errorf("programs get %d items", n)
	}
}

// TestFitTable: columns are cut in the order given, never below what can be read,
// and characters of two columns count as two.
func TestFitTable(t *testing.T) {
	rows := func() [][]string {
		return [][]string{{"ID", "NAME", "NOTE"}, {"run_0123456789", strings.Repeat("n", 30), strings.Repeat("x", 40)}, {"b", "漢字漢字漢字漢字", "y"}}
	}
	for _, tt := range []struct {
		columns int
		want    string
	}{
		{200, "run_0123456789  " + strings.Repeat("n", 30) + "  " + strings.Repeat("x", 40)},
		{87, "run_0123456789  " + strings.Repeat("n", 30) + "  " + strings.Repeat("x", 38) + "…"},
		{59, "run_0123456789  " + strings.Repeat("n", 28) + "…  " + strings.Repeat("x", 11) + "…"},
		{42, "run_0123456789  " + strings.Repeat("n", 11) + "…  " + strings.Repeat("x", 11) + "…"},
	} {
		lines := strings.Split(fitTable(rows(), tt.columns, 2, 1), "\n")
		if lines[1] != tt.want {
			t.Errorf("%d columns:\n%s, want\n%s", tt.columns, lines[1], tt.want)
		}
	}
	if got := strings.Split(fitTable(rows(), 42, 2, 1), "\n")[2]; got != "b               漢字漢字漢…   y" {
		t.Errorf("got %q", got)
	}
	// A terminal that is narrower yet gets two lines for each row.
	narrow := "ID\n  NAME            NOTE\nrun_0123456789\n  " + strings.Repeat("n", 13) + "…  " + strings.Repeat("x", 11) + "…\nb\n  漢字漢字漢字…   y\n"
	if got := fitTable(rows(), 30, 2, 1); got != narrow {
		t.Errorf("got\n%s, want\n%s", got, narrow)
	}
	// A row of one cell spans the columns; ^0 cuts the beginning of the first.
	spanning := [][]string{{"each[10].work", "done", "1"}, {"each[…]  20 more items"}}
	if got, want := fitTable(spanning, 20, ^0), "each[10].work\n  done  1\n…h[…]  20 more items\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := fitTable(spanning, 21, ^0), "…ch[10].work  done  1\neach[…]  20 more ite…\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
