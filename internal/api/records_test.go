// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// recorded is a recipe of which one run shows most of what a record may have: a step with a
// price, one that is skipped, one that waits and one that fails.
const recorded = `{"name":"recorded","version":"1.0.0","creditEstimation":{"strategy":"fixed","fixedCredits":12,"maxCredits":100},
	"inputSchema":{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}},"steps":[
	{"id":"pay","action":{"name":"costly"},"outputBinding":"paid"},
	{"id":"off","when":"false","transform":{"expression":"1"}},
	{"id":"ask","wait":{"signal":"go"}},
	{"id":"bad","transform":{"expression":"[1][input.n]"}}]}`

// record starts a run of recorded and returns what the answers call things, once the run waits.
func (s *server) record(token string) map[string]string {
	s.t.Helper()
	s.grant("acme", 1000)
	known := map[string]string{
		"RECIPE": s.register(token, recorded),
		"HASH":   s.call(token, "POST", "/v1/files", "a file", "Content-Type", "text/plain").want(201).text("hash"),
	}
	known["RUN"] = s.execute(token, "recorded", `{"parameters":{"n":1},"fileHashes":["`+known["HASH"]+`"]}`)
	s.events(token, known["RUN"], "", func(e event) bool { return e.name != "node.waiting" })
	return known
}

// shows fails unless an answer has every field of a text in JSON with its value, as asSource
// says, and at a path the fields that are named and no others.
func shows(t *testing.T, got answer, want string, known map[string]string, fields map[string]string) {
	t.Helper()
	asSource(t, "the answer", got.value(), sourceJSON(t, want), known)
	for path, list := range fields {
		of := got.value()
		if path != "" {
			of = got.get(path)
		}
		if have := strings.ReplaceAll(names(of), ",", " "); have != list {
			t.Errorf("the fields of %q are %s, want %s", path, have, list)
		}
	}
}

// X99, X100, X193: the record of a run and the results of its steps, field by field, while it
// runs and when it has failed.
func TestX99_Record(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	known := s.record(dev)
	path := "/v1/recipe-executions/" + known["RUN"]
	const always = "accountId createdAt credits generation hasFailures id input paused progress recipeId recipeVersion reservationId resumeToken startedAt state status stepResults waitState"
	got := s.call(dev, "GET", path, nil).want(200)
	shows(t, got, `{"id":"RUN","recipeId":"RECIPE","recipeVersion":"1.0.0","accountId":"acme","status":"running","state":"running","waitState":"waiting_single",
		"input":{"fileHashes":["HASH"],"parameters":{"n":1}},
		"progress":{"currentStep":"ask","completedSteps":["pay"],"percentComplete":50},
		"credits":{"reserved":15,"used":5,"estimated":12},
		"stepResults":{"pay":{"status":"completed","outputBinding":"paid","duration":"PT0.001S","creditsUsed":5,"attempts":1}},
		"reservationId":"RUN.1","startedAt":"2024-01-15T10:30:00Z","createdAt":"2024-01-15T10:30:00Z","generation":1,"paused":false,"hasFailures":false}`,
		known, map[string]string{"": always, "stepResults": "off pay", "stepResults.pay": "attempts creditsUsed duration outputBinding status"})

	s.call(dev, "POST", path+"/signal", `{"name":"go","payload":1}`).want(200)
	s.events(dev, known["RUN"], "", func(event) bool { return true })
	got = s.call(dev, "GET", path, nil).want(200)
	shows(t, got, `{"status":"failed","state":"failed","startedAt":"2024-01-15T10:30:00Z","completedAt":"2024-01-15T10:30:00Z","hasFailures":true,
		"progress":{"completedSteps":["pay","ask"]},"credits":{"reserved":15,"used":5,"estimated":12},
		"error":{"code":"`+string(fault.TemplateError)+`","step":"bad"},
		"stepResults":{"bad":{"status":"failed","creditsUsed":0,"error":{"code":"`+string(fault.TemplateError)+`"}}}}`,
		known, map[string]string{"": strings.Replace(strings.Replace(always, "credits ", "credits error ", 1), "createdAt", "completedAt createdAt", 1), "progress": "completedSteps percentComplete"})
}

