// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/store"
)

// Create makes a schedule, which is durable when it returns. What its recipe would refuse today
// is refused.
func (s *Scheduler) Create(ctx context.Context, account string, spec *Spec) (*Schedule, error) {
	if err := CheckName(spec.Name, IDPrefix); err != nil {
		return nil, err
	}
	if len(spec.Description) > maxDescription {
		return nil, fault.New(fault.RequestInvalid, "description: want at most %d bytes", maxDescription)
	}
	now := s.clock.Now()
	t, err := schedule.New(&spec.When, now)
	if err != nil {
		return nil, err
	}
	if _, ok := t.Next(now); !ok {
		return nil, fault.New(fault.RequestInvalid, "at: %s has passed: want a time in the future", spec.When.At)
	}
	if err := s.cfg.Starter.Check(ctx, account, &spec.Start); err != nil {
		return nil, err
	}
	list, more, err := s.cfg.Records.Records(ctx, store.RecordQuery{Account: account, Kind: kindSchedule, KeysOnly: true, Limit: 500})
	n := len(list)
	for err == nil && more {
		list, more, err = s.cfg.Records.Records(ctx, store.RecordQuery{Account: account, Kind: kindSchedule, KeysOnly: true, Limit: 500, After: list[len(list)-1].ID})
		n += len(list)
	}
	if err != nil {
		return nil, err
	}
	if n >= MaxSchedules {
		return nil, fault.OverQuota("schedules", n, MaxSchedules, "the account has %d schedules, which is the most: delete one", n)
	}
	id, err := s.cfg.NewID()
	if err != nil {
		return nil, err
	}
	made := &Schedule{ID: id, Name: spec.Name, Description: spec.Description, When: spec.When, Start: spec.Start, Created: now, By: spec.By, State: schedule.State{After: now}}
	if spec.Paused {
		made.Paused = now
	}
	w := &working{s: s, account: account, table: t, Schedule: made}
	if err := w.save(ctx, 0); err != nil {
		if fault.CodeOf(err) == fault.Conflict {
			err = fault.New(fault.Conflict, "the account has a schedule %q already: choose another name", spec.Name)
		}
		return nil, err
	}
	s.changed()
	return w.shown(), nil
}

// shown fills in what is not stored.
func (w *working) shown() *Schedule {
	w.Next = 0
	if at, ok := w.table.NextDue(w.ID, &w.State); ok && w.Paused == 0 {
		w.Next = at
	}
	return w.Schedule
}

// find opens a schedule by its id or name.
func (s *Scheduler) find(ctx context.Context, account, ref string) (*working, error) {
	id := ref
	if !strings.HasPrefix(ref, IDPrefix) {
		rec, err := s.cfg.Records.RecordNamed(ctx, account, kindSchedule, ref)
		if err != nil {
			return nil, NotFound(ctx, s.cfg.Records, account, kindSchedule, ref, err)
		}
		id = rec.ID
	}
	w, err := s.open(ctx, account, id)
	return w, NotFound(ctx, s.cfg.Records, account, kindSchedule, ref, err)
}

// Get returns a schedule by its id or name, or fault.RecordNotFound.
func (s *Scheduler) Get(ctx context.Context, account, ref string) (*Schedule, error) {
	w, err := s.find(ctx, account, ref)
	if err != nil {
		return nil, err
	}
	return w.shown(), nil
}

// List returns the schedules of an account by name. place is where the page begins, and next
// where the following one does; "" = it was the last.
func (s *Scheduler) List(ctx context.Context, account, place string, limit int) (list []*Schedule, next string, err error) {
	page, more, err := s.cfg.Records.Records(ctx, store.RecordQuery{Account: account, Kind: kindSchedule, Named: true, After: place, Limit: limit})
	if err != nil {
		return nil, "", err
	}
	for i := range page {
		sched, err := store.DecodeRecord[Schedule](&page[i])
		if err != nil {
			return nil, "", err
		}
		sched.Revision = page[i].Revision
		t, err := schedule.New(&sched.When, sched.Created)
		if err != nil {
			return nil, "", err
		}
		list = append(list, (&working{s: s, account: account, table: t, Schedule: sched}).shown())
	}
	if more {
		next = page[len(page)-1].Name
	}
	return list, next, nil
}

// change changes a schedule while it is locked.
func (s *Scheduler) change(ctx context.Context, account, ref string, fn func(w *working) error) (*working, error) {
	w, err := s.find(ctx, account, ref)
	if err != nil {
		return nil, err
	}
	l := s.lock(w.ID)
	l.Lock()
	defer l.Unlock()
	if w, err = s.open(ctx, account, w.ID); err != nil {
		return nil, NotFound(ctx, s.cfg.Records, account, kindSchedule, ref, err)
	}
	return w, fn(w)
}

