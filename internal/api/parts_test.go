// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// names are the fields of an object, sorted.
func names(object any) string {
	m, _ := object.(map[string]any)
	return strings.Join(slices.Sorted(maps.Keys(m)), ",")
}

// fields= selects what an answer has, of one run and of a list.
func TestFieldsOfRuns(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, waits)
	run := s.execute(dev, "waits", `{"labels":{"k":"v"}}`)
	path := "/v1/recipe-executions/" + run
	whole := s.call(dev, "GET", path, nil).want(200)
	if got := s.call(dev, "GET", path+"?fields=status,id,credits", nil).want(200); names(got.value()) != "credits,id,status" || got.text("id") != run || got.get("credits.used") != whole.get("credits.used") {
		t.Errorf("three fields: %s", got.body)
	} else if got.header.Get("ETag") != whole.header.Get("ETag") {
		t.Errorf("the tag is %s, want %s", got.header.Get("ETag"), whole.header.Get("ETag"))
	}
	if got := s.call(dev, "GET", path+"?fields=id&expand=steps,ledger", nil).want(200); names(got.value()) != "id" {
		t.Errorf("one field: %s", got.body)
	}
	if got := s.call(dev, "GET", path+"?fields=steps", nil).want(200); names(got.value()) != "steps" {
		t.Errorf("a field that is asked for: %s", got.body)
	}
	if got := s.call(dev, "GET", path+"?fields=error", nil).want(200); string(got.body) != "{}" {
		t.Errorf("a field that the run does not have: %s", got.body)
	}
	s.execute(dev, "waits", `{}`)
	page := s.call(dev, "GET", "/v1/recipe-executions?limit=1&fields=id,labels", nil).want(200)
	next := s.call(dev, "GET", page.text("next"), nil).want(200)
	for _, got := range []answer{page, next} {
		if item := got.get("data").([]any)[0]; !strings.Contains(names(item), "id") || strings.Contains(names(item), "status") {
			t.Errorf("a list: %s", got.body)
		}
	}
	if item := next.get("data").([]any)[0]; names(item) != "id,labels" {
		t.Errorf("a list: %s", next.body)
	}
	for query, want := range map[string]string{
		path + "?fields=statu":                           `did you mean \"status\"`,
		path + "?fields=id,":                             "recipeId, recipeVersion",
		path + "?fields=id,,status":                      "there are id,",
		path + "?fields=%3Cscript%3E":                    "there are id,",
		path + "?expand=everything":                      "outputs, steps, ledger",
		path + "?expand=step":                            `did you mean \"steps\"`,
		"/v1/recipe-executions?fields=stepResults":       "recipeName",
		"/v1/recipe-executions?fields=id&expand=outputs": "fields",
	} {
		got := s.call(dev, "GET", query, nil)
		if got.status != 422 && got.status != 400 || !strings.Contains(string(got.body), want) || strings.Contains(string(got.body), "script") {
			t.Errorf("%s answers %d %s", query, got.status, got.body)
		}
	}
}

// expand=steps has steps that are open, and expand=ledger what the run has cost, for those who
// may read it.
func TestExpandedRuns(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.grant("acme", 100)
	s.register(dev, `{"name":"mixed","version":"1.0.0","steps":[{"id":"pay","action":{"name":"costly"}},{"id":"ask","dependsOn":["pay"],"wait":{"signal":"approved"}},{"id":"last","dependsOn":["ask"],"action":{"name":"gate"}}]}`)
	run := s.execute(dev, "mixed", `{}`)
	path := "/v1/recipe-executions/" + run
	s.events(dev, run, "", func(e event) bool {
		return e.name != "node.waiting" && !strings.Contains(e.name, "wait")
	})
	got := s.call(dev, "GET", path+"?expand=steps,ledger,outputs", nil).want(200)
	steps, _ := got.get("steps").([]any)
	var list []string
	for _, x := range steps {
		step := x.(map[string]any)
		list = append(list, step["step"].(string)+" "+step["type"].(string)+" "+step["status"].(string))
	}
	if text := strings.Join(list, "; "); text != "pay action completed; ask wait waiting; last action pending" {
		t.Errorf("the steps are %s: %s", text, got.body)
	}
	ledger := s.call(dev, "GET", path+"/ledger", nil).want(200)
	if got.get("ledger.run") != run || got.get("ledger.used") != ledger.get("used") || got.get("stepResults.pay.output") == nil || got.header.Get("ETag") != "" {
		t.Errorf("expanded: %s", got.body)
	}
	plain := s.call(dev, "GET", path, nil).want(200)
	if plain.get("steps") != nil || plain.get("ledger") != nil || plain.get("stepResults.pay.output") != nil {
		t.Errorf("not expanded: %s", plain.body)
	}
	s.call(dev, "GET", path+"?expand=steps", nil, "If-None-Match", plain.header.Get("ETag")).want(304)

	// A05: the ledger takes the scope of the ledger, whichever way it is asked for.
	reader := s.call(s.admin, "POST", "/v1/keys", `{"account":"acme","name":"reader","scopes":["runs:read"]}`).want(201).text("token")
	s.call(reader, "GET", path+"?expand=steps", nil).want(200)
	s.call(reader, "GET", path+"?expand=ledger", nil).problem(fault.Forbidden)
	s.call(reader, "GET", path+"?fields=ledger", nil).problem(fault.Forbidden)
	s.call(reader, "GET", path+"?fields=id&expand=ledger", nil).want(200)
	s.call(s.key("rival", access.Owner), "GET", path+"?expand=ledger", nil).problem(fault.RunNotFound)
}
