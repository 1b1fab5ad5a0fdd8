// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// maxBehind is how many bytes of frames wait for a slow subscriber. Past it
// they are let go, and the subscriber reads them from the journal: the commit
// path waits for nobody, and no frame is ever missing.
const maxBehind = 1 << 20

// hub hands what has become durable to whoever watches. The loop only appends
// to a queue; one goroutine does the rest.
type hub struct {
	watching atomic.Int64  // subscribers to frames
	waiting  atomic.Int64  // subscribers to heads alone
	signal   chan struct{} // 1 slot

	queueMu sync.Mutex // all the loop ever takes
	queue   []published

	mu     sync.Mutex
	spare  []published // the other queue
	subs   map[store.Key][]*subscriber
	closed error
}

// A subscriber is one reader of one run.
type subscriber struct {
	heads  bool // it wants to hear of head rows alone
	mu     sync.Mutex
	frames [][]byte
	bytes  int
	behind bool        // frames were let go
	head   *store.Head // the newest written since next was called; nil = none
	closed error
	signal chan struct{} // 1 slot
}

func newHub() *hub {
	return &hub{signal: make(chan struct{}, 1), subs: map[store.Key][]*subscriber{}}
}

// send is called by the loop after a commit. Nobody subscribing later can miss
// what it leaves out: such a reader begins with the journal.
func (h *hub) send(frames []published) {
	all := h.watching.Load() > 0
	if !all && h.waiting.Load() == 0 {
		return
	}
	before := 0
	h.queueMu.Lock()
	if all {
		h.queue = append(h.queue, frames...)
	} else {
		before = len(h.queue)
		for i := range frames {
			if frames[i].head != nil || frames[i].key.Run == "" {
				h.queue = append(h.queue, frames[i])
			}
		}
	}
	some := len(h.queue) > before
	h.queueMu.Unlock()
	if !some {
		return
	}
	select {
	case h.signal <- struct{}{}:
	default:
	}
}

// publish is the hub's goroutine.
func (h *hub) publish() {
	for range h.signal {
		h.mu.Lock()
		closed := h.closed
		h.drain()
		if closed != nil {
			for _, subs := range h.subs {
				for _, s := range subs {
					s.end(closed)
				}
			}
		}
		h.mu.Unlock()
		if closed != nil {
			return
		}
	}
}

// drain hands on what waits in the queue. The caller holds mu.
func (h *hub) drain() {
	h.queueMu.Lock()
	queue := h.queue
	h.queue = h.spare[:0]
	h.queueMu.Unlock()
	h.deliver(queue)
	clear(queue)
	h.spare = queue
}

// deliver hands news to those who watch. The caller holds mu.
func (h *hub) deliver(news []published) {
	for i := range news {
		if news[i].key.Run == "" {
			for _, subs := range h.subs {
				for _, s := range subs {
					s.lag()
				}
			}
			continue
		}
		for _, s := range h.subs[news[i].key] {
			s.push(&news[i])
		}
	}
}

func (h *hub) close(err error) {
	h.mu.Lock()
	h.closed = err
	h.mu.Unlock()
	select {
	case h.signal <- struct{}{}:
	default:
	}
}

