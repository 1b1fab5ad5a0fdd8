// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// The explanation of a run names the steps that decide its status, with the events that
// prove it, and that of a step is asked for by its path.
func TestExplainOverHTTP(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, waits)
	s.register(dev, `{"name":"wrong","version":"1.0.0","steps":[{"id":"fine","transform":{"expression":"1","outputBinding":"x"}},{"id":"bad","transform":{"expression":"[1][x]"}}]}`)
	open := s.execute(dev, "waits", `{}`)
	steps := func(r answer) []map[string]any {
		t.Helper()
		var list []map[string]any
		for _, x := range r.get("steps").([]any) {
			list = append(list, x.(map[string]any))
		}
		return list
	}
	why := s.call(dev, "GET", "/v1/recipe-executions/"+open+"/explain", nil).want(200)
	if list := steps(why); why.text("status") != "running" || len(list) != 1 || list[0]["status"] != "waiting" || !strings.Contains(string(why.body), "approved") {
		t.Errorf("a run that waits: %s", why.body)
	}
	failed := s.execute(dev, "wrong", `{}`)
	s.events(dev, failed, "", func(event) bool { return true })
	why = s.call(dev, "GET", "/v1/recipe-executions/"+failed+"/explain", nil).want(200)
	if list := steps(why); why.text("status") != "failed" || why.text("errorCode") != "TEMPLATE_ERROR" || why.text("remedy") == "" || len(list) != 1 || list[0]["step"] != "bad" {
		t.Errorf("a run that failed: %s", why.body)
	}
	why = s.call(dev, "GET", "/v1/recipe-executions/"+failed+"/explain?step=fine", nil).want(200)
	if list := steps(why); len(list) != 1 || list[0]["step"] != "fine" || list[0]["status"] != "completed" || len(list[0]["facts"].([]any)) == 0 {
		t.Errorf("a step: %s", why.body)
	}
	s.call(dev, "GET", "/v1/recipe-executions/"+failed+"/explain?step=none", nil).problem(fault.StepNotFound)
	s.call(dev, "GET", "/v1/recipe-executions/run_none/explain", nil).problem(fault.RunNotFound)
}

// X150, X153: the ledger of a run has its estimate, its reservation, each charge, and the lots
// that paid.
func TestX153_LedgerOfARun(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, `{"name":"paid","version":"1.0.0","steps":[{"id":"step_1","action":{"name":"costly"}}],"creditEstimation":{"strategy":"fixed","fixedCredits":120,"maxCredits":500}}`)
	s.grant("acme", 1000)
	run := s.execute(dev, "paid", `{}`)
	s.events(dev, run, "", func(event) bool { return true })
	bill := s.call(dev, "GET", "/v1/recipe-executions/"+run+"/ledger", nil).want(200)
	if bill.get("estimated") != float64(120) || bill.get("creditsReserved") != float64(150) || bill.get("paid") != float64(5) || bill.get("held") != float64(0) {
		t.Errorf("bill: %s", bill.body)
	}
	charges, _ := bill.get("charges").([]any)
	gens, _ := bill.get("generations").([]any)
	if len(charges) != 1 || charges[0].(map[string]any)["step"] != "step_1" || len(gens) != 1 {
		t.Fatalf("bill: %s", bill.body)
	}
	if g := gens[0].(map[string]any); g["released"] != float64(145) || len(g["lots"].([]any)) != 1 || len(g["took"].([]any)) != 1 || g["why"] == "" {
		t.Errorf("generation: %v", g)
	}
	free := s.key("local", access.Developer)
	s.call(free, "GET", "/v1/recipe-executions/"+run+"/ledger", nil).problem(fault.RunNotFound)
}

// A dry run of a retry says what would run again and what it would cost, and changes nothing.
func TestX198_RetryPlan(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, `{"name":"halfway","version":"1.0.0","steps":[{"id":"a","action":{"name":"costly"}},{"id":"b","dependsOn":["a"],"transform":{"expression":"[1][input.n]"}},{"id":"c","dependsOn":["b"],"action":{"name":"costly"}}]}`)
	s.grant("acme", 100)
	run := s.execute(dev, "halfway", `{"parameters":{"n":1}}`)
	s.events(dev, run, "", func(event) bool { return true })
	path := "/v1/recipe-executions/" + run
	before := s.call(dev, "GET", path, nil).want(200)
	steps := func(a answer) string {
		t.Helper()
		var list []string
		for _, x := range a.get("steps").([]any) {
			list = append(list, x.(string))
		}
		return strings.Join(list, " ")
	}
	dry := s.call(dev, "POST", path+"/retry", `{"dryRun":true}`).want(200)
	if steps(dry) != "b c" || dry.get("generation") != float64(2) || dry.get("creditsEstimated") != float64(5) || dry.get("creditsAvailable") != float64(95) || dry.get("payable") != true {
		t.Errorf("from what failed: %s", dry.body)
	}
	if all := s.call(dev, "POST", path+"/retry", `{"dryRun":true,"from":"a"}`).want(200); steps(all) != "a b c" || all.get("creditsEstimated") != float64(10) {
		t.Errorf("from the first step: %s", all.body)
	}
	s.call(dev, "POST", path+"/retry", `{"dryRun":true,"from":"none"}`).problem(fault.StepNotFound)
	if after := s.call(dev, "GET", path, nil).want(200); string(after.body) != string(before.body) {
		t.Errorf("the run has changed: %s", after.body)
	}
	token := dry.text("resumeToken")
	s.call(dev, "POST", path+"/retry", `{"input":{"n":0},"resumeToken":"`+token+`"}`).want(200)
	s.call(dev, "POST", path+"/retry", `{"resumeToken":"`+token+`","dryRun":true}`).problem(fault.Conflict)
	s.events(dev, run, "?types=run.completed", func(event) bool { return true })
	if done := s.call(dev, "GET", path, nil).want(200); done.text("status") != "completed" || done.get("credits.used") != float64(10) {
		t.Errorf("after the retry: %s", done.body)
	}
}
