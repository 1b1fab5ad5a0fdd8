// SPDX-License-Identifier: Apache-2.0

package yamlx

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/fuzztest"
	"github.com/roux-engine/roux/internal/jsonx"
	"pgregory.net/rapid"
)

// TestA09_Scalars is the table of what a plain scalar is: what YAML 1.2 and JSON
// agree on, else a string, else refused (A09).
func TestA09_Scalars(t *testing.T) {
	type refused struct{}
	for _, tt := range []struct {
		text string
		want any
	}{
		{"", nil}, {"~", nil}, {"null", nil}, {"Null", nil}, {"NULL", nil}, {"nULL", "nULL"}, {"none", "none"},
		{"true", true}, {"True", true}, {"TRUE", true}, {"false", false}, {"tRUE", "tRUE"},
		{"yes", "yes"}, {"no", "no"}, {"on", "on"}, {"off", "off"}, {"y", "y"}, {"N", "N"}, {"Norway: no", map[string]any{"Norway": "no"}},
		{"0", int64(0)}, {"-0", int64(0)}, {"12", int64(12)}, {"+12", int64(12)}, {"-12", int64(-12)},
		{"9007199254740993", int64(9007199254740993)}, {"9223372036854775807", int64(math.MaxInt64)}, {"9223372036854775808", refused{}},
		{"0x1F", int64(31)}, {"0o17", int64(15)}, {"0xFFFFFFFFFFFFFFFFFF", refused{}}, {"-0x1F", "-0x1F"}, {"0b1", "0b1"},
		{"0777", refused{}}, {"007", refused{}}, {"00", refused{}}, {"-01", refused{}}, {"01.5", refused{}}, {"08", refused{}},
		{"1.0", 1.0}, {"1.", 1.0}, {".5", 0.5}, {"-.5", -0.5}, {"1e3", 1e3}, {"1E+3", 1e3}, {"1.5e-3", 1.5e-3}, {"+.5e1", 5.0}, {"1.e2", 100.0},
		{"1e999", refused{}}, {".inf", refused{}}, {"-.Inf", refused{}}, {".nan", refused{}}, {".NaN", refused{}}, {"inf", "inf"}, {"nan", "nan"},
		{"1_000", "1_000"}, {"1,000", "1,000"}, {"12:30:45", "12:30:45"}, {"190:20", "190:20"}, {"1.2.3", "1.2.3"}, {"1e", "1e"}, {".", "."}, {"+", "+"}, {"-a", "-a"},
		{"2026-11-21", "2026-11-21"}, {"2026-11-21T10:00:00Z", "2026-11-21T10:00:00Z"}, {"=", "="}, {"٥", "٥"},
		{`"yes"`, "yes"}, {`'12'`, "12"}, {`"0777"`, "0777"}, {`"~"`, "~"}, {"|\n  12", "12"}, {">-\n  true", "true"},
		{`"\x41\u00e4\U0001F600\n"`, "Aä😀\n"}, {`"\0"`, "\x00"}, {`"\ud800"`, refused{}},
	} {
		n, problems := Parse([]byte("k: "+tt.text), jsonx.Limits{})
		if tt.want == (any)(refused{}) {
			if len(problems) != 1 {
				t.Errorf("%q: problems %v, want one", tt.text, problems)
			}
			continue
		}
		if _, ok := tt.want.(map[string]any); ok {
			n, problems = Parse([]byte(tt.text), jsonx.Limits{})
		}
		if len(problems) > 0 {
			t.Errorf("%q: %v", tt.text, problems)
			continue
		}
		got := n.Value()
		if _, ok := tt.want.(map[string]any); !ok {
			got = got.(map[string]any)["k"]
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q is %#v, want %#v", tt.text, got, tt.want)
		}
	}
}

// TestKeys: a name is the text as written.
func TestKeys(t *testing.T) {
	n, problems := Parse([]byte("404: a\ntrue: b\nno: c\n1.0: d\n0777: e\n2026-11-21: f\n'<<': g\n\"\": h\nnull: i\n"), jsonx.Limits{})
	want := map[string]any{"404": "a", "true": "b", "no": "c", "1.0": "d", "0777": "e", "2026-11-21": "f", "<<": "g", "": "h", "null": "i"}
	if len(problems) > 0 || !reflect.DeepEqual(n.Value(), want) {
		t.Errorf("%v, %v", n, problems)
	}
}

