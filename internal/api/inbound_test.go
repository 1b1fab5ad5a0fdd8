// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/inbound"
)

const hookSecret = "It's a Secret to Everybody"

// signed is a signature as GitHub makes it.
func signed(body string) string {
	mac := hmac.New(sha256.New, []byte(hookSecret))
	_, _ = mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// A trigger over HTTP, from the secret to the history.
func TestTriggers(t *testing.T) {
	s := start(t)
	token := s.key("acme", access.Owner)
	s.register(token, greet)
	s.call(token, "PUT", "/v1/secrets/hook", map[string]any{"value": hookSecret}).want(200)
	made := s.call(token, "POST", "/v1/triggers", `{"name":"hello","recipe":"greet","description":"a test","signature":{"scheme":"hmac","secret":"hook"},
		"when":"query.kind == 'new'","parameters":{"name":"{{ body.user }}"},"labels":{"team":"docs"},"maxCredits":5}`).want(201)
	id := made.text("id")
	if made.header.Get("Location") != "/v1/triggers/"+id || made.text("receiveUrl") != "/v1/triggers/"+id+"/receive" || made.text("signature.header") != "X-Hub-Signature-256" || made.text("state") != "active" {
		t.Errorf("made: %s", made.body)
	}
	receive := func(body string, headers ...string) answer {
		t.Helper()
		return s.call("", "POST", "/v1/triggers/"+id+"/receive?kind=new&other=1", body, append([]string{"X-Hub-Signature-256", signed(body)}, headers...)...)
	}
	first := receive(`{"user":"ann"}`, "X-GitHub-Delivery", "d1").want(202)
	run := first.text("executionId")
	if first.text("outcome") != "started" || run == "" {
		t.Errorf("the first: %s", first.body)
	}
	if again := receive(`{"user":"ann"}`, "X-GitHub-Delivery", "d1").want(202); again.text("executionId") != run || again.get("repeated") != true {
		t.Errorf("again: %s", again.body)
	}
	if e := s.call(token, "GET", "/v1/recipe-executions?label.roux.trigger=hello&label.team=docs", nil).want(200); len(e.get("data").([]any)) != 1 {
		t.Errorf("the runs: %s", e.body)
	}
	receive(`user=bob`, "Content-Type", "application/x-www-form-urlencoded").want(202)
	receive(`{"user":"cid"}`, "Content-Type", "application/cloudevents+json").want(202)
	receive(`{"user":"dan"}`, "Content-Type", "text/plain").problem(fault.MediaTypeUnsupported)
	receive(strings.Repeat(" ", inbound.MaxBody+1)).problem(fault.RequestTooLarge)
	if got := receive(`{"user":1}`).want(202); got.text("outcome") != "refused" || got.text("errorCode") != string(fault.InputInvalid) {
		t.Errorf("input that does not fit: %s", got.body)
	}
	if got := s.call("", "POST", "/v1/triggers/"+id+"/receive", `{"user":"ann"}`, "X-Hub-Signature-256", signed(`{"user":"ann"}`)).want(202); got.text("outcome") != "refused" || got.text("errorCode") != string(fault.TemplateError) {
		t.Errorf("without the query: %s", got.body)
	}
	wrong := s.call("", "POST", "/v1/triggers/"+id+"/receive", `{"user":"eve"}`, "X-Hub-Signature-256", signed(`{"user":"ann"}`)).problem(fault.Unauthorized)
	none := s.call("", "POST", "/v1/triggers/trig_00000000000000000000000000/receive", `{"user":"eve"}`).problem(fault.Unauthorized)
	for _, field := range []string{"code", "title", "detail", "remedy"} {
		if wrong.text(field) != none.text(field) {
			t.Errorf("a wrong signature is answered with %s, no trigger with %s", wrong.body, none.body)
		}
	}
	history := s.call(token, "GET", "/v1/triggers/hello/history?limit=2", nil).want(200)
	if !strings.Contains(string(history.body), `"errorCode":"TEMPLATE_ERROR"`) || history.get("hasMore") != true {
		t.Errorf("the history: %s", history.body)
	}
	older := s.call(token, "GET", history.text("next"), nil).want(200)
	if !strings.Contains(string(older.body), `"result":"started"`) {
		t.Errorf("the history before: %s", older.body)
	}
	tried := s.call(token, "POST", "/v1/triggers/hello/test", `{"body":{"user":"fay"},"query":{"kind":"new"},"headers":{"X-GitHub-Delivery":"d9"}}`).want(200)
	if tried.text("result") != "started" || tried.text("parameters.name") != "fay" || tried.text("delivery") != "d9" || tried.text("secret") != "usable" {
		t.Errorf("the test: %s", tried.body)
	}
	if got := s.call(token, "POST", "/v1/triggers/hello/pause", nil).want(200); got.text("state") != "paused" {
		t.Errorf("paused: %s", got.body)
	}
	if got := receive(`{"user":"gus"}`).want(202); got.text("outcome") != "ignored" {
		t.Errorf("while it is paused: %s", got.body)
	}
	s.call(token, "DELETE", "/v1/secrets/hook", nil).want(204)
	receive(`{"user":"hal"}`).problem(fault.Unauthorized)
	if got := s.call(token, "POST", "/v1/triggers/hello/test", `{}`).want(200); got.text("secret") != "missing" || got.get("paused") != true {
		t.Errorf("without its secret: %s", got.body)
	}
	s.call(token, "POST", "/v1/triggers/hello/resume", nil).want(200)
	s.call(token, "DELETE", "/v1/triggers/hello", nil).want(204)
	s.call(token, "GET", "/v1/triggers/"+id, nil).problem(fault.RecordNotFound)
}

// A sender that is too fast is told when to go on.
func TestTriggerRate(t *testing.T) {
	s := start(t)
	token := s.key("acme", access.Owner)
	s.register(token, greet)
	s.call(token, "PUT", "/v1/secrets/hook", map[string]any{"value": hookSecret}).want(200)
	id := s.call(token, "POST", "/v1/triggers", `{"name":"fast","recipe":"greet","paused":true,"signature":{"scheme":"hmac","secret":"hook"}}`).want(201).text("id")
	var mu sync.Mutex
	var all sync.WaitGroup
	refused := 0
	for range 2 * inbound.Burst {
		all.Go(func() {
			got, err := s.send("", "POST", "/v1/triggers/"+id+"/receive", `{}`, "X-Hub-Signature-256", signed(`{}`))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case got.status == 429:
				if refused++; got.text("code") != string(fault.RequestRateExceeded) || got.header.Get("Retry-After") == "" {
					t.Errorf("Retry-After is %q: %s", got.header.Get("Retry-After"), got.body)
				}
			case got.status != 202:
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	all.Wait()
	if refused == 0 {
		t.Error("any number of deliveries is taken")
	}
}
