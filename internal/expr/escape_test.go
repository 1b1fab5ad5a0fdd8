// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
)

// counted records which variables were looked up.
type counted struct {
	MapVars
	asked map[string]bool
}

func (c counted) Lookup(name string) (any, bool) {
	c.asked[name] = true
	return c.MapVars.Lookup(name)
}

// A12, X35: an expression can access nothing but the variables: no environment, file, type,
// clock, Go method, or function that we do not provide.
func TestA12_X35_Escape(t *testing.T) {
	t.Setenv("ROUX_TEST_SECRET", "hunter2")
	secret := MapVars{"input": map[string]any{"a": int64(1)}, "_context": map[string]any{"accountId": "acc"}}
	for _, src := range []string{
		`env`, `env.ROUX_TEST_SECRET`, `os.environ`, `os.getenv('ROUX_TEST_SECRET')`, `getenv('ROUX_TEST_SECRET')`, `process.env`,
		`file('/etc/passwd')`, `open('/etc/passwd')`, `readFile('/etc/passwd')`, `include('/etc/passwd')`, `fetch('http://169.254.169.254/')`,
		`http.get('http://localhost')`, `exec('id')`, `system('id')`, `eval('1')`, `import('os')`, `require('fs')`,
		`now()`, `timestamp.now()`, `date()`, `random()`, `rand()`, `uuid()`, `math.random()`,
		`input.__class__`, `input.constructor`, `input.__proto__`, `input.Lookup`, `input.a.String()`, `''.__class__.__mro__`,
		`this`, `self`, `globals()`, `vars`, `_`, `__import__('os')`, `locals()`, `_context.secrets`, `_context.token`, `_context.password`,
		`secret('x')`, `secrets.x`, `steps.other.output`, `account`, `tenant`, `google.protobuf.Any{}`, `google.protobuf.Struct{}`,
		`google.protobuf.Timestamp{seconds: 1}`, `google.protobuf.NullValue.NULL_VALUE`, `proto.getExt(input, x)`, `net.parseAddr('1')`,
		`ip('127.0.0.1')`, `regex.replace('a', 'a', 'b')`,
		`timestamp('2026-01-01T00:00:00Z').getHours('Europe/Berlin')`, `timestamp('2026-01-01T00:00:00Z').getHours('../../etc/passwd')`,
		`timestamp('2026-01-01T00:00:00Z').getHours('Local')`, `@result`, `__result__`, `input.@in`, "`env`", `expr`, `dyn`, `type(env)`,
	} {
		asked := counted{secret, map[string]bool{}}
		var got any
		p, err := Compile(src)
		if err == nil {
			got, err = p.Eval(asked)
		}
		if err == nil || !errors.Is(err, fault.TemplateError) {
			t.Errorf("%s = %v, %v; want TEMPLATE_ERROR", src, got, err)
		}
		if err != nil && strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%s: the error shows the environment: %v", src, err)
		}
		if p == nil {
			continue
		}
		named := map[string]bool{}
		for _, r := range p.Refs() {
			named[r.Name] = true
		}
		for name := range asked.asked {
			if !named[name] {
				t.Errorf("%s asked for %q, which its refs do not name", src, name)
			}
		}
	}
	for _, src := range []string{
		`{% include "/etc/hostname" %}`, `{% import "os" as os %}`, `{% from "x" import y %}`, `{% extends "x" %}`, `{% block x %}{% endblock %}`,
		`{% raw %}{% endraw %}`, `{% macro x() %}{% endmacro %}`, `{% call x() %}{% endcall %}`, `{% do x() %}`, `{% filter upper %}{% endfilter %}`,
		`{{ env }}`, `{{ input | attr('x') }}`, `{{ input | map('x') }}`, `{{ lipsum() }}`, `{{ cycler.__init__.__globals__.os }}`,
		`{{ request.application }}`, `{{ config }}`, `{{ namespace() }}`, `{{ debug() }}`, `{% debug %}`, `{{ self }}`,
	} {
		if got, err := renderTemplate(src, secret); !errors.Is(err, fault.TemplateError) {
			t.Errorf("%s = %v, %v; want TEMPLATE_ERROR", src, got, err)
		}
	}
	if os.Getenv("ROUX_TEST_SECRET") != "hunter2" {
		t.Fatal("the test sets its own secret")
	}
}