// TestA09_Refused: what JSON cannot express is refused, with its position.
func TestA09_Refused(t *testing.T) {
	for _, tt := range []struct {
		name, text, rule string
		line, col        int32
	}{
		{"alias", "a: &x 1\nb: *x", ruleAnchor, 1, 4},
		{"alias of nothing", "b: *x", ruleAlias, 1, 4},
		{"anchor", "a: &x 1", ruleAnchor, 1, 4},
		{"anchor on a mapping", "a: &x\n  b: 1", ruleAnchor, 1, 4},
		{"anchor on a key", "&x a: 1", ruleAnchor, 1, 1},
		{"merge key", "a: {<<: {b: 1}}", ruleMerge, 1, 5},
		{"custom tag", "a: !ruby/object 1", ruleTag, 1, 4},
		{"core tag", "a: !!str 1", ruleTag, 1, 4},
		{"bare tag", "a: ! 1", ruleTag, 1, 4},
		{"verbatim tag", "a: !<tag:yaml.org,2002:int> 1", ruleTag, 1, 4},
		{"tag on a mapping", "a: !!map {b: 1}", ruleTag, 1, 4},
		{"tag on a key", "!!str a: 1", ruleTag, 1, 1},
		{"binary", "a: !!binary aGk=", ruleTag, 1, 4},
		{"duplicate key", "a: 1\nb: 2\na: 3", jsonx.RuleDuplicate, 3, 1},
		{"duplicate in other words", "a: 1\n\"\\x61\": 2", jsonx.RuleDuplicate, 2, 1},
		{"duplicate in flow", "{a: 1, 'a': 2}", jsonx.RuleDuplicate, 1, 8},
		{"duplicate number", "1: a\n'1': b", jsonx.RuleDuplicate, 2, 1},
		{"list as key", "? [a]\n: 1", ruleKey, 1, 3},
		{"mapping as key", "? {a: b}\n: 1", ruleKey, 1, 3},
		{"template", "a: {{ x }}", ruleKey, 1, 5},
		{"missing key", ": 1", ruleKey, 1, 1},
		{"two documents", "a: 1\n---\nb: 1", jsonx.RuleSyntax, 2, 1},
		{"second document broken", "a: 1\n---\nb: [", jsonx.RuleSyntax, 3, 5},
		{"nothing", "", jsonx.RuleSyntax, 1, 1},
		{"only a comment", "# a", jsonx.RuleSyntax, 1, 1},
		{"tab", "a:\n\tb: 1", jsonx.RuleSyntax, 2, 1},
		{"bad UTF-8", "a: \xff", jsonx.RuleEncoding, 1, 4},
		{"UTF-16", "\xff\xfea\x00", jsonx.RuleEncoding, 1, 1},
		{"control character", "a: 1\nb: \x01", jsonx.RuleSyntax, 2, 4},
		{"NUL", "a: \x00", jsonx.RuleSyntax, 1, 4},
		{"delete", "a: \x7f", jsonx.RuleSyntax, 1, 4},
	} {
		_, problems := Parse([]byte(tt.text), jsonx.Limits{})
		if len(problems) == 0 {
			t.Errorf("%s: accepted", tt.name)
			continue
		}
		p := problems[0]
		if p.Rule != tt.rule || p.Pos.Line != tt.line || (p.Pos.Col != tt.col && tt.rule != jsonx.RuleSyntax) {
			t.Errorf("%s: %s at %d:%d (%v), want %s at %d:%d", tt.name, p.Rule, p.Pos.Line, p.Pos.Col, p, tt.rule, tt.line, tt.col)
		}
	}
}

// TestExpressionsWantQuotes: an unquoted expression with brackets is a syntax error of YAML,
// whose hint says so; other errors do not have this hint.
func TestExpressionsWantQuotes(t *testing.T) {
	for text, want := range map[string]bool{
		"a: {over: files[0], b: 1}": true,
		"a: {over: [1, 2].sum()}":   true,
		"a: [x[0]]":                 true,
		"a:\n  b: [1, 2].sum()\n":   true,
		"a:\n  b: {\"a\": 1}.a\n":   true,
		"a: {over: [1, 2]\nb: 1":    false,
		"a: [1, 2\n":                false,
		"a:\n  b: 1\n c: 2\n":       false,
	} {
		_, problems := Parse([]byte(text), jsonx.Limits{})
		if len(problems) == 0 {
			t.Errorf("%q is accepted", text)
		} else if got := problems[0].Hint == "an expression with brackets needs quotes"; got != want {
			t.Errorf("%q: %v, want the hint: %v", text, problems[0], want)
		}
	}
}

