// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// typedEnv is the environment that compile builds for the recipe of the source.
var typedEnv = &Env{Vars: map[string]json.RawMessage{
	"inspection": json.RawMessage(`{"type": "object", "properties": {
		"mimeType": {"type": "string"}, "sizeBytes": {"type": "integer"}, "ratio": {"type": "number"}, "ok": {"type": "boolean"},
		"tags": {"type": "array", "items": {"type": "string"}}, "maybe": {"type": ["string", "null"]},
		"labels": {"type": "object", "additionalProperties": {"type": "integer"}},
		"free": {"type": "object"}, "choice": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
		"open": {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": true},
		"pages": {"type": "array", "items": {"$ref": "#/$defs/page"}},
		"first": {"$ref": "#/$defs/page"},
		"extended": {"type": "object", "additionalProperties": false, "properties": {"pageCount": {"type": "integer"}}}
	}, "$defs": {"page": {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/page"}}}}}`),
	"any":        nil,
	"count":      json.RawMessage(`{"type": "integer"}`),
	"loose":      json.RawMessage(`true`),
	"nonsense":   json.RawMessage(`"x"`),
	"steps":      json.RawMessage(`{"type": "object", "additionalProperties": false, "properties": {"fetch-data": {"type": "object", "properties": {"output": {}, "status": {"type": "string"}}}}}`),
	"fileHashes": json.RawMessage(`{"type": "array", "items": {"type": "string"}}`),
}}

// show formats problems as "rule@offset+len msg; hint".
func show(ps []Problem) string {
	var out []string
	for _, p := range ps {
		s := fmt.Sprintf("%s@%d+%d %s", p.Rule, p.Offset, p.Len, p.Msg)
		if p.Hint != "" {
			s += "; " + p.Hint
		}
		out = append(out, s)
	}
	return strings.Join(out, "\n")
}

