// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/scheduler"
	"github.com/roux-engine/roux/internal/simulate/timetable"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
)

// schedules are the schedules of a world, and the keys of its starts: the real scheduler keeps and
// starts them, in the time of each process, and package timetable judges what becomes durable.
type schedules struct {
	dice    *rand.Rand // its own, so that a world without schedules is the same as before there were any
	checker *timetable.Checker
	names   []scheduleName
	ids     int
	started int            // runs
	version int            // of the recipes that are started: which plan a name stands for
	sum     uint64         // hash of what was written
	waits   int            // phase 2: how often time still passes until something is due
	asked   map[int64]bool // when users asked for a run at once
	calm    int64          // phase 2: since when nothing has failed, in the time of the process
}

type scheduleName struct{ account, name string }

// mostScheduled is how many runs schedules may start before their users pause them.
const mostScheduled = 16

// hasSchedules reports whether a world has schedules. Like maxTurn it depends on the seed alone, and
// no kept seed is one of these.
func hasSchedules(seed uint64) bool {
	switch seed % 53 {
	case 4, 7, 14, 18, 30, 36, 45:
		return true
	}
	return false
}

// clockChanges are times shortly before which the worlds with schedules begin: clocks are put
// forward or back in Berlin, New York and on Lord Howe Island, there by half an hour.
var clockChanges = [...]string{
	"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z", "2026-04-04T15:00:00Z", "2026-10-03T15:30:00Z",
}

var zones = [...]string{"Europe/Berlin", "Europe/Berlin", "America/New_York", "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kathmandu"}

// newSchedules draws the schedules of a world; nil = it has none.
func newSchedules(w *World) *schedules {
	if !w.c.Scheduled || !hasSchedules(w.seed) {
		return nil
	}
	s := &schedules{dice: rand.New(rand.NewPCG(w.seed, 0x63726f6e)), asked: map[int64]bool{}}
	s.checker = timetable.New(scheduledRuns{w})
	w.faults.longest = pick(s.dice, int64(60_000_000), 3_600_000_000, 3_600_000_000)
	w.faults.pass = max(w.faults.pass, 8)
	if s.dice.IntN(4) > 0 {
		at, err := time.Parse(time.RFC3339, pick(s.dice, clockChanges[:]...))
		if err != nil {
			w.fail("%v", err)
		}
		w.skew = at.UnixMicro() - epoch - s.dice.Int64N(10*w.faults.longest)
	}
	s.waits = s.dice.IntN(12)
	return s
}

// scheduledRuns are the runs as they are stored.
type scheduledRuns struct{ w *World }

// Ended implements timetable.Runs.
func (r scheduledRuns) Ended(account, run string) bool {
	head, err := r.w.mem.Head(r.w.ctx(), store.Key{Account: account, Run: run})
	return err != nil || head.Settled()
}

// Removed implements timetable.Runs.
func (r scheduledRuns) Removed(account, run string) bool {
	t := r.w.checker.runs[store.Key{Account: account, Run: run}]
	return t != nil && t.deleted
}

// checkScheduled ends the schedule of a world in which the checker of schedules has found an error.
func (w *World) checkScheduled(err error) {
	if err != nil {
		w.fail("I13: %v", err)
	}
}

// runScheduled tells the checker of a run that has become durable.
func (w *World) runScheduled(t *runRecord, ev *journal.Event) {
	start := t.replica.Start()
	if w.schedules == nil || start == nil || start.Child != nil || start.Labels[scheduler.LabelOccurrence] == "" {
		return
	}
	w.schedules.started++
	w.checkScheduled(w.schedules.checker.Started(t.key.Account, start.Labels, t.key.Run, ev.At))
}

// A schedulerHost is the scheduler of a process, with what it needs of the process.
type schedulerHost struct {
	p         *process
	scheduler *scheduler.Scheduler
	running   bool  // a call goes on, which may wait for the engine: one at a time, as each locks what it changes
	wakeAt    int64 // when it looks again, in the time of the process
}

