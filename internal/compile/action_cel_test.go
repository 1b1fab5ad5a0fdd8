// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
)

// Inputs that are CEL expressions are checked at compile time, anywhere in a value, with
// the variables that the action provides.
func TestInputsThatHoldCEL(t *testing.T) {
	const cel = `{"type":"string","x-cel":["row"]}`
	actions := catalogue.New(&action.Action{Name: "query", Version: "1.0.0", Input: json.RawMessage(`{"type":"object","properties":{
		"where":` + cel + `,"select":{"type":"object","additionalProperties":` + cel + `},
		"by":{"type":"array","items":{"type":"object","properties":{"of":` + cel + `}}},"text":{"type":"string"}}}`)})
	for params, want := range map[string]string{
		`{where: row.n > 1, select: {a: row.b}, by: [{of: row.c}], text: "rwo +"}`: "",
		`{where: rwo.n > 1}`:                    `q.yaml:6:27 undefined-name undefined: rwo`,
		`{select: {a: row.a, b: "row +"}}`:      "syntax the expression ends too early",
		`{by: [{of: row.c}, {of: input.x}]}`:    "undefined-name undefined: input",
		`{where: "{{ input.where }}"}`:          "",
		`{where: "row.n > {{ input.n }}"}`:      "template-in-cel a template writes a part",
		`{where: "{{ input.a }}{{ input.b }}"}`: "template-in-cel a template writes a part",
	} {
		src := "name: q\nsteps:\n  - id: a\n    action:\n      name: query\n      parameters: " + params + "\n"
		_, _, _, diags := compile.Source("q.yaml", []byte(src), compile.Options{Actions: actions})
		got := ""
		for _, d := range diags {
			got += d.Pos.String() + " " + d.Rule + " " + d.Msg + "\n"
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s:\ngot  %s\nwant %s", params, got, want)
		}
	}
}
