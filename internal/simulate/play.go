// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/program"
)

// A Player plays schedules, one after the other. It must be used by one goroutine.
type Player struct {
	opt   Options
	n     uint64
	c     *Case
	progs programs
	plans *program.Cache
}

// A Result is the outcome of one schedule.
type Result struct {
	Seed uint64
	Case *Case
	// Hash covers everything that became durable and the state of the random numbers:
	// the same seed gives the same hash.
	Hash  uint64
	Stats Stats
	// Err is the broken invariant; nil = none.
	Err error
}

// NewPlayer returns a player.
func NewPlayer(opt Options) *Player { return &Player{opt: opt} }

// Play plays the schedule of a seed. err is not a broken invariant; it is set when the
// source has no recipe for the seed.
func (pl *Player) Play(seed uint64) (res Result, err error) {
	if n := seed / SeedsPerCase; pl.c == nil || n != pl.n {
		if pl.c, err = pl.opt.Source.Case(n); err != nil {
			pl.c = nil
			return res, fmt.Errorf("recipe %d: %w", n, err)
		}
		pl.n, pl.progs, pl.plans = n, prepare(pl.c), program.NewCache(10)
	}
	plans := pl.plans
	switch {
	case seed%16 == 0:
		plans = nil // a process then reads its plans from the store at every start
	case len(pl.c.Prices) > 0 && changesPrices(seed):
		plans = program.NewCache(10) // a program keeps what its recipe costs at the first prices
	}
	w := newWorld(seed, pl.c, pl.progs, plans, &pl.opt)
	res = Result{Seed: seed, Case: pl.c}
	res.Err = w.play()
	res.Hash, res.Stats = w.hash(), w.stats
	return res, nil
}

// play plays both phases and returns the invariant that was broken.
func (w *World) play() (err error) {
	defer func() {
		for _, p := range w.procs {
			for _, r := range p.readers {
				r.cut()
			}
			p.dead = true
			p.abortCalls()
		}
		switch v := recover().(type) {
		case nil:
		case violation:
			err = v.err
			w.tracef("VIOLATION: %v", err)
		default:
			panic(v)
		}
	}()
	w.tracef("seed %d, recipe %s, %d steps", w.seed, w.c.Name, w.faults.steps)
	for range w.faults.steps {
		w.step()
	}
	if w.opt.spoil != nil {
		w.opt.spoil(w)
	}
	w.finish()
	w.checkEnd()
	return nil
}

func (w *World) ctx() context.Context { return context.Background() }

// injectFaults lets faults of processes, disks and clocks occur.
func (w *World) injectFaults() {
	if len(w.procs) > 0 {
		p := w.procs[w.dice.IntN(len(w.procs))]
		switch {
		case w.happens(Killed):
			p.die()
		case w.happens(PowerCut):
			w.powerCut()
		case w.happens(HandedBack):
			p.stop()
		case len(w.procs) < 3 && w.happens(TakenOver):
			w.boot()
		}
	}
	switch {
	case w.happens(ClockForward):
		w.skew += 3_600_000_000
	case w.happens(ClockBack):
		w.skew -= 3_600_000_000
	case w.happens(ClockLeap):
		w.skew += pick(w.dice, int64(-1_000_000), 1_000_000)
	case w.happens(ClockFrozen):
		if w.frozen == 0 {
			w.frozen = w.wall()
		} else {
			w.frozen = 0
		}
	}
}

// powerCut ends every process at once. Of the batches that were written and not
// synced, a prefix of any length survives.
func (w *World) powerCut() {
	for _, p := range append([]*process(nil), w.procs...) {
		if p.commitState == unwritten && len(p.batch) > 0 && w.dice.IntN(2) == 0 {
			w.mem.Tear(p.batch)
			for i := range p.batch {
				if p.batch[i].Run != "" {
					w.checker.uncertain(&p.batch[i])
				}
			}
		}
		p.die()
	}
	w.mem = w.mem.Crash(w.dice.Uint64())
	w.checker.checkSurvived()
}

// stop ends a process in order: it gives up its attempts and writes everything else.
func (p *process) stop() {
	w := p.w
	p.stage.Stop()
	p.tasks = nil
	for n := 0; n < 200 && !p.dead; n++ {
		p.deliver(100)
		for !p.dead && p.commit() {
			p.handle()
		}
		if p.dead || p.stage.Dead() != nil {
			break
		}
		var over bool
		p.call(func() { over = p.commitState == noBatch && p.stage.Stopped() })
		if over && !p.dead && p == w.owner {
			w.checker.stopped(p)
		}
		if over || p.dead {
			break
		}
		w.mono += 1_000
		p.handle()
	}
	p.die()
}

