// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/store/memory"
)

// tasks is an action that is carried out by remote workers, one task at a time.
func tasks() *action.Action {
	a := newAction("remote", func(_ context.Context, t *action.Task) (action.Result, error) {
		return action.Result{Job: &action.Job{Provider: jobs.Workers, ID: "task-" + t.EffectKey, TTL: time.Hour}}, nil
	})
	a.Provider, a.Slots = jobs.Workers, 1
	return a
}

// eachWaiting calls fn for the jobs of a provider that steps wait for, those with a record first.
func (o *outside) eachWaiting(provider string, fn func(j *jobs.Job, stored bool)) {
	o.t.Helper()
	err := jobs.Each(o.t.Context(), o.st, func(name string) bool { return name == provider }, func(j *jobs.Job) { fn(j, true) })
	if err != nil {
		o.t.Fatal(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, j := range o.unstored {
		if j.Provider == provider {
			fn(j, false)
		}
	}
}

// waiting returns the jobs of a provider that steps wait for, by run.
func (o *outside) waiting(provider string) map[string]*jobs.Job {
	o.t.Helper()
	all := map[string]*jobs.Job{}
	o.eachWaiting(provider, func(j *jobs.Job, stored bool) {
		if is := all[j.Run]; !stored && is != nil && is.ID == j.ID {
			o.t.Errorf("task %s of %s has a record, and is said to have none", j.ID, j.Run)
		}
		all[j.Run] = j
	})
	return all
}

// submitted ends a task with a job that its worker has submitted, under the effect key of the task as
// a good worker does.
func (o *outside) submitted(task *jobs.Job) (id string, err error) {
	id = "job-" + task.ID
	o.svc.mu.Lock()
	if _, ok := o.svc.jobs[id]; !ok {
		o.svc.jobs[id] = ""
	}
	o.svc.mu.Unlock()
	return id, o.HandOn(o.t.Context(), task, &action.Job{Provider: "acme", ID: id, Handle: []byte(`{"n":1}`), TTL: 3 * time.Hour})
}

const remoteThenNoop = "name: x\nsteps:\n  - {id: a, action: {name: remote}, outputBinding: made}\n  - {id: b, action: {name: noop}}\noutputs: {text: made.text}\n"

var remoteSlots = Config{JobSlots: map[string]bool{jobs.Workers: true, "acme": true}}

// X128, I22: a remote worker that submits a job ends its task with it. The slot stays taken over the
// change, while the run is not in memory, and after a restart, until the job ends.
func TestI22_HandedOnJobsHoldSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := newService(), memory.New(memory.Options{})
		o := openOutside(t, st, s, remoteSlots, tasks())
		p := planOf(t, remoteThenNoop, tasks(), noop())
		first := start(t, o.Engine, p, nil)
		time.Sleep(time.Minute) // it is suspended
		second := start(t, o.Engine, p, nil)
		synctest.Wait()
		task := o.waiting(jobs.Workers)[first]
		if task == nil || len(o.waiting(jobs.Workers)) != 1 {
			t.Fatalf("tasks %v, the limit is 1", o.waiting(jobs.Workers))
		}
		id, err := o.submitted(task)
		if err != nil {
			t.Fatal(err)
		}
		o.wantRecords("job 1")
		if j := o.waiting("acme")[first]; j == nil || j.ID != id || j.Fence() != task.Fence() || j.Ref() != task.Ref() || j.Expires-j.Submitted != (3*time.Hour).Microseconds() {
			t.Fatalf("the record of the job is %+v, that of the task was %+v", j, task)
		}
		if _, err := o.submitted(task); err != nil { // it is said again
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := o.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.stop()
		o = openOutside(t, st.Reopen(), s, remoteSlots, tasks())
		time.Sleep(time.Second)
		if n := len(o.waiting(jobs.Workers)); n != 0 {
			t.Fatalf("%d tasks beside the job of a worker, the limit is 1", n)
		}
		o.wantRecords("job 1")
		o.deliver(id, "d", "hello")
		if head := waitForEnd(t, o.Engine, first); head.Status != "completed" {
			t.Errorf("the run is %s: %s", head.Status, head.Message)
		}
		h, err := o.History(t.Context(), acc, first, 9)
		if err != nil {
			t.Fatal(err)
		}
		if results, _ := h.Steps(); string(h.Outputs) != `{"text":"hello"}` || results["a"].Attempts != 1 {
			t.Errorf("outputs %s of %d attempts", h.Outputs, results["a"].Attempts)
		}
		time.Sleep(time.Second)
		task = o.waiting(jobs.Workers)[second]
		if task == nil {
			t.Fatal("the second run has no task after the first has ended")
		}
		if id, err = o.submitted(task); err != nil {
			t.Fatal(err)
		}
		s.end(id, "world")
		if head := waitForEnd(t, o.Engine, second); head.Status != "completed" {
			t.Errorf("the run is %s: %s", head.Status, head.Message)
		}
		synctest.Wait()
		o.wantFreeSlots()
		if len(s.cancelled) != 0 {
			t.Errorf("cancelled %q", s.cancelled)
		}
	})
}

