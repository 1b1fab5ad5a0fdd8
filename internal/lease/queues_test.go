// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
)

// F24: a queue whose workers are away grows. How deep and how old it is can be asked at any time, what
// is kept in memory for it is bounded, and tasks of other queues are handed out as ever.
func TestF24_QueueWithoutWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		tasks := 200_000
		if testing.Short() {
			tasks = 20_000
		}
		input := fmt.Sprintf(`{"text":%q}`, string(slices.Repeat([]byte("x"), 2*maxKept/tasks)))
		var run action.Func
		for _, a := range h.Actions() {
			if a.Name == "a" {
				run = a.Run
			}
		}
		last := ""
		for i := range tasks {
			res, err := run(t.Context(), &action.Task{Account: "x", EffectKey: fmt.Sprint(i), Input: []byte(input)})
			if err != nil {
				t.Fatal(err)
			}
			last = res.Job.ID
			h.written("x", "a", "1.0.0", last, 1)
			if i == 0 {
				time.Sleep(48 * time.Hour)
			}
		}
		want := func(waiting int, oldest time.Duration, others int) {
			t.Helper()
			if got := h.QueueLoads(); !slices.Equal(got, []QueueLoad{{"other", others, 0}, {"q", waiting, oldest}}) {
				t.Errorf("the loads are %+v, want %d tasks in q, the oldest of %s, and %d in the other", got, waiting, oldest, others)
			}
		}
		want(tasks, 48*time.Hour, 0)
		if h.kept > maxKept {
			t.Errorf("%d bytes of inputs are in memory, want at most %d", h.kept, maxKept)
		}
		h.submit("y", "c", "1.0.0", `{}`)
		want(tasks, 48*time.Hour, 1)
		got, err := h.Lease(t.Context(), &Want{Queue: "other", Max: 9})
		if err != nil || len(got) != 1 {
			t.Errorf("of the other queue: %+v, %v", got, err)
		}
		// Its first tasks are cancelled, one in its midst, and one is leased and given back.
		first, _ := h.peek("a@1.0.0")
		h.Changed([]jobs.Change{endOf(first)})
		want(tasks-1, 0, 0)
		h.Changed([]jobs.Change{endOf(last)})
		time.Sleep(time.Hour)
		want(tasks-2, time.Hour, 0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if got, err := h.Lease(ctx, &Want{Queue: "q", Max: 3}); len(got) != 0 || err != nil {
			t.Errorf("a request that has ended got %+v, %v", got, err)
		}
		want(tasks-2, time.Hour, 0)
		if got := h.lease(Want{Max: 5}); len(got) == 0 {
			t.Error("a worker that comes back gets nothing")
		} else {
			want(tasks-2-len(got), time.Hour, 0)
		}
	})
}

// peek returns the task that is handed out next.
func (h *fixture) peek(name string) (id string, t *task) {
	h.Manager.mu.Lock()
	defer h.Manager.mu.Unlock()
	for _, list := range h.byAction[name].tasks {
		return list[0].job.ID, list[0]
	}
	return "", nil
}

// X139, X141, X251: queues have the names that an operator gives them, such as those of the
// orchestration-engine source. Any number of workers share a queue, each task goes to one of them, and
// none gets a task of another queue, or one whose labels it lacks.
func TestX139_X141_X251_QueuesByName(t *testing.T) {
	names := []string{"recipe_executors", "background_processing", "webhook_listeners", "polling_watchdogs", "main_processing"}
	specs := "{"
	for i, name := range names {
		specs += fmt.Sprintf(`"a%d": {"queue": %q, "input": {"type": "object"}, "output": {"type": "object"}}, `, i, name)
	}
	specs += `"gpu": {"queue": "background_processing", "labels": {"gpu": "yes"}, "input": {"type": "object"}, "output": {"type": "object"}}}`
	all, err := Parse(specs)
	if err != nil {
		t.Fatal(err)
	}
	remotes, err := Remotes(all, func(string) *action.Action { return nil })
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h := &fixture{t: t, inputs: map[string]string{}}
		h.restart(remotes)
		for i := range names {
			for range 2 {
				h.submit("x", fmt.Sprint("a", i), "1.0.0", `{}`)
			}
		}
		h.submit("x", "gpu", "1.0.0", `{}`)
		leased := func(want Want) (actions []string) {
			t.Helper()
			list, err := h.Lease(t.Context(), &want)
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range list {
				actions = append(actions, task.Action)
			}
			return actions
		}
		for i, name := range names {
			for worker := range 3 {
				var want []string
				if worker < 2 {
					want = []string{fmt.Sprint("a", i)}
				}
				if got := leased(Want{Queue: name}); !slices.Equal(got, want) {
					t.Errorf("worker %d of the queue %s got %q, want %q", worker, name, got, want)
				}
			}
		}
		if got := leased(Want{Queue: "background_processing", Labels: map[string]string{"gpu": "yes"}, Max: 9}); !slices.Equal(got, []string{"gpu"}) {
			t.Errorf("a worker with the label got %q", got)
		}
		if _, err := h.Lease(t.Context(), &Want{Queue: "Recipe_Executors"}); !errors.Is(err, fault.NotFound) {
			t.Errorf("another queue: %v", err)
		}
	})
}

// A queue whose only task was cancelled, and was looked at since, hands out those of other accounts.
func TestQueueAfterACancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		for range 2 {
			h.written("gone", "a", "1.0.0", h.call("gone", "a", `{}`), 1)
			for id := range h.inputs {
				h.Changed([]jobs.Change{endOf(id)})
				delete(h.inputs, id)
			}
			h.QueueLoads() // as the metrics do
			h.submit("other", "a", "1.0.0", `{}`)
			got := h.lease(Want{})
			if len(got) != 1 || got[0].Account != "other" {
				t.Fatalf("%+v", got)
			}
			if err := h.Finish(t.Context(), output(got[0].Lease, `1`), ""); err != nil {
				t.Fatal(err)
			}
		}
	})
}
