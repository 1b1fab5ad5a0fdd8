// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// rendered returns the envelopes of a frozen journal of the machine.
func rendered(t *testing.T, name string) (*plan.Plan, []journal.Event, []journal.Envelope) {
	t.Helper()
	base := filepath.Join("..", "machine", "testdata", "journals", name)
	text, err := os.ReadFile(base + ".plan.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	frames, err := os.ReadFile(base + ".bin")
	if err != nil {
		t.Fatal(err)
	}
	var events []journal.Event
	var list []journal.Envelope
	r := journal.NewRenderer(p, "run_1")
	if err := journal.EachEvent(frames, func(ev *journal.Event) error {
		events, list = append(events, *ev), append(list, r.Render(ev))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p, events, list
}

var traceID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// X179: every envelope names the recipe, the trace and, for every event of a step, the event
// that caused it, which is an earlier one. Whoever begins to read later gets the same.
func TestX179_Envelopes(t *testing.T) {
	files, err := filepath.Glob("../machine/testdata/journals/*.bin")
	if err != nil || len(files) == 0 {
		t.Fatal("no journals", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".bin")
		p, events, list := rendered(t, name)
		for i, env := range list {
			c := env.Correlation
			switch {
			case env.WorkflowID != "r" || c == nil || !traceID.MatchString(c.TraceID) || c.TraceID != list[0].Correlation.TraceID || c.Phase != "engine":
				t.Fatalf("%s: event %d: %+v %+v", name, i+1, env, c)
			case c.ParentEventID >= env.EventID:
				t.Errorf("%s: event %d was caused by event %d", name, env.EventID, c.ParentEventID)
			case events[i].Step >= 0 && c.ParentEventID == 0:
				t.Errorf("%s: nothing caused event %d (%s %v)", name, env.EventID, env.Type, env.Payload["nodeId"])
			case (c.Wave != nil) != (events[i].Step >= 0):
				t.Errorf("%s: event %d: wave %v", name, env.EventID, c.Wave)
			case env.Payload["nodeId"] != env.Payload["step"]:
				t.Errorf("%s: event %d is about %v and %v", name, env.EventID, env.Payload["nodeId"], env.Payload["step"])
			}
		}
		late := journal.NewRenderer(p, "run_1")
		for i := range events {
			if i < len(events)/2 {
				late.Note(&events[i])
			} else if got, want := line(t, late.Render(&events[i])), line(t, list[i]); got != want {
				t.Fatalf("%s: a late reader gets\n%s, want\n%s", name, got, want)
			}
			if events[i].Kind.Ends() && late.Scopes() != 1 {
				t.Errorf("%s: %d scopes are remembered after event %d, want the root only", name, late.Scopes(), i+1)
			}
		}
	}
}

func line(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// X179: parentEventId follows what made a step ready, began it and ended it, into the scopes
// that it owns and out of them.
func TestX179_Parents(t *testing.T) {
	_, _, list := rendered(t, "nested")
	at := func(kind, node string, nth int) *journal.Envelope {
		t.Helper()
		for i := range list {
			if id, _ := list[i].Payload["nodeId"].(string); list[i].Type == kind && id == node {
				if nth == 0 {
					return &list[i]
				}
				nth--
			}
		}
		t.Fatalf("no %s of %s", kind, node)
		return nil
	}
	for _, tt := range []struct{ kind, node, parentKind, parent string }{
		{"node.started", "outer[0].inner[1].x", "node.queued", "outer[0].inner[1].x"},
		{"node.completed", "outer[0].inner[1].x", "node.started", "outer[0].inner[1].x"},
		{"node.started", "outer[0].inner", "node.completed", "outer[0].t"},
		{"node.completed", "outer[0].inner", "node.completed", "outer[0].inner[0].x"},
		{"node.completed", "outer", "node.completed", "outer[1].inner"},
	} {
		if got, want := at(tt.kind, tt.node, 0).Correlation.ParentEventID, at(tt.parentKind, tt.parent, 0).EventID; got != want {
			t.Errorf("%s of %s was caused by event %d, want %d, %s of %s", tt.kind, tt.node, got, want, tt.parentKind, tt.parent)
		}
	}
	// The iteration begins because the loop opened; the second because the first has ended.
	if got, want := at("node.progress", "outer", 0).Correlation.ParentEventID, at("node.started", "outer", 0).EventID; got != want {
		t.Errorf("the first iteration was caused by event %d, want %d", got, want)
	}
	if got, want := at("node.progress", "outer", 1).Correlation.ParentEventID, at("node.completed", "outer[0].inner", 0).EventID; got != want {
		t.Errorf("the second iteration was caused by event %d, want %d", got, want)
	}
	if got, want := list[len(list)-1].Correlation.ParentEventID, at("node.completed", "outer", 0).EventID; got != want {
		t.Errorf("the end was caused by event %d, want %d", got, want)
	}
	_, _, list = rendered(t, "waves")
	if first := at("node.queued", "a", 0); first.Correlation.ParentEventID != 1 {
		t.Errorf("the first step was caused by event %d, want run.started", first.Correlation.ParentEventID)
	}

	// A retry causes what it starts again; a cancellation what it cancels; a signal the end
	// of the wait for it.
	run := func(kind string) uint64 {
		t.Helper()
		for i := range list {
			if list[i].Type == kind {
				return list[i].EventID
			}
		}
		t.Fatalf("no %s", kind)
		return 0
	}
	_, _, list = rendered(t, "everything")
	if got, want := at("node.invalidated", "a", 0).Correlation.ParentEventID, run("run.retried"); got != want {
		t.Errorf("the reset was caused by event %d, want %d, run.retried", got, want)
	}
	again := slices.IndexFunc(list, func(env journal.Envelope) bool {
		return env.Type == "node.queued" && env.Payload["nodeId"] == "a" && env.EventID > run("run.retried")
	})
	if got, want := list[again].Correlation.ParentEventID, run("run.retried"); got != want {
		t.Errorf("the step that a retry starts was caused by event %d, want %d", got, want)
	}
	verdict := slices.IndexFunc(list, func(env journal.Envelope) bool { return env.Payload["verdict"] == "cancelled" })
	cancelled := slices.IndexFunc(list, func(env journal.Envelope) bool { return env.Payload["reason"] == "cancelled" })
	if got, want := list[cancelled].Correlation.ParentEventID, list[verdict].EventID; got != want {
		t.Errorf("%s of %v was caused by event %d, want %d", list[cancelled].Type, list[cancelled].Payload["nodeId"], got, want)
	}
	signal := slices.IndexFunc(list, func(env journal.Envelope) bool { return env.Payload["signal"] == "go" && env.Type == "run.signalled" })
	if got, want := at("node.completed", "p[0].w", 0).Correlation.ParentEventID, list[signal].EventID; got != want {
		t.Errorf("the end of the wait was caused by event %d, want %d", got, want)
	}
}

// X175, X176, X177: the types that a client of the workflow stream knows. Each is a type that
// the journal has, except heartbeats, which are sent only, and moderation, which comes later.
func TestX175_X176_X177_FlowTypes(t *testing.T) {
	types := journal.FlowTypes()
	if len(types) != 22 || len(slices.Compact(slices.Sorted(slices.Values(types)))) != 22 {
		t.Errorf("%d types", len(types))
	}
	published := map[string]bool{"node.timed_out": true, "heartbeat": true, "moderation.flagged": true}
	for _, kind := range journal.Kinds() {
		published[kind.Name()] = true
	}
	for _, name := range types {
		if !published[name] || !journal.ForFlow(name) {
			t.Errorf("no event is called %s", name)
		}
	}
	for _, name := range []string{"credits.reserved", "node.ready", "node.waiting", "unknown", ""} {
		if journal.ForFlow(name) {
			t.Errorf("%s is for clients of the workflow stream", name)
		}
	}
	if late := (&journal.Event{Kind: journal.EvNodeFailed, Code: fault.StepTimeout}); !journal.ForFlow(late.Name()) {
		t.Errorf("%s is not for clients of the workflow stream", late.Name())
	}
	types[0] = ""
	if !journal.ForFlow("run.started") {
		t.Error("a caller has changed the types")
	}
}

// The status that an event gives its step is that of the table of transitions.
func TestStepStatus(t *testing.T) {
	for _, c := range journal.Changes() {
		ev := journal.Event{Kind: c.Event}
		if c.Event < journal.EvNodeReady || c.Event == journal.EvNodeInvalidated {
			continue
		}
		if status, ok := ev.StepStatus(); ok && status != c.To || !ok && c.From != c.To {
			t.Errorf("%s: %s, %v", c, status, ok)
		}
	}
	for _, tt := range []struct {
		n    int64
		flag journal.Status
		want journal.Status
	}{{1, journal.Cancelled, journal.Running}, {0, journal.Completed, journal.Invalidated}, {0, journal.StepFailed, journal.Pending}} {
		ev := journal.Event{Kind: journal.EvNodeInvalidated, N: tt.n, Flag: uint8(tt.flag)}
		if status, ok := ev.StepStatus(); !ok || status != tt.want {
			t.Errorf("after %s, reopened %d: %s, want %s", tt.flag, tt.n, status, tt.want)
		}
	}
}
