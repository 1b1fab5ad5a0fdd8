// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/service"
)

// doubles is an action that is carried out by workers.
var doubles = lease.Spec{
	Input:  json.RawMessage(`{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}`),
	Output: json.RawMessage(`{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}`),
}

// withWorkers starts a server whose action double is carried out by workers.
func withWorkers(t testing.TB, change func(*lease.Spec)) (*place, *service.Service, string) {
	t.Helper()
	p := newPlace(t)
	spec := doubles
	if change != nil {
		change(&spec)
	}
	if err := p.actions.AddWorkers(map[string]lease.Spec{"double": spec}); err != nil {
		t.Fatal(err)
	}
	s, url := p.must(func(cfg *service.Config) { cfg.Open = true })
	if status, out := ask(t, "POST", url+"/v1/recipes", "", `{"name": "r", "version": "1.0.0", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
		"steps": [{"id": "d", "action": {"name": "double", "parameters": {"n": "{{ input.n }}"}}, "outputBinding": "x"}], "outputs": {"n": "x.n"}}`); status != 201 {
		t.Fatal(status, out)
	}
	return p, s, url
}

func execute(t testing.TB, url string, n int) string {
	t.Helper()
	status, run := ask(t, "POST", url+"/v1/recipes/r/execute", "", fmt.Sprintf(`{"parameters": {"n": %d}}`, n))
	if status != 202 {
		t.Fatal(status, run)
	}
	return run["executionId"].(string)
}

// leased asks for tasks until there is one.
func leased(t *testing.T, url string) map[string]any {
	t.Helper()
	for {
		status, out := ask(t, "POST", url+"/v1/workers/lease", "", `{"queue": "default", "waitMs": 20000}`)
		if status != 200 {
			t.Fatal(status, out)
		}
		if list := out["tasks"].([]any); len(list) > 0 {
			return list[0].(map[string]any)
		}
	}
}

func finish(t *testing.T, url, lease, result string) string {
	t.Helper()
	status, out := ask(t, "POST", url+"/v1/workers/results", "", `{"results": [{"lease": "`+lease+`", `+result+`}]}`)
	if status != 200 {
		t.Fatal(status, out)
	}
	return out["results"].([]any)[0].(map[string]any)["status"].(string)
}

// A remote worker gets a task, extends its lease, and its result is that of the step.
func TestRemoteWorker(t *testing.T) {
	p, s, url := withWorkers(t, nil)
	run := execute(t, url, 21)
	task := leased(t, url)
	if input, _ := json.Marshal(task["input"]); string(input) != `{"n":21}` || task["run"] != run || task["attempt"] != 1.0 || task["effectKey"] == "" {
		t.Fatalf("%v", task)
	}
	token := task["lease"].(string)
	if status, out := ask(t, "POST", url+"/v1/workers/heartbeat", "", `{"leases": ["`+token+`", "no such"], "reports": [{"lease": "`+token+`", "fraction": 0.5, "text": "half", "log": "a line"}]}`); status != 200 || fmt.Sprint(out["ended"]) != "[no such]" {
		t.Errorf("%d %v", status, out)
	}
	if got := finish(t, url, token, `"output": {"n": 42}`); got != "recorded" {
		t.Error(got)
	}
	if head, err := s.Node.Engine.Wait(t.Context(), "local", run); err != nil || head.Status != "completed" {
		t.Fatalf("%+v, %v", head, err)
	}
	if got := finish(t, url, token, `"output": {"n": 43}`); got != "ended" {
		t.Errorf("a second result is %s", got)
	}
	p.close(s)
}

// I3, I22: leases outlive a restart, and a worker goes on with its task.
func TestLeaseOutlivesARestart(t *testing.T) {
	p, s, url := withWorkers(t, nil)
	run := execute(t, url, 1)
	task := leased(t, url)
	p.close(s)
	p.actions = node.NewActions(nil) // the tasks are read from the store
	t.Cleanup(p.actions.Close)
	if err := p.actions.AddWorkers(map[string]lease.Spec{"double": doubles}); err != nil {
		t.Fatal(err)
	}
	s, url = p.must(func(cfg *service.Config) { cfg.Open = true })
	token := task["lease"].(string)
	if status, out := ask(t, "POST", url+"/v1/workers/heartbeat", "", `{"leases": ["`+token+`"]}`); status != 200 || len(out["ended"].([]any)) != 0 {
		t.Errorf("%d %v", status, out)
	}
	if got := finish(t, url, token, `"output": {"n": 2}`); got != "recorded" {
		t.Error(got)
	}
	if head, err := s.Node.Engine.Wait(t.Context(), "local", run); err != nil || head.Status != "completed" {
		t.Fatalf("%+v, %v", head, err)
	}
	p.close(s)
}

