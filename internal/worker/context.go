// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"sync"
	"time"
)

// ending is how the context of an attempt ends. Most actions return at once and
// never wait for it: the channel and what follows children are made when
// somebody first asks.
type ending struct {
	mu     sync.Mutex
	cause  error           // why it ended; nil = it has not
	parent context.Context // a cancellable context, made on demand
	cancel context.CancelCauseFunc
}

// end ends the context of the attempt. The first cause stays.
func (a *attempt) end(cause error) {
	e := &a.ended
	e.mu.Lock()
	if e.cause == nil {
		e.cause = cause
	}
	cancel := e.cancel
	e.mu.Unlock()
	if cancel != nil {
		cancel(cause) // later ones change nothing
	}
}

// cause is why the context ended; nil = it has not.
func (a *attempt) cause() error {
	a.ended.mu.Lock()
	defer a.ended.mu.Unlock()
	return a.ended.cause
}

// context is what the attempt's context derives from. Children find it through
// Value and hang themselves below it, so they cost no goroutine.
func (a *attempt) context() context.Context {
	e := &a.ended
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.parent == nil {
		e.parent, e.cancel = context.WithCancelCause(context.Background())
		if e.cause != nil {
			e.cancel(e.cause)
		}
	}
	return e.parent
}

// The attempt is the context of its action.

func (a *attempt) Deadline() (time.Time, bool) { return a.deadline, !a.deadline.IsZero() }
func (a *attempt) Done() <-chan struct{}       { return a.context().Done() }
func (a *attempt) Value(key any) any           { return a.context().Value(key) }

func (a *attempt) Err() error {
	if a.cause() == nil {
		return nil
	}
	return context.Canceled
}

var _ context.Context = (*attempt)(nil)
