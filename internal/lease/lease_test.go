// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
)

// A fixture is a manager with steps that wait for its tasks.
type fixture struct {
	*Manager
	t *testing.T

	mu      sync.Mutex
	inputs  map[string]string // of steps that wait, by the id of the job
	results []string          // "id output" or "id CODE"
	renders int
	fail    error         // that Settle returns
	busy    int           // how many settlements still come while the one before is being answered
	gate    chan struct{} // Settle waits until it is closed; nil = it does not wait
	starts  uint64
	deltas  string
	handed  []string // "id of the task provider/id of the job"
	checked error    // that Check returns
}

func newFixture(t *testing.T, change func(*Remote)) *fixture {
	t.Helper()
	remotes := []Remote{
		{Action: action.Action{Name: "a", Version: "1.0.0", Faults: []fault.Code{fault.FileInvalid}}, Queue: "q", Lease: 30 * time.Second},
		{Action: action.Action{Name: "b", Version: "2.0.0"}, Queue: "q", Lease: 30 * time.Second, Labels: map[string]string{"gpu": "yes"}},
		{Action: action.Action{Name: "c", Version: "1.0.0", Delivery: action.AtMostOnce}, Queue: "other", Lease: 30 * time.Second},
	}
	for i := range remotes {
		if remotes[i].Timeout = time.Hour; change != nil {
			change(&remotes[i])
		}
	}
	h := &fixture{t: t, inputs: map[string]string{}}
	h.restart(remotes)
	return h
}

// restart makes a new manager, as a process after this one does.
func (h *fixture) restart(remotes []Remote) {
	h.Manager = New(remotes, nil)
	h.starts++
	h.Attach(Host{Key: []byte("key"), Epoch: h.starts, Settle: h.begin, HandOn: h.handOn, Check: func(context.Context, *jobs.Job, *action.Job) error { return h.checked }})
}

// work lets leases lapse until the test ends.
func (h *fixture) work() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	m := h.Manager
	go func() { m.Run(ctx); close(done) }()
	h.t.Cleanup(func() { cancel(); <-done })
}

func (h *fixture) settle(ctx context.Context, j *jobs.Job, from journal.Source, fn action.Func) error {
	h.mu.Lock()
	fail, gate := h.fail, h.gate
	h.mu.Unlock()
	if gate != nil {
		<-gate
	}
	h.mu.Lock()
	input, waits := h.inputs[j.ID]
	busy := h.busy > 0
	if busy {
		h.busy--
	}
	h.mu.Unlock()
	if busy {
		return fault.New(fault.Conflict, "another one is being carried out")
	}
	if fail != nil {
		return fail
	}
	if from == journal.FromWorker && ctx.Err() != nil {
		return ctx.Err()
	}
	if !waits {
		return nil
	}
	res, err := fn(ctx, &action.Task{Input: json.RawMessage(input), EffectKey: "key of " + j.ID, Account: j.Account, Report: reporter{h}})
	if errors.Is(err, action.ErrUnsettled) {
		h.mu.Lock()
		h.renders++
		h.mu.Unlock()
		return err
	}
	text := string(fault.CodeOf(err))
	var failed *fault.Error
	switch {
	case err == nil:
		text = string(res.Output.(json.RawMessage))
	case errors.As(err, &failed) && failed.OutcomeUnknown:
		text += "?"
	}
	h.mu.Lock()
	h.results = append(h.results, j.Account+" "+text)
	delete(h.inputs, j.ID)
	h.mu.Unlock()
	h.Changed([]jobs.Change{endOf(j.ID)})
	return nil
}

// submit makes a step of an account call an action, and returns the id of its job.
func (h *fixture) submit(account, name, version, input string) string {
	h.t.Helper()
	id := h.call(account, name, input)
	h.written(account, name, version, id, 1)
	return id
}

// call makes a step of an account call an action whose record is not durable yet.
func (h *fixture) call(account, name, input string) (id string) {
	h.t.Helper()
	var run action.Func
	for _, a := range h.Actions() {
		if a.Name == name {
			run = a.Run
		}
	}
	h.mu.Lock()
	key := fmt.Sprintf("%s-%d", account, len(h.inputs)+len(h.results))
	h.mu.Unlock()
	res, err := run(context.Background(), &action.Task{Account: account, EffectKey: key, Input: json.RawMessage(input)})
	if err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	h.inputs[res.Job.ID] = input
	h.mu.Unlock()
	return res.Job.ID
}

