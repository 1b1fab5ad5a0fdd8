// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A run that is paid for passes, in this order: submission with its estimate, reservation,
// steps and what they cost, settlement, and a result that is made of those of its steps.
func TestX73_DataFlow(t *testing.T) {
	st := memory.New(memory.Options{})
	a := costing(10, func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{Output: map[string]any{"n": 21}}, nil
	})
	e := openEngine(t, st, Config{Accounts: paying}, a)
	grant(t, e, "first", 100, ledger.Terms{})
	p := planOf(t, "name: flow\ncreditEstimation: {strategy: fixed, fixedCredits: 20, maxCredits: 40}\nsteps:\n  - {id: one, action: {name: paid}, outputBinding: x}\n  - {id: two, action: {name: paid}, outputBinding: y}\noutputs: {sum: x.n + y.n}\n", a)
	s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "flow"})
	if err != nil {
		t.Fatal(err)
	}
	if head := waitForEnd(t, e, s.Run); head.Status != "completed" || head.Used != 20 {
		t.Errorf("the run is %s, %d used", head.Status, head.Used)
	}
	want := []string{
		"run.started", "credits.reserved",
		"node.queued one", "run.status.changed", "node.started one attempt=1", "node.completed one attempt=1",
		"node.queued two", "node.started two attempt=1", "node.completed two attempt=1",
		"credits.settled", "run.completed",
	}
	if lines := trace(t, st, p, acc, s.Run); !slices.Equal(lines, want) {
		t.Errorf("the events are %q", lines)
	}
	if err := store.EachEvent(t.Context(), st, store.Key{Account: acc, Run: s.Run}, 0, func(ev *journal.Event) error {
		switch ev.Kind {
		case journal.EvRunStarted:
			if start, err := journal.DecodeStart(ev.Data); err != nil || start.Credits == nil || start.Credits.Estimated != 20 {
				t.Errorf("the run starts with %+v, %v", start, err)
			}
		case journal.EvRunCompleted:
			if string(ev.Data) != `{"sum":42}` {
				t.Errorf("the result is %s", ev.Data)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	wantBalance(t, st, 80, 0, 20)
}
