// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/machine"
)

// A Player plays schedules, one after the other. It is used by one goroutine.
type Player struct {
	opt   Options
	n     uint64
	c     *Case
	prog  *machine.Program
	plans *engine.Plans
}

// A Result is what came of one schedule.
type Result struct {
	Seed uint64
	Case *Case
	// Hash is of everything that became durable and of every throw of the dice: one
	// seed, one hash.
	Hash  uint64
	Stats Stats
	// Err is the invariant that was broken; nil = all held.
	Err error
}

// NewPlayer returns a player.
func NewPlayer(opt Options) *Player { return &Player{opt: opt} }

// Play plays the schedule of a seed. An error is not a broken invariant: the
// source has no recipe for it.
func (pl *Player) Play(seed uint64) (res Result, err error) {
	if n := seed / SeedsPerCase; pl.c == nil || n != pl.n {
		if pl.c, err = pl.opt.Source.Case(n); err != nil {
			pl.c = nil
			return res, fmt.Errorf("recipe %d: %w", n, err)
		}
		pl.n, pl.prog, pl.plans = n, machine.Prepare(pl.c.Plan), engine.NewPlans(10)
	}
	plans := pl.plans
	if seed%16 == 0 {
		plans = nil // every start of a process reads its plans from the store
	}
	w := newWorld(seed, pl.c, pl.prog, plans, &pl.opt)
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
		}
		switch v := recover().(type) {
		case nil:
		case violation:
			err = v.err
			w.say("VIOLATION: %v", err)
		default:
			panic(v)
		}
	}()
	w.say("seed %d, recipe %s, %d steps", w.seed, w.c.Name, w.faults.steps)
	for range w.faults.steps {
		w.step()
	}
	if w.opt.spoil != nil {
		w.opt.spoil(w)
	}
	w.finish()
	w.verdict()
	return nil
}

func (w *World) ctx() context.Context { return context.Background() }

