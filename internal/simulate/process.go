// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// A process is one engine with everything in its memory: messages, attempts that
// workers carry out, and the users and readers connected to it.
type process struct {
	w     *World
	stage *engine.Stage
	disk  *disk
	base  int64 // the wall clock at its start
	born  int64 // the world's clock at its start

	inbox        []*engine.Message
	delayed      []*engine.Message // delayed reports
	tasks        []*task
	requests     []*request
	readers      []*reader
	keeper       *jobs.Keeper   // acts upon webhooks; nil = the service has no jobs
	leases       *leases        // nil = the world has no remote workers
	schedules    *schedulerHost // nil = it has no schedules
	calls        []*call        // of the manager of leases and the scheduler, that wait
	currentCall  *call          // the one that goes on now
	settlingCall *call          // the one that an effect belongs to

	commitState commitState
	batch       []store.Transition
	verdicts    []store.Verdict
	err         error

	orderly bool // the previous process was stopped in order
	dying   bool // it dies in its next call
	dead    bool
}

// commitState is the state of the current batch.
type commitState uint8

const (
	noBatch   commitState = iota // no batch
	unwritten                    // encoded by the engine, not yet written
	written                      // written, but its answer has not arrived
)

// boot starts a process; nil when it could not start.
func (w *World) boot() *process {
	p := &process{w: w, base: w.wall(), born: w.mono}
	w.checker.began(p)
	p.disk = &disk{Store: w.mem, p: p}
	cfg := w.faults.config
	cfg.Store, cfg.Actions = p.disk, priceList{w}
	cfg.Files = func(string) action.Files { return &w.blobs }
	cfg.Rand = diceReader{w.dice}
	cfg.Resolve = w.registry.resolve
	if w.trace != nil {
		w.tracef("boot at %d", w.mono)
		cfg.Logger = w.logger
	}
	p.keepJobs()
	p.startLeases()
	cfg.Jobs = p.jobsChanged
	var err error
	p.call(func() { p.stage, err = engine.OpenStage(context.Background(), cfg, w.plans, p.now()) })
	if p.dead || err != nil {
		w.tracef("it did not come up: %v", err)
		return nil
	}
	p.stage.Observe(w)
	p.startSchedules()
	w.procs = append(w.procs, p)
	if p.keeper != nil {
		if err := p.keeper.Load(w.ctx()); err != nil {
			w.fail("F14: the webhooks that wait cannot be read: %v", err)
		}
	}
	if p.leases != nil {
		p.leases.load()
	}
	p.stage.Live(func(l engine.LiveRun) {
		if t := w.checker.record(l.Key); l.Run.Last() != t.journal.Last() {
			w.fail("I2: run %s was loaded to event %d and was synced to %d", l.Key.Run, l.Run.Last(), t.journal.Last())
		}
	})
	return p
}

// diceReader reads random bytes from the world's random numbers.
type diceReader struct{ dice *rand.Rand }

func (r diceReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(r.dice.Uint32())
	}
	return len(b), nil
}

// now is the process's clock: the wall clock at its start, then monotonic time.
func (p *process) now() int64 { return p.base + p.w.mono - p.born }

// call calls the engine; the process may die in the call.
func (p *process) call(fn func()) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case processDied:
			p.die()
		default:
			panic(v)
		}
	}()
	p.w.inside = p
	fn()
	p.w.inside = nil
	if p.dying {
		p.die()
	}
}

// die ends the process at once: everything in its memory is lost.
func (p *process) die() {
	w := p.w
	w.inside = nil
	if p.dead {
		return
	}
	p.dead = true
	w.stats.Crashes++
	w.tracef("a process is gone")
	w.checker.died(p)
	w.procs = slices.DeleteFunc(w.procs, func(q *process) bool { return q == p })
	for _, a := range p.requests {
		w.answerLost(a)
	}
	for _, r := range p.readers {
		r.cut()
		w.readers = append(w.readers, r)
	}
	for _, t := range p.tasks {
		if t.report == nil && w.happens(ReportLate) && len(w.zombies) < 20 {
			w.zombies = append(w.zombies, t) // the worker continues, and reports to a later process
		}
	}
	p.abortCalls()
}

// handle hands messages to the engine.
func (p *process) handle(ms ...*engine.Message) {
	if p.dead {
		return
	}
	p.call(func() { p.stage.Handle(p.now(), ms...) })
	if !p.dead {
		p.act()
	}
	p.collectAnswers()
	p.resumeAnswered()
}

