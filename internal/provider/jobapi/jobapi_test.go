// SPDX-License-Identifier: Apache-2.0

package jobapi

import (
	stdcmp "cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/roux-engine/roux/fault"
)

func compiled(t *testing.T, a *API) *Compiled {
	t.Helper()
	c, err := a.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func known(t *testing.T, kind string) *Compiled {
	t.Helper()
	api, url := Known(kind)
	if !strings.HasPrefix(url, "https://") {
		t.Errorf("%s is at %q", kind, url)
	}
	return compiled(t, api)
}

// X130: the requests that each kind of service is sent.
func TestX130_Submissions(t *testing.T) {
	const input = `{"prompt":"a cat","n":2,"webhook":"http://elsewhere"}`
	const hook = "https://roux.example/v1/providers/p/webhook"
	for name, test := range map[string]struct{ kind, model, webhook, path, body string }{
		"replicate": {Replicate, "owner/name", hook, "/models/owner/name/predictions", `{"input":` + input + `,"webhook":"` + hook + `","webhook_events_filter":["completed"]}`},
		"replicate, a version, nobody can reach us": {Replicate, "owner/name:0123abc", "", "/predictions", `{"input":` + input + `,"version":"0123abc"}`},
		"fal":                        {FalQueue, "fal-ai/flux/dev", hook, "/fal-ai/flux/dev?fal_webhook=https%3A%2F%2Froux.example%2Fv1%2Fproviders%2Fp%2Fwebhook", input},
		"fal, nobody can reach us":   {FalQueue, "fal-ai/flux", "", "/fal-ai/flux", input},
		"openai":                     {OpenAI, "gpt-9", hook, "/responses", `{"background":true,"max_output_tokens":100,"model":"gpt-9","n":2,"prompt":"a cat","store":true,"stream":true,"webhook":"http://elsewhere"}`},
		"openai, fields of the kind": {OpenAI, "gpt-9", "", "/responses", ""},
	} {
		t.Run(name, func(t *testing.T) {
			given := input
			if test.body == "" { // what the input says of them does not count
				given, test.body = `{"model":"dearer","background":false,"input":"hello","max_output_tokens":7}`, `{"background":true,"max_output_tokens":7,"input":"hello","model":"gpt-9","store":true,"stream":true}`
			}
			req, err := known(t, test.kind).Submission(Submission{Model: test.model, Input: json.RawMessage(given), Webhook: test.webhook, EffectKey: "key", MaxTokens: 100})
			if err != nil {
				t.Fatal(err)
			}
			if req.Method != "POST" || req.Path != test.path || !sameJSON(req.Body, test.body) {
				t.Errorf("%s %s %s\nwant %s %s", req.Method, req.Path, req.Body, test.path, test.body)
			}
		})
	}
}

func sameJSON(got []byte, want string) bool {
	var a, b any
	return json.Unmarshal(got, &a) == nil && json.Unmarshal([]byte(want), &b) == nil && cmp.Equal(a, b)
}

// The requests about a job, and what responses say of it.
func TestX130_Responses(t *testing.T) {
	type step struct {
		body, phase, output, why string
		usage                    Counts
	}
	phases := map[string]Phase{"going": Going, "succeeded": Succeeded, "failed": Failed}
	for kind, test := range map[string]struct {
		model, submitted, poll, result, cancel string
		steps                                  []step
	}{
		Replicate: {"o/n", `{"id":"gm3qorzdhgbfurvjtvhg6dckhu","status":"starting"}`, "GET /predictions/ID", "", "POST /predictions/ID/cancel", []step{
			{body: `{"id":"x","status":"processing","output":null}`, phase: "going"},
			{body: `{"id":"x","status":"succeeded","output":["https://replicate.delivery/a.png"],"error":null}`, phase: "succeeded", output: `["https://replicate.delivery/a.png"]`},
			{body: `{"id":"x","status":"failed","error":"out of memory"}`, phase: "failed", why: "out of memory"},
			{body: `{"id":"x","status":"canceled","error":null}`, phase: "failed"},
		}},
		FalQueue: {"fal-ai/flux/dev", `{"request_id":"80e732af-660e-45cd-bd63-580e4f2a94cc"}`, "GET /fal-ai/flux/requests/ID/status", "GET /fal-ai/flux/requests/ID", "PUT /fal-ai/flux/requests/ID/cancel", []step{
			{body: `{"status":"IN_QUEUE","queue_position":1}`, phase: "going"},
			{body: `{"status":"COMPLETED"}`, phase: "succeeded", output: "null"},
		}},
		OpenAI: {"gpt-9", `{"id":"resp_1","status":"queued"}`, "GET /responses/ID", "", "POST /responses/ID/cancel", []step{
			{body: `{"status":"in_progress"}`, phase: "going"},
			{body: `{"status":"failed","error":{"code":"server_error","message":"it broke"},"usage":null}`, phase: "failed", why: "it broke"},
			{
				body: `{"status":"completed","usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":5}}`, phase: "succeeded",
				output: `{"status":"completed","usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":5}}`, usage: Counts{Input: 10, Cached: 4, Output: 5},
			},
		}},
	} {
		t.Run(kind, func(t *testing.T) {
			c := known(t, kind)
			id, err := c.JobID(test.model, []byte(test.submitted))
			if err != nil {
				t.Fatal(err)
			}
			j := Job{test.model, id}
			about := func(want string, fn func(Job) (*Request, error)) {
				if req, err := fn(j); err != nil || req.Method+" "+strings.ReplaceAll(req.Path, id, "ID") != want || req.Body != nil {
					t.Errorf("%+v, %v; want %s", req, err, want)
				}
			}
			about(test.poll, c.Poll)
			about(test.cancel, c.Cancel)
			if test.result != "" {
				about(test.result, c.Result)
			}
			for _, s := range test.steps {
				st, err := c.State(j, []byte(s.body))
				st.Usage.Micros = max(st.Usage.Micros, 0) // TestSeconds has them
				if err != nil || st.Phase != phases[s.phase] || st.Error != s.why || st.Usage != s.usage {
					t.Errorf("%s: %+v, %v", s.body, st, err)
				}
				if raw, _ := json.Marshal(st.Output); s.output != "" && !sameJSON(raw, s.output) {
					t.Errorf("%s: the output is %s", s.body, raw)
				}
			}
		})
	}
	fal := known(t, FalQueue)
	if why := fal.Why(Job{}, []byte(`{"detail":[{"loc":["body","prompt"],"msg":"field required"}]}`)); why != "field required" {
		t.Errorf("fal says %q", why)
	}
	if why := fal.Why(Job{}, []byte(`{"detail":"no such app"}`)); why != "no such app" {
		t.Errorf("fal says %q", why)
	}
}

// X165: what a job has made so far is read of one that goes on, and of no other; an expression that reads
// what is not there reads nothing.
func TestX165_Previews(t *testing.T) {
	c := known(t, Replicate)
	for body, want := range map[string]string{
		`{"status":"processing","output":["a","b"]}`: `["a","b"]`,
		`{"status":"processing","output":null}`:      "null",
		`{"status":"starting"}`:                      "null",
		`{"status":"succeeded","output":["a"]}`:      "null",
		`{"status":"failed","output":["a"]}`:         "null",
	} {
		st, err := c.State(Job{Model: "o/n", ID: "1"}, []byte(body))
		if raw, _ := json.Marshal(st.Preview); err != nil || string(raw) != want {
			t.Errorf("%s: %s, %v; want %s", body, raw, err, want)
		}
	}
	api := replicate()
	api.Preview = "body."
	if _, err := api.Compile(); err == nil || !strings.HasPrefix(err.Error(), "preview: ") {
		t.Errorf("%v", err)
	}
}

// A28: what a hostile service says is an error of the service, and leads nowhere else.
func TestA28_HostileResponses(t *testing.T) {
	c := known(t, Replicate)
	for _, body := range []string{
		``, `null`, `[]`, `{`, `<html>`, `{"id":""}`, `{"id":null}`, `{"id":"../../admin"}`, `{"id":"a/b"}`, `{"id":"a?b"}`, `{"id":"a b"}`, `{"id":".."}`,
		`{"id":"` + strings.Repeat("x", 300) + `"}`, `{"id":{"a":1}}`, `{"id":"a","id":"b"}`,
	} {
		if id, err := c.JobID("o/n", []byte(body)); fault.CodeOf(err) != fault.ProviderError {
			t.Errorf("%.40s: id %q, %v", body, id, err)
		}
	}
	for _, body := range []string{``, `<html>`, `{}`, `{"status":7}`, `{"status":null}`} {
		if st, err := c.State(Job{"o/n", "x"}, []byte(body)); fault.CodeOf(err) != fault.ProviderError {
			t.Errorf("%s: %+v, %v", body, st, err)
		}
	}
	o := known(t, OpenAI)
	for _, body := range []string{`{"status":"completed"}`, `{"status":"completed","usage":{"input_tokens":-1,"output_tokens":1}}`, `{"status":"completed","usage":{"input_tokens":1.5,"output_tokens":1}}`} {
		if st, err := o.State(Job{"m", "x"}, []byte(body)); fault.CodeOf(err) != fault.ProviderError {
			t.Errorf("%s: %+v, %v", body, st, err)
		}
	}
}

// A description that is wrong says where.
func TestCompile(t *testing.T) {
	good := func() *API {
		return &API{
			Submit: Submit{Call: Call{Path: "/jobs"}, Body: json.RawMessage(`{"input":"{{ input }}"}`), Job: "body.id"},
			Poll:   Call{Path: "/jobs/{{ job }}"}, State: "body.status", Succeeded: []string{"done"}, Failed: []string{"failed"},
			Webhook: &Webhook{Job: "body.id", Signature: HMAC, Header: "X-Signature", Prefix: "sha256=", SecretEnv: "ROUX_WEBHOOK_X"},
		}
	}
	compiled(t, good())
	for want, change := range map[string]func(*API){
		"submit.path: is missing":                 func(a *API) { a.Submit.Path = "" },
		"submit.method: want one of":              func(a *API) { a.Submit.Method = "FETCH" },
		"submit.path: job is not known there":     func(a *API) { a.Submit.Path = "/jobs/{{ job }}" },
		"submit.body: want an object":             func(a *API) { a.Submit.Body = json.RawMessage(`[1]`) },
		"submit: body is missing":                 func(a *API) { a.Submit.Body = nil },
		"submit.body: undefined function: secret": func(a *API) { a.Submit.Body = json.RawMessage(`{"k":"{{ secret('x') }}"}`) },
		"submit.job: is missing":                  func(a *API) { a.Submit.Job = "" },
		"poll.path: input is not known there":     func(a *API) { a.Poll.Path = "/{{ input.id }}" },
		"state: is missing":                       func(a *API) { a.State = "" },
		"output: ":                                func(a *API) { a.Output = "body.(" },
		"succeeded: want the states":              func(a *API) { a.Succeeded = nil },
		`failed: "done": want`:                    func(a *API) { a.Failed = []string{"done"} },
		"webhook.signature: \"\"":                 func(a *API) { a.Webhook.Signature = "" },
		"webhook.secret_env: want":                func(a *API) { a.Webhook.SecretEnv = "ROUX_MASTER_KEY" },
		"webhook.header: want":                    func(a *API) { a.Webhook.Header = "" },
		"webhook.encoding: want hex":              func(a *API) { a.Webhook.Encoding = "rot13" },
		"webhook.job: model is not known there":   func(a *API) { a.Webhook.Job = "model" },
		"headers: \"authorization\": want":        func(a *API) { a.Headers = map[string]string{"authorization": "x"} },
		"auth.header: want the name of a header":  func(a *API) { a.Auth.Header = "a b" },
		"usage.output: is missing":                func(a *API) { a.Usage = &Usage{Input: "body.n"} },
	} {
		a := good()
		change(a)
		if _, err := a.Compile(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

// A path is within the API, whatever a template makes of it.
func TestPaths(t *testing.T) {
	c := compiled(t, &API{
		Submit: Submit{Call: Call{Path: "{{ input.path }}"}, Body: json.RawMessage(`{}`), Job: "body.id"},
		Poll:   Call{Path: "/{{ job }}"}, State: "body.status", Succeeded: []string{"done"},
	})
	for path, ok := range map[string]bool{
		"/a/b-c_d.e": true, "/a/": true, "/v1/x:run": true, "": false, "a": false, "//evil.example/": false, "/../x": false, "/a/../../x": false, "/a?b": false, "/a#b": false, "/a b": false, "/\r\nX: y": false, "@evil.example": false,
	} {
		input, _ := json.Marshal(map[string]any{"path": path})
		if _, err := c.Submission(Submission{Model: "m", Input: input}); (err == nil) != ok {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// A19: signatures of Replicate (the vector of Standard Webhooks), and of the scheme of GitHub.
func TestA19_Vectors(t *testing.T) {
	dir := stdcmp.Or(os.Getenv("ROUX_SHARED"), "../../../../shared")
	raw, err := os.ReadFile(filepath.Join(dir, "data", "webhooks", "signature-vectors.json"))
	if err != nil {
		t.Skipf("no shared data: %v", err)
	}
	var v struct {
		Standard struct{ ID, Timestamp, Signature, Body, Secret string } `json:"standard_webhooks"`
		GitHub   struct {
			Secret, Body string
			Signature    string `json:"X-Hub-Signature-256"`
		} `json:"github"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Webhook-Id": {v.Standard.ID}, "Webhook-Timestamp": {v.Standard.Timestamp}, "Webhook-Signature": {v.Standard.Signature}}
	w, err := standardwebhooks.NewWebhook(v.Standard.Secret)
	if err != nil || w.VerifyIgnoringTimestamp([]byte(v.Standard.Body), header) != nil {
		t.Errorf("the vector: %v", err)
	}
	if _, err = verifyStandard(header, []byte(v.Standard.Body), v.Standard.Secret); err == nil { // it is of 2021
		t.Error("an old webhook is accepted")
	}
	h := hook{Webhook: Webhook{Header: "X-Hub-Signature-256", Prefix: "sha256=", Encoding: "hex"}}
	if _, err = h.verifyHMAC(http.Header{"X-Hub-Signature-256": {v.GitHub.Signature}}, []byte(v.GitHub.Body), v.GitHub.Secret); err != nil {
		t.Errorf("the vector of GitHub: %v", err)
	}
	for name, test := range map[string][2]string{"an altered body": {v.GitHub.Body + ".", v.GitHub.Secret}, "another secret": {v.GitHub.Body, "x"}, "no secret": {v.GitHub.Body, ""}} {
		if _, err = h.verifyHMAC(http.Header{"X-Hub-Signature-256": {v.GitHub.Signature}}, []byte(test[0]), test[1]); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	c, body, now := known(t, Replicate), []byte(`{"id":"x"}`), time.Now()
	signature, err := w.Sign("msg_1", now, body)
	if err != nil {
		t.Fatal(err)
	}
	header = http.Header{"Webhook-Id": {"msg_1"}, "Webhook-Timestamp": {strconv.FormatInt(now.Unix(), 10)}, "Webhook-Signature": {signature}}
	if job, id, err := c.Receive(header, body, &Keys{Secret: v.Standard.Secret}, now); job != "x" || id != "msg_1" || err != nil {
		t.Errorf("%q, %q, %v", job, id, err)
	}
	for _, secret := range []string{"", "whsec_" + base64.StdEncoding.EncodeToString([]byte("another secret of 24 bytes")), "no secret"} {
		if _, _, err := c.Receive(header, body, &Keys{Secret: secret}, now); !errors.Is(err, ErrSignature) {
			t.Errorf("the secret %q: %v", secret, err)
		}
	}
}

// A19: signatures of fal. There is no published vector: the message is what its documents say.
func TestA19_Fal(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	set := fmt.Sprintf(`{"keys":[{"kty":"RSA","n":"x"},{"kty":"OKP","crv":"Ed25519","x":"%s"}]}`, base64.RawURLEncoding.EncodeToString(public))
	keys, err := ParseKeys([]byte(set))
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	c, now, body := known(t, FalQueue), time.Now(), []byte(`{"request_id":"r1","status":"OK"}`)
	signed := func(at time.Time) http.Header {
		seconds, sum := strconv.FormatInt(at.Unix(), 10), sha256.Sum256(body)
		message := "r1\nuser\n" + seconds + "\n" + hex.EncodeToString(sum[:])
		h := http.Header{}
		h.Set("X-Fal-Webhook-Request-Id", "r1")
		h.Set("X-Fal-Webhook-User-Id", "user")
		h.Set("X-Fal-Webhook-Timestamp", seconds)
		h.Set("X-Fal-Webhook-Signature", hex.EncodeToString(ed25519.Sign(private, []byte(message))))
		return h
	}
	if job, id, err := c.Receive(signed(now), body, &Keys{Public: keys}, now); job != "r1" || id != "r1" || err != nil {
		t.Errorf("%q, %q, %v", job, id, err)
	}
	other, _, _ := ed25519.GenerateKey(nil)
	for name, test := range map[string]struct {
		header http.Header
		body   string
		keys   []ed25519.PublicKey
	}{
		"old":          {signed(now.Add(-time.Hour)), string(body), keys},
		"of tomorrow":  {signed(now.Add(time.Hour)), string(body), keys},
		"altered":      {signed(now), `{"request_id":"r2","status":"OK"}`, keys},
		"another key":  {signed(now), string(body), []ed25519.PublicKey{other}},
		"no key":       {signed(now), string(body), nil},
		"no signature": {http.Header{}, string(body), keys},
	} {
		if _, _, err := c.Receive(test.header, []byte(test.body), &Keys{Public: test.keys}, now); !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, set := range []string{``, `{}`, `{"keys":[{"x":"AA"}]}`, `<html>`} {
		if _, err := ParseKeys([]byte(set)); err == nil {
			t.Errorf("%s has keys", set)
		}
	}
}

// The seconds of a job are read as they are written, in millionths that are rounded up; what is none
// is not known.
func TestSeconds(t *testing.T) {
	c := known(t, Replicate)
	if !c.Times() || c.Counts() || known(t, OpenAI).Times() || !known(t, FalQueue).Times() {
		t.Error("what has prices by the second is another API")
	}
	for metrics, want := range map[string]int64{
		`{"predict_time": 3.7}`: 3_700_000, `{"predict_time": 12}`: 12_000_000, `{"predict_time": 0}`: 0, `{"predict_time": 1.1}`: 1_100_000,
		`{"predict_time": 0.0000001}`: 1, `{"predict_time": 2.0000011}`: 2_000_002, `{"predict_time": 1e-9}`: 1, `{"predict_time": 86400.123456}`: 86_400_123_456,
		`{}`: -1, `null`: -1, `{"predict_time": null}`: -1, `{"predict_time": -1}`: -1, `{"predict_time": -0.1}`: -1, `{"predict_time": "3"}`: -1,
		`{"predict_time": 1e300}`: -1, `{"predict_time": 9007199254740993}`: -1, `{"predict_time": [3]}`: -1,
	} {
		for _, status := range []string{"succeeded", "failed"} {
			st, err := c.State(Job{"o/n", "1"}, []byte(`{"status": "`+status+`", "output": 1, "metrics": `+metrics+`}`))
			if err != nil || st.Usage.Micros != want {
				t.Errorf("%s: %d, %v; want %d", metrics, st.Usage.Micros, err, want)
			}
		}
	}
}
