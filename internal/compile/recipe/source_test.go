// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/jsonx"
	"pgregory.net/rapid"
)

// TestPosIn finds the Ω in strings of every style. A position is right when the source has
// an Ω there.
func TestPosIn(t *testing.T) {
	const head = "name: x\nsteps:\n  - fail: {}\n    when: "
	for _, tt := range []struct{ name, text string }{
		{"plain", head + "a + ä + Ω\n"},
		{"plain at the end", head + "Ω"},
		{"single quotes", head + "'it''s ''Ω'\n"},
		{"double quotes", head + `"a\n\t\"\x41\u00e4\U0001F600 Ω"` + "\n"},
		{"literal", head + "|\n      one\n\n        two\n      three Ω\n"},
		{"literal, stripped", head + "|-\n      Ω\n"},
		{"literal, indentation given", head + "|2\n        two Ω\n"},
		{"literal after empty lines", head + "|\n\n\n      a Ω\n"},
		{"folded", head + ">\n      one\n      two Ω\n"},
		{"folded over an empty line", head + ">-\n      one\n      two\n\n      three Ω\n"},
		{"folded over two empty lines", head + ">-\n      one\n\n\n      three Ω\n"},
		{"folded with an indented line", head + ">-\n      one\n        two\n      three Ω\n"},
		{"folded, indented between empty lines", head + ">-\n      one\n\n        two\n\n      three Ω\n"},
		{"flow", "{name: x, steps: [{fail: {}, when: \"ä Ω\"}]}"},
		{"JSON", `{"name": "x", "steps": [{"fail": {}, "when": "a\n\u00e4\ud83d\ude00\/ ä Ω"}]}`},
		{"JSON in lines", "{\"name\": \"x\",\r\n\t\"steps\": [{\"fail\": {},\r\n\t\"when\": \"ä Ω\"}]}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, src := mustParse(t, "", tt.text)
			value := r.Steps[0].When
			offset := utf8.RuneCountInString(value[:strings.Index(value, "Ω")])
			p := src.PosIn("/steps/0/when", offset, 1)
			line := []rune(src.Line(p.Line))
			if p.Col < 1 || p.Col > len(line) || line[p.Col-1] != 'Ω' || p.Len != 1 {
				t.Errorf("offset %d of %q is placed at %v, line %q", offset, value, p, string(line))
			}
		})
	}
}

// TestPosInFallsBack: if the position of a character is unknown, it is that of the string.
func TestPosInFallsBack(t *testing.T) {
	text := "name: x\nsteps:\n  - fail: {}\n    when: \"a\n      b Ω\"\n    name: c\n      d Ω\n"
	_, src := mustParse(t, "", text)
	for _, pointer := range []string{"/steps/0/when", "/steps/0/name"} {
		if got, want := src.PosIn(pointer, 4, 1), src.Pos(pointer); got != want {
			t.Errorf("%s: %v, want the start %v", pointer, got, want)
		}
	}
	for _, pointer := range []string{"/steps/7/when", "/nothing", "/steps/x", "/steps/0/fail/deeper/still"} {
		if p := src.PosIn(pointer, 0, 1); p.Line == 0 {
			t.Errorf("%s: no place, want one around it", pointer)
		}
	}
	if p := src.PosIn("/steps/0/when", 1000, 1); p != src.Pos("/steps/0/when") {
		t.Errorf("beyond the end: %v", p)
	}
}

// TestKeyPos: the name and the value of a field have different positions.
func TestKeyPos(t *testing.T) {
	_, src := mustParse(t, "a.yaml", "name: x\nsteps:\n  - id: s\n    timeout:   5m\n    fail: {}\n")
	if k, v := src.KeyPos("/steps/0/timeout"), src.Pos("/steps/0/timeout"); k.Col != 5 || k.Len != 7 || v.Col != 16 || v.Len != 2 || v.Line != 4 || v.File != "a.yaml" {
		t.Errorf("name at %v, value at %v", k, v)
	}
}

