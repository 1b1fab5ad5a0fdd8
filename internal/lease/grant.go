// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/mutation"
)

// A Want is what a worker asks for.
type Want struct {
	Account string // whose tasks; "" = those of all accounts
	Queue   string
	Actions []string // names, or names@version; empty = all of the queue
	Labels  map[string]string
	Max     int           // tasks, at least 1
	Wait    time.Duration // for the first one
}

// A WorkerTask is a task as its worker gets it.
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

// What is done at once for a request.
const (
	renderers   = 16  // inputs that are rendered
	submissions = 256 // results that are jobs
)

// Lease returns tasks for a worker. It returns none if there were none for as long as the worker
// waits, or if ctx has ended: then nobody has the tasks.
func (m *Manager) Lease(ctx context.Context, want *Want) ([]WorkerTask, error) {
	queues := m.queuesFor(want)
	if len(queues) == 0 {
		return nil, fault.New(fault.NotFound, "no action is carried out by workers of the queue %.60q with these actions and labels: name it under `workers` in the configuration", want.Queue)
	}
	deadline := time.NewTimer(want.Wait)
	defer deadline.Stop()
	for {
		w := &waiter{account: want.Account, ready: make(chan struct{})}
		taken := m.take(queues, want, w)
		list := m.describe(ctx, taken)
		switch {
		case ctx.Err() != nil:
			m.giveBack(taken)
			m.leave(queues, w)
			m.passOn(queues, w)
			return nil, nil
		case len(list) > 0 || want.Wait <= 0:
			return list, nil
		case len(taken) > 0:
			continue // their steps have ended meanwhile
		}
		select {
		case <-w.ready:
			m.leave(queues, w)
			continue
		case <-deadline.C:
		case <-ctx.Done():
		}
		m.leave(queues, w)
		m.passOn(queues, w)
		return nil, nil
	}
}

// queuesFor returns the queues of the actions that a worker can carry out, in a fixed order.
func (m *Manager) queuesFor(want *Want) (list []*queue) {
	for _, name := range slices.Sorted(maps.Keys(m.byAction)) {
		p := m.byAction[name]
		if p.Queue != want.Queue || len(want.Actions) > 0 && !slices.Contains(want.Actions, name) && !slices.Contains(want.Actions, p.Action.Name) {
			continue
		}
		has := true
		for label, value := range p.Labels {
			has = has && want.Labels[label] == value
		}
		if has {
			list = append(list, p.queue)
		}
	}
	return list
}

// A granted task is one with the lease that it was given. It has another one, or none, if that is over
// before its worker gets it.
type granted struct {
	*task
	lease int64
}

// has reports whether the lease is not over. m.mu is held.
func (g *granted) has() bool { return !g.dropped && g.number == g.lease }

// take leases tasks, one of each queue in turn. If there are none, w waits.
func (m *Manager) take(queues []*queue, want *Want, w *waiter) (taken []granted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for more := true; more; {
		more = false
		for _, q := range queues {
			if len(taken) >= max(want.Max, 1) {
				// This worker may have been woken for several of them, and leaves the others.
				for _, q := range queues {
					q.wake()
				}
				return taken
			}
			if t := q.pop(want.Account); t != nil {
				m.grant(t)
				taken, more = append(taken, granted{t, t.number}), true
			}
		}
	}
	if len(taken) == 0 && want.Wait > 0 {
		for _, q := range queues {
			q.waiters = append(q.waiters, w)
		}
	}
	return taken
}

// leave removes a worker from those that wait.
func (m *Manager) leave(queues []*queue, w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range queues {
		q.remove(w)
	}
}

// passOn wakes another worker in place of one that was woken and takes no task.
func (m *Manager) passOn(queues []*queue, w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range queues {
		if w.woken {
			q.wake()
		}
	}
}

// grant gives a task a lease. Numbers of leases grow, also over restarts.
func (m *Manager) grant(t *task) {
	m.last++
	t.adopted, t.number, t.lastSeq = false, m.last, 0
	m.extend(t)
	m.watch(expiry{t.expires, t.job.ID, t.number})
}

// giveBack takes leases back that no worker has got.
func (m *Manager) giveBack(taken []granted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range taken {
		if t := &taken[i]; t.has() {
			t.number, t.expires = 0, 0
			t.action.push(t.task, m.waitsSince(t.task))
		}
	}
}

// describe makes tasks as workers get them. Inputs that are not in memory are rendered again, some
// at once. A task whose input cannot be rendered now waits for as long as a lease lasts, and nobody has
// it.
func (m *Manager) describe(ctx context.Context, taken []granted) (list []WorkerTask) {
	m.renderAll(ctx, taken)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range taken {
		t := &taken[i]
		switch {
		case !t.has():
			continue
		case t.input == nil && ctx.Err() == nil:
			t.number = 0
			m.watch(expiry{t.expires, t.job.ID, 0})
			continue
		case t.input == nil:
			continue // it is given back
		}
		j := &t.job
		list = append(list, WorkerTask{
			Lease: m.token(t.task), Action: j.Action, Version: j.Version, Input: t.input, Account: j.Account, Run: j.Run, Step: j.Name,
			Attempt: int(j.Attempt), EffectKey: t.effectKey, TraceParent: t.traceParent, LeaseMS: t.action.Lease.Milliseconds(), ExpiresAt: time.UnixMicro(j.Expires).UTC(),
		})
		if m.kept > maxKept {
			m.keep(t.task, nil)
		}
	}
	return list
}

