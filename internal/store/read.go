// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// PageBytes is about how much of a journal is read at once.
const PageBytes = 1 << 20

// LoadPlan returns the plan a run started with; one that cannot be read is
// fault.StoreCorrupt.
func LoadPlan(ctx context.Context, r Reader, head Head) (*plan.Plan, error) {
	data, err := r.Plan(ctx, head.PlanHash)
	if err != nil {
		return nil, err
	}
	p, err := plan.Decode(data)
	if err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "run %s: its plan cannot be read: %v", head.Run, err)
	}
	return p, nil
}

// EachEvent calls fn for the run's events after `after`, in order, as far as
// they are stored, and checks that their numbers are dense (I14): one that is missing
// is fault.StoreCorrupt.
func EachEvent(ctx context.Context, r Reader, key Key, after uint64, fn func(*journal.Event) error) error {
	next := after + 1
	for {
		page, err := r.Events(ctx, key, next-1, PageBytes)
		if err != nil {
			return err
		}
		begin := next
		err = journal.EachEvent(page.Frames, func(ev *journal.Event) error {
			if ev.Seq < next {
				return nil // the page's first frame may begin earlier
			}
			if ev.Seq != next {
				return fault.New(fault.StoreCorrupt, "run %s: event %d is missing, the journal goes on with %d", key.Run, next, ev.Seq)
			}
			next++
			return fn(ev)
		})
		if err != nil {
			return err
		}
		if next == begin || next > page.Last {
			return nil
		}
	}
}
