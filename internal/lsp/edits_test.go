// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEditsAreLikeATextThatIsOpened: after each change of a text, also while it is broken, its problems and completions
// are those of a server that is given it for the first time.
func TestEditsAreLikeATextThatIsOpened(t *testing.T) {
	for _, dialect := range slices.Sorted(maps.Keys(longDialects)) {
		t.Run(dialect, func(t *testing.T) {
			const uri = "file:///long.yaml"
			cfg := config(t.TempDir())
			c, text := newClient(t, cfg), longText(dialect, 120)
			c.open(uri, text)
			c.problems(uri, 1)
			r := rand.New(rand.NewPCG(1, 2))
			words := []string{"", "", "x", "\n", "'", "\"", ": ", "- ", "\n  - id: new\n", "{{ ", "  ", "#", "steps.", "[", "é😀", "\r"}
			for version := 2; version < 40; version++ {
				d := newDocument("", "", 0, text, false)
				from := d.position(r.IntN(len(text)))
				to := position{from.Line, from.Character + r.IntN(4)}
				switch r.IntN(8) {
				case 0:
					to.Line += 3
				case 1, 2: // the text is whole again
					text = longText(dialect, 120)
					d, from, to = newDocument("", "", 0, "", false), position{}, position{1 << 20, 0}
				}
				is := words[r.IntN(len(words))]
				if d.text == "" {
					is = text
				} else {
					text = apply(t, text, []textEdit{{textRange{from, to}, is}})
				}
				c.notify("textDocument/didChange", map[string]any{
					"textDocument":   map[string]any{"uri": uri, "version": version},
					"contentChanges": []any{map[string]any{"range": textRange{from, to}, "text": is}},
				})
				fresh := newClient(t, cfg)
				fresh.open(uri, text)
				got, want := c.problems(uri, version), fresh.problems(uri, 1)
				if !reflect.DeepEqual(got, want) && len(want) > 0 { // a text that was a recipe stays one
					t.Fatalf("version %d has the problems\n%v, opened\n%v\n%s", version, got, want, text)
				}
				place := at(uri, newDocument("", "", 0, text, false).position(max(0, strings.LastIndex(text, "steps.")+len("steps."))))
				var list, opened completionList
				if err := c.call("textDocument/completion", place, &list); err != nil {
					t.Fatal(err)
				}
				if err := fresh.call("textDocument/completion", place, &opened); err != nil {
					t.Fatal(err)
				}
				if len(opened.Items) > 0 && !reflect.DeepEqual(list, opened) {
					t.Fatalf("version %d is completed with\n%v, opened with\n%v\n%s", version, list, opened, text)
				}
			}
		})
	}
}
