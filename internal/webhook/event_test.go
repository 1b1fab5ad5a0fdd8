// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
)

// Every kind of change has its type.
func TestTypes(t *testing.T) {
	for _, tt := range []struct {
		c    store.Change
		want string
	}{
		{store.Change{Run: "r", Status: "queued"}, RunQueued},
		{store.Change{Run: "r", Status: "pending"}, RunStarted},
		{store.Change{Run: "r", Status: "dispatching"}, RunStarted},
		{store.Change{Run: "r", Status: "running"}, RunStatus},
		{store.Change{Run: "r", Status: "preview"}, RunStatus},
		{store.Change{Run: "r", Status: "completed", Ended: 1}, RunCompleted},
		{store.Change{Run: "r", Status: "failed", Ended: 1}, RunFailed},
		{store.Change{Run: "r", Status: "cancelled", Ended: 1}, RunCancelled},
		{store.Change{Run: "r", Status: "expired", Ended: 1}, RunTimedOut},
		{store.Change{Run: "r", Status: "running", Quarantined: true}, RunQuarantined},
		{store.Change{Run: "r", Status: "completed", Ended: 1, Hidden: true}, RunDeleted},
		{store.Change{Run: "r", Deleted: true}, RunRemoved},
		{store.Change{Entry: 3, Kind: ledger.Grant}, CreditsEntry},
		{store.Change{Notice: ledger.Notice{Source: "account", Limit: 10, Amount: 9}}, CreditsLow},
		{store.Change{Notice: ledger.Notice{Source: "key:key_1", Limit: 10, Amount: 11}}, CreditsBudget},
	} {
		e := EventOf(&tt.c)
		if e.Type != tt.want {
			t.Errorf("%+v is %s, want %s", tt.c, e.Type, tt.want)
		}
		if err := checkEvents([]string{e.Type}); err != nil {
			t.Errorf("no hook can ask for %s: %v", e.Type, err)
		}
	}
}

