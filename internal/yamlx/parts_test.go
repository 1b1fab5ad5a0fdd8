// SPDX-License-Identifier: Apache-2.0

package yamlx

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/fuzztest"
	"github.com/roux-engine/roux/internal/jsonx"
	"pgregory.net/rapid"
)

// same fails if the parts of a text are not what its whole is.
func same(t rapid.TB, p *Parts, text string, lim jsonx.Limits) {
	t.Helper()
	got, gotProblems := p.Parse([]byte(text), lim)
	want, wantProblems := Parse([]byte(text), lim)
	if !reflect.DeepEqual(gotProblems, wantProblems) {
		t.Fatalf("%q: problems %v, want %v", text, gotProblems, wantProblems)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q:\nthe parts are\n%s, the whole is\n%s", text, outline(got, 0), outline(want, 0))
	}
}

func outline(n *jsonx.Node, depth int) string {
	if n == nil {
		return "nothing\n"
	}
	s := fmt.Sprintf("%s%q%v %v%v %q %v %d %g %v\n", strings.Repeat(" ", depth), n.Key, n.KeyPos, n.Kind, n.Pos, n.Text, n.Bool, n.Int, n.Float, n.Style)
	for _, c := range n.Children {
		s += outline(c, depth+1)
	}
	return s
}

// pieces are what lines are made of: what a list may have within it, and what looks like a list and is none.
var pieces = []string{
	"- a", "- b: 1", "- ", "-", "- - x", "- k:", "k: v", "k:", "list:", "'q':", "- |", "- >-", "text: |", "text: >+", "text: |2", "- 'one", "two'", `- "a`, `b"`, "- [a,", "b]", "{x: 1}", "- {a: b,",
	"c: d}", "# comment", "- a # b", "", "   ", "\t", "...", "---", "%YAML 1.2", "plain", "- plain", "? k", ": v", "- ? k", "&a x", "*a", "!t x", "-\tx", "- é", "- 1.5", "- ~", "k: 0777",
}

// TestPartsAreTheWhole: the versions of a text have the trees and the problems that they have without parts, whatever
// the text and its changes are.
func TestPartsAreTheWhole(t *testing.T) {
	assembled := 0
	line := rapid.Custom(func(t *rapid.T) string {
		end := "\n"
		if rapid.IntRange(0, 40).Draw(t, "odd") == 0 {
			end = rapid.SampledFrom([]string{"\r\n", "\r", "\u0085", "\u2028"}).Draw(t, "break")
		}
		return strings.Repeat(" ", rapid.SampledFrom([]int{0, 0, 2, 2, 2, 4, 4, 6, 1, 3}).Draw(t, "indent")) + rapid.SampledFrom(pieces).Draw(t, "piece") + end
	})
	rapid.Check(t, func(t *rapid.T) {
		p := &Parts{minRun: 1}
		lines := rapid.SliceOfN(line, 0, 12).Draw(t, "lines")
		if rapid.Bool().Draw(t, "list") {
			lines = append([]string{"list:\n", "  - a: 1\n", "  - b: 2\n"}, lines...)
		}
		lim := jsonx.Limits{Depth: rapid.SampledFrom([]int{0, 3, 4, 5}).Draw(t, "depth"), Tokens: rapid.SampledFrom([]int{0, 0, 10, 20}).Draw(t, "tokens")}
		for range 4 {
			same(t, p, strings.Join(lines, ""), lim)
			if len(p.known) > 0 {
				assembled++
			}
			if len(lines) == 0 {
				return
			}
			at := rapid.IntRange(0, len(lines)-1).Draw(t, "at")
			lines = append(append(append([]string{}, lines[:at]...), rapid.SliceOfN(line, 0, 2).Draw(t, "new")...), lines[at+rapid.IntRange(0, 1).Draw(t, "less"):]...)
		}
	})
	if assembled == 0 {
		t.Error("no text was made of parts")
	}
}