// deliver hands in some of the messages that have arrived, in some order.
func (p *process) deliver(most int) bool {
	n := min(len(p.inbox), most)
	if n == 0 {
		return false
	}
	if n < len(p.inbox) || n > 1 {
		if p.w.happens(Reordered) {
			p.w.dice.Shuffle(len(p.inbox), func(i, k int) { p.inbox[i], p.inbox[k] = p.inbox[k], p.inbox[i] })
		}
	}
	ms := slices.Clone(p.inbox[:n])
	p.inbox = slices.Delete(p.inbox, 0, n)
	p.handle(ms...)
	return true
}

// commit advances the current batch, and reports whether it was committed.
func (p *process) commit() bool {
	w := p.w
	if p.dead {
		return false
	}
	slow := p.commitState != noBatch
	if p.commitState == noBatch {
		var batch []store.Transition
		ok := false
		p.call(func() { batch, ok = p.stage.EncodeBatch() })
		if !ok || p.dead {
			return false
		}
		p.batch, p.commitState = batch, unwritten
		p.verdicts, p.err = nil, nil
		slow = len(batch) > 0 && w.happens(SlowSync)
	}
	if slow && !w.noFaults && w.dice.IntN(3) > 0 {
		if p.commitState == unwritten && w.dice.IntN(2) == 0 {
			p.write()
		}
		return false
	}
	p.write()
	if p.dead {
		return false
	}
	if len(p.batch) > 0 && w.happens(KilledInCall) {
		p.die() // written, but the engine did not get the answer
		return false
	}
	p.commitState = noBatch
	p.call(func() { p.stage.Committed(p.verdicts, p.err) })
	p.batch = nil
	if !p.dead {
		p.act()
		p.collectAnswers()
		p.resumeAnswered()
	}
	return true
}

// write gives the batch to the store.
func (p *process) write() {
	if p.commitState != unwritten {
		return
	}
	p.commitState = written
	if len(p.batch) == 0 {
		return
	}
	p.w.stats.Commits++
	for i := range p.batch {
		if p.batch[i].Suspension != nil {
			p.w.stats.Suspended++
		}
	}
	p.call(func() { p.verdicts, p.err = p.disk.Commit(context.Background(), p.batch) })
}

// pump commits batches and lets the engine handle the answers until there is nothing
// left to do or a commit is delayed. It reports whether it did anything.
func (p *process) pump() (moved bool) {
	w := p.w
	for n := 0; !p.dead; n++ {
		if n > 10_000 {
			w.fail("I6: the engine never comes to rest")
		}
		switch {
		case !w.noFaults && w.dice.IntN(10_000) < w.faults.delayCommit:
			return moved // the next input finds a state that is not committed yet
		case p.commit(), p.stage.Busy():
			moved = true
			p.handle()
		default:
			p.endFailed()
			return moved
		}
	}
	return moved
}

// endFailed ends a process whose store has failed, so that it will never acknowledge
// anything again.
func (p *process) endFailed() {
	if p.dead || p.stage.Dead() == nil {
		return
	}
	p.collectAnswers()
	for _, a := range p.requests {
		if !slices.Contains(p.inbox, a.m) { // otherwise the request never reached it
			p.w.fail("I21: a failed engine has not answered the %s of run %s", requestNames[a.kind], a.key.Run)
		}
	}
	err := p.stage.Dead()
	p.w.tracef("an engine has ended: %v", err)
	p.die()
	if fault.CodeOf(err) == fault.StoreFailed {
		p.w.powerCut() // what it had written may or may not survive
	}
}

// act carries out the effects that the engine has released. No effect may depend on
// state that is not durable (I1).
func (p *process) act() {
	w := p.w
	effects := p.stage.Effects()
	for i := range effects {
		ef := &effects[i]
		w.stats.Effects++
		t := w.checker.record(ef.Key)
		if t.journal.Last() == 0 {
			w.fail("I1: run %s is not durable, and a command for it was let out", ef.Key.Run)
		}
		switch ef.Kind {
		case machine.CmdDispatch:
			if ef.Settles != nil {
				p.settle(ef)
				break
			}
			p.dispatch(t, ef)
		case machine.CmdCancelTask:
			p.cancelled(ef)
		default:
			var m *engine.Message
			p.call(func() { m = p.stage.Perform(ef) })
			if p.dead {
				return
			}
			if m != nil {
				p.report(m)
			}
		}
	}
}

// report sends a worker's report.
func (p *process) report(m *engine.Message) {
	if p.w.happens(ReportDelayed) {
		p.delayed = append(p.delayed, m)
		return
	}
	p.inbox = append(p.inbox, m)
}
