// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/roux-engine/roux/internal/service"
)

// A03: metrics are on the listener of the operator and nowhere else; no listener shows the inside
// of the process; and the operator's listener has nothing of an account.
func TestA03_Listeners(t *testing.T) {
	p := newPlace(t)
	s, public := p.must(func(cfg *service.Config) {
		cfg.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "roux_runs 1\n") })
	})
	defer p.close(s)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.ServeAdmin(ln)
	admin := "http://" + ln.Addr().String()
	status := func(url, token string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	inside := []string{"/debug/pprof", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/profile", "/debug/vars", "/debug", "/debug/requests"}
	for _, path := range append(inside, "/metrics", "/metrics/", "//metrics", "/metrics/x", "/v1/metrics", "/%6detrics", "/x/../metrics", "/METRICS", "/metrics;a=b", "/metrics.") {
		for _, token := range []string{"", s.FirstKey} {
			if got := status(public+path, token); got != http.StatusNotFound {
				t.Errorf("the public listener answers %d to %s (key %t)", got, path, token != "")
			}
		}
	}
	for _, path := range append(inside, "/v1/me", "/v1/recipes", "/v1/recipe-executions", "/jobs/x", "/v1/feed", "/v1/keys", "/docs", "/") {
		if got := status(admin+path, s.FirstKey); got != http.StatusNotFound {
			t.Errorf("the listener of the operator answers %d to %s", got, path)
		}
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		if got := status(admin+path, ""); got != http.StatusOK {
			t.Errorf("the listener of the operator answers %d to %s", got, path)
		}
	}
}