// TestA09_AliasesAreNoValues: an alias is refused at its position, even when its anchor has
// been refused already.
func TestA09_AliasesAreNoValues(t *testing.T) {
	n, problems := Parse([]byte("a: &x 1\nb: *x\nc: [*x]"), jsonx.Limits{})
	var rules []string
	for _, p := range problems {
		rules = append(rules, p.Rule+p.Pointer)
	}
	if want := []string{"anchor/a", "alias/b", "alias/c/0"}; !reflect.DeepEqual(rules, want) {
		t.Errorf("%v, want %v", rules, want)
	}
	if c := n.Find("/c/0"); c.Kind != jsonx.Refused {
		t.Errorf("the alias became %v", c.Kind)
	}
}

// TestA09_Bombs: hostile texts are refused, with little memory.
func TestA09_Bombs(t *testing.T) {
	var laughs strings.Builder
	laughs.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9))
	}
	const mb = jsonx.DefaultBytes
	for _, tt := range []struct{ name, text string }{
		{"billion laughs", laughs.String()},
		{"alias of itself", "a: &a [*a]"},
		{"merge bomb", "a: &a {x: 1}\nb: &b {<<: *a}\nc: {<<: [*a, *b]}"},
		{"deep flow lists", strings.Repeat("[", mb)},
		{"deep flow mappings", strings.Repeat("{", mb)},
		{"deep pairs", strings.Repeat("[a: ", mb/4)},
		{"deep block lists", strings.Repeat("- ", mb/2)},
		{"deep explicit keys", strings.Repeat("? ", mb/2)},
		{"wide flow list", "[" + strings.Repeat("a,", mb/2-1) + "]"},
		{"wide list of lists", "[" + strings.Repeat("[],", mb/3-1) + "]"},
		{"wide list of mappings", "[" + strings.Repeat("{a},", mb/4-1) + "]"},
		{"wide pairs", "[" + strings.Repeat("a:,", mb/3-1) + "]"},
		{"empty keys", "[" + strings.Repeat("?,", mb/2-1) + "]"},
		{"wide block list", strings.Repeat("-\n", mb/2)},
		{"anchors in a row", strings.Repeat("&a ", mb/3)},
		{"tags in a row", "a: " + strings.Repeat("!!", mb/2-2)},
		{"documents", strings.Repeat("--- a\n", mb/6)},
		{"directives", strings.Repeat("%YAML 1.2\n", mb/10)},
		{"one quote", strings.Repeat("'", mb-1)},
		{"over the limit", strings.Repeat("a", mb+1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, problems := Parse([]byte(tt.text), jsonx.Limits{})
			runtime.ReadMemStats(&after)
			if len(problems) == 0 {
				t.Error("accepted")
			}
			// Allocation is also a measure of time: it does not depend on the machine, and
			// every expansion of a text allocates.
			total := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d MiB allocated", total>>20)
			if total > 400<<20 {
				t.Errorf("it allocated %d MiB", total>>20)
			}
		})
	}
}

// TestA08_Limits: each limit is exact: with a limit lower by one the text is refused.
func TestA08_Limits(t *testing.T) {
	flow := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	block := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.Repeat(" ", i) + "a:\n")
		}
		return b.String()
	}
	for _, tt := range []struct {
		name, text string
		lim        jsonx.Limits
		good       bool
	}{
		{"bytes", strings.Repeat("a", jsonx.DefaultBytes), jsonx.Limits{}, true},
		{"bytes + 1", strings.Repeat("a", jsonx.DefaultBytes+1), jsonx.Limits{}, false},
		{"depth", flow(64), jsonx.Limits{}, true},
		{"depth + 1", flow(65), jsonx.Limits{}, false},
		{"depth of blocks", block(64), jsonx.Limits{}, true},
		{"depth of blocks + 1", block(65), jsonx.Limits{}, false},
		{"depth of both", "a:\n b:\n  - [[1]]", jsonx.Limits{Depth: 5}, true},
		{"depth of both + 1", "a:\n b:\n  - [[1]]", jsonx.Limits{Depth: 4}, false},
		{"depth of lists that are not indented", "a:\n- b:\n  - c", jsonx.Limits{Depth: 4}, true},
		{"depth of lists that are not indented + 1", "a:\n- b:\n  - c", jsonx.Limits{Depth: 3}, false},
		{"depth + 1, refused before the end is missed", strings.Repeat("[", 65), jsonx.Limits{}, false},
		{"tokens", "a: [1, 2]", jsonx.Limits{Tokens: 5}, true},
		{"tokens + 1", "a: [1, 2]", jsonx.Limits{Tokens: 4}, false},
		{"commas in text are no values", "a: " + strings.Repeat("x, ", 1000), jsonx.Limits{Tokens: 10}, true},
	} {
		_, problems := Parse([]byte(tt.text), tt.lim)
		if (len(problems) == 0) != tt.good {
			t.Errorf("%s: %v, want accepted %v", tt.name, problems, tt.good)
		}
		if !tt.good && len(problems) > 0 && problems[0].Rule != jsonx.RuleLimit {
			t.Errorf("%s: rule %s, want %s", tt.name, problems[0].Rule, jsonx.RuleLimit)
		}
	}
}

