// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// X2, X187 to X195, X203, X204: the requests of the recipe-system source are answered as it
// says. Its examples have fields that the server sets itself.
func TestX187_RecipeLifeCycle(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	text := strings.Replace(greet, `{"name"`, `{"id":"recipe_mine","createdAt":"2024-01-15T10:30:00Z","updatedAt":"2024-01-15T10:30:00Z","createdBy":"somebody","status":"active","name"`, 1)
	made := s.call(dev, "POST", "/v1/recipes", text).want(201)
	id := made.text("id")
	if !strings.HasPrefix(id, "recipe_") || id == "recipe_mine" || made.text("name") != "greet" || made.text("version") != "1.0.0" || made.text("status") != "active" || made.text("createdBy") != "acme" {
		t.Errorf("created: %s", made.body)
	}
	if at, err := time.Parse(time.RFC3339, made.text("createdAt")); err != nil || time.Since(at) > time.Minute {
		t.Errorf("createdAt is %s", made.text("createdAt"))
	}
	if made.header.Get("Location") != "/v1/recipes/"+id+"@1.0.0" || made.header.Get("ETag") == "" {
		t.Errorf("headers %v", made.header)
	}
	s.call(dev, "POST", "/v1/recipes", text).want(200) // the same again
	s.call(dev, "POST", "/v1/recipes", `{name: flowy, version: 1.0.0, steps: [{id: a, transform: {expression: "1", outputBinding: x}}]}`, "Content-Type", "application/yaml").want(201)
	if got := s.call(dev, "GET", "/v1/recipes/flowy", nil).want(200); got.get("steps") == nil {
		t.Errorf("a text in YAML: %s", got.body)
	}
	s.call(dev, "DELETE", "/v1/recipes/flowy", nil).want(204)
	s.call(dev, "POST", "/v1/recipes", strings.Replace(text, "hi ", "ho ", 1)).problem(fault.Conflict)

	got := s.call(dev, "GET", "/v1/recipes/"+id, nil).want(200)
	if got.text("id") != id || got.text("createdBy") != "acme" || got.get("steps") == nil || got.text("category") != "demo" || got.header.Get("ETag") != made.header.Get("ETag") {
		t.Errorf("got: %s", got.body)
	}
	list := s.call(dev, "GET", "/v1/recipes?limit=1", nil).want(200)
	if data, _ := list.get("data").([]any); len(data) != 1 || list.get("hasMore") != false {
		t.Errorf("list: %s", list.body)
	}

	// X27: replaced until it has run, then never changed.
	s.call(dev, "PUT", "/v1/recipes/greet", strings.Replace(greet, "hi ", "hello ", 1), "If-Match", `"1"`).problem(fault.PreconditionFailed)
	s.call(dev, "PUT", "/v1/recipes/greet", strings.Replace(greet, "hi ", "hello ", 1), "If-Match", made.header.Get("ETag")).want(200)
	run := s.call(dev, "POST", "/v1/recipes/greet/execute", `{"parameters":{"name":"ana"},"async":false}`).want(200)
	if run.text("status") != "completed" || run.text("execution.outputs.greeting") != "hello ana" || run.text("execution.recipeId") != id || run.header.Get("Preference-Applied") != "wait=60" {
		t.Errorf("run: %s", run.body)
	}
	s.call(dev, "PUT", "/v1/recipes/greet", greet).problem(fault.Conflict)
	next := s.call(dev, "PUT", "/v1/recipes/greet", strings.Replace(greet, "1.0.0", "1.1.0", 1)).want(201)
	if next.text("id") != id {
		t.Errorf("another version has another id: %s", next.body)
	}
	if v := s.call(dev, "GET", "/v1/recipes/greet/versions", nil).want(200).value().(map[string]any)["data"].([]any); len(v) != 2 || v[0].(map[string]any)["version"] != "1.1.0" {
		t.Errorf("versions: %v", v)
	}
	if d := s.call(dev, "GET", "/v1/recipes/greet/diff?with=1.0.0", nil).want(200); !strings.Contains(d.text("unified"), "hello ") {
		t.Errorf("diff: %s", d.body)
	}

	// X248: deprecated versions run with a warning, deleted ones do not.
	s.call(dev, "POST", "/v1/recipes/greet@1.1.0/deprecate", `{"note":"use 2","sunset":"2030-01-02T03:04:05Z"}`).want(200)
	for path, old := range map[string]answer{
		"execute": s.call(dev, "POST", "/v1/recipes/greet@1.1.0/execute", `{"parameters":{"name":"ana"}}`).want(202),
		"dry run": s.call(dev, "POST", "/v1/recipes/greet@1.1.0/execute", `{"parameters":{"name":"ana"},"dryRun":true}`).want(200),
		"get":     s.call(dev, "GET", "/v1/recipes/greet@1.1.0", nil).want(200),
	} {
		if !strings.HasPrefix(old.header.Get("Deprecation"), "@") || old.header.Get("Sunset") != "Wed, 02 Jan 2030 03:04:05 GMT" || !strings.Contains(string(old.body), "2030-01-02T03:04:05Z") || !strings.Contains(string(old.body), "use 2") {
			t.Errorf("%s: %v %s", path, old.header, old.body)
		}
	}
	s.call(dev, "POST", "/v1/recipes/greet@1.1.0/deprecate", `{"sunset":"2020-01-02T03:04:05Z"}`).problem(fault.InputInvalid)
	if same := s.call(dev, "GET", "/v1/recipes/greet@1.0.0", nil).want(200); same.header.Get("Deprecation") != "" || same.header.Get("Sunset") != "" {
		t.Errorf("a version that is not deprecated: %v", same.header)
	}
	s.call(dev, "DELETE", "/v1/recipes/greet", nil).want(204)
	s.call(dev, "GET", "/v1/recipes/greet", nil).problem(fault.RecipeNotFound)
	s.call(dev, "GET", "/v1/recipe-executions/"+run.text("executionId"), nil).want(200)
}

