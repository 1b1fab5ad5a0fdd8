// SPDX-License-Identifier: Apache-2.0

package yamlx

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/cputime"
	"github.com/roux-engine/roux/internal/fuzztest"
	"github.com/roux-engine/roux/internal/jsonx"
	"pgregory.net/rapid"
)

// TestFormat shows the canonical layout, case by case.
func TestFormat(t *testing.T) {
	for _, tt := range []struct{ name, src, want string }{
		{"indentation and empty lines", "a:\n    b:\n       - 1\n\n\n       -   2\n\nc:\n- x\n- y\n", "a:\n  b:\n    - 1\n\n    - 2\n\nc:\n  - x\n  - y\n"},
		{"quotes that are not needed", "a: \"x y\"\n'b': 'yes'\nc: '1'\nd: \"it's\"\ne: 'say \"no\"'\nf: \"a\\tb\"\n", "a: x y\nb: 'yes'\nc: '1'\nd: it's\ne: say \"no\"\nf: \"a\\tb\"\n"},
		{"plain text stays", "a: x[0] == \"y, z\"\nb: 0x1F\nc: ~\nd:\n", "a: x[0] == \"y, z\"\nb: 0x1F\nc: ~\nd:\n"},
		{"brackets", "a: {b: 1,c: [ x,'y' ], d: }\n", "a: {b: 1, c: [x, y], d: null}\n"},
		{"brackets over lines", "a: {b: 1,\n  c: 2}\n", "a: {b: 1, c: 2}\n"},
		{"brackets that are too long", "a: {b: [" + strings.Repeat("abcdefghij, ", 12) + "z], c: 1}\n", "a:\n  b:\n    - " + strings.Repeat("abcdefghij\n    - ", 12) + "z\n  c: 1\n"},
		{"brackets with a comment", "a: {b: 1, # one\n  # two\n  c: [x, y]\n  # end\n  }\nd: 1\n", "a:\n  b: 1 # one\n  # two\n  c: [x, y]\n  # end\nd: 1\n"},
		{"two comments for one line", "a: {b: 1 # one\n  } # two\n", "a:\n  # two\n  b: 1 # one\n"},
		{"comments", "# head\n\n# of a\na: 1   # tail\n# of b\nb:\n  - x\n  # end of b\n\n# end\n", "# head\n\n# of a\na: 1 # tail\n# of b\nb:\n  - x\n  # end of b\n\n# end\n"},
		{"comments of items", "- # on the dash\n  # inside\n  a: 1\n\n# next\n-\n  b: 2\n", "# on the dash\n# inside\n- a: 1\n\n# next\n- b: 2\n"},
		{"what is no comment", "a: x#y\nb: '# z'\nc: |\n  # text\n  1\nd: \"a\n  # b\"\n", "a: x#y\nb: '# z'\nc: |\n  # text\n  1\nd: 'a # b'\n"},
		{"a block to the end", "a: |\n  one\n  two", "a: |-\n  one\n  two\n"},
		{"a block to the end, stripped", "a: |-\n  one", "a: |-\n  one\n"},
		{"a block to the end, of Windows", "a: |+ # - \r\n  one\r\n\r\n  two", "a: |- # -\n  one\n\n  two\n"},
		{"a block to the end, with its indentation", "a: >2-\n   one\nb: |-2\n   two\nc: |1\n  three", "a: ' one'\nb: ' two'\nc: ' three'\n"},
		{"an empty block to the end", "a: |\nb: >+\n\nc: |+", "a: ''\nb: \"\\n\"\nc: ''\n"},
		{"a block to the end, with spaces behind it", "a: |+\n  one\n  ", "a: |+\n  one\n\n"},
		{"a block to the end, with fewer spaces behind it", "- |+\n  one\n\n ", "- |+\n  one\n\n\n"},
		{"a block alone", "|\n one  \n\n two", "|-\n  one  \n\n  two\n"},
		{"a block to the end, kept", "a: >+\n  one", "a: >-\n  one\n"},
		{"blocks", "a:   |-   # why\n     x\n\n       y\nb: >\n  one\n  two\n\nc: |+\n  k\n\nd: |2\n   lead\n", "a: |- # why\n  x\n\n    y\nb: >\n  one\n  two\n\nc: |+\n  k\n\nd: \" lead\\n\"\n"},
		{"text over lines", "a: one\n  two\nb: 'three\n\n  four'\n", "a: one two\nb: |-\n  three\n  four\n"},
		{"lists of lists", "- - 1\n  - 2\n-\n  - - a: 1\n      b: 2\n", "- - 1\n  - 2\n- - - a: 1\n      b: 2\n"},
		{"begin of a document", "---\n# c\na: 1\n", "# c\na: 1\n"},
		{"line ends of Windows", "a: 1\r\n# c\r\nb: 2\r\n", "a: 1\n# c\nb: 2\n"},
		{"one value", "'x'\n", "x\n"},
		{"an empty list", "[ ]", "[]\n"},
	} {
		got, problems := Format([]byte(tt.src), jsonx.Limits{}, nil)
		if len(problems) > 0 {
			t.Errorf("%s: %v", tt.name, problems)
		} else if string(got) != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// TestFormatRefuses: a text that cannot be parsed is not formatted.
func TestFormatRefuses(t *testing.T) {
	for _, tt := range []struct{ name, src, rule string }{
		{"syntax", "a: [", jsonx.RuleSyntax},
		{"alias", "a: &x 1", ruleAnchor},
		{"directive", "%YAML 1.1\n---\na: 1\n", RuleLoss},
		{"comment on a single value", "x # y\n", RuleLoss},
	} {
		got, problems := Format([]byte(tt.src), jsonx.Limits{}, nil)
		if got != nil || len(problems) != 1 || problems[0].Rule != tt.rule {
			t.Errorf("%s: %q, %v", tt.name, got, problems)
		}
	}
}

// A writer writes a value as YAML in random styles.
type writer struct {
	t *rapid.T
	b strings.Builder
	n int
}

func (w *writer) maybe(p int, what string) bool { return rapid.IntRange(1, 100).Draw(w.t, what) <= p }

// comments writes comment lines and empty lines before an entry.
func (w *writer) comments(indent int) {
	for w.maybe(20, "comment") {
		w.n++
		fmt.Fprintf(&w.b, "%s# %d: {x} 'y'\n", strings.Repeat(" ", indent), w.n)
		if w.maybe(20, "empty") {
			w.b.WriteString("\n")
		}
	}
}

func (w *writer) tail() {
	if w.maybe(15, "tail") {
		w.n++
		fmt.Fprintf(&w.b, "  # tail %d", w.n)
	}
	w.b.WriteByte('\n')
}

// value writes the value after a name or a dash, to the end of the line.
func (w *writer) value(v any, indent int) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) > 0 && !w.maybe(25, "brackets") {
			w.tail()
			w.mapping(v, indent+rapid.IntRange(1, 4).Draw(w.t, "indent"))
			return
		}
	case []any:
		if len(v) > 0 && !w.maybe(25, "brackets") {
			w.tail()
			w.list(v, indent+rapid.IntRange(1, 4).Draw(w.t, "indent"))
			return
		}
	case string:
		if lines, ok := literal(v, indent+3); ok && w.maybe(50, "block") {
			head, rest, _ := strings.Cut(lines, "\n")
			w.b.WriteString(" " + head)
			w.tail()
			w.b.WriteString(rest + "\n")
			return
		}
	}
	text, err := jsonx.Canonical(v)
	if err != nil {
		w.t.Skip("no JSON")
	}
	for _, r := range string(text) {
		if !visible(r) {
			w.t.Skip("not raw in YAML")
		}
	}
	w.b.WriteString(" " + string(text))
	w.tail()
}

