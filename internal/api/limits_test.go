// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// F23: an account that sends too many requests is told when to send the next, and others are
// not slowed down.
func TestF23_RequestRate(t *testing.T) {
	s := startWith(t, t.TempDir(), 1, 3)
	acme, rival := s.key("acme", access.Viewer), s.key("rival", access.Viewer)
	refused := 0
	for range 10 {
		got := s.call(acme, "GET", "/v1/me", nil)
		if got.header.Get("RateLimit-Policy") != `"burst";q=3;w=3` || !strings.HasPrefix(got.header.Get("RateLimit"), `"burst";r=`) {
			t.Errorf("headers: %v", got.header)
		}
		if got.status == http.StatusOK {
			continue
		}
		refused++
		got.problem(fault.RequestRateExceeded)
		if after, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || after != 1 || got.get("retryAfter") != float64(1) {
			t.Errorf("Retry-After: %v %s", got.header, got.body)
		}
	}
	if refused < 6 {
		t.Errorf("%d of 10 requests were refused", refused)
	}
	s.call(rival, "GET", "/v1/me", nil).want(200)
	s.call("", "GET", "/healthz", nil).want(200)
}

// I13: of two requests with one key at once, the second is told to come again.
func TestI13_TwinInFlight(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	for i := range 100 {
		key := "twin-" + strconv.Itoa(i)
		r, w := io.Pipe() // the rest of the body arrives when the test says so
		first := make(chan answer, 1)
		go func() {
			got, err := s.sendStream(dev, "/v1/recipes", r, key)
			if err != nil {
				t.Error(err)
			}
			first <- got
		}()
		if _, err := io.WriteString(w, greet[:20]); err != nil {
			t.Fatal(err)
		}
		twin := s.call(dev, "POST", "/v1/recipes", greet, "Idempotency-Key", key)
		if _, err := io.WriteString(w, greet[20:]); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		one := <-first
		if twin.text("code") != string(fault.RequestInFlight) {
			continue // it was faster than what it should be the twin of
		}
		if twin.header.Get("Retry-After") == "" || one.status/100 != 2 {
			t.Errorf("headers %v, the first %d %s", twin.header, one.status, one.body)
		}
		if again := s.call(dev, "POST", "/v1/recipes", greet, "Idempotency-Key", key); again.status != one.status || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("again: %d %v", again.status, again.header)
		}
		return
	}
	t.Error("no twin came while the first request was in flight")
}

// sendStream posts a body that arrives in pieces.
func (s *server) sendStream(token, path string, body io.Reader, key string) (answer, error) {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, body)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return answer{s.t, res.StatusCode, res.Header, data}, err
}