// finish is phase 2: no more faults occur, and every run must end (I6).
func (w *World) finish() {
	w.noFaults, w.frozen = true, 0
	w.tracef("phase 2")
	p := w.survivor()
	signals := w.dice.IntN(4)
	for n := 0; ; n++ {
		if n > 20_000 { // most schedules take some hundred, large ones over 5,000
			w.fail("I6: after %d rounds without faults %s", n, w.unfinished())
		}
		if p.dead || p.stage.Dead() != nil {
			p = w.survivor()
		}
		if p.round() {
			continue
		}
		w.checkLoaded(p)
		w.checkAdmitted(p)
		stalled := p.stage.Stalled() != nil
		if !stalled && !p.stage.Recovering() && w.releaseQuarantined(p) { // the run above one may be needed
			continue
		}
		if !stalled {
			w.checker.checkCancelled(p)
		}
		if !stalled && p.finishSchedules() {
			continue
		}
		if w.unfinished() == "" && len(p.requests) == 0 && !stalled && !p.stage.Recovering() { // a slot may be freed by a run that is read again
			return
		}
		if !stalled && p.unpauseAll() {
			continue
		}
		if !stalled && w.unfinished() != "" && p.endPoverty() {
			continue
		}
		if signals > 0 && !stalled {
			signals--
			for _, t := range w.checker.all {
				if !t.deleted && !t.journal.Status().Terminal() {
					p.signal(t.key)
				}
			}
			continue
		}
		at := p.stage.Wakeup()
		if at == 0 {
			w.fail("I6: the engine waits for nothing, and %s", w.unfinished())
		}
		if !stalled {
			at = w.checkWakeup(p, at)
		}
		if lapse := p.nextLeaseExpiry(); lapse != 0 {
			at = min(at, lapse)
		}
		w.tracef("wait %d µs, %d runs in memory", at-p.now(), p.stage.Loaded())
		w.mono += max(1, at-p.now())
		p.handle()
	}
}

// lateTolerance is how late, in µs, a timer may fire when its run is loaded alone after
// a crash, or again after a failed read.
const lateTolerance = 6_000_000

// checkWakeup asserts that an engine that sleeps until `at` does not miss a timer
// (I9). It returns until when the world may skip: an engine wakes up every hour, and
// some runs wait for years.
func (w *World) checkWakeup(p *process, at int64) int64 {
	due := w.firstDue()
	if due == 0 {
		return at
	}
	due = max(p.now(), due-(p.stage.Now()-p.now())) // by the clock of the process
	if at > due+lateTolerance {
		w.fail("I9: a timer is due in %d µs, and the engine sleeps for %d µs: %s", due-p.now(), at-p.now(), w.unfinished())
	}
	return max(at, due)
}

// firstDue is when the first timer of any run is due; 0 = there is none.
func (w *World) firstDue() (first int64) {
	for _, t := range w.checker.all {
		if t.deleted || t.journal.Status().Terminal() {
			continue
		}
		if due := t.replica.NextDue(); due != 0 && (first == 0 || due < first) {
			first = due
		}
	}
	return first
}

// survivor is the process that continues in phase 2: the owner if it works, else a new
// one.
func (w *World) survivor() *process {
	var well *process
	for _, p := range slices.Clone(w.procs) {
		if p == w.owner && p.stage.Dead() == nil {
			well = p
		} else {
			p.die()
		}
	}
	if well != nil {
		return well
	}
	w.mem = w.mem.Crash(w.dice.Uint64())
	w.checker.checkSurvived()
	p := w.boot()
	if p == nil {
		w.fail("no engine comes up although nothing is wrong")
	}
	return p
}

// round does everything that can be done now, and reports whether it did anything.
func (p *process) round() (moved bool) {
	p.deliverDelayed(true)
	for range len(p.tasks) {
		moved = p.work() || moved
	}
	moved = p.serve() || moved
	moved = p.drainRemoteWorkers() || moved
	moved = p.lookAtSchedules() || moved
	moved = p.deliver(1_000) || moved
	moved = p.pump() || moved
	return moved
}

// releaseQuarantined releases quarantined runs.
func (w *World) releaseQuarantined(p *process) (any bool) {
	w.noteForgotten()
	for _, t := range w.checker.all {
		if t.deleted || t.journal.Last() == 0 {
			continue
		}
		head, err := w.mem.Head(w.ctx(), t.key)
		if err != nil {
			w.fail("I1: run %s was durable, and the store returns: %v", t.key.Run, err)
		}
		if head.Quarantine == "" {
			continue
		}
		w.stats.Quarantined++
		m, err := p.stage.Release(t.key)
		if err != nil {
			w.fail("run %s is quarantined and cannot be released: %v", t.key.Run, err)
		}
		p.send(&request{m: m, kind: requestRelease, key: t.key}, nil)
		any = true
	}
	return any
}

