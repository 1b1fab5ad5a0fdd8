// SPDX-License-Identifier: Apache-2.0

package dialect_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/sample"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/yamlx"
)

// shuffle changes the order of the fields of objects.
func shuffle(n *jsonx.Node, dice *rand.Rand) {
	if n.Kind == jsonx.Object {
		dice.Shuffle(len(n.Children), func(i, j int) { n.Children[i], n.Children[j] = n.Children[j], n.Children[i] })
	}
	for _, c := range n.Children {
		shuffle(c, dice)
	}
}

// begins returns the pointers of what begins in each line.
func begins(n *jsonx.Node, at string, into map[int32][]string) {
	if line := n.KeyPos.Line; line > 0 {
		into[line] = append(into[line], at)
	} else if at != "" {
		into[n.Pos.Line] = append(into[n.Pos.Line], at)
	}
	for i, c := range n.Children {
		name := strconv.Itoa(i)
		if n.Kind == jsonx.Object {
			name = jsonx.EscapeToken(c.Key)
		}
		begins(c, at+"/"+name, into)
	}
}

func parsed(t *testing.T, text []byte) (*jsonx.Node, map[int32][]string) {
	t.Helper()
	tree, problems := yamlx.Parse(text, jsonx.Limits{Bytes: len(text) + 1, Tokens: len(text) + 1})
	if len(problems) > 0 {
		t.Fatalf("%v\n%s", problems, text)
	}
	lines := map[int32][]string{}
	begins(tree, "", lines)
	return tree, lines
}

// top is where comments are that are above everything.
const top = "the top"

// commented inserts comments above and behind lines in which something begins, and returns what each is about.
func commented(t *testing.T, text []byte, dice *rand.Rand) (out []byte, about [][]string) {
	_, lines := parsed(t, text)
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		what := lines[int32(i+1)]
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		for len(what) > 0 && dice.IntN(6) == 0 {
			out = fmt.Appendf(out, "%s# <%d> x: {'\"\n", indent, len(about))
			if about = append(about, what); i == 0 {
				about[len(about)-1] = []string{top} // what is above everything is about the whole text
			}
			if dice.IntN(4) == 0 {
				out = append(out, '\n')
			}
		}
		out = append(out, line...)
		if len(what) > 0 && dice.IntN(6) == 0 {
			out = fmt.Appendf(out, "%s# <%d> - [y", strings.Repeat(" ", 1+dice.IntN(3)), len(about))
			about = append(about, what)
		}
		out = append(out, '\n')
	}
	return out, about
}

// TestFormatKeepsEveryComment: 1,000 recipes of all dialects with comments anywhere: when they are formatted, each
// comment is there once, at the field or the item that it was at, and formatting again changes nothing.
func TestFormatKeepsEveryComment(t *testing.T) {
	files, comments := 0, 0
	for seed := uint64(0); files < 1000; seed++ {
		dice := rand.New(rand.NewPCG(seed, 3))
		r := sample.Recipe(dice, sample.Shape{Written: true, Steps: 1 + int(seed%12), Depth: int(seed % 4), Actions: []string{"work"}, Undo: "undo", Sleep: "sleep", Signals: []string{"go"}, Approvals: true, Recipes: 10})
		d := dialect.All()[seed%uint64(len(dialect.All()))]
		tree, err := d.Encode(r, dialect.Named("recipe"))
		if err != nil {
			continue // what this dialect cannot say
		}
		shuffle(tree, dice)
		text, about := commented(t, yamlx.Encode(tree), dice)
		files++
		comments += len(about)
		format := func(text []byte) []byte {
			out, problems := yamlx.Format(text, jsonx.Limits{Bytes: 1 << 20}, dialect.Of("x.yaml", text).Form.KeyOrder())
			if len(problems) > 0 {
				t.Fatalf("seed %d: %v\n%s", seed, problems, text)
			}
			return out
		}
		out := format(text)
		if again := format(out); !bytes.Equal(out, again) {
			t.Fatalf("seed %d: formatting again changes\n%s\ninto\n%s", seed, out, again)
		}
		_, lines := parsed(t, out)
		where := strings.Split(string(out), "\n")
		for i, what := range about {
			mark := fmt.Sprintf("# <%d>", i)
			if n := bytes.Count(out, []byte(mark)); n != 1 {
				t.Fatalf("seed %d: comment %d is there %d times\n%s\nbecame\n%s", seed, i, n, text, out)
			}
			if !at(where, lines, mark, what) {
				t.Fatalf("seed %d: comment %d was at %v\n%s\nbecame\n%s", seed, i, what, text, out)
			}
		}
	}
	if comments < 5000 {
		t.Errorf("only %d comments", comments)
	}
}

// at reports whether a comment is in the line, or above the line, of one of the things that it was at.
func at(where []string, lines map[int32][]string, mark string, what []string) bool {
	first := slices.IndexFunc(where, func(line string) bool { return line != "" && line[0] != '#' })
	for k, line := range where {
		if !strings.Contains(line, mark) {
			continue
		}
		for strings.HasPrefix(strings.TrimSpace(where[k]), "#") || strings.TrimSpace(where[k]) == "" {
			k++
		}
		if k == first {
			lines[int32(k+1)] = append(lines[int32(k+1)], top)
		}
		for _, is := range lines[int32(k+1)] {
			for _, was := range what {
				if is == was {
					return true
				}
			}
		}
	}
	return false
}
