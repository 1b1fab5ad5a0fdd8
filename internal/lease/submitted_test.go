// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
)

func (h *fixture) handOn(_ context.Context, j *jobs.Job, to *action.Job) error {
	h.mu.Lock()
	fail, gate := h.fail, h.gate
	h.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if fail != nil {
		return fail
	}
	h.mu.Lock()
	h.handed = append(h.handed, j.Account+" "+to.Provider+"/"+to.ID+" "+to.TTL.String()+" "+string(to.Handle))
	delete(h.inputs, j.ID)
	h.mu.Unlock()
	h.Changed([]jobs.Change{endOf(j.ID)})
	return nil
}

func permitFarm(r *Remote) { r.Providers = []string{"farm"} }

func submitted(lease, provider, job string) *WorkerResult {
	return &WorkerResult{Lease: lease, Submitted: &WorkerJob{Provider: provider, JobID: job, Handle: []byte(`{"n":1}`), TTLMS: 60_000}}
}

// cancelled tells the manager that no step waits for a task any more.
func (h *fixture) cancelled(id string) {
	h.Changed([]jobs.Change{cancelOf(id)})
}

// A task ends with the job that its worker has submitted, once. Afterwards its lease is over.
func TestSubmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, permitFarm)
		h.work()
		h.submit("acme", "a", "1.0.0", `{}`)
		task := h.lease(Want{})[0]
		h.fail = errors.New("the store is away")
		if err := h.Finish(t.Context(), submitted(task.Lease, "farm", "j1"), ""); err == nil || errors.Is(err, ErrStale) {
			t.Errorf("while it cannot be recorded: %v", err)
		}
		h.fail = nil
		if err := h.Finish(t.Context(), submitted(task.Lease, "farm", "j1"), "other"); !errors.Is(err, ErrStale) {
			t.Errorf("with a key of another account: %v", err)
		}
		if err := h.Finish(t.Context(), submitted(task.Lease, "farm", "j1"), "acme"); err != nil {
			t.Fatal(err)
		}
		if err := h.Finish(t.Context(), submitted(task.Lease, "farm", "j1"), ""); !errors.Is(err, ErrStale) {
			t.Errorf("sent again: %v", err)
		}
		if ended := h.Extend([]string{task.Lease}, ""); len(ended) != 1 {
			t.Error("the lease goes on")
		}
		if want := []string{`acme farm/j1 1m0s {"n":1}`}; !slices.Equal(h.handed, want) || len(h.all()) != 0 {
			t.Errorf("handed on %q, results %q", h.handed, h.all())
		}
	})
}

// A28: a worker names jobs of the providers that its action permits only, and none of another step.
// The service works on the job all the same.
func TestA28_SubmittedToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, permitFarm)
		h.work()
		for _, provider := range []string{"other", jobs.Workers, jobs.People} {
			h.submit("acme", "a", "1.0.0", `{}`)
			if err := h.Finish(t.Context(), submitted(h.lease(Want{})[0].Lease, provider, "j1"), ""); err != nil {
				t.Fatal(err)
			}
		}
		h.checked = fault.New(fault.ProviderError, "it is one of another step")
		h.submit("acme", "a", "1.0.0", `{}`)
		if err := h.Finish(t.Context(), submitted(h.lease(Want{})[0].Lease, "farm", "j1"), ""); err != nil {
			t.Fatal(err)
		}
		want := []string{"acme PROVIDER_NOT_CONFIGURED?", "acme PROVIDER_NOT_CONFIGURED?", "acme PROVIDER_NOT_CONFIGURED?", "acme PROVIDER_ERROR?"}
		if got := h.all(); !slices.Equal(got, want) || len(h.handed) != 0 {
			t.Errorf("results %q, want %q; handed on %q", got, want, h.handed)
		}
		h.checked = errors.New("the store is away")
		h.submit("acme", "a", "1.0.0", `{}`)
		lease := h.lease(Want{})[0].Lease
		if err := h.Finish(t.Context(), submitted(lease, "farm", "j1"), ""); err == nil || errors.Is(err, ErrStale) {
			t.Errorf("while it cannot be checked: %v", err)
		}
		if h.checked = nil; h.Finish(t.Context(), submitted(lease, "farm", "j1"), "") != nil || len(h.handed) != 1 {
			t.Errorf("afterwards: %q", h.handed)
		}
	})
}

// Two workers that name the same job at the same time: one of them waits, and is then told what it is.
func TestSubmittedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, permitFarm)
		h.work()
		h.submit("acme", "a", "1.0.0", `{}`)
		h.submit("acme", "a", "1.0.0", `{}`)
		list := h.lease(Want{Max: 2})
		h.gate = make(chan struct{})
		done := make(chan error, 1)
		go func() { done <- h.Finish(t.Context(), submitted(list[0].Lease, "farm", "j1"), "") }()
		synctest.Wait()
		if err := h.Finish(t.Context(), submitted(list[1].Lease, "farm", "j1"), ""); fault.CodeOf(err) != fault.Conflict || errors.Is(err, ErrStale) {
			t.Errorf("the second: %v", err)
		}
		close(h.gate)
		if err := <-done; err != nil || len(h.handed) != 1 {
			t.Errorf("the first: %v, %q", err, h.handed)
		}
		h.checked = fault.New(fault.ProviderError, "it is one of another step")
		if err := h.Finish(t.Context(), submitted(list[1].Lease, "farm", "j1"), ""); err != nil || len(h.handed) != 1 {
			t.Errorf("the second again: %v, %q", err, h.handed)
		}
	})
}

// What a worker has submitted for a task for which no step waits any more is told to the engine, which has
// it cancelled. If another worker has the task, it gets the same job, which goes on.
func TestSubmittedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, permitFarm)
		h.work()
		id := h.submit("acme", "a", "1.0.0", `{}`)
		first := h.lease(Want{})[0]
		time.Sleep(time.Minute) // its lease expires
		second := h.lease(Want{})[0]
		late := func(lease, account, provider string, want int) {
			t.Helper()
			if err := h.Finish(t.Context(), submitted(lease, provider, "j1"), account); !errors.Is(err, ErrStale) {
				t.Errorf("late: %v", err)
			}
			if len(h.handed) != want {
				t.Errorf("told %q, want %d", h.handed, want)
			}
		}
		late(first.Lease, "", "farm", 0) // another worker has it
		h.cancelled(id)
		late(first.Lease, "", "farm", 0)
		late(second.Lease, "other", "farm", 0)
		late(second.Lease, "", "other", 0)
		late(second.Lease+"x", "", "farm", 0)
		h.written("acme", "a", "1.0.0", id, 2) // the next attempt has the same effect key
		late(second.Lease, "", "farm", 0)
		h.cancelled(id)
		late(second.Lease, "acme", "farm", 1)
		if err := h.Finish(t.Context(), output(second.Lease, `{}`), ""); !errors.Is(err, ErrStale) || len(h.handed) != 1 {
			t.Errorf("an output: %v", err)
		}
	})
}