// TestYAMLAndJSONAgree writes random recipes in both languages, in random styles of YAML:
// both parse to the same recipe, or both fail (A09).
func TestYAMLAndJSONAgree(t *testing.T) {
	text := rapid.OneOf(
		rapid.SampledFrom([]string{"", " ", "x", "yes", "no", "on", "null", "~", "true", "0777", "1e3", "0x1F", ".5", "1_000", "2026-11-21", "12:30:45", ".inf",
			"a: b", "- a", "#x", "x #y", "'", "\"", "\\", "\n", "a\nb", "a\n", "\n\na\n\n", " a", "a ", "\ta", "{{ x }}", "<<", "*a", "&a", "!a", "%a", "@a", "`a", "[", "{", "?", ":", "-", "---", "...", "|", ">",
			"\u0085", "\u2028", "\u00a0", "\ufeff", "\u202e", "😀", "\u0000", "\u0007", "\u007f", "a\r\nb", "\ufffe"}),
		rapid.String(),
	)
	value := rapid.Deferred(func() *rapid.Generator[any] {
		return rapid.OneOf(
			rapid.Map(text, func(s string) any { return s }),
			rapid.Map(rapid.Int64(), func(i int64) any { return i }),
			rapid.Map(rapid.Float64(), func(f float64) any { return f }),
			rapid.SampledFrom([]any{nil, true, false, 1e3, 1.0, -0.5, int64(1<<53 + 1), []any{}, map[string]any{}, []any{[]any{int64(1)}}}),
		)
	})
	rapid.Check(t, func(t *rapid.T) {
		params := rapid.MapOf(text, rapid.OneOf(value,
			rapid.Map(rapid.SliceOfN(value, 0, 3), func(l []any) any { return l }),
			rapid.Map(rapid.MapOfN(text, value, 0, 3), func(m map[string]any) any { return m }),
		)).Draw(t, "parameters")
		doc := map[string]any{
			"name": rapid.SampledFrom([]string{"x", "yes", "1.0", "ä"}).Draw(t, "name"),
			"steps": []any{map[string]any{
				"action":  map[string]any{"name": "a", "parameters": params},
				"timeout": rapid.SampledFrom([]any{"5m", "5", int64(5), nil}).Draw(t, "timeout"),
			}},
		}
		asJSON, err := jsonx.Canonical(doc)
		if err != nil {
			t.Skip("no JSON: ", err)
		}
		w := &yamlWriter{t: t}
		w.block(doc, 0)
		fromJSON, _, jsonDiags := Parse("a.json", asJSON, Options{})
		fromYAML, _, yamlDiags := Parse("a.yaml", []byte(w.String()), Options{})
		if len(jsonDiags) != len(yamlDiags) {
			t.Fatalf("JSON: %v\nYAML: %v\n%s\n%s", jsonDiags, yamlDiags, asJSON, w)
		}
		if fromJSON == nil {
			return
		}
		for name, want := range fromJSON.Steps[0].Action.Parameters {
			if got := fromYAML.Steps[0].Action.Parameters[name]; string(got) != string(want) {
				t.Fatalf("parameter %q: JSON %s, YAML %s in\n%s", name, want, got, w)
			}
		}
	})
}

// A yamlWriter writes values as YAML in random styles.
type yamlWriter struct {
	strings.Builder
	t *rapid.T
}

func (w *yamlWriter) block(v any, indent int) {
	pad := strings.Repeat(" ", indent)
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			w.WriteString(" {}\n")
			return
		}
		w.WriteString("\n")
		for _, name := range sortedNames(v) {
			w.WriteString(pad + w.key(name) + ":")
			w.block(v[name], indent+2)
		}
	case []any:
		if len(v) == 0 {
			w.WriteString(" []\n")
			return
		}
		if rapid.Bool().Draw(w.t, "flow") {
			w.WriteString(" " + w.flow(v) + "\n")
			return
		}
		w.WriteString("\n")
		for _, item := range v {
			w.WriteString(pad + "-")
			w.block(item, indent+2)
		}
	case string:
		w.WriteString(" " + w.text(v, indent) + "\n")
	default:
		w.WriteString(" " + w.flow(v) + "\n")
	}
}

func sortedNames(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	// Sorted, or the draw would differ between runs of one seed.
	slices.Sort(names)
	return names
}

// flow writes a value as JSON, which is also YAML except for raw characters that YAML does
// not allow.
func (w *yamlWriter) flow(v any) string {
	b, err := jsonx.Canonical(v)
	if err != nil {
		w.t.Fatal(err)
	}
	return escape(string(b))
}

func (w *yamlWriter) key(name string) string { return w.flow(name) }

// escape escapes characters that are not allowed in YAML or would break a line.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff:
			fmt.Fprintf(&b, "\\u%04x", r)
		case r > 0xffff:
			fmt.Fprintf(&b, "\\U%08x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// text writes a string in a style that can represent it.
func (w *yamlWriter) text(s string, indent int) string {
	quoted := w.flow(s)
	if strings.Contains(quoted, `\`) && s != "a\nb" && s != "a\n" {
		return quoted
	}
	pad := strings.Repeat(" ", indent+1)
	styles := []string{quoted}
	if !strings.ContainsAny(s, "\n") {
		styles = append(styles, "'"+strings.ReplaceAll(s, "'", "''")+"'")
	}
	switch s {
	case "a\nb":
		styles = append(styles, "|-\n"+pad+"a\n"+pad+"b", ">-\n"+pad+"a\n\n"+pad+"b")
	case "a\n":
		styles = append(styles, "|\n"+pad+"a", ">\n"+pad+"a")
	case "x", "yes", "no", "on", "1_000", "2026-11-21", "12:30:45":
		styles = append(styles, s)
	}
	return rapid.SampledFrom(styles).Draw(w.t, "style")
}
