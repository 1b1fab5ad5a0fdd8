// SPDX-License-Identifier: Apache-2.0

package expr_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	minijinja "github.com/mitsuhiko/minijinja/minijinja-go/v2"
	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
	"pgregory.net/rapid"

	"github.com/roux-engine/roux/internal/expr"
)

// jinjaVars are what the drawn templates read.
func jinjaVars() map[string]any {
	return map[string]any{
		"node": map[string]any{"output": map[string]any{"text": "Hello <b>World</b>", "n": int64(3), "tags": []any{"a", "B", "c d"}, "empty": "", "none": []any{}}, "ok": true},
		"name": "Ada", "count": int64(12), "zero": int64(0), "off": false, "ratio": 2.5,
		"list": []any{int64(3), int64(1), int64(2)}, "words": []any{"x", "yy", ""},
		"pairs": []any{[]any{"k", int64(1)}, []any{"l", int64(2)}},
		"table": map[string]any{"b": int64(2), "a": "one"},
	}
}

// A jinja draws templates of what is written the same in Jinja2 and here.
type jinja struct {
	t     *rapid.T
	depth int
	loops int      // how many are open
	bound []string // texts that blocks have bound
}

func (j *jinja) pick(of ...string) string { return rapid.SampledFrom(of).Draw(j.t, "pick") }

// value is an expression with the filters that take it.
func (j *jinja) value() string {
	switch rapid.IntRange(0, 8).Draw(j.t, "kind") {
	case 0, 1: // a text
		v := j.pick(append([]string{"node.output.text", "name", "node.output.empty", "'it''s'", `"qu\"ote"`, "node.output.tags[1]", "words[0]"}, j.bound...)...)
		if v == "'it''s'" {
			v = "'its'"
		}
		return v + j.filters("upper", "lower", "trim", "replace('l', 'L')", "default('none')", "length", "default('none', true)")
	case 2: // a list of texts
		return j.pick("node.output.tags", "words", "node.output.none") + j.pick(" | join(', ')", " | join", " | length", "|join('-')|replace('-', '+')", " | first | default('none')", " | last | default('none') | upper")
	case 3:
		return j.pick("count", "zero", "node.output.n", "list[1]", "list | length", "list | first", "list | last", "count + 1", "count * 2 - 1", "(count + 3) * 2")
	case 4:
		return j.pick("missing | default('none')", "node.missing | default('none')", "node.output.missing | default(name)")
	case 5:
		return j.condition()
	case 6:
		return j.pick("ratio", "ratio | round", "ratio + 0.25", "count == 12", "name + '!'", "name | first", "node.output.text | last | upper")
	case 7:
		if j.loops > 0 {
			return j.pick("loop.index", "loop.index0", "loop.first", "loop.last", "loop.length", "loop.revindex", "loop.revindex0")
		}
	}
	return j.pick("node.output.n", "name", "'literal'", "42")
}

// filters are up to two of those that make a text of a text.
func (j *jinja) filters(names ...string) string {
	var b strings.Builder
	for range rapid.IntRange(0, 2).Draw(j.t, "filters") {
		f := j.pick(names...)
		b.WriteString(j.pick(" | ", "|") + f)
		if f == "length" {
			break
		}
	}
	return b.String()
}

func (j *jinja) condition() string {
	c := []string{"node.ok", "off", "count > 3", "count <= 3", "name == 'Ada'", "name != 'Ada'", "node.output.n == 3", "list[0] >= 3", "'b' in table", "'B' in node.output.tags", "count == zero"}
	if j.loops > 0 {
		c = append(c, "loop.first", "loop.last", "loop.index == 2")
	}
	return j.pick(c...)
}

// truth is what an if takes: any value.
func (j *jinja) truth() string {
	if rapid.Bool().Draw(j.t, "value") {
		return j.pick("name", "node.output.empty", "node.output.none", "list", "zero", "count", "table", "ratio", "node.output.tags | length")
	}
	return j.condition()
}

