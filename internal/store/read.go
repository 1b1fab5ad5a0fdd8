// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// PageBytes is about how many bytes of a journal are read at once.
const PageBytes = 256 << 10

// LoadPlan returns the plan that a run started with. If it cannot be read, the error is
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

// EachPage calls fn for the pages of the run's journal after event `after`, in order,
// as far as they are stored. It calls fn at least once, with an empty page when there
// are no such events.
func EachPage(ctx context.Context, r Reader, key Key, after uint64, fn func(*Page) error) error {
	for {
		page, err := r.Events(ctx, key, after, PageBytes)
		if err != nil {
			return err
		}
		if err := fn(&page); err != nil {
			return err
		}
		if page.Next <= after || page.Next >= page.Last {
			return nil
		}
		after = page.Next
	}
}

// EachEvent calls fn for the run's events after event `after`, in order, as far as
// they are stored, and checks that their numbers are dense (I14): one that is missing
// is fault.StoreCorrupt.
func EachEvent(ctx context.Context, r Reader, key Key, after uint64, fn func(*journal.Event) error) error {
	next := after + 1
	return EachPage(ctx, r, key, after, func(page *Page) error {
		return journal.EachEvent(page.Frames, func(ev *journal.Event) error {
			if ev.Seq < next {
				return nil // the page's first frame may begin earlier
			}
			if ev.Seq != next {
				return fault.New(fault.StoreCorrupt, "run %s: event %d is missing, the journal goes on with %d", key.Run, next, ev.Seq)
			}
			next++
			return fn(ev)
		})
	})
}

// TakenBackError is the answer to a request whose effects were taken back with other runs of a tree.
func TakenBackError(run string) error {
	return &fault.Error{Code: fault.ServiceUnavailable, RetryAfterMS: 1000,
		Msg: "run " + run + " is being read again, as are other runs of its tree; try again in a moment"}
}

// QuarantinedError returns the error of a request to a run that is quarantined for
// reason, with the remedy.
func QuarantinedError(run, reason string) error {
	if strings.HasPrefix(reason, ImportedReason) {
		return fault.New(fault.Quarantined, "run %s was imported and is not carried on here: `roux runs adopt %s` makes it a run of this data directory", run, run)
	}
	if strings.HasPrefix(reason, CutOffReason) {
		return fault.New(fault.Quarantined, "run %s is quarantined: %s", run, reason)
	}
	return fault.New(fault.Quarantined, "run %s is quarantined: %s; `roux runs release %s` lets it go on", run, reason, run)
}
