// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A world has a manager on a store, and steps that wait for its requests.
type world struct {
	*Manager
	t     testing.TB
	st    *memory.Store
	epoch uint64
	end   func() // of Run

	mu      sync.Mutex
	steps   map[string]*action.Task // that wait, by the id of the job
	results []string                // "account output" or "account CODE: message"
	logs    []string
	fail    error // that settle returns
	meet    int   // how many puts wait for one another
	met     chan struct{}
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, st: memory.New(memory.Options{}), steps: map[string]*action.Task{}, end: func() {}}
	epoch, err := w.st.Own(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	w.epoch = epoch
	w.start()
	return w
}

// start makes a manager, as a process after this one does.
func (w *world) start() {
	w.Manager = New(Config{Records: w.st, Put: w.put})
	w.Attach(Host{Settle: w.settle, Key: func(context.Context) ([]byte, error) { return []byte("a key of 32 bytes, more or less.."), nil }})
}

// work makes the manager work until stop.
func (w *world) work() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	m := w.Manager
	go func() { m.Run(ctx); close(done) }()
	w.end = func() { cancel(); <-done; w.end = func() {} }
}

func (w *world) put(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	w.mu.Lock()
	if w.meet > 0 {
		if w.meet--; w.meet == 0 {
			close(w.met)
		}
		w.mu.Unlock()
		<-w.met
		w.mu.Lock()
	}
	w.mu.Unlock()
	return w.st.PutRecords(ctx, w.epoch, time.Now().UnixMicro(), changes)
}

// tell changes the records of a job as a commit does.
func (w *world) tell(kind journal.JobChangeKind, id string, task *action.Task, expires int64, handle json.RawMessage) {
	changes := jobs.AppendChanges(nil, &journal.JobChange{
		Kind: kind, Ref: journal.Ref{Step: 1}, Fence: journal.Fence{Gen: 1, Attempt: uint32(task.Attempt)},
		Job: journal.Job{Provider: jobs.People, ID: id, Handle: handle}, Expires: expires,
	}, &jobs.Source{Key: store.Key{Account: task.Account, Run: task.Run}, Name: task.Step, Action: ActionName, Version: "1.0.0"}, time.Now().UnixMicro())
	_, records := new(jobs.Unstored).Take(changes, false)
	stored, err := w.put(context.Background(), records...)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range changes {
		if changes[i].Updated = stored[i].Updated; changes[i].Updated == 0 {
			changes[i].Updated = time.Now().UnixMicro()
		}
	}
	w.Changed(changes)
}

// ask makes a step of an account wait for what a recipe asks, and returns the id of the request.
func (w *world) ask(account, effect, input string) string {
	w.t.Helper()
	id, err := w.try(account, effect, 1, input)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) try(account, effect string, attempt int, input string) (string, error) {
	task := &action.Task{Account: account, Run: "run_1", Step: "ask", Attempt: attempt, EffectKey: effect, Input: json.RawMessage(input)}
	a := w.Action()
	res, err := a.Run(context.Background(), task)
	if err != nil {
		return "", err
	}
	w.submitted(task, res.Job)
	return res.Job.ID, nil
}

func (w *world) submitted(task *action.Task, job *action.Job) {
	w.mu.Lock()
	w.steps[job.ID] = task
	w.mu.Unlock()
	w.tell(journal.JobSubmitted, job.ID, task, time.Now().Add(job.TTL).UnixMicro(), job.Handle)
}

// cancel ends the step of a request, as the cancel of its run does.
func (w *world) cancel(id string) {
	w.mu.Lock()
	task := w.steps[id]
	delete(w.steps, id)
	w.mu.Unlock()
	w.tell(journal.JobCancelled, id, task, 0, nil)
}

func (w *world) settle(ctx context.Context, j *jobs.Job, _ journal.Source, fn action.Func) error {
	w.mu.Lock()
	task, fail := w.steps[j.ID], w.fail
	w.mu.Unlock()
	if fail != nil {
		return fail
	}
	if task == nil {
		return nil
	}
	call := *task
	call.Report = reporter{action.Discard, w}
	res, err := fn(ctx, &call)
	if errors.Is(err, action.ErrUnsettled) {
		return err
	}
	var text string
	if err != nil {
		text = fmt.Sprintf("%s: %s", fault.CodeOf(err), fault.Message(err))
	} else {
		raw, merr := json.Marshal(res.Output)
		if merr != nil {
			return merr
		}
		text = string(raw)
	}
	w.mu.Lock()
	if w.steps[j.ID] == nil {
		w.mu.Unlock()
		return nil // another result was first
	}
	delete(w.steps, j.ID)
	w.results = append(w.results, task.Account+" "+text)
	w.mu.Unlock()
	kind := journal.JobEnded
	if fault.CauseOf(fault.CodeOf(err)) == fault.CauseTimeout {
		kind = journal.JobCancelled // as the machine has it
	}
	w.tell(kind, j.ID, task, 0, nil)
	return nil
}

type reporter struct {
	action.Reporter
	w *world
}

func (r reporter) Log(_, text string) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.w.logs = append(r.w.logs, text)
}

func (w *world) taken() (results, logs []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	results, logs = w.results, w.logs
	w.results, w.logs = nil, nil
	return results, logs
}

func (w *world) setFail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = err
}

// records returns how many records of a kind an account has.
func (w *world) records(account, kind string) (n int) {
	err := store.EachRecord(context.Background(), w.st, store.RecordQuery{Account: account, Kind: kind, KeysOnly: true}, func(*store.Record) error {
		n++
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

var ana = &Person{Account: "acme", Name: "ana", Key: "key_1", Role: "operator"}

// one is the only entry of a list.
func one(t testing.TB, list []string) string {
	t.Helper()
	if len(list) != 1 {
		t.Fatalf("%d: %q", len(list), list)
	}
	return list[0]
}
