// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// service is an outside service with books of its own: it accepts jobs under keys, works on
// them, and answers polls.
type service struct {
	mu        sync.Mutex
	jobs      map[string]string // by id: "" while it works, then what it returns or "cancelled"
	polled    []time.Duration   // since it began
	cancelled []string
	preview   any  // of jobs that it works on
	refuse    int  // calls of Cancel that fail
	panics    bool // the first poll does
	began     time.Time
	submitted func(id string) // called before the submission is answered; nil = nothing
	result    func(ctx context.Context, out string) (action.Result, error)
}

func newService() *service { return &service{jobs: map[string]string{}, began: time.Now()} }

// submits is an action that gives its work to the service. Jobs have the effect key of their
// attempt, so that a repeated submission gives the same job.
func (s *service) submits() *action.Action {
	return newAction("submit", func(_ context.Context, t *action.Task) (action.Result, error) {
		id := "job-" + t.EffectKey
		s.mu.Lock()
		if _, ok := s.jobs[id]; !ok {
			s.jobs[id] = ""
		}
		s.mu.Unlock()
		if s.submitted != nil {
			s.submitted(id)
		}
		return action.Result{Job: &action.Job{Provider: "acme", ID: id, Handle: []byte(`{"step":"` + t.Step + `"}`)}}, nil
	})
}

func (s *service) end(id, out string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[id] == "" {
		s.jobs[id] = out
	}
}

func (s *service) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for id := range s.jobs {
		all = append(all, id)
	}
	slices.Sort(all)
	return all
}

func (s *service) state(out string) action.JobState {
	if out == "" {
		return action.JobState{Preview: s.preview}
	}
	return action.JobState{Result: func(ctx context.Context, _ *action.Task) (action.Result, error) {
		if s.result != nil {
			return s.result(ctx, out)
		}
		if out == "failed" {
			return action.Result{}, fault.New(fault.ProviderError, "the model is broken")
		}
		return action.Result{Output: map[string]any{"text": out}}, nil
	}}
}

func (s *service) Poll(_ context.Context, j *action.SubmittedJob) (action.JobState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.panics && len(s.polled) == 0 {
		s.polled = append(s.polled, time.Since(s.began))
		panic("a bug of the service")
	}
	s.polled = append(s.polled, time.Since(s.began))
	return s.state(s.jobs[j.ID]), nil
}

func (s *service) Receive(h http.Header, _ []byte) (action.Webhook, error) {
	if h.Get("signature") != "valid" {
		return action.Webhook{}, errors.New("forged")
	}
	return action.Webhook{Job: h.Get("job"), ID: h.Get("id")}, nil
}

func (s *service) Read(_ context.Context, _ *action.SubmittedJob, body []byte) (action.JobState, error) {
	if preview, ok := strings.CutPrefix(string(body), "preview "); ok {
		return action.JobState{Preview: preview}, nil
	}
	return s.state(string(body)), nil
}

func (s *service) Cancel(_ context.Context, j *action.SubmittedJob) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse > 0 {
		s.refuse--
		return errors.New("away")
	}
	s.cancelled = append(s.cancelled, j.ID+string(j.Handle))
	return nil
}

// outside is an engine with a keeper of jobs.
type outside struct {
	*Engine
	svc    *service
	t      *testing.T
	st     *memory.Store
	keeper *jobs.Keeper
	stop   func()

	mu       sync.Mutex
	unstored map[string]*jobs.Job // that have no record, by id
}

func openOutside(t *testing.T, st *memory.Store, s *service, cfg Config, actions ...*action.Action) *outside {
	t.Helper()
	return openServed(t, st, s, s, cfg, actions...)
}