// startSchedules makes the scheduler of a process.
func (p *process) startSchedules() {
	w := p.w
	if w.schedules == nil {
		return
	}
	h := &schedulerHost{p: p}
	var err error
	h.scheduler, err = scheduler.New(scheduler.Config{
		Records: scheduleRecords{p.disk}, Starter: h, Runs: h, Parallel: 1, Logger: w.logger,
		Now: func() time.Time { return time.UnixMicro(p.now()) },
		NewID: func() (string, error) {
			w.schedules.ids++
			return fmt.Sprintf("%s%04d", scheduler.IDPrefix, w.schedules.ids), nil
		},
	})
	if err != nil {
		w.fail("there is no scheduler: %v", err)
	}
	p.schedules = h
}

// scheduleCall makes a call of the scheduler, which may wait for the engine.
func (p *process) scheduleCall(fn func()) {
	h := p.schedules
	h.running = true
	p.startCall(&call{kind: callSchedule}, func() {
		fn()
		h.running = false
	})
}

// stepSchedules lets users of schedules do something while faults occur, or the scheduler look.
func (p *process) stepSchedules() {
	w := p.w
	if p.schedules == nil || p.dead || p.schedules.running {
		return
	}
	s := w.schedules
	switch n := s.dice.IntN(40); {
	case len(s.names) < 1 || n < 2 && len(s.names) < 4:
		p.createSchedule()
	case s.started >= mostScheduled && n < 20:
		p.changeSchedule(pauseSchedule)
	case n < 6:
		p.changeSchedule(pick(s.dice, pauseSchedule, resumeSchedule, resumeSchedule, runSchedule, deleteSchedule))
	case n < 9 && s.started < mostScheduled:
		p.keyedStart()
	default:
		p.lookAtSchedules()
	}
}

// lookAtSchedules lets the scheduler look when it would by itself, and reports whether it did.
func (p *process) lookAtSchedules() bool {
	w, h := p.w, p.schedules
	if h == nil || p.dead || h.running || !h.scheduler.Woken() && h.wakeAt > p.now() {
		return false
	}
	p.scheduleCall(func() {
		sleep, err := h.scheduler.Look(w.ctx())
		if p.dead {
			return
		}
		if h.wakeAt = p.now() + max(sleep.Microseconds(), 1); err != nil {
			p.checkScheduleError("a look at what is due", err)
			h.wakeAt = p.now() + 30_000_000
			return
		}
		if w.noFaults && w.schedules.calm != 0 && p.now()-w.schedules.calm > lateTolerance {
			w.checkScheduled(w.schedules.checker.Rests(p.now()))
		}
	})
	return true
}

// checkScheduleError asserts that an error is one that a user may get.
func (p *process) checkScheduleError(what string, err error) {
	w := p.w
	switch code := fault.CodeOf(err); {
	case p.dead, err == nil, errors.Is(err, errProcessGone):
	case code == fault.ServiceUnavailable, code == fault.StoreFull, code == fault.Stopping, code == fault.StaleEpoch, code == fault.StoreFailed,
		code == fault.Conflict, code == fault.RecordNotFound, code == fault.Quarantined, code == fault.TooLate, code == fault.RunNotFound:
		w.tracef("%s: %v", what, err)
	case w.bank != nil && code == fault.InsufficientCredits, code == fault.IdempotencyMismatch, code == fault.QuotaExceeded:
		w.tracef("%s: %v", what, err)
	default:
		w.fail("%s is answered %s: %v", what, code, err)
	}
}

// createSchedule lets a user make a schedule.
func (p *process) createSchedule() {
	w, s := p.w, p.w.schedules
	name := scheduleName{pick(s.dice, accounts[:]...), fmt.Sprint("s", s.ids)}
	spec := &scheduler.Spec{Name: name.name, When: s.draw(p.now(), w.faults.longest), Start: starts.Request{Recipe: fmt.Sprint(s.dice.IntN(4))}, Paused: s.dice.IntN(12) == 0}
	p.scheduleCall(func() {
		_, err := p.schedules.scheduler.Create(w.ctx(), name.account, spec)
		if fault.CodeOf(err) == fault.RequestInvalid && spec.When.At != "" {
			return // by the local time that is there twice, it has passed
		}
		if !slices.Contains(s.names, name) {
			s.names = append(s.names, name) // perhaps it is stored, also if that was not answered
		}
		p.checkScheduleError("a new schedule", err)
	})
}

