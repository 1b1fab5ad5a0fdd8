// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/control"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// lookAgain is how often a command that follows a run of another process looks
// for news.
const lookAgain = 100 * time.Millisecond

// A followedEvents is the run whose events a command reads.
type followedEvents struct {
	head store.Head
	plan *plan.Plan
}

// tail calls fn for the stored events of a run after number `after`, in order.
// With follow it goes on with what comes, until the run has ended, nobody
// carries it on, or the user has seen enough.
func (a *app) followEvents(ctx context.Context, name string, after uint64, follow bool, fn func(*followedEvents, *journal.Event) error) error {
	if follow {
		sigs, unhook := interrupts()
		defer unhook()
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		go func() {
			select {
			case <-sigs:
				stop()
			case <-ctx.Done():
			}
		}()
	}
	last, held := after, false
	var t followedEvents
	for {
		err := a.reading(ctx, func(ctx context.Context, j store.Reader) (err error) {
			_, held = j.(*control.Remote)
			if t.plan == nil {
				if t.head, err = findRun(ctx, j, name); err != nil {
					return err
				}
				if t.plan, err = store.LoadPlan(ctx, j, t.head); err != nil {
					return err
				}
				a.sayImported(t.head)
			}
			// The head is read first: what it calls the end is then in the events. One
			// that could not be read leaves the last in place, which names the run.
			head, err := j.Head(ctx, t.head.Key)
			if err != nil {
				return err
			}
			t.head = head
			return eachShown(ctx, j, t.head.Key, t.plan, last, func(ev *journal.Event) error {
				last = ev.Seq
				return fn(&t, ev)
			})
		})
		switch {
		case ctx.Err() != nil && follow:
			return nil // the user has seen enough
		case errors.Is(err, fault.ServerUnreachable) && a.holderGone(ctx):
			continue // it ended while it was asked: the store has what it would have said
		case err != nil:
			return err
		case !follow || t.head.Ended != 0:
			return nil
		case !held:
			a.say("%s is %s and no process carries it on: `%s` does", t.head.Run, t.head.Status, a.hint("resume", t.head.Run))
			return nil
		}
		if !pause(ctx, lookAgain) {
			return nil
		}
	}
}

// holderGone says that nobody listens at the data directory any more. One that
// breaks off an answer may be about to end, so it is given a moment.
func (a *app) holderGone(ctx context.Context) bool {
	dir, err := a.config.DataDir()
	if err != nil {
		return false
	}
	for deadline := a.now().Add(patience); control.Dial(ctx, dir) != nil; {
		if a.now().After(deadline) || !pause(ctx, 20*time.Millisecond) {
			return false
		}
	}
	return ctx.Err() == nil
}