// X31, R13: errors that can be found before run time are found.
func TestX31_R13_Check(t *testing.T) {
	for _, tt := range []struct{ src, kind, want string }{
		// Fine.
		{`inspection.extended.pageCount <= 100`, "bool", ""},
		{`has(inspection.extended) && has(inspection.extended.pageCount)`, "bool", ""},
		{`inspection.sizeBytes < 1.5 && inspection.ratio + 1 > 2`, "bool", ""},
		{`inspection.maybe == null || inspection.maybe.startsWith('x')`, "bool", ""},
		{`inspection.labels.anything + 1`, "int", ""},
		{`inspection.free.anything.goes`, "bool", ""},
		{`inspection.open.b.c`, "bool", ""},
		{`inspection.choice + 'x'`, "", ""},
		{`{'v': inspection, 'w': [inspection]}`, "", ""}, // the second use is no type
		{`any.x.y[0].z`, "list", ""},
		{`loose.x`, "", ""},
		{`nonsense.x`, "", ""},
		{`steps['fetch-data'].output.x`, "", ""},
		{`steps[any].output.x`, "", ""},
		{`steps.map(k, k)`, "list", ""},
		{`size(steps) > 0 && 'a' in inspection && inspection != null && inspection == any`, "bool", ""},
		{`inspection.pages[0].next.next.n + inspection.first.n`, "int", ""},
		{`inspection.pages.map(p, p.n)`, "list", ""},
		{`{'a': inspection}.a`, "map", ""},
		{`[inspection, any]`, "list", ""},
		{`true ? inspection : any`, "map", ""},
		{`timestamp('2026-01-01T00:00:00Z')`, "timestamp", ""},
		{`string(count)`, "timestamp", ""},
		{`count`, "number", ""},
		{`multiply(count, 1.5)`, "number", ""},
		{`inspection.tags[0].size() + count`, "int", ""},

		// Names.
		{`inspecton.sizeBytes`, "", `undefined-name@0+9 undefined: inspecton; did you mean "inspection"?`},
		{`1 + nobody + nobody`, "", "undefined-name@4+6 undefined: nobody\nundefined-name@13+6 undefined: nobody"},
		{`foo(1)`, "", `undefined-name@0+3 undefined function: foo`},
		{`'x'.startWith('y')`, "", `undefined-name@4+9 undefined function: startWith; did you mean "startsWith"?`},
		{`reduce(fileHashes, 0, any)`, "", `undefined-name@0+6 undefined function: reduce; did you mean "list.reduce(…)"?`},
		{`exist(fileHashes, any, true)`, "", `undefined-name@0+5 undefined function: exist; did you mean "list.exists(…)"?`},
		{`greatest(1, 2)`, "", `undefined-name@0+8 undefined function: greatest; did you mean "math.greatest(…)"?`},
		{`[0].uuid()`, "", `undefined-name@4+4 undefined function: uuid; did you mean "uuid(…)"?`},
		{`[0].sqrt()`, "", `undefined-name@4+4 undefined function: sqrt; did you mean "math.sqrt(…)"?`},
		{`[0].reduce(any, 0, any)`, "", `undefined-name@4+6 undefined function: reduce; it takes 4 arguments`},
		{`[0].map(any)`, "", `undefined-name@4+3 undefined function: map; it takes 2 or 3 arguments`},
		{`fileHashes.map(f, g)`, "", "undefined-name@18+1 undefined: g"},

		// Fields.
		{`inspection.extended.pagecount <= 100`, "", `undefined-field@20+9 undefined field: inspection.extended has no pagecount; did you mean "pageCount"?`},
		{`has(inspection.extended.nope)`, "", `undefined-field@24+4 undefined field: inspection.extended has no nope; its fields are pageCount`},
		{`steps['fetch-dat'].output`, "", `undefined-field@7+9 undefined field: steps has no fetch-dat; did you mean "fetch-data"?`},
		{`steps.other.output`, "", `undefined-field@6+5 undefined field: steps has no other; its fields are fetch-data`},
		{`inspection.pages[0].x`, "", `undefined-field@20+1 undefined field: inspection.pages[] has no x; its fields are n, next`},
		{`inspection.first.next.m`, "", `undefined-field@22+1 undefined field: inspection.first.next has no m; its fields are n, next`},
		{`'é' + inspection.mimetype`, "", `undefined-field@17+8 undefined field: inspection has no mimetype; did you mean "mimeType"?`},

		// Types.
		{`inspection.sizeBytes + 'x'`, "", `type@21+1 operator + does not take (int, string)`},
		{`inspection.mimeType && true`, "", `type@10+1 want bool, got string`},
		{`sum([1, 2])`, "", `type@0+3 function sum does not take (list(int)); did you mean "list.sum(…)"?`},
		{`startsWith('a', 'b')`, "", `type@0+10 function startsWith does not take (string, string); did you mean "string.startsWith(…)"?`},
		{`[1].toJson()`, "", `type@4+6 function toJson does not take list(int).(); did you mean "toJson(…)"?`},
		{`sets.contains(1, 2)`, "", `type@5+8 function sets.contains does not take (int, int)`},
		{`'a'.contains(1)`, "", `type@4+8 function contains does not take string.(int)`},
		{`size(count)`, "", `type@0+4 function size does not take (int)`},
		{`inspection.tags.map(t, t.foo)`, "", `type@24+1 string has no fields`},
		{`count.map(x, x)`, "", `type@0+1 want a list or a map to walk, got int`},
		{`inspection.tags`, "bool", `type@0+15 the result is list(string), want bool`},
		{`inspection`, "list", `type@0+10 the result is an object (inspection), want list`},
		{`1.5`, "int", `type@0+3 the result is double, want int`},
		{`'x'.matches('(')`, "", "type@0+16 matches: error parsing regexp: missing closing ): `(`"},

		// Syntax and cost.
		{`1 +`, "", `syntax@3+1 the expression ends too early`},
		{`any and any`, "", `syntax@4+3 unexpected "and"; CEL writes && for and`},
		{``, "", `syntax@0+1 the expression ends too early`},
		{`lists.range(10000).map(a, lists.range(10000))` + strings.Repeat(".map(x, [x])", 45), "", `cost@0+585 lists, maps and macros nest deeper than 40 levels`},
	} {
		if got := show(Check(tt.src, false, typedEnv, tt.kind)); got != tt.want {
			t.Errorf("%s (want %q):\n got %s\nwant %s", tt.src, tt.kind, got, tt.want)
		}
	}
}

