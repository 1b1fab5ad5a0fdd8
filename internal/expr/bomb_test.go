// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/cputime"
	"github.com/roux-engine/roux/internal/jsonschema"
)

// The processor time that one bomb may use. It is generous because the race detector is
// slow; without the limits most bombs would run for hours or exhaust the memory.
const (
	bombTime  = 20 * time.Second
	bombBytes = 256 << 20
)

// defuse runs f and checks that it fails quickly.
func defuse(t *testing.T, name string, f func() error) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var err error
	took := cputime.Of(1, func() { err = f() })
	runtime.ReadMemStats(&after)
	if !errors.Is(err, fault.TemplateError) && !errors.Is(err, fault.ValueTooLarge) && !errors.Is(err, fault.ExpressionLimit) && !errors.Is(err, fault.RecipeInvalid) {
		t.Errorf("%s: got %v, want TEMPLATE_ERROR, VALUE_TOO_LARGE or EXPRESSION_LIMIT", name, err)
	}
	if took > bombTime {
		t.Errorf("%s took %v", name, took)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > bombBytes {
		t.Errorf("%s allocated %d bytes", name, n)
	}
	t.Logf("%-22s %8v %10d bytes  %.120v", name, took.Round(10*time.Microsecond), after.TotalAlloc-before.TotalAlloc, err)
}

func bombVars() MapVars {
	text := strings.Repeat("a", 1<<20-2)
	ints := make([]any, 100_000)
	for i := range ints {
		ints[i] = int64(i)
	}
	words := make([]any, 2000)
	for i := range words {
		words[i] = strings.Repeat("w", 500)
	}
	return MapVars{"x": text, "ints": ints, "words": words, "kb": strings.Repeat("k", 1000), "one": []any{int64(1)}, "p": `(a|a)*b`, SeedVar: "a"}
}

// manyNames is a template of very many variables.
func manyNames() string {
	var b strings.Builder
	for i := 0; b.Len() < 100_000; {
		b.WriteString("{{ [")
		for range 2000 {
			fmt.Fprintf(&b, "n%x,", i)
			i++
		}
		b.WriteString("] }}")
	}
	return b.String()
}

// nest wraps an expression in n times before and after.
func nest(n int, before, inner, after string) string {
	return strings.Repeat(before, n) + inner + strings.Repeat(after, n)
}