func openServed(t *testing.T, st *memory.Store, s *service, svc action.Service, cfg Config, actions ...*action.Action) *outside {
	t.Helper()
	o := &outside{t: t, st: st, svc: s, unstored: map[string]*jobs.Job{}}
	o.keeper = jobs.New(jobs.Config{Records: st, Logger: testLog(t),
		Put: func(ctx context.Context, c ...store.RecordChange) ([]store.Record, error) {
			return o.PutRecords(ctx, c...)
		},
		Settle: func(ctx context.Context, j *jobs.Job, src journal.Source, res action.Func) error {
			return o.Settle(ctx, j, src, res)
		},
		Show: func(ctx context.Context, j *jobs.Job, src journal.Source, res action.Func) error {
			if err := o.Settle(ctx, j, src, res); err != nil && !errors.Is(err, action.ErrUnsettled) {
				return err
			}
			return o.Sync(ctx)
		},
		Service: func(name string) action.Service {
			if name == "acme" {
				return svc
			}
			return nil
		},
	})
	cfg.Jobs = o.changed
	submit := s.submits()
	submit.Provider = "acme"
	o.Engine = openEngine(t, st, cfg, append(actions, submit, noop())...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.keeper.Run(ctx, opened()) }()
	var once sync.Once
	o.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the keeper ended with %v", err)
			}
		})
	}
	t.Cleanup(o.stop)
	return o
}

const submitAndGoOn = "name: x\nsteps:\n  - {id: a, action: {name: submit}, outputBinding: made}\n  - {id: b, action: {name: noop}}\noutputs: {text: made.text}\n"

func (o *outside) begin(src string) string {
	o.t.Helper()
	return start(o.t, o.Engine, planOf(o.t, src, o.svc.submits(), noop()), nil)
}

func (o *outside) wantEnd(run, status string) {
	o.t.Helper()
	if head := waitForEnd(o.t, o.Engine, run); head.Status != status {
		o.t.Errorf("the run is %s: %s", head.Status, head.Message)
	}
}

func (o *outside) deliver(id, delivery, body string) {
	o.t.Helper()
	h := http.Header{"Signature": {"valid"}, "Job": {id}, "Id": {delivery}}
	if err := o.keeper.Deliver(o.t.Context(), "acme", h, []byte(body)); err != nil {
		o.t.Errorf("delivery %s: %v", delivery, err)
	}
}

// records lists the records of jobs, by kind.
func (o *outside) records() string {
	o.t.Helper()
	var all []string
	for _, kind := range []string{jobs.KindJob, jobs.KindCancel, jobs.KindEnded, jobs.KindOpen, jobs.KindDelivery} {
		n := 0
		if err := store.EachRecord(o.t.Context(), o.st, store.RecordQuery{Kind: kind}, func(*store.Record) error { n++; return nil }); err != nil {
			o.t.Fatal(err)
		}
		if n > 0 {
			all = append(all, fmt.Sprintf("%s %d", kind, n))
		}
	}
	return strings.Join(all, ", ")
}

func (o *outside) wantRecords(want string) {
	o.t.Helper()
	if got := o.records(); got != want {
		o.t.Errorf("records of jobs: %q, want %q", got, want)
	}
}

