// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/service"
)

// unsteady is an action that fails until the test says otherwise, and counts its calls.
type unsteady struct {
	works atomic.Bool
	calls atomic.Int64
}

func (u *unsteady) action(name string) action.Action {
	object := json.RawMessage(`{"type":"object"}`)
	return action.Action{Name: name, Version: "1.0.0", Input: object, Output: object, Run: func(context.Context, *action.Task) (action.Result, error) {
		if u.calls.Add(1); !u.works.Load() {
			return action.Result{}, fault.New(fault.StepFailed, "not yet")
		}
		return action.Result{Output: map[string]any{"n": u.calls.Load()}}, nil
	}}
}

// statuses are those of the nodes of a workflow.
func statuses(a answer) string {
	var w struct {
		Nodes map[string]struct{ Status string }
	}
	if err := json.Unmarshal(a.body, &w); err != nil {
		a.t.Fatal(err)
	}
	var list []string
	for _, id := range []string{"a", "b", "c", "d"} {
		if n, ok := w.Nodes[id]; ok {
			list = append(list, id+" "+n.Status)
		}
	}
	return strings.Join(list, ", ")
}

// untilWorkflow asks for a workflow until it has a status.
func (s *server) untilWorkflow(token, id, status string) answer {
	s.t.Helper()
	a := s.call(token, "GET", "/workflows/"+id, nil).want(200)
	if run, ok := a.get("execution_id").(string); ok && status != "RUNNING" {
		_, _ = s.svc.Node.Engine.Wait(s.t.Context(), "acme", run)
		a = s.call(token, "GET", "/workflows/"+id, nil).want(200)
	}
	if a.text("status") != status {
		s.t.Fatalf("want %s: %s", status, a.body)
	}
	return a
}

// X20, X21, X118, X119: a workflow is validated, stored and triggered; after a failure a trigger runs again
// what has failed and what depends on it, and keeps the outputs of the others.
func TestX119_Workflows(t *testing.T) {
	before, node := &unsteady{}, &unsteady{}
	before.works.Store(true)
	s := startService(t, t.TempDir(), []action.Action{before.action("before"), node.action("node")}, func(*service.Config) {})
	acme := s.key("acme", access.Owner)
	const text = `{"nodes":[{"id":"a","handler":"before"},{"id":"b","handler":"node","dependencies":["a"]},{"id":"c","handler":"transform","config":{"expression":"b.output.n + 1"}},{"id":"d","handler":"before"}]}`
	made := s.call(acme, "POST", "/workflow", text).want(201)
	id := made.text("id")
	if made.text("status") != "PENDING" || statuses(made) != "a PENDING, b PENDING, c PENDING, d PENDING" || !strings.HasPrefix(made.text("name"), "workflow-") || made.header.Get("Location") != "/workflows/"+id {
		t.Fatalf("%s %v", made.body, made.header)
	}
	if again := s.call(acme, "POST", "/workflow", text).want(200); again.text("id") != id {
		t.Errorf("the same text again: %s", again.body)
	}
	if a := s.call(acme, "GET", "/workflows/"+id+"/results", nil).want(200); len(a.get("results").(map[string]any)) != 0 || a.text("status") != "PENDING" {
		t.Errorf("results before a run: %s", a.body)
	}
	first := s.call(acme, "POST", "/workflow/trigger/"+id, nil).want(202)
	if first.text("outcome") != "started" {
		t.Errorf("%s", first.body)
	}
	failed := s.untilWorkflow(acme, id, "FAILED")
	if got := statuses(failed); got != "a COMPLETED, b FAILED, c FAILED, d COMPLETED" || failed.text("execution_id") != first.text("execution_id") {
		t.Errorf("%s: %s", got, failed.body)
	}
	if a := s.call(acme, "GET", "/workflows/"+made.text("name")+"/results", nil).want(200); fmt.Sprint(a.get("results").(map[string]any)["a"]) == "<nil>" || len(a.get("results").(map[string]any)) != 2 {
		t.Errorf("results of a run that has failed: %s", a.body)
	}

	s.call(acme, "POST", "/workflow/trigger/"+id, `{"labels":{"x":"y"}}`).problem(fault.RequestInvalid)
	node.works.Store(true)
	calls := before.calls.Load()
	second := s.call(acme, "POST", "/workflow/trigger/"+id, nil).want(202)
	if second.text("outcome") != "retried" || second.text("execution_id") != first.text("execution_id") {
		t.Errorf("%s", second.body)
	}
	done := s.untilWorkflow(acme, id, "COMPLETED")
	if got := statuses(done); got != "a COMPLETED, b COMPLETED, c COMPLETED, d COMPLETED" || before.calls.Load() != calls {
		t.Errorf("%s, %d calls of what had completed", got, before.calls.Load()-calls)
	}
	if a := s.call(acme, "GET", "/workflows/"+first.text("execution_id")+"/results", nil).want(200); fmt.Sprint(a.get("results").(map[string]any)["c"]) != fmt.Sprint(node.calls.Load()+1) {
		t.Errorf("%s", a.body)
	}
	// A run that has completed is over.
	if third := s.call(acme, "POST", "/workflow/trigger/"+id, nil).want(202); third.text("outcome") != "started" || third.text("execution_id") == first.text("execution_id") {
		t.Errorf("%s", third.body)
	}
}