// TestIndicatorsCountFromAbove: a text with n indicators has at most 3(n+1) names and
// values, so the count of indicators before parsing bounds them.
func TestIndicatorsCountFromAbove(t *testing.T) {
	for _, text := range []string{
		"[a,b,c,d,e,f,g,h]", "{a,b,c,d,e,f,g,h}", "[a:,b:,c:,d:,e:]", "- a\n- b\n- c\n- d\n", "a: 1\nb: 2\nc: 3\n", "[[],[],[],[],[]]", "? a\n? b\n? c\n? d\n", "-\n-\n-\n-\n",
		`{"a":1,"b":2,"c":3}`, "- - - - a", "[?,?,?,?,?]", "[{},{},{},{}]", "a:\r\n- b\r\n- c\r\n", "[a: b,c: d,e: f]", "{a: , b: , c: }", "- a:\n  - b:\n    - c:\n",
	} {
		n, problems := Parse([]byte(text), jsonx.Limits{})
		if len(problems) > 0 && problems[0].Rule != ruleKey {
			t.Errorf("%q: %v", text, problems)
			continue
		}
		if values, most := count(n), 3*(indicators([]byte(text))+1); values > most {
			t.Errorf("%q has %d names and values, bounded by %d", text, values, most)
		}
	}
}

func count(n *jsonx.Node) int {
	total := 1
	for _, c := range n.Children {
		total += count(c)
		if n.Kind == jsonx.Object {
			total++
		}
	}
	return total
}