// TestPartsOfOddTexts: what looks like items of a list and is none, and items that reach beyond their lines.
func TestPartsOfOddTexts(t *testing.T) {
	for _, text := range []string{
		"list:\n- a\r- b\n- c\n", "list:\n- a\u2028- b\n- c\n", "list:\n- a\u0085  b\n- c\n", "text: |\n- a\n- b\n", "text: |\n  - a\n  - b\n  - c\nlist:\n- a\n- b\n",
		"text: \"\n- a\n- b\n- c\"\nlist:\n- a\n- b\n", "list:\n- 'a\n- b'\n- c\n", "list:\n- [a,\n- b]\n- c\n", "list:\n- &a b\n- *a\n- c\n", "list:\n- k:\n- \n-\n- k:\nother:\n",
		"list:\n- a: 1\n  a: 2\n- b\n", "- a\n- b\n---\n- c\n", "- ~\n- b\n", "list:\n- [~, a]\n- {b: ~}\n- - ~\n  - c\n- ~\n", "text: |\n  - ~\n  - ~\nlist: [[~, ~], ~]\n", "list:\n  - |\n      a\n\n  - >+\n      b\n\n\n  # c\n# d\n  - e\n", "\ufefflist:\n- a\n- b\n- c\n", "a\n- b\n- c\n",
	} {
		for _, end := range []string{"", "- zz: 1\n", "other: 1\n", "# end"} {
			p := &Parts{minRun: 1}
			same(t, p, text+end, jsonx.Limits{})
			same(t, p, text+end, jsonx.Limits{Tokens: 4})
			same(t, p, "# one line more\n"+text+end, jsonx.Limits{Depth: 2})
		}
	}
}

// TestPartsOfRecipes: the recipes of this repository, of which one line after the other is left out.
func TestPartsOfRecipes(t *testing.T) {
	for _, text := range fuzztest.Recipes(t) {
		p := &Parts{minRun: 16}
		lines := strings.SplitAfter(string(text), "\n")
		if len(text) > 20_000 {
			continue
		}
		for i := 0; i <= len(lines); i += 1 + len(lines)/20 {
			same(t, p, strings.Join(append(append([]string{}, lines[:i]...), lines[min(i+1, len(lines)):]...), ""), jsonx.Limits{})
		}
	}
}

// TestPartsAreKept: what did not change is not parsed again, also in a list within an item, and only the parts of the
// newest version are kept.
func TestPartsAreKept(t *testing.T) {
	text := func(changed string) string {
		var b strings.Builder
		b.WriteString("text: |\n  - no\n  - list\nsteps:\n")
		for i := range 50 {
			fmt.Fprintf(&b, "  - id: step%d\n    text: %s\n", i, strings.Repeat("x", i))
		}
		b.WriteString("  - loop:\n      steps:\n")
		for i := range 50 {
			fmt.Fprintf(&b, "        - id: inner%d\n          text: %s%s\n", i, strings.Repeat("y", i), strings.Repeat(changed, max(0, i-48)))
		}
		b.WriteString("  - id: last\n")
		return b.String()
	}
	p := &Parts{minRun: 64}
	same(t, p, text(""), jsonx.Limits{})
	before := p.known
	for _, changed := range []string{"a", "b\n# c", "c"} {
		same(t, p, "# one more line\n"+text(changed), jsonx.Limits{})
		fresh := 0
		for key, part := range p.known {
			if before[key] != part {
				fresh++
			}
		}
		if fresh > 2 || len(p.known) > 101 || len(p.known) < 99 {
			t.Errorf("%d of %d parts are new", fresh, len(p.known))
		}
		before = p.known
	}
}

// TestPartsBelongToTheCaller: a tree that is changed changes no other.
func TestPartsBelongToTheCaller(t *testing.T) {
	p, text := &Parts{minRun: 1}, "list:\n- a: {b: [c]}\n- d: 1\n- e\n"
	for range 3 {
		same(t, p, text, jsonx.Limits{})
		tree, _ := p.Parse([]byte(text), jsonx.Limits{})
		item := tree.Child("list").Children[0]
		item.Children[0].Key = "changed"
		item.Children[0].Children = append(item.Children[0].Children, item)
		item.Children = nil
	}
}
