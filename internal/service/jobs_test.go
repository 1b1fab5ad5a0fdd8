// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/provider"
	"github.com/roux-engine/roux/internal/provider/emulate"
	"github.com/roux-engine/roux/internal/provider/jobapi"
	"github.com/roux-engine/roux/internal/service"
)

// A farm is a server with the four kinds of services that carry out jobs.
type farm struct {
	*place
	t   *testing.T
	emu *emulate.Jobs
	s   *service.Service
	url string
}

// plainAPI describes the plain protocol of the emulator, as an operator would.
func plainAPI() *jobapi.API {
	return &jobapi.API{
		Submit: jobapi.Submit{
			Call: jobapi.Call{Path: "/v1/jobs"}, Job: "body.id",
			Body: json.RawMessage(`{"model": "{{ model }}", "input": "{{ input }}", "callback": "{{ webhook }}"}`),
		},
		Poll: jobapi.Call{Path: "/v1/jobs/{{ job }}"}, Cancel: &jobapi.Call{Path: "/v1/jobs/{{ job }}"},
		State: "body.status", Succeeded: []string{"done"}, Failed: []string{"failed", "cancelled"},
		Output: "body.result", Error: "body.error.message",
		Webhook: &jobapi.Webhook{Job: "body.id", Whole: true, Signature: jobapi.Standard, SecretEnv: "ROUX_WEBHOOK_PLAIN"},
	}
}

func newFarm(t *testing.T, cfg emulate.JobsConfig, change func(map[string]provider.Config)) *farm {
	t.Helper()
	f := &farm{place: newPlace(t), t: t}
	cfg.Key, cfg.Allow = "the-key-of-the-farm", []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	// OpenAI's webhooks go where its project says, which is not known yet.
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, _ := url.Parse(f.url) // it is one
		httputil.NewSingleHostReverseProxy(to).ServeHTTP(w, r)
	}))
	t.Cleanup(relay.Close)
	cfg.Webhook = relay.URL + "/v1/providers/openai/webhook"
	front := httptest.NewUnstartedServer(nil)
	emu, err := emulate.NewJobs(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.emu = emu
	front.Config.Handler = emu.Handler()
	front.Start()
	t.Cleanup(func() { front.Close(); emu.Close() })
	env := map[string]string{
		"ROUX_PROVIDER_KEY": cfg.Key, "ROUX_WEBHOOK_PLAIN": emu.Secret(), "ROUX_WEBHOOK_REPLICATE": emu.Secret(), "ROUX_WEBHOOK_OPENAI": emu.Secret(),
	}
	job := map[string]provider.ModelPrice{"o/n": {Job: "2.5"}, "o/n:v1": {Job: "7"}}
	all := map[string]provider.Config{
		"plain":     {Kind: provider.JobAPI, URL: front.URL + "/plain", Prices: job, Slots: 8, JobConfig: provider.JobConfig{API: plainAPI()}},
		"replicate": {Kind: jobapi.Replicate, URL: front.URL + "/replicate/v1", Prices: job},
		"fal":       {Kind: jobapi.FalQueue, URL: front.URL + "/fal", Prices: job, JobConfig: provider.JobConfig{WebhookKeys: front.URL + "/fal/.well-known/jwks.json"}},
		"openai":    {Kind: jobapi.OpenAI, URL: front.URL + "/openai/v1", Prices: map[string]provider.ModelPrice{"small": {Input: "1000", Output: "2000"}}},
	}
	for name, one := range all {
		one.KeyEnv = "ROUX_PROVIDER_KEY"
		all[name] = one
	}
	if change != nil {
		change(all)
	}
	f.actions.Close()
	if f.actions, err = node.NewActionsWith(cfg.Allow, all, func(name string) string { return env[name] }); err != nil {
		t.Fatal(err)
	}
	f.s, f.url = f.must(func(cfg *service.Config) { cfg.Open = true })
	f.actions.UseAddress(f.url)
	t.Cleanup(func() { f.close(f.s) })
	return f
}

// run runs a recipe with one step and returns the run when it has ended.
func (f *farm) run(action, parameters string) map[string]any {
	f.t.Helper()
	name := fmt.Sprintf("r%d", time.Now().UnixNano())
	if status, out := ask(f.t, "POST", f.url+"/v1/recipes", "", `{"name": "`+name+`", "version": "1.0.0",
		"steps": [{"id": "draw", "action": {"name": "`+action+`", "parameters": `+parameters+`}, "outputBinding": "drawn"}], "outputs": {"drawn": "drawn"}}`); status != 201 {
		f.t.Fatal(status, out)
	}
	status, run := ask(f.t, "POST", f.url+"/v1/recipes/"+name+"/execute", "", `{"async": false}`)
	if status != 200 && status != 202 {
		f.t.Fatal(status, run)
	}
	return run
}

