// SPDX-License-Identifier: Apache-2.0

package yamlx

import (
	"reflect"
	"testing"

	"github.com/roux-engine/roux/internal/jsonx"
	"pgregory.net/rapid"
)

// values generates JSON values with strings that are difficult in YAML.
func values() *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), toAny), rapid.Map(rapid.Int64(), toAny),
		rapid.Map(rapid.Float64(), toAny), rapid.Map(rapid.String(), toAny),
		rapid.Map(rapid.StringOf(rapid.SampledFrom([]rune("ab 1-:#\n\t'\"{}[],&*!|>%@`?\\\u00a0\u2028\ufeff😀.="))), toAny),
		rapid.SampledFrom([]any{
			"yes", "0777", "~", "<<", "*a", "&a", "!a", " ", "- a", "a: b", "{{ x }}", "\n", "1e3", "2026-01-01", "", "-", "--- a", "...",
			"a\nb\n", "a\n\nb", "a\nb", "a\n b", " a\nb", "a \nb", "\na", "a\n\n", "-1", "-x", "- ", "a #b", "a#b", "#a", "null", "True", ".5", "0x1F",
		}),
	)
	value := leaf
	for range 3 {
		inner := value
		name := rapid.OneOf(rapid.StringN(0, 20, -1), rapid.SampledFrom([]string{"<<", "", "a b", "404", "true", "- a", "a:", "a: b", "#", "?", "-", "[a]"}))
		value = rapid.OneOf(inner,
			rapid.Map(rapid.SliceOfN(inner, 0, 4), func(l []any) any { return append([]any{}, l...) }),
			rapid.Map(rapid.MapOfN(name, inner, 0, 4), toAny),
		)
	}
	return value
}

// TestEncodeReadsBack: Parse returns the value that was encoded, with the fields in their
// order.
func TestEncodeReadsBack(t *testing.T) {
	value := values()
	rapid.Check(t, func(t *rapid.T) {
		text, err := jsonx.Canonical(value.Draw(t, "value"))
		if err != nil {
			t.Skip("no JSON: ", err)
		}
		want, problems := jsonx.Parse(text, jsonx.Limits{})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		out := Encode(want)
		got, problems := Parse(out, jsonx.Limits{Tokens: 10_000})
		if len(problems) > 0 {
			t.Fatalf("%s became\n%s: %v", text, out, problems)
		}
		if !reflect.DeepEqual(got.Value(), want.Value()) || !reflect.DeepEqual(names(got), names(want)) {
			t.Fatalf("%s became\n%s, which reads as %#v", text, out, got.Value())
		}
	})
}

// names lists all names of a tree in their order.
func names(n *jsonx.Node) (list []string) {
	for _, c := range n.Children {
		list = append(append(list, c.Key), names(c)...)
	}
	return list
}

// TestEncode shows the output for typical values.
func TestEncode(t *testing.T) {
	n, problems := jsonx.Parse([]byte(`{"id":"run_01","n":3,"f":1.0,"empty":[],"none":{},"nothing":null,"yes":"yes","text":"a\nb\n","code":"007",`+
		`"list":[{"a":1,"b":[true]},"x: y",[1,2]],"dash":"-v","at":"2026-11-21T10:00:00.000Z","v":"1.2.3","deep":{"er":{"still":"{{ x }}"}}}`), jsonx.Limits{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	const want = `id: run_01
n: 3
f: 1.0
empty: []
none: {}
nothing: null
"yes": "yes"
text: |
  a
  b
code: "007"
list:
  - a: 1
    b:
      - true
  - "x: y"
  - - 1
    - 2
dash: -v
at: "2026-11-21T10:00:00.000Z"
v: "1.2.3"
deep:
  er:
    still: "{{ x }}"
`
	if got := string(Encode(n)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