// renderAll renders the inputs that are not in memory.
func (m *Manager) renderAll(ctx context.Context, taken []granted) {
	var lacking []*task
	m.mu.Lock()
	for i := range taken {
		if t := taken[i].task; t.input == nil {
			lacking = append(lacking, t)
		}
	}
	m.mu.Unlock()
	m.each(len(lacking), renderers, func(i int) {
		m.mu.Lock()
		job := lacking[i].job
		m.mu.Unlock()
		if err := m.render(ctx, lacking[i], &job); err != nil {
			m.host.Logger.Info("the input of a task could not be rendered", "run", job.Run, "step", job.Name, "err", err)
		}
	})
}

// each calls fn for each number below n, for some of them at once.
func (m *Manager) each(n, atOnce int, fn func(i int)) {
	if m.serial || n == 1 {
		for i := range n {
			fn(i)
		}
		return
	}
	var group sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range n {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			fn(i)
		})
	}
	group.Wait()
}

// render has the engine render the input of a task again: a settlement that settles nothing.
func (m *Manager) render(ctx context.Context, t *task, job *jobs.Job) error {
	err := m.settleOne(ctx, job, func(_ context.Context, call *action.Task) (action.Result, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if t.input == nil && !t.dropped {
			t.effectKey, t.traceParent = call.EffectKey, call.TraceParent
			m.keep(t, slices.Clone(call.Input))
		}
		return action.Result{}, action.ErrUnsettled
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && m.tasks[job.ID] == t { // the step no longer waits
		m.drop(job.ID)
	}
	if t.input != nil {
		return nil
	}
	return err
}

// token is the lease of a task: the id of the task, the number of the lease, and what proves both.
// m.mu is held.
func (m *Manager) token(t *task) string {
	id := t.job.ID
	signed := id + "." + strconv.FormatInt(t.number, 36)
	t.token = signed + "." + m.mac(signed)
	return t.token
}

// mac is the proof of a lease. m.mu is held.
func (m *Manager) mac(signed string) string {
	if m.hash == nil {
		m.hash = hmac.New(sha256.New, m.host.Key)
	}
	m.hash.Reset()
	_, _ = io.WriteString(m.hash, signed) // never fails
	var sum [sha256.Size]byte
	return base64.RawURLEncoding.EncodeToString(m.hash.Sum(sum[:0])[:16])
}

// ErrStale says that a lease has ended: another worker has the task, its step no longer waits for it,
// or the lease was never granted.
var ErrStale = fault.New(fault.Conflict, "the lease of the task has ended: its result does not count")

// find returns the task of a lease that has not ended, of an account; "" = any. m.mu is held.
func (m *Manager) find(token, account string) (*task, error) {
	t, _ := m.locate(token, account)
	if t == nil {
		return nil, ErrStale
	}
	return t, nil
}

// locate is find, and says why there is no such task: only metrics have that. m.mu is held.
func (m *Manager) locate(token, account string) (t *task, why Refusal) {
	id, number, ok := m.read(token)
	if !ok {
		return nil, NoLease
	}
	t = m.tasks[id]
	switch {
	case t == nil || !t.written:
		return nil, EndedLease
	case account != "" && t.job.Account != account:
		return nil, OtherAccount
	}
	// After a restart several workers may show a lease: the one with the highest number has the task.
	if t.adopted && number > t.number {
		t.number = number
		m.watch(expiry{t.expires, id, number})
	}
	if (t.number != number || t.expires == 0) && !mutation.Lease {
		return nil, EndedLease
	}
	return t, 0
}

// read returns the id of the task and the number that a lease has; ok is false if it was never granted.
// m.mu is held.
func (m *Manager) read(token string) (id string, number int64, ok bool) {
	id, rest, _ := strings.Cut(token, ".")
	text, mac, _ := strings.Cut(rest, ".")
	number, err := strconv.ParseInt(text, 36, 64)
	if t := m.tasks[id]; t != nil && err == nil && hmac.Equal([]byte(token), []byte(t.token)) {
		return id, number, true // its proof need not be computed again
	}
	return id, number, err == nil && hmac.Equal([]byte(mac), []byte(m.mac(id+"."+text)))
}

// AccountOf returns the account of the run whose task has a lease.
func (m *Manager) AccountOf(token string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.find(token, "")
	if err != nil {
		return "", err
	}
	return t.job.Account, nil
}

// Extend extends leases, and returns those that have ended.
func (m *Manager) Extend(tokens []string, account string) (ended []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, token := range tokens {
		t, err := m.find(token, account)
		if err != nil {
			ended = append(ended, token)
			continue
		}
		m.extend(t)
	}
	return ended
}
