// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/store/memory"
)

// The output of a loop is the same whether it fits into an event or is in a file. The
// iterations include some whose last step failed and was handled, was skipped, or
// failed earlier, and other loops whose iterations have the same numbers.
func TestCollectedAsInline(t *testing.T) {
	src := `
name: same
limits: {max_total_steps: 1000000}
steps:
  - id: other
    loop: {over: input.items, as: n, steps: [{id: twice, action: {name: some, parameters: {n: '{{ n * 2 }}', pad: 'o'}}, continue_on_error: true}]}
  - id: each
    loop:
      over: input.items
      as: n
      maxConcurrency: 4
      failureStrategy: ignore
      steps:
        - {id: first, action: {name: some, parameters: {n: '{{ n }}', pad: 'f'}}, continue_on_error: true}
        - {id: last, dependsOn: [first], on_parent_failure: substitute_default, when: n % 5 != 0, action: {name: some, parameters: {n: '{{ n + 1 }}', pad: '{{ input.pad }}'}}, continue_on_error: "{{ON}}"}
outputs: {list: steps.each.output}
`
	// The action fails if n%3 is 2.
	some := newAction("some", func(_ context.Context, task *action.Task) (action.Result, error) {
		var in struct {
			N   int    `json:"n"`
			Pad string `json:"pad"`
		}
		raw, err := json.Marshal(task.Input)
		if err != nil {
			return action.Result{}, err
		}
		if err := json.Unmarshal(raw, &in); err != nil {
			return action.Result{}, err
		}
		if in.N%3 == 2 {
			return action.Result{}, fault.New(fault.FileInvalid, "%d fails on purpose", in.N)
		}
		return action.Result{Output: map[string]any{"n": in.N, "pad": in.Pad}}, nil
	})
	items := make([]any, 150)
	for i := range items {
		items[i] = int64(i)
	}
	for _, handled := range []string{"true", "false"} {
		p := planOf(t, strings.Replace(src, `"{{ON}}"`, handled, 1), some)
		var lists [2][]json.RawMessage
		for k, pad := range []string{"p", strings.Repeat("p", 20_000)} {
			files := blobs(t)
			e := openEngine(t, memory.New(memory.Options{}), Config{Files: files.Files}, some)
			run := start(t, e, p, map[string]any{"items": items, "pad": pad})
			if head := waitForEnd(t, e, run); head.Status != "completed" {
				t.Fatalf("run is %s: %s %s", head.Status, head.Code, head.Message)
			}
			if k == 1 {
				lists[k] = collected(t, e, files, run)
				continue
			}
			h, err := e.History(t.Context(), acc, run, 1)
			if err != nil {
				t.Fatal(err)
			}
			var out struct{ List []json.RawMessage }
			if err := json.Unmarshal(h.Outputs, &out); err != nil {
				t.Fatal(err)
			}
			lists[k] = out.List
		}
		if len(lists[0]) != len(items) || len(lists[1]) != len(items) {
			t.Fatalf("%d outputs inline, %d in a file", len(lists[0]), len(lists[1]))
		}
		for i := range items {
			want, err := jsonx.CanonicalRaw(lists[0][i])
			if err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(string(lists[1][i]), strings.Repeat("p", 20_000), "p")
			if got != string(want) {
				t.Fatalf("handled %s: item %d is %s inline and %.100s in a file", handled, i, want, got)
			}
		}
	}
}
