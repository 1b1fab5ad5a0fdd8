// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"iter"
	"slices"

	"github.com/roux-engine/roux/internal/store"
)

// changesPage is how many changes are read at once.
const changesPage = 256

// A follower reads the changes of an account. It is only told that there are some: it
// reads them from the store, by its number, so none waits for it in memory and none is
// dropped, however slow it is.
type follower struct {
	signal chan struct{} // 1 slot
}

func (w *follower) notify() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// Changes yields the account's changes after number `after`, in order, without gap or
// duplicate: those that are stored, then new ones as they become durable. It ends when ctx
// ends, or with an error when the feed is closed. See [store.Feed] for cursors that are
// refused.
func (f *Feed) Changes(ctx context.Context, account string, after uint64) iter.Seq2[store.Change, error] {
	return func(yield func(store.Change, error) bool) {
		w := f.follow(account) // before the first read, so that nothing written after it is missed
		defer f.unfollow(account, w)
		for {
			closed := f.reason() // before the read, which then has what was published before
			for more := true; more; {
				changes, err := f.store.Changes(ctx, account, after, changesPage)
				if err != nil {
					if why := f.reason(); why != nil && ctx.Err() == nil {
						err = why // the store may be closed by now
					}
					yield(store.Change{}, err)
					return
				}
				for _, c := range changes {
					after = c.N
					if !yield(c, nil) {
						return
					}
				}
				more = len(changes) == changesPage
			}
			if closed != nil {
				yield(store.Change{}, closed)
				return
			}
			select {
			case <-ctx.Done():
				yield(store.Change{}, ctx.Err())
				return
			case <-w.signal:
			}
		}
	}
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
	f.headSubs.Add(-1)
	all := f.followers[account]
	i := slices.Index(all, w)
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
