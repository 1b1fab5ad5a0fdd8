// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/roux-engine/roux/internal/linediff"
)

const updated = `-- r.yaml --
name: r
version: 1.0.0
inputSchema: {type: object, properties: {n: {type: integer}}}
steps:
  - id: double
    transform: {expression: input.n * 2}
    outputBinding: d
  - id: list
    transform: {expression: '[input.n, {"a": "x: y"}]'}
    outputBinding: l
outputs: {d: d, l: l, text: '"two\nlines"'}
-- r.test.yaml --
# The tests of r.
recipe: r.yaml
input: {n: 4}
tests:
  - name: inline # with a comment
    expect: {status: failed, output: {d: 9, l: [4]}} # stays
  - name: block
    expect:
      # it doubles
      status: completed # always
      output:
        d: 7 # wrong
        l:
          - 4
          # the second
          - a: x
        text: one
      # the end
      assert: [output.d == 8]
  - name: nothing

  - name: missing status
    input: {n: "four"}
    expect:
      steps: {}
-- want.yaml --
# The tests of r.
recipe: r.yaml
input: {n: 4}
tests:
  - name: inline # with a comment
    expect: {status: completed, output: {d: 8, l: [4, {a: "x: y"}]}} # stays
  - name: block
    expect:
      # it doubles
      status: completed # always
      output:
        d: 8 # wrong
        l:
          - 4
          # the second
          - a: "x: y"
        text: "two\nlines"
      # the end
      assert: [output.d == 8]
  - name: nothing
    expect:
      exactly:
        d: 8
        l:
          - 4
          - a: "x: y"
        text: |-
          two
          lines
      status: completed

  - name: missing status
    input: {n: "four"}
    expect:
      steps: {}
      status: refused
`

// Update changes what differs and nothing else: comments, quotes and the style of the rest stay.
// The tests then pass, and another update changes nothing.
func TestUpdate(t *testing.T) {
	dir := write(t, updated)
	file := filepath.Join(dir, "r.test.yaml")
	run := func() *File {
		f, err := RunFile(t.Context(), file, Config{Actions: actions(), Options: options("")})
		if err != nil || len(f.Diags) > 0 {
			t.Fatal(err, f.Format())
		}
		return f
	}
	text, changed, left := run().Update()
	want, err := os.ReadFile(filepath.Join(dir, "want.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != string(want) || changed != 8 || len(left) > 0 {
		t.Errorf("%d changed, %v left\n%s", changed, left, linediff.Unified("r.test.yaml", want, text))
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	f := run()
	for _, r := range f.Results {
		if r.Outcome != Passed {
			t.Errorf("after the update: %s: %v", r.Test, r.Mismatches)
		}
	}
	if again, changed, _ := f.Update(); changed != 0 || string(again) != string(text) {
		t.Errorf("a second update changes %d expectations", changed)
	}
}
