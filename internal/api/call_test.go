// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// X154: a single action is a run of one step that holds what the action costs and pays it at
// its end.
func TestX154_SingleActions(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	short := s.call(dev, "POST", "/v1/actions/costly/call", `{}`).problem(fault.InsufficientCredits)
	if short.get("missing") != float64(5) {
		t.Errorf("refused: %s", short.body)
	}
	s.grant("acme", 12)
	made := s.call(dev, "POST", "/v1/actions/costly/call", `{"parameters":{}}`, "Idempotency-Key", "one").want(200)
	if made.text("execution.status") != "completed" || made.get("creditsReserved") != float64(5) || made.get("execution.credits.used") != float64(5) || made.get("execution.outputs.output.ok") != true {
		t.Errorf("called: %s", made.body)
	}
	again := s.call(dev, "POST", "/v1/actions/costly/call", `{"parameters":{}}`, "Idempotency-Key", "one").want(200)
	if again.text("executionId") != made.text("executionId") || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("repeated: %s", again.body)
	}
	s.call(dev, "POST", "/v1/actions/costly/call", `{"parameters":{"n":1}}`, "Idempotency-Key", "one").problem(fault.IdempotencyMismatch)
	if b := s.call(dev, "GET", "/v1/credits", nil).want(200); b.get("balance") != float64(7) || b.get("credits.held") != float64(0) {
		t.Errorf("balance: %s", b.body)
	}
	if dry := s.call(dev, "POST", "/v1/actions/costly/call", `{"dryRun":true}`).want(200); dry.get("creditsReserved") != float64(5) || dry.text("executionId") != "" {
		t.Errorf("dry run: %s", dry.body)
	}
	later := s.call(dev, "POST", "/v1/actions/gate/call", `{"async":true}`).want(202)
	if later.text("state") == "completed" || later.header.Get("Location") != "/v1/recipe-executions/"+later.text("executionId") {
		t.Errorf("async: %s", later.body)
	}
	close(s.gate)
	s.events(dev, later.text("executionId"), "", func(event) bool { return true })
	if run := s.call(dev, "GET", "/v1/recipe-executions/"+made.text("executionId"), nil).want(200); run.text("recipeId") != "action:costly" {
		t.Errorf("run: %s", run.body)
	}
	s.call(dev, "POST", "/v1/actions/none/call", `{}`).problem(fault.ActionNotFound)
	s.call(s.key("acme", access.Viewer), "POST", "/v1/actions/costly/call", `{}`).problem(fault.Forbidden)
}

// The input of a single action is checked against its schema before anything is held, and is
// data, whatever it looks like.
func TestInputOfASingleAction(t *testing.T) {
	s := start(t)
	dev := s.key("local", access.Developer)
	p := s.call(dev, "POST", "/v1/actions/word-count/call", `{"parameters":{"text":7}}`).problem(fault.InputInvalid)
	if !strings.Contains(string(p.body), "text") {
		t.Errorf("invalid: %s", p.body)
	}
	made := s.call(dev, "POST", "/v1/actions/word-count/call", `{"parameters":{"text":"{{ 1 + 1 }} two"}}`).want(200)
	if made.get("execution.outputs.output.words") != float64(3) {
		t.Errorf("counted: %s", made.body)
	}
}