func (w *writer) mapping(m map[string]any, indent int) {
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}) {
		w.comments(indent)
		w.b.WriteString(strings.Repeat(" ", indent) + quoted(k) + ":")
		w.value(m[k], indent)
	}
	w.comments(indent)
}

func (w *writer) list(l []any, indent int) {
	for _, v := range l {
		w.comments(indent)
		w.b.WriteString(strings.Repeat(" ", indent) + "-")
		w.value(v, indent)
	}
	w.comments(indent)
}

// TestFormatKeeps: for any text with comments, the formatted text has the same meaning and
// the same comments, and formatting it again does not change it.
func TestFormatKeeps(t *testing.T) {
	value := rapid.MapOfN(rapid.StringMatching(`[a-z]{1,4}`), values(), 1, 4)
	rapid.Check(t, func(t *rapid.T) {
		w := &writer{t: t}
		w.comments(0)
		w.mapping(value.Draw(t, "value"), 0)
		src := []byte(w.b.String())
		before, problems := Parse(src, jsonx.Limits{})
		if len(problems) > 0 {
			t.Skip("not taken: ", problems[0])
		}
		out, problems := Format(src, jsonx.Limits{}, nil)
		if len(problems) > 0 {
			t.Fatalf("%v\n%s", problems, src)
		}
		after, problems := Parse(out, jsonx.Limits{})
		if len(problems) > 0 || !reflect.DeepEqual(before.Value(), after.Value()) || !slices.Equal(names(before), names(after)) {
			t.Fatalf("%v\n%s\nbecame\n%s", problems, src, out)
		}
		for i := range w.n {
			if n := bytes.Count(out, fmt.Appendf(nil, "# %d:", i+1)) + bytes.Count(out, fmt.Appendf(nil, "# tail %d\n", i+1)); n != 1 {
				t.Fatalf("comment %d stands %d times\n%s\nbecame\n%s", i+1, n, src, out)
			}
		}
		again, problems := Format(out, jsonx.Limits{}, nil)
		if len(problems) > 0 || !bytes.Equal(again, out) {
			t.Fatalf("%v\n%s\nbecame\n%s", problems, out, again)
		}
	})
}

