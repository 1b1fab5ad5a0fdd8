// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// vars are the variables of most tests, shaped like those of a run.
var vars = MapVars{
	"input":      map[string]any{"name": "Ada", "parameters": map[string]any{"lang": "de"}, "fileHashes": []any{"sha256_a"}},
	"parameters": map[string]any{"lang": "de"},
	"inspection": map[string]any{
		"mimeType": "application/pdf", "sizeBytes": int64(3145728),
		"extended": map[string]any{"pageCount": int64(80)},
	},
	"steps": map[string]any{
		"fetch":      map[string]any{"output": map[string]any{"url": "https://x.test/a"}, "status": "completed"},
		"fetch-data": map[string]any{"output": "dashed"},
		"skipped":    map[string]any{"status": "skipped"},
	},
	"big":   int64(9007199254740993), // 2^53 + 1: no double holds it
	"list":  []any{int64(3), int64(1), int64(2)},
	"null":  nil,
	"ratio": 0.5,
	"evil":  "{{ input.name }}{% for i in list %}x{% endfor %}{# gone #}",
}

func eval(t *testing.T, src string) (any, error) {
	t.Helper()
	p, err := Compile(src)
	if err != nil {
		return nil, err
	}
	return p.Eval(vars)
}

// X31, X33, X34, X37, R11: the results of conditions, transforms and formulas.
func TestX31_X33_X34_X37_R11_Expressions(t *testing.T) {
	for _, tt := range []struct {
		src  string
		want any
	}{
		{`inspection.mimeType == "application/pdf"`, true},
		{`inspection.extended.pageCount > 0 && inspection.extended.pageCount <= 50`, false},
		{`inspection.extended.pageCount > 10 ? "large" : "small"`, "large"},
		{`has(inspection.extended) && has(inspection.extended.pageCount)`, true},
		{`has(inspection.nothing) && has(inspection.nothing.pageCount)`, false},
		{`inspection.mimeType.startsWith("application/")`, true},
		{`'Document too large: ' + string(inspection.extended.pageCount) + ' pages'`, "Document too large: 80 pages"},
		{`10 + (inspection.extended.pageCount * 5) + (inspection.sizeBytes / 1048576 * 2)`, int64(416)},
		{`{'file': input.fileHashes[0], 'n': size(list)}`, map[string]any{"file": "sha256_a", "n": int64(3)}},
		{`steps['fetch-data'].output`, "dashed"},
		{`steps.fetch.output.url != null`, true},
		{`list.map(x, x * 2).filter(x, x > 2)`, []any{int64(6), int64(4)}},
		{`list.sort() + [9]`, []any{int64(1), int64(2), int64(3), int64(9)}},
		{`list.sortBy(x, -x)`, []any{int64(3), int64(2), int64(1)}},
		{`multiply(inspection.extended.pageCount, 1.5)`, 120.0},
		{`add(1, 2)`, int64(3)},
		{`subtract(1, 0.5)`, 0.5},
		{`divide(7, 2)`, int64(3)},
		{`divide(7, 2.0)`, 3.5},
		{`big + 1`, int64(9007199254740994)},
		{`ratio < 1`, true},
		{`inspection.sizeBytes < 1.5`, false},
		{`null == null`, true},
		{`list.distinct().reverse().slice(0, 2)`, []any{int64(2), int64(1)}},
		{`[[1], [2, [3]]].flatten()`, []any{int64(1), int64(2), []any{int64(3)}}},
		{`sets.contains(list, [1, 2]) && sets.intersects(list, [2]) && sets.equivalent(list, [1, 2, 3])`, true},
		{`math.greatest(list)`, int64(3)},
		{`'a-b-c'.split('-').join('+')`, "a+b+c"},
		{`'añb'.indexOf('b') + 'añb'.lastIndexOf('a') + 'abcab'.lastIndexOf('b', 3) + 'abab'.indexOf('a', 1)`, int64(2 + 0 + 1 + 2)},
		{`'Ada'.upperAscii().replace('A', 'O', 1).matches('^OD')`, true},
		{`lists.range(3)`, []any{int64(0), int64(1), int64(2)}},
		{`input.?missing.orValue('d')`, "d"},
		{`timestamp('2026-01-02T03:04:05+02:00')`, "2026-01-02T01:04:05Z"},
		{`timestamp('2026-01-02T03:04:05Z').getHours('+02:00')`, int64(5)},
		{`timestamp('2026-01-02T03:04:05Z') + duration('90m')`, "2026-01-02T04:34:05Z"},
		{`duration('90s')`, "1m30s"},
		{`b'hi'`, "aGk="},
		{`type(1)`, "int"},
		{`5u`, int64(5)},
		{`optional.none()`, nil},
		{`optional.of([1])`, []any{int64(1)}},
		{`1.0`, 1.0},
	} {
		got, err := eval(t, tt.src)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s = %#v, %v; want %#v", tt.src, got, err, tt.want)
		}
	}
}

