// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	"github.com/roux-engine/roux/internal/access"
)

// A run that has settled is not read again for each request, and is when a user has acted
// on it since.
func TestX193_SettledRunIsReadAgain(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, `{"name":"wrong","version":"1.0.0","steps":[{"id":"bad","transform":{"expression":"[1][size(input)]"}}]}`)
	run := s.execute(dev, "wrong", `{"parameters":{"n":1}}`)
	path := "/v1/recipe-executions/" + run
	for generation := 1; generation <= 4; generation++ {
		if generation > 1 {
			s.call(dev, "POST", path+"/retry", nil).want(200)
		}
		if _, err := s.svc.Node.Engine.Wait(t.Context(), "acme", run); err != nil {
			t.Fatal(err)
		}
		first := s.call(dev, "GET", path, nil).want(200)
		if first.get("generation") != float64(generation) || first.text("status") != "failed" {
			t.Fatalf("generation %d is shown as %s", generation, first.body)
		}
		if again := s.call(dev, "GET", path, nil).want(200); string(again.body) != string(first.body) || again.header.Get("ETag") != first.header.Get("ETag") {
			t.Errorf("nothing has happened, and the run is another: %s, then %s", first.body, again.body)
		}
	}
	s.call(dev, "DELETE", path, nil).want(204)
	s.call(dev, "GET", path, nil).want(404)
}