func TestFilters(t *testing.T) {
	run := store.Change{N: 10, Run: "run_1", Recipe: "greet", Status: "completed", Ended: 5}
	child := store.Change{N: 11, Run: "run_2", Root: "run_1", Recipe: "part", Status: "completed", Ended: 5}
	entry := store.Change{N: 12, Entry: 4}
	hook := func(change func(*Hook)) *Hook {
		h := &Hook{ID: "hook_1", Events: []string{"*"}, Payload: Thin, Enabled: true}
		change(h)
		return h
	}
	have := map[string]string{"team": "red", "empty": ""}
	for _, tt := range []struct {
		name                        string
		hook                        *Hook
		wantRun, wantChild, wantRow bool
	}{
		{"everything", hook(func(*Hook) {}), true, false, true},
		{"with children", hook(func(h *Hook) { h.Children = true }), true, true, true},
		{"a type", hook(func(h *Hook) { h.Events = []string{"run.completed"} }), true, false, false},
		{"a beginning", hook(func(h *Hook) { h.Events = []string{"credits.*"} }), false, false, true},
		{"another type", hook(func(h *Hook) { h.Events = []string{"run.failed", "run.com"} }), false, false, false},
		{"a recipe", hook(func(h *Hook) { h.Recipes, h.Children = []string{"part"}, true }), false, true, true},
		{"a label", hook(func(h *Hook) { h.Labels = map[string]string{"team": "red"} }), true, false, true},
		{"another label", hook(func(h *Hook) { h.Labels = map[string]string{"team": "red", "stage": ""} }), false, false, true},
		{"an empty label", hook(func(h *Hook) { h.Labels = map[string]string{"empty": ""} }), true, false, true},
		{"disabled", hook(func(h *Hook) { h.Enabled = false }), false, false, false},
		{"before it was made", hook(func(h *Hook) { h.After = 11 }), false, false, true},
	} {
		for _, c := range []struct {
			change store.Change
			want   bool
		}{{run, tt.wantRun}, {child, tt.wantChild}, {entry, tt.wantRow}} {
			e := EventOf(&c.change)
			got, err := tt.hook.matches(&e, func() (map[string]string, error) { return have, nil })
			if err != nil || got != c.want {
				t.Errorf("%s: change %d matches: %v, %v", tt.name, c.change.N, got, err)
			}
		}
	}
	failed := errors.New("the store fails")
	e := EventOf(&run)
	if _, err := hook(func(h *Hook) { h.Labels = have }).matches(&e, func() (map[string]string, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("labels that cannot be read: %v", err)
	}
}

// A message is one for each hook and change. The two changes of one end are one event; the
// next end of the run is another.
func TestMessageIDs(t *testing.T) {
	of := func(hook string, c store.Change) string {
		e := EventOf(&c)
		return message(hook, &e)
	}
	end := store.Change{N: 10, Run: "run_1", Status: "cancelled", Ended: 5}
	again, retried, running := end, end, end
	again.N = 11
	retried.N, retried.Ended = 12, 9
	running.Status, running.Ended = "running", 0
	next := running
	next.N = 11
	first := of("hook_1", end)
	if got := of("hook_1", again); got != first {
		t.Error("the end of a run is two messages")
	}
	if !strings.HasPrefix(first, "msg_") || strings.Contains(first, ".") || len(first) != 30 {
		t.Errorf("the id %q", first)
	}
	seen := map[string]bool{first: true}
	for _, id := range []string{of("hook_2", end), of("hook_1", retried), of("hook_1", running), of("hook_1", next)} {
		if seen[id] {
			t.Error("two events are one message")
		}
		seen[id] = true
	}
}

func TestBodies(t *testing.T) {
	c := store.Change{N: 10, At: 1_700_000_000_000_000, Run: "run_1", Recipe: "a<b>", Status: "expired", Code: fault.ExecutionExpired, Ended: 1_700_000_000_000_000}
	e := EventOf(&c)
	low := EventOf(&store.Change{N: 11, At: c.At, Notice: ledger.Notice{Source: "account", Limit: 5, Amount: 0}})
	for _, tt := range []struct {
		name      string
		payload   string
		e         Event
		execution string
		want      string
	}{
		{"thin", Thin, e, "", `{"type":"run.timed_out","timestamp":"2023-11-14T22:13:20.000000Z","data":{"webhookId":"hook_1","number":10,"executionId":"run_1"}}`},
		{"full", Full, e, `{"id":"run_1"}`, `{"type":"run.timed_out","timestamp":"2023-11-14T22:13:20.000000Z","data":{"webhookId":"hook_1","number":10,"executionId":"run_1",` +
			`"recipeName":"a<b>","status":"failed","state":"expired","errorCode":"EXECUTION_EXPIRED","completedAt":"2023-11-14T22:13:20.000000Z","execution":{"id":"run_1"}}}`},
		{"credits", Full, low, "", `{"type":"credits.low","timestamp":"2023-11-14T22:13:20.000000Z","data":{"webhookId":"hook_1","number":11,"limitSource":"account","limit":5,"amount":0}}`},
	} {
		h := &Hook{ID: "hook_1", Payload: tt.payload}
		got, err := h.body(&tt.e, []byte(tt.execution))
		if tt.execution == "" {
			got, err = h.body(&tt.e, nil)
		}
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", tt.name, err, got, tt.want)
		}
	}
	big := []byte(`"` + strings.Repeat("x", maxExecution) + `"`)
	got, err := (&Hook{Payload: Full}).body(&e, big)
	if err != nil || len(got) > 1000 || !strings.Contains(string(got), `"executionOmitted":true`) {
		t.Errorf("a large run: %d bytes, %v", len(got), err)
	}
}

func TestBadSpecs(t *testing.T) {
	text := func(s string) *string { return &s }
	for _, tt := range []struct {
		spec Spec
		want string
	}{
		{Spec{}, "url:"},
		{Spec{URL: text("ftp://example.com")}, "url:"},
		{Spec{URL: text("https://user:secret@example.com")}, "url:"},
		{Spec{URL: text("https://0x7f.1/")}, "url:"},
		{Spec{URL: text("https://example.com/#a")}, "fragment"},
		{Spec{URL: text("https://example.com")}, "events: want 1 to 100"},
		{Spec{URL: text("https://example.com"), Events: []string{"run.*", "run.complete"}}, `events[1]: there is no such type of event; did you mean "run.completed"?`},
		{Spec{URL: text("https://example.com"), Events: []string{"job.*"}}, "want one of run.queued"},
		{Spec{URL: text("https://example.com"), Events: []string{"*"}, Payload: text("fat")}, "payload:"},
		{Spec{URL: text("https://example.com"), Events: []string{"*"}, Recipes: []string{""}}, "recipes:"},
		{Spec{URL: text("https://example.com"), Events: []string{"*"}, Labels: map[string]string{"": "x"}}, "labels:"},
		{Spec{URL: text("https://example.com"), Events: []string{"*"}, Description: text(strings.Repeat("x", 1001))}, "description:"},
	} {
		err := (&Hook{Payload: Thin}).apply(&tt.spec, 0)
		if code := fault.CodeOf(err); code != fault.RequestInvalid || !strings.Contains(fault.Message(err), tt.want) || strings.Contains(fault.Message(err), "secret@") {
			t.Errorf("%+v: %v, want %q", tt.spec, err, tt.want)
		}
	}
}
