// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/api"
	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
)

const (
	hold = `{"name":"hold","version":"1.0.0","steps":[{"id":"hold","action":{"name":"hold"}}]}`
	pay  = `{"name":"pay","version":"1.0.0","steps":[{"id":"pay","action":{"name":"pay"}}]}`
)

// A program has an action that waits for the test, and one that costs 5.
type program struct {
	t       *testing.T
	opt     roux.Options
	began   chan string // the run of each attempt at hold
	release chan struct{}
}

func newProgram(t *testing.T) *program {
	p := &program{t: t, began: make(chan string, 10), release: make(chan struct{})}
	p.opt = roux.Options{Dir: t.TempDir(), Actions: []action.Action{
		{Name: "hold", Version: "1.0.0", Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			p.began <- task.Run
			select {
			case <-p.release:
				return action.Result{}, nil
			case <-ctx.Done():
				return action.Result{}, ctx.Err()
			}
		}},
		{Name: "pay", Version: "1.0.0", Cost: 5, Run: func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil }},
	}}
	return p
}

// client returns one of a server that the test has for itself.
func (p *program) client(s *api.Server, key string) (c *client.Client, url string) {
	p.t.Helper()
	web := httptest.NewServer(s)
	p.t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	c, err := client.New(client.Config{URL: web.URL, Key: key})
	if err != nil {
		p.t.Fatal(err)
	}
	return c, web.URL
}

func (p *program) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *program) start(e *roux.Engine, recipe, key string) string {
	p.t.Helper()
	run, err := e.Start(p.t.Context(), roux.Request{Recipe: []byte(recipe), Key: key})
	p.must(err)
	return run
}

func (p *program) status(e *roux.Engine, run, want string) {
	p.t.Helper()
	got, err := e.Get(p.t.Context(), run)
	p.must(err)
	if got.Status != want {
		p.t.Errorf("the run is %s, want %s", got.Status, want)
	}
}

// What was set over HTTP holds as soon as the data directory is open again, before there is a
// server: the limit of live runs, for runs that wait in the directory too, the spending limit of
// a key, and what an account may store. A server that is made then has the same rules, and
// changes them while the engine runs.
func TestRulesHoldFromOpen(t *testing.T) {
	p := newProgram(t)
	e := open(t, p.opt)
	s := serve(t, e, api.Options{})
	admin := s.FirstKey()
	c, _ := p.client(s, admin)
	_, err := c.Accounts.Update(t.Context(), "acme", client.AccountSettings{LiveRunLimit: new(1), StorageBytes: new(int64(4))}, "")
	p.must(err)
	key, err := c.Keys.Create(t.Context(), client.KeyRequest{Account: "acme", Name: "small", Role: "operator", Limit: &client.KeyLimit{Credits: 4}})
	p.must(err)
	acme := e.For("acme")
	_, err = acme.Grant(t.Context(), roux.Grant{Key: "lot", Amount: 100})
	p.must(err)
	first := p.start(acme, hold, "")
	<-p.began
	second := p.start(acme, hold, "")
	p.status(acme, second, "queued")
	p.must(e.Close())

	e = open(t, p.opt)
	acme = e.For("acme")
	if run := <-p.began; run != first {
		t.Errorf("the run %s goes on first, want %s", run, first)
	}
	p.status(acme, second, "queued")
	third := p.start(acme, hold, "")
	p.status(acme, third, "queued")
	refused := func(err error) {
		t.Helper()
		var problem *fault.Error
		if !errors.As(err, &problem) || problem.Code != fault.InsufficientCredits || !strings.Contains(problem.Msg, "key:"+key.ID) {
			t.Errorf("more with a key than it may spend: %v", err)
		}
	}
	_, err = acme.Start(t.Context(), roux.Request{Recipe: []byte(pay), Key: key.ID})
	refused(err)
	if _, err := acme.Put(t.Context(), strings.NewReader("12345"), "f", "text/plain"); fault.CodeOf(err) != fault.QuotaExceeded {
		t.Errorf("5 bytes in an account that may store 4: %v", err)
	}

	s = serve(t, e, api.Options{})
	if s.FirstKey() != "" {
		t.Error("a second first key")
	}
	c, url := p.client(s, admin)
	spender, err := client.New(client.Config{URL: url, Key: key.Token})
	p.must(err)
	defer spender.Close()
	_, err = c.Accounts.Update(t.Context(), "acme", client.AccountSettings{LiveRunLimit: new(2)}, "")
	p.must(err)
	if run := <-p.began; run != second {
		t.Errorf("with a limit of 2 the run %s begins, want %s", run, second)
	}
	p.status(acme, third, "queued")
	close(p.release)
	for _, run := range []string{first, second, third} {
		if got, err := acme.Wait(t.Context(), run); err != nil || got.Status != "completed" {
			t.Errorf("%+v, %v", got, err)
		}
	}
	started, err := spender.Runs.Get(t.Context(), third, false)
	if err != nil || started.Status != "completed" {
		t.Errorf("over HTTP: %+v, %v", started, err)
	}
}