// X190, X30, R36: what is wrong in a recipe is said without storing it, and a draft does not
// run.
func TestX190_ValidateAndDrafts(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	bad := strings.Replace(greet, "input.name", "input.nam", 1)
	v := s.call(dev, "POST", "/v1/recipes/validate", bad).want(200)
	if diags, _ := v.get("diagnostics").([]any); v.get("valid") != false || len(diags) == 0 || diags[0].(map[string]any)["line"] == nil {
		t.Errorf("validate: %s", v.body)
	}
	p := s.call(dev, "POST", "/v1/recipes", bad).problem(fault.RecipeInvalid)
	if errs, _ := p.get("errors").([]any); len(errs) == 0 {
		t.Errorf("no places: %s", p.body)
	}
	s.call(dev, "GET", "/v1/recipes/greet", nil).problem(fault.RecipeNotFound)
	s.register(dev, strings.Replace(greet, `"version"`, `"status":"draft","version"`, 1))
	s.call(dev, "POST", "/v1/recipes/greet/validate", nil).want(200)
	s.call(dev, "POST", "/v1/recipes/greet/execute", `{"parameters":{"name":"a"}}`).problem(fault.Conflict)
	if dry := s.call(dev, "POST", "/v1/recipes/greet/execute", `{"parameters":{"name":"a"},"dryRun":true}`).want(200); dry.get("estimate") == nil {
		t.Errorf("dry run: %s", dry.body)
	}
	s.call(dev, "POST", "/v1/recipes/greet/execute", `{"parameters":{"nam":"a"},"dryRun":true}`).problem(fault.InputInvalid)
}