// ignored counts the results that came too late for a run, by source.
func (o *outside) ignored(run string) (n int) {
	o.t.Helper()
	err := store.EachEvent(o.t.Context(), o.st, store.Key{Account: acc, Run: run}, 0, func(ev *journal.Event) error {
		if ev.Kind == journal.EvNodeIgnored {
			n++
		}
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return n
}

// X128, X131, X132, X135, X137 (webhook normal): the step holds no worker, the webhook ends it, what
// the service says again changes nothing, and nobody asks any more.
func TestX128_X137_WebhookNormal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := openOutside(t, memory.New(memory.Options{}), newService(), Config{Concurrency: 1})
		run := o.begin(submitAndGoOn)
		other := start(t, o.Engine, planOf(t, chain(2), noop()), nil)
		if head := waitForEnd(t, o.Engine, other); head.Status != "completed" {
			t.Errorf("a run beside it, with one slot in all: %s", head.Status)
		}
		synctest.Wait()
		o.wantRecords("job 1")
		id := o.svc.list()[0]
		time.Sleep(5 * time.Second) // the run leaves memory
		for n := range 3 {
			o.deliver(id, fmt.Sprint("d", n/2), "hello") // the second one is a repetition
		}
		o.wantEnd(run, "completed")
		time.Sleep(5 * time.Second) // a delivery that finds another one at work comes again
		synctest.Wait()
		o.wantRecords("job-ended 1, delivery 2")
		h, err := o.History(t.Context(), acc, run, 9)
		if err != nil || string(h.Outputs) != `{"text":"hello"}` {
			t.Errorf("outputs %s (%v)", h.Outputs, err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(o.svc.polled) > 0 {
			t.Errorf("asked %d times about a job that has ended", len(o.svc.polled))
		}
	})
}

// X133, X137 (webhook lost): without a webhook the service is asked 30 s, 90 s, 210 s, 330 s
// after the submission, each time give or take a tenth of the interval, and a poll that finds
// nothing writes nothing and loads no run.
func TestX133_Polls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := openOutside(t, memory.New(memory.Options{}), newService(), Config{})
		run := o.begin(submitAndGoOn)
		time.Sleep(5 * time.Second)
		commits := func() int64 {
			s, err := o.st.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return s.Commits
		}
		before := commits()
		time.Sleep(300 * time.Second)
		if n, load := commits(), o.Load(); n != before || load.Loaded != 0 {
			t.Errorf("%d commits and %d runs in memory while nothing happened", n-before, load.Loaded)
		}
		o.svc.end(o.svc.list()[0], "hello")
		o.wantEnd(run, "completed")
		synctest.Wait()
		for n, want := range []struct{ at, off time.Duration }{{30, 3}, {90, 6}, {210, 12}, {330, 12}} {
			if n >= len(o.svc.polled) || (o.svc.polled[n]-want.at*time.Second).Abs() > want.off*time.Second+time.Second {
				t.Errorf("asked after %v, want 30 s, 90 s, 210 s, 330 s", o.svc.polled)
				break
			}
		}
		if len(o.svc.polled) != 4 {
			t.Errorf("asked %d times, want 4", len(o.svc.polled))
		}
		o.deliver(o.svc.list()[0], "late", "hello")
		synctest.Wait()
		o.wantRecords("job-ended 1, delivery 1")
	})
}

// F14: a webhook that comes before the submission was answered waits for the id of the job.
func TestF14_WebhookBeforeTheSubmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o *outside
		s := newService()
		s.submitted = func(id string) {
			o.deliver(id, "early", "hello")
			synctest.Wait()
		}
		o = openOutside(t, memory.New(memory.Options{}), s, Config{})
		run := o.begin(submitAndGoOn)
		o.wantEnd(run, "completed")
		synctest.Wait()
		o.wantRecords("job-ended 1, delivery 1")
		if time.Since(s.began) > time.Second {
			t.Errorf("it took %s", time.Since(s.began))
		}
	})
}

// F13, X134, X136: a webhook and a poll at the same time, and one after the other: one result.
func TestF13_WebhookAndPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		o := openOutside(t, memory.New(memory.Options{}), s, Config{})
		hold := make(chan struct{})
		s.result = func(_ context.Context, out string) (action.Result, error) {
			<-hold // both are under way
			return action.Result{Output: map[string]any{"text": out}}, nil
		}
		run := o.begin("name: x\nsteps:\n  - {id: a, action: {name: submit}}\n  - {id: w, wait: {signal: go}}\n")
		synctest.Wait()
		o.svc.end(o.svc.list()[0], "hello")
		time.Sleep(40 * time.Second)
		o.deliver(o.svc.list()[0], "d", "hello")
		synctest.Wait()
		close(hold)
		synctest.Wait()
		if err := o.Signal(t.Context(), acc, run, "go", nil); err != nil {
			t.Fatal(err)
		}
		o.wantEnd(run, "completed")
		time.Sleep(time.Hour)
		o.wantRecords("job-ended 1, delivery 1")
		if n := o.ignored(run); n > 1 {
			t.Errorf("%d results were ignored, want at most one", n)
		}
	})
}

// X127, X137 (both fail): nothing is ever heard of the job. It expires, and the service is
// told, as often as it takes.
func TestX127_JobExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		o := openOutside(t, memory.New(memory.Options{}), s, Config{})
		s.refuse = 3
		run := o.begin(submitAndGoOn)
		head := waitForEnd(t, o.Engine, run)
		if head.Status != "failed" || head.Code != fault.JobExpired || time.Since(s.began).Round(time.Minute) != 24*time.Hour {
			t.Errorf("after %s the run is %s: %s %s", time.Since(s.began), head.Status, head.Code, head.Message)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{o.svc.list()[0] + `{"step":"a"}`}; !slices.Equal(s.cancelled, want) {
			t.Errorf("cancelled %q, want %q", s.cancelled, want)
		}
		o.wantRecords("job-ended 1")
	})
}

