// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/store"
)

// drawn is a service whose jobs have ended when it is asked.
type drawn struct{}

func (drawn) Poll(_ context.Context, j *action.SubmittedJob) (action.JobState, error) {
	return action.JobState{Result: func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{Output: map[string]any{"job": j.ID, "handle": j.Handle}}, nil
	}}, nil
}

func (drawn) Receive(http.Header, []byte) (action.Webhook, error) {
	return action.Webhook{}, errors.New("it sends no webhooks")
}

func (s drawn) Read(ctx context.Context, j *action.SubmittedJob, _ []byte) (action.JobState, error) {
	return s.Poll(ctx, j)
}

func (drawn) Cancel(context.Context, *action.SubmittedJob) error { return nil }

// X128, I22, A28: a remote worker submits a job to a provider that its action permits, and the step waits for
// it. The slot of the action stays taken over the change and a restart. The same job is none of
// another step, and another provider is not permitted.
func TestI22_JobsThatWorkersSubmit(t *testing.T) {
	dir := t.TempDir()
	open := func() *node.Node {
		actions := node.NewActions(nil)
		if err := actions.AddWorkers(map[string]lease.Spec{"draw": {
			Queue: "q", Slots: 1, Providers: []string{"acme"}, Input: json.RawMessage(`{"type": "object"}`), Output: json.RawMessage(`{"type": "object", "required": ["job"]}`),
		}}); err != nil {
			t.Fatal(err)
		}
		st, err := node.OpenStore(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		n, err := node.Open(t.Context(), st, node.Config{Dir: dir, Actions: actions, Services: map[string]action.Service{"acme": drawn{}, "other": drawn{}}})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	n := open()
	defer func() { _ = n.Stop(context.Background()) }()
	p, _, _, diags := compile.Source("x", []byte(`{"name": "x", "steps": [{"id": "a", "action": {"name": "draw"}, "outputBinding": "made"}], "outputs": {"made": "made"}}`), compile.Options{Actions: n.Config.Actions.Catalogue})
	if p == nil {
		t.Fatal(diags)
	}
	begin := func() string {
		started, err := n.Engine.Start(t.Context(), engine.StartRequest{Account: engine.LocalAccount, Plan: p})
		if err != nil {
			t.Fatal(err)
		}
		return started.Run
	}
	take := func(wait time.Duration) []lease.WorkerTask {
		list, err := n.Workers.Lease(t.Context(), &lease.Want{Queue: "q", Max: 9, Wait: wait})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	submit := func(token, provider, job string) {
		t.Helper()
		if err := n.Workers.Finish(t.Context(), &lease.WorkerResult{Lease: token, Submitted: &lease.WorkerJob{Provider: provider, JobID: job, Handle: []byte(`{"n":1}`)}}, engine.LocalAccount); err != nil {
			t.Fatal(err)
		}
	}
	held := func(run string) {
		t.Helper()
		for blocked := false; !blocked; {
			if err := store.EachEvent(t.Context(), n.Store, store.Key{Account: engine.LocalAccount, Run: run}, 0, func(ev *journal.Event) error {
				blocked = blocked || ev.Kind == journal.EvNodeBlocked
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	first := begin()
	submit(take(time.Minute)[0].Lease, "acme", "j1")
	second := begin()
	held(second)
	if list := take(0); len(list) != 0 {
		t.Fatalf("%d tasks beside the job of a worker, the limit is 1", len(list))
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	n = open()
	third := begin() // what it waits for is decided after the second run was
	held(third)
	if list := take(0); len(list) != 0 {
		t.Fatalf("%d tasks beside the job of a worker after a restart, the limit is 1", len(list))
	}
	if _, err := n.Jobs.Poll(t.Context(), engine.LocalAccount, "acme", "j1"); err != nil {
		t.Fatal(err)
	}
	if head, err := n.Engine.Wait(t.Context(), engine.LocalAccount, first); err != nil || head.Status != "completed" {
		t.Errorf("the first run is %s: %s (%v)", head.Status, head.Message, err)
	}
	for provider, want := range map[string]fault.Code{"acme": fault.ProviderError, "other": fault.ProviderNotConfigured} {
		task := take(time.Minute)[0]
		submit(task.Lease, provider, "j1")
		if head, err := n.Engine.Wait(t.Context(), engine.LocalAccount, task.Run); err != nil || head.Code != want || task.Run != second && task.Run != third {
			t.Errorf("the job of another step, of %s: %s %s (%v)", provider, head.Code, head.Message, err)
		}
	}
}