// X21: what cannot run is refused before it is stored, with the place of each problem.
func TestX21_WorkflowsAreChecked(t *testing.T) {
	s := start(t)
	acme := s.key("acme", access.Owner)
	for text, want := range map[string]string{
		`{"nodes":[{"id":"a","handler":"gate","dependencies":["b"]},{"id":"b","handler":"gate","dependencies":["a"]}]}`: "CIRCULAR_DEPENDENCY",
		`{"nodes":[{"id":"a","handler":"gate","dependencies":["x"]}]}`:                                                  `no step has the id \"x\"`,
		`{"nodes":[{"id":"a","handler":"gate"},{"id":"a","handler":"gate"}]}`:                                           "two steps have the id",
		`{"nodes":[]}`: "want at least one entry",
	} {
		if a := s.call(acme, "POST", "/workflow", text).want(422); !strings.Contains(string(a.body), want) {
			t.Errorf("%s: want %q: %s", text, want, a.body)
		}
	}
	if n := len(s.call(acme, "GET", "/v1/recipes", nil).want(200).get("data").([]any)); n != 0 {
		t.Errorf("%d are stored", n)
	}
	s.call(acme, "GET", "/workflows/none", nil).problem(fault.RecipeNotFound)
	s.call(acme, "POST", "/workflow/trigger/run_00000000000000000000000000", nil).problem(fault.RunNotFound)
	viewer := s.key("acme", access.Viewer)
	rival := s.key("rival", access.Owner)
	theirs := s.call(rival, "POST", "/v1/files?name=a.txt", "of rival", "Content-Type", "text/plain").want(201).text("hash")
	s.call(acme, "POST", "/workflow", `{"name":"draft","status":"draft","nodes":[{"id":"a","handler":"gate"}]}`).want(201)
	s.call(acme, "POST", "/workflow/trigger/draft", nil).problem(fault.Conflict)
	s.call(viewer, "POST", "/workflow", greet).problem(fault.Forbidden)
	s.register(acme, greet)
	s.call(viewer, "POST", "/workflow/trigger/greet", nil).problem(fault.Forbidden)
	s.call(viewer, "GET", "/workflows/greet", nil).want(200)
	s.call(acme, "POST", "/workflow/trigger/greet", `{"parameters":"x"}`).problem(fault.RequestInvalid)
	s.call(acme, "POST", "/workflow/trigger/greet", `{"parameters":{}}`).problem(fault.InputInvalid)
	s.call(acme, "POST", "/workflow/trigger/greet", `{"labels":{"":"x"}}`).problem(fault.RequestInvalid)
	s.call(acme, "POST", "/workflow/trigger/greet", `{"parameters":{"name":"a"},"fileHashes":["`+theirs+`"]}`).problem(fault.FileNotFound)
	if a := s.call(acme, "GET", "/workflows/greet", nil).want(200); a.text("status") != "PENDING" {
		t.Errorf("something has started: %s", a.body)
	}
	s.call(rival, "GET", "/workflows/greet", nil).problem(fault.RecipeNotFound)
}

