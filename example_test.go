// SPDX-License-Identifier: Apache-2.0

package roux_test

import (
	"context"
	"fmt"
	"os"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

func Example() {
	dir, _ := os.MkdirTemp("", "roux")
	defer os.RemoveAll(dir)
	ctx := context.Background()
	greet := action.Action{Name: "greet", Version: "1.0.0", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		var in struct{ Name string }
		err := task.Decode(&in)
		return action.Result{Output: map[string]any{"text": "Hello, " + in.Name + "!"}}, err
	}}
	e, err := roux.Open(ctx, roux.Options{Dir: dir, Actions: []action.Action{greet}})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	run, err := e.Start(ctx, roux.Request{Input: map[string]any{"name": "Ada"}, Recipe: []byte(`
name: hello
steps:
  - {id: hello, action: {name: greet, parameters: {name: "{{ input.name }}"}}}
outputs: {text: hello.output.text}
`)})
	if err != nil {
		panic(err)
	}
	result, err := e.Wait(ctx, run)
	fmt.Println(result.Status, string(result.Outputs), err)
	// Output: completed {"text":"Hello, Ada!"} <nil>
}

// A run that reached a limit continues with a higher one; completed steps are
// kept.
func ExampleEngine_RetryWith() {
	dir, _ := os.MkdirTemp("", "roux")
	defer os.RemoveAll(dir)
	ctx := context.Background()
	e, err := roux.Open(ctx, roux.Options{Dir: dir})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	run, err := e.Start(ctx, roux.Request{Recipe: []byte(`
name: letters
limits: {max_total_steps: 3}
steps:
  - id: each
    loop: {over: "['a', 'b', 'c']", steps: [{id: x, transform: {expression: item}}]}
outputs: {all: each.output}
`)})
	if err != nil {
		panic(err)
	}
	result, err := e.Wait(ctx, run)
	fmt.Println(result.Status, fault.CodeOf(result.Err), err)
	if err := e.RetryWith(ctx, run, roux.RetryOptions{Limits: roux.Limits{MaxTotalSteps: 10}}); err != nil {
		panic(err)
	}
	result, err = e.Wait(ctx, run)
	fmt.Println(result.Status, string(result.Outputs), err)
	// Output:
	// failed STEP_LIMIT <nil>
	// completed {"all":["a","b","c"]} <nil>
}