func TestCheckTemplate(t *testing.T) {
	for _, tt := range []struct{ src, kind, want string }{
		{"hello {{ inspection.mimeType | upper }}", "string", ""},
		{"{{ inspection.tags }}", "list", ""},
		{"{% for x in fileHashes %}{{ x.y }}{{ loop.index }}{% endfor %}{% set s = 1 %}{{ s }}", "", ""},
		{"{{ fileHashes | first }}", "string", ""},
		{"é {{ inspection.mimetype }} {{ nope | upper }}", "", `undefined-field@16+8 undefined field: inspection has no mimetype; did you mean "mimeType"?` + "\n" + `undefined-name@31+4 undefined: nope`},
		{"{% for x in fileHashes %}{{ x }}{{ zz }}{% endfor %}{{ x }}", "", "undefined-name@35+2 undefined: zz\nundefined-name@55+1 undefined: x"},
		{"{{ fileHashes }}", "bool", `type@0+16 the result is list(string), want bool`},
		{"x{{ fileHashes }}", "bool", `type@0+17 the result is string, want bool`},
		{"{{ count | uper }}", "", `filter@11+4 unknown filter "uper"; did you mean "upper"?`},
		{"{{ count | default }}", "", `filter@11+7 the filter default takes 1 to 2 arguments, got 0`},
		{"{{ count | default(nope) }}", "", `undefined-name@19+4 undefined: nope`},
		{"a\n{% if count + 'x' %}{% endif %}", "", `type@14+1 operator + does not take (int, string)`},
		{"{{ count", "", `syntax@0+2 a placeholder {{ is not closed by }}`},
	} {
		if got := show(Check(tt.src, true, typedEnv, tt.kind)); got != tt.want {
			t.Errorf("%s (want %q):\n got %s\nwant %s", tt.src, tt.kind, got, tt.want)
		}
	}
	if ps := Check("nobody.x + 1", false, nil, ""); ps != nil {
		t.Errorf("without an Env every name is allowed: %s", show(ps))
	}
	ps := CheckTree([]byte(`{"a": ["{{ nope }}"], "b/c": "{{ inspection.x }}", "d": "plain"}`), typedEnv)
	if len(ps) != 2 || ps[0].Pointer != "/a/0" || ps[1].Pointer != "/b~1c" {
		t.Errorf("%+v", ps)
	}
}

// Check with an untyped environment accepts exactly the sources that Compile accepts.
func TestCheckAgreesWithCompile(t *testing.T) {
	for _, src := range []string{
		"a.b", "a +", "x.matches('(')", "foo()", "a.map(x, x)", "[1, 'a', {}]", "1 + 'a'", "has(a)", "has(a.b)",
		"lists.range(5)", "list == list", "type(a) == list", "a ? b : c", "a[b][c.d]", "google.x", "a.b.c()", "`a-b`", "a.`b-c`",
		"{'a': 1, 'a': 2}", "1 == 1.0", "[1] == ['a']", "loop", "a in b in c", "-a", "!a", "a.sort().map(x, x)",
	} {
		_, err := Compile(src)
		ps := Check(src, false, nil, "")
		if (err == nil) != (len(ps) == 0) {
			t.Errorf("%s: Compile %v, Check %s", src, err, show(ps))
		}
	}
}