// tag surrounds a block with dashes that take the white space beside it.
func (j *jinja) tag(text string) string {
	return "{%" + j.pick("", "-") + " " + text + " " + j.pick("", "-") + "%}"
}

func (j *jinja) text() string {
	var b strings.Builder
	for range rapid.IntRange(1, 4).Draw(j.t, "parts") {
		b.WriteString(j.pick("", " ", "\n", "a", "Text: ", "\n  ", "{ ", "% ", "\"q\"", "<p>", "é", "x\n\ny"))
		b.WriteString(j.part())
	}
	b.WriteString(j.pick("", " ", ".", "\n end"))
	return b.String()
}

func (j *jinja) part() string {
	if j.depth >= 3 {
		return "{{ " + j.value() + " }}"
	}
	j.depth++
	defer func() { j.depth-- }()
	bound := len(j.bound)
	switch rapid.IntRange(0, 8).Draw(j.t, "part") {
	case 0:
		out := j.tag("if "+j.truth()) + j.text()
		j.bound = j.bound[:bound]
		for range rapid.IntRange(0, 2).Draw(j.t, "elifs") {
			out += j.tag("elif "+j.truth()) + j.text()
			j.bound = j.bound[:bound]
		}
		if rapid.Bool().Draw(j.t, "else") {
			out += j.tag("else") + j.text()
			j.bound = j.bound[:bound]
		}
		return out + j.tag("endif")
	case 1, 2:
		head, names := "", []string{"item"}
		switch rapid.IntRange(0, 3).Draw(j.t, "over") {
		case 0:
			head = "item in " + j.pick("node.output.tags", "words", "node.output.none")
		case 1:
			head, names = "key, item in pairs", []string{"key", "item"}
		case 2:
			head = "item in list"
		default:
			head = "item in name"
		}
		j.loops++
		out := j.tag("for " + head)
		for _, n := range names {
			out += "{{ " + n + " }}"
		}
		out += j.text()
		j.loops--
		j.bound = j.bound[:bound]
		if rapid.Bool().Draw(j.t, "else") {
			out += j.tag("else") + j.text()
			j.bound = j.bound[:bound]
		}
		return out + j.tag("endfor")
	case 3:
		name := fmt.Sprintf("v%d", len(j.bound))
		out := j.tag("set " + name + " = " + j.pick("name", "'set'", "node.output.text | lower", "node.output.tags | join(' ')"))
		j.bound = append(j.bound, name)
		return out
	case 4:
		return "{#" + j.pick("", "-") + " {{ not }} read " + j.pick("", "-") + "#}"
	case 5:
		return "{{- " + j.value() + " -}}"
	}
	return "{{ " + j.value() + " }}"
}

// X39: a template of what Jinja2 and this dialect share gives the same text as an engine of the author
// of Jinja2.
func TestX39_Jinja(t *testing.T) {
	env := minijinja.NewEnvironment()
	env.SetUndefinedBehavior(minijinja.UndefinedStrict)
	env.SetFormatter(func(_ *minijinja.State, v value.Value, _ func(string) string) string {
		if b, ok := v.AsBool(); ok {
			return strconv.FormatBool(b) // as JSON, where Jinja2 writes True
		}
		if _, number := v.AsFloat(); number {
			return strings.TrimSuffix(v.String(), ".0") // 3, where Jinja2 writes 3.0
		}
		return v.String()
	})
	rapid.Check(t, func(t *rapid.T) {
		src := (&jinja{t: t}).text()
		theirs, err := env.TemplateFromString(src)
		if err != nil {
			t.Fatalf("%q: the other engine: %v", src, err)
		}
		want, wantErr := theirs.Render(jinjaVars())
		p, err := expr.CompileTemplate(src)
		if err != nil {
			t.Fatalf("%q: %v", src, err)
		}
		v, err := p.Eval(expr.MapVars(jinjaVars()))
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("%q: %v, %v; want %q, %v", src, v, err, want, wantErr)
		}
		if got := fmt.Sprint(v); err == nil && got != want {
			t.Fatalf("%q\ngot  %q\nwant %q", src, got, want)
		}
	})
}