// Results of a request may have 32 MiB together, as the operation says.
func TestLargeResult(t *testing.T) {
	p, s, url := withWorkers(t, func(spec *lease.Spec) { spec.Output = json.RawMessage(`{"type": "object"}`) })
	execute(t, url, 1)
	token := leased(t, url)["lease"].(string)
	if got := finish(t, url, token, `"output": {"n": 1, "text": "`+strings.Repeat("x", 2<<20)+`"}`); got != "recorded" {
		t.Error(got)
	}
	p.close(s)
}

// A worker in Go carries out tasks, reports, fails, and is stopped with its run.
func TestGoWorker(t *testing.T) {
	p, s, url := withWorkers(t, func(spec *lease.Spec) { spec.Lease = "2s" })
	c, err := client.New(client.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	w := client.Worker{Client: c, Queue: "default", Concurrency: 8, Actions: []action.Action{{Name: "double", Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
		var in struct{ N int }
		if err := task.Decode(&in); err != nil {
			return action.Result{}, err
		}
		switch in.N {
		case -1:
			return action.Result{}, fault.New(fault.RateLimited, "slowly")
		case -2:
			panic("on purpose")
		case -3:
			task.Report.Progress(0.5, "half")
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return action.Result{}, ctx.Err()
		case -4:
			info, err := task.Files.Put(ctx, strings.NewReader("hello"), "a.txt", "text/plain")
			if err != nil {
				return action.Result{}, err
			}
			f, err := task.Files.Open(ctx, info.Hash)
			if err != nil {
				return action.Result{}, err
			}
			return action.Result{Output: map[string]any{"n": f.Info().Size}}, nil
		}
		return action.Result{Output: map[string]any{"n": 2 * in.N}}, nil
	}}}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for n, want := range map[int]string{21: `"n":42`, -1: "RATE_LIMITED", -2: "panicked", -4: `"n":5`} {
		run := execute(t, url, n)
		if _, err := s.Node.Engine.Wait(t.Context(), "local", run); err != nil {
			t.Fatal(err)
		}
		_, out := ask(t, "GET", url+"/v1/recipe-executions/"+run, "", "")
		if text, _ := json.Marshal(out); !strings.Contains(string(text), want) {
			t.Errorf("%d: %s", n, text)
		}
	}
	run := execute(t, url, -3)
	untilEvent(t, url, run, "half")
	if status, out := ask(t, "POST", url+"/v1/recipe-executions/"+run+"/cancel", "", ""); status != 202 && status != 200 {
		t.Fatal(status, out)
	}
	if err := <-stopped; err == nil || !strings.Contains(err.Error(), "waits for the task no longer") {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	p.close(s)
}

// untilEvent waits until a run has an event with a text.
func untilEvent(t *testing.T, url, run, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/v1/recipe-executions/"+run+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("no event of %s has %q", run, text)
}

// A28: a worker gets and ends tasks of its own account alone; the operator's those of all, with the
// files of the account of its lease.
func TestA28_WorkersOfOtherAccounts(t *testing.T) {
	p := newPlace(t)
	if err := p.actions.AddWorkers(map[string]lease.Spec{"double": {Input: json.RawMessage(`{"type": "object"}`), Output: json.RawMessage(`{"type": "object"}`), Accounts: []string{"acme"}}}); err != nil {
		t.Fatal(err)
	}
	s, url := p.must(nil)
	key := func(account string, role access.Role) string {
		status, out := ask(t, "POST", url+"/v1/keys", s.FirstKey, `{"account": "`+account+`", "name": "a key", "role": "`+string(role)+`"}`)
		if status != 201 {
			t.Fatal(status, out)
		}
		return out["token"].(string)
	}
	owner, mine, theirs, viewer := key("acme", access.Owner), key("acme", access.Worker), key("rival", access.Worker), key("acme", access.Viewer)
	recipe := `{"name": "r", "version": "1.0.0", "steps": [{"id": "d", "action": {"name": "double"}}]}`
	if status, out := ask(t, "POST", url+"/v1/recipes", key("rival", access.Owner), recipe); status != 422 || out["code"] != "ACTION_NOT_FOUND" && out["code"] != "RECIPE_INVALID" {
		t.Errorf("another account finds the action: %d %v", status, out)
	}
	if status, out := ask(t, "POST", url+"/v1/recipes", owner, recipe); status != 201 {
		t.Fatal(status, out)
	}
	status, run := ask(t, "POST", url+"/v1/recipes/r/execute", owner, `{}`)
	if status != 202 {
		t.Fatal(status, run)
	}
	const want = `{"queue": "default"}`
	status, other := ask(t, "POST", url+"/v1/keys", owner, `{"name": "of another queue", "role": "worker", "scopes": ["work:gpu", "work:default/triple"]}`)
	if status != 201 {
		t.Fatal(status, other)
	}
	for _, body := range []string{`{"queue": "default", "actions": ["double"]}`, `{"queue": "other"}`} {
		if status, out := ask(t, "POST", url+"/v1/workers/lease", other["token"].(string), body); status != 403 {
			t.Errorf("a key of other queues and actions gets %s: %d %v", body, status, out)
		}
	}
	if status, _ := ask(t, "POST", url+"/v1/workers/lease", viewer, want); status != 403 {
		t.Errorf("a viewer gets tasks: %d", status)
	}
	var task map[string]any
	for task == nil {
		if _, out := ask(t, "POST", url+"/v1/workers/lease", theirs, want); len(out["tasks"].([]any)) != 0 {
			t.Fatalf("another account gets the task: %v", out)
		}
		if _, out := ask(t, "POST", url+"/v1/workers/lease", s.FirstKey, `{"queue": "default", "waitMs": 1000}`); len(out["tasks"].([]any)) > 0 {
			task = out["tasks"].([]any)[0].(map[string]any)
		}
	}
	token := task["lease"].(string)
	for _, test := range []struct{ key, what string }{{theirs, "another account"}, {mine, ""}} {
		_, out := ask(t, "POST", url+"/v1/workers/heartbeat", test.key, `{"leases": ["`+token+`"], "reports": [{"lease": "`+token+`", "log": "forged"}]}`)
		if n := len(out["ended"].([]any)); (n == 0) != (test.what == "") {
			t.Errorf("%s: %d leases are over", test.what, n)
		}
	}
	_, out := ask(t, "POST", url+"/v1/workers/results", theirs, `{"results": [{"lease": "`+token+`", "output": {"forged": true}}]}`)
	if got := out["results"].([]any)[0].(map[string]any)["status"]; got != "ended" {
		t.Errorf("a result of another account is %v", got)
	}
	for body, want := range map[string]int{
		`{"results": [{"lease": "` + token + `"}]}`:                                             422,
		`{"results": [{"lease": "` + token + `", "output": {}, "error": {"message": "both"}}]}`: 422,
		`{"results": []}`: 422,
		`{"results": [{"lease": "` + token + `", "output": {}, "price": "-1"}]}`: 422,
		`{"results": [{"lease": "` + token + `", "output": {}, "run": "x"}]}`:    422,
	} {
		if status, out := ask(t, "POST", url+"/v1/workers/results", mine, body); status != want {
			t.Errorf("%s: %d %v", body, status, out)
		}
	}
	put := func(key, lease string) string {
		req, err := http.NewRequestWithContext(t.Context(), "POST", url+"/v1/files?name=a.txt", strings.NewReader("of acme"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "text/plain")
		req.Header.Set("Roux-Lease", lease)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var f struct{ Hash string }
		_ = json.NewDecoder(res.Body).Decode(&f) // a refusal has none
		return f.Hash
	}
	hash := put(s.FirstKey, token)
	if status, _ := ask(t, "GET", url+"/v1/files/"+hash, owner, ""); hash == "" || status != 200 {
		t.Errorf("a file of the operator's worker is not the account's: %q, %d", hash, status)
	}
	if got := described(t, url+"/v1/files/"+hash, s.FirstKey, token); got != "text/plain" {
		t.Errorf("the operator's worker reads of it: %q", got)
	}
	if got := described(t, url+"/v1/files/"+hash, theirs, token); got != "" {
		t.Errorf("the worker of another account reads of it: %q", got)
	}
	if put(s.FirstKey, token+"x") != "" {
		t.Error("a forged lease takes a file")
	}
	hash = put(theirs, token) // the lease of another account counts for nothing
	if status, _ := ask(t, "GET", url+"/v1/files/"+hash, key("rival", access.Viewer), ""); status != 200 {
		t.Errorf("a worker's file is not of its own account: %d", status)
	}
	_, out = ask(t, "POST", url+"/v1/workers/results", mine, `{"results": [{"lease": "`+token+`", "output": {"right": true}}]}`)
	if got := out["results"].([]any)[0].(map[string]any)["status"]; got != "recorded" {
		t.Errorf("the result is %v", got)
	}
	if head, err := s.Node.Engine.Wait(t.Context(), "acme", run["executionId"].(string)); err != nil || head.Status != "completed" {
		t.Errorf("%+v, %v", head, err)
	}
	p.close(s)
}

// described returns the type of a file as a worker with a lease reads it; "" = it is not found.
func described(t *testing.T, url, key, lease string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Roux-Lease", lease)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var f struct{ MimeType string }
	if err := json.NewDecoder(res.Body).Decode(&f); err != nil {
		t.Fatal(err)
	}
	return f.MimeType
}
