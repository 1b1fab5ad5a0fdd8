// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// F42: a recipe is extended, replaced and deleted while runs of it are in flight. Each run keeps
// the version it began with, also after a restart. With ROUX_LONG=1 an edit comes each second
// for 60 s.
func TestF42_EditedWhileRunsAreInFlight(t *testing.T) {
	edits, next := 12, func() {}
	if os.Getenv("ROUX_LONG") != "" {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		edits, next = 60, func() { <-tick.C }
	}
	text := func(n int, said string) string {
		return fmt.Sprintf(`{"name":"edited","version":"1.0.%d","steps":[{"id":"ask","wait":{"signal":"approved"}},`+
			`{"id":"say","dependsOn":["ask"],"transform":{"expression":"'%s'","outputBinding":"said"}}],"outputs":{"said":"said"}}`, n, said)
	}
	dir := t.TempDir()
	s := startAt(t, dir)
	dev := s.key("acme", access.Developer)
	want := map[string]string{} // what each run says in the end
	for n := range edits {
		next()
		if n%4 == 3 {
			s.call(dev, "DELETE", "/v1/recipes/edited", nil).want(204)
		}
		s.register(dev, text(n, "a draft"))
		said := fmt.Sprint("text ", n)
		s.call(dev, "PUT", "/v1/recipes/edited", text(n, said)).want(200) // it has not run
		for range 3 {
			want[s.execute(dev, "edited", `{}`)] = said
		}
		s.call(dev, "PUT", "/v1/recipes/edited", text(n, "too late")).problem(fault.Conflict)
	}
	s.call(dev, "DELETE", "/v1/recipes/edited", nil).want(204)
	s.stop()
	s = startAt(t, dir)
	for run := range want {
		s.call(dev, "POST", "/v1/recipe-executions/"+run+"/signal", `{"name":"approved"}`).want(200)
	}
	for run, said := range want {
		if end, err := s.svc.Node.Engine.Wait(t.Context(), "acme", run); err != nil || end.Status != "completed" {
			t.Errorf("run %s is %s, %v", run, end.Status, err)
		}
		if got := s.call(dev, "GET", "/v1/recipe-executions/"+run, nil).want(200).get("outputs.said"); got != said {
			t.Errorf("run %s says %v, and the version it began with says %q", run, got, said)
		}
	}
	t.Logf("%d edits, %d runs keep their version", edits, len(want))
}