// TestFormatIsLinear: a text twice as long takes about twice the processor time, also on one
// line, in brackets, with a comment for each entry.
func TestFormatIsLinear(t *testing.T) {
	for name, text := range map[string]func(n int) string{
		"one line":       func(n int) string { return "a: [" + strings.Repeat("b, ", n) + "c]\n" },
		"comments":       func(n int) string { return strings.Repeat("- [a, b] # c\n", n) },
		"opened":         func(n int) string { return "a: [ # x\n" + strings.Repeat("b, # y\n", n) + "c]\n" },
		"heads and feet": func(n int) string { return strings.Repeat("# c\n", n) + "a: 1\n" + strings.Repeat("# d\n", n) },
		"blocks":         func(n int) string { return strings.Repeat("- |\n  x\n", n) },
	} {
		fastest := func(n int) time.Duration {
			src := []byte(text(n))
			return cputime.Of(3, func() {
				if _, problems := Format(src, jsonx.Limits{Tokens: 1 << 20}, nil); len(problems) > 0 {
					t.Fatalf("%s: %v", name, problems)
				}
			})
		}
		// Eight times the text in at most 24 times the processor time: square would
		// be 64. A millisecond is added for how coarsely the system may count.
		if small, large := fastest(2_000), fastest(16_000); large > 24*(small+time.Millisecond) {
			t.Errorf("%s: %v for 2,000 entries, %v for 16,000", name, small, large)
		}
	}
}

// TestFormatBlocks: blocks with every header, which end in every way, can be formatted.
func TestFormatBlocks(t *testing.T) {
	formatted := 0
	for _, header := range []string{"|", ">", "|-", ">-", "|+", ">+", "|2", "|2-", "|-2", ">2", "|2+", "|+2", ">+1", "|-1", "| # 2-", ">- # +", "|+  "} {
		for _, before := range []string{"", "a: ", "a:\n  b: ", "- ", "a:\n  - "} {
			for _, body := range []string{"", "\n", "\n\n", "\n  ", "\n   \n", "\n      one", "\n      one\n", "\n      one\n\n", "\n      one\n\n\n", "\n      one\n       two\n", "\n      one\n       two", "\n\n      one",
				"\n\n      one\n      ", "\n      one\n      \n      ", "\n      one\n   ", "\n      one  ", "\n      # c", "\n      one\n# c", "\n      one\n# c\n"} {
				for _, end := range []string{"\n", "\r\n", "\r", "\u0085", "\u2028"} {
					text := []byte(strings.ReplaceAll(before+header+body, "\n", end))
					if _, problems := Parse(text, jsonx.Limits{}); len(problems) > 0 || before == "" && strings.Contains(string(text), "#") {
						continue // a single value has no comments
					}
					formatted++
					_, problems := Format(text, jsonx.Limits{}, nil)
					// A value keeps the line breaks of YAML 1.1, so that some texts cannot be written with others.
					if len(problems) > 0 && (end < "\u0080" || problems[0].Rule != RuleLoss) {
						t.Errorf("%q: %v", text, problems[0])
					}
				}
			}
		}
	}
	if formatted < 1000 {
		t.Errorf("only %d texts were formatted", formatted)
	}
}

// FuzzFormat: every text is formatted or has problems.
func FuzzFormat(f *testing.F) {
	for _, s := range []string{
		"# a\na: 1 # b\nc:\n  - |\n    d\n  # e\n", "{a: 1, # b\n c: [d]}", "- - a\n- # x\n  b: 1", "? a\n: b\n", "a: 'b\n\n c' # d", "\"a\": >+\n  b\n\n\n", "---\na: 1\n...\n# b",
	} {
		f.Add([]byte(s))
	}
	for _, text := range fuzztest.Recipes(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for what, format := range map[string]func([]byte, jsonx.Limits, *Order) ([]byte, []*jsonx.Error){"Format": Format, "FormatJSON": FormatJSON} {
			var out []byte
			var problems []*jsonx.Error
			fuzztest.Bounded(t, what, func() { out, problems = format(text, jsonx.Limits{Bytes: 1 << 14}, nil) })
			if (out == nil) == (len(problems) == 0) {
				t.Fatalf("%s: %q and %v", what, out, problems)
			}
		}
	})
}
