// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/webhook"
)

// What a node says of itself is what its engine and its store have at that moment.
func TestLoad(t *testing.T) {
	release, began := make(chan struct{}), make(chan struct{}, 8)
	actions := node.NewActions(nil,
		action.Action{Name: "slow", Version: "1.0.0", Slots: 2, Run: func(context.Context, *action.Task) (action.Result, error) {
			began <- struct{}{}
			<-release
			return action.Result{}, nil
		}},
		action.Action{Name: "wrong", Version: "1.0.0", Run: func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{}, fault.New(fault.StepFailed, "it went wrong")
		}})
	defer actions.Close()
	dir := t.TempDir()
	st, err := node.OpenStore(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Open(t.Context(), st, node.Config{
		Dir: dir, Actions: actions, Concurrency: 9,
		Accounts: map[string]engine.AccountRules{"many": {Unmetered: true}, "few": {Unmetered: true, MaxLiveRuns: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	start := func(account, name string) string {
		t.Helper()
		s, err := n.Engine.Start(t.Context(), engine.StartRequest{Account: account, Plan: calls(t, actions, name), Recipe: name})
		if err != nil {
			t.Fatal(err)
		}
		return s.Run
	}
	failed := start("many", "wrong")
	if _, err := n.Engine.Wait(t.Context(), "many", failed); err != nil {
		t.Fatal(err)
	}
	var last string
	hidden := webhook.Account("many", webhook.IDPrefix+"1")
	for _, account := range []string{"many", "many", "many", "few", "few", hidden} {
		last = start(account, "slow")
	}
	for range 2 {
		<-began
	}
	if err := n.Engine.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := n.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := []node.AccountLoad{{Account: "many", Live: 3}, {Account: "few", Live: 1, Queued: 1}}; !reflect.DeepEqual(l.Accounts, want) {
		t.Errorf("accounts %+v, want %+v", l.Accounts, want)
	}
	if r := l.Runs; r.Live != 5 || r.Queued != 1 || !r.Complete || r.States["queued"] != 1 || r.Loaded == 0 {
		t.Errorf("runs %+v", r)
	}
	if want := []node.LimitLoad{{Of: "action", Name: "slow", Slots: 2, Used: 2, Waiting: 3}, {Of: "engine", Slots: 9, Used: 2}}; !reflect.DeepEqual(l.Limits, want) {
		t.Errorf("limits %+v, want %+v", l.Limits, want)
	}
	if a := l.Attempts; a.Running != 2 || a.ByAction["slow"] != 2 || a.Finished != 1 || a.PerSecond <= 0 {
		t.Errorf("attempts %+v", a)
	}
	if c := l.Commits; c.Total == 0 || c.PerSecond <= 0 || c.SlowestMS < c.MedianMS || c.SlowestMS <= 0 {
		t.Errorf("commits %+v", c)
	}
	if len(l.Failures) != 1 || l.Failures[0].RunID != failed || l.Failures[0].Code != fault.StepFailed || l.Failures[0].Recipe != "wrong" {
		t.Errorf("failures %+v", l.Failures)
	}
	if l.Memory.HeapBytes == 0 || l.Memory.TotalBytes < l.Memory.HeapBytes || l.StartedAt.IsZero() || l.Store.LogBytes == 0 {
		t.Errorf("memory %+v, store %+v, started at %s", l.Memory, l.Store, l.StartedAt)
	}
	close(release)
	if _, err := n.Engine.Wait(t.Context(), hidden, last); err != nil {
		t.Fatal(err)
	}
}

// calls returns the plan of a recipe that calls one action.
func calls(t *testing.T, actions *node.Actions, name string) *plan.Plan {
	t.Helper()
	src := fmt.Sprintf("name: %s\nsteps:\n  - id: a\n    action: {name: %s}\n", name, name)
	r, s, diags := dialect.Parse("test.yaml", []byte(src), form.Options{})
	if r != nil && !compile.HasErrors(diags) {
		if p, _ := compile.Compile(r, s, compile.Options{Actions: actions.Catalogue}); p != nil {
			return p
		}
	}
	t.Fatalf("the recipe is wrong: %v", diags)
	return nil
}
