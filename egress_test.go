// SPDX-License-Identifier: Apache-2.0

package roux_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/roux-engine/roux"
)

// asks sends a request for each URL and keeps the outcomes.
const asks = `
name: asks
steps:
  - id: each
    loop:
      over: input.urls
      as: url
      failureStrategy: ignore
      steps:
        - {id: ask, action: {name: ACTION, parameters: {url: '{{ url }}'}}, outputBinding: answer}
    outputBinding: all
outputs: {all: all}
`

// A17: an embedded engine reaches only public addresses, under both names of the action,
// unless Options.EgressAllow allows a range.
func TestA17_EgressAllow(t *testing.T) {
	var hits atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("inside")) }))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			hits.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("internal/egress/testdata/hostile.txt")
	if err != nil {
		t.Fatal(err)
	}
	urls := strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(text), "PORT", port), "\n"), "\n")

	type answer struct {
		Body  any
		Error struct{ Code, Message string }
	}
	run := func(t *testing.T, action string, urls []string, allow ...netip.Prefix) []answer {
		t.Helper()
		e, err := roux.Open(t.Context(), roux.Options{Dir: t.TempDir(), EgressAllow: allow})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		id, err := e.Start(t.Context(), roux.Request{
			Recipe: []byte(strings.ReplaceAll(asks, "ACTION", action)), Input: map[string]any{"urls": urls}})
		if err != nil {
			t.Fatal(err)
		}
		res, err := e.Wait(t.Context(), id)
		if err != nil || res.Status != "completed" {
			t.Fatalf("%+v, %v", res, err)
		}
		var out struct{ All []answer }
		if err := json.Unmarshal(res.Outputs, &out); err != nil || len(out.All) != len(urls) {
			t.Fatalf("%v: %s", err, res.Outputs)
		}
		return out.All
	}
	for _, name := range []string{"http", "call_external_service"} {
		for i, a := range run(t, name, urls) {
			switch a.Error.Code {
			case "EGRESS_REFUSED", "INPUT_INVALID":
			case "SERVICE_UNAVAILABLE":
				if !strings.Contains(urls[i], "example") && !strings.Contains(strings.ToLower(urls[i]), "localhost") {
					t.Errorf("%s %s: %+v", name, urls[i], a)
				}
			default:
				t.Errorf("%s %s: %+v", name, urls[i], a)
			}
		}
	}
	if n := hits.Load(); n != 0 || len(urls) < 40 {
		t.Errorf("%d connections from %d forms", n, len(urls))
	}
	if a := run(t, "http", []string{srv.URL}, netip.MustParsePrefix("127.0.0.0/8")); a[0].Body != "inside" || hits.Load() != 1 {
		t.Errorf("the opened range: %+v", a)
	}
}
