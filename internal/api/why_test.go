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
