// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// onceAt gives a store the outcome of the first commit that changes a record of a kind.
func onceAt(kind string, deleted bool, outcome memory.Outcome) memory.Options {
	done := false
	return memory.Options{OnCommit: func(_ int, batch []store.Transition) memory.Outcome {
		for i := range batch {
			if !done && slices.ContainsFunc(batch[i].Records, func(c store.RecordChange) bool { return c.Kind == kind && c.Delete == deleted }) {
				done = true
				return outcome
			}
		}
		return memory.OK
	}}
}

// wantFreeSlots fails the test if a slot is in use.
func (o *outside) wantFreeSlots() {
	o.t.Helper()
	if use := o.Slots(); len(use) != 0 {
		o.t.Errorf("slots in use at the end: %+v", use)
	}
}

// F16: a job whose submission was written, but the answer of the store was lost, is asked about.
func TestF16_SubmissionReplyLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := openOutside(t, memory.New(onceAt(jobs.KindJob, false, memory.ReplyLost)), newService(), Config{})
		run := o.begin(submitAndGoOn)
		synctest.Wait()
		o.svc.end(o.svc.list()[0], "hello")
		if head := waitForEnd(t, o.Engine, run); head.Status != "completed" || time.Since(o.svc.began) > time.Minute {
			t.Errorf("after %s the run is %s", time.Since(o.svc.began), head.Status)
		}
	})
}

// I22: a job's slot is free when its end is durable, whatever the store has answered.
func TestI22_EndReplyLost(t *testing.T) {
	for name, outcome := range map[string]memory.Outcome{"written": memory.ReplyLost, "not written": memory.Refused} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := openOutside(t, memory.New(onceAt(jobs.KindJob, true, outcome)), newService(), Config{ProviderSlots: map[string]int{"acme": 1}})
				run := o.begin(submitAndGoOn)
				synctest.Wait()
				o.svc.end(o.svc.list()[0], "hello")
				o.wantEnd(run, "completed")
				time.Sleep(time.Minute)
				o.wantFreeSlots()
				o.wantRecords("job-ended 1")
			})
		})
	}
}

// A late submission that was not written is handled again: the service is told to cancel the job.
func TestLateSubmissionNotWritten(t *testing.T) {
	opts := onceAt(jobs.KindCancel, false, memory.Refused)
	testLateSubmission(t, opts, time.Minute, 10*time.Minute) // after a minute the run has left memory
}

// I22: a step that times out while the result of its job is read frees the job's slot.
func TestI22_ReadingAResultTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		o := openOutside(t, memory.New(memory.Options{}), s, Config{ProviderSlots: map[string]int{"acme": 1}})
		s.result = func(ctx context.Context, _ string) (action.Result, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // it is late, too
			return action.Result{}, ctx.Err()
		}
		run := o.begin(strings.Replace(submitAndGoOn, "{id: a,", "{id: a, timeout: 45s,", 1))
		synctest.Wait()
		s.end(s.list()[0], "hello")
		if head := waitForEnd(t, o.Engine, run); head.Code != fault.StepTimeout {
			t.Errorf("the run is %s: %s", head.Status, head.Code)
		}
		time.Sleep(time.Minute)
		o.wantFreeSlots()
	})
}

// I22: the slot of a job whose run was quarantined before a restart, and released after it, is
// freed when the job ends.
func TestI22_JobOfAReleasedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := newService(), memory.New(memory.Options{})
		cfg := Config{ProviderSlots: map[string]int{"acme": 1}}
		o := openOutside(t, st, s, cfg)
		run := o.begin(submitAndGoOn)
		time.Sleep(time.Minute)
		if _, err := o.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.stop()
		st = st.Reopen()
		key := store.Key{Account: acc, Run: run}
		head, err := st.Head(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		head.Quarantine = "a test wants it"
		epoch, err := st.Own(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if v, err := st.Commit(t.Context(), []store.Transition{{Key: key, Epoch: epoch, Head: &head}}); err != nil || v[0].Err != nil {
			t.Fatal(v, err)
		}
		o = openOutside(t, st.Reopen(), s, cfg)
		if err := o.Release(t.Context(), acc, run); err != nil {
			t.Fatal(err)
		}
		o.deliver(s.list()[0], "d1", "hello")
		o.wantEnd(run, "completed")
		time.Sleep(time.Minute)
		o.wantFreeSlots()
	})
}

// A job that has ended as another job has failed.
func TestJobThatEndsAsAnotherJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		o := openOutside(t, memory.New(memory.Options{}), s, Config{})
		s.result = func(context.Context, string) (action.Result, error) {
			return action.Result{Job: &action.Job{Provider: "acme", ID: "j2"}}, nil
		}
		run := o.begin(submitAndGoOn)
		synctest.Wait()
		s.end(s.list()[0], "hello")
		if head := waitForEnd(t, o.Engine, run); head.Code != fault.ProviderError || !strings.Contains(head.Message, "as another job") || time.Since(s.began) > 10*time.Minute {
			t.Errorf("after %s the run is %s: %s %s", time.Since(s.began), head.Status, head.Code, head.Message)
		}
	})
}

// I16: a service that panics is asked again, and nothing else is harmed.
func TestI16_ServicePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		s.panics = true
		o := openOutside(t, memory.New(memory.Options{}), s, Config{})
		run := o.begin(submitAndGoOn)
		synctest.Wait()
		s.end(s.list()[0], "hello")
		o.wantEnd(run, "completed")
		synctest.Wait()
		if len(s.polled) != 2 {
			t.Errorf("asked %d times, want twice", len(s.polled))
		}
	})
}
