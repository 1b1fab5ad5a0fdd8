// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"sync"
	"time"
)

// cancelState is the cancellation state of an attempt's context. Most actions return
// at once and never wait for cancellation, so the channel and the parent of child
// contexts are created on first use.
type cancelState struct {
	mu     sync.Mutex
	cause  error           // why the context ended; nil while it has not
	parent context.Context // a cancellable context, created on demand
	cancel context.CancelCauseFunc
}

// end cancels the context of the attempt. The first cause is kept.
func (a *attempt) end(cause error) {
	e := &a.cancelled
	e.mu.Lock()
	if e.cause == nil {
		e.cause = cause
	}
	cancel := e.cancel
	e.mu.Unlock()
	if cancel != nil {
		cancel(cause) // has no effect after the first call
	}
}

// cause returns why the context ended, or nil while it has not.
func (a *attempt) cause() error {
	a.cancelled.mu.Lock()
	defer a.cancelled.mu.Unlock()
	return a.cancelled.cause
}

// context returns the context that backs the attempt's own. Derived contexts find it
// through Value and register with it, so they need no goroutine.
func (a *attempt) context() context.Context {
	e := &a.cancelled
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

// The attempt implements the context that its action receives.

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
