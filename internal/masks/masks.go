// SPDX-License-Identifier: Apache-2.0

// Package masks makes the masks of stored runs.
//
// It decides which values are hidden in a run: those that its recipe marks as writeOnly or x-sensitive,
// those that the recipes of the runs above it mark, and, where the run is told how a child
// run ended, those that the recipes of the runs below it mark. It hides nothing itself;
// that is what package view does with the mask.
package masks

import (
	"context"
	"errors"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// Of returns the mask of a run of p; nil when there is nothing to hide. A run above or
// below that is not stored hides nothing: an imported run is masked in its bundle.
func Of(ctx context.Context, j store.Reader, head store.Head, p *plan.Plan) (*view.Mask, error) {
	if head.Parent == "" {
		return Inside(ctx, j, head, p, nil)
	}
	key := store.Key{Account: head.Account, Run: head.Parent}
	up, err := j.Head(ctx, key)
	if fault.CodeOf(err) == fault.RunNotFound {
		return Inside(ctx, j, head, p, nil)
	}
	if err != nil {
		return nil, err
	}
	above, err := store.LoadPlan(ctx, j, up)
	if err != nil {
		return nil, err
	}
	theirs, err := Of(ctx, j, up, above)
	if err == nil && theirs != nil {
		err = learn(ctx, j, up, theirs)
	}
	if err != nil {
		return nil, err
	}
	return Inside(ctx, j, head, p, theirs)
}

// Inside is Of for a run whose parent has the mask above, which has seen the events of the
// parent; nil hides nothing.
func Inside(ctx context.Context, j store.Reader, head store.Head, p *plan.Plan, above *view.Mask) (*view.Mask, error) {
	mask, err := down(ctx, j, head, p)
	if err != nil {
		return nil, err
	}
	return mask.Inherit(above), nil
}

// learn applies a mask to what the journal of its run tells it.
func learn(ctx context.Context, j store.Reader, head store.Head, mask *view.Mask) error {
	// Only a root run can be retried with another input, which its journal says later.
	all := head.Parent == "" || mask.Late()
	err := store.EachEvent(ctx, j, head.Key, 0, func(ev *journal.Event) error {
		mask.Learn(ev)
		if !all {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// errEnough ends the reading of a journal early.
var errEnough = errors.New("enough was read")

// down returns the mask of a run without what the runs above it mark.
func down(ctx context.Context, j store.Reader, head store.Head, p *plan.Plan) (*view.Mask, error) {
	mask := view.NewMask(p)
	if marks, err := below(ctx, j, head, p); err != nil || !marks {
		return mask, err
	}
	// The mask may outlive the call, as that of a reader of many pages does.
	ctx = context.WithoutCancel(ctx)
	return mask.Below(func(run string) (*view.Mask, error) {
		child, err := j.Head(ctx, store.Key{Account: head.Account, Run: run})
		if fault.CodeOf(err) == fault.RunNotFound {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		p, err := store.LoadPlan(ctx, j, child)
		if err != nil {
			return nil, err
		}
		m, err := down(ctx, j, child, p)
		if err != nil || m == nil {
			return nil, err
		}
		return m, learn(ctx, j, child, m)
	}), nil
}

// Mark reports whether a value in the journal of a run of p, or in its error, may be
// hidden because of the recipe of the run or those of the runs below it.
func Mark(ctx context.Context, j store.Reader, head store.Head, p *plan.Plan) (bool, error) {
	if view.NewMask(p) != nil {
		return true, nil
	}
	return below(ctx, j, head, p)
}

// below reports whether a recipe that the steps of p run, or one further down, marks
// inputs.
func below(ctx context.Context, j store.Reader, head store.Head, p *plan.Plan) (bool, error) {
	if len(p.Children) == 0 {
		return false, nil
	}
	var tree *journal.Tree
	known, seen := false, map[string]bool{}
	for queue := []*plan.Plan{p}; len(queue) > 0; queue = queue[1:] {
		for i := range queue[0].Children {
			ref := &queue[0].Children[i]
			if ref.By != "" {
				return true, nil // whatever the expression names: the masks of the runs themselves tell
			}
			key := ref.Key
			if ref.Registered() {
				if !known {
					var err error
					if tree, err = treeOf(ctx, j, head); err != nil {
						return false, err
					}
					known = true
				}
				if r := tree.Recipe(ref.String()); r != nil {
					key = r.Key
				}
			}
			if key == "" || seen[key] {
				continue
			}
			seen[key] = true
			child, err := store.LoadPlan(ctx, j, store.Head{Key: head.Key, PlanHash: key})
			if fault.CodeOf(err) == fault.RecipeNotFound {
				continue // no run of it is stored
			}
			if err != nil {
				return false, err
			}
			if view.NewMask(child) != nil {
				return true, nil
			}
			queue = append(queue, child)
		}
	}
	return false, nil
}

// treeOf returns what all runs of a run's tree have in common, as the start of the root
// run has it; nil when that is not stored.
func treeOf(ctx context.Context, j store.Reader, head store.Head) (tree *journal.Tree, err error) {
	key := head.Key
	if head.Root != "" {
		key.Run = head.Root
	}
	err = store.EachEvent(ctx, j, key, 0, func(ev *journal.Event) error {
		tree, _ = view.Related(ev)
		return errEnough
	})
	if errors.Is(err, errEnough) || fault.CodeOf(err) == fault.RunNotFound {
		return tree, nil
	}
	return nil, err
}
