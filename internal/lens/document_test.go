// SPDX-License-Identifier: Apache-2.0

package lens

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const summarize = `lens: summarize
version: "2"
model: small
template: |
  Summarize in {{ language }}: {{ text }}
contracts:
  input: {type: object, required: [text]}
  output: null
`

// A file is YAML or JSON; a contract that is null is none.
func TestParse(t *testing.T) {
	want := Document{Lens: "summarize", Version: "2", Model: "small", Template: "Summarize in {{ language }}: {{ text }}\n"}
	for name, text := range map[string]string{
		"a.yaml": summarize,
		"a.json": `{"lens": "summarize", "version": "2", "model": "small", "template": "Summarize in {{ language }}: {{ text }}\n", "contracts": {"input": {"type": "object", "required": ["text"]}}}`,
	} {
		d, src, diags := Parse(name, []byte(text))
		if d == nil || src == nil || len(diags) != 0 || !Is(name, []byte(text)) {
			t.Errorf("%s: %v", name, diags)
			continue
		}
		if string(d.Contracts.Input) != `{"required":["text"],"type":"object"}` || d.Contracts.Output != nil {
			t.Errorf("%s: contracts %s, %s", name, d.Contracts.Input, d.Contracts.Output)
		}
		got := *d
		if got.Contracts = (Contracts{}); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, text := range []string{
		"lens: a\ntemplate: x\n", "lens: a\nversion: null\nmodel: ~\ntemplate: x\ncontracts:\n", "lens: a\ntemplate: x\ncontracts:\n  input:\n  output: null\n",
	} {
		if d, _, diags := Parse("a.yaml", []byte(text)); d == nil || d.Version+d.Model != "" || d.Contracts.Input != nil || d.Contracts.Output != nil || len(diags) != 0 {
			t.Errorf("%q: %+v, %v", text, d, diags)
		}
	}
}

// Problems are listed with their places.
func TestParseProblems(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"lens: a\ntemplat: x\n", `a.yaml:2:1: error RECIPE_INVALID/unknown-field: a lens has no field "templat"; did you mean "template"?`},
		{"lens: a\n", `a lens needs the field "template"`},
		{"lens: a\ntemplate: \"  \"\n", `a.yaml:2:11: error RECIPE_INVALID/bad-text`},
		{"lens: a\ntemplate: '{{ a | nothing }}'\n", `a.yaml:2:11: error RECIPE_INVALID/bad-template`},
		{"lens: a@1\ntemplate: x\n", `a.yaml:1:7: error RECIPE_INVALID/bad-text: lens "a@1": want 1 to 64 letters`},
		{"lens: a\nversion: 2\ntemplate: x\n", `a.yaml:2:10: error RECIPE_INVALID/wrong-type`},
		{"lens: a\ntemplate: x\ncontracts: {inputs: {}}\n", `a.yaml:3:13: error RECIPE_INVALID/unknown-field: contracts has no field "inputs"; did you mean "input"?`},
		{"lens: a\ntemplate: x\ncontracts: {bogus: null}\n", `a.yaml:3:13: error RECIPE_INVALID/unknown-field: contracts has no field "bogus"`},
		{"lens: a\ntemplate: x\nmodel: '{{ b }}'\n", `a.yaml:3:8: error RECIPE_INVALID/bad-text: the model of a lens is a name, and no template`},
		{"lens: a\ntemplate: '{{ a + now() }} {{ uuid() }}'\n", `a.yaml:2:11: error RECIPE_INVALID/bad-template: the template calls now(), and a lens only has its placeholders`},
		{"lens: a\ntemplate: '{{ secret(\"key\") }}'\n", `a.yaml:2:11: error RECIPE_INVALID/bad-template`},
		{"lens: a\nversion: '9999999999999999'\ntemplate: x\n", `a.yaml:2:10: error RECIPE_INVALID/bad-text: a version of only digits has at most 15, and this one has 16`},
		{"lens: null\ntemplate: x\n", `a.yaml:1:7: error RECIPE_INVALID`},
		{"lens: a\ntemplate: x\ncontracts: {input: text}\n", `a.yaml:3:20: error RECIPE_INVALID/wrong-type`},
		{"lens: a\ntemplate: x\ncontracts:\n  output: {type: objekt}\n", `a.yaml:4:11: error RECIPE_INVALID/bad-schema: contracts.output is no JSON Schema`},
		{"lens: a\ntemplate: " + strings.Repeat("x", MaxTemplate+1) + "\n", `a.yaml:2:11: error RECIPE_INVALID/too-large: template has 262145 bytes, the limit is 262144`},
		{"lens: a\nlens: b\ntemplate: x\n", `a.yaml:2:1: error RECIPE_INVALID/duplicate`},
		{"lens: a\ntemplate: [x\n", `a.yaml:2`},
		{"lens: a\ntemplate: " + strings.Repeat("x", MaxDocument), `the lens has 2097170 bytes, the limit is 2097152`},
	} {
		d, src, diags := Parse("a.yaml", []byte(tt.text))
		if d != nil || src == nil || len(diags) != 1 || !strings.Contains(diags[0].String(), tt.want) {
			t.Errorf("%.60q: %v\nwant %s", tt.text, diags, tt.want)
		}
	}
	if _, _, diags := Parse("a.yaml", []byte("lens: .a\nversion: a b\ntemplate: ''\n")); len(diags) != 3 {
		t.Errorf("not all problems are listed: %v", diags)
	}
	for _, text := range []string{"", "[]", "name: lens\nsteps: []\n", "lenses: {lens: a}\n", "steps: [{id: a, lens: b}]\n", "name: a\nlens: b\nsteps: []\n", "lens: b\nnodes: []\n", "lens: b\nworkflow: {}\n"} {
		if Is("a.yaml", []byte(text)) {
			t.Errorf("%q is a lens", text)
		}
	}
	for _, text := range []string{"lens: a\nteplate: x\n", "lens: a\ntemplate: x\nsteps: []\n"} {
		if !Is("a.yaml", []byte(text)) {
			t.Errorf("%q is no lens", text)
		}
	}
}

// Documents are put in the order that makes the highest version the current one.
func TestOrder(t *testing.T) {
	list := []*Document{{Lens: "b"}, {Lens: "a"}, {Lens: "a", Version: "10"}, {Lens: "b", Version: "1"}, {Lens: "a", Version: "9"}}
	slices.SortFunc(list, Order)
	var got []string
	for _, d := range list {
		got = append(got, d.Lens+d.Version)
	}
	if !slices.Equal(got, []string{"a9", "a10", "a", "b1", "b"}) {
		t.Errorf("the order is %q", got)
	}
}