// X83, X84, X196, X228: the shadow graph of a run that waits, and its tags, field by field.
func TestX196_Graph(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	known := s.record(dev)
	shows(t, s.call(dev, "GET", "/jobs/"+known["RUN"]+"/graph", nil).want(200), `{"job_id":"RUN","recipe_id":"RECIPE","status":"PROCESSING","workflow_status":"WAITING_SINGLE","generation":1,
		"step_results":{"steps":{"pay":{"outputs":{"ok":true}},"off":{"skipped":true}}},
		"step_metadata":{"workflow_instance":{"is_complete":false,"ready_queue":[],"incoming_counts":{"pay":0,"off":0,"ask":0,"bad":1},
			"edges":[{"from":"pay","to":"off"},{"from":"off","to":"ask"},{"from":"ask","to":"bad"}],
			"nodes":{"pay":{"type":"action","action":"costly","status":"completed","complete":true,"running":false,"failed":false,"retry_count":0,"attempt":1,"wave":0,"started_at":"2024-01-15T10:30:00Z","completed_at":"2024-01-15T10:30:00Z"},
				"off":{"type":"transform","status":"skipped","reason":"condition","complete":true},"ask":{"type":"wait","status":"waiting","running":true},"bad":{"type":"transform","status":"pending","complete":false}}}},
		"pending_operations":[{"operation_id":"ask#1","node_id":"ask","type":"wait","status":"waiting","started_at":"2024-01-15T10:30:00Z"}],
		"completed_operations":[{"operation_id":"pay#1","node_id":"pay","type":"action","attempt":1,"status":"completed","started_at":"2024-01-15T10:30:00Z","completed_at":"2024-01-15T10:30:00Z"}],
		"waiting_for":{"ask#1":{"provider":"signal","signal":"go"}},"created_at":"2024-01-15T10:30:00Z","started_at":"2024-01-15T10:30:00Z"}`,
		known, map[string]string{
			"":                                "completed_operations created_at event generation job_id pending_operations recipe_id resume_token started_at status step_metadata step_results waiting_for workflow_status",
			"step_results.steps.pay":          "outputs",
			"step_results.steps.off":          "skipped",
			"step_metadata":                   "workflow_instance",
			"step_metadata.workflow_instance": "edges incoming_counts is_complete nodes ready_queue",
			"waiting_for.ask#1":               "provider signal",
		})
	shows(t, s.call(dev, "GET", "/v1/recipe-executions/"+known["RUN"]+"/tags", nil).want(200), `{"data":[
		{"run_id":"RUN","node_id":"pay","tag":"node_started","metadata":{"attempt":1,"wave":0}},
		{"run_id":"RUN","node_id":"pay","tag":"node_completed","metadata":{"input_tokens":null,"output_tokens":null}},
		{"run_id":"RUN","node_id":"ask","tag":"node_started","metadata":{"attempt":1,"wave":2}}]}`, known, nil)
}

// X194: runs are listed in pages, the newest first, each once.
func TestX194_Pages(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, greet)
	var want, got []string
	for range 5 {
		want = append([]string{s.execute(dev, "greet", `{"parameters":{"name":"ana"}}`)}, want...)
	}
	next, sizes := "/v1/recipe-executions?limit=2", ""
	for next != "" {
		page := s.call(dev, "GET", next, nil).want(200)
		data := page.get("data").([]any)
		for _, x := range data {
			got = append(got, x.(map[string]any)["id"].(string))
		}
		sizes += string(rune('0' + len(data)))
		if next = page.text("next"); (next != "") != (page.get("hasMore") == true) || (next != "") != (page.text("nextCursor") != "") {
			t.Errorf("the page says %s", page.body)
		}
	}
	if sizes != "221" || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("pages of %s runs: %v, want %v", sizes, got, want)
	}
	s.call(dev, "GET", "/v1/recipe-executions?limit=0", nil).problem(fault.RequestInvalid)
}

// X103: a start that is repeated with its key is the same run, and holds its credits once.
func TestX103_RepeatedStart(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, paidWaits)
	s.grant("acme", 100)
	key := strings.Repeat("0123456789abcdef", 4) // as long as a SHA-256 in hex
	first := s.call(dev, "POST", "/v1/recipes/paid-waits/execute", `{}`, "Idempotency-Key", key).want(202)
	second := s.call(dev, "POST", "/v1/recipes/paid-waits/execute", `{}`, "Idempotency-Key", key).want(202)
	if first.text("executionId") != second.text("executionId") {
		t.Errorf("two runs: %s, %s", first.body, second.body)
	}
	if got := s.call(dev, "GET", "/v1/credits", nil).want(200); got.get("credits.held") != 10.0 || got.get("liveRuns") != 1.0 {
		t.Errorf("held: %s", got.body)
	}
	if list := s.call(dev, "GET", "/v1/recipe-executions", nil).want(200).get("data").([]any); len(list) != 1 {
		t.Errorf("%d runs", len(list))
	}
	entries := s.call(dev, "GET", "/v1/credits/entries", nil).want(200).get("data").([]any)
	if len(entries) != 2 { // the grant and the reservation
		t.Errorf("%d entries: %v", len(entries), entries)
	}
}