// Pause keeps a schedule from starting runs. What waits to be started is skipped; the runs that
// it has started go on. A paused schedule stays as it is.
func (s *Scheduler) Pause(ctx context.Context, account, ref string) (*Schedule, error) {
	w, err := s.change(ctx, account, ref, func(w *working) error {
		if w.Paused != 0 {
			return nil
		}
		if _, err := w.recall(ctx); err != nil {
			return err
		}
		w.Paused = s.clock.Now()
		for _, k := range w.table.Step(w.ID, &w.State, w.Paused) { // what is due already was missed
			w.skip(k, "")
		}
		if n := len(w.Queue); n > 0 {
			w.skip(schedule.Skipped{First: w.Queue[0], Last: w.Queue[n-1], Count: n, Reason: schedule.Paused}, "")
			w.Queue, w.Attempts = nil, 0
		}
		return w.save(ctx, 0)
	})
	if err != nil {
		return nil, err
	}
	return w.shown(), nil
}

// Resume lets a paused schedule go on from now: what it would have started meanwhile was not
// missed.
func (s *Scheduler) Resume(ctx context.Context, account, ref string) (*Schedule, error) {
	w, err := s.change(ctx, account, ref, func(w *working) error {
		if w.Paused == 0 {
			return nil
		}
		w.Paused, w.After = 0, max(w.After, s.clock.Now())
		return w.save(ctx, 0)
	})
	if err != nil {
		return nil, err
	}
	s.changed()
	return w.shown(), nil
}

// Delete deletes a schedule with its history. The runs that it has started go on.
func (s *Scheduler) Delete(ctx context.Context, account, ref string) error {
	_, err := s.change(ctx, account, ref, func(w *working) error {
		changes := []store.RecordChange{store.Deletion(scheduleKey(account, w.ID))}
		if w.Due != "" {
			changes = append(changes, store.Deletion(dueKey(w.Due)))
		}
		for n := max(1, w.Firings-KeptFirings+1); n <= w.Firings; n++ {
			changes = append(changes, store.Deletion(firingKey(account, w.ID, n)))
		}
		_, err := s.cfg.Records.PutRecords(ctx, changes...)
		return err
	})
	return err
}

// RunNow starts a run of a schedule at once, also of a paused one, unless the policy of overlap
// says otherwise. A result Queued means that it starts when the run before has ended.
func (s *Scheduler) RunNow(ctx context.Context, account, ref string) (*Firing, error) {
	var out *Firing
	_, err := s.change(ctx, account, ref, func(w *working) error {
		if len(w.Queue) >= schedule.MaxQueue {
			return fault.OverQuota("queued occurrences", len(w.Queue), schedule.MaxQueue, "%d occurrences of the schedule wait already", len(w.Queue))
		}
		now := s.clock.Now()
		o := schedule.Occurrence{Name: manualPrefix + time.UnixMicro(now).UTC().Format("2006-01-02T15:04:05.000000Z"), At: now}
		w.Queue, w.unsaved, w.asked = append(w.Queue, o), true, o.Name
		if err := w.run(ctx); err != nil {
			return err
		}
		if out = w.answer; out == nil {
			out = &Firing{Name: o.Name, At: o.At, Count: 1, Decided: now, Result: Queued, Manual: true, Run: w.Active, Reason: reasons[schedule.Active]}
		}
		return nil
	})
	s.changed()
	return out, err
}

// History returns what became of the occurrences of a schedule, the newest first. before is
// where a page begins: behind that entry, 0 = with the newest; next is where the following one
// does, 0 = it was the last.
func (s *Scheduler) History(ctx context.Context, account, ref string, before, limit int) (list []*Firing, next int, err error) {
	w, err := s.find(ctx, account, ref)
	if err != nil {
		return nil, 0, err
	}
	q := store.RecordQuery{Account: account, Kind: kindFiring, Prefix: w.ID + ".", Newest: true, Limit: limit}
	if before != 0 {
		q.After = firingKey(account, w.ID, before).ID
	}
	page, more, err := s.cfg.Records.Records(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	for i := range page {
		f, err := store.DecodeRecord[Firing](&page[i])
		if err != nil {
			return nil, 0, err
		}
		list = append(list, f)
	}
	if more {
		next = list[len(list)-1].Number
	}
	return list, next, nil
}

// Coming returns the next n occurrences of a schedule with their delays, as if it were not
// paused.
func (s *Scheduler) Coming(ctx context.Context, account, ref string, n int) (list []schedule.Occurrence, err error) {
	w, err := s.find(ctx, account, ref)
	if err != nil {
		return nil, err
	}
	after := w.After
	if w.Paused != 0 {
		after = max(after, s.clock.Now())
	}
	for range n {
		o, ok := w.table.Next(after)
		if !ok {
			break
		}
		after = o.At
		list = append(list, schedule.Occurrence{Name: o.Name, At: w.table.Due(w.ID, o)})
	}
	return list, nil
}
