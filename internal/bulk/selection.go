// SPDX-License-Identifier: Apache-2.0

package bulk

import (
	"cmp"
	"context"
	"math"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

const (
	// previewRuns and previewPages bound what a preview selects and reads.
	previewRuns, previewPages = 2_000, 50
	// Sample is how many runs a preview shows.
	Sample = 10
	// lastEvents is how many events are read at the end of the journal of a run that has
	// failed: that it has is one of them.
	lastEvents = 16
)

// A Preview is what a bulk would take now.
type Preview struct {
	Matched int
	More    bool // there may be more than were looked at
	Sample  []*Item
	Groups  []Group
}

// Preview selects as a bulk would, and does nothing.
func (b *Bulks) Preview(ctx context.Context, account string, spec *Spec) (*Preview, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	sel := &Bulk{IDs: spec.IDs, Filter: spec.Filter, Created: b.cfg.Now().UnixMicro()}
	out := new(Preview)
	for range previewPages {
		items, err := b.next(ctx, account, sel)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			out.Matched++
			out.Groups = count(out.Groups, it)
			if len(out.Sample) < Sample {
				out.Sample = append(out.Sample, it)
			}
		}
		if sel.Selected {
			return out, nil
		}
		if out.Matched >= previewRuns {
			break
		}
	}
	out.More = true
	return out, nil
}

// next selects further runs of a bulk, and moves the place where its selection goes on. A
// page may have none although there are more.
func (b *Bulks) next(ctx context.Context, account string, bulk *Bulk) ([]*Item, error) {
	if bulk.Filter == nil {
		return b.nextIDs(ctx, account, bulk)
	}
	f := bulk.Filter
	q := store.Query{
		Account: account, Recipe: f.Recipe, Since: f.Since, After: bulk.After, Limit: pageRuns,
		Statuses: f.Statuses, Text: f.Text, Labels: f.Labels, CreatedBefore: bulk.Created,
	}
	if f.CreatedBefore != 0 {
		q.CreatedBefore = min(q.CreatedBefore, f.CreatedBefore)
	}
	heads, next, err := b.store.Search(ctx, q)
	if fault.CodeOf(err) == fault.RunNotFound && bulk.Before != 0 { // retention has removed the run
		q.After, q.CreatedBefore = "", min(q.CreatedBefore, bulk.Before+1)
		heads, next, err = b.store.Search(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	bulk.After, bulk.Selected = next, next == ""
	var items []*Item
	for i := range heads {
		h := &heads[i]
		if h.Damage != "" {
			continue // nothing is known of it but its id
		}
		bulk.Before = h.Created
		if f.Code != "" && h.Code != f.Code {
			continue
		}
		it, err := b.item(ctx, h)
		if err != nil {
			return nil, err
		}
		if f.Step == "" || it.RunStep == f.Step {
			items = append(items, it)
		}
	}
	return items, nil
}

// nextIDs selects further runs of a bulk that names them. After is the last id.
func (b *Bulks) nextIDs(ctx context.Context, account string, bulk *Bulk) (items []*Item, err error) {
	for _, id := range bulk.IDs {
		if id <= bulk.After {
			continue
		}
		if len(items) == pageRuns {
			return items, nil
		}
		bulk.After = id
		it := &Item{Run: id, Result: Pending}
		head, err := b.engine.Head(ctx, account, id)
		switch code := fault.CodeOf(err); {
		case err == nil:
			if it, err = b.item(ctx, &head); err != nil {
				return nil, err
			}
		case code == fault.RunNotFound, code == fault.StoreCorrupt:
			it.settle(err)
		default:
			return nil, err
		}
		items = append(items, it)
	}
	bulk.Selected = true
	return items, nil
}

// item makes the item of a run.
func (b *Bulks) item(ctx context.Context, h *store.Head) (*Item, error) {
	it := &Item{Run: h.Run, Recipe: h.Recipe, Result: Pending, Status: h.Status, Ended: h.Ended}
	if h.Ended == 0 || h.Status != journal.RunFailed.String() && h.Status != journal.RunExpired.String() {
		return it, nil
	}
	it.RunCode = h.Code
	var err error
	it.RunStep, err = b.failedStep(ctx, h)
	return it, err
}

// failedStep returns the id of the first step that failed in a run that has ended; "" = it is
// not known. It reads the end of the journal only.
func (b *Bulks) failedStep(ctx context.Context, h *store.Head) (string, error) {
	end, err := b.store.Events(ctx, h.Key, math.MaxInt64, 1)
	if err != nil {
		return "", gone(err)
	}
	p, _, err := b.engine.MaskOf(ctx, h.Account, h.Run)
	if err != nil {
		return "", gone(err)
	}
	step := ""
	err = store.EachEvent(ctx, b.store, h.Key, end.Last-min(end.Last, lastEvents), func(ev *journal.Event) error {
		step = cmp.Or(view.FailedStep(p, ev), step) // of the last generation that failed
		return nil
	})
	return step, gone(err)
}

// gone drops the error of a run that was removed meanwhile, or that is damaged: it is an item
// all the same, and the engine says what is wrong with it.
func gone(err error) error {
	switch fault.CodeOf(err) {
	case fault.RunNotFound, fault.StoreCorrupt, fault.RecipeNotFound:
		return nil
	}
	return err
}