// I13: of several triggers at once one starts a run, and of several after a failure one goes on with it.
func TestI13_TriggersAtOnce(t *testing.T) {
	node := &unsteady{}
	s := startService(t, t.TempDir(), []action.Action{node.action("node")}, func(*service.Config) {})
	acme := s.key("acme", access.Owner)
	s.call(acme, "POST", "/workflow", `{"name":"one","version":"1.0.0","nodes":[{"id":"a","handler":"node"},{"id":"b","handler":"gate","dependencies":["a"]}]}`).want(201)
	at := func(want string) (run string) {
		t.Helper()
		outcomes, runs := map[string]int{}, map[string]bool{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				a, err := s.send(acme, "POST", "/workflow/trigger/one", `{}`)
				mu.Lock()
				defer mu.Unlock()
				if err != nil || a.status != 202 {
					t.Errorf("%d %s, %v", a.status, a.body, err)
					return
				}
				outcomes[a.text("outcome")]++
				run = a.text("execution_id")
				runs[run] = true
			})
		}
		all.Wait()
		if outcomes[want] != 1 || outcomes["active"] != 7 || len(runs) != 1 {
			t.Errorf("%v, %v", outcomes, runs)
		}
		return run
	}
	node.works.Store(true)
	first := at("started") // it waits in b
	s.call(acme, "POST", "/v1/recipe-executions/"+first+"/cancel", nil).want(200)
	if a := s.untilWorkflow(acme, "one", "CANCELLED"); statuses(a) != "a COMPLETED, b CANCELLED" {
		t.Errorf("%s", a.body)
	}
	second := at("started")
	close(s.gate)
	s.untilWorkflow(acme, second, "COMPLETED")
}

// X103: a workflow and its inputs are started once, unless a request has a key of its own. Its events are
// those of the flow source (X197).
func TestX103_ExecuteWorkflow(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.call(dev, "POST", "/workflow", "name: twice\nnodes:\n  - {id: a, transform: {expression: input.n}}\n  - {id: b, transform: {expression: '1'}}\n"+
		"edges: [{source_node_id: a, target_node_id: b}]\n").want(201)
	first := s.call(dev, "POST", "/execute/workflows", `{"workflowId":"twice","rootInputs":{"n":1,"m":[]}}`).want(202)
	run := first.text("runId")
	if want := fmt.Sprintf("%x", sha256.Sum256([]byte(`twice{"m":[],"n":1}`))); first.text("idempotencyKey") != want || first.text("version") != "0.0.0" {
		t.Errorf("%s, want the key %s", first.body, want)
	}
	again := s.call(dev, "POST", "/execute/workflows", `{"rootInputs":{"m":[], "n":1.0},"workflowId":"twice"}`).want(202)
	if again.text("runId") != run || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s: another run than %s", again.body, run)
	}
	if other := s.call(dev, "POST", "/execute/workflows", `{"workflowId":"twice","rootInputs":{"n":2}}`).want(202); other.text("runId") == run {
		t.Error("another input has the same run")
	}
	none := s.call(dev, "POST", "/execute/workflows", `{"workflowId":"twice"}`).want(202).text("runId")
	for _, inputs := range []string{"null", "{}"} {
		if got := s.call(dev, "POST", "/execute/workflows", `{"workflowId":"twice","rootInputs":`+inputs+`}`).want(202).text("runId"); got != none {
			t.Errorf("rootInputs %s: another run than without", inputs)
		}
	}
	if end, err := s.svc.Node.Engine.Wait(t.Context(), "acme", run); err != nil || end.Status != "completed" {
		t.Errorf("%+v, %v", end, err)
	}
	var names []string
	s.events(dev, run, "", func(e event) bool {
		names = append(names, e.name)
		return true
	})
	if !slices.Contains(names, "node.completed") || first.text("eventsUrl") != "/execute/workflows/"+run+"/events" {
		t.Errorf("events %v", names)
	}
	for body, code := range map[string]fault.Code{
		`{"rootInputs":{}}`:                            fault.RequestInvalid,
		`{"workflowId":"none"}`:                        fault.RecipeNotFound,
		`{"workflowId":"twice","rootInputs":[1]}`:      fault.RequestInvalid,
		`{"workflowId":"twice","fileHashes":["nope"]}`: fault.FileNotFound,
		`{"workflowId":"twice","input":{}}`:            fault.RequestInvalid,
		`{"workflowId":"twice","rootInputs":"n"}`:      fault.RequestInvalid,
	} {
		s.call(dev, "POST", "/execute/workflows", body).problem(code)
	}
	s.call(s.key("rival", access.Developer), "POST", "/execute/workflows", `{"workflowId":"twice"}`).problem(fault.RecipeNotFound)
	s.call(s.key("acme", access.Viewer), "POST", "/execute/workflows", `{"workflowId":"twice"}`).problem(fault.Forbidden)
}
