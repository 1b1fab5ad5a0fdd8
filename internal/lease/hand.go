// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
)

// A Want is what a worker asks for.
type Want struct {
	Account string // whose tasks; "" = of all accounts
	Queue   string
	Actions []string // names, or names@version; empty = all of the queue
	Labels  map[string]string
	Max     int           // tasks
	Wait    time.Duration // how long to wait for the first
}

// A WorkerTask is a task that a worker has got.
type WorkerTask struct {
	Lease       string          `json:"lease" doc:"What the worker shows with everything that it says of the task."`
	Action      string          `json:"action"`
	Version     string          `json:"version"`
	Input       json.RawMessage `json:"input" doc:"The input of the action."`
	Account     string          `json:"account"`
	Run         string          `json:"run"`
	Step        string          `json:"step"`
	Attempt     int             `json:"attempt" doc:"From 1. It stays the same if the worker before was lost."`
	EffectKey   string          `json:"effectKey" doc:"The same until it is known how the effect ended: pass it to services as idempotency key."`
	TraceParent string          `json:"traceParent,omitempty"`
	LeaseMS     int64           `json:"leaseMs" doc:"How long the worker may be silent."`
	ExpiresAt   time.Time       `json:"expiresAt" doc:"When the step waits for the task no longer."`
}

// errQueue says that there is no queue of that name for the worker.
func errQueue(w *Want) error {
	return fault.New(fault.NotFound, "no action is carried out by workers of the queue %.60q with these actions and labels: name it under `workers` in the configuration", w.Queue)
}

// Queues returns the names of the queues, sorted.
func (m *Manager) Queues() (names []string) {
	for _, r := range m.remotes {
		if !slices.Contains(names, r.Queue) {
			names = append(names, r.Queue)
		}
	}
	slices.Sort(names)
	return names
}

// Lease returns tasks for a worker. It returns none when there are none for as long as the worker
// waits, or when ctx ends.
func (m *Manager) Lease(ctx context.Context, want *Want) ([]WorkerTask, error) {
	shelves := m.shelvesFor(want)
	if len(shelves) == 0 {
		return nil, errQueue(want)
	}
	deadline := time.NewTimer(want.Wait)
	defer deadline.Stop()
	for {
		me := &waiting{account: want.Account, told: make(chan struct{})}
		taken := m.take(shelves, want, me)
		if list := m.dress(ctx, taken); len(list) > 0 || want.Wait <= 0 {
			return list, nil
		}
		if len(taken) > 0 {
			continue // they have ended meanwhile
		}
		stop := false
		select {
		case <-me.told:
		case <-deadline.C:
			stop = true
		case <-ctx.Done():
			stop = true
		}
		if m.leave(shelves, me); stop {
			return nil, nil
		}
	}
}

// shelvesFor returns the shelves of what a worker can carry out.
func (m *Manager) shelvesFor(want *Want) (list []*shelf) {
	names := make([]string, 0, len(m.remotes))
	for name, r := range m.remotes {
		if r.Queue != want.Queue || len(want.Actions) > 0 && !slices.Contains(want.Actions, name) && !slices.Contains(want.Actions, r.Action.Name) {
			continue
		}
		has := true
		for label, value := range r.Labels {
			has = has && want.Labels[label] == value
		}
		if has {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		list = append(list, m.shelves[name])
	}
	return list
}

// take takes tasks, one of each shelf in turn. If there are none, me waits.
func (m *Manager) take(shelves []*shelf, want *Want, me *waiting) (taken []*task) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for more := true; more && len(taken) < max(want.Max, 1); {
		more = false
		for _, s := range shelves {
			if len(taken) == max(want.Max, 1) {
				break
			}
			if w := s.take(want.Account); w != nil {
				m.grant(w)
				taken, more = append(taken, w), true
			}
		}
	}
	if len(taken) == 0 && want.Wait > 0 {
		for _, s := range shelves {
			s.waiting = append(s.waiting, me)
		}
	}
	return taken
}

// leave ends a wait. A worker that was told of a task and does not take it passes that on.
func (m *Manager) leave(shelves []*shelf, me *waiting) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range shelves {
		if s.leave(me); me.done {
			s.tell()
		}
	}
}

// grant gives a task a lease. Numbers of leases grow, also over restarts.
func (m *Manager) grant(w *task) {
	now := m.now()
	m.last = max(m.last+1, now)
	w.loaded, w.number, w.until = false, m.last, now+w.remote.Lease.Microseconds()
	m.watch(lapse{w.until, w.job.ID, w.number})
}

// offer puts a task on its shelf.
func (m *Manager) offer(w *task) { m.shelves[nameOf(w.job.Action, w.job.Version)].add(w) }