// written tells the manager that the record of a job is durable.
func (h *fixture) written(account, name, version, id string, attempt uint32) {
	h.t.Helper()
	h.Changed([]jobs.Change{h.record(account, name, version, id, attempt)})
}

func (h *fixture) record(account, name, version, id string, attempt uint32) jobs.Change {
	j := &jobs.Job{
		Provider: jobs.Workers, ID: id, Account: account, Run: "run", Name: "step", Action: name, Version: version,
		Gen: 1, Attempt: attempt, Expires: time.Now().Add(time.Hour).UnixMicro(),
	}
	return jobs.Change{Job: j, RecordChange: store.RecordChange{Record: store.Record{RecordKey: jobs.Key(jobs.Workers, id)}}}
}

// endOf says that the step of a task no longer waits for it, and cancelOf that nobody does.
func endOf(id string) jobs.Change {
	return jobs.Change{RecordChange: store.RecordChange{Delete: true, Record: store.Record{RecordKey: jobs.Key(jobs.Workers, id)}}}
}

func cancelOf(id string) jobs.Change {
	return jobs.Change{RecordChange: store.RecordChange{Record: store.Record{RecordKey: jobs.CancelKey(jobs.Workers, id)}}}
}

func (h *fixture) lease(want Want) []WorkerTask {
	h.t.Helper()
	want.Queue = cmp.Or(want.Queue, "q")
	list, err := h.Lease(h.t.Context(), &want)
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

// A task is handed out once its record is written, to one worker, and its result counts once.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		h.submit("x", "a", "1.0.0", `{"n":1}`)
		tasks := h.lease(Want{Max: 10})
		if len(tasks) != 1 || string(tasks[0].Input) != `{"n":1}` || tasks[0].Action != "a" || tasks[0].LeaseMS != 30_000 {
			t.Fatalf("%+v", tasks)
		}
		if again := h.lease(Want{Max: 10}); len(again) != 0 {
			t.Fatalf("it is handed out twice: %+v", again)
		}
		if err := h.Finish(t.Context(), output(tasks[0].Lease, `1`), "y"); !errors.Is(err, ErrStale) {
			t.Errorf("a worker of another account: %v", err)
		}
		if err := h.Finish(t.Context(), output(tasks[0].Lease, `1`), "x"); err != nil {
			t.Error(err)
		}
		if err := h.Finish(t.Context(), output(tasks[0].Lease, `2`), "x"); !errors.Is(err, ErrStale) {
			t.Errorf("a second result: %v", err)
		}
		if got := h.all(); !slices.Equal(got, []string{"x 1"}) {
			t.Error(got)
		}
	})
}

// A28: a lease that was altered, made up, or is of another task is worth nothing.
func TestA28_Leases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		id := h.submit("x", "a", "1.0.0", `{}`)
		other := h.submit("x", "a", "1.0.0", `{}`)
		tasks := h.lease(Want{Max: 1})
		good := tasks[0].Lease
		for _, token := range []string{"", ".", "..", id, id + ".", id + ".1.", strings.Replace(good, id, other, 1), good + "x", good[:len(good)-1], strings.ToUpper(good), strings.Replace(good, ".", ".0", 1), id + ".zz." + strings.Repeat("A", 22)} {
			if err := h.Finish(t.Context(), output(token, `1`), ""); !errors.Is(err, ErrStale) {
				t.Errorf("%q: %v", token, err)
			}
			if ended := h.Extend([]string{token}, ""); len(ended) != 1 {
				t.Errorf("%q is extended", token)
			}
			if _, err := h.AccountOf(token); err == nil {
				t.Errorf("%q opens files", token)
			}
		}
		if account, err := h.AccountOf(good); account != "x" || err != nil {
			t.Error(account, err)
		}
	})
}

