// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// Fold returns the run that saved describes, after event `until` at the latest (0 =
// all of them).
func (p *Program) Fold(ctx context.Context, st store.Reader, saved *store.Saved, until uint64) (*machine.Run, error) {
	run := machine.NewRun(p.Machine())
	if saved.State != nil && saved.Format == machine.SnapshotFormat && (until == 0 || saved.StateLast <= until) {
		r, err := machine.Restore(p.Machine(), saved.State)
		if err != nil {
			return nil, fmt.Errorf("restore run %s from its snapshot at event %d: %w", saved.Head.Run, saved.StateLast, err)
		}
		run = r
	}
	apply := func(ev *journal.Event) error {
		if ev.Seq <= run.Last() {
			return nil
		}
		if until != 0 && ev.Seq > until {
			return errEnough
		}
		return run.Apply(ev)
	}
	if run.Last() < saved.StateLast { // there is a snapshot of another format: read its events instead
		if err := store.EachEvent(ctx, st, saved.Head.Key, run.Last(), apply); err != nil && !errors.Is(err, errEnough) {
			return nil, fmt.Errorf("fold run %s: %w", saved.Head.Run, err)
		}
	}
	if err := journal.EachEvent(saved.Tail, apply); err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("fold run %s: %w", saved.Head.Run, err)
	}
	if until == 0 && run.Last() != saved.Last {
		return nil, fault.New(fault.StoreCorrupt, "run %s: folded to event %d, its journal has %d", saved.Head.Run, run.Last(), saved.Last)
	}
	return run, supply(ctx, st, saved.Head.Key, run)
}

// errEnough stops a walk over events before its end.
var errEnough = errors.New("enough")

// supply reads the values that a snapshot only references and gives them to the
// restored run.
func supply(ctx context.Context, st store.Reader, key store.Key, run *machine.Run) error {
	missing := run.Missing()
	for len(missing) > 0 {
		page, err := st.Events(ctx, key, missing[0]-1, store.PageBytes)
		if err != nil {
			return err
		}
		if page.Next < missing[0] {
			return fault.New(fault.StoreCorrupt, "run %s: event %d holds a value of its state and is not stored", key.Run, missing[0])
		}
		err = journal.EachEvent(page.Frames, func(ev *journal.Event) error {
			for len(missing) > 0 && missing[0] < ev.Seq {
				missing = missing[1:]
			}
			if len(missing) > 0 && missing[0] == ev.Seq {
				missing = missing[1:]
				return run.Supply(ev)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
