// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/plan"
)

func timed() *catalogue.Catalogue {
	act := func(name, least, most string) *action.Action {
		a := &action.Action{Name: name, Version: "1.0.0", Input: json.RawMessage(`{"type":"object"}`)}
		if most != "" {
			a.Metadata.DurationRange = &action.DurationRange{Min: least, Max: most}
		}
		return a
	}
	return catalogue.New(act("second", "500ms", "1500ms"), act("minute", "30s", "90s"), act("unknown", "", ""))
}

// X202, X191: without three earlier runs the duration follows from what actions declare.
func TestX202_Duration(t *testing.T) {
	for _, tt := range []struct{ name, src, want string }{
		{"a chain, with the longest way to its end", `
order: none
steps:
  - {id: a, action: {name: minute}}
  - {id: b, action: {name: second}}
  - {id: c, action: {name: second}, dependsOn: [a, b]}
`, "PT1M1S"},
		{"the example of the source", `
steps:
  - {id: a, action: {name: minute}}
  - {id: b, wait: {duration: 30s}}
  - {id: c, action: {name: minute}}
`, "PT2M30S"},
		{"a condition takes its longer side", `
steps:
  - {id: c, condition: {expression: "true", then: [{id: x, action: {name: second}}], else: [{id: y, action: {name: minute}}]}}
`, "PT1M"},
		{"a parallel step takes its longest branch", `
steps:
  - {id: p, parallel: {waitFor: any, branches: [[{id: x, action: {name: second}}, {id: x2, action: {name: second}}], [{id: y, action: {name: second}}]]}}
`, "PT2S"},
		{"a loop whose items are not known has one round", `
steps:
  - {id: a, action: {name: second}, outputBinding: made}
  - {id: l, loop: {over: made, steps: [{id: x, action: {name: minute}}]}}
`, "PT1M1S"},
		{"a loop whose items are known has rounds for all", `
steps:
  - {id: l, loop: {over: "[1, 2, 3, 4, 5]", maxConcurrency: 2, steps: [{id: x, action: {name: minute}}]}}
`, "PT3M"},
		{"a child run", `
steps:
  - {id: r, recipe: {inline: {name: below, steps: [{id: x, action: {name: minute}}]}}}
  - {id: s, recipe: {inline: {name: below, steps: [{id: x, action: {name: minute}}]}}, timeout: 20s}
`, "PT1M20S"},
		{"what declares nothing", "\nsteps:\n  - {id: a, action: {name: unknown}}\n  - {id: t, transform: {expression: \"1\"}}\n", "PT0S"},
		{"a timeout that is shorter than the range", "\nsteps:\n  - {id: a, action: {name: minute}, timeout: 50s}\n", "PT40S"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, _, _, diags := compile.Source("recipe.yaml", []byte("name: r"+tt.src), compile.Options{Actions: timed()})
			if p == nil {
				t.Fatal(diags)
			}
			for _, past := range [][]int64{nil, {1, 2}} {
				if got := plan.FormatISO(Duration(p, timed(), Known{}, past)); got != tt.want {
					t.Errorf("after %d runs: %s, want %s", len(past), got, tt.want)
				}
			}
		})
	}
}

// X202: with three earlier runs or more it is their median.
func TestX202_DurationOfEarlierRuns(t *testing.T) {
	p, _, _, diags := compile.Source("recipe.yaml", []byte("name: r\nsteps:\n  - {id: a, action: {name: minute}}\n"), compile.Options{Actions: timed()})
	if p == nil {
		t.Fatal(diags)
	}
	for _, tt := range []struct {
		past []int64
		want int64
	}{
		{[]int64{5_000, 1_000, 900_000}, 5_000},
		{[]int64{4_000, 1_000, 900_000, 3_000}, 3_500},
		{[]int64{1, 1, 2, 2}, 1},
		{[]int64{math.MaxInt64, math.MaxInt64, math.MaxInt64 - 1, 0}, math.MaxInt64 - 1},
	} {
		if got := Duration(p, timed(), Known{}, tt.past); got != tt.want {
			t.Errorf("after %v: %d, want %d", tt.past, got, tt.want)
		}
	}
}