// An engine has one server, which its end closes first. What cannot be is refused, and leaves
// the engine as it was.
func TestOneServer(t *testing.T) {
	p := newProgram(t)
	e := open(t, p.opt)
	for _, opt := range []api.Options{{AdminKey: "short"}, {NoKeys: true, AdminKey: strings.Repeat("k", 40)}} {
		if s, err := api.New(t.Context(), e, opt); fault.CodeOf(err) != fault.ConfigInvalid || s != nil {
			t.Errorf("%+v: %v, %v", opt, s, err)
		}
	}
	s := serve(t, e.For("acme"), api.Options{AdminKey: strings.Repeat("k", 40)})
	if _, err := api.New(t.Context(), e, api.Options{}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a second server: %v", err)
	}
	c, url := p.client(s, strings.Repeat("k", 40))
	me, err := c.Me(t.Context())
	if err != nil || me.Account != "acme" {
		t.Errorf("the key is of %+v, %v", me, err)
	}
	p.must(s.Close(t.Context()))
	if res, err := http.Get(url + "/v1/me"); err != nil || res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a closed server: %v, %v", res, err)
	}
	run := p.start(e, hold, "")
	if got := <-p.began; got != run {
		t.Errorf("the run %s begins, want %s", got, run)
	}
	if _, err := api.New(t.Context(), e, api.Options{}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a server after the first one is closed: %v", err)
	}
	p.must(e.Close())
	p.must(s.Close(t.Context()))
	if _, err := api.New(t.Context(), e, api.Options{}); fault.CodeOf(err) != fault.Stopping {
		t.Errorf("a closed engine: %v", err)
	}
}

// Requests in progress are answered before the engine is closed, streams end, and nothing
// begins.
func TestStopDrains(t *testing.T) {
	p := newProgram(t)
	e := open(t, p.opt)
	s := serve(t, e, api.Options{})
	_, url := p.client(s, s.FirstKey())
	run := p.start(e, hold, "")
	<-p.began
	streamed := make(chan error, 1)
	following := make(chan struct{})
	request := func(method, path string, body io.Reader) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, body)
		p.must(err)
		req.Header.Set("Authorization", "Bearer "+s.FirstKey())
		return http.DefaultClient.Do(req)
	}
	stream, err := request(http.MethodGet, "/v1/recipe-executions/"+run+"/events", nil)
	p.must(err)
	go func() {
		_, err := io.ReadFull(stream.Body, make([]byte, 1))
		close(following)
		if err == nil {
			_, err = io.Copy(io.Discard, stream.Body)
		}
		streamed <- err
	}()
	<-following
	body, write := io.Pipe()
	stored := make(chan struct{})
	go func() {
		r := httptest.NewRequest(http.MethodPost, "/v1/files?name=f.txt", body)
		r.Header.Set("Content-Type", "text/plain")
		r.Header.Set("Authorization", "Bearer "+s.FirstKey())
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusCreated {
			t.Errorf("the file: %d %s", w.Code, w.Body)
		}
		_ = body.Close()
		close(stored)
	}()
	_, err = io.WriteString(write, "half ") // the request has begun when its body is read
	p.must(err)
	stopped := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { stopped <- e.Stop(ctx) }()
	if err := <-streamed; err != nil {
		t.Errorf("the stream ended with %v", err)
	}
	for refused := false; !refused; {
		res, err := request(http.MethodGet, "/v1/me", nil)
		p.must(err)
		refused = res.StatusCode == http.StatusServiceUnavailable
		_ = res.Body.Close()
	}
	select {
	case err := <-stopped:
		t.Fatalf("the engine was stopped (%v) while a request is in progress", err)
	default:
	}
	_, err = io.WriteString(write, "and half")
	p.must(errors.Join(err, write.Close()))
	<-stored
	close(p.release)
	p.must(<-stopped)
}

// A message to a webhook that was being sent when the engine was closed is sent by the next
// engine of the directory, which nobody serves. What happens there is told by the next server.
func TestDeliveriesGoOn(t *testing.T) {
	p := newProgram(t)
	p.opt.EgressAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	told, answer := make(chan string, 10), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		told <- string(body)
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	defer receiver.Close()
	e := open(t, p.opt)
	s := serve(t, e, api.Options{})
	c, _ := p.client(s, s.FirstKey())
	_, err := c.Webhooks.Create(t.Context(), client.WebhookChange{URL: new(receiver.URL), Events: []string{"run.completed"}})
	p.must(err)
	close(p.release)
	first := p.start(e, hold, "")
	if body := <-told; !strings.Contains(body, first) {
		t.Errorf("the message is %s", body)
	}
	p.must(e.Close())

	e = open(t, p.opt)
	if body := <-told; !strings.Contains(body, first) {
		t.Errorf("after Open, the message is %s", body)
	}
	close(answer)
	second := p.start(e, hold, "")
	_, err = e.Wait(t.Context(), second)
	p.must(err)
	serve(t, e, api.Options{})
	if body := <-told; !strings.Contains(body, second) {
		t.Errorf("with a server, the message is %s", body)
	}
}

// Secrets of the program's own are not those that a server could keep.
func TestSecretsOfTheProgram(t *testing.T) {
	p := newProgram(t)
	p.opt.Secrets = noSecrets{}
	s := serve(t, open(t, p.opt), api.Options{})
	c, _ := p.client(s, s.FirstKey())
	if _, err := c.Secrets.Set(t.Context(), "TOKEN", "a-secret-value"); fault.CodeOf(err) != fault.NotAvailable {
		t.Errorf("a secret is kept that no step can use: %v", err)
	}
}

type noSecrets struct{}

func (noSecrets) Secret(_ context.Context, _, name string) (string, error) {
	return "", fault.New(fault.SecretNotFound, "no secret %s", name)
}
