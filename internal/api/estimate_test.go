// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/service"
)

// estimated is the formula of the source, which reads the output of a step.
const estimated = `{"name":"estimated","version":"1.0.0","steps":[
	{"id":"step_1","action":{"name":"file-inspect"},"outputBinding":"inspection"},
	{"id":"step_2","dependsOn":["step_1"],"action":{"name":"gate"}}],
	"creditEstimation":{"strategy":"calculated","formula":"10 + (inspection.extended.pageCount * 5) + (inspection.sizeBytes / 1048576 * 2)","maxCredits":1000}}`

// R15, R35: an estimate knows the facts of the files that it is asked for, by GET as by POST.
// Without them the most is reserved.
func TestR35_R15_Estimates(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, estimated)
	s.grant("acme", 5000)
	pdf, err := os.ReadFile("../../examples/report.pdf")
	if err != nil {
		t.Fatal(err)
	}
	up := s.call(dev, "POST", "/v1/files?name=report.pdf", pdf, "Content-Type", "application/pdf").want(201)
	hash, pages := up.text("hash"), up.get("extended.pageCount")
	if pages == nil || pages == float64(0) {
		t.Fatalf("the file has no pages: %s", up.body)
	}
	want := 10 + 5*pages.(float64) // it is smaller than 1 MiB
	path := "/v1/recipes/estimated/estimate"
	byGet := s.call(dev, "GET", path+"?fileHashes="+url.QueryEscape(hash), nil).want(200)
	byPost := s.call(dev, "POST", path, map[string]any{"fileHashes": []string{hash}}).want(200)
	if byGet.get("estimatedCredits") != want || string(byGet.body) != string(byPost.body) {
		t.Errorf("of a file: %s, %s, want %v", byGet.body, byPost.body, want)
	}
	if blind := s.call(dev, "GET", path, nil).want(200); blind.get("creditsReserved") != float64(1000) || blind.get("balanceAfter") != float64(4000) {
		t.Errorf("without a file: %s", blind.body)
	}
	s.register(dev, strings.NewReplacer(`"greet"`, `"per-name"`, `"inputSchema"`, `"creditEstimation":{"strategy":"calculated","formula":"size(input.name) * 3","maxCredits":100},"inputSchema"`).Replace(greet))
	path = "/v1/recipes/per-name/estimate"
	byGet = s.call(dev, "GET", path+"?parameters="+url.QueryEscape(`{"name":"ana"}`), nil).want(200)
	byPost = s.call(dev, "POST", path, `{"parameters":{"name":"ana"}}`).want(200)
	if byGet.get("estimatedCredits") != float64(9) || string(byGet.body) != string(byPost.body) {
		t.Errorf("of an input: %s, %s", byGet.body, byPost.body)
	}
	for query, code := range map[string]fault.Code{
		"?parameters=" + url.QueryEscape(`{"name":7}`): fault.InputInvalid, "?parameters=" + url.QueryEscape(`{"nam`): fault.RequestInvalid, "?parameters=7": fault.RequestInvalid,
		"?fileHashes=sha256_" + strings.Repeat("0", 64): fault.FileNotFound, "?parameter=1": fault.RequestMalformed,
	} {
		s.call(dev, "GET", path+query, nil).problem(code)
	}
}

// R15: what a formula reads is not known when the run starts, so the most is reserved. Once it
// is known the run is estimated again, and holds no more than before.
func TestR15_EstimatedAgain(t *testing.T) {
	s := startService(t, t.TempDir(), sourceActions(), func(*service.Config) {})
	dev := s.key("acme", access.Developer)
	s.register(dev, `{"name":"late","version":"1.0.0","steps":[
		{"id":"step_1","action":{"name":"measure"},"outputBinding":"inspection"},
		{"id":"step_2","dependsOn":["step_1"],"action":{"name":"gate"}}],
		"creditEstimation":{"strategy":"calculated","formula":"10 + inspection.pageCount * 5","maxCredits":200}}`)
	s.grant("acme", 1000)
	made := s.call(dev, "POST", "/v1/recipes/late/execute", `{}`).want(202)
	if made.get("creditsReserved") != float64(200) {
		t.Errorf("started: %s", made.body)
	}
	run := made.text("executionId")
	s.events(dev, run, "", func(e event) bool { return e.name != "node.started" || e.step() != "step_2" })
	if got := s.call(dev, "GET", "/v1/recipe-executions/"+run, nil).want(200); got.get("credits.estimated") != float64(45) || got.get("credits.reserved").(float64) > 200 {
		t.Errorf("once it is known: %s", got.body)
	}
	close(s.gate)
	s.events(dev, run, "", func(event) bool { return true })
	if b := s.call(dev, "GET", "/v1/credits", nil).want(200); b.get("balance") != float64(995) || b.get("credits.held") != float64(0) {
		t.Errorf("balance: %s", b.body)
	}
}

// X30, X190: a text in the place of a registered recipe is validated, and nothing is stored.
func TestX30_ValidateInPlace(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, greet)
	before := s.call(dev, "GET", "/v1/recipes/greet", nil).want(200)
	if v := s.call(dev, "POST", "/v1/recipes/greet/validate", nil).want(200); v.get("valid") != true || v.text("version") != "1.0.0" {
		t.Errorf("as it is stored: %s", v.body)
	}
	v := s.call(dev, "POST", "/v1/recipes/greet/validate", strings.Replace(greet, "input.name", "input.nam", 1)).want(200)
	if diags, _ := v.get("diagnostics").([]any); v.get("valid") != false || len(diags) == 0 || diags[0].(map[string]any)["pointer"] == "" {
		t.Errorf("another text: %s", v.body)
	}
	yaml := "name: greet\nversion: 1.0.0\nsteps: [{id: a, transform: {expression: '1', outputBinding: x}}]"
	if v := s.call(dev, "POST", "/v1/recipes/greet/validate", yaml, "Content-Type", "application/yaml").want(200); v.get("valid") != true || v.get("steps") != float64(1) {
		t.Errorf("in YAML: %s", v.body)
	}
	s.call(dev, "POST", "/v1/recipes/greet/validate", greet, "Content-Type", "text/plain").problem(fault.MediaTypeUnsupported)
	if after := s.call(dev, "GET", "/v1/recipes/greet", nil).want(200); string(after.body) != string(before.body) {
		t.Errorf("it was stored: %s", after.body)
	}
	s.call(dev, "POST", "/v1/recipes/none/validate", greet).problem(fault.RecipeNotFound)
}