// F07, I3: a worker that is silent for longer than its lease loses the task, and its late result
// does not count.
func TestF07_LateResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		h.work()
		h.submit("x", "a", "1.0.0", `{}`)
		first := h.lease(Want{})[0]
		time.Sleep(31 * time.Second)
		synctest.Wait()
		second := h.lease(Want{})
		if len(second) != 1 || second[0].EffectKey != first.EffectKey {
			t.Fatalf("%+v", second)
		}
		if ended := h.Extend([]string{first.Lease, second[0].Lease}, ""); !slices.Equal(ended, []string{first.Lease}) {
			t.Errorf("%v", ended)
		}
		if err := h.Finish(t.Context(), output(first.Lease, `"late"`), ""); !errors.Is(err, ErrStale) {
			t.Error(err)
		}
		if err := h.Finish(t.Context(), output(second[0].Lease, `"right"`), ""); err != nil {
			t.Error(err)
		}
		if got := h.all(); !slices.Equal(got, []string{`x "right"`}) {
			t.Error(got)
		}
	})
}

// F08: a slow worker that says it goes on keeps the task, however long it takes.
func TestF08_SlowWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		h.work()
		h.submit("x", "a", "1.0.0", `{}`)
		task := h.lease(Want{})[0]
		for range 30 {
			time.Sleep(20 * time.Second)
			if ended := h.Extend([]string{task.Lease, task.Lease}, ""); len(ended) != 0 {
				t.Fatal("it has lost the task")
			}
		}
		if more := h.lease(Want{}); len(more) != 0 {
			t.Error("another worker has it, too")
		}
		if err := h.Finish(t.Context(), output(task.Lease, `1`), ""); err != nil {
			t.Error(err)
		}
	})
}

// A task that its workers do not survive fails after three of them; one of at_most_once after the
// first.
func TestLostTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		h.work()
		h.submit("x", "a", "1.0.0", `{}`)
		for i := range MaxLosses {
			if got := h.lease(Want{}); len(got) != 1 {
				t.Fatalf("loss %d: %v", i, got)
			}
			time.Sleep(31 * time.Second)
			synctest.Wait()
		}
		if got := h.all(); !slices.Equal(got, []string{"x INTERRUPTED"}) {
			t.Fatal(got)
		}
		h.submit("x", "c", "1.0.0", `{}`)
		if list, err := h.Lease(t.Context(), &Want{Queue: "other"}); err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := h.all(); !slices.Equal(got, []string{"x INTERRUPTED", "x INTERRUPTED"}) {
			t.Error(got)
		}
	})
}

// After a restart each task stays with the worker that had it, for one lease. One that nobody
// extends is handed out again, with its input rendered anew.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		h.submit("x", "a", "1.0.0", `{"n":1}`)
		h.submit("x", "a", "1.0.0", `{"n":2}`)
		tasks := h.lease(Want{Max: 2})
		st := recordsOf(h)
		h.restart(h.remotes)
		h.work()
		if err := h.Load(t.Context(), st); err != nil {
			t.Fatal(err)
		}
		if got := h.lease(Want{Max: 2}); len(got) != 0 {
			t.Fatalf("they are handed out at once: %+v", got)
		}
		if ended := h.Extend([]string{tasks[0].Lease}, ""); len(ended) != 0 {
			t.Fatal("a worker has lost its task with the restart")
		}
		time.Sleep(20 * time.Second)
		h.Extend([]string{tasks[0].Lease}, "")
		time.Sleep(11 * time.Second)
		synctest.Wait()
		got := h.lease(Want{Max: 2})
		if len(got) != 1 || string(got[0].Input) != `{"n":2}` || h.renders != 1 || got[0].EffectKey == "" {
			t.Fatalf("%+v, rendered %d times", got, h.renders)
		}
		if err := h.Finish(t.Context(), output(tasks[1].Lease, `0`), ""); !errors.Is(err, ErrStale) {
			t.Error(err)
		}
		for i, lease := range []string{tasks[0].Lease, got[0].Lease} {
			if err := h.Finish(t.Context(), output(lease, fmt.Sprint(i)), ""); err != nil {
				t.Error(i, err)
			}
		}
	})
}

