// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// bulkEnded waits until a bulk has ended.
func (s *server) bulkEnded(token, id string) answer {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if b := s.call(token, "GET", "/v1/bulk/"+id, nil).want(200); b.text("completedAt") != "" {
			return b
		}
	}
	s.t.Fatal("the bulk does not end")
	return answer{}
}

// Many runs are retried by how they have failed: a dry run groups them and changes nothing, and
// each has a result. Bulks of an account are its own.
func TestBulk(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	id := s.register(dev, `{"name":"wrong","version":"1.0.0","steps":[{"id":"bad","transform":{"expression":"[1][input.n]"}}]}`)
	s.register(dev, waits)
	var failed []string
	for range 3 {
		run := s.execute(dev, "wrong", `{"parameters":{"n":1},"labels":{"team":"docs"}}`)
		s.events(dev, run, "", func(event) bool { return true })
		failed = append(failed, run)
	}
	open := s.execute(dev, "waits", `{}`)
	filter := `"filter":{"recipe":"` + id + `","errorCode":"TEMPLATE_ERROR","step":"bad","status":"failed","labels":{"team":"docs"}}`
	dry := s.call(dev, "POST", "/v1/bulk", `{"verb":"retry","dryRun":true,`+filter+`}`).want(200)
	groups, _ := dry.get("groups").([]any)
	if dry.get("matched") != float64(3) || dry.text("state") != "preview" || len(dry.get("sample").([]any)) != 3 || len(groups) != 1 {
		t.Fatalf("dry run: %s", dry.body)
	}
	if g := groups[0].(map[string]any); g["recipe"] != "wrong" || g["errorCode"] != "TEMPLATE_ERROR" || g["step"] != "bad" || g["count"] != float64(3) {
		t.Errorf("group: %v", g)
	}
	if run := s.call(dev, "GET", "/v1/recipe-executions/"+failed[0], nil).want(200); run.get("generation") != float64(1) {
		t.Errorf("a dry run changes: %s", run.body)
	}
	made := s.call(dev, "POST", "/v1/bulk", `{"verb":"retry",`+filter+`}`, "Idempotency-Key", "b").want(202)
	bulk := made.text("id")
	if made.header.Get("Location") != "/v1/bulk/"+bulk || made.text("createdBy") == "" {
		t.Errorf("made: %s", made.body)
	}
	if again := s.call(dev, "POST", "/v1/bulk", `{"verb":"retry",`+filter+`}`, "Idempotency-Key", "b").want(202); again.text("id") != bulk {
		t.Errorf("again: %s", again.body)
	}
	if done := s.bulkEnded(dev, bulk); done.get("done") != float64(3) || done.get("pending") != float64(0) || done.text("state") != "completed" {
		t.Errorf("done: %s", done.body)
	}
	for _, run := range failed {
		if got := s.call(dev, "GET", "/v1/recipe-executions/"+run, nil).want(200); got.get("generation") != float64(2) {
			t.Errorf("it was not retried: %s", got.body)
		}
	}
	seen, path := 0, "/v1/bulk/"+bulk+"/items?limit=2"
	for path != "" {
		page := s.call(dev, "GET", path, nil).want(200)
		for _, x := range page.get("data").([]any) {
			if it := x.(map[string]any); it["result"] == "done" && it["step"] == "bad" {
				seen++
			}
		}
		path = page.text("next")
	}
	if seen != 3 {
		t.Errorf("%d items", seen)
	}
	s.call(dev, "POST", "/v1/bulk/"+bulk+"/cancel", nil).problem(fault.TooLate)

	other := s.call(dev, "POST", "/v1/bulk", `{"verb":"cancel","ids":["`+open+`","run_none"],"reason":"late"}`).want(202).text("id")
	if done := s.bulkEnded(dev, other); done.get("done") != float64(1) || done.get("failed") != float64(1) {
		t.Errorf("cancelled: %s", done.body)
	}
	if run := s.call(dev, "GET", "/v1/recipe-executions/"+open, nil).want(200); run.text("status") != "cancelled" {
		t.Errorf("it is not cancelled: %s", run.body)
	}
	if list := s.call(dev, "GET", "/v1/bulk", nil).want(200).get("data").([]any); len(list) != 2 || list[0].(map[string]any)["id"] != other {
		t.Errorf("list: %v", list)
	}
	for body, part := range map[string]string{
		`{"verb":"cancel"}`: "either ids or a filter", `{"verb":"delete","filter":{}}`: "every run", `{"verb":"delete","filter":{"status":"done"}}`: "filter.status",
		`{"verb":"explode","ids":["a"]}`: "verb", `{"verb":"cancel","ids":["a"],"filter":{"step":"a"}}`: "either",
	} {
		if p := s.call(dev, "POST", "/v1/bulk", body).problem(fault.RequestInvalid); !strings.Contains(string(p.body), part) {
			t.Errorf("%s: %s", body, p.body)
		}
	}
	s.call(s.key("acme", access.Viewer), "POST", "/v1/bulk", `{"verb":"cancel","ids":["a"]}`).problem(fault.Forbidden)
	s.call(s.key("rival", access.Owner), "GET", "/v1/bulk/"+bulk, nil).problem(fault.RecordNotFound)
}
