// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"testing"

	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/yamlx"
)

// TestKeyOrder: the order contains every field of the model, at every depth, and not the
// names that authors choose.
func TestKeyOrder(t *testing.T) {
	const src = `# top
outputs: {z: a, a: z}
# why
steps:
  - transform: {expression: x} # what
    when: 'true'
    id: b
  - loop:
      steps:
        - action: {parameters: {z: 1, a: 2}, name: n}
          id: inner
      over: input.x
      maxConcurrency: 2
inputSchema: {required: [x], type: object}
name: order
`
	const want = `# top
name: order
inputSchema: {required: [x], type: object}
# why
steps:
  - id: b
    when: 'true'
    transform: {expression: x} # what
  - loop:
      over: input.x
      maxConcurrency: 2
      steps:
        - id: inner
          action: {name: n, parameters: {z: 1, a: 2}}
outputs: {z: a, a: z}
`
	got, problems := yamlx.Format([]byte(src), jsonx.Limits{}, Form.KeyOrder())
	if len(problems) > 0 || string(got) != want {
		t.Errorf("%v\n%s", problems, got)
	}
	wrapped, problems := yamlx.FormatJSON([]byte(`{"plan_definition": {"steps": [{"fail": {"message": "m", "code": "C"}, "id": "a"}], "name": "n"}}`), jsonx.Limits{}, Form.KeyOrder())
	const wantJSON = `{
  "plan_definition": {
    "name": "n",
    "steps": [
      {
        "id": "a",
        "fail": {
          "code": "C",
          "message": "m"
        }
      }
    ]
  }
}
`
	if len(problems) > 0 || string(wrapped) != wantJSON {
		t.Errorf("%v\n%s", problems, wrapped)
	}
}
