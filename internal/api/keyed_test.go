// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"sync"
	"testing"

	"github.com/roux-engine/roux/internal/access"
)

// I13: of requests with one key that come at once, over connections of their own, one starts a
// run, and the others are answered with it.
func TestI13_KeyedStarts(t *testing.T) {
	s := start(t)
	acme, rival := s.key("acme", access.Owner), s.key("rival", access.Owner)
	s.register(acme, waits)
	s.register(rival, waits)
	const path, keyed = "/v1/recipes/waits/execute", `{"key":"nightly"}`
	outcomes, runs := map[string]int{}, map[string]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			a, err := s.send(acme, "POST", path, keyed)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || a.status != 202 {
				t.Errorf("%d %s, %v", a.status, a.body, err)
				return
			}
			outcomes[a.text("outcome")]++
			runs[a.text("executionId")] = true
		})
	}
	all.Wait()
	if outcomes["started"] != 1 || outcomes["active"] != 7 || len(runs) != 1 {
		t.Errorf("%v, %v", outcomes, runs)
	}
	if a := s.call(rival, "POST", path, keyed).want(202); a.text("outcome") != "started" || runs[a.text("executionId")] {
		t.Errorf("of another account: %s", a.body)
	}
	if a := s.call(acme, "POST", path, `{"key":"nightly","ifActive":"queue"}`).want(202); a.text("outcome") != "queued" || a.text("executionId") != "" {
		t.Errorf("queue: %s", a.body)
	}
	s.call(acme, "POST", path, `{"key":"nightly","ifActive":"never"}`).want(422)
	s.call(acme, "POST", "/v1/actions/word-count/call", `{"key":"nightly","parameters":{"text":"a"}}`).want(422)
	s.call(acme, "POST", path, `{"key":"last","debounce":"soon"}`).want(422)
	if a := s.call(acme, "POST", path, `{"key":"last","debounce":"1h"}`).want(202); a.text("outcome") != "queued" {
		t.Errorf("debounce: %s", a.body)
	}
	s.call(acme, "POST", path, `{"ifActive":"queue"}`).want(422)
	first := s.call(acme, "POST", path, `{"key":"other"}`, "Idempotency-Key", "k").want(202)
	if again := s.call(acme, "POST", path, `{"key":"other"}`, "Idempotency-Key", "k").want(202); again.text("executionId") != first.text("executionId") || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("repeated: %s", again.body)
	}
}