// draw draws the times of a schedule, which are as far apart as a few passages of time.
func (s *schedules) draw(now, longest int64) schedule.Spec {
	spec := schedule.Spec{
		Zone: pick(s.dice, zones[:]...), CatchUp: pick(s.dice, schedule.CatchUps...), CatchUpMax: 1 + s.dice.IntN(3), Overlap: pick(s.dice, schedule.Overlaps...),
	}
	if s.dice.IntN(4) == 0 {
		spec.Jitter = time.Duration(1+s.dice.IntN(int(max(longest/2_000_000, 1)))) * time.Second
	}
	crons := []string{"* * * * *", "*/2 * * * *", "1-59/3 * * * *"}
	if longest > 1_000_000_000 {
		crons = []string{"*/20 * * * *", "7 * * * *", "30 1 * * *", "30 2 * * *", "15,45 1-3 * * *", "0 3 * * *", "10 */2 * * 0,6", "50 0-23/3 * 3,4,10,11 *"}
	}
	switch s.dice.IntN(6) {
	case 0:
		at := time.UnixMicro(now + 2*minuteMicros + s.dice.Int64N(6*longest))
		if zone, err := time.LoadLocation(spec.Zone); err == nil && s.dice.IntN(2) == 0 {
			spec.At = at.In(zone).Format("2006-01-02T15:04")
		} else {
			spec.At = at.UTC().Truncate(time.Second).Format(time.RFC3339)
		}
	case 1, 2:
		spec.Every = max(10*time.Second, time.Duration(longest/8+s.dice.Int64N(longest))*time.Microsecond).Truncate(time.Second)
	default:
		spec.Cron = pick(s.dice, crons...)
	}
	return spec
}

const minuteMicros = 60_000_000

// A scheduleChange is what a user does with a schedule.
type scheduleChange uint8

const (
	pauseSchedule scheduleChange = iota
	resumeSchedule
	runSchedule
	deleteSchedule
)

// changeSchedule lets a user change a schedule.
func (p *process) changeSchedule(change scheduleChange) {
	w, s, real := p.w, p.w.schedules, p.schedules.scheduler
	name := s.names[s.dice.IntN(len(s.names))]
	p.scheduleCall(func() {
		var err error
		switch change {
		case pauseSchedule:
			_, err = real.Pause(w.ctx(), name.account, name.name)
		case resumeSchedule:
			if s.started < mostScheduled {
				_, err = real.Resume(w.ctx(), name.account, name.name)
			}
		case runSchedule:
			if s.started < mostScheduled && !s.asked[p.now()] { // two requests in one microsecond are one
				s.asked[p.now()] = true
				_, err = real.RunNow(w.ctx(), name.account, name.name)
			}
		default:
			if s.dice.IntN(3) == 0 {
				err = real.Delete(w.ctx(), name.account, name.name)
			}
		}
		p.checkScheduleError("a change of a schedule", err)
	})
}

// keyedStart lets a user start a run with a key.
func (p *process) keyedStart() {
	w, s := p.w, p.w.schedules
	account := pick(s.dice, accounts[:]...)
	r := &scheduler.KeyedRequest{
		Key: fmt.Sprint("key ", s.dice.IntN(2)), IfActive: pick(s.dice, scheduler.IfActive...), Start: starts.Request{Recipe: fmt.Sprint(s.dice.IntN(4))},
	}
	if s.dice.IntN(3) == 0 {
		r.Debounce = time.Duration(1+s.dice.Int64N(2*w.faults.longest)) * time.Microsecond
	}
	if s.dice.IntN(2) == 0 {
		r.Idempotency = fmt.Sprint(r.Key, " request ", s.dice.IntN(3))
	}
	p.scheduleCall(func() {
		out, err := p.schedules.scheduler.Execute(w.ctx(), account, r)
		p.checkScheduleError("a start with a key", err)
		if err != nil || p.dead || out.Result != scheduler.Started {
			return
		}
		if t := w.checker.runs[store.Key{Account: account, Run: out.Run}]; t == nil || t.journal.Last() == 0 {
			w.fail("I1: a start with key %s was acknowledged as run %q, which is not durable", r.Key, out.Run)
		}
	})
}

