// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
)

// pollInterval is the time between two reads of a run that another process
// carries on.
const pollInterval = 100 * time.Millisecond

// A followedEvents is the run whose events a command reads.
type followedEvents struct {
	head store.Head
	plan *plan.Plan
}

// followEvents calls fn for the stored events of a run after number `after`, in
// order. With follow it continues with new events until the run has ended, no
// process carries it on, or the user interrupts the command.
func (a *app) followEvents(ctx context.Context, name string, after uint64, follow bool, fn func(*followedEvents, *journal.Event) error) error {
	if follow {
		var stop func()
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
	}
	last, held := after, false
	var t followedEvents
	for {
		err := a.reading(ctx, func(ctx context.Context, j store.Reader) (err error) {
			held = carriesOn(j)
			if t.plan == nil {
				if t.head, err = a.findRun(ctx, j, name); err != nil {
					return err
				}
				if t.plan, err = store.LoadPlan(ctx, j, t.head); err != nil {
					return err
				}
				a.sayImported(t.head)
			}
			// The head is read first, so that the events include the end it reports. If
			// it cannot be read, the last one stays in use: it names the run.
			head, err := j.Head(ctx, t.head.Key)
			if err != nil {
				return err
			}
			t.head = head
			if s, ok := j.(*remote.Server); ok && follow {
				return s.Watch(ctx, head.Run, last, func(ev *journal.Event) error {
					last = ev.Seq
					if ev.Kind.Ends() {
						t.head.Ended = ev.At
					}
					return fn(&t, ev)
				})
			}
			return eachShown(ctx, j, t.head.Key, t.plan, last, func(ev *journal.Event) error {
				last = ev.Seq
				return fn(&t, ev)
			})
		})
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return ctx.Err() // --timeout
		case ctx.Err() != nil && follow:
			return nil // the user has interrupted the command
		case a.target == nil && errors.Is(err, fault.ServerUnreachable) && a.holderGone(ctx):
			continue // it ended during the request: its answer is in the store
		case err != nil:
			return err
		case !follow || t.head.Ended != 0:
			return nil
		case !held:
			a.say("%s is %s and no process carries it on: `%s` does", t.head.Run, t.head.Status, a.hint("resume", t.head.Run))
			return nil
		}
		pause(ctx, pollInterval)
	}
}

// holderGone reports whether no process holds the data directory any more. One
// that cuts off an answer may be about to end, so holderGone waits for a moment.
func (a *app) holderGone(ctx context.Context) bool {
	dir, err := a.config.DataDir()
	if err != nil {
		return false
	}
	for deadline := a.now().Add(patience); a.dial(ctx, dir) != nil; {
		if a.now().After(deadline) || !pause(ctx, 20*time.Millisecond) {
			return false
		}
	}
	return ctx.Err() == nil
}
