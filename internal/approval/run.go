// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// waiting is what is in memory of a request that a step waits for.
type waiting struct {
	account string
	attempt int
	next    int64 // when something is to be done for it, UTC µs; 0 = nothing
	tries   int   // how often that has failed
}

// A due is when something is to be done for a request. An entry that differs from the request's
// next is one of the past.
type due struct {
	at int64
	id string
}

func earlier(a, b *due) bool { return a.at < b.at }

// An ending is a request whose job has ended.
type ending struct {
	account, id string
	attempt     int
	cancelled   bool
}

// retry is how long something that failed waits for the first time, µs.
const retry = int64(time.Second / time.Microsecond)

// Changed tells the manager which records of jobs a commit has changed. It does not block.
func (m *Manager) Changed(changes []jobs.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return // they are read after the next start
	}
	for i := range changes {
		c := &changes[i]
		id, ok := jobs.IDOf(c.Kind, c.ID, jobs.People)
		switch {
		case !ok, c.Delete && c.Kind == jobs.KindCancel:
		case c.Delete, c.Kind == jobs.KindCancel:
			if w := m.waiting[id]; w != nil {
				m.ended = append(m.ended, ending{w.account, id, w.attempt, !c.Delete})
				delete(m.waiting, id)
				m.nudge()
			}
		default:
			delete(m.waiting, id) // of an earlier attempt
			m.expect(c.Job, 0)
		}
	}
}

// expect adds a request that a step waits for. reminded is of how many intervals people have been
// reminded. m.mu is held.
func (m *Manager) expect(j *jobs.Job, reminded int64) {
	if m.waiting[j.ID] != nil {
		return
	}
	h, _ := (&journal.Job{Provider: jobs.People, Handle: j.Handle}).Asked()
	w := &waiting{account: j.Account, attempt: int(j.Attempt)}
	m.waiting[j.ID] = w
	s := state{Asked: j.Submitted, Due: h.Due, Remind: h.Remind, Reminded: reminded}
	m.watch(j.ID, w, s.next())
}

// next is when something is to be done for a request; 0 = never.
func (s *state) next() int64 {
	at := s.reminder()
	if at == 0 || s.Due > 0 && s.Due < at {
		return s.Due
	}
	return at
}

// reminder is when people are reminded next; 0 = never. The times follow from that of the request.
func (s *state) reminder() int64 {
	if s.Remind == 0 || s.Reminded >= MaxReminders {
		return 0
	}
	return s.Asked + (s.Reminded+1)*s.Remind
}

// watch makes Run do something for a request at a time; 0 = never. m.mu is held.
func (m *Manager) watch(id string, w *waiting, at int64) {
	if w.next = at; at == 0 {
		return
	}
	if len(m.due) > 2*len(m.waiting)+1024 { // most entries are of requests that were answered
		m.due = m.due[:0]
		for id, w := range m.waiting {
			if w.next > 0 {
				m.due = append(m.due, due{w.next, id})
			}
		}
		heap.Init(m.due, earlier)
	}
	m.due = heap.Push(m.due, due{at, id}, earlier)
	if m.due[0].id == id {
		m.nudge()
	}
}

func (m *Manager) nudge() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// again makes Run look at a request of an attempt soon, because something failed. attempt counts if Run
// does not know the request yet.
func (m *Manager) again(id, account string, attempt int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.waiting[id]
	if w == nil {
		w = &waiting{account: account, attempt: attempt}
		m.waiting[id] = w
	}
	w.tries++
	m.watch(id, w, m.now()+min(retry<<min(w.tries-1, 20), 300*retry))
}

// Run works until ctx ends: it reads which requests there are, and then applies defaults, reminds
// people, and makes stored answers results that have not become one.
func (m *Manager) Run(ctx context.Context) {
	defer func() {
		m.mu.Lock()
		m.stopped = true
		m.mu.Unlock()
		m.work.Wait()
	}()
	for tries := 1; ; tries++ {
		err := m.load(ctx)
		if err == nil || ctx.Err() != nil {
			break
		}
		m.cfg.Logger.Error("the requests for people cannot be read; trying again", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(min(tries, 60)) * time.Second):
		}
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(m.step(ctx))
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-timer.C:
		}
	}
}

// load reads the requests that steps wait for.
func (m *Manager) load(ctx context.Context) error {
	people := func(provider string) bool { return provider == jobs.People }
	return jobs.Each(ctx, m.cfg.Records, people, func(j *jobs.Job) {
		reminded, at := int64(0), int64(0)
		if s, err := m.read(ctx, j.Account, j.ID); err == nil {
			if reminded = s.Reminded; s.Answer != nil || s.End != "" {
				at = m.now() // it was stored before the process ended
			}
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.waiting[j.ID] == nil {
			if m.expect(j, reminded); at > 0 {
				m.watch(j.ID, m.waiting[j.ID], at)
			}
		}
	})
}

// step begins what is due, and returns how long nothing else is.
func (m *Manager) step(ctx context.Context) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.ended) > 0 {
		e := m.ended[0]
		if !m.begin(func() { m.finish(ctx, e) }) {
			return time.Hour // what returns next wakes Run
		}
		m.ended = m.ended[1:]
	}
	m.ended = nil
	for len(m.due) > 0 {
		now := m.now()
		first := m.due[0]
		if first.at > now {
			return max(time.Duration(first.at-now)*time.Microsecond, time.Millisecond)
		}
		w := m.waiting[first.id]
		if w != nil && w.next == first.at {
			account := w.account
			if !m.begin(func() { m.attend(ctx, account, first.id) }) {
				return time.Hour
			}
			w.next = 0
		}
		_, m.due = heap.Pop(m.due, earlier)
	}
	return time.Hour
}