// dress makes tasks as workers get them. Inputs that are not kept are rendered again, some side by
// side. One that cannot be rendered now is handed out again when its lease lapses.
func (m *Manager) dress(ctx context.Context, taken []*task) (list []WorkerTask) {
	var group sync.WaitGroup
	places := make(chan struct{}, renderers)
	for _, w := range taken {
		m.mu.Lock()
		job, rendered := w.job, w.input != nil
		m.mu.Unlock()
		if rendered {
			continue
		}
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			if err := m.render(ctx, w, &job); err != nil {
				m.host.Logger.Info("the input of a task could not be rendered", "run", job.Run, "step", job.Name, "err", err)
			}
		})
	}
	group.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range taken {
		if w.gone || w.input == nil {
			continue
		}
		j := &w.job
		list = append(list, WorkerTask{
			Lease: m.token(j.ID, w.number), Action: j.Action, Version: j.Version, Input: w.input, Account: j.Account, Run: j.Run, Step: j.Name,
			Attempt: int(j.Attempt), EffectKey: w.effectKey, TraceParent: w.parent, LeaseMS: w.remote.Lease.Milliseconds(), ExpiresAt: time.UnixMicro(j.Expires).UTC(),
		})
		if m.kept > maxKept {
			m.kept -= len(w.input)
			w.input = nil
		}
	}
	return list
}