// A job that a remote worker has submitted is cancelled with its step, before its task has ended with it
// and after that; and when nothing is heard of it.
func TestHandedOnJobIsCancelled(t *testing.T) {
	for name, before := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService()
				o := openOutside(t, memory.New(memory.Options{}), s, remoteSlots, tasks())
				run := start(t, o.Engine, planOf(t, remoteThenNoop, tasks(), noop()), nil)
				synctest.Wait()
				task := o.waiting(jobs.Workers)[run]
				cancel := func() {
					if err := o.Cancel(t.Context(), acc, run, "enough"); err != nil {
						t.Fatal(err)
					}
					waitForEnd(t, o.Engine, run)
				}
				if before {
					cancel()
				}
				id, err := o.submitted(task)
				if err != nil {
					t.Fatal(err)
				}
				if !before {
					cancel()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if want := []string{id + `{"n":1}`}; !slices.Equal(s.cancelled, want) {
					t.Errorf("cancelled %q, want %q", s.cancelled, want)
				}
				if n := len(o.waiting("acme")) + len(o.waiting(jobs.Workers)); n != 0 {
					t.Errorf("%d jobs are kept", n)
				}
				o.wantFreeSlots()
			})
		})
	}
}

// X127: a job that a remote worker has submitted expires by its own time, not that of the task.
func TestX127_HandedOnJobExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		o := openOutside(t, memory.New(memory.Options{}), s, remoteSlots, tasks())
		run := start(t, o.Engine, planOf(t, remoteThenNoop, tasks(), noop()), nil)
		time.Sleep(30 * time.Minute)
		if _, err := o.submitted(o.waiting(jobs.Workers)[run]); err != nil {
			t.Fatal(err)
		}
		head := waitForEnd(t, o.Engine, run)
		if head.Code != fault.JobExpired || time.Since(s.began).Round(time.Minute) != 210*time.Minute {
			t.Errorf("after %s the run is %s: %s", time.Since(s.began), head.Status, head.Message)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.cancelled) != 1 {
			t.Errorf("cancelled %q, want one job", s.cancelled)
		}
	})
}

// F14: a webhook that comes before the worker has said what it submitted waits for the id of the job.
// F02: the answer to what the worker says is lost with the process, and it says it again.
func TestF02_HandedOnBeforeACrash(t *testing.T) {
	for name, written := range map[string]bool{"written": true, "not written": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, st := newService(), memory.New(memory.Options{})
				o := openOutside(t, st, s, remoteSlots, tasks())
				run := start(t, o.Engine, planOf(t, remoteThenNoop, tasks(), noop()), nil)
				synctest.Wait()
				task := o.waiting(jobs.Workers)[run]
				o.deliver("job-"+task.ID, "early", "hello")
				o.stop()
				if written {
					if _, err := o.submitted(task); err != nil {
						t.Fatal(err)
					}
				}
				o.crash()
				o = openOutside(t, st.Crash(0), s, remoteSlots, tasks())
				time.Sleep(time.Second)
				if _, err := o.submitted(task); err != nil {
					t.Fatal(err)
				}
				o.wantEnd(run, "completed")
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(s.jobs) != 1 {
					t.Errorf("jobs %v, want one", s.jobs)
				}
				o.wantFreeSlots()
			})
		})
	}
}

// F16: the store has written the change, and its answer is lost; or it has not.
func TestF16_HandOnReplyLost(t *testing.T) {
	for name, fate := range map[string]memory.Outcome{"written": memory.ReplyLost, "refused": memory.Refused} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { handOnReplyLost(t, fate) }) })
	}
}

func handOnReplyLost(t *testing.T, fate memory.Outcome) {
	s := newService()
	o := openOutside(t, memory.New(onceAt(jobs.KindJob, false, fate)), s, remoteSlots, tasks())
	run := start(t, o.Engine, planOf(t, remoteThenNoop, tasks(), noop()), nil)
	synctest.Wait()
	id, err := o.submitted(o.waiting(jobs.Workers)[run])
	for err != nil && t.Context().Err() == nil {
		time.Sleep(time.Second)
		task := o.waiting(jobs.Workers)[run]
		if task == nil {
			break
		}
		id, err = o.submitted(task)
	}
	s.end(id, "hello")
	head := waitForEnd(t, o.Engine, run)
	synctest.Wait()
	if head.Status != "completed" || len(s.cancelled) != 0 {
		t.Errorf("the run is %s: %s; cancelled %q", head.Status, head.Message, s.cancelled)
	}
	o.wantFreeSlots()
}

// Only a task of a remote worker ends with a job.
func TestHandOnOfAnotherJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		o := openOutside(t, memory.New(memory.Options{}), s, Config{})
		run := o.begin(submitAndGoOn)
		synctest.Wait()
		job := o.waiting("acme")[run]
		if err := o.HandOn(t.Context(), job, &action.Job{Provider: "acme", ID: "j2"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if j := o.waiting("acme")[run]; j == nil || j.ID != job.ID || !slices.Equal(s.cancelled, []string{"j2"}) {
			t.Errorf("the step waits for %+v, cancelled %q", j, s.cancelled)
		}
		o.deliver(job.ID, "d", "hello")
		waitForEnd(t, o.Engine, run)
	})
}