// begin does something, unless enough is being done.
func (m *Manager) begin(fn func()) bool {
	select {
	case m.busy <- struct{}{}:
	default:
		return false
	}
	m.work.Go(func() {
		defer m.nudge()
		defer func() { <-m.busy }()
		fn()
	})
	return true
}

// attend does what is due for a request.
func (m *Manager) attend(ctx context.Context, account, id string) {
	err := m.dueNow(ctx, account, id)
	if err == nil || ctx.Err() != nil {
		return
	}
	m.cfg.Logger.Info("a request for people could not be attended to; trying again", "request", id, "err", err)
	m.again(id, account, 0)
}

func (m *Manager) dueNow(ctx context.Context, account, id string) error {
	s, err := m.read(ctx, account, id)
	if errors.Is(err, fault.RecordNotFound) {
		return m.forget(ctx, id)
	}
	if err != nil {
		return err
	}
	c, err := m.content(ctx, account, id)
	if err != nil {
		return err
	}
	switch now := m.now(); {
	case s.Answer != nil || s.End != "":
	case s.Due > 0 && now >= s.Due:
		if err := m.timeOut(ctx, s, c); err != nil {
			return err
		}
	default:
		return m.remind(ctx, s, now)
	}
	_, err = m.settle(ctx, s, c)
	if err == nil {
		err = m.forget(ctx, id)
	}
	return err
}

// forget forgets a request that no step waits for.
func (m *Manager) forget(ctx context.Context, id string) error {
	j, err := m.job(ctx, id)
	if err == nil && j == nil {
		m.mu.Lock()
		delete(m.waiting, id)
		m.mu.Unlock()
	}
	return err
}

// timeOut stores what follows from the time-out of a request, before it becomes the result of the
// step: an answer that comes now is too late, or the default is.
func (m *Manager) timeOut(ctx context.Context, s *stored, c *content) error {
	if c.Default != nil {
		a := *c.Default
		a.By, a.At = ByDefault, m.now()
		s.Answer = &a
	} else {
		s.End = endTimedOut
	}
	_, err := m.cfg.Put(ctx, s.put(false))
	return err // fault.Conflict: somebody has answered it
}

// remind tells those who watch the run that it waits for a person, if it is time for that. The
// intervals in which no process ran are made up for by one reminder.
func (m *Manager) remind(ctx context.Context, s *stored, now int64) error {
	if at := s.reminder(); at > 0 && at <= now {
		j, err := m.job(ctx, s.id)
		if err != nil {
			return err
		}
		if j == nil {
			return m.forget(ctx, s.id)
		}
		// A settlement that settles nothing. An error means that the step has ended.
		err = m.host.Settle(ctx, j, journal.FromWorker, func(_ context.Context, t *action.Task) (action.Result, error) {
			if t.Report != nil {
				t.Report.Log("info", s.reminding())
			}
			return action.Result{}, action.ErrUnsettled
		})
		if err != nil && !errors.Is(err, action.ErrUnsettled) {
			return err
		}
		s.Reminded = min((now-s.Asked)/s.Remind, MaxReminders)
		records, err := m.cfg.Put(ctx, s.put(true))
		if err != nil {
			return err
		}
		s.revision = records[0].Revision
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.waiting[s.id]; w != nil {
		w.tries = 0
		m.watch(s.id, w, s.next())
	}
	return nil
}

// reminding is the text of a reminder.
func (s *stored) reminding() string {
	text := fmt.Sprintf("%q waits for a person since %s", s.Title, stamp(s.Asked))
	if s.Due > 0 {
		text += ", until " + stamp(s.Due)
	}
	return text + ": roux approvals show " + s.id
}

// finish marks a request whose job has ended, and removes what it has shown.
func (m *Manager) finish(ctx context.Context, e ending) {
	err := m.mark(ctx, e)
	if err != nil && !errors.Is(err, fault.Conflict) && !errors.Is(err, fault.RecordNotFound) && ctx.Err() == nil {
		// Lists pass over it, and its records go by themselves.
		m.cfg.Logger.Warn("a request for people could not be marked as ended", "request", e.id, "err", err)
	}
}

func (m *Manager) mark(ctx context.Context, e ending) error {
	s, err := m.read(ctx, e.account, e.id)
	if err != nil || s.Attempt != e.attempt || s.EndedAt != 0 {
		return err // another attempt asks again
	}
	switch {
	case s.End == endTimedOut:
	case s.Answer == nil || e.cancelled:
		s.End = endGone
	default:
		s.End = endAnswered
	}
	s.EndedAt = m.now()
	s.until = s.EndedAt + keptEnded.Microseconds()
	if s.Answer != nil {
		s.Answer.Value = nil
	}
	_, err = m.cfg.Put(ctx, s.put(false), store.Deletion(store.RecordKey{Account: e.account, Kind: recordContent, ID: e.id}))
	return err
}
