// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/internal/lease"
)

// X243: the steps of child runs are carried out by several workers at once, each of which takes as much as it can, and a
// task whose worker is gone goes to another one when its lease has ended. The server itself does none of the work.
func TestX243_ChildRunsOnSeveralWorkers(t *testing.T) {
	const workers, children = 3, 40
	p, s, url := withWorkers(t, func(spec *lease.Spec) { spec.Lease = "1s" })
	if status, out := ask(t, "POST", url+"/v1/recipes", "", `{"name": "many", "version": "1.0.0", "steps": [{"id": "each", "loop": {"over": "lists.range(40)", "as": "n", "maxConcurrency": 20, "steps": [
		{"id": "part", "recipe": {"inline": {"name": "part", "steps": [{"id": "d", "action": {"name": "double"}, "inputBindings": {"n": "input.n"}, "outputBinding": "x"}], "outputs": {"n": "x.n"}}}, "inputBindings": {"n": "n"}}]}}],
		"outputs": {"numbers": "steps.each.output.map(e, e.n)"}}`); status != 201 {
		t.Fatal(status, out)
	}
	status, started := ask(t, "POST", url+"/v1/recipes/many/execute", "", `{}`)
	if status != 202 {
		t.Fatal(status, started)
	}
	gone := leased(t, url) // by a worker that dies with its task

	var together sync.WaitGroup // all workers are at work at the same time
	together.Add(workers)
	var tasks [workers]atomic.Int32
	var ended sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for i := range workers {
		c, err := client.New(client.Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		var first sync.Once
		w := client.Worker{Client: c, Queue: "default", Concurrency: 4, Actions: []action.Action{{Name: "double", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
			tasks[i].Add(1)
			first.Do(func() {
				together.Done()
				together.Wait()
			})
			var in struct{ N int }
			if err := task.Decode(&in); err != nil {
				return action.Result{}, err
			}
			return action.Result{Output: map[string]any{"n": 2 * in.N}}, nil
		}}}}
		ended.Go(func() { _ = w.Run(ctx) })
	}
	run := started["executionId"].(string)
	head, err := s.Node.Engine.Wait(t.Context(), "local", run)
	if err != nil || head.Status != "completed" {
		t.Fatalf("%+v, %v", head, err)
	}
	_, out := ask(t, "GET", url+"/v1/recipe-executions/"+run, "", "")
	want := make([]any, children)
	for i := range want {
		want[i] = float64(2 * i)
	}
	if got := fmt.Sprint(out["outputs"]); got != fmt.Sprint(map[string]any{"numbers": want}) {
		t.Errorf("the result is %s", got)
	}
	sum := int32(0)
	for i := range tasks {
		n := tasks[i].Load()
		if sum += n; n == 0 {
			t.Errorf("worker %d had no task", i)
		}
	}
	if sum != children { // with the one that was leased before, which has an attempt more
		t.Errorf("the workers had %d tasks, want %d", sum, children)
	}
	if got := finish(t, url, gone["lease"].(string), `"output": {"n": 1}`); got != "ended" {
		t.Errorf("the result of the worker that was gone is %s", got)
	}
	stop()
	ended.Wait()
	p.close(s)
}