// R13, R8, X36: the use of an absent value is an error, except in has(), ?. and default.
func TestR13_R8_X36_Absent(t *testing.T) {
	for _, tt := range []struct {
		src, want string // "" = no error
	}{
		{`nobody`, "undefined: nobody"},
		{`nobody == 1`, "undefined: nobody"},
		{`nobody != null`, "undefined: nobody"},
		{`nobody.field`, "undefined: nobody"},
		{`nobody.field.deep == 1`, "undefined: nobody"},
		{`[nobody]`, "undefined: nobody"},
		{`{'k': nobody}`, "undefined: nobody"},
		{`[nobody].size() == 1`, "undefined: nobody"},
		{`true ? nobody : 1`, "undefined: nobody"},
		{`nobody.map(x, x)`, "undefined: nobody"},
		{`'a' in nobody`, "undefined: nobody"},
		{`input[nobody]`, "undefined: the name inside [ ]"},
		{`nobody + 'x'`, "undefined: nobody"},
		{`!has(nobody.field) && nobody.field == 1`, "undefined: nobody"},
		{`string(nobody)`, "undefined: nobody"},
		{`has(nobody.field)`, ""},
		{`has(nobody.field) ? nobody.field : 3`, ""},
		{`nobody.?field.orValue(1)`, ""},
		{`has(steps.skipped.output)`, ""},
		{`steps.skipped.output`, "no such key: output"},
		{`input.parameters.nope`, "no such key: nope"},
		// In CEL, has() tests only the last member.
		{`has(steps.nope.output)`, "no such key: nope"},
		{`has(nobody.a.b)`, "undefined: nobody"},
		{`list[3]`, "index out of bounds: 3"},
		{`1 / 0`, "division by zero"},
		{`9223372036854775807 + 1`, "overflow"},
		{`inspection.mimeType + 1`, "no such overload"},
		{`0.0 / 0.0`, "NaN"},
		{`1.0 / 0.0`, "Inf"},
		{`18446744073709551615u`, "does not fit"},
		{`{1: 2}`, "key of type int"},
		{`timestamp('2026-01-02T03:04:05Z').getHours('Europe/Berlin')`, "offset such as"},
	} {
		_, err := eval(t, tt.src)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.src, err)
			}
			continue
		}
		if !errors.Is(err, fault.TemplateError) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want TEMPLATE_ERROR with %q", tt.src, err, tt.want)
		}
	}
}

// X32: refs are the names that an expression reads.
func TestX32_Refs(t *testing.T) {
	for _, tt := range []struct{ src, want string }{
		{`steps.fetch.output.url`, `steps[fetch output url]@0`},
		{`steps['a-b'].output`, `steps[a-b output]@0`},
		{`steps[name].output`, `name[]@6 steps[]*@0`},
		{`steps.a[name].b`, `name[]@8 steps[a]*@0`},
		{`list[0].x`, `list[]@0`},
		{`has(a.b) && a.b > 1`, `a[b]@4 a[b]@12`},
		{`items.map(x, x.y + z.w)`, `items[]@0 z[w]@19`},
		{`items.all(i, items.exists(j, i == j && k))`, `items[]@0 items[]@13 k[]@39`},
		{`math.greatest(a, b) > 1 && sets.contains(c, d)`, `a[]@14 b[]@17 c[]@41 d[]@44`},
		{`a.startsWith(b.c)`, `a[]@0 b[c]@13`},
		{`{'k': v, k2: 1}`, `v[]@6 k2[]@9`},
		{`'é' + a`, `a[]@6`},
		{`a.?b.orValue(c)`, `a[b]@0 c[]@13`},
		{`type(a) == string`, `a[]@5`},
		{`list.sortBy(e, e.k)`, `list[]@0`},
		{`(c ? a : b).x`, `c[]@1 a[]@5 b[]@9`},
	} {
		p, err := Compile(tt.src)
		if err != nil {
			t.Errorf("%s: %v", tt.src, err)
			continue
		}
		if got := showRefs(p.Refs()); got != tt.want {
			t.Errorf("%s: refs %s, want %s", tt.src, got, tt.want)
		}
	}
	p, err := CompileTemplate("é {% for x in a.b %}{{ x.y }}{{ loop.index }}{{ q }}{% endfor %}{% set s = r.t %}{{ s }}{{ x | default(u) }}")
	if err != nil {
		t.Fatal(err)
	}
	// x is a variable of the loop inside it and a free name after it.
	if got, want := showRefs(p.Refs()), `a[b]@14 q[]@48 r[t]@75 x[]@91 u[]@103`; got != want {
		t.Errorf("template refs %s, want %s", got, want)
	}
}