// A cancelled run has ended when it is cancelled; its job is cancelled at the service also
// after a restart.
func TestCancelledJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := newService(), memory.New(memory.Options{})
		o := openOutside(t, st, s, Config{})
		run := o.begin(submitAndGoOn)
		time.Sleep(5 * time.Second)
		s.mu.Lock()
		s.refuse = 1 << 30
		s.mu.Unlock()
		if err := o.Cancel(t.Context(), acc, run, "enough"); err != nil {
			t.Fatal(err)
		}
		if head := waitForEnd(t, o.Engine, run); head.Status != "cancelled" || head.Owes {
			t.Errorf("the run is %s, owes %t", head.Status, head.Owes)
		}
		synctest.Wait()
		o.wantRecords("job 1, job-cancel 1")
		o.stop()
		if _, err := o.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.refuse = 2
		s.mu.Unlock()
		o = openOutside(t, st.Reopen(), s, Config{})
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{o.svc.list()[0] + `{"step":"a"}`}; !slices.Equal(s.cancelled, want) {
			t.Errorf("cancelled %q, want %q", s.cancelled, want)
		}
		o.wantRecords("job-ended 1")
		if len(s.polled) > 0 {
			t.Errorf("asked %d times about a job that was cancelled", len(s.polled))
		}
	})
}

// A job that is submitted by an attempt which was cancelled meanwhile is cancelled, too.
func TestJobsOfAttemptsThatWereCancelled(t *testing.T) {
	testLateSubmission(t, memory.Options{}, time.Second, time.Minute)
}

// testLateSubmission cancels a run while it submits a job, and checks that the service is told to
// cancel the job within a time. The submission returns some time after the cancellation.
func testLateSubmission(t *testing.T, opts memory.Options, after, within time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		var o *outside
		begun := make(chan string, 1)
		s.submitted = func(string) {
			if err := o.Cancel(t.Context(), acc, <-begun, "enough"); err != nil {
				t.Error(err)
			}
			time.Sleep(after)
		}
		o = openOutside(t, memory.New(opts), s, Config{})
		run := o.begin(submitAndGoOn)
		begun <- run
		waitForEnd(t, o.Engine, run)
		time.Sleep(within)
		synctest.Wait()
		if len(s.cancelled) != 1 {
			t.Errorf("cancelled %q, want one job", s.cancelled)
		}
		o.wantRecords("job-ended 1")
	})
}

// A process that stops in the middle loses nothing: jobs that were submitted are waited for,
// and webhooks that were stored are acted upon.
func TestJobsAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := newService(), memory.New(memory.Options{})
		o := openOutside(t, st, s, Config{})
		polled, delivered := o.begin(submitAndGoOn), o.begin(submitAndGoOn)
		synctest.Wait()
		job := map[string]string{} // by run
		if err := store.EachRecord(t.Context(), st, store.RecordQuery{Kind: jobs.KindJob}, func(r *store.Record) error {
			j, err := jobs.Decode(r)
			job[j.Run] = j.ID
			return err
		}); err != nil {
			t.Fatal(err)
		}
		o.stop() // the webhook is stored, and nobody acts upon it
		o.deliver(job[delivered], "d", "hello")
		o.svc.end(job[polled], "world")
		o.crash()
		o = openOutside(t, st.Crash(0), s, Config{})
		for run, want := range map[string]string{delivered: `{"text":"hello"}`, polled: `{"text":"world"}`} {
			o.wantEnd(run, "completed")
			h, err := o.History(t.Context(), acc, run, 9)
			if err != nil || string(h.Outputs) != want {
				t.Errorf("outputs %s, want %s (%v)", h.Outputs, want, err)
			}
		}
		synctest.Wait()
		o.wantRecords("job-ended 2, delivery 1")
		if n := len(s.list()); n != 2 {
			t.Errorf("%d jobs were submitted, want 2", n)
		}
	})
}