// A worker that shows itself after a restart and then dies loses its task; one that had lost it
// before the restart does not get it back.
func TestAdoptedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		before := h.Manager
		go func() { before.Run(ctx); close(done) }()
		h.submit("x", "a", "1.0.0", `{}`)
		old := h.lease(Want{})[0]
		time.Sleep(31 * time.Second)
		synctest.Wait()
		mine := h.lease(Want{})[0]
		cancel()
		<-done
		st := recordsOf(h)
		h.restart(h.remotes)
		h.work()
		if err := h.Load(t.Context(), st); err != nil {
			t.Fatal(err)
		}
		h.Extend([]string{old.Lease}, "") // it comes first
		if ended := h.Extend([]string{mine.Lease}, ""); len(ended) != 0 {
			t.Error("the worker that had the task has lost it")
		}
		if ended := h.Extend([]string{old.Lease}, ""); len(ended) != 1 {
			t.Error("one that had lost the task has it again")
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := h.lease(Want{}); len(got) != 1 {
			t.Errorf("%d tasks: the lease of a worker that has died does not lapse", len(got))
		}
	})
}

// kept are the records of the jobs that steps wait for.
type kept []store.Record

func recordsOf(h *fixture) (list kept) {
	h.Manager.mu.Lock()
	defer h.Manager.mu.Unlock()
	for id, w := range h.tasks {
		data, err := json.Marshal(w.job)
		if err != nil {
			h.t.Fatal(err)
		}
		list = append(list, store.Record{RecordKey: jobs.Key(jobs.Workers, id), Data: data})
	}
	slices.SortFunc(list, func(a, b store.Record) int { return strings.Compare(a.ID, b.ID) })
	return list
}

func (k kept) Record(context.Context, store.RecordKey) (store.Record, error) {
	return store.Record{}, fault.New(fault.RecordNotFound, "none")
}

func (k kept) Records(_ context.Context, q store.RecordQuery) (page []store.Record, more bool, err error) {
	for _, r := range k {
		if r.Kind == q.Kind && r.ID > q.After && strings.HasPrefix(r.ID, q.Prefix) {
			page = append(page, r)
		}
	}
	if q.Limit > 0 && len(page) > q.Limit {
		return page[:q.Limit], true, nil
	}
	return page, false, nil
}

// A step that was cancelled takes its task back: who has it learns that, and nobody else gets it.
func TestCancelledTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		for range 2 {
			h.submit("x", "a", "1.0.0", `{}`)
		}
		task := h.lease(Want{Max: 1})[0]
		for id := range h.inputs {
			h.Changed([]jobs.Change{cancelOf(id)})
		}
		if ended := h.Extend([]string{task.Lease}, ""); len(ended) != 1 {
			t.Error("its worker is not told")
		}
		if got := h.lease(Want{Max: 1}); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		if h.kept != 0 || len(h.tasks) != 0 {
			t.Errorf("%d bytes of %d tasks are kept", h.kept, len(h.tasks))
		}
	})
}

// Accounts take turns; a worker gets tasks of its account and of what it can do.
func TestWhoGetsWhat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		for range 3 {
			h.submit("x", "a", "1.0.0", `{}`)
		}
		h.submit("y", "a", "1.0.0", `{}`)
		h.submit("y", "b", "2.0.0", `{}`)
		var order []string
		for _, task := range h.lease(Want{Max: 3}) {
			order = append(order, task.Account)
		}
		if !slices.Equal(order, []string{"x", "y", "x"}) {
			t.Errorf("%v: the accounts do not take turns", order)
		}
		if got := h.lease(Want{Account: "y", Max: 10}); len(got) != 0 {
			t.Errorf("without its label: %+v", got)
		}
		if _, err := h.Lease(t.Context(), &Want{Queue: "q", Actions: []string{"b"}}); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("an action that it cannot carry out: %v", err)
		}
		if got := h.lease(Want{Account: "y", Max: 10, Actions: []string{"b@2.0.0"}, Labels: map[string]string{"gpu": "yes", "zone": "z"}}); len(got) != 1 || got[0].Action != "b" {
			t.Errorf("with its label: %+v", got)
		}
		if _, err := h.Lease(t.Context(), &Want{Queue: "none"}); fault.CodeOf(err) != fault.NotFound {
			t.Error(err)
		}
	})
}

