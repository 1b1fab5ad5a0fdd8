// SPDX-License-Identifier: Apache-2.0

package roux_test

import (
	"context"
	"fmt"
	"os"
	"time"

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

// An account pays for its runs. A run whose account has no credits left waits; after a
// grant it goes on.
func ExampleEngine_Grant() {
	dir, _ := os.MkdirTemp("", "roux")
	defer os.RemoveAll(dir)
	ctx := context.Background()
	call := action.Action{Name: "call", Version: "1.0.0", Price: "2.5", Run: func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{}, nil
	}}
	e, err := roux.Open(ctx, roux.Options{Dir: dir, Actions: []action.Action{call}, Account: "acme"})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	calls := roux.Request{MaxCredits: 100, Recipe: []byte(`
name: calls
creditEstimation: {strategy: fixed, fixedCredits: 4, maxCredits: 50}
steps:
  - {id: each, loop: {over: "[1, 2, 3]", maxConcurrency: 1, steps: [{id: call, action: {name: call}}]}}
`)}
	_, err = e.Start(ctx, calls)
	fmt.Println(fault.CodeOf(err))
	if _, err := e.Grant(ctx, roux.Grant{Key: "first", Amount: 5}); err != nil {
		panic(err)
	}
	run, err := e.Start(ctx, calls)
	if err != nil {
		panic(err)
	}
	for ev, err := range e.Watch(ctx, run, 0) {
		if err != nil {
			panic(err)
		}
		if ev.Type == "node.blocked" && ev.Payload["lacksCredits"] == true {
			fmt.Println(ev.Step, ev.Payload["reason"])
			if _, err := e.Grant(ctx, roux.Grant{Key: "more", Amount: 10}); err != nil {
				panic(err)
			}
		}
	}
	result, err := e.Wait(ctx, run)
	fmt.Println(result.Status, result.Credits, err)
	balance, err := e.Balance(ctx, time.Time{})
	fmt.Println(balance.Spent, balance.Available, err)
	for entry, err := range e.Entries(ctx, 0) {
		fmt.Println(entry.Number, entry.Kind, entry.Amount, entry.Lots, err)
	}
	// Output:
	// INSUFFICIENT_CREDITS
	// each[2].call waits for 3 credits; account acme has 0 available
	// completed 8 <nil>
	// 8 7 <nil>
	// 1 grant 5 [{first 5}] <nil>
	// 2 reserve 5 [{first 5}] <nil>
	// 3 grant 10 [{more 10}] <nil>
	// 4 extend 3 [{more 3}] <nil>
	// 5 settle 8 [{first 5} {more 3}] <nil>
}
