// SPDX-License-Identifier: Apache-2.0

// Package reads answers questions about runs from what is stored. It decides what a reader may
// know of a run, and changes nothing.
package reads

import (
	"context"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/masks"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// A Reader reads runs.
type Reader struct {
	Store    store.Store
	Programs *program.Cache
}

// ErrDeleted is what a run answers that its user has deleted: as one that does not exist.
func ErrDeleted(run string) error { return fault.New(fault.RunNotFound, "no run %q", run) }

// Head returns the run's head row as of its last commit. A run that its user has deleted,
// or that is below one, is fault.RunNotFound.
func (r *Reader) Head(ctx context.Context, account, run string) (store.Head, error) {
	head, err := r.Store.Head(ctx, store.Key{Account: account, Run: run})
	root := head
	if err == nil && head.Root != "" {
		root, err = r.Store.Head(ctx, store.Key{Account: account, Run: head.Root})
	}
	if root.Deleted != 0 {
		return store.Head{}, ErrDeleted(run)
	}
	return head, err
}

// List returns heads, newest first.
func (r *Reader) List(ctx context.Context, q store.Query) ([]store.Head, error) {
	return r.Store.List(ctx, q)
}

// State returns the state of the run as of its last commit, or as of event `until` (0 =
// the last). The caller owns the returned copy. State never blocks the loop. Because
// the engine answers only when things are durable, the state is never older than an
// answer.
func (r *Reader) State(ctx context.Context, account, run string, until uint64) (*machine.Run, error) {
	saved, err := r.Store.Load(ctx, store.Key{Account: account, Run: run})
	if err != nil {
		return nil, err
	}
	prog, err := r.Programs.Load(ctx, r.Store, saved.Head.PlanHash)
	if err != nil {
		return nil, err
	}
	if until != 0 && saved.StateLast > until {
		saved.State = nil
	}
	return prog.Fold(ctx, r.Store, saved, until)
}

// History returns what happened to the run's steps, at most maxSteps of them, in the
// form that people are shown: inputs that the recipe marks as writeOnly are masked.
func (r *Reader) History(ctx context.Context, account, run string, maxSteps int) (*journal.History, error) {
	key := store.Key{Account: account, Run: run}
	p, mask, err := r.MaskOf(ctx, account, run)
	if err != nil {
		return nil, err
	}
	h := journal.NewHistory(p, maxSteps)
	err = store.EachEvent(ctx, r.Store, key, 0, func(ev *journal.Event) error {
		h.Add(mask.Event(ev))
		return nil
	})
	return h, err
}

// MaskOf returns the plan of a run, and what hides inputs that are marked as writeOnly.
func (r *Reader) MaskOf(ctx context.Context, account, run string) (*plan.Plan, *view.Mask, error) {
	head, err := r.Head(ctx, account, run)
	if err != nil {
		return nil, nil, err
	}
	p, err := r.Programs.Plan(ctx, r.Store, head.PlanHash)
	if err != nil {
		return nil, nil, err
	}
	mask, err := masks.Of(ctx, r.Store, head, p)
	return p, mask, err
}