// X129–X132, X137: each kind of service carries out a job and reports it by a webhook, which ends
// the step long before it would be asked.
func TestX131_WebhooksOfServices(t *testing.T) {
	f := newFarm(t, emulate.JobsConfig{After: 20 * time.Millisecond}, nil)
	for name, test := range map[string]struct{ parameters, want string }{
		"plain":     {`{"model": "o/n", "input": {"prompt": "a cat"}}`, `"prompt":"a cat"`},
		"replicate": {`{"model": "o/n:v1", "input": {"prompt": "a cat"}}`, `"prompt":"a cat"`},
		"fal":       {`{"model": "o/n", "input": {"prompt": "a cat"}}`, `"prompt":"a cat"`},
		"openai":    {`{"model": "small", "input": {"input": "a cat"}}`, `"text":"a cat"`},
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			run := f.run("job-"+name, test.parameters)
			text, _ := json.Marshal(run)
			if run["status"] != "completed" || !strings.Contains(string(text), test.want) || !strings.Contains(string(text), `"provider":"`+name+`"`) {
				t.Fatalf("%s", text)
			}
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("it took %s: no webhook was acted upon", took)
			}
		})
	}
	for _, j := range f.emu.Books().Jobs {
		if j.Submitted != 1 || j.Key == "" && j.Protocol == "plain" {
			t.Errorf("%+v", j)
		}
	}
}

// F13, F14: webhooks that come twice, before the submission is answered, or forged with a claim
// that the job failed, while the service does not answer polls: one result, one job.
func TestF13_FaultsOfServices(t *testing.T) {
	f := newFarm(t, emulate.JobsConfig{After: 20 * time.Millisecond}, nil)
	for _, mode := range []string{emulate.Twice, emulate.Reorder, emulate.Forged, emulate.Deaf} {
		for _, name := range []string{"plain", "replicate", "fal"} {
			t.Run(mode+" "+name, func(t *testing.T) {
				run := f.run("job-"+name, `{"model": "o/n", "input": {"n": 1, "emulate": {"mode": "`+mode+`", "result": {"made": "it"}}}}`)
				if text, _ := json.Marshal(run); run["status"] != "completed" || !strings.Contains(string(text), `"made":"it"`) {
					t.Fatalf("%s", text)
				}
			})
		}
	}
	for _, j := range f.emu.Books().Jobs {
		if j.Submitted != 1 || j.Sent.Deceived > 0 || j.Sent.Refused > 0 && j.Mode != emulate.Forged {
			t.Errorf("%+v", j)
		}
	}
}

// X158: what a job costs is that of its model, or of the tokens that it has used; a job that
// failed costs nothing, and says why.
func TestX158_PricesOfJobs(t *testing.T) {
	f := newFarm(t, emulate.JobsConfig{After: 20 * time.Millisecond}, nil)
	for name, test := range map[string]struct{ action, parameters, want string }{
		"a model":     {"job-plain", `{"model": "o/n", "input": {}}`, `"used":3}`},
		"another one": {"job-replicate", `{"model": "o/n:v1", "input": {}}`, `"used":7}`},
		"tokens":      {"job-openai", `{"model": "small", "input": {"input": "one two three"}}`, `"used":1}`},
		"a failure":   {"job-plain", `{"model": "o/n", "input": {"emulate": {"fail": "out of paper"}}}`, `of providers.plain failed: out of paper`},
		"of a result": {"job-fal", `{"model": "o/n", "input": {"emulate": {"fail": "out of paper"}}}`, `of providers.fal failed: out of paper`},
		"is not paid": {"job-replicate", `{"model": "o/n", "input": {"emulate": {"fail": "out of paper"}}}`, `"used":0}`},
		"no model":    {"job-plain", `{"input": {}}`, `PRICE_UNKNOWN`},
		"refused":     {"job-fal", `{"model": "o/n", "input": {"emulate": {"mode": "no such mode"}}}`, `HTTP_STATUS`},
	} {
		t.Run(name, func(t *testing.T) {
			run := f.run(test.action, test.parameters)
			if text, _ := json.Marshal(run); !strings.Contains(string(text), test.want) {
				t.Errorf("%s\nwant %s", text, test.want)
			}
		})
	}
}

