// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"iter"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/feed"
)

// tenMinutes is how long a stalled reader stays away.
const tenMinutes = 600_000_000

// A reader follows a run: a subscriber, or an export that reads the stored events.
// Over all its connections it must see every event once, in order (I14).
type reader struct {
	w      *World
	t      *runRecord
	seen   uint64 // the last event seen
	live   *feed.Poller
	next   func() (feed.Event, error, bool) // of an export
	stop   func()
	export bool
	until  int64 // it reads nothing before this time
}

// subscribe starts a reader of a run, from the first event or a later one.
func (p *process) subscribe() {
	w := p.w
	t := w.anyRun()
	if t == nil || len(p.readers) > 4 {
		return
	}
	r := &reader{w: w, t: t, export: w.dice.IntN(3) == 0}
	if n := t.journal.Last(); n > 0 && w.dice.IntN(2) == 0 {
		r.seen = w.dice.Uint64N(n)
	}
	p.connect(r)
}

// connect lets a reader continue where it stopped.
func (p *process) connect(r *reader) {
	if r.t.deleted || r.t.journal.Last() == 0 {
		return
	}
	if r.export {
		r.next, r.stop = iter.Pull2(iter.Seq2[feed.Event, error](p.stage.Events(context.Background(), r.t.key, r.seen)))
	} else {
		var err error
		p.call(func() { r.live, err = p.stage.Watch(r.t.key, r.seen, r.take) })
		if err != nil || p.dead {
			r.live = nil
			return
		}
	}
	p.readers = append(p.readers, r)
}

// cut ends a connection.
func (r *reader) cut() {
	if r.live != nil {
		r.live.Close()
	}
	if r.stop != nil {
		r.stop()
	}
	r.live, r.next, r.stop = nil, nil, nil
}

// take checks one event.
func (r *reader) take(ev feed.Event) {
	w, t := r.w, r.t
	w.stats.Reads++
	switch {
	case ev.Seq > t.journal.Last():
		w.fail("I1: a reader of run %s sees event %d, %d are durable", t.key.Run, ev.Seq, t.journal.Last())
	case ev.Seq != r.seen+1:
		w.fail("I14: a reader of run %s sees event %d after event %d", t.key.Run, ev.Seq, r.seen)
	case hashEvent(ev.Event) != t.hashes[ev.Seq-1]:
		w.fail("I14: a reader of run %s sees another event %d than was written", t.key.Run, ev.Seq)
	}
	r.seen = ev.Seq
}

// read lets some readers of a process read.
func (p *process) read() {
	w := p.w
	for _, r := range slices.Clone(p.readers) {
		switch {
		case p.dead:
			return
		case w.happens(ReaderCut):
			r.cut()
			p.drop(r)
			w.readers = append(w.readers, r)
		case w.happens(ReaderStalled):
			r.until = w.mono + tenMinutes
		case r.until <= w.mono || w.noFaults:
			if p.poll(r) {
				r.cut()
				p.drop(r)
			}
		}
	}
	if n := len(w.readers); n > 0 && !p.dead {
		r := w.readers[n-1]
		w.readers = w.readers[:n-1]
		p.connect(r)
	}
}

func (p *process) drop(r *reader) {
	p.readers = slices.DeleteFunc(p.readers, func(q *reader) bool { return q == r })
}

// poll reads what is available and reports whether the reader has reached the end.
func (p *process) poll(r *reader) (over bool) {
	var err error
	if r.live != nil {
		p.call(func() { over, err = r.live.Poll() })
	} else {
		for n := 0; n < 8 && !over; n++ { // a few events, then it pauses in the middle of a page
			ev, e, more := r.next()
			switch {
			case !more:
				over = true
			case e != nil:
				over, err = true, e
			default:
				r.take(ev)
			}
		}
	}
	switch fault.CodeOf(err) {
	case "", fault.ServiceUnavailable, fault.Quarantined, fault.RunNotFound, fault.StoreFailed:
		return over || err != nil
	}
	p.w.fail("a reader of run %s fails: %v", r.t.key.Run, err)
	return true
}
