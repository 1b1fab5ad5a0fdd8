// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/service"
)

// An inbox is a receiver on a real socket.
type inbox struct {
	*httptest.Server
	got  chan *http.Request // its body is read
	down atomic.Bool
}

func newInbox(t *testing.T) *inbox {
	b := &inbox{got: make(chan *http.Request, 100)}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if b.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		b.got <- r
	}))
	t.Cleanup(b.Close)
	return b
}

// next returns a message that verifies, and its body.
func (b *inbox) next(t *testing.T, secret string) (*http.Request, string) {
	t.Helper()
	r := <-b.got
	body, _ := io.ReadAll(r.Body) // it is in memory
	receiver, err := standardwebhooks.NewWebhook(secret)
	if err == nil {
		err = receiver.Verify(body, r.Header)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return r, string(body)
}

// A hook of a server: what is marked as sensitive is masked in its messages, deliveries are
// in no list, a hook goes on after a restart, and a message that could not be sent because
// the server ended is sent then.
func TestWebhooks(t *testing.T) {
	p, box := newPlace(t), newInbox(t)
	p.actions.Close()
	p.actions = node.NewActions([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	s, url := p.must(nil)
	key := s.FirstKey
	status, hook := ask(t, "POST", url+"/v1/webhooks", key, `{"url": "`+box.URL+`/in", "events": ["run.completed"], "payload": "full"}`)
	if status != 201 {
		t.Fatal(status, hook)
	}
	secret, id := hook["secret"].(string), hook["id"].(string)
	if status, out := ask(t, "POST", url+"/v1/recipes", key, `{"name": "greet", "version": "1.0.0",
		"steps": [{"id": "hello", "transform": {"expression": "'hello'", "outputBinding": "greeting"}}],
		"inputSchema": {"type": "object", "properties": {"token": {"type": "string", "x-sensitive": true}}}}`); status != 201 {
		t.Fatal(status, out)
	}
	execute := func() string {
		status, run := ask(t, "POST", url+"/v1/recipes/greet/execute", key, `{"parameters": {"token": "hush-hush-hush"}}`)
		if status != 202 {
			t.Fatal(status, run)
		}
		return run["executionId"].(string)
	}
	run := execute()
	r, body := box.next(t, secret)
	for _, want := range []string{`"type":"run.completed"`, `"executionId":"` + run + `"`, `"status":"completed"`, `"recipeName":"greet"`, `"greeting":"hello"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the message has no %s: %s", want, body)
		}
	}
	if strings.Contains(body, "hush") || r.URL.Path != "/in" || r.Header.Get("User-Agent") != "Roux-Webhooks/1" {
		t.Errorf("%s %v: %s", r.URL, r.Header, body)
	}
	if _, list := ask(t, "GET", url+"/v1/recipe-executions", key, ""); len(list["data"].([]any)) != 1 {
		t.Errorf("deliveries are listed as runs: %v", list)
	}
	if status, out := ask(t, "GET", url+"/v1/actions/webhook-deliver", key, ""); status != 422 || out["code"] != "ACTION_NOT_FOUND" {
		t.Errorf("recipes may call the action of deliveries: %v", out)
	}
	first := r.Header.Get("Webhook-Id")

	box.down.Store(true)
	second := execute()
	<-box.got
	p.close(s)
	box.down.Store(false)
	s, url = p.must(nil)
	r, body = box.next(t, secret) // the next attempt, some seconds later
	if !strings.Contains(body, second) || r.Header.Get("Webhook-Id") == first {
		t.Errorf("after the restart: %s", body)
	}
	status, out := ask(t, "POST", url+"/v1/webhooks/"+id+"/rotate", key, "")
	if status != 200 || out["secret"] == secret {
		t.Fatal(status, out)
	}
	if status, out := ask(t, "POST", url+"/v1/webhooks/"+id+"/test", key, ""); status != 202 {
		t.Fatal(status, out)
	}
	r, _ = box.next(t, secret)
	if n := len(strings.Split(r.Header.Get("Webhook-Signature"), " ")); n != 4 {
		t.Errorf("%d signatures during a rotation", n)
	}
	p.close(s)
}

// A17: the guard of outgoing connections stands before hooks too, and what it refuses is
// not tried again.
func TestA17_WebhooksAreGuarded(t *testing.T) {
	p, box := newPlace(t), newInbox(t)
	s, url := p.must(func(cfg *service.Config) { cfg.Open = true })
	status, hook := ask(t, "POST", url+"/v1/webhooks", "", `{"url": "`+box.URL+`", "events": ["*"]}`)
	if status != 201 {
		t.Fatal(status, hook)
	}
	at := url + "/v1/webhooks/" + hook["id"].(string)
	_, d := ask(t, "POST", at+"/test", "", "")
	if _, err := s.Node.Engine.Wait(t.Context(), "local:"+hook["id"].(string), d["id"].(string)); err != nil {
		t.Fatal(err)
	}
	_, d = ask(t, "GET", at+"/deliveries/"+d["id"].(string), "", "")
	attempts := d["attempts"].([]any)
	if d["state"] != "failed" || len(attempts) != 1 || attempts[0].(map[string]any)["errorCode"] != "EGRESS_REFUSED" || len(box.got) != 0 {
		t.Errorf("%v", d)
	}
	p.close(s)
}