// Workers that wait are told of a task, each of one, and leave when their time is over.
func TestLongPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		got := make(chan int, 10)
		for range 3 {
			go func() { got <- len(h.lease(Want{Wait: 20 * time.Second, Max: 1})) }()
		}
		synctest.Wait()
		begin := time.Now()
		h.submit("x", "a", "1.0.0", `{}`)
		h.submit("x", "a", "1.0.0", `{}`)
		if a, b := <-got, <-got; a+b != 2 || time.Since(begin) != 0 {
			t.Errorf("%d and %d tasks after %s", a, b, time.Since(begin))
		}
		if n := <-got; n != 0 || time.Since(begin) != 20*time.Second {
			t.Errorf("%d tasks after %s", n, time.Since(begin))
		}
		for name, p := range h.byAction {
			if len(p.waiters) != 0 {
				t.Errorf("%d workers wait for %s", len(p.waiters), name)
			}
		}
	})
}

// A worker that was woken for a task and does not take it passes that on.
func TestWokenWorkerLeaves(t *testing.T) {
	h := newFixture(t, nil)
	q := h.byAction["a@1.0.0"].queue
	first, second := &waiter{ready: make(chan struct{})}, &waiter{ready: make(chan struct{})}
	q.waiters = []*waiter{first, second}
	h.submit("x", "a", "1.0.0", `{}`)
	if !first.woken || second.woken {
		t.Fatal("not the first one is woken")
	}
	h.leave([]*queue{q}, first)
	h.passOn([]*queue{q}, first)
	if !second.woken {
		t.Error("the task waits, and so does the second worker")
	}
}

// A task whose request has ended when it was leased is nobody's: another worker gets it at once, and
// that is no loss.
func TestRequestThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		h.submit("x", "c", "1.0.0", `{}`) // which is attempted at most once
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if list, err := h.Lease(ctx, &Want{Queue: "other"}); err != nil || len(list) != 0 {
			t.Fatalf("%+v, %v", list, err)
		}
		list, err := h.Lease(t.Context(), &Want{Queue: "other"})
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		if err := h.Finish(t.Context(), output(list[0].Lease, `1`), ""); err != nil {
			t.Error(err)
		}
	})
}

// A result that could not be recorded may be sent again; a submission that was never written is
// forgotten.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		h.work()
		h.submit("x", "a", "1.0.0", `{}`)
		task := h.lease(Want{})[0]
		h.mu.Lock()
		h.fail = fault.New(fault.StoreFailed, "the disk is away")
		h.mu.Unlock()
		if err := h.Finish(t.Context(), output(task.Lease, `1`), ""); fault.CodeOf(err) != fault.StoreFailed {
			t.Error(err)
		}
		h.mu.Lock()
		h.fail = nil
		h.mu.Unlock()
		if err := h.Finish(t.Context(), output(task.Lease, `1`), ""); err != nil {
			t.Error(err)
		}
		if _, err := h.Actions()[0].Run(t.Context(), &action.Task{Account: "x", EffectKey: "never", Input: json.RawMessage(`{"a":1}`)}); err != nil {
			t.Fatal(err)
		}
		h.Manager.mu.Lock()
		if h.kept == 0 {
			t.Error("its input is not kept: this proves nothing")
		}
		h.Manager.mu.Unlock()
		time.Sleep(submissionExpiry + time.Minute)
		synctest.Wait()
		h.Manager.mu.Lock()
		defer h.Manager.mu.Unlock()
		if h.kept != 0 || len(h.tasks) != 0 {
			t.Errorf("%d bytes of %d tasks are kept", h.kept, len(h.tasks))
		}
	})
}

// What a worker says of a failure: codes that the action declares, and some that any may use.
func TestFailureCodes(t *testing.T) {
	declared := []fault.Code{fault.FileInvalid}
	for code, want := range map[string]fault.Code{"": fault.StepFailed, "FILE_INVALID": fault.FileInvalid, "RATE_LIMITED": fault.RateLimited, "STORE_CORRUPT": fault.StepFailed, "nonsense": fault.StepFailed} {
		f := (&WorkerFailure{Code: code, Message: "it broke", RetryAfterMS: 5, OutcomeUnknown: true}).fault(declared)
		if f.Code != want || f.RetryAfterMS != 5 || !f.OutcomeUnknown || f.Msg != "it broke" {
			t.Errorf("%q: %v", code, f)
		}
	}
}