// Check implements scheduler.Starter.
func (h *schedulerHost) Check(context.Context, string, *starts.Request) error { return nil }

// Start implements scheduler.Starter. The recipe of a request has another version now and then.
func (h *schedulerHost) Start(_ context.Context, account string, r *starts.Request, key string, labels map[string]string) (starts.Run, error) {
	w, s := h.p.w, h.p.w.schedules
	if h.p.dead {
		return starts.Run{}, errProcessGone
	}
	w.checkScheduled(s.checker.Asked(account, labels, h.p.now()))
	if s.dice.IntN(8) == 0 {
		s.version++
	}
	root, others := w.registry.plans()
	plans := append([]*plan.Plan{root}, others...)
	version := s.version + int(r.Recipe[0])
	req := &engine.StartRequest{
		Account: account, Plan: plans[version%len(plans)], Recipe: w.c.Name, Version: fmt.Sprint(version), Parameters: w.c.Parameters, Files: w.files,
		IdempotencyKey: key, Labels: labels,
	}
	out, err := h.request(func() (*engine.Message, error) {
		m, err := h.p.stage.Start(req)
		w.registry.start(m, req)
		return m, err
	})
	if err != nil && !h.p.dead {
		s.checker.Refused(account, labels, string(fault.CodeOf(err)))
		h.p.checkScheduleError("a start of a schedule", err)
	}
	return starts.Run{ID: out.Run, Version: req.Version, Existing: out.Existing}, err
}

// Cancel implements scheduler.Runs.
func (h *schedulerHost) Cancel(_ context.Context, account, run, reason string) error {
	if h.p.dead {
		return errProcessGone
	}
	h.p.w.checkScheduled(h.p.w.schedules.checker.Cancels(account, run))
	_, err := h.request(func() (*engine.Message, error) {
		return h.p.stage.Cancel(store.Key{Account: account, Run: run}, reason)
	})
	return err
}

// request hands a request to the engine and waits for its answer, while the world goes on.
func (h *schedulerHost) request(begin func() (*engine.Message, error)) (engine.Answer, error) {
	p, c := h.p, h.p.currentCall
	var m *engine.Message
	var err error
	p.call(func() { m, err = begin() })
	if p.dead {
		return engine.Answer{}, errProcessGone
	}
	if err != nil {
		return engine.Answer{}, err
	}
	c.answered, c.message = false, m
	p.report(m)
	if !c.yield(struct{}{}) {
		return engine.Answer{}, errProcessGone
	}
	return c.answer, c.err
}

// Head implements scheduler.Runs.
func (h *schedulerHost) Head(ctx context.Context, account, run string) (store.Head, error) {
	if h.p.dead {
		return store.Head{}, errProcessGone
	}
	return h.p.disk.Head(ctx, store.Key{Account: account, Run: run})
}

// List implements scheduler.Runs.
func (h *schedulerHost) List(ctx context.Context, q store.Query) ([]store.Head, error) {
	switch {
	case h.p.dead:
		return nil, errProcessGone
	case h.p.disk.readFails():
		return nil, errRead
	}
	return h.p.disk.List(ctx, q)
}

// scheduleRecords are the records of a process for its scheduler.
type scheduleRecords struct{ d *disk }

func (r scheduleRecords) fails() error {
	switch {
	case r.d.p.dead:
		return errProcessGone
	case r.d.readFails():
		return errRead
	}
	return nil
}