// disturb lets happen what befalls processes, disks and clocks.
func (w *World) disturb() {
	if len(w.procs) > 0 {
		p := w.procs[w.dice.IntN(len(w.procs))]
		switch {
		case w.happens(Killed):
			p.die()
		case w.happens(PowerCut):
			w.power()
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

// power ends every process at once. Of what was written and not synced, any
// number of whole batches is there afterwards, the first ones.
func (w *World) power() {
	for _, p := range append([]*process(nil), w.procs...) {
		if p.flight == encoded && len(p.batch) > 0 && w.dice.IntN(2) == 0 {
			w.mem.Tear(p.batch)
			for i := range p.batch {
				w.judge.unheard = append(w.judge.unheard, p.batch[i].Key)
			}
		}
		p.die()
	}
	w.mem = w.mem.Crash(w.dice.Uint64())
	w.judge.survived()
}

// stop ends a process in order: its attempts are given up, everything else is
// written.
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
		p.guard(func() { over = p.flight == landed && p.stage.Stopped() })
		if over && !p.dead && p == w.owner {
			w.judge.stopped(p)
		}
		if over || p.dead {
			break
		}
		w.mono += 1_000
		p.handle()
	}
	p.die()
}

// finish is phase 2: nothing goes wrong any more, and every run must come to
// its end (I6).
func (w *World) finish() {
	w.calm, w.frozen = true, 0
	w.say("phase 2")
	p := w.heir()
	signals := w.dice.IntN(4)
	for n := 0; ; n++ {
		if n > 20_000 {
			w.broken("I6: after %d rounds without faults %s", n, w.unfinished())
		}
		if p.dead || p.stage.Dead() != nil {
			p = w.heir()
		}
		if p.round() {
			continue
		}
		w.quietAtRest(p)
		stalled := p.stage.Stalled() != nil
		if !stalled && w.released(p) {
			continue
		}
		if w.unfinished() == "" && len(p.asks) == 0 && !stalled {
			return
		}
		if signals > 0 && !stalled {
			signals--
			for _, t := range w.judge.all {
				if !t.deleted && !t.seen.Status().Terminal() {
					p.signal(t.key)
				}
			}
			continue
		}
		at := p.stage.Wakeup()
		if at == 0 {
			w.broken("I6: the engine waits for nothing, and %s", w.unfinished())
		}
		if !stalled {
			at = w.punctual(p, at)
		}
		w.say("wait %d µs, %d runs in memory", at-p.now(), p.stage.Loaded())
		w.mono += max(1, at-p.now())
		p.handle()
	}
}

// carefully is how long, in µs, a timer may be late of a run that is loaded with care,
// or again after a read that failed.
const carefully = 6_000_000

// punctual asserts that an engine which sleeps until `at` sleeps through no timer
// (I9), and says until when the world may: an engine looks ahead every hour, and
// some runs wait for years.
func (w *World) punctual(p *process, at int64) int64 {
	due := w.firstDue()
	if due == 0 {
		return at
	}
	due = max(p.now(), due-(p.stage.Now()-p.now())) // by the process's clock
	if at > due+carefully {
		w.broken("I9: a timer is due in %d µs, and the engine sleeps for %d µs: %s", due-p.now(), at-p.now(), w.unfinished())
	}
	return max(at, due)
}

// firstDue is when the first timer of any run is due; 0 = there is none.
func (w *World) firstDue() (first int64) {
	for _, t := range w.judge.all {
		if t.deleted || t.seen.Status().Terminal() {
			continue
		}
		if due := t.shadow.NextDue(); due != 0 && (first == 0 || due < first) {
			first = due
		}
	}
	return first
}

// heir is the process that goes on in phase 2: the owner, if it is well.
func (w *World) heir() *process {
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
	w.judge.survived()
	p := w.boot()
	if p == nil {
		w.broken("no engine comes up although nothing is wrong")
	}
	return p
}

// round does everything that is to be done at this moment.
func (p *process) round() (moved bool) {
	p.release(true)
	for range len(p.tasks) {
		moved = p.work() || moved
	}
	moved = p.deliver(1_000) || moved
	moved = p.pump() || moved
	return moved
}

// released lets runs go that were set apart.
func (w *World) released(p *process) (any bool) {
	for _, t := range w.judge.all {
		if t.deleted || t.seen.Last() == 0 {
			continue
		}
		head, err := w.mem.Head(w.ctx(), t.key)
		if err != nil {
			w.broken("I1: run %s was durable, and the store says: %v", t.key.Run, err)
		}
		if head.Quarantine == "" {
			continue
		}
		w.stats.Quarantined++
		m, err := p.stage.Release(t.key)
		if err != nil {
			w.broken("run %s is set apart and cannot be released: %v", t.key.Run, err)
		}
		p.ask(&ask{m: m, kind: askRelease, key: t.key}, nil)
		any = true
	}
	return any
}

// unfinished names a run that has not ended.
func (w *World) unfinished() string {
	for _, t := range w.judge.all {
		if !t.deleted && t.seen.Last() > 0 && !t.seen.Status().Terminal() {
			saved, err := w.mem.Load(w.ctx(), t.key)
			if err != nil {
				return err.Error()
			}
			where := "ought to be in memory"
			if saved.Suspension != nil {
				where = fmt.Sprintf("is suspended until %d", saved.Suspension.WakeAt)
			}
			return fmt.Sprintf("run %s is %s after event %d, has a timer due at %d and %s", t.key.Run, t.seen.Status(), t.seen.Last(), t.shadow.NextDue(), where)
		}
	}
	return ""
}

// quietAtRest asserts that memory is bounded by configuration (I15): of the runs
// that may leave it no more stay than it was told to keep.
func (w *World) quietAtRest(p *process) {
	quiet := 0
	p.stage.Live(func(l engine.LiveRun) {
		if l.Run.Quiet() && !l.Ahead {
			quiet++
		}
	})
	if most := w.faults.config.MaxLoaded; quiet > most {
		w.broken("I15: %d runs that may leave memory are kept, %d may stay", quiet, most)
	}
}

// verdict asserts what must be true in the end.
func (w *World) verdict() {
	p := w.procs[0]
	for n := 0; len(p.readers)+len(w.readers) > 0; n++ {
		if p.read(); n > 10_000 {
			w.broken("I14: every run has ended, and a reader of run %s waits after event %d", p.readers[0].t.key.Run, p.readers[0].seen)
		}
	}
	for _, t := range w.judge.all {
		if t.deleted || t.seen.Last() == 0 {
			continue
		}
		w.stats.Runs++
		w.stats.Ended++
		w.judge.kept(t.key)
		w.readAll(p, t)
		head, err := w.mem.Head(w.ctx(), t.key)
		if err != nil || !head.Settled() || head.Status != t.seen.Status().String() {
			w.broken("run %s is %s, and its row says %+v, %v", t.key.Run, t.seen.Status(), head, err)
		}
	}
	if attempts, slots := p.stage.Held(); attempts != 0 || slots != 0 {
		w.broken("I22: everything has ended, and %d attempts and %d slots are taken", attempts, slots)
	}
	if len(p.asks) > 0 {
		w.broken("%d requests were never answered", len(p.asks))
	}
	w.onceAKey()
}

// readAll reads a run from its beginning: what a new reader sees is its journal.
func (w *World) readAll(p *process, t *runRecord) {
	r := &reader{w: w, t: t}
	p.connect(r)
	if !p.poll(r) || r.seen != t.seen.Last() {
		w.broken("I14: a reader of run %s from its beginning sees %d of %d events", t.key.Run, r.seen, t.seen.Last())
	}
	r.cut()
	p.drop(r)
}

// onceAKey asserts that an idempotency key started one run (I13). Sweeps forget
// keys after a day.
func (w *World) onceAKey() {
	if w.swept {
		return
	}
	runs := map[*engine.StartRequest]string{}
	for _, t := range w.judge.all {
		req := w.keyed[t.key]
		if req == nil || t.seen.Last() == 0 {
			continue
		}
		if other := runs[req]; other != "" {
			w.broken("I13: one idempotency key started runs %s and %s", other, t.key.Run)
		}
		runs[req] = t.key.Run
	}
}

// hash is of everything that became durable, and of where the dice stand: they
// are thrown at every turn of the history.
func (w *World) hash() uint64 {
	h := mix(mix(w.seed, uint64(w.stats.Transitions)), w.dice.Uint64())
	for _, t := range w.judge.all {
		h = mix(hashBytes(h, []byte(t.key.Run)), t.sum)
		if t.deleted {
			h = mix(h, 1)
		}
	}
	return h
}
