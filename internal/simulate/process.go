// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// A process is one engine with what is in its memory: messages, attempts in the
// hands of workers, users and readers who are connected to it.
type process struct {
	w     *World
	stage *engine.Stage
	disk  *disk
	base  int64 // the wall clock when it began
	born  int64 // the world's clock then

	inbox   []*engine.Message
	later   []*engine.Message // reports that are held back
	tasks   []*task
	asks    []*ask
	readers []*reader

	flight   flight
	batch    []store.Transition
	verdicts []store.Verdict
	err      error

	orderly bool // the process before it was stopped in order
	forgot  bool // runs that had attempts under way: a batch of theirs was lost, or they panicked
	doomed  bool // it dies in its next call
	dead    bool
}

// flight says where the batch under way is.
type flight uint8

const (
	landed  flight = iota // there is none
	encoded               // not written yet
	written               // written, its answer not heard yet
)

// boot begins a process. nil when it did not come up.
func (w *World) boot() *process {
	p := &process{w: w, base: w.wall(), born: w.mono}
	w.judge.began(p)
	p.disk = &disk{Store: w.mem, p: p}
	cfg := w.faults.config
	cfg.Store, cfg.Actions = p.disk, w.c.Actions
	cfg.Files = func(string) action.Files { return &w.cabinet }
	cfg.Rand = diceReader{w.dice}
	if w.trace != nil {
		w.say("boot at %d", w.mono)
		cfg.Logger = w.logger
	}
	var err error
	p.guard(func() { p.stage, err = engine.OpenStage(context.Background(), cfg, w.plans, p.now()) })
	if p.dead || err != nil {
		w.say("it did not come up: %v", err)
		return nil
	}
	p.stage.Observe(w)
	w.procs = append(w.procs, p)
	p.stage.Live(func(l engine.LiveRun) {
		if t := w.judge.record(l.Key); l.Run.Last() != t.seen.Last() {
			w.broken("I2: run %s was loaded to event %d and was synced to %d", l.Key.Run, l.Run.Last(), t.seen.Last())
		}
	})
	return p
}

// diceReader gives the world's dice as random bytes.
type diceReader struct{ dice *rand.Rand }

func (r diceReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(r.dice.Uint32())
	}
	return len(b), nil
}

// now is the process's clock: the wall clock at its start, then even time.
func (p *process) now() int64 { return p.base + p.w.mono - p.born }

// guard calls the engine, in which the process may die.
func (p *process) guard(fn func()) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case gone:
			p.die()
		default:
			panic(v)
		}
	}()
	p.w.inside = p
	fn()
	p.w.inside = nil
	if p.doomed {
		p.die()
	}
}

// die ends the process where it stands: what was in its memory is gone.
func (p *process) die() {
	w := p.w
	w.inside = nil
	if p.dead {
		return
	}
	p.dead = true
	w.stats.Crashes++
	w.say("a process is gone")
	w.judge.died(p)
	w.procs = slices.DeleteFunc(w.procs, func(q *process) bool { return q == p })
	for _, a := range p.asks {
		w.unheard(a)
	}
	for _, r := range p.readers {
		r.cut()
		w.readers = append(w.readers, r)
	}
	for _, t := range p.tasks {
		if t.over == nil && w.happens(ReportLate) && len(w.zombies) < 20 {
			w.zombies = append(w.zombies, t) // it works on, and reports to whoever is there
		}
	}
}

// handle hands messages in.
func (p *process) handle(ms ...*engine.Message) {
	if p.dead {
		return
	}
	p.guard(func() { p.stage.Handle(p.now(), ms...) })
	if !p.dead {
		p.act()
	}
	p.listen()
}

// deliver hands in what has arrived, some of it, in some order.
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

// commit moves the batch under way on, and says whether it did.
func (p *process) commit() bool {
	w := p.w
	if p.dead {
		return false
	}
	slow := p.flight != landed
	if p.flight == landed {
		batch, ok := p.stage.EncodeBatch()
		if !ok {
			return false
		}
		p.batch, p.flight = batch, encoded
		p.verdicts, p.err = nil, nil
		slow = len(batch) > 0 && w.happens(SlowSync)
	}
	if slow && !w.calm && w.dice.IntN(3) > 0 {
		if p.flight == encoded && w.dice.IntN(2) == 0 {
			p.write()
		}
		return false
	}
	p.write()
	if p.dead {
		return false
	}
	if len(p.batch) > 0 && w.happens(KilledInCall) {
		p.die() // written, and nobody was told
		return false
	}
	p.flight = landed
	p.forgot = p.forgot || p.err != nil
	p.guard(func() { p.stage.Committed(p.verdicts, p.err) })
	p.batch = nil
	if !p.dead {
		p.act()
		p.listen()
	}
	return true
}

// write gives the batch to the store.
func (p *process) write() {
	if p.flight != encoded {
		return
	}
	p.flight = written
	if len(p.batch) == 0 {
		return
	}
	p.w.stats.Commits++
	for i := range p.batch {
		if p.batch[i].Suspension != nil {
			p.w.stats.Suspended++
		}
	}
	p.guard(func() { p.verdicts, p.err = p.disk.Commit(context.Background(), p.batch) })
}

// pump lets follow what follows at this moment. It says whether anything did.
func (p *process) pump() (moved bool) {
	w := p.w
	for n := 0; !p.dead; n++ {
		if n > 10_000 {
			w.broken("I6: the engine never comes to rest")
		}
		switch {
		case !w.calm && w.dice.IntN(10_000) < w.faults.hasty:
			return moved // the next input meets state ahead of the disk
		case p.commit(), p.stage.Busy():
			moved = true
			p.handle()
		default:
			p.bury()
			return moved
		}
	}
	return moved
}

// bury ends a process that will never acknowledge anything again.
func (p *process) bury() {
	if p.dead || p.stage.Dead() == nil {
		return
	}
	p.listen()
	for _, a := range p.asks {
		if !slices.Contains(p.inbox, a.m) { // else it never reached it
			p.w.broken("I21: an engine that is at its end has not answered the %s of run %s", askNames[a.kind], a.key.Run)
		}
	}
	err := p.stage.Dead()
	p.w.say("an engine has ended: %v", err)
	p.die()
	if fault.CodeOf(err) == fault.StoreFailed {
		p.w.power() // what it had written may be there or not
	}
}

// act takes what the engine lets out into the world. Nothing of it may speak of
// what is not durable (I1).
func (p *process) act() {
	w := p.w
	effects := p.stage.Effects()
	for i := range effects {
		ef := &effects[i]
		w.stats.Effects++
		t := w.judge.record(ef.Key)
		if t.seen.Last() == 0 {
			w.broken("I1: run %s is not durable, and something is to be done for it", ef.Key.Run)
		}
		switch ef.Kind {
		case machine.CmdDispatch:
			p.dispatch(t, ef)
		case machine.CmdCancelTask:
			p.cancelled(ef)
		default:
			var m *engine.Message
			p.guard(func() { m = p.stage.CarryOut(ef) })
			if p.dead {
				return
			}
			if m != nil {
				p.report(m)
			}
		}
	}
}

// report brings a report of a worker on its way.
func (p *process) report(m *engine.Message) {
	if p.w.happens(ReportDelayed) {
		p.later = append(p.later, m)
		return
	}
	p.inbox = append(p.inbox, m)
}