func showRefs(refs []Ref) string {
	var out []string
	for _, r := range refs {
		s := r.Name + "[" + strings.Join(r.Path, " ") + "]"
		if r.Dynamic {
			s += "*"
		}
		b, _ := json.Marshal(r.Offset)
		out = append(out, s+"@"+string(b))
	}
	return strings.Join(out, " ")
}

func TestTree(t *testing.T) {
	tree, err := CompileTree([]byte(`{"a": "{{ list }}", "b": {"c/d": ["x", "to {{ input.name }}"]}, "n": 9007199254740993, "f": 1.5, "t": true, "z": null}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := tree.Eval(vars)
	want := map[string]any{
		"a": vars["list"], "b": map[string]any{"c/d": []any{"x", "to Ada"}},
		"n": int64(9007199254740993), "f": 1.5, "t": true, "z": nil,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, %v", got, err)
	}
	var pointers []string
	for _, r := range tree.Refs() {
		pointers = append(pointers, r.Pointer)
	}
	if got := strings.Join(pointers, " "); got != "/a /b/c~1d/1" {
		t.Errorf("pointers %q", got)
	}
	if tree.Constant() {
		t.Error("a tree with templates is no constant")
	}
	if c, err := CompileTree([]byte(`{"a": ["}}", {"b": "{"}]}`)); err != nil || !c.Constant() {
		t.Errorf("a tree without templates is a constant: %v", err)
	}
	for _, bad := range []string{`{`, `{} {}`, `{"a": "{{ 1 + }}", "b": "{{ x | no }}"}`} {
		_, err := CompileTree([]byte(bad))
		if !errors.Is(err, fault.TemplateError) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	tree, _ = CompileTree([]byte(`{"deep": ["{{ nobody }}"]}`))
	if _, err := tree.Eval(vars); err == nil || !strings.Contains(err.Error(), "/deep/0") {
		t.Errorf("the error must name the leaf: %v", err)
	}
}

// Maps iterate in the order of their keys, because Go's order is random.
func TestMapOrder(t *testing.T) {
	m := map[string]any{}
	for _, k := range strings.Split("zqxjvkwpyfmgbuclhrdnotsaei", "") {
		m[k] = map[string]any{"k": k}
	}
	v := MapVars{"m": m}
	for _, src := range []string{
		`m.map(k, k).join()`,
		`{'z':1,'q':1,'x':1,'j':1,'v':1,'k':1,'w':1,'p':1,'y':1,'f':1,'m':1,'g':1,'b':1,'u':1,'c':1,'l':1,'h':1,'r':1,'d':1,'n':1,'o':1,'t':1,'s':1,'a':1,'e':1,'i':1}.map(k, k).join()`,
	} {
		p, err := Compile(src)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.Eval(v); got != "abcdefghijklmnopqrstuvwxyz" {
			t.Errorf("%s = %v, %v", src, got, err)
		}
	}
}

// I20: a variable is looked up once per evaluation, so that the measured value is the one
// that is used; an error does not contain a whole value.
func TestI20_LookupOnce(t *testing.T) {
	p, err := CompileTemplate("{{ a.b }}{{ a.c }}{{ a.b + a.c }}{% for x in a.l %}{{ a.b }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	v := lookups{MapVars{"a": map[string]any{"b": "x", "c": "y", "l": []any{nil, nil}}}, n}
	if got, err := p.Eval(v); got != "xyxyxx" || n["a"] != 1 || len(n) != 1 {
		t.Errorf("%v, %v; lookups %v", got, err, n)
	}
	q, err := Compile("m[k]")
	if err != nil {
		t.Fatal(err)
	}
	_, err = q.Eval(MapVars{"m": map[string]any{}, "k": strings.Repeat("k", 10_000)})
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

type lookups struct {
	MapVars
	n map[string]int
}

func (l lookups) Lookup(name string) (any, bool) {
	l.n[name]++
	return l.MapVars.Lookup(name)
}
