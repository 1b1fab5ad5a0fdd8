// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
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
		Output: "body.result", Error: "body.error.message", Preview: "body.preview",
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

// X129–X132, X137, X199: each kind of service has an address for its webhooks; it carries out a job and reports it by a webhook, which ends
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

// X158: a job whose seconds have a price costs those that its service says, at most as many as the
// run was told; a time that is not said is no price. Its account pays no more.
func TestX158_PricesBySecond(t *testing.T) {
	f := newFarm(t, emulate.JobsConfig{After: 20 * time.Millisecond}, func(all map[string]provider.Config) {
		api := plainAPI()
		api.Usage = &jobapi.Usage{Seconds: "body.seconds"}
		for name, second := range map[string]string{"plain": "0.0014", "replicate": "0.5", "fal": "0.25"} {
			one := all[name]
			one.Prices, one.MaxSeconds = map[string]provider.ModelPrice{"o/n": {Job: "0.1", Second: second}}, 1000
			if name == "plain" {
				one.API = api
			}
			all[name] = one
		}
	})
	for what, test := range map[string]struct{ action, input, want string }{
		"seconds":              {"job-replicate", `{"emulate": {"seconds": 7.9}}`, `"used":5}`}, // 0.1 + 3.95, up to a whole credit
		"exactly":              {"job-replicate", `{"emulate": {"seconds": 7.8}}`, `"used":4}`}, // 4 credits, and no more
		"a fraction more":      {"job-replicate", `{"emulate": {"seconds": 7.80001}}`, `"used":5}`},
		"of an own API":        {"job-plain", `{"emulate": {"seconds": 642.8}}`, `"used":1}`},        // 0.99992
		"and more":             {"job-plain", `{"emulate": {"seconds": 642.86}}`, `"used":2}`},       // 1.000004
		"of the queue":         {"job-fal", `{"emulate": {"seconds": 3.6}}`, `"used":1}`},            // 1
		"no more than it said": {"job-replicate", `{"emulate": {"seconds": 100000}}`, `"used":501}`}, // 500.1
		"a time that is none":  {"job-replicate", `{"emulate": {"seconds": -1}}`, `does not say how many seconds`},
	} {
		t.Run(what, func(t *testing.T) {
			run := f.run(test.action, `{"model": "o/n", "input": `+test.input+`}`)
			if text, _ := json.Marshal(run); !strings.Contains(string(text), test.want) {
				t.Errorf("%s\nwant %s", text, test.want)
			}
		})
	}
	_, out := ask(t, "GET", f.url+"/v1/actions/job-replicate", "", "")
	if text := encoded(out); !strings.Contains(text, "500.1") {
		t.Errorf("the most that a job costs is not in %s", text)
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

// A job that has ended, and whose output is not where the description says, fails its step at once:
// asking again would not help.
func TestOutputIsElsewhere(t *testing.T) {
	f := newFarm(t, emulate.JobsConfig{After: 20 * time.Millisecond}, func(all map[string]provider.Config) {
		api := plainAPI()
		api.Output = "body.picture"
		c := all["plain"]
		c.API = api
		all["plain"] = c
	})
	run := f.run("job-plain", `{"model": "o/n", "input": {}}`)
	if text, _ := json.Marshal(run); !strings.Contains(string(text), "the service does not say what the job made") || !strings.Contains(string(text), "PROVIDER_ERROR") {
		t.Errorf("%s", text)
	}
}

// X134: what a step waits for is listed for its account alone, with when its service is asked and what
// it has said; asked now, a service whose webhook never came ends the step.
func TestX134_StuckJobs(t *testing.T) {
	f := newFarm(t, emulate.JobsConfig{Mode: emulate.Lost, After: time.Millisecond}, nil)
	run := f.start("job-plain", `{"model": "o/n", "input": {"n": 1}}`)
	f.start("job-replicate", `{"model": "o/n", "input": {"emulate": {"mode": "silent"}}}`)
	f.start("job-fal", `{"model": "o/n", "input": {"emulate": {"mode": "silent"}}}`)
	c, err := client.New(client.Config{URL: f.url, Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	list := func(q client.JobQuery) (all []client.ExternalJob) {
		t.Helper()
		for len(all) < 3 && (q == client.JobQuery{}) || all == nil {
			time.Sleep(20 * time.Millisecond)
			if all, err = client.Collect(c.ExternalJobs.List(t.Context(), q), 0); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	all := list(client.JobQuery{})
	j := &all[1]
	if len(all) != 3 || all[0].Provider != "fal" || j.Provider != "plain" || j.State != "waiting" || j.ExecutionID != run || j.Step != "draw" || j.Action != "job-plain" || j.Attempt != 1 ||
		j.NextPollAt == nil || j.NextPollAt.Before(j.SubmittedAt.Add(27*time.Second)) || !j.ExpiresAt.After(*j.NextPollAt) || j.LastPoll != nil {
		t.Fatalf("%+v", all)
	}
	if some := list(client.JobQuery{Provider: "replicate", State: "waiting"}); len(some) != 1 || some[0].Job != all[2].Job {
		t.Errorf("%+v", some)
	}
	if none, err := client.Collect(c.ExternalJobs.List(t.Context(), client.JobQuery{State: "cancelling"}), 0); err != nil || len(none) != 0 {
		t.Errorf("%+v, %v", none, err)
	}
	for page, want := range map[string]string{"?limit=2": `"hasMore":true`, "?limit=3": `"hasMore":false`, "?cursor=x": "REQUEST_MALFORMED", "?state=x": "REQUEST_INVALID"} {
		if _, out := ask(t, "GET", f.url+"/v1/jobs"+page, "", ""); !strings.Contains(fmt.Sprint(encoded(out)), want) {
			t.Errorf("%s: %s", page, encoded(out))
		}
	}
	// The clock of the emulator is the real one, so it may need a moment.
	for j.State == "waiting" {
		if j, err = c.ExternalJobs.Poll(t.Context(), "plain", all[1].Job); err != nil {
			t.Fatal(err)
		}
	}
	if head, err := f.s.Node.Engine.Wait(t.Context(), "local", run); err != nil || head.Status != "completed" || j.State != "ended" {
		t.Errorf("%+v, %+v, %v", head, j, err)
	}
	if _, err := c.ExternalJobs.Get(t.Context(), "plain", all[1].Job); fault.CodeOf(err) != fault.RecordNotFound {
		t.Error(err)
	}
	if j, err = c.ExternalJobs.Poll(t.Context(), "replicate", all[2].Job); err != nil || j.State != "waiting" || j.LastPoll == nil || j.LastPoll.Outcome != "underway" {
		t.Errorf("%+v, %v", j, err)
	}
}

// X79, X165: over real sockets, what a service has made so far is an event before its job ends: brought by
// webhooks, and by asking, once however often.
func TestX165_PreviewsOfServices(t *testing.T) {
	f := newFarm(t, emulate.JobsConfig{}, nil)
	t.Run("webhooks", func(t *testing.T) {
		run := f.start("job-plain", `{"model": "o/n", "input": {"emulate": {"mode": "preview", "after": "800ms"}}}`)
		events := untilEventOf(t, f.url, run, "", "run.completed")
		shown, ends := strings.Index(events, "event: node.preview"), strings.Index(events, "event: node.completed")
		if n := strings.Count(events, "event: node.preview"); n == 0 || n > 3 || shown > ends || !strings.Contains(events, `{"frame":`) {
			t.Errorf("%d previews: %s", n, events)
		}
	})
	t.Run("polls", func(t *testing.T) {
		picture := base64.StdEncoding.EncodeToString([]byte("a picture"))
		run := f.start("job-replicate", `{"model": "o/n", "input": {"emulate": {"mode": "silent", "after": "1ms", "previews": [["data:image/png;base64,`+picture+`"]]}}}`)
		untilEventOf(t, f.url, run, "", "node.waiting")
		f.until("running", func(all []emulate.JobEntry) bool { return len(all) == 2 && all[1].State == emulate.JobRunning })
		c, err := client.New(client.Config{URL: f.url, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := c.ExternalJobs.Poll(t.Context(), "replicate", f.emu.Books().Jobs[1].ID); err != nil {
				t.Fatal(err)
			}
		}
		if status, out := ask(t, "POST", f.url+"/v1/recipe-executions/"+run+"/cancel", "", `{}`); status > 202 {
			t.Fatal(status, out)
		}
		events := untilEventOf(t, f.url, run, "", "run.cancelled")
		_, after, _ := strings.Cut(events, "node.preview")
		hash := regexp.MustCompile("sha256_[0-9a-f]{64}").FindString(after)
		if strings.Count(events, "event: node.preview") != 1 || hash == "" {
			t.Fatal(events)
		}
		resp, err := http.Get(f.url + "/v1/files/" + hash + "/content")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "a picture" {
			t.Errorf("the file has %q (%d, %v)", text, resp.StatusCode, err)
		}
	})
}

func encoded(v any) string {
	text, _ := json.Marshal(v) // it was read from JSON
	return string(text)
}
