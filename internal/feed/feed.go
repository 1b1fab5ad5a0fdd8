// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// A Feed delivers what has become durable to subscribers. The engine only appends to a
// queue; one goroutine, running Run, does the rest. Make one with New.
type Feed struct {
	store  Source
	planOf func(ctx context.Context, hash string) (*plan.Plan, error)

	frameSubs atomic.Int64  // subscribers to frames and heads
	headSubs  atomic.Int64  // subscribers to heads only, and followers of accounts
	signal    chan struct{} // 1 slot

	queueMu sync.Mutex
	queue   []Published
	meter   meter

	mu        sync.Mutex
	spare     []Published // the queue that was drained last, for reuse
	subs      map[store.Key][]*subscriber
	followers map[string][]*follower // by account
	closed    error
}

// A Source is what a feed reads.
type Source interface {
	store.Reader
	store.Feed
}

// Published is a part of a run's journal that has become durable. The zero value means
// that events of any run may have become durable without being published.
type Published struct {
	Key    store.Key
	Frames []byte
	Head   *store.Head // nil unless the commit wrote one
	// Changed reports that the account has changes beside the head, such as an entry; a
	// Published without a run has nothing else.
	Changed bool
}

// gap reports whether anything may have become durable.
func (p *Published) gap() bool { return p.Key == store.Key{} }

// New returns a feed of the runs in st. planOf returns the plan that is stored under a
// hash.
func New(st Source, planOf func(ctx context.Context, hash string) (*plan.Plan, error)) *Feed {
	return &Feed{store: st, planOf: planOf, signal: make(chan struct{}, 1), subs: map[store.Key][]*subscriber{}, followers: map[string][]*follower{}}
}

// Publish queues what a commit has made durable; call it in commit order. What has no
// subscriber is dropped, because a later subscriber starts with the journal.
func (f *Feed) Publish(published []Published) {
	for i := range published {
		if h := published[i].Head; h != nil && (h.Code != "" || h.Quarantine != "") {
			f.meter.ended(h)
		}
	}
	allEvents := f.frameSubs.Load() > 0
	if !allEvents && f.headSubs.Load() == 0 {
		return
	}
	before := 0
	f.queueMu.Lock()
	if allEvents {
		f.queue = append(f.queue, published...)
	} else {
		before = len(f.queue)
		for i := range published {
			if p := &published[i]; p.Head != nil || p.Changed || p.gap() {
				f.queue = append(f.queue, published[i])
			}
		}
	}
	queued := len(f.queue) > before
	f.queueMu.Unlock()
	if queued {
		f.notify()
	}
}

func (f *Feed) notify() {
	select {
	case f.signal <- struct{}{}:
	default:
	}
}

// Run delivers what is published until Close.
func (f *Feed) Run() {
	for range f.signal {
		f.mu.Lock()
		closed := f.closed
		f.drain()
		if closed != nil {
			for _, subs := range f.subs {
				for _, s := range subs {
					s.close(closed)
				}
			}
			f.wakeAll()
		}
		f.mu.Unlock()
		if closed != nil {
			return
		}
	}
}

// Deliver delivers events to the subscribers directly, for an engine without
// goroutines.
func (f *Feed) Deliver(published []Published) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deliver(published)
}

// Close closes the feed: every subscriber, present or future, gets err after it has
// received what was published before.
func (f *Feed) Close(err error) {
	f.mu.Lock()
	f.closed = err
	f.mu.Unlock()
	f.notify()
}

// drain delivers the queue. The caller holds mu.
func (f *Feed) drain() {
	f.queueMu.Lock()
	queue := f.queue
	f.queue = f.spare[:0]
	f.queueMu.Unlock()
	f.deliver(queue)
	clear(queue)
	f.spare = queue
}

// deliver passes events to the subscribers. The caller holds mu.
func (f *Feed) deliver(published []Published) {
	for i := range published {
		if published[i].gap() {
			for _, subs := range f.subs {
				for _, s := range subs {
					s.markBehind()
				}
			}
			f.wakeAll()
			continue
		}
		if published[i].Head != nil || published[i].Changed {
			f.wake(published[i].Key.Account)
		}
		for _, s := range f.subs[published[i].Key] {
			s.push(&published[i])
		}
	}
}

// subscribe adds a subscriber to a run: to its frames and heads, or to heads only.
func (f *Feed) subscribe(key store.Key, headsOnly bool) *subscriber {
	s := &subscriber{headsOnly: headsOnly, signal: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != nil {
		s.closed = f.closed
		return s
	}
	f.drain() // the new subscriber must not see older events, such as the end before a retry
	f.subs[key] = append(f.subs[key], s)
	f.counter(s).Add(1)
	return s
}

func (f *Feed) counter(s *subscriber) *atomic.Int64 {
	if s.headsOnly {
		return &f.headSubs
	}
	return &f.frameSubs
}

// Usage returns how many subscribers there are and how many bytes of frames wait for
// them.
func (f *Feed) Usage() (subscribers, bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, subs := range f.subs {
		subscribers += len(subs)
		for _, s := range subs {
			s.mu.Lock()
			for _, frames := range s.frames {
				bytes += len(frames)
			}
			s.mu.Unlock()
		}
	}
	return subscribers, bytes
}

func (f *Feed) unsubscribe(key store.Key, s *subscriber) {
	f.mu.Lock()
	defer f.mu.Unlock()
	subs := f.subs[key]
	i := slices.Index(subs, s)
	if i < 0 {
		return
	}
	if subs = slices.Delete(subs, i, i+1); len(subs) > 0 {
		f.subs[key] = subs
	} else {
		delete(f.subs, key)
	}
	f.counter(s).Add(-1)
}
