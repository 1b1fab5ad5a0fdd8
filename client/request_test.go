// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
)

// pauses records how long a client would sleep.
type pauses []time.Duration

func (p *pauses) sleep(ctx context.Context, d time.Duration) error {
	*p = append(*p, d)
	return ctx.Err()
}

// problem answers with a problem document.
func problem(status int, code fault.Code, retryable bool, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "code": code, "title": "T", "detail": "D", "remedy": "R", "retryable": retryable, "requestId": "req_1"})
	}
}

func fine(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"id":"run_1"}`)) }

// cut closes the connection before the answer.
func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// keysOf passes requests on, and records their idempotency keys.
func keysOf(keys *record[string], h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		keys.add(r.Header.Get("Idempotency-Key"))
		h(w, r)
	}
}

// What is sent again, and what is not. Each attempt of a POST has the same key.
func TestRetries(t *testing.T) {
	get := func(ctx context.Context, c *client.Client) error { return last(c.Runs.Get(ctx, "run_1", false)) }
	post := func(ctx context.Context, c *client.Client) error {
		return last(c.Runs.Cancel(ctx, "run_1", client.Reason{}))
	}
	newKey := func(ctx context.Context, c *client.Client) error {
		return last(c.Keys.Create(ctx, client.KeyRequest{Name: "x"}))
	}
	replace := func(ctx context.Context, c *client.Client) error {
		_, _, err := c.Recipes.Replace(ctx, "x", []byte("x"), 7)
		return err
	}
	remove := func(ctx context.Context, c *client.Client) error { return c.Runs.Delete(ctx, "run_1") }
	for _, tt := range []struct {
		name    string
		ask     func(context.Context, *client.Client) error
		answers []http.HandlerFunc
		sent    int
		code    fault.Code
	}{
		{"a connection that is cut", get, []http.HandlerFunc{cut, fine}, 2, ""},
		{"a change whose answer is cut", post, []http.HandlerFunc{cut, cut, fine}, 3, ""},
		{"overload", post, []http.HandlerFunc{problem(503, fault.Stopping, true), fine}, 2, ""},
		{"a proxy without its server", post, []http.HandlerFunc{status(502), status(504), fine}, 3, ""},
		{"too many requests", newKey, []http.HandlerFunc{problem(429, fault.RequestRateExceeded, true), fine}, 2, ""},
		{"the twin is in flight", post, []http.HandlerFunc{problem(409, fault.RequestInFlight, true, "Retry-After", "1"), fine}, 2, ""},
		{"up to the number of attempts", get, []http.HandlerFunc{problem(503, fault.StoreFailed, true)}, 5, fault.StoreFailed},
		{"no: another conflict", post, []http.HandlerFunc{problem(409, fault.Conflict, false)}, 1, fault.Conflict},
		{"no: it does not help", get, []http.HandlerFunc{problem(503, fault.StoreReadOnly, false)}, 1, fault.StoreReadOnly},
		{"no: a defect", post, []http.HandlerFunc{problem(500, fault.InternalError, true)}, 1, fault.InternalError},
		{"no: a new key that may exist", newKey, []http.HandlerFunc{cut, fine}, 1, fault.ServerUnreachable},
		{"no: a new key that may exist behind a proxy", newKey, []http.HandlerFunc{status(504), fine}, 1, fault.ServerUnreachable},
		{"no: a replacement that may have been made", replace, []http.HandlerFunc{cut, fine}, 1, fault.ServerUnreachable},
		{"no: longer than the client waits", get, []http.HandlerFunc{problem(503, fault.Stopping, true, "Retry-After", "3600")}, 1, fault.Stopping},
		{"deleted by the first", remove, []http.HandlerFunc{cut, problem(404, fault.RunNotFound, false)}, 2, ""},
		{"nothing to delete", remove, []http.HandlerFunc{problem(404, fault.RunNotFound, false)}, 1, fault.RunNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var seen record[string]
			web := httptest.NewServer(keysOf(&seen, replies(tt.answers...)))
			defer web.Close()
			var p pauses
			c := open(t, client.Config{URL: web.URL, Sleep: p.sleep})
			err := tt.ask(t.Context(), c)
			keys := seen.all()
			if fault.CodeOf(err) != tt.code || len(keys) != tt.sent || len(p) != tt.sent-1 {
				t.Errorf("%d attempts with %d pauses end with %v, want %d with %q", len(keys), len(p), err, tt.sent, tt.code)
			}
			if len(slices.Compact(slices.Clone(keys))) != 1 {
				t.Errorf("the attempts have the keys %q", keys)
			}
		})
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", code) }
}

// A refused connection cannot have brought a request: everything is sent again.
func TestRetriesWhatDidNotArrive(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	_ = ln.Close()
	var p pauses
	c := open(t, client.Config{URL: "http://" + address, Sleep: p.sleep})
	_, err = c.Keys.Create(t.Context(), client.KeyRequest{Name: "x"})
	if fault.CodeOf(err) != fault.ServerUnreachable || len(p) != 4 {
		t.Errorf("%d pauses, then %v", len(p), err)
	}
	for i, d := range p { // 200 ms, doubled, each shortened by up to a half
		if full := 200 * time.Millisecond << i; d < full/2 || d > full {
			t.Errorf("pause %d is %s, want %s to %s", i, d, full/2, full)
		}
	}
}

// Retry-After is honoured, as seconds and as a date, and the end of the context is what stops
// it: an error that would be returned too late is returned at once.
func TestRetryAfter(t *testing.T) {
	at := time.Now().Add(40 * time.Second).UTC().Format(http.TimeFormat)
	web := httptest.NewServer(replies(
		problem(503, fault.Stopping, true, "Retry-After", "7"), problem(429, fault.RequestRateExceeded, true, "Retry-After", at), fine,
	))
	defer web.Close()
	var p pauses
	c := open(t, client.Config{URL: web.URL, Sleep: p.sleep})
	if _, err := c.Runs.Get(t.Context(), "x", false); err != nil {
		t.Fatal(err)
	}
	if len(p) != 2 || p[0] != 7*time.Second || p[1] < 30*time.Second || p[1] > 40*time.Second {
		t.Errorf("pauses %v, want 7 s and about 40 s", p)
	}

	slow := httptest.NewServer(problem(503, fault.Stopping, true, "Retry-After", "30"))
	defer slow.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	p = nil
	c = open(t, client.Config{URL: slow.URL, Sleep: p.sleep})
	if _, err := c.Runs.Get(ctx, "x", false); fault.CodeOf(err) != fault.Stopping || len(p) != 0 {
		t.Errorf("before the deadline: %v after %v", err, p)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	why := errors.New("why")
	c = open(t, client.Config{URL: slow.URL, Sleep: func(ctx context.Context, _ time.Duration) error {
		stop(why)
		return context.Cause(ctx)
	}})
	if _, err := c.Runs.Get(ctx, "x", false); !errors.Is(err, why) || !errors.Is(err, fault.Stopping) {
		t.Errorf("stopped while it waits: %v", err)
	}
	if _, err := c.Runs.Get(ctx, "x", false); !errors.Is(err, why) {
		t.Errorf("stopped before: %v", err)
	}
}

// An error has all that the server has said: code, message, remedy, status, id of the request,
// places, and the limit of a 402.
func TestErrors(t *testing.T) {
	s := startServer(t)
	c := s.client()
	_, err := c.Runs.Get(t.Context(), "run_nothing", false)
	var e *fault.Error
	var p *client.Problem
	if !errors.As(err, &e) || !errors.As(err, &p) || !errors.Is(err, fault.RunNotFound) || e.Msg == "" || e.Remedy == "" || p.Status != 404 || p.RequestID == "" {
		t.Errorf("missing run: %+v, %+v", e, p)
	}
	_, _, err = c.Recipes.Create(t.Context(), []byte("name: x\nversion: 1.0.0\nsteps:\n  - id: a\n    acton: {name: gate}\n"))
	if !errors.As(err, &e) || e.Code != fault.RecipeInvalid || len(e.Diags) == 0 || e.Diags[0].Pos.Line != 5 {
		t.Errorf("invalid recipe: %+v", e)
	}
	register(t, c, costly)
	if _, err = c.Accounts.Grant(t.Context(), "acme", client.Grant{Amount: 3}); err != nil {
		t.Fatal(err)
	}
	key, err := c.Keys.Create(t.Context(), client.KeyRequest{Account: "acme", Name: "x", Role: "developer"})
	if err != nil {
		t.Fatal(err)
	}
	poor := open(t, client.Config{URL: "http://" + s.address, Key: key.Token})
	register(t, poor, costly)
	_, err = poor.Recipes.Execute(t.Context(), "costly", client.ExecuteRequest{})
	if !errors.As(err, &e) || e.Code != fault.InsufficientCredits || e.Limit == nil || e.Limit.Source != "account" || e.Limit.Missing != 4 {
		t.Errorf("no credit: %+v, limit %+v", e, e.Limit)
	}
	if _, err = poor.Accounts.Credits(t.Context(), "local", noTime); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("another account: %v", err)
	}
	if _, err = open(t, client.Config{URL: "http://" + s.address}).Me(t.Context()); fault.CodeOf(err) != fault.Unauthorized {
		t.Errorf("without a key: %v", err)
	}
}

// What is no server of Roux is told apart, and a redirect is not followed: the key would go
// along.
func TestForeignServers(t *testing.T) {
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer other.Close()
	for code, want := range map[int]fault.Code{401: fault.Unauthorized, 403: fault.Forbidden, 404: fault.NotFound, 418: fault.ServerUnreachable, 500: fault.ServerUnreachable, 302: fault.ServerUnreachable} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if code == 302 {
				http.Redirect(w, r, other.URL, code)
				return
			}
			status(code)(w, r)
		}))
		c := open(t, client.Config{URL: web.URL, Key: "roux_secret"})
		err := last(c.Me(t.Context()))
		if fault.CodeOf(err) != want || !strings.Contains(err.Error(), strconv.Itoa(code)) || strings.Contains(err.Error(), "roux_secret") {
			t.Errorf("%d: %v", code, err)
		}
		web.Close()
	}
	if asked > 0 {
		t.Error("a redirect was followed")
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	defer web.Close()
	if err := last(open(t, client.Config{URL: web.URL}).Me(t.Context())); fault.CodeOf(err) != fault.InternalError {
		t.Errorf("an answer that is no JSON: %v", err)
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []client.Config{
		{}, {URL: "roux.example.com"}, {URL: "ftp://x"}, {URL: "http://"}, {URL: "http://u:p@x"}, {URL: "http://x?a=b"}, {URL: "http://x#a"}, {URL: "::"}, {URL: "http://x", Key: "a\nb"},
	} {
		if _, err := client.New(cfg); fault.CodeOf(err) != fault.Usage || strings.Contains(err.Error(), "p@") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	// The path of the address is kept, names are escaped, and headers are added.
	var got []string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.URL.EscapedPath(), r.Header.Get("X-Extra"), r.Header.Get("User-Agent"), r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, "{}")
	}))
	defer web.Close()
	c := open(t, client.Config{URL: web.URL + "/under/", Key: "k", Header: http.Header{"X-Extra": {"y"}}, UserAgent: "tests"})
	if _, err := c.Recipes.Get(t.Context(), "a/b@1 ?"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Recipes.Get(t.Context(), ".."); err != nil {
		t.Fatal(err)
	}
	want := []string{"/under/v1/recipes/a%2Fb@1%20%3F", "y", "tests", "Bearer k", "/under/v1/recipes/%2E%2E", "y", "tests", "Bearer k"}
	if !slices.Equal(got, want) {
		t.Errorf("the server got %q, want %q", got, want)
	}
}

// A change is made once, although the answer to each first attempt is lost: a run is started
// once, and a grant is given once.
func TestLostAnswersChangeNothingTwice(t *testing.T) {
	s := startServer(t)
	direct := s.client()
	register(t, direct, greet)
	var asked record[string]
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		s.api.ServeHTTP(rec, r)
		if asked.add(r.URL.Path)%2 == 1 {
			panic(http.ErrAbortHandler)
		}
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	}))
	defer web.Close()
	c := open(t, client.Config{URL: web.URL, Key: admin})
	started := execute(t, c, "greet", client.ExecuteRequest{Parameters: map[string]any{"name": "Ana"}})
	if !started.Existing {
		t.Error("the second attempt started another run")
	}
	if _, err := c.Accounts.Grant(t.Context(), "acme", client.Grant{Amount: 10}); err != nil {
		t.Fatal(err)
	}
	v, err := c.Recipes.Deprecate(t.Context(), "greet", client.Deprecation{Note: "old"})
	if err != nil || v.Status != "deprecated" {
		t.Fatal(v, err)
	}
	if err := c.Recipes.Delete(t.Context(), "greet"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if runs, err := client.Collect(direct.Runs.List(t.Context(), client.RunQuery{}), 0); err != nil || len(runs) != 1 {
		t.Errorf("runs: %v, %v", runs, err)
	}
	if credits, err := direct.Accounts.Credits(t.Context(), "acme", noTime); err != nil || credits.Balance != 10 {
		t.Errorf("credits: %+v, %v", credits, err)
	}
}

// X103: a derived key depends on the recipe and on the canonical form of its inputs, and makes
// a second start of the same one run nothing.
func TestX103_DerivedKey(t *testing.T) {
	key := func(recipe string, req client.ExecuteRequest) string {
		k, err := client.DerivedKey(recipe, &req)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	a := key("greet", client.ExecuteRequest{Parameters: json.RawMessage(`{"b": 1.0, "a": "\u00e9"}`), MaxCredits: 5})
	if b := key("greet", client.ExecuteRequest{Parameters: map[string]any{"a": "é", "b": 1}}); a != b {
		t.Error("the same inputs have two keys")
	}
	// printf 'greet{"fileHashes":[],"parameters":{"a":"é","b":1}}' | sha256sum
	if want := "a868cbaa0a0f59b4c7f4643bcab8673faa61f21370418f90eb460af709f6d232"; a != want {
		t.Errorf("key %s, want %s", a, want)
	}
	if k := key("greet", client.ExecuteRequest{}); k != key("greet", client.ExecuteRequest{Parameters: map[string]any{}, FileHashes: []string{}}) {
		t.Error("no inputs and empty inputs differ")
	}
	for _, other := range []string{
		key("greet2", client.ExecuteRequest{Parameters: map[string]any{"a": "é", "b": 1}}), key("greet", client.ExecuteRequest{Parameters: map[string]any{"a": "é", "b": 2}}),
		key("greet", client.ExecuteRequest{Parameters: map[string]any{"a": "é", "b": 1}, FileHashes: []string{"x"}}),
	} {
		if other == a {
			t.Error("different starts have one key")
		}
	}
	if _, err := client.DerivedKey("x", &client.ExecuteRequest{Parameters: func() {}}); fault.CodeOf(err) != fault.Usage {
		t.Errorf("what is no JSON: %v", err)
	}

	s := startServer(t)
	c := s.client()
	register(t, c, greet)
	req := client.ExecuteRequest{Parameters: map[string]any{"name": "Ana"}, DeriveKey: true}
	first, second := execute(t, c, "greet", req), execute(t, c, "greet", req)
	if first.ID != second.ID || first.Existing || !second.Existing {
		t.Errorf("%+v, then %+v", first, second)
	}
	req.Parameters = map[string]any{"name": "Bo"}
	if third := execute(t, c, "greet", req); third.ID == first.ID {
		t.Error("other inputs get the same run")
	}
}