// X142, X147, X152, X153, X191, X192, X202, X207: what a run costs is estimated, reserved,
// used and shown, and a balance that does not cover it refuses with what is missing.
func TestX191_Credits(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	recipe := `{"name":"paid","version":"1.0.0","steps":[{"id":"step_1","action":{"name":"costly"},"outputBinding":"first"},{"id":"step_2","action":{"name":"gate"}}],
		"creditEstimation":{"strategy":"fixed","fixedCredits":120,"maxCredits":500}}`
	id := s.register(dev, recipe)
	short := s.call(dev, "POST", "/v1/recipes/paid/execute", `{}`).problem(fault.InsufficientCredits)
	if short.text("limitSource") != "account" || short.get("missing") != float64(150) {
		t.Errorf("refused: %s", short.body)
	}
	s.grant("acme", 1000)
	if e := s.call(dev, "GET", "/v1/recipes/paid/estimate", nil).want(200); e.get("estimatedCredits") != float64(120) || e.get("creditsReserved") != float64(150) || e.get("balanceAfter") != float64(850) {
		t.Errorf("estimate: %s", e.body)
	}
	got := s.call(dev, "POST", "/v1/recipes/"+id+"/execute", `{"async":true}`).want(202)
	run := got.text("executionId")
	if got.get("creditsReserved") != float64(150) || got.text("progressUrl") != "/v1/recipe-executions/"+run || got.header.Get("Location") != got.text("progressUrl") || !strings.HasPrefix(got.text("estimatedDuration"), "PT") {
		t.Errorf("execute: %s", got.body)
	}
	s.events(dev, run, "", func(e event) bool { return e.name != "node.started" || e.step() != "step_2" })
	st := s.call(dev, "GET", "/v1/recipe-executions/"+run, nil).want(200)
	if st.text("status") != "running" || st.text("progress.currentStep") != "step_2" || st.get("credits.reserved") != float64(150) || st.get("credits.used") != float64(5) || st.get("credits.estimated") != float64(120) {
		t.Errorf("status: %s", st.body)
	}
	if st.text("stepResults.step_1.outputBinding") != "first" || st.get("stepResults.step_1.creditsUsed") != float64(5) || !strings.HasPrefix(st.text("stepResults.step_1.duration"), "PT") {
		t.Errorf("stepResults: %s", st.body)
	}
	if b := s.call(dev, "GET", "/v1/credits", nil).want(200); b.get("balance") != float64(1000) || b.get("credits.held") != float64(150) || b.get("liveRuns") != float64(1) {
		t.Errorf("balance: %s", b.body)
	}
	close(s.gate)
	s.events(dev, run, "", func(event) bool { return true })
	if b := s.call(dev, "GET", "/v1/credits", nil).want(200); b.get("balance") != float64(995) || b.get("credits.held") != float64(0) {
		t.Errorf("balance: %s", b.body)
	}
	entries := s.call(dev, "GET", "/v1/credits/entries?limit=2", nil).want(200)
	more := s.call(dev, "GET", entries.text("next"), nil).want(200)
	if len(entries.get("data").([]any)) != 2 || len(more.get("data").([]any)) != 2 || more.get("hasMore") != true && more.get("hasMore") != false {
		t.Errorf("entries: %s, %s", entries.body, more.body)
	}
}

// X195 and the operations on a run: each answers with the run as it stands, and is refused
// where it makes no sense.
func TestX195_Control(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, waits)
	base := "/v1/recipe-executions/"
	run := s.execute(dev, "waits", `{"labels":{"team":"docs"}}`)
	got := s.call(dev, "GET", base+run, nil).want(200)
	if got.text("labels.team") != "docs" || got.text("waitState") == "" {
		t.Errorf("run: %s", got.body)
	}
	if s.call(dev, "POST", base+run+"/pause", `{"reason":"look"}`).want(200).get("paused") != true {
		t.Error("it is not paused")
	}
	if s.call(dev, "POST", base+run+"/unpause", nil).want(200).get("paused") != false {
		t.Error("it is paused")
	}
	s.call(dev, "POST", base+run+"/signal", `{"name":"approved","payload":1,"resumeToken":"9.99"}`).problem(fault.Conflict)
	s.call(dev, "POST", base+run+"/retry", nil).problem(fault.Conflict)
	s.call(dev, "POST", base+run+"/signal", `{"name":"approved","payload":{"by":"ana"}}`).want(200)
	done := s.call(dev, "GET", base+run, nil).want(200)
	if done.text("status") != "completed" || done.text("outputs.decision.by") != "ana" {
		t.Errorf("done: %s", done.body)
	}
	s.call(dev, "GET", base+run, nil, "If-None-Match", done.header.Get("ETag")).want(304)
	s.call(dev, "POST", base+run+"/cancel", nil).problem(fault.TooLate)
	other := s.execute(dev, "waits", `{}`)
	if s.call(dev, "POST", base+other+"/cancel", `{"reason":"wrong file"}`).want(200).text("status") != "cancelled" {
		t.Error("it is not cancelled")
	}
	if n := len(s.call(dev, "GET", base+"?status=cancelled", nil).want(404).body); n == 0 {
		t.Error("no body")
	}
	list := s.call(dev, "GET", "/v1/recipe-executions?status=cancelled&recipe=waits", nil).want(200)
	if data := list.get("data").([]any); len(data) != 1 || data[0].(map[string]any)["id"] != other {
		t.Errorf("list: %s", list.body)
	}
	s.call(dev, "GET", "/v1/recipe-executions?status=done", nil).problem(fault.RequestMalformed)
}

