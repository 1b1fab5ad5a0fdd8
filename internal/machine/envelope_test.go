// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
)

// TestEnvelope: every transition is an event with id, type, time, correlation and
// payload. The id is dense per run, so it serves as an idempotency key (X91, X179,
// X180). Events of a step carry its wave (X58). Durations are ISO 8601 where a text is
// expected (X100).
func TestEnvelope(t *testing.T) {
	prog := Prepare(compilePlan(t, "name: r\norder: none\nsteps:\n  - {id: a, name: First, action: {name: work}}\n  - {id: b, action: {name: work}, dependsOn: [a]}\n"))
	d := drive(t, prog)
	events := slices.Clone(d.turn.Events)
	events = append(events, d.end(journal.Ref{Step: 0}, true)...)
	events = append(events, d.end(journal.Ref{Step: 1}, false)...)
	seq := uint64(0)
	for i := range events {
		ev := &events[i]
		env := journal.Render(prog.plan, "run_1", ev)
		if env.EventID <= seq || env.Sequence != env.EventID {
			t.Errorf("event %d follows %d, sequence %d", env.EventID, seq, env.Sequence)
		}
		seq = env.EventID
		if env.RunID != "run_1" || env.Timestamp != "2026-01-01T00:00:00.000000Z" || env.Payload == nil {
			t.Errorf("envelope %+v", env)
		}
		if ev.Step >= 0 {
			if env.Correlation == nil || *env.Correlation.Wave != prog.plan.Steps[ev.Step].Wave || env.Correlation.Phase != "engine" {
				t.Errorf("%s: correlation %+v", env.Type, env.Correlation)
			}
			if env.Payload["step"] != prog.plan.Steps[ev.Step].ID || env.Payload["nodeId"] != env.Payload["step"] || env.Payload["kind"] != "action" {
				t.Errorf("%s: payload %v", env.Type, env.Payload)
			}
		}
	}
	// The field of the wave has this name; a step that waits for a root is in wave 1
	// (X58).
	i := slices.IndexFunc(events, func(ev journal.Event) bool { return ev.Step == 1 })
	if raw, err := json.Marshal(journal.Render(prog.plan, "run_1", &events[i])); err != nil || !strings.Contains(string(raw), `"correlation":{"wave":1,"phase":"engine"}`) {
		t.Errorf("%s, %v: the event of b does not say wave 1", raw, err)
	}
	last, err := json.Marshal(journal.Render(prog.plan, "run_1", &events[len(events)-1]))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"eventId":9,"sequence":9,"type":"run.failed","runId":"run_1","timestamp":"2026-01-01T00:00:00.000000Z",` +
		`"payload":{"error":{"cause":"input","code":"FILE_INVALID","message":"bad"},"failedStep":"b","hasFailures":true,"status":"failed"}}`
	if string(last) != want {
		t.Errorf("got  %s\nwant %s", last, want)
	}
	for took, want := range map[int64]any{0: nil, 1: 0.001, 1500: 1.5} {
		ev := journal.Event{Seq: 7, Kind: journal.EvNodeCompleted, M: took}
		if got := journal.Render(prog.plan, "run_1", &ev).Payload["durationMs"]; got != want {
			t.Errorf("%d µs are %v ms, want %v", took, got, want)
		}
	}
}

// TestEnvelopeSaysWho: a run's events carry the correlation id it was given, and a
// late result carries its source (X91).
func TestEnvelopeSaysWho(t *testing.T) {
	prog := Prepare(compilePlan(t, "name: r\nsteps:\n  - {id: a, action: {name: work}}\n"))
	run, turn := NewRun(prog), Turn{}
	run.Decide(&Input{Kind: InStart, At: t0, Start: &journal.Start{Run: "run_1", Account: "local", Recipe: "r", Correlation: "order-7", Pins: pinsOf(prog.plan)}}, &turn)
	if got := journal.Render(prog.plan, "run_1", &turn.Events[0]); got.Type != "run.started" || got.Payload["correlationId"] != "order-7" || got.Payload["account"] != "local" {
		t.Errorf("X91: the first event is %+v", got)
	}
	for source, want := range map[journal.Source]string{journal.FromWorker: "worker", journal.FromWebhook: "webhook", journal.FromPoll: "poll"} {
		d := drive(t, prog)
		d.do(&Input{Kind: InGranted, Ref: journal.Ref{}})
		d.do(&Input{Kind: InWorkerLost, Ref: journal.Ref{}, Fence: journal.Fence{Gen: 1, Attempt: 1}})
		d.do(&Input{Kind: InGranted, Ref: journal.Ref{}})
		d.do(&Input{Kind: InResult, Ref: journal.Ref{}, Fence: journal.Fence{Gen: 1, Attempt: 1}, Outcome: Success, Output: []byte("1"), Source: source})
		if len(d.turn.Events) != 1 {
			t.Fatalf("X91: a late result of a %s is %d events, want one", want, len(d.turn.Events))
		}
		got := journal.Render(prog.plan, "run_1", &d.turn.Events[0])
		if got.Type != "node.ignored" || got.Payload["source"] != want || got.Payload["attempt"] != uint32(1) || got.Payload["step"] != "a" {
			t.Errorf("X91: a late result of a %s: %+v", want, got)
		}
	}
}

// TestNames: every kind has a published name from the one enum (X175, X176, X177,
// X178), and every name in the sources is there.
func TestNames(t *testing.T) {
	published := map[string]bool{}
	for _, kind := range journal.Kinds() {
		published[kind.Name()] = true
		if ev := (&journal.Event{Kind: kind}); ev.Name() != kind.Name() {
			t.Errorf("kind %d is %s, want %s", kind, ev.Name(), kind.Name())
		}
	}
	published[(&journal.Event{Kind: journal.EvNodeFailed, Code: "STEP_TIMEOUT"}).Name()] = true
	for _, want := range strings.Fields(`run.started run.status.changed run.completed run.failed run.cancelled run.timed_out run.recovered
		run.signalled run.retried node.queued node.started node.stream.delta node.log node.retried node.completed node.failed node.cancelled
		node.skipped node.timed_out node.blocked node.invalidated node.ready node.waiting node.progress node.preview node.ignored
		node.compensated contract.violated`) {
		if !published[want] {
			t.Errorf("no event is called %s", want)
		}
	}
	if (&journal.Event{Kind: 255}).Name() != "unknown" {
		t.Error("an unknown kind has a name")
	}
}
