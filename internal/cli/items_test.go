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

// manyItems is a run over 60 items, 8 at once. They end in no fixed order. Items 25 and
// 45 fail.
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

// TestItemsAreInOrder checks that `runs get` and `trace` list the items of a loop by
// index: the first 20 and those that failed, and the number of the others. JSON output
// has all items.
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
