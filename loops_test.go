// SPDX-License-Identifier: Apache-2.0

package roux_test

import (
	"testing"

	"github.com/roux-engine/roux"
)

// The same loops in every dialect: one that accumulates, one that asks until it is done, and
// one that stops early.
var loops = map[string]string{
	"recipe": `
name: loops
steps:
  - {id: sum, loop: {over: input.prices, accumulate: {as: total, initial: "{{ input.start }}", expression: total + steps.double.output}, steps: [{id: double, transform: {expression: item * 2}}]}}
  - {id: count, loop: {while: n < 3, maxIterations: 5, accumulate: {as: n, initial: 0, expression: n + 1}, steps: [{id: at, transform: {expression: "[index, n]"}}]}}
  - {id: first, loop: {over: input.prices, until: item > 2, steps: [{id: same, transform: {expression: item}}]}}
outputs: {sum: steps.sum.output, count: steps.count.output, first: steps.first.output}
`,
	"pipeline": `
workflow:
  name: loops
  steps:
    - {name: sum, type: for_loop, over: "{{ input.prices }}", accumulate: {as: total, initial: "{{ input.start }}", expression: "{{ total + steps.double.result }}"}, steps: [{name: double, type: transform, expression: item * 2}]}
    - {name: count, type: for_loop, while: "{{ n < 3 }}", maxIterations: 5, accumulate: {as: n, initial: 0, expression: n + 1}, steps: [{name: at, type: transform, expression: "[index, n]"}]}
    - {name: first, type: for_loop, over: input.prices, until: "{{ item > 2 }}", steps: [{name: same, type: transform, expression: item}]}
  outputs: {sum: steps.sum.output, count: steps.count.output, first: steps.first.output}
`,
	"dag": `
plan_definition:
  name: loops
  nodes:
    - {id: sum, handler: loop, config: {over: input.prices, accumulate: {as: total, initial: "{{ input.start }}", expression: total + steps.double.output}, steps: [{id: double, handler: transform, config: {expression: item * 2}}]}}
    - {id: count, handler: loop, dependencies: [sum], config: {while: n < 3, maxIterations: 5, accumulate: {as: n, initial: 0, expression: n + 1}, steps: [{id: at, transform: {expression: "[index, n]"}}]}}
    - {id: first, handler: loop, dependencies: [count], config: {over: input.prices, until: item > 2, steps: [{id: same, transform: {expression: item}}]}}
  outputs: {sum: steps.sum.output, count: steps.count.output, first: steps.first.output}
`,
	"flow": `
name: loops
nodes:
  - {id: sum, loop: {over: input.prices, accumulate: {as: total, initial: "{{ input.start }}", expression: total + steps.double.output}, steps: [{id: double, transform: {expression: item * 2}}]}}
  - {id: count, loop: {while: n < 3, maxIterations: 5, accumulate: {as: n, initial: 0, expression: n + 1}, steps: [{id: at, transform: {expression: "[index, n]"}}]}}
  - {id: first, loop: {over: input.prices, until: item > 2, steps: [{id: same, transform: {expression: item}}]}}
edges: [{source_node_id: sum, target_node_id: count}, {source_node_id: count, target_node_id: first}]
outputs: {sum: steps.sum.output, count: steps.count.output, first: steps.first.output}
`,
}

// TestLoopsInEveryDialect: loops with state and conditions run in each dialect, with the
// same result.
func TestLoopsInEveryDialect(t *testing.T) {
	const want = `{"count":{"outputs":[[0,0],[1,1],[2,2]],"value":3},"first":[1,2,3],"sum":{"outputs":[2,4,6,8],"value":30}}`
	e := open(t, t.TempDir())
	for name, text := range loops {
		run, err := e.Start(t.Context(), roux.Request{Recipe: []byte(text), Input: map[string]any{"prices": []any{int64(1), int64(2), int64(3), int64(4)}, "start": int64(10)}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if res, err := e.Wait(t.Context(), run); err != nil || string(res.Outputs) != want {
			t.Errorf("%s: %s %s, %v, %v", name, res.Status, res.Outputs, res.Err, err)
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