// Record implements scheduler.Records.
func (r scheduleRecords) Record(ctx context.Context, key store.RecordKey) (store.Record, error) {
	if err := r.fails(); err != nil {
		return store.Record{}, err
	}
	return r.d.Record(ctx, key)
}

// RecordNamed implements scheduler.Records.
func (r scheduleRecords) RecordNamed(ctx context.Context, account, kind, name string) (store.Record, error) {
	if err := r.fails(); err != nil {
		return store.Record{}, err
	}
	return r.d.RecordNamed(ctx, account, kind, name)
}

// Records implements scheduler.Records.
func (r scheduleRecords) Records(ctx context.Context, q store.RecordQuery) ([]store.Record, bool, error) {
	if err := r.fails(); err != nil {
		return nil, false, err
	}
	return r.d.Records(ctx, q)
}

// PutRecords implements scheduler.Records. The process may die before and after it, and the answer
// may be lost.
func (r scheduleRecords) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	p := r.d.p
	w := p.w
	switch {
	case p.dead:
		return nil, errProcessGone
	case w.happens(KilledInCall):
		p.die()
		return nil, errProcessGone
	case w.happens(CommitRefused):
		return nil, fault.New(fault.StoreFull, "the disk is full")
	}
	stored, err := r.d.PutRecords(ctx, r.d.epoch, p.now(), changes)
	if err != nil {
		return nil, err
	}
	writes := make([]timetable.Write, len(changes))
	for i := range changes {
		c := &changes[i]
		writes[i] = timetable.Write{Account: c.Account, Kind: c.Kind, ID: c.ID, Delete: c.Delete, Data: c.Data}
		w.schedules.sum = hashBytes(hashBytes(w.schedules.sum, []byte(c.ID)), c.Data)
		w.tracef("  record %s %s %s, deleted %v: %s", c.Account, c.Kind, c.ID, c.Delete, c.Data)
	}
	w.checkScheduled(w.schedules.checker.Wrote(p.now(), writes))
	switch {
	case w.happens(KilledInCall):
		p.die()
		return nil, errProcessGone
	case w.happens(ReplyLost):
		return nil, errRead
	}
	return stored, nil
}

// finishSchedules lets what is due in phase 2 start its runs, for a few more passages of time, and
// then pauses all schedules. It reports whether it did anything.
func (p *process) finishSchedules() (moved bool) {
	w, s := p.w, p.w.schedules
	if s == nil || p.schedules.running {
		return false
	}
	if s.calm == 0 {
		s.calm = p.now()
	}
	if due, ok := s.checker.NextDue(p.now()); ok && s.waits > 0 && s.started < mostScheduled {
		s.waits--
		d := max(1, due-p.now())
		if at := p.stage.Wakeup(); at != 0 {
			d = min(d, max(1, at-p.now()))
		}
		w.tracef("wait %d µs for schedules", d)
		w.mono += d
		p.handle()
		return true
	}
	for _, name := range s.names {
		if p.schedules.running || p.dead {
			return true
		}
		p.scheduleCall(func() {
			sched, err := p.schedules.scheduler.Get(w.ctx(), name.account, name.name)
			if err != nil || sched.Paused != 0 && len(sched.Queue) == 0 {
				return
			}
			moved = true
			if sched.Paused != 0 { // what users asked for waits still
				_, err = p.schedules.scheduler.Resume(w.ctx(), name.account, name.name)
			}
			if err == nil {
				_, err = p.schedules.scheduler.Pause(w.ctx(), name.account, name.name)
			}
			p.checkScheduleError("a pause", err)
		})
	}
	return moved
}

// checkSchedulesEnd asserts what must be true at the end.
func (w *World) checkSchedulesEnd(p *process) {
	if w.schedules == nil {
		return
	}
	if p.schedules.running {
		w.fail("the scheduler waits for an answer, and everything has ended")
	}
	c := &w.schedules.checker.Counts
	w.stats.Scheduled = *c
}