// A12, I20: the result depends only on the source and the variables, not on the order of
// maps or on earlier evaluations. The variables are not modified.
func TestA12_I20_Pure(t *testing.T) {
	sources := []string{
		"m", "m.map(k, m[k])", "m.filter(k, has(m.a))", "{'x': m, 'y': [m]}", "m == m", "string(m.size())",
		"m.exists(k, k == 'a') ? m : {}", "m.map(k, [k, m[k]]).flatten()",
	}
	templates := []string{"{{ m | tojson }}", "{% for k, v in m %}{{ k }}{{ v }};{% endfor %}", "{{ m }} {{ m | length }}"}
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.MapOf(rapid.StringMatching("[a-e]{1,2}"), value(2)).Draw(t, "m")
		in := map[string]any{}
		for k, v := range m {
			in[k] = v
		}
		before, _ := jsonx.AppendLimited(nil, in, 1<<20)
		for _, src := range append(sources, templates...) {
			p, err := compileEither(src, IsTemplate(src))
			if err != nil {
				t.Fatal(err)
			}
			v1, err1 := p.Eval(MapVars{"m": in})
			v2, err2 := p.Eval(MapVars{"m": copyOf(in)})
			if !reflect.DeepEqual(v1, v2) || fmt.Sprint(err1) != fmt.Sprint(err2) {
				t.Fatalf("%s: %v, %v and then %v, %v", src, v1, err1, v2, err2)
			}
		}
		if after, _ := jsonx.AppendLimited(nil, in, 1<<20); string(after) != string(before) {
			t.Fatalf("the variables changed: %s -> %s", before, after)
		}
	})
}

// value generates a JSON value.
func value(depth int) *rapid.Generator[any] {
	leaf := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Int64(), func(i int64) any { return i }),
		rapid.Map(rapid.Float64Range(-1e9, 1e9), func(f float64) any { return f }),
		rapid.Map(rapid.String(), func(s string) any { return s }),
	}
	if depth == 0 {
		return rapid.OneOf(leaf...)
	}
	in := value(depth - 1)
	return rapid.OneOf(append(leaf,
		rapid.Map(rapid.SliceOfN(in, 0, 4), func(l []any) any { return append([]any{}, l...) }),
		rapid.Map(rapid.MapOfN(rapid.StringMatching("[a-c]"), in, 0, 3), func(m map[string]any) any { return m }),
	)...)
}

func copyOf(v any) any {
	switch x := v.(type) {
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = copyOf(x[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k := range x {
			out[k] = copyOf(x[k])
		}
		return out
	}
	return v
}

// Programs, templates and schemas are safe for concurrent use.
func TestConcurrentUse(t *testing.T) {
	p, err := Compile("list.map(x, x * 2).sort()")
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := CompileTemplate("{% for x in list %}{{ x }}{% endfor %}{{ input.name | upper }}")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.Compile([]byte(`{"type": "array", "items": {"type": "integer", "maximum": 2}}`))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if v, err := p.Eval(vars); err != nil || !reflect.DeepEqual(v, []any{int64(2), int64(4), int64(6)}) {
					t.Errorf("%v, %v", v, err)
				}
				if v, err := tmpl.Eval(vars); err != nil || v != "312ADA" {
					t.Errorf("%v, %v", v, err)
				}
				if vs := schema.Validate(vars["list"]); len(vs) != 1 {
					t.Errorf("%v", vs)
				}
			}
			if _, err := Compile("a.b + c"); err != nil {
				t.Error(err)
			}
			if ps := Check("a.b + c", false, &Env{Vars: nil}, ""); len(ps) != 2 {
				t.Errorf("%v", ps)
			}
		})
	}
	wg.Wait()
}