// A11: expressions that would exhaust a machine fail, in bounded time and memory, because
// of their cost alone.
func TestA11_CELBombs(t *testing.T) {
	vars := bombVars()
	doubled := func(n int) string {
		s := "[x]"
		for i := range n {
			s = fmt.Sprintf("%s.map(a%d, a%d + a%d)", s, i, i, i)
		}
		return s + "[0]"
	}
	doubledList := func(n int) string {
		s := "[one]"
		for i := range n {
			s = fmt.Sprintf("%s.map(a%d, a%d + a%d)", s, i, i, i)
		}
		return s + "[0]"
	}
	dag := func(n int) string {
		s := "[1]"
		for i := range n {
			s = fmt.Sprintf("%s.map(d%d, [d%d, d%d])", s, i, i, i)
		}
		return s
	}
	for name, src := range map[string]string{
		"nested comprehensions": "ints.map(a, ints.map(b, ints.map(c, a + b + c)))",
		"all of all":            "ints.all(a, ints.all(b, ints.all(c, a + b + c >= 0)))",
		"one comprehension":     "ints.map(a, a + 1).map(a, a + 1).map(a, a + 1)",
		"doubling concat":       "x + x",
		"doubling tower":        doubled(36),
		"doubling small":        strings.ReplaceAll(doubled(36), "[x]", "[kb]"),
		"doubling list":         doubledList(36),
		"doubling list equal":   doubledList(36) + " == " + doubledList(36),
		"dag equal":             dag(36) + " == " + dag(36),
		"dag in":                dag(36) + " in " + dag(36),
		"dag result":            dag(36),
		"dag flatten":           dag(36) + ".flatten(100)",
		"dag distinct":          dag(36) + ".distinct()",
		"replace everything":    "x.replace('a', x)",
		"replace empty":         "x.replace('', x)",
		"replace chain":         nest(12, "", "kb", ".replace('k', 'kkkkkkkkkk')"),
		"replace towers":        "x.replace('a', 'aaaaaaaaaa').replace('a', 'aaaaaaaaaa').replace('a', 'aaaaaaaaaa')",
		"join":                  "ints.map(i, x).join(x)",
		"join many":             "lists.range(1000).map(i, words).map(w, w.join(kb)).join()",
		"split":                 "x.split('').map(c, x.split(''))",
		"split every letter":    "x.split('')",
		"indexOf":               "ints.exists(i, x.indexOf(x + string(i)) > 0)",
		"lastIndexOf":           "ints.exists(i, x.lastIndexOf('b', i) > 0)",
		"range":                 "lists.range(9223372036854775807)",
		"range million":         "lists.range(1000000)",
		"range map":             "lists.range(100000).map(i, lists.range(100000))",
		"sort":                  "ints.map(i, -i).sort()",
		"sortBy":                "ints.sortBy(i, ints.sortBy(j, j)[0])",
		"distinct":              "ints.distinct()",
		"sets":                  "sets.equivalent(ints, ints)",
		"in loop":               "ints.all(i, i in ints)",
		"equal loop":            "words.all(i, words == words)",
		"regex loop":            "ints.all(i, !x.matches('b$'))",
		"regex size":            `x.matches('((((a{1,100}){1,100}){1,100}){1,100})')`,
		"regex repeat":          `x.matches('(((a{1,9}){1,9}){1,9})b')`,
		"regex dynamic":         "x.matches(x)",
		"regex from data":       "ints.all(i, !x.matches(p))",
		"size of text":          "ints.all(i, x.size() > 0)",
		"bytes":                 "ints.all(i, bytes(x).size() > 0)",
		"base64":                "base64.encode(bytes(x)) + base64.encode(bytes(x))",
		"upper":                 "ints.map(i, x.upperAscii())",
		"format width":          "'%1000000000d'.format([1])",
		"format precision":      "'%.1000000000f'.format([1.0])",
		"format of a dag":       "'%s'.format([" + dag(36) + "])",
		"format many":           "ints.map(i, '%s%s%s%s'.format([ints, ints, ints, ints]))",
		"toJson of a dag":       "toJson(" + dag(36) + ")",
		"toJson in a loop":      "ints.map(i, toJson(ints).size())",
		"fromJson in a loop":    "ints.map(i, fromJson('[' + words.join(',').replace('w', '1,') + '1]').size())",
		"fromJson deep":         "fromJson(x.replace('a', '['))",
		"quote in a loop":       "ints.map(i, strings.quote(x).size())",
		"reverse in a loop":     "ints.map(i, x.reverse().size())",
		"reduce doubles text":   "ints.reduce(t, i, 'kb', t + t)",
		"reduce doubles a list": "ints.reduce(l, i, [1], l + l)",
		"reduce nests":          "ints.reduce(l, i, [], [l, l])",
		"reduce nests and asks": "ints.reduce(l, i, [], [l, l]) == ints.reduce(l, i, [], [l, l])",
		"reduce prints":         "'%s'.format([ints.reduce(l, i, [], [l])])",
		"reduce merges":         "ints.reduce(m, i, {}, m.merge({string(i): i}))",
		"transformMapEntry":     "ints.transformMapEntry(i, n, {string(n): ints})",
		"entries of maps":       "[words.transformMap(i, w, i)].reduce(m, a, a, m).transformMapEntry(k, v, words.transformMap(i, w, i))",
		"groupBy in a loop":     "ints.map(i, ints.groupBy(j, j % 2))",
		"groupBy long keys":     "words.groupBy(w, x + w)",
		"numbers":               "range(-9223372036854775807, 9223372036854775807)",
		"numbers in a loop":     "ints.map(i, range(1000))",
		"zip in a loop":         "ints.map(i, ints.zip(ints))",
		"sum in a loop":         "ints.map(i, ints.sum())",
		"avg in a loop":         "ints.map(i, ints.avg())",
		"hasAny":                "ints.hasAny(ints.map(i, -1 - i))",
		"bind tower":            nest(36, "cel.bind(y, kb + kb, ", "y", ")") + doubled(36),
		"uuid of text":          "ints.map(i, uuid(x))",
		"dates":                 "ints.map(i, date('2026-01-01').addDate(0, 0, i).format('%A %B %c'))",
		"literal lists":         "ints.map(i, [i,i,i,i,i,i,i,i,i,i,i,i])",
		"literal maps":          "ints.map(i, {'a': ints, 'b': ints})",
		"deep parentheses":      nest(5000, "(", "1", ")"),
		"deep unary":            nest(5000, "-(", "1", ")"),
		"deep lists":            nest(5000, "[", "1", "]"),
		"deep conditional":      strings.Repeat("true ? 1 : ", 1000) + "1",
		"long source":           "1" + strings.Repeat(" + 1", 10_000),
		"many nodes":            "[" + strings.Repeat("has(a.b),", 1700) + "true].map(x, [x].map(x, [x].map(x, x)))",
		"deep types":            dag(90),
		"macro towers":          nest(40, "[1].map(x, ", "x", ")") + nest(5, "[1,2,3,4,5,6,7,8,9].map(y,", "ints.map(z, z)", ")"),
		"deep selection":        "x" + strings.Repeat(".a", 5000),
		"string of int":         "ints.map(i, string(i) + x)",
		"greatest":              "ints.map(i, math.greatest(ints))",
		"result too large":      "[x, x, x]",
		"result map":            "{'a': x, 'b': x}",
		"number":                "9223372036854775807 * 9223372036854775807",
		"timestamps":            "ints.map(i, timestamp('2026-01-01T00:00:00Z') + duration(string(i) + 's'))",
	} {
		defuse(t, name, func() error {
			p, err := Compile(src)
			if err != nil {
				return err
			}
			_, err = p.Eval(vars)
			return err
		})
	}
}