// unfinished describes a run that has not ended; "" = there is none.
func (w *World) unfinished() string {
	for _, t := range w.checker.all {
		if !t.deleted && t.journal.Last() > 0 && !t.journal.Status().Terminal() {
			saved, err := w.mem.Load(w.ctx(), t.key)
			if err != nil {
				return err.Error()
			}
			where := "ought to be in memory"
			if saved.Suspension != nil {
				where = fmt.Sprintf("is suspended until %d", saved.Suspension.WakeAt)
			}
			return fmt.Sprintf("run %s is %s after event %d, has a timer due at %d and %s", t.key.Run, t.journal.Status(), t.journal.Last(), t.replica.NextDue(), where)
		}
	}
	return ""
}

// checkLoaded asserts that memory is bounded by configuration (I15): no more runs that
// could be suspended are in memory than the configuration allows.
func (w *World) checkLoaded(p *process) {
	quiet, parents := 0, map[string]bool{}
	p.stage.Live(func(l engine.LiveRun) {
		if st := l.Run.Start(); st != nil && st.Child != nil {
			parents[st.Child.Parent] = true // it stays as long as its child run
		}
	})
	p.stage.Live(func(l engine.LiveRun) {
		if l.Run.Quiet() && !l.Ahead && !parents[l.Key.Run] {
			quiet++
		}
	})
	if most := w.faults.config.MaxLoaded; quiet > most {
		w.fail("I15: %d runs that may leave memory are kept, %d may stay", quiet, most)
	}
}

// checkEnd asserts what must be true at the end.
func (w *World) checkEnd() {
	w.checkDeliveries()
	p := w.procs[0]
	for n := 0; len(p.readers)+len(w.readers) > 0; n++ {
		if p.read(); n > 10_000 {
			w.fail("I14: every run has ended, and a reader of run %s waits after event %d", p.readers[0].t.key.Run, p.readers[0].seen)
		}
	}
	for _, t := range w.checker.all {
		if t.deleted || t.journal.Last() == 0 {
			continue
		}
		w.stats.Runs++
		w.stats.Ended++
		w.checker.checkStored(t.key)
		w.readAll(p, t)
		head, err := w.mem.Head(w.ctx(), t.key)
		if err != nil || !head.Settled() || head.Status != t.journal.Status().String() {
			w.fail("run %s is %s, and its row has %+v, %v", t.key.Run, t.journal.Status(), head, err)
		}
	}
	if attempts, slots := p.stage.Held(); attempts != 0 || slots != 0 {
		w.fail("I22: everything has ended, and %d attempts and %d slots are taken", attempts, slots)
	}
	if len(p.requests) > 0 {
		w.fail("%d requests were never answered", len(p.requests))
	}
	w.checkJobs()
	p.checkNoTasks()
	w.checkSchedulesEnd(p)
	w.checkIdempotency()
	w.checker.checkFamilies()
	w.checker.checkSettled()
	w.checker.checkFeeds()
}

// readAll reads a run from its beginning and compares that with its journal.
func (w *World) readAll(p *process, t *runRecord) {
	r := &reader{w: w, t: t}
	p.connect(r)
	if !p.poll(r) || r.seen != t.journal.Last() {
		w.fail("I14: a reader of run %s from its beginning sees %d of %d events", t.key.Run, r.seen, t.journal.Last())
	}
	r.cut()
	p.drop(r)
}

// checkIdempotency asserts that an idempotency key started one run (I13). Retention
// removes keys after a day.
func (w *World) checkIdempotency() {
	if w.cleaned {
		return
	}
	runs := map[*engine.StartRequest]string{}
	for _, t := range w.checker.all {
		req := w.keyed[t.key]
		if req == nil || t.journal.Last() == 0 {
			continue
		}
		if other := runs[req]; other != "" {
			w.fail("I13: one idempotency key started runs %s and %s", other, t.key.Run)
		}
		runs[req] = t.key.Run
	}
}

// hash covers everything that became durable and the state of the random numbers,
// which are drawn at every turn of the schedule.
func (w *World) hash() uint64 {
	h := mix(mix(w.seed, uint64(w.stats.Transitions)), w.dice.Uint64())
	if w.schedules != nil {
		h = mix(h, w.schedules.sum)
	}
	for _, t := range w.checker.all {
		h = mix(hashBytes(h, []byte(t.key.Run)), t.sum)
		if t.deleted {
			h = mix(h, 1)
		}
	}
	return h
}

// TailLines is how many lines of the trace the report of a violation shows.
const TailLines = 50

// ReplayTail plays a seed again, which gives the same schedule, and returns the last
// lines of its trace. opt must be the options of the first time.
func ReplayTail(opt Options, seed uint64) (lines []string, res Result, err error) {
	opt.Cells, opt.Durable = nil, nil
	opt.Trace = func(line string) {
		if lines = append(lines, line); len(lines) >= 4*TailLines {
			lines = slices.Delete(lines, 0, 3*TailLines)
		}
	}
	res, err = NewPlayer(opt).Play(seed)
	return lines[max(0, len(lines)-TailLines):], res, err
}
