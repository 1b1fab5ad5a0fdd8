// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"strings"
	"testing"
)

// TestEverythingAtOnce: problems of form do not hide problems of meaning, and a
// step with a problem makes no noise elsewhere.
func TestEverythingAtOnce(t *testing.T) {
	src := `name: many
order: backwards
steps:
  - id: a
    action: {name: nowhere}
    timeout: 5mm
  - id: b
    outputBindng: x
    transform: {expression: "1"}
    outputBinding: y
  - id: c
    condition:
      expression: y == 1
      then:
        - {id: d, action: {name: nowhere}}
        - {id: e, transform: {expression: 5}}
        - {id: f, transform: {expression: nothing + 1}}
  - {id: g, dependsOn: [h], transform: {expression: "1"}}
  - {id: h, dependsOn: [g], transform: {expression: steps.a.output}}
  - id: p
    parallel:
      waitFor: all
      branches:
        - [{id: q, transform: {expression: missing}}]
        - [{id: r, wait: {duration: soon}}]
`
	_, _, _, diags := Source("many.yaml", []byte(src), Options{})
	var got []string
	for _, d := range diags {
		got = append(got, d.Rule+"@"+strings.TrimPrefix(d.Pos.String(), "many.yaml:"))
	}
	want := []string{"unknown-value@2:8", "bad-duration@6:14", "unknown-field@8:5", "unknown-action@15:34",
		"wrong-type@16:43", "undefined-name@17:43", "cycle@18:25", "undefined-name@24:44", "bad-duration@25:37"}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		for _, d := range diags {
			t.Log(d)
		}
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestX3_Deprecated: a deprecated recipe still compiles, and says so (R36).
func TestX3_Deprecated(t *testing.T) {
	p, _, _, diags := Source("old.yaml", []byte("name: old\nstatus: deprecated\nsteps: [{id: a, transform: {expression: '1'}}]\n"), Options{})
	if p == nil || len(diags) != 1 || diags[0].Rule != "deprecated" || diags[0].Pos.Line != 2 {
		t.Errorf("plan %v, diagnostics %v", p != nil, diags)
	}
}