// TestPlaces: lines and columns are those that an editor shows.
func TestPlaces(t *testing.T) {
	text := "ä: 'ö''s'  # c\nlist:\n- \"😀\": 1\r\n  k: plain text\n- |\n  block\nflow: {a: [1,  -2.5]}\nlong: one\n  two\n"
	n, problems := Parse([]byte(text), jsonx.Limits{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, tt := range []struct {
		pointer  string
		pos, key jsonx.Pos
	}{
		{"/ä", jsonx.Pos{Line: 1, Col: 4, Len: 6}, jsonx.Pos{Line: 1, Col: 1, Len: 1}},
		{"/list", jsonx.Pos{Line: 3, Col: 1, Len: 1}, jsonx.Pos{Line: 2, Col: 1, Len: 4}},
		{"/list/0", jsonx.Pos{Line: 3, Col: 3, Len: 1}, jsonx.Pos{}},
		{"/list/0/😀", jsonx.Pos{Line: 3, Col: 8, Len: 1}, jsonx.Pos{Line: 3, Col: 3, Len: 3}},
		{"/list/0/k", jsonx.Pos{Line: 4, Col: 6, Len: 10}, jsonx.Pos{Line: 4, Col: 3, Len: 1}},
		{"/list/1", jsonx.Pos{Line: 5, Col: 3, Len: 1}, jsonx.Pos{}},
		{"/flow/a/1", jsonx.Pos{Line: 7, Col: 16, Len: 4}, jsonx.Pos{}},
		{"/long", jsonx.Pos{Line: 8, Col: 7, Len: 3}, jsonx.Pos{Line: 8, Col: 1, Len: 4}},
	} {
		c := n.Find(tt.pointer)
		if c == nil || c.Pos != tt.pos || c.KeyPos != tt.key {
			t.Errorf("%q: %+v, want %v, name at %v", tt.pointer, c, tt.pos, tt.key)
		}
	}
}

// TestTextLines: lines end where YAML's scanner ends them.
func TestTextLines(t *testing.T) {
	text := NewText([]byte("a\nb\r\nc\rd\u0085e\u2028f\u2029ä"))
	for i, want := range []string{"", "a", "b", "c", "d", "e", "f", "ä", ""} {
		if got := text.Line(i); got != want {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
	if text.Lines() != 7 {
		t.Errorf("%d lines", text.Lines())
	}
}

// TestJSONIsYAML: JSON text has the same value in both parsers, if YAML allows its
// characters (A09).
func TestJSONIsYAML(t *testing.T) {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), toAny), rapid.Map(rapid.Int64(), toAny),
		rapid.Map(rapid.Float64(), toAny), rapid.Map(rapid.String(), toAny),
		rapid.SampledFrom([]any{"yes", "0777", "~", "<<", "*a", "&a", "!a", " ", "- a", "a: b", "{{ x }}", "\n", "1e3", "2026-01-01"}),
	)
	value := leaf
	for range 3 {
		inner := value
		value = rapid.OneOf(inner,
			rapid.Map(rapid.SliceOfN(inner, 0, 4), func(l []any) any { return append([]any{}, l...) }),
			rapid.Map(rapid.MapOfN(rapid.StringN(0, 20, -1), inner, 0, 4), toAny),
		)
	}
	rapid.Check(t, func(t *rapid.T) {
		text, err := jsonx.Canonical(value.Draw(t, "value"))
		if err != nil {
			t.Skip("no JSON: ", err)
		}
		for _, r := range string(text) {
			if r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff {
				t.Skip("not raw in YAML")
			}
		}
		want, problems := jsonx.Parse(text, jsonx.Limits{})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		got, problems := Parse(text, jsonx.Limits{Tokens: 1000})
		if len(problems) > 0 {
			t.Fatalf("%s: %v", text, problems)
		}
		if !reflect.DeepEqual(got.Value(), want.Value()) {
			t.Fatalf("%s reads as %#v, as JSON %#v", text, got.Value(), want.Value())
		}
	})
}

func toAny[T any](v T) any { return v }

// FuzzYAML: every text has a value or problems; positions are inside the text; the value is
// JSON and survives a round trip (A09).
func FuzzYAML(f *testing.F) {
	for _, s := range []string{
		"a: 1\nb: [x, 'y', \"z\\n\"]\nc:\n  - |\n    lit\n  - >-\n    fold\n    ed\n", "a: &x 1\nb: *x\n<<: {c: d}\n", "!!str a: !t b", "? [a]\n: {b}\n", "0777: .inf", "--- a\n--- b",
		"{a: 1, a: 2}", "a:\n\tb", "[[[[", "%YAML 1.1\n---\nyes", "# c\n- # d\n  a\n", "a: \u2028b\u0085c", "\ufeffa", "k: \"\\ud83d\\ude00\"", "- - ? a\n    : b",
	} {
		f.Add([]byte(s))
	}
	for _, text := range fuzztest.Recipes(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var n *jsonx.Node
		var problems []*jsonx.Error
		fuzztest.Bounded(t, "Parse", func() { n, problems = Parse(text, jsonx.Limits{Bytes: 1 << 16}) })
		if n == nil && len(problems) == 0 {
			t.Fatal("neither a tree nor a problem")
		}
		lines := int32(NewText(text).Lines())
		for _, p := range problems {
			if p.Rule == "" || p.Msg == "" || p.Pos.Line < 0 || p.Pos.Line > lines+1 {
				t.Fatalf("problem %+v in %d lines", p, lines)
			}
		}
		if len(problems) > 0 {
			return
		}
		inside(t, n, lines)
		canonical, err := jsonx.Canonical(n.Value())
		if err != nil {
			t.Fatal(err)
		}
		back, err := jsonx.Decode(canonical, jsonx.Limits{})
		if err != nil {
			t.Fatalf("%s: %v", canonical, err)
		}
		if again, _ := jsonx.Canonical(back); string(again) != string(canonical) {
			t.Fatalf("%s becomes %s", canonical, again)
		}
	})
}

func inside(t *testing.T, n *jsonx.Node, lines int32) {
	if n.Pos.Line < 1 || n.Pos.Line > lines || n.Pos.Col < 1 || n.Pos.Len < 1 {
		t.Fatalf("a value at %v, in %d lines", n.Pos, lines)
	}
	for _, c := range n.Children {
		inside(t, c, lines)
	}
}
