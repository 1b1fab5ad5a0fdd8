// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/roux-engine/roux/internal/expr"
)

// TestKeptIsComputed compares what is kept with what package expr says, for sources, types and wishes that differ in
// one thing each: nothing that is kept for one may answer for another.
func TestKeptIsComputed(t *testing.T) {
	m := NewLasting()
	number, text := json.RawMessage(`{"type":"integer"}`), json.RawMessage(`{"type":"string"}`)
	for range 2 { // computed, then kept
		for _, src := range []string{"a + 1", "a + b", "a +", "{{ a }}", "size(a) > 1"} {
			for _, template := range []bool{false, true} {
				prog := m.Program(src, template)
				compile := expr.Compile
				if template {
					compile = expr.CompileTemplate
				}
				want, wrong := compile(src)
				if (len(prog.Problems) == 0) != (wrong == nil) || wrong == nil && !reflect.DeepEqual(prog.Refs, want.Refs()) {
					t.Errorf("Program(%q, %v) = %v, want %v", src, template, prog, wrong)
				}
				for _, env := range []*expr.Env{
					{}, {Vars: map[string]json.RawMessage{"a": number}}, {Vars: map[string]json.RawMessage{"a": text}}, {Vars: map[string]json.RawMessage{"a": number, "b": text}},
					{Vars: map[string]json.RawMessage{"a": nil, "b": nil}}, {Vars: map[string]json.RawMessage{"a": nil}, Cost: 1},
				} {
					for _, wish := range []string{"", "int", "bool"} {
						if got, want := m.Check(src, template, env, wish), expr.Check(src, template, env, wish); !reflect.DeepEqual(got, want) {
							t.Errorf("Check(%q, %v, %v, %q) = %v, want %v", src, template, env, wish, got, want)
						}
					}
					raw, _ := json.Marshal(map[string]any{"x": src})
					if got, want := m.CheckTree(raw, env), expr.CheckTree(raw, env); !reflect.DeepEqual(got, want) {
						t.Errorf("CheckTree(%s, %v) = %v, want %v", raw, env, got, want)
					}
				}
			}
		}
		for _, secrets := range []bool{false, true} {
			_, ps := m.Tree(json.RawMessage(`{"x":"{{ secret('a') }}"}`), secrets)
			if (len(ps) == 0) != secrets {
				t.Errorf("a secret where secrets are %v: %v", secrets, ps)
			}
		}
	}
}

// TestSchemaIsCompiledOnce: the same text has the same schema, and one that is none has its reason each time.
func TestSchemaIsCompiledOnce(t *testing.T) {
	m := NewLasting()
	a, err := m.Schema(json.RawMessage(`{"type":"integer"}`))
	b, again := m.Schema(json.RawMessage(`{"type":"integer"}`))
	if err != nil || again != nil || a != b || len(a.Validate("x")) == 0 {
		t.Errorf("%v, %v, %v, %v", a, err, b, again)
	}
	for range 2 {
		if s, err := m.Schema(json.RawMessage(`{"type":"nothing"}`)); err == nil || s != nil {
			t.Errorf("%v, %v", s, err)
		}
	}
}

// TestLastingCacheIsBounded: sources of more than its size together are not kept.
func TestLastingCacheIsBounded(t *testing.T) {
	m := NewLasting()
	for i := range 200 {
		src, _ := json.Marshal(string(make([]byte, 100_000+i)))
		_ = m.Check(string(src), true, &expr.Env{}, "")
		if m.bytes > maxBytes+len(src) {
			t.Fatalf("%d bytes are kept", m.bytes)
		}
	}
}