// join subscribes to a run: to its frames and heads, or to heads alone.
func (h *hub) join(key store.Key, heads bool) *subscriber {
	s := &subscriber{heads: heads, signal: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != nil {
		s.closed = h.closed
		return s
	}
	h.drain() // what was sent before is not for it: the end before a retry, say
	h.subs[key] = append(h.subs[key], s)
	h.count(s).Add(1)
	return s
}

func (h *hub) count(s *subscriber) *atomic.Int64 {
	if s.heads {
		return &h.waiting
	}
	return &h.watching
}

func (h *hub) leave(key store.Key, s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	subs := h.subs[key]
	i := slices.Index(subs, s)
	if i < 0 {
		return
	}
	if subs = slices.Delete(subs, i, i+1); len(subs) > 0 {
		h.subs[key] = subs
	} else {
		delete(h.subs, key)
	}
	h.count(s).Add(-1)
}

func (s *subscriber) push(p *published) {
	if s.heads && p.head == nil {
		return
	}
	s.mu.Lock()
	if !s.heads {
		s.bytes += len(p.frames)
	}
	switch {
	case s.heads:
	case s.bytes > maxBehind:
		s.frames, s.behind = nil, true
	case len(p.frames) > 0:
		s.frames = append(s.frames, p.frames)
	}
	if p.head != nil {
		s.head = p.head
	}
	s.mu.Unlock()
	s.wake()
}

// lag tells a subscriber that it may have missed something.
func (s *subscriber) lag() {
	s.mu.Lock()
	s.frames, s.behind = nil, true
	s.mu.Unlock()
	s.wake()
}

func (s *subscriber) end(err error) {
	s.mu.Lock()
	s.closed = err
	s.mu.Unlock()
	s.wake()
}

func (s *subscriber) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// news is what a subscriber is handed.
type news struct {
	frames [][]byte
	behind bool        // some frames were let go: read the journal
	head   *store.Head // the head row, when it was written
}

// next waits for news.
func (s *subscriber) next(ctx context.Context) (news, error) {
	for {
		s.mu.Lock()
		n, closed := news{s.frames, s.behind, s.head}, s.closed
		s.frames, s.behind, s.bytes, s.head = nil, false, 0, nil
		s.mu.Unlock()
		if n.behind || len(n.frames) > 0 || n.head != nil {
			return n, nil
		}
		if closed != nil {
			return n, closed
		}
		select {
		case <-ctx.Done():
			return n, ctx.Err()
		case <-s.signal:
		}
	}
}

// An Event is an event of a run with the plan that gives it its public form.
type Event struct {
	*journal.Event
	Plan *plan.Plan
	run  string
}

// Envelope is the event's public form (X179).
func (ev Event) Envelope() journal.Envelope { return journal.Render(ev.Plan, ev.run, ev.Event) }

var errGap = errors.New("frames are missing")

// Watch yields the run's events after number `after`, without gap or duplicate
// (I14): first from the journal, then as they become durable. It ends after the
// event that ends the run, when ctx ends, or with an error when the engine stops.
// An event is valid until the next one is asked for.
func (e *Engine) Watch(ctx context.Context, account, run string, after uint64) iter.Seq2[Event, error] {
	key := store.Key{Account: account, Run: run}
	return func(yield func(Event, error) bool) {
		w, err := e.follow(ctx, key, after, yield)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer w.leave()
		for !w.ended && !w.stopped {
			if err := w.turn(ctx, ctx); err != nil {
				if !w.stopped {
					yield(Event{}, err)
				}
				return
			}
		}
	}
}

// watcher follows one run.
type watcher struct {
	e       *Engine
	s       *subscriber
	key     store.Key
	plan    *plan.Plan
	seen    uint64      // last event yielded or skipped
	last    uint64      // last event the journal had
	head    *store.Head // read, and not looked at yet
	stored  bool        // the journal is to be read next
	ended   bool        // the event that ended the run was the last one
	stopped bool        // the reader wants no more
	yield   func(Event, error) bool
}

// follow begins to watch a run.
func (e *Engine) follow(ctx context.Context, key store.Key, after uint64, yield func(Event, error) bool) (*watcher, error) {
	s := e.hub.join(key, false) // first: what comes after the head was read is heard of
	head, err := e.cfg.Store.Head(ctx, key)
	var prog *program
	if err == nil {
		prog, err = e.core.programs.load(ctx, e.cfg.Store, head.PlanHash)
	}
	if err != nil {
		e.hub.leave(key, s)
		return nil, err
	}
	return &watcher{e: e, s: s, key: key, plan: prog.machine.Plan(), seen: after, head: &head, stored: true, yield: yield}, nil
}

func (w *watcher) leave() { w.e.hub.leave(w.key, w.s) }

// turn yields the next news, from the journal or from the hub. wait bounds how
// long it waits for some.
func (w *watcher) turn(ctx, wait context.Context) error {
	if !w.stored {
		again, err := w.live(wait)
		if errors.Is(err, errGap) {
			again, err = true, nil
		}
		w.stored = again
		return err
	}
	w.stored = false
	// The head first: an end it tells of is in the journal read after it, also
	// when the cursor lies behind that end.
	var head store.Head
	var err error
	if w.head != nil {
		head, w.head = *w.head, nil
	} else {
		head, err = w.e.cfg.Store.Head(ctx, w.key)
	}
	if err == nil {
		err = w.journal(ctx)
	}
	if err != nil || w.stopped || w.ended {
		return err
	}
	if head.Quarantine != "" {
		return errQuarantined(w.key.Run, head.Quarantine)
	}
	if head.Ended != 0 && w.seen >= w.last {
		// Unless a retry came between the two: what was read is then the
		// beginning of another generation.
		var again store.Head
		again, err = w.e.cfg.Store.Head(ctx, w.key)
		w.ended = again.Ended == head.Ended
	}
	return err
}

func (w *watcher) give(ev *journal.Event) error {
	if ev.Seq <= w.seen {
		return nil
	}
	if ev.Seq != w.seen+1 {
		return errGap
	}
	w.seen = ev.Seq
	w.ended = ev.Kind.Ends()
	if !w.yield(Event{Event: ev, Plan: w.plan, run: w.key.Run}, nil) {
		w.stopped = true
		return errEnough
	}
	return nil
}

// journal yields what is stored. The reading is in pages, so that a slow reader
// holds no transaction open.
func (w *watcher) journal(ctx context.Context) error {
	for {
		page, err := w.e.cfg.Store.Events(ctx, w.key, w.seen, pageBytes)
		if err != nil {
			return err
		}
		w.last = page.Last
		if page.Next > w.seen {
			err := journal.EachEvent(page.Frames, w.give)
			if errors.Is(err, errEnough) {
				return nil
			}
			if err != nil {
				return err
			}
		}
		if page.Next >= page.Last {
			return nil
		}
		w.ended = false
	}
}

// live yields what the hub hands over. again = read the journal first.
func (w *watcher) live(ctx context.Context) (again bool, err error) {
	n, err := w.s.next(ctx)
	if err != nil || n.behind {
		return n.behind, err
	}
	for _, f := range n.frames {
		if err := journal.EachEvent(f, w.give); err != nil {
			if errors.Is(err, errEnough) {
				return false, nil
			}
			return false, err
		}
	}
	if n.head != nil && n.head.Quarantine != "" {
		return false, errQuarantined(w.key.Run, n.head.Quarantine)
	}
	return false, nil
}
