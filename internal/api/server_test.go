// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/service"
)

// A server is a service with a listener and keys of two accounts.
type server struct {
	t     testing.TB
	url   string
	svc   *service.Service
	admin string        // token of the operator
	stop  func()        // closes it; it may be called more than once
	gate  chan struct{} // an attempt of the action gate returns when it receives or is closed
}

// testActions are called by the recipes of these tests. gate waits until the test lets it
// go on; chat streams two texts and waits after each; flood streams 3.6 MiB; costly has a
// price.
func testActions(gate chan struct{}) []action.Action {
	object := json.RawMessage(`{"type":"object"}`)
	return []action.Action{
		{Name: "gate", Version: "1.0.0", Input: object, Output: object, Run: func(ctx context.Context, _ *action.Task) (action.Result, error) {
			select {
			case <-gate:
				return action.Result{Output: map[string]any{"ok": true}}, nil
			case <-ctx.Done():
				return action.Result{}, ctx.Err()
			}
		}},
		{Name: "chat", Version: "1.0.0", Input: object, Output: object, Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			for _, text := range []string{"once ", "upon ", "", "a ", "time", ""} {
				if task.Report.Delta(text); text == "" {
					select {
					case <-gate:
					case <-ctx.Done():
						return action.Result{}, ctx.Err()
					}
				}
			}
			return action.Result{Output: map[string]any{"ok": true}}, nil
		}},
		{Name: "flood", Version: "1.0.0", Input: object, Output: object, Run: func(_ context.Context, task *action.Task) (action.Result, error) {
			for i := range 900 {
				task.Report.Delta(fmt.Sprintf("%d %s", i, strings.Repeat("x", 4<<10)))
			}
			return action.Result{Output: map[string]any{"ok": true}}, nil
		}},
		{Name: "costly", Version: "1.0.0", Input: object, Output: object, Cost: 5, Metadata: action.Metadata{DurationRange: &action.DurationRange{Min: "1s", Max: "2s"}},
			Run: func(context.Context, *action.Task) (action.Result, error) {
				return action.Result{Output: map[string]any{"ok": true}}, nil
			}},
	}
}

// start starts a server on a new directory.
func start(t testing.TB) *server {
	t.Helper()
	return startAt(t, t.TempDir())
}

func startAt(t testing.TB, dir string) *server {
	t.Helper()
	return startWith(t, dir, -1, 0)
}

func startWith(t testing.TB, dir string, rate float64, burst int) *server {
	t.Helper()
	return startService(t, dir, nil, func(c *service.Config) { c.Rate, c.Burst = rate, burst })
}

// startService starts a server with more actions, and settings that set changes.
func startService(t testing.TB, dir string, more []action.Action, set func(*service.Config)) *server {
	t.Helper()
	gate := make(chan struct{})
	actions := node.NewActions(nil, append(testActions(gate), more...)...)
	st, err := node.OpenStore(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg := service.Config{
		Node:    node.Config{Dir: dir, Actions: actions, Retention: retention.Policy{}, Accounts: map[string]engine.AccountRules{"acme": {MaxLiveRuns: 1000}}},
		Account: "local", AdminToken: strings.Repeat("operator-", 5), MaxSource: 1 << 20, Rate: -1, Release: "test",
	}
	set(&cfg)
	svc, err := service.Open(t.Context(), st, cfg)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(svc.API)
	s := &server{t: t, url: web.URL, svc: svc, admin: strings.Repeat("operator-", 5), gate: gate}
	s.stop = sync.OnceFunc(func() {
		svc.API.Stop()
		web.CloseClientConnections()
		web.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := svc.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// An answer is an answer with its body.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

// call sends a request. body is nil, text, bytes, or a value that is sent as JSON.
func (s *server) call(token, method, path string, body any, headers ...string) answer {
	s.t.Helper()
	a, err := s.send(token, method, path, body, headers...)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (s *server) send(token, method, path string, body any, headers ...string) (answer, error) {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	case []byte:
		r = bytes.NewReader(b)
	default:
		data, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		r = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, s.url+path, r)
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(req) // redirects are not followed
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if !strings.HasPrefix(path, "/v1/approval-links/") { // pages for people, if the path names a link
		observe(s.t, method, path, res, data)
	}
	return answer{s.t, res.StatusCode, res.Header, data}, err
}

// want fails unless the answer has a status.
func (a answer) want(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// problem fails unless the answer is a problem document with the code.
func (a answer) problem(code fault.Code) answer {
	a.t.Helper()
	row, _ := fault.Lookup(code)
	if got := a.get("code"); got != string(code) || a.status != row.HTTP || a.header.Get("Content-Type") != "application/problem+json" {
		a.t.Fatalf("status %d, code %v, type %s, want %d %s: %s", a.status, got, a.header.Get("Content-Type"), row.HTTP, code, a.body)
	}
	if a.get("remedy") == "" || a.get("requestId") == "" {
		a.t.Errorf("a problem without a remedy or the id of its request: %s", a.body)
	}
	return a
}

// value decodes the body.
func (a answer) value() any {
	var v any
	if err := json.Unmarshal(a.body, &v); err != nil {
		a.t.Helper()
		a.t.Fatalf("the body is no JSON: %v: %s", err, a.body)
	}
	return v
}

// get returns a field; names of nested ones are joined with dots.
func (a answer) get(path string) any {
	v := a.value()
	for _, name := range strings.Split(path, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func (a answer) text(path string) string {
	s, _ := a.get(path).(string)
	return s
}

// key makes a key and returns its token.
func (s *server) key(account string, role access.Role) string {
	s.t.Helper()
	return s.call(s.admin, "POST", "/v1/keys", map[string]any{"account": account, "name": string(role), "role": string(role)}).want(201).text("token")
}

// grant gives an account credits.
func (s *server) grant(account string, n int) {
	s.t.Helper()
	s.call(s.admin, "POST", "/v1/accounts/"+account+"/grants", map[string]any{"key": "lot" + time.Now().String(), "amount": n}).want(201)
}

// greet is a recipe that only computes.
const greet = `{"name":"greet","version":"1.0.0","description":"Greets somebody.","category":"demo",
"steps":[{"id":"step_1","type":"transform","transform":{"expression":"'hi ' + input.name","outputBinding":"greeting"}}],
"inputSchema":{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}}`

// waits is a recipe that waits for a signal, and gated one whose action waits for the test.
const (
	waits = `{"name":"waits","version":"1.0.0","steps":[{"id":"ask","wait":{"signal":"approved"},"outputBinding":"decision"}]}`
	gated = `{"name":"gated","version":"1.0.0","steps":[{"id":"hold","action":{"name":"gate"}}]}`
)

func (s *server) register(token, text string) string {
	s.t.Helper()
	return s.call(token, "POST", "/v1/recipes", text).want(201).text("id")
}

// execute starts a run and returns its id.
func (s *server) execute(token, recipe string, body any) string {
	s.t.Helper()
	return s.call(token, "POST", "/v1/recipes/"+recipe+"/execute", body).want(202).text("executionId")
}

// everything is the content of all files of a directory.
func everything(t *testing.T, dir string) string {
	t.Helper()
	var all bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