// X98, X194: a run that was deleted is hidden and still listed for who asks; labels and
// text select.
func TestX98_SearchAndDelete(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, waits)
	a := s.execute(dev, "waits", `{"labels":{"team":"docs","tier":"gold"}}`)
	b := s.execute(dev, "waits", `{"labels":{"team":"ops"}}`)
	ids := func(query string) string {
		var list []string
		for _, d := range s.call(dev, "GET", "/v1/recipe-executions?"+query, nil).want(200).get("data").([]any) {
			list = append(list, d.(map[string]any)["id"].(string))
		}
		return strings.Join(list, " ")
	}
	for query, want := range map[string]string{
		"label.team=docs": a, "label.team=ops": b, "label.team=docs&label.tier=silver": "", "q=gold": a, "q=waits": b + " " + a, "status=running": b + " " + a,
		"status=completed": "", "createdAfter=2100-01-01T00:00:00Z": "", "createdBefore=2100-01-01T00:00:00Z&label.team=ops": b, "deleted=true": "",
	} {
		if got := ids(query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	s.call(dev, "DELETE", "/jobs/"+a, nil).problem(fault.Conflict) // it goes on
	s.call(dev, "POST", "/v1/recipe-executions/"+a+"/cancel", nil).want(200)
	if j := s.call(dev, "DELETE", "/jobs/"+a, nil).want(200); j.text("status") != "DELETED" || j.text("deleted_at") == "" {
		t.Errorf("deleted: %s", j.body)
	}
	for _, path := range []string{"/v1/recipe-executions/" + a, "/jobs/" + a, "/v1/recipe-executions/" + a + "/events", "/v1/recipe-executions/" + a + "/tags"} {
		s.call(dev, "GET", path, nil).problem(fault.RunNotFound)
	}
	if got := ids(""); got != b {
		t.Errorf("listed: %s", got)
	}
	if got := ids("deleted=true"); got != a {
		t.Errorf("deleted: %s", got)
	}
}

// X194: the child runs of a run are listed by their parent, and not among the others.
func TestX194_Children(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, `{"name":"outer","version":"1.0.0","steps":[{"id":"inner","recipe":{"inline":{"name":"part","steps":[{"id":"ask","wait":{"signal":"go"}}]}}}]}`)
	run := s.execute(dev, "outer", `{}`)
	list := func(query string) []any {
		t.Helper()
		return s.call(dev, "GET", "/v1/recipe-executions"+query, nil).want(200).get("data").([]any)
	}
	var children []any
	for deadline := time.Now().Add(10 * time.Second); len(children) == 0 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		children = list("?parent=" + run) // its row is written after it has begun
	}
	if len(children) != 1 || children[0].(map[string]any)["recipeName"] != "part" {
		t.Fatalf("children: %v", children)
	}
	if roots := list(""); len(roots) != 1 || roots[0].(map[string]any)["id"] != run {
		t.Errorf("runs: %v", roots)
	}
	s.call(s.key("rival", access.Viewer), "GET", "/v1/recipe-executions?parent="+run, nil).problem(fault.RunNotFound) // as one that does not exist
}

// X83, X84, X196: the same run in the words of jobs, also as it was.
func TestX196_Jobs(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, greet)
	run := s.execute(dev, "greet", `{"parameters":{"name":"ana"}}`)
	s.events(dev, run, "", func(event) bool { return true })
	j := s.call(dev, "GET", "/jobs/"+run+"/graph", nil).want(200)
	if j.text("status") != "COMPLETED" || j.text("step_results.steps.step_1.outputs") != "hi ana" {
		t.Errorf("job: %s", j.body)
	}
	if at := s.call(dev, "GET", "/jobs/"+run+"/graph?at=1", nil).want(200); at.text("status") == "COMPLETED" || at.get("event") != float64(1) {
		t.Errorf("at 1: %s", at.body)
	}
	s.call(dev, "GET", "/jobs/"+run+"/graph?at=99", nil).problem(fault.RequestInvalid)
	tags := s.call(dev, "GET", "/v1/recipe-executions/"+run+"/tags", nil).want(200)
	if data := tags.get("data").([]any); len(data) == 0 || data[0].(map[string]any)["run_id"] != run {
		t.Errorf("tags: %s", tags.body)
	}
}