// render has the engine render the input of a task again.
func (m *Manager) render(ctx context.Context, w *task, job *jobs.Job) error {
	err := m.host.Settle(ctx, job, journal.FromWorker, func(_ context.Context, t *action.Task) (action.Result, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if w.input == nil {
			w.input, w.effectKey, w.parent = slices.Clone(t.Input), t.EffectKey, t.TraceParent
			m.kept += len(w.input)
		}
		return action.Result{}, action.ErrUnsettled
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && w.input == nil { // its step has ended
		m.drop(job.ID)
	}
	if w.input != nil {
		return nil
	}
	return err
}

// token is the lease of a task: its id, the number of the lease, and what proves both.
func (m *Manager) token(id string, number int64) string {
	signed := id + "." + strconv.FormatInt(number, 36)
	return signed + "." + m.mac(signed)
}

func (m *Manager) mac(signed string) string {
	h := hmac.New(sha256.New, m.host.Key)
	_, _ = h.Write([]byte(signed)) // never fails
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// ErrStale says that a lease is over: another worker has the task, its step waits for it no longer,
// or the lease was never given.
var ErrStale = fault.New(fault.Conflict, "the lease of the task is over: its result does not count")

// holder returns the task of a lease that holds, of an account; "" = any. m.mu is held.
func (m *Manager) holder(token, account string) (*task, error) {
	id, rest, _ := strings.Cut(token, ".")
	text, mac, _ := strings.Cut(rest, ".")
	number, err := strconv.ParseInt(text, 36, 64)
	if err != nil || !hmac.Equal([]byte(mac), []byte(m.mac(id+"."+text))) {
		return nil, ErrStale
	}
	w := m.tasks[id]
	if w == nil || !w.known || w.gone || account != "" && w.job.Account != account {
		return nil, ErrStale
	}
	// After a restart the one that had the task has it still: of those who show a lease, the one
	// with the last number.
	if w.loaded && number > w.number {
		w.number = number
		m.watch(lapse{w.until, id, number})
	}
	if w.number != number || w.until == 0 {
		return nil, ErrStale
	}
	return w, nil
}

// Holds returns the account of the run whose task a lease is of. The lease is one of that account,
// or of any with "".
func (m *Manager) Holds(token, account string) (of string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w, err := m.holder(token, account)
	if err != nil {
		return "", err
	}
	return w.job.Account, nil
}

// Extend extends leases. ended has those that are over.
func (m *Manager) Extend(tokens []string, account string) (ended []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, token := range tokens {
		w, err := m.holder(token, account)
		if err != nil {
			ended = append(ended, token)
			continue
		}
		w.until = m.now() + w.remote.Lease.Microseconds()
	}
	return ended
}

// The bounds of what workers report of a task while they have it, and of what is done for one.
const (
	maxLogs     = 1_000
	maxReported = 4 << 20 // bytes
	renderers   = 16      // inputs that are rendered at once
)

// A WorkerReport is what a worker says of a task that goes on.
type WorkerReport struct {
	Lease    string          `json:"lease"`
	Fraction *float64        `json:"fraction,omitempty" minimum:"0" maximum:"1" doc:"How much is done."`
	Text     string          `json:"text,omitempty" maxLength:"1000" doc:"What is being done."`
	Level    string          `json:"level,omitempty" enum:"debug,info,warn,error" doc:"Of the log line."`
	Log      string          `json:"log,omitempty" maxLength:"65536" doc:"A log line."`
	Delta    string          `json:"delta,omitempty" maxLength:"1048576" doc:"A piece of a text that is streamed."`
	Preview  json.RawMessage `json:"preview,omitempty" doc:"A value that is shown before the result."`
}

// Report passes reports on to those who watch the runs. What is beyond the bounds is dropped. It
// returns the leases that are over.
func (m *Manager) Report(ctx context.Context, reports []WorkerReport, account string) (ended []string) {
	type of struct {
		job  jobs.Job
		list []*WorkerReport
	}
	var order []string
	byTask := map[string]*of{}
	m.mu.Lock()
	for i := range reports {
		r := &reports[i]
		w, err := m.holder(r.Lease, account)
		if err != nil {
			ended = append(ended, r.Lease)
			continue
		}
		w.until = m.now() + w.remote.Lease.Microseconds()
		if w.reported += len(r.Text) + len(r.Log) + len(r.Delta) + len(r.Preview); w.reported > maxReported {
			continue
		}
		if r.Log != "" {
			if w.logs++; w.logs > maxLogs {
				continue
			}
		}
		if byTask[w.job.ID] == nil {
			byTask[w.job.ID] = &of{job: w.job}
			order = append(order, w.job.ID)
		}
		byTask[w.job.ID].list = append(byTask[w.job.ID].list, r)
	}
	m.mu.Unlock()
	var group sync.WaitGroup
	for _, id := range order {
		t := byTask[id]
		group.Go(func() {
			// Nothing has ended: the engine only tells watchers. An error means that the step has.
			_ = m.host.Settle(ctx, &t.job, journal.FromWorker, func(_ context.Context, at *action.Task) (action.Result, error) {
				for _, r := range t.list {
					r.tell(at.Report)
				}
				return action.Result{}, action.ErrUnsettled
			})
		})
	}
	group.Wait()
	return ended
}

func (r *WorkerReport) tell(to action.Reporter) {
	if to == nil {
		return
	}
	if r.Fraction != nil || r.Text != "" {
		fraction := 0.0
		if r.Fraction != nil {
			fraction = *r.Fraction
		}
		to.Progress(fraction, r.Text)
	}
	if r.Log != "" {
		level := r.Level
		if level == "" {
			level = "info"
		}
		to.Log(level, r.Log)
	}
	if r.Delta != "" {
		to.Delta(r.Delta)
	}
	if len(r.Preview) > 0 {
		to.Preview(r.Preview)
	}
}

// A WorkerResult is how a task has ended.
type WorkerResult struct {
	Lease  string          `json:"lease"`
	Output json.RawMessage `json:"output,omitempty" doc:"The output of the action, if it succeeded."`
	Error  *WorkerFailure  `json:"error,omitempty" doc:"Why it failed."`
	Price  string          `json:"price,omitempty" maxLength:"30" pattern:"^[0-9]+(\\.[0-9]{1,6})?$" doc:"What the call cost, of an action with a price, at most that."`
}

// A WorkerFailure is why a task failed.
type WorkerFailure struct {
	Code         string `json:"code,omitempty" maxLength:"60" doc:"One of the codes that the action declares, or STEP_FAILED, which is the default." example:"RATE_LIMITED"`
	Message      string `json:"message" maxLength:"4096"`
	RetryAfterMS int64  `json:"retryAfterMs,omitempty" minimum:"0" maximum:"3600000" doc:"When to try again at the earliest."`
}

// Finish records how a task has ended. It returns when the result is durable; ErrStale means that
// it does not count.
func (m *Manager) Finish(ctx context.Context, r *WorkerResult, account string) error {
	m.mu.Lock()
	w, err := m.holder(r.Lease, account)
	if err == nil && w.ending {
		err = ErrStale // another result of the same lease is being recorded
	}
	if err != nil {
		m.mu.Unlock()
		return err
	}
	w.ending = true
	job, remote := w.job, w.remote
	m.mu.Unlock()
	err = m.host.Settle(ctx, &job, journal.FromWorker, func(context.Context, *action.Task) (action.Result, error) {
		if r.Error != nil {
			return action.Result{Price: r.Price}, r.Error.fault(remote)
		}
		return action.Result{Output: r.Output, Price: r.Price}, nil
	})
	m.ended(job.ID, err)
	return err
}

// ofAny are the codes that every worker may use.
var ofAny = []fault.Code{fault.StepFailed, fault.InputInvalid, fault.RateLimited, fault.ServiceUnavailable, fault.ProviderError}

// fault is a failure as an error of a step.
func (f *WorkerFailure) fault(r *Remote) error {
	code := fault.Code(f.Code)
	if !slices.Contains(ofAny, code) && !slices.Contains(r.Action.Faults, code) {
		code = fault.StepFailed
	}
	err := fault.New(code, "%s", f.Message)
	err.RetryAfterMS = f.RetryAfterMS
	return err
}
