// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/roux-engine/roux/internal/store"
)

// changesPage is how many changes are read at once.
const changesPage = 256

// A follower reads the changes of an account. It is only told that there are some: it
// reads them from the store, by its number, so none waits for it in memory and none is
// dropped, however slow it is.
type follower struct {
	signal chan struct{}          // 1 slot
	wake   atomic.Pointer[func()] // called besides each signal; nil = nobody wants to be called
}

func (w *follower) notify() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
	if wake := w.wake.Load(); wake != nil {
		(*wake)()
	}
}

// Changes yields the account's changes after number `after`, in order, without gap or
// duplicate: those that are stored, then new ones as they become durable. It ends when ctx
// ends, or with an error when the feed is closed. See [store.Feed] for cursors that are
// refused.
func (f *Feed) Changes(ctx context.Context, account string, after uint64) iter.Seq2[store.Change, error] {
	return func(yield func(store.Change, error) bool) {
		w := f.FollowChanges(account, after)
		defer w.Close()
		for {
			changes, err := w.Next(ctx, ctx)
			for _, c := range changes {
				if !yield(c, nil) {
					return
				}
			}
			if err != nil {
				yield(store.Change{}, err)
				return
			}
		}
	}
}

// A ChangeFollower follows the changes of one account.
type ChangeFollower struct {
	f       *Feed
	w       *follower
	account string
	after   uint64
	more    bool // there may be changes that no signal announces any more
}

// FollowChanges begins to follow an account: Next returns its changes. It is Changes for a
// caller that must not block for ever. Call Close at the end.
func (f *Feed) FollowChanges(account string, after uint64) *ChangeFollower {
	return &ChangeFollower{f: f, w: f.follow(account), account: account, after: after, more: true}
}

// Close ends it.
func (w *ChangeFollower) Close() { w.f.unfollow(w.account, w.w) }

// OnNews has fn called whenever Poll may find something that it did not find before. fn must
// not block, and must not call the feed.
func (w *ChangeFollower) OnNews(fn func()) { w.w.wake.Store(&fn) }

// Next returns the next changes, at least one unless there is an error. wait bounds how long
// it waits for one; ctx bounds reads. When the feed is closed, it returns what is left and
// then why.
func (w *ChangeFollower) Next(ctx, wait context.Context) ([]store.Change, error) {
	for {
		changes, err := w.Poll(ctx)
		if len(changes) > 0 || err != nil {
			return changes, err
		}
		select {
		case <-wait.Done():
			select {
			case <-w.w.signal: // a change is there already
				w.more = true
			default:
				return nil, wait.Err()
			}
		case <-w.w.signal:
			w.more = true
		}
	}
}

// Poll is Next for a caller that is told by OnNews when to call it: it does not wait. It
// returns nothing when there is nothing yet.
func (w *ChangeFollower) Poll(ctx context.Context) ([]store.Change, error) {
	select {
	case <-w.w.signal:
		w.more = true
	default:
	}
	closed := w.f.reason() // before the read, which then has what was published before
	if !w.more && closed == nil {
		return nil, nil
	}
	changes, err := w.f.store.Changes(ctx, w.account, w.after, changesPage)
	if err != nil {
		if why := w.f.reason(); why != nil && ctx.Err() == nil {
			err = why // the store may be closed by now
		}
		return nil, err
	}
	w.more = len(changes) == changesPage
	if len(changes) > 0 {
		w.after = changes[len(changes)-1].N
		return changes, nil
	}
	return nil, closed
}

// Changed tells those who follow the account that it has changes which no commit of the
// engine has made.
func (f *Feed) Changed(account string) {
	f.Publish([]Published{{Key: store.Key{Account: account}, Changed: true}})
}

// reason returns why the feed is closed, or nil.
func (f *Feed) reason() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

func (f *Feed) follow(account string) *follower {
	w := &follower{signal: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.followers[account] = append(f.followers[account], w)
	f.headSubs.Add(1)
	return w
}

func (f *Feed) unfollow(account string, w *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.followers[account]
	i := slices.Index(all, w)
	if i < 0 {
		return // closed twice
	}
	f.headSubs.Add(-1)
	if all = slices.Delete(all, i, i+1); len(all) > 0 {
		f.followers[account] = all
	} else {
		delete(f.followers, account)
	}
}

// wake wakes those who follow the account. The caller holds mu.
func (f *Feed) wake(account string) {
	for _, w := range f.followers[account] {
		w.notify()
	}
}

// wakeAll wakes those who follow any account. The caller holds mu.
func (f *Feed) wakeAll() {
	for account := range f.followers {
		f.wake(account)
	}
}
