// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
)

// After a kill during a sleep the next process sleeps only for the rest: the wait was
// recorded once, its end did not move, and nothing after it ran earlier (I9, F11).
func TestKill9DuringASleep(t *testing.T) {
	_, env := dataEnv(t)
	p := start(t, env, "run", write(t, "nap.yaml", `name: nap
steps:
  - {id: nap, action: {name: sleep, parameters: {duration: 700ms}}}
  - {id: after, action: {name: effect, parameters: {n: 1}}}
`))
	p.until("node.waiting")
	p.signal(os.Kill)
	p.wait()
	p = start(t, env, "resume")
	if code := p.wait(); code != fault.ExitOK {
		t.Fatalf("resume: exit code %d\n%s", code, p.said())
	}
	type line struct {
		Type      string
		Timestamp time.Time
		Payload   struct {
			Step  string
			Until time.Time
		}
	}
	var began, until, ended time.Time
	waits := 0
	for _, ev := range object[[]line](t, env, "events", "@last") {
		switch {
		case ev.Type == "node.waiting":
			waits, began, until = waits+1, ev.Timestamp, ev.Payload.Until
		case ev.Type == "node.completed" && ev.Payload.Step == "nap":
			ended = ev.Timestamp
		}
	}
	if waits != 1 || until.Sub(began) != 700*time.Millisecond || ended.Before(until) {
		t.Errorf("%d waits, from %v until %v, ended %v", waits, began, until, ended)
	}
	if r := object[replayed](t, env, "replay", "@last"); !r.Same || r.Status != "completed" {
		t.Errorf("replay: %s, %v", r.Status, r.Differences)
	}
}
