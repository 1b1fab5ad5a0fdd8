// SPDX-License-Identifier: Apache-2.0

package emulate_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/roux-engine/roux/internal/provider/emulate"
)

// patience is how long a test waits for a fact.
const patience = 30 * time.Second

// client keeps enough connections for the test with many jobs.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}

// An emulator is one on a socket, with a receiver of its webhooks.
type emulator struct {
	*testing.T
	jobs  *emulate.Jobs
	url   string
	hook  string
	hooks chan *http.Request // each with its body
	key   ed25519.PublicKey  // of fal
}

func newEmulator(t *testing.T, cfg emulate.JobsConfig) *emulator {
	t.Helper()
	e := &emulator{T: t, hooks: make(chan *http.Request, 50_000)}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if err := e.verify(r, body); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
		}
		e.hooks <- r
	}))
	t.Cleanup(receiver.Close)
	e.hook = receiver.URL + "/hook"
	cfg.Allow = append(cfg.Allow, netip.MustParsePrefix("127.0.0.0/8"))
	if cfg.Webhook == "" {
		cfg.Webhook = e.hook
	}
	if cfg.After == 0 {
		cfg.After = time.Millisecond
	}
	var err error
	if e.jobs, err = emulate.NewJobs(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.jobs.Close)
	server := httptest.NewServer(e.jobs.Handler())
	t.Cleanup(server.Close)
	e.url = server.URL
	var set struct {
		Keys []struct{ Kty, Crv, X string }
	}
	e.ask("GET", "/fal/.well-known/jwks.json", nil, nil, &set)
	if e.key, err = base64.RawURLEncoding.DecodeString(set.Keys[0].X); err != nil || set.Keys[0].Kty != "OKP" || set.Keys[0].Crv != "Ed25519" {
		t.Fatalf("the keys are %v: %v", set, err)
	}
	return e
}

// verify checks the signature of a webhook with another implementation than the emulator's.
func (e *emulator) verify(r *http.Request, body []byte) error {
	if r.Header.Get("X-Fal-Webhook-Signature") == "" {
		wh, err := standardwebhooks.NewWebhook(e.jobs.Secret())
		if err != nil {
			return err
		}
		return wh.Verify(body, r.Header)
	}
	signature, err := hex.DecodeString(r.Header.Get("X-Fal-Webhook-Signature"))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	signed := fmt.Sprintf("%s\n%s\n%s\n%x", r.Header.Get("X-Fal-Webhook-Request-Id"), r.Header.Get("X-Fal-Webhook-User-Id"), r.Header.Get("X-Fal-Webhook-Timestamp"), sum)
	var at int64
	if _, err := fmt.Sscan(r.Header.Get("X-Fal-Webhook-Timestamp"), &at); err != nil || time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute {
		return fmt.Errorf("the webhook is from %d: %w", at, err)
	}
	if !ed25519.Verify(e.key, []byte(signed), signature) {
		return fmt.Errorf("the signature is wrong")
	}
	return nil
}

// ask sends a request, decodes the answer, and returns it.
func (e *emulator) ask(method, path string, header map[string]string, body, into any) *http.Response {
	e.Helper()
	resp, err := e.try(method, path, header, body, into)
	if err != nil {
		e.Fatal(err)
	}
	return resp
}

func (e *emulator) try(method, path string, header map[string]string, body, into any) (*http.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(method, e.url+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err == nil && into != nil {
		err = json.Unmarshal(all, into)
	}
	return resp, err
}

// received returns the next webhook and its body.
func (e *emulator) received() (*http.Request, object) {
	e.Helper()
	select {
	case r := <-e.hooks:
		var body object
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			e.Fatal(err)
		}
		return r, body
	case <-time.After(patience):
		e.Fatal("there is no webhook")
		return nil, nil
	}
}

// await waits until the books say something about a job.
func (e *emulator) await(id, what string, holds func(emulate.JobEntry) bool) emulate.JobEntry {
	e.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(patience); ; <-look.C {
		entry, ok := e.jobs.Job(id)
		if ok && holds(entry) {
			return entry
		}
		if time.Now().After(end) {
			e.Fatalf("%s: the books have %+v", what, entry)
		}
	}
}

type object = map[string]any

// at returns a value within an object.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			o, _ := v.(object)
			v = o[p]
		case int:
			list, _ := v.([]any)
			if p >= len(list) {
				return nil
			}
			v = list[p]
		}
	}
	return v
}

// A dialect is how a client speaks a protocol.
type dialect struct {
	name   string
	submit func(e *emulator, mode, prompt string) (path string, body object)
	id     string // field of an answer
	poll   string // with %s for the id
	cancel [2]string
	status int    // of an answer to a submission
	field  string // with the state
	// states: after the submission, done, failed, cancelled
	states [4]string
	result func(e *emulator, id string, polled object) any
	// told is what a webhook says: the id, the state and what the states are.
	told func(body object) (id, state any)
	says [3]string
}