// A11, I20: inputs are measured before evaluation; a computed result has at most 256 KiB, a
// selected value at most the size of an input.
func TestA11_I20_Sizes(t *testing.T) {
	large := strings.Repeat("x", MaxInput-2)
	nums := make([]any, 200_000)
	for i := range nums {
		nums[i] = int64(100 + i%900)
	}
	vars := MapVars{
		"s": large, "over": large + "y", "nums": nums,
		"many":  map[string]any{"a": large, "b": large, "i": int64(1)},
		"mid":   strings.Repeat("m", MaxResult),
		"limit": strings.Repeat("m", MaxResult-2),
		"key":   "i",
		"f":     false,
	}
	for _, tt := range []struct {
		src      string
		template bool
		ok       bool
	}{
		{"s", false, true},
		{"{{ s }}", true, true},
		{"{{ many.a }}", true, true},
		{"{{ s | default('') }}", true, true},
		{"many['a']", false, true},
		{"f ? s : many.b", false, true},
		{"nums", false, true},
		{"size(s)", false, true},
		{"s.contains('y')", false, true},
		{"many[key]", false, true},
		{"many.i", false, true},
		{"over", false, false},
		{"has(over.x) || true", false, true},
		{"size(over) > 0", false, false},
		{"many", false, false},
		{"many.size()", false, false},
		{"limit + ''", false, true},
		{"mid + '123'", false, false},
		{"[s]", false, false},
		{"{'a': s}", false, false},
		{"nums.filter(n, true)", false, false},
		{"text {{ s }}", true, false},
		{"{{ limit }}..", true, true},
		{"{{ limit }}...", true, false},
		{"{{ s | upper }}", true, false},
		{"{{ nums | tojson }}", true, false},
		{"{{ nums | join(',') }}", true, false},
	} {
		p, err := compileEither(tt.src, tt.template)
		if err != nil {
			t.Errorf("%s: %v", tt.src, err)
			continue
		}
		_, err = p.Eval(vars)
		if tt.ok && err != nil {
			t.Errorf("%s: %v", tt.src, err)
		}
		if !tt.ok && !errors.Is(err, fault.ValueTooLarge) && !errors.Is(err, fault.ExpressionLimit) {
			t.Errorf("%s: got %v, want VALUE_TOO_LARGE", tt.src, err)
		}
	}
	tree, err := CompileTree([]byte(`{"a": "{{ s }}", "b": "{{ s }}"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Eval(vars); !errors.Is(err, fault.ValueTooLarge) {
		t.Errorf("a tree of two large values: %v", err)
	}
}

func compileEither(src string, template bool) (*Program, error) {
	if template {
		return CompileTemplate(src)
	}
	return Compile(src)
}

// A13, A11: templates whose run time or output would not be bounded fail.
func TestA13_A11_TemplateBombs(t *testing.T) {
	vars := bombVars()
	for name, src := range map[string]string{
		"empty body":      "{% for a in ints %}{% for b in ints %}{% endfor %}{% endfor %}",
		"nested loops":    "{% for a in ints %}{% for b in ints %}{% for c in ints %}x{% endfor %}{% endfor %}{% endfor %}",
		"silent loops":    "{% for a in ints %}{% for b in ints %}{% if false %}x{% endif %}{% endfor %}{% endfor %}",
		"printing":        "{% for a in ints %}{{ x }}{% endfor %}",
		"doubling set":    strings.Repeat("{% set kb = kb + kb %}", 40),
		"list set":        "{% set l = [words, words] %}" + strings.Repeat("{% set l = [l, l] %}", 60) + "done",
		"pad":             "{{ kb.replace('k', kb).replace('k', kb) }}",
		"filter replace":  "{{ x | replace('a', 'aaaaaaaaaaaaaaaa') }}",
		"filter chain":    "{{ kb" + strings.Repeat(" | replace('k', 'kkkkkkkkkk')", 20) + " }}",
		"filter join":     "{{ words | join(x) }}",
		"loop over text":  "{% for c in x %}{{ c }}{% endfor %}",
		"include":         `{% include "/etc/hostname" %}`,
		"import":          `{% import "x" as y %}`,
		"macro":           `{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}`,
		"call":            `{{ self.__init__() }}`,
		"multiply text":   `{{ "a" * 1000000000 }}`,
		"range":           `{% for i in lists.range(100000) %}{% for j in lists.range(100000) %}{% endfor %}{% endfor %}`,
		"deep blocks":     strings.Repeat("{% if true %}", 10_000),
		"deep for":        strings.Repeat("{% for a in ints %}", 10_000) + strings.Repeat("{% endfor %}", 10_000),
		"unclosed":        strings.Repeat("{{", 100_000),
		"unclosed string": "{{ '" + strings.Repeat("{{", 100_000),
		"many holes":      strings.Repeat("{{ 1 }}", 100_000),
		"many elifs":      "{% if false %}" + strings.Repeat("{% elif false %}", 100_000) + "{% endif %}",
		"many filters":    "{{ 1" + strings.Repeat(" | default(1)", 100_000) + "}}",
		"deep map":        "{{" + strings.Repeat("{", 100_000),
		"many names":      manyNames(),
		"huge":            strings.Repeat("x", MaxTemplate) + "{{ x }}",
	} {
		defuse(t, name, func() error {
			p, err := CompileTemplate(src)
			if err != nil {
				return err
			}
			_, err = p.Eval(vars)
			return err
		})
	}
	leaf := `"{{ ints.all(a, a >= 0) || x.matches('b') }}",`
	defuse(t, "tree of bombs", func() error {
		tree, err := CompileTree([]byte("[" + strings.Repeat(leaf, 500) + "1]"))
		if err != nil {
			return err
		}
		_, err = tree.Eval(vars)
		return err
	})
	defuse(t, "tree of inputs", func() error {
		tree, err := CompileTree([]byte("[" + strings.Repeat(`"{{ ints.size() + ints[0] + ints[1] }}",`, 300) + `"{{ ints.nope }}"]`))
		if err != nil {
			return err
		}
		_, err = tree.Eval(vars)
		return err
	})
	defuse(t, "template of inputs", func() error {
		_, err := renderTemplate(strings.Repeat("{{ ints.size() }}", 300)+"{{ ints.nope }}", vars)
		return err
	})
	defuse(t, "wide tree", func() error {
		_, err := CompileTree([]byte("[" + strings.Repeat(`"{{ 1 }}",`, 100_000) + "1]"))
		return err
	})
	defuse(t, "deep tree", func() error {
		_, err := CompileTree([]byte(nest(200_000, "[", `"{{ x"`, "]")))
		return err
	})
}

// I20, A11: schemas are bounded too.
func TestA11_I20_ContractBombs(t *testing.T) {
	var defs []string
	for i := range 40 {
		defs = append(defs, fmt.Sprintf(`"d%d": {"allOf": [{"$ref": "#/$defs/d%d"}, {"$ref": "#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	defs = append(defs, `"d40": {"type": "string"}`)
	deep := any("x")
	for range 60 {
		deep = map[string]any{"a": deep}
	}
	for name, c := range map[string]struct {
		schema string
		value  any
	}{
		"references":     {`{"$ref": "#/$defs/d0", "$defs": {` + strings.Join(defs, ",") + `}}`, "x"},
		"recursion":      {`{"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}`, deep},
		"pattern":        {`{"pattern": "(((a{1,9}){1,9}){1,9})b$"}`, strings.Repeat("a", 1<<20)},
		"pattern size":   {`{"pattern": "((((a{1,100}){1,100}){1,100}){1,100})"}`, "a"},
		"cycle":          {`{"$ref": "#"}`, "a"},
		"huge number":    {`{"minimum": 1e999999999}`, int64(1)},
		"outside":        {`{"$ref": "file:///etc/passwd"}`, "a"},
		"network":        {`{"$ref": "http://127.0.0.1:1/x.json"}`, "a"},
		"anyOf branches": {`{"$defs": {"n": {"anyOf": [{"properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["zz"]}, {"properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["zz"]}]}}, "$ref": "#/$defs/n"}`, deep},
	} {
		defuse(t, name, func() error {
			s, err := jsonschema.Compile([]byte(c.schema))
			if err != nil {
				return err
			}
			if vs := s.Validate(c.value); vs != nil {
				return fault.New(fault.TemplateError, "%v", vs[0])
			}
			return nil
		})
	}
}

// A11: the limits are the published ones. The tests of sizes use the constants.
func TestA11_PublishedLimits(t *testing.T) {
	if CostLimit != 100_000 || MaxCost != 1_000_000 || MaxInput != 1_048_576 || MaxResult != 262_144 {
		t.Errorf("cost %d, input %d, result %d", CostLimit, MaxInput, MaxResult)
	}
}