// X138, I22: a job holds the slot of its provider until it ends, also while its run is not in
// memory and after a restart.
func TestI22_JobsHoldSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := newService(), memory.New(memory.Options{})
		cfg := Config{ProviderSlots: map[string]int{"acme": 1}}
		o := openOutside(t, st, s, cfg)
		first := o.begin(submitAndGoOn)
		time.Sleep(time.Minute)
		second := o.begin(submitAndGoOn)
		synctest.Wait()
		one := s.list()
		if len(one) != 1 {
			t.Fatalf("%d jobs at once, the limit is 1", len(one))
		}
		if _, err := o.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.stop()
		o = openOutside(t, st.Reopen(), s, cfg)
		time.Sleep(time.Minute)
		if n := len(s.list()); n != 1 {
			t.Fatalf("%d jobs at once after a restart, the limit is 1", n)
		}
		reason := firstEvent(t, o.Engine, second, func(ev *journal.Event) bool { return ev.Kind == journal.EvNodeBlocked })
		if want := `waits for one of the 1 slots of provider "acme"`; reason != want {
			t.Errorf("blocked because it %q, want %q", reason, want)
		}
		o.deliver(one[0], "d1", "hello")
		waitForEnd(t, o.Engine, first)
		time.Sleep(time.Second)
		two := slices.DeleteFunc(s.list(), func(id string) bool { return id == one[0] })
		if len(two) != 1 {
			t.Fatalf("jobs %q after the first has ended", s.list())
		}
		o.deliver(two[0], "d2", "hello")
		waitForEnd(t, o.Engine, second)
		o.wantFreeSlots()
	})
}

// What a service returns is checked as what an action returns is. While it cannot be found
// out how a job has ended, nothing is recorded.
func TestResultsOfJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		o := openOutside(t, memory.New(memory.Options{}), s, Config{})
		tries := 0
		s.result = func(_ context.Context, out string) (action.Result, error) {
			if tries++; tries < 3 {
				return action.Result{}, fmt.Errorf("%w: the service is away", action.ErrUnsettled)
			}
			return action.Result{Output: map[string]any{"text": out}}, nil
		}
		run := o.begin("name: x\nsteps:\n  - {id: a, action: {name: submit}, retryPolicy: {maxAttempts: 2, retryableErrors: [contract_violated], initialDelay: 1s}, contracts: {output: {type: object, properties: {text: {const: good}}}}}\n")
		synctest.Wait()
		first := s.list()[0]
		o.deliver(first, "d", "bad")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if tries != 3 {
			t.Errorf("%d tries to find out the result, want 3", tries)
		}
		second := slices.DeleteFunc(s.list(), func(id string) bool { return id == first })
		if len(second) != 1 {
			t.Fatalf("jobs %q after the first broke the contract", s.list())
		}
		o.deliver(second[0], "d", "good")
		if head := waitForEnd(t, o.Engine, run); head.Status != "completed" {
			t.Errorf("the run is %s: %s %s", head.Status, head.Code, head.Message)
		}
	})
}

// X208, A19: a webhook with a wrong signature, or for a provider that is not configured, is
// refused and leaves nothing.
func TestX208_ForgedWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := openOutside(t, memory.New(memory.Options{}), newService(), Config{})
		o.begin(submitAndGoOn)
		synctest.Wait()
		var answers []string
		for provider, h := range map[string]http.Header{
			"acme": {"Signature": {"forged"}, "Job": {o.svc.list()[0]}, "Id": {"d"}},
			"none": {"Signature": {"valid"}, "Job": {o.svc.list()[0]}, "Id": {"d"}},
		} {
			err := o.keeper.Deliver(t.Context(), provider, h, []byte("hello"))
			wantCode(t, err, fault.Unauthorized)
			answers = append(answers, fault.Message(err))
		}
		if answers[0] != answers[1] {
			t.Errorf("the answers tell what was wrong: %q", answers)
		}
		synctest.Wait()
		o.wantRecords("job 1")
	})
}
