// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/roux-engine/roux/action/actiontest"
	"github.com/roux-engine/roux/fault"
)

// breaks answers as a path says, and breaks the connection.
func breaks(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/half":
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("half"))
	case "/large":
		_, _ = w.Write(make([]byte, 100))
		return
	case "/500", "/502", "/503", "/504", "/409", "/429":
		var status int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.WriteHeader(status)
		return
	}
	panic(http.ErrAbortHandler)
}

// I4: the outcome of a request is unknown if nobody has said how it ended, and if what came of it is
// lost. Nobody needs to know it of one without an effect.
func TestI4_HTTPOutcome(t *testing.T) {
	o := server(t, breaks)
	for _, tt := range []struct {
		method, path string
		code         fault.Code
		unknown      bool
	}{
		{"POST", "/", fault.ServiceUnavailable, true},
		{"PATCH", "/", fault.ServiceUnavailable, true},
		{"PUT", "/", fault.ServiceUnavailable, true},
		{"DELETE", "/", fault.ServiceUnavailable, true},
		{"GET", "/", fault.ServiceUnavailable, false},
		{"POST", "/half", fault.ServiceUnavailable, true},
		{"GET", "/half", fault.ServiceUnavailable, false},
		{"POST", "/large", fault.OutputTooLarge, true},
		{"POST", "/500", fault.ProviderError, false},
		{"POST", "/502", fault.ProviderError, true},
		{"POST", "/504", fault.ProviderError, true},
		{"GET", "/504", fault.ProviderError, false},
		{"POST", "/503", fault.ServiceUnavailable, false},
		{"POST", "/429", fault.RateLimited, false},
		{"POST", "/409", fault.HTTPStatus, false},
	} {
		in := map[string]any{"method": tt.method, "maxBytes": 50}
		if tt.method != "GET" {
			in["body"] = map[string]any{"charge": "the card"}
		}
		_, err := o.call(t, tt.path, in)
		if fault.CodeOf(err) != tt.code || fault.OutcomeUnknown(err) != tt.unknown {
			t.Errorf("%s %s: %v, the outcome is unknown %v, want %s, %v", tt.method, tt.path, err, fault.OutcomeUnknown(err), tt.code, tt.unknown)
		}
	}
	o.Close()
	var err error
	for range 10 { // connections that the client kept are found closed first
		if _, err = o.call(t, "/", map[string]any{"method": "POST", "body": "x"}); !fault.OutcomeUnknown(err) {
			break
		}
	}
	if fault.CodeOf(err) != fault.ServiceUnavailable || fault.OutcomeUnknown(err) {
		t.Errorf("nothing listens: %v", err)
	}
}

// I4: the same of calls of models, with streams and without, whatever the protocol.
func TestI4_ModelOutcome(t *testing.T) {
	var calls atomic.Int64
	var answer atomic.Pointer[http.HandlerFunc]
	a := modelAction(t, "llm", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		(*answer.Load())(w, r)
	}))
	on := func(path string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { r.URL.Path = path; breaks(w, r) }
	}
	for _, tt := range []struct {
		name    string
		answer  http.HandlerFunc
		code    fault.Code
		unknown bool
	}{
		{"no answer", on("/"), fault.ServiceUnavailable, true},
		{"half an answer", on("/half"), fault.ServiceUnavailable, true},
		{"a gateway", on("/504"), fault.ProviderError, true},
		{"a failure", on("/500"), fault.ProviderError, false},
		{"overloaded", on("/503"), fault.ServiceUnavailable, false},
		{"slower", on("/429"), fault.RateLimited, false},
	} {
		for _, provider := range []string{"a", "b"} {
			for _, stream := range []bool{true, false} {
				answer.Store(&tt.answer)
				before := calls.Load()
				_, _, err := callModel(t, store(t), a, m{"prompt": "hello", "provider": provider, "stream": stream}, actiontest.WithEffectKey("key"))
				if fault.CodeOf(err) != tt.code || fault.OutcomeUnknown(err) != tt.unknown || calls.Load() != before+1 {
					t.Errorf("%s, provider %s, stream %v: %v, the outcome is unknown %v, want %s, %v; %d calls",
						tt.name, provider, stream, err, fault.OutcomeUnknown(err), tt.code, tt.unknown, calls.Load()-before)
				}
			}
		}
	}
}

// I4: an answer that is sent back is a second call. If that one does not come about, the first has
// happened all the same: with another key it would be made again.
func TestI4_RepairOutcome(t *testing.T) {
	var keys []string
	second := http.StatusServiceUnavailable
	a := modelAction(t, "llm", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if keys = append(keys, r.Header.Get("Idempotency-Key")); len(keys)%2 == 0 {
			w.WriteHeader(second)
			return
		}
		_ = json.NewEncoder(w).Encode(m{"id": "1", "model": "small", "usage": m{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
			"choices": []any{m{"message": m{"role": "assistant", "content": "no JSON"}, "finish_reason": "stop"}}})
	}))
	ask := func() error {
		_, _, err := callModel(t, store(t), a, m{"prompt": "hello", "provider": "a", "stream": false, "outputSchema": m{"type": "object"}}, actiontest.WithEffectKey("key"))
		return err
	}
	if err := ask(); fault.CodeOf(err) != fault.ServiceUnavailable || !fault.OutcomeUnknown(err) || fmt.Sprint(keys) != "[key key-repair]" {
		t.Errorf("%v, keys %q", err, keys)
	}
	second = http.StatusInternalServerError
	if err := ask(); fault.CodeOf(err) != fault.ProviderError || fault.OutcomeUnknown(err) {
		t.Errorf("the service says that it failed: %v", err)
	}
}

// I4, A29: a service that takes the request and is silent, and then resets the connection.
func TestI4_Reset(t *testing.T) {
	o := server(t, func(http.ResponseWriter, *http.Request) {})
	reset := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}))
	defer reset.Close()
	o.URL = reset.URL
	if _, err := o.call(t, "/", map[string]any{"method": "POST", "body": "x"}); fault.CodeOf(err) != fault.ServiceUnavailable || !fault.OutcomeUnknown(err) {
		t.Errorf("%v", err)
	}
}
