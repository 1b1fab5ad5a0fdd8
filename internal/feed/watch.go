// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"iter"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// An Event is an event of a run, with the plan that its public form needs.
type Event struct {
	*journal.Event
	Plan *plan.Plan
	run  string
}

// Envelope returns the event's public form (X179), without what follows from earlier
// events: a journal.Renderer that sees all of them adds that.
func (ev Event) Envelope() journal.Envelope { return journal.Render(ev.Plan, ev.run, ev.Event) }

var (
	errGap     = errors.New("frames are missing")
	errStopped = errors.New("the reader has stopped")
)

// Watch yields the run's events after number `after`, without gap or duplicate (I14):
// first from the journal, then as they become durable. It ends after the event that
// ends the run, when ctx ends, or with an error when the feed is closed. An event is
// valid only until the next one is yielded.
func (f *Feed) Watch(ctx context.Context, key store.Key, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w, err := f.Follow(ctx, key, after, yield)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer w.Close()
		for !w.ended && !w.stopped {
			if err := w.Next(ctx, ctx); err != nil {
				if !w.stopped {
					yield(Event{}, err)
				}
				return
			}
		}
	}
}

// A Watcher follows one run.
type Watcher struct {
	f        *Feed
	sub      *subscriber
	key      store.Key
	plan     *plan.Plan
	seen     uint64      // last event yielded or skipped
	last     uint64      // last event the journal had
	head     *store.Head // read by Follow and not used yet
	readNext bool        // Next must read the journal
	ended    bool        // the last event was the one that ended the run
	stopped  bool        // yield returned false
	yield    func(Event, error) bool
}

// Follow begins to watch a run: Next calls yield with each event. It is Watch for a
// caller that must not block.
func (f *Feed) Follow(ctx context.Context, key store.Key, after uint64, yield func(Event, error) bool) (*Watcher, error) {
	s := f.subscribe(key, false) // before the head is read, so that nothing written after it is missed
	head, p, err := f.headAndPlan(ctx, key)
	if err != nil {
		f.unsubscribe(key, s)
		return nil, err
	}
	return &Watcher{f: f, sub: s, key: key, plan: p, seen: after, head: &head, readNext: true, yield: yield}, nil
}

func (f *Feed) headAndPlan(ctx context.Context, key store.Key) (store.Head, *plan.Plan, error) {
	head, err := f.store.Head(ctx, key)
	if err != nil {
		return store.Head{}, nil, err
	}
	p, err := f.planOf(ctx, head.PlanHash)
	return head, p, err
}

// Ended reports whether the last event was the one that ended the run.
func (w *Watcher) Ended() bool { return w.ended }

// Close ends the subscription.
func (w *Watcher) Close() { w.f.unsubscribe(w.key, w.sub) }

// Next yields the next events, from the journal or from the feed. wait bounds how long
// it waits for events; ctx bounds reads.
func (w *Watcher) Next(ctx, wait context.Context) error {
	if w.readNext {
		return w.readStored(ctx)
	}
	u, err := w.sub.next(wait)
	if err != nil {
		return err
	}
	return w.published(&u)
}

// OnNews has fn called whenever Poll may find something that it did not find before. fn must
// not block, and must not call the feed.
func (w *Watcher) OnNews(fn func()) { w.sub.onNews(fn) }

// Stored reports whether the next events are read from the journal.
func (w *Watcher) Stored() bool { return w.readNext }

// Poll is Next for a caller that is told by OnNews when to call it: it does not wait. any is
// false when there was nothing.
func (w *Watcher) Poll(ctx context.Context) (any bool, err error) {
	if w.readNext {
		return true, w.readStored(ctx)
	}
	u, any, err := w.sub.take()
	if any {
		err = w.published(&u)
	}
	return any, err
}

