// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/provider"
)

const farm = `{"kind": "jobs", "url": "URL", "model": "m", "prices": {"m": {"job": "1"}}, "api": {"submit": {"path": "/jobs", "body": {}, "job": "body.id"}, "poll": {"path": "/jobs/{{ job }}"}, "state": "body.status", "succeeded": ["done"], "failed": ["failed"], "output": "body.result"}}`

// I4, F15: if the connection breaks after a job was sent, nobody knows whether the service has it,
// nor if a proxy on the way got no answer. If the service does not say which job it is, it has one.
func TestI4_SubmissionWithoutAnAnswer(t *testing.T) {
	var answer atomic.Pointer[func(http.ResponseWriter)]
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		(*answer.Load())(w)
	}))
	defer srv.Close()
	submit := submission(t, srv.URL)
	status := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.WriteHeader(code) }
	}
	for _, tt := range []struct {
		name    string
		answer  func(http.ResponseWriter)
		code    fault.Code
		unknown bool
	}{
		{"no answer", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, fault.ServiceUnavailable, true},
		{"half an answer", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"id": "j`))
			panic(http.ErrAbortHandler)
		}, fault.ServiceUnavailable, true},
		{"no id", func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{}`)) }, fault.ProviderError, true},
		{"a gateway", status(http.StatusGatewayTimeout), fault.ProviderError, true},
		{"a failure", status(http.StatusInternalServerError), fault.ProviderError, false},
		{"overloaded", status(http.StatusServiceUnavailable), fault.ServiceUnavailable, false},
		{"slower", status(http.StatusTooManyRequests), fault.RateLimited, false},
	} {
		answer.Store(&tt.answer)
		before := asked.Load()
		if err := submit(); fault.CodeOf(err) != tt.code || fault.OutcomeUnknown(err) != tt.unknown || asked.Load() != before+1 {
			t.Errorf("%s: %v, the outcome is unknown %v, want %v; %d requests", tt.name, err, fault.OutcomeUnknown(err), tt.unknown, asked.Load()-before)
		}
	}
	srv.Close()
	submit = submission(t, srv.URL) // without a connection from before, of which nobody knows whether the request arrived
	if err := submit(); fault.CodeOf(err) != fault.ServiceUnavailable || fault.OutcomeUnknown(err) {
		t.Errorf("the service is away: %v", err)
	}
}

// farmAt returns a service that carries out jobs at an address.
func farmAt(t *testing.T, url string) *provider.Set {
	t.Helper()
	var cfg provider.Config

	if err := json.Unmarshal([]byte(strings.Replace(farm, "URL", url, 1)), &cfg); err != nil {
		t.Fatal(err)
	}
	out := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(out.Close)
	set, err := provider.New(map[string]provider.Config{"farm": cfg}, out, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// A28: what a remote worker says of a job leads no request elsewhere, and ends the step if it cannot be
// right. A job without a handle is one of the default model.
func TestA28_JobsOfRemoteWorkers(t *testing.T) {
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		_, _ = w.Write([]byte(`{"status": "done", "result": {"n": 1}}`))
	}))
	defer srv.Close()
	svc := farmAt(t, srv.URL).JobServices()["farm"]
	for _, j := range []action.SubmittedJob{
		{ID: "../admin"}, {ID: "1/admin"}, {ID: "%2e%2e/admin"}, {ID: "1?all=true"}, {ID: ""}, {ID: "1", Handle: []byte(`{"model": "../x"}`)}, {ID: "1", Handle: []byte(`[]`)},
	} {
		j.Account = "local"
		st, err := svc.Poll(t.Context(), &j)
		if err != nil || st.Result == nil {
			t.Fatalf("%q: %v", j.ID, err)
		}
		if _, err := st.Result(t.Context(), &action.Task{Account: "local"}); fault.CodeOf(err) != fault.ProviderError {
			t.Errorf("%q: %v", j.ID, err)
		}
		if err := svc.Cancel(t.Context(), &j); err != nil {
			t.Errorf("cancel %q: %v", j.ID, err)
		}
	}
	if len(asked) > 0 {
		t.Errorf("asked %q", asked)
	}
	st, err := svc.Poll(t.Context(), &action.SubmittedJob{ID: "1", Account: "local"})
	if err != nil || st.Result == nil {
		t.Fatal(err)
	}
	res, err := st.Result(t.Context(), &action.Task{Account: "local"})
	if out, _ := res.Output.(map[string]any); err != nil || out["model"] != "m" || len(asked) != 1 {
		t.Errorf("%v, %v, asked %q", res, err, asked)
	}
}

// submission returns a function that submits a job to a service.
func submission(t *testing.T, url string) func() error {
	t.Helper()
	run := farmAt(t, url).JobActions()[0].Run
	return func() error {
		_, err := run(t.Context(), &action.Task{Input: []byte(`{"input": {}}`), EffectKey: "key", Account: "local"})
		return err
	}
}
