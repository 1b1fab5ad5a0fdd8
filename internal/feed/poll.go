// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"

	"github.com/roux-engine/roux/internal/store"
)

// A Poller is Feed.Watch without waiting: a subscriber that reads only when it is polled.
type Poller struct {
	w              *Watcher
	ctx, cancelled context.Context
}

// Poll begins to read a run's events after number `after`; fn is called with each of them.
// cancelled is a context that has ended: a wait with it returns at once.
func (f *Feed) Poll(ctx, cancelled context.Context, key store.Key, after uint64, fn func(Event)) (*Poller, error) {
	w, err := f.Follow(ctx, key, after, func(ev Event, _ error) bool { fn(ev); return true })
	if err != nil {
		return nil, err
	}
	return &Poller{w, ctx, cancelled}, nil
}

// Poll reads what there is, and reports whether the last event was the one that ended the run.
// After an error or the end the Poller is closed.
func (p *Poller) Poll() (ended bool, err error) {
	for !p.w.Ended() {
		err := p.w.Next(p.ctx, p.cancelled)
		if errors.Is(err, context.Canceled) {
			return false, nil // nothing new
		}
		if err != nil {
			p.w.Close()
			return false, err
		}
	}
	p.w.Close()
	return true, nil
}

// Close ends the subscription.
func (p *Poller) Close() { p.w.Close() }