// readStored yields what the journal has.
func (w *Watcher) readStored(ctx context.Context) error {
	w.readNext = false
	// The head is read first: if it records that the run has ended, the journal that is
	// read after it contains that end, even when the cursor is past it.
	var head store.Head
	var err error
	if w.head != nil {
		head, w.head = *w.head, nil
	} else {
		head, err = w.f.store.Head(ctx, w.key)
	}
	if err == nil {
		err = w.readJournal(ctx)
	}
	if err != nil || w.stopped || w.ended {
		return err
	}
	if head.Quarantine != "" {
		return store.QuarantinedError(w.key.Run, head.Quarantine)
	}
	if head.Ended != 0 && w.seen >= w.last {
		// Check again, because a retry may have come between the two reads: then the
		// journal holds the beginning of another generation.
		var current store.Head
		current, err = w.f.store.Head(ctx, w.key)
		w.ended = current.Ended == head.Ended
	}
	return err
}

func (w *Watcher) deliver(ev *journal.Event) error {
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
		return errStopped
	}
	return nil
}

// readJournal yields what is stored. It reads in pages, so that a slow reader holds no
// transaction open.
func (w *Watcher) readJournal(ctx context.Context) error {
	err := store.EachPage(ctx, w.f.store, w.key, w.seen, func(page *store.Page) error {
		w.last = page.Last
		err := journal.EachEvent(page.Frames, w.deliver)
		w.ended = w.ended && page.Next >= page.Last
		return err
	})
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// published yields what the feed has published. If some of it is missing, the journal is read
// next.
func (w *Watcher) published(u *update) error {
	if u.behind {
		w.readNext = true
		return nil
	}
	for _, frames := range u.frames {
		switch err := journal.EachEvent(frames, w.deliver); {
		case errors.Is(err, errStopped):
			return nil
		case errors.Is(err, errGap):
			w.readNext = true
			return nil
		case err != nil:
			return err
		}
	}
	if u.head != nil && u.head.Quarantine != "" {
		return store.QuarantinedError(w.key.Run, u.head.Quarantine)
	}
	return nil
}

// Events yields the stored events after number `after` and ends with the last one. An
// event is valid only until the next one is yielded.
func (f *Feed) Events(ctx context.Context, key store.Key, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		_, p, err := f.headAndPlan(ctx, key)
		if err == nil {
			err = store.EachEvent(ctx, f.store, key, after, func(ev *journal.Event) error {
				if !yield(Event{Event: ev, Plan: p, run: key.Run}, nil) {
					return errStopped
				}
				return nil
			})
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(Event{}, err)
		}
	}
}

// OnEnd has fn called whenever the run may have ended, durably, until cancel is called: also when something
// was not published, and when the feed is closed. fn must not block, and must not call the feed.
func (f *Feed) OnEnd(key store.Key, fn func()) (cancel func()) {
	s := f.subscribe(key, true)
	s.onNews(func() {
		if u, _, err := s.take(); err != nil || u.behind || u.head != nil && u.head.Ended != 0 {
			fn()
		}
	})
	return func() { f.unsubscribe(key, s) }
}

// noHead is the head of a run of which none is known.
var noHead store.Head

// Wait returns the head of the run once it has ended; nobody may change it. unended reports whether the run is known not to have ended; Wait calls it after
// subscribing and skips reading the head if it returns true. Many goroutines do nothing
// but wait, so their stacks hold no heads.
func (f *Feed) Wait(ctx context.Context, key store.Key, unended func() bool) (*store.Head, error) {
	s := f.subscribe(key, true)
	defer f.unsubscribe(key, s)
	head, err := &noHead, error(nil)
	if !unended() {
		head, err = f.stored(ctx, key)
	}
	for err == nil && head.Ended == 0 {
		if head.Quarantine != "" {
			return head, store.QuarantinedError(key.Run, head.Quarantine)
		}
		var u update
		switch u, err = s.next(ctx); {
		case u.head != nil:
			head = u.head
		case u.behind && err == nil:
			head, err = f.stored(ctx, key)
		}
	}
	return head, err
}

// stored reads the head; inlined, it would put heads on the stack of Wait after all.
//
//go:noinline
func (f *Feed) stored(ctx context.Context, key store.Key) (*store.Head, error) {
	head, err := f.store.Head(ctx, key)
	return &head, err
}