// start starts a run of a recipe with one step, and returns its id once the step waits for its job.
func (f *farm) start(action, parameters string) string {
	f.t.Helper()
	name := fmt.Sprintf("r%d", time.Now().UnixNano())
	if status, out := ask(f.t, "POST", f.url+"/v1/recipes", "", `{"name": "`+name+`", "version": "1.0.0",
		"steps": [{"id": "draw", "action": {"name": "`+action+`", "parameters": `+parameters+`}}]}`); status != 201 {
		f.t.Fatal(status, out)
	}
	status, run := ask(f.t, "POST", f.url+"/v1/recipes/"+name+"/execute", "", `{}`)
	if status != 202 {
		f.t.Fatal(status, run)
	}
	return run["executionId"].(string)
}

// until asks the emulator's books until a condition holds.
func (f *farm) until(what string, ok func([]emulate.JobEntry) bool) {
	f.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok(f.emu.Books().Jobs) {
			return
		}
	}
	f.t.Fatalf("not %s: %+v", what, f.emu.Books().Jobs)
}

// X131, I6: a run that is cancelled cancels its jobs at every kind of service, after a restart, too.
func TestX131_CancelledAtTheService(t *testing.T) {
	f := newFarm(t, emulate.JobsConfig{Mode: emulate.Silent}, nil)
	runs := map[string]string{}
	for _, name := range []string{"plain", "replicate", "fal"} {
		runs[name] = f.start("job-"+name, `{"model": "o/n", "input": {"n": 1}}`)
	}
	runs["openai"] = f.start("job-openai", `{"model": "small", "input": {"input": "a cat", "metadata": {"emulate": "{\"mode\": \"silent\"}"}}}`)
	f.until("submitted", func(all []emulate.JobEntry) bool { return len(all) == 4 })
	f.close(f.s)
	f.s, f.url = f.must(func(cfg *service.Config) { cfg.Open = true })
	for name, run := range runs {
		if status, out := ask(t, "POST", f.url+"/v1/recipe-executions/"+run+"/cancel", "", ""); status != 200 && status != 202 {
			t.Fatalf("%s: %d %v", name, status, out)
		}
	}
	f.until("cancelled", func(all []emulate.JobEntry) bool {
		for _, j := range all {
			if j.Cancels == 0 {
				return false
			}
		}
		return len(all) == 4
	})
}

// A19: whatever is wrong with a webhook, the answer is the same, and nothing changes.
func TestA19_ForgedWebhooks(t *testing.T) {
	f := newFarm(t, emulate.JobsConfig{Mode: emulate.Silent}, nil)
	run := f.start("job-plain", `{"model": "o/n", "input": {"n": 1}}`)
	f.until("submitted", func(all []emulate.JobEntry) bool { return len(all) == 1 })
	id := f.emu.Books().Jobs[0].ID
	answers := map[string]bool{}
	for _, provider := range []string{"plain", "replicate", "fal", "openai", "nobody"} {
		for _, body := range []string{`{"id":"` + id + `","status":"done","result":"forged"}`, `{"id":"no-such-job","status":"done"}`, `{}`, `[`, `null`} {
			status, out := ask(t, "POST", f.url+"/v1/providers/"+provider+"/webhook", "", body)
			delete(out, "requestId")
			delete(out, "instance")
			text, _ := json.Marshal(out)
			answers[fmt.Sprint(status, string(text))] = true
		}
	}
	if len(answers) != 1 {
		t.Errorf("%d kinds of answers: %v", len(answers), answers)
	}
	for answer := range answers {
		if !strings.HasPrefix(answer, "401") {
			t.Error(answer)
		}
	}
	if _, out := ask(t, "GET", f.url+"/v1/recipe-executions/"+run, "", ""); out["status"] != "running" && out["state"] != "waiting" {
		t.Errorf("the run is %v, %v", out["status"], out["state"])
	}
}

// A key that the service does not accept, and a service that is away.
func TestServicesThatRefuse(t *testing.T) {
	f := newFarm(t, emulate.JobsConfig{}, func(all map[string]provider.Config) {
		c := all["plain"]
		c.KeyEnv = "ROUX_PROVIDER_OTHER" // it is not set
		all["plain"] = c
		c = all["replicate"]
		c.KeyEnv = ""
		all["replicate"] = c
		c = all["fal"]
		c.URL = "http://127.0.0.1:1"
		all["fal"] = c
	})
	for name, want := range map[string]string{"plain": "ROUX_PROVIDER_OTHER, which is not set", "replicate": "does not accept the key of providers.replicate (status 401)", "fal": "SERVICE_UNAVAILABLE"} {
		run := f.run("job-"+name, `{"model": "o/n", "input": {}}`)
		if text, _ := json.Marshal(run); !strings.Contains(string(text), want) {
			t.Errorf("%s: %s", name, text)
		}
	}
	if n := len(f.emu.Books().Jobs); n != 0 {
		t.Errorf("%d jobs were accepted", n)
	}
}