func dialects() []dialect {
	return []dialect{
		{
			name: "plain", id: "id", poll: "/plain/v1/jobs/%s", cancel: [2]string{"DELETE", "/plain/v1/jobs/%s"}, status: 201, field: "status",
			submit: func(e *emulator, mode, prompt string) (string, object) {
				return "/plain/v1/jobs", object{"model": "emulate-" + mode, "input": object{"prompt": prompt}, "callback": e.hook}
			},
			states: [4]string{"queued", "done", "failed", "cancelled"},
			result: func(_ *emulator, _ string, o object) any { return at(o, "result", "echo", "prompt") },
			told:   func(o object) (any, any) { return o["id"], o["status"] }, says: [3]string{"done", "failed", "cancelled"},
		},
		{
			name: "replicate", id: "id", poll: "/replicate/v1/predictions/%s", cancel: [2]string{"POST", "/replicate/v1/predictions/%s/cancel"}, status: 201, field: "status",
			submit: func(e *emulator, mode, prompt string) (string, object) {
				return "/replicate/v1/models/acme/emulate-" + mode + "/predictions", object{"input": object{"prompt": prompt}, "webhook": e.hook, "webhook_events_filter": []string{"completed"}}
			},
			states: [4]string{"starting", "succeeded", "failed", "canceled"},
			result: func(_ *emulator, _ string, o object) any { return at(o, "output", "echo", "prompt") },
			told:   func(o object) (any, any) { return o["id"], o["status"] }, says: [3]string{"succeeded", "failed", "canceled"},
		},
		{
			name: "fal", id: "request_id", poll: "/fal/acme/emulate/requests/%s/status", cancel: [2]string{"PUT", "/fal/acme/emulate/requests/%s/cancel"}, status: 200, field: "status",
			submit: func(e *emulator, mode, prompt string) (string, object) {
				return "/fal/acme/emulate/emulate-" + mode + "?fal_webhook=" + url.QueryEscape(e.hook), object{"prompt": prompt}
			},
			states: [4]string{"IN_QUEUE", "COMPLETED", "COMPLETED", "COMPLETED"},
			result: func(e *emulator, id string, _ object) any {
				var o object
				e.ask("GET", "/fal/acme/emulate/requests/"+id, nil, nil, &o)
				return at(o, "echo", "prompt")
			},
			told: func(o object) (any, any) { return o["request_id"], o["status"] }, says: [3]string{"OK", "ERROR", "ERROR"},
		},
		{
			name: "openai", id: "id", poll: "/openai/v1/responses/%s", cancel: [2]string{"POST", "/openai/v1/responses/%s/cancel"}, status: 200, field: "status",
			submit: func(_ *emulator, mode, prompt string) (string, object) {
				input := []object{{"role": "user", "content": []object{{"type": "input_text", "text": prompt}}}}
				return "/openai/v1/responses", object{"model": "emulate-" + mode, "input": input, "background": true}
			},
			states: [4]string{"queued", "completed", "failed", "cancelled"},
			result: func(_ *emulator, _ string, o object) any { return at(o, "output", 0, "content", 0, "text") },
			told:   func(o object) (any, any) { return at(o, "data", "id"), o["type"] }, says: [3]string{"response.completed", "response.failed", "response.cancelled"},
		},
	}
}

// start submits a job and returns its id.
func (d *dialect) start(e *emulator, mode, prompt string, header map[string]string) string {
	e.Helper()
	path, body := d.submit(e, mode, prompt)
	var answer object
	resp := e.ask("POST", path, header, body, &answer)
	id, ok := answer[d.id].(string)
	// A busy machine answers when the job has begun.
	if resp.StatusCode != d.status || !ok || mode != emulate.Fail && slices.Contains(d.states[1:], fmt.Sprint(answer[d.field])) {
		e.Fatalf("the submission was answered %d %v", resp.StatusCode, answer)
	}
	return id
}

// ended polls until a job has ended.
func (d *dialect) ended(e *emulator, id string) object {
	e.Helper()
	for end := time.Now().Add(patience); ; {
		var answer object
		resp := e.ask("GET", fmt.Sprintf(d.poll, id), nil, nil, &answer)
		if resp.StatusCode == 200 && slices.Contains(d.states[1:], fmt.Sprint(answer[d.field])) {
			return answer
		}
		if time.Now().After(end) {
			e.Fatalf("the job goes on: %d %v", resp.StatusCode, answer)
		}
	}
}

// expect checks what the next webhook says.
func (d *dialect) expect(e *emulator, id, says string) *http.Request {
	e.Helper()
	r, body := e.received()
	raw, _ := json.Marshal(body)
	gotID, got := d.told(body)
	if gotID != id || got != says {
		e.Fatalf("the webhook says %s, want %q of %s", raw, says, id)
	}
	return r
}

func eachDialect(t *testing.T, cfg emulate.JobsConfig, test func(e *emulator, d *dialect)) {
	for _, d := range dialects() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			test(newEmulator(t, cfg), &d)
		})
	}
}
