// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"errors"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// Importing is why a run is quarantined until all of it is stored.
const Importing = store.ImportedReason + " in part, because the import was interrupted: import it again"

// WithoutMasked is part of the reason of an imported run whose journal lacks values
// that its steps read.
const WithoutMasked = ", without what was masked or redacted"

// Commit stores the run for an account, in several transactions when it is long. Until
// the last one the run is quarantined, so that a part of a run never continues. state is
// "imported", or "unchanged" when it was stored before. Another run with that id is
// fault.Conflict.
func (b *Bundle) Commit(ctx context.Context, st store.Store, account string) (state string, err error) {
	key := store.Key{Account: account, Run: b.Run}
	done, err := b.have(ctx, st, key)
	switch {
	case errors.Is(err, fault.RunNotFound):
	case err != nil:
		return "", err
	case done == b.State.Last():
		return "unchanged", nil
	}
	epoch, err := st.Own(ctx)
	if err != nil {
		return "", err
	}
	head := store.Head{Key: key, Recipe: b.Recipe, PlanHash: b.Definition.Key(), Status: b.State.Status().String(), Created: b.created,
		Updated: b.created, Ended: b.ended, Used: b.State.Used(), Failures: b.State.HasFailures()}
	if b.ended != 0 {
		head.Code, head.Message = b.State.Failure()
	}
	head.Quarantine = store.ImportedReason
	if b.Unverified {
		head.Quarantine += ", not verified"
	}
	if b.Partial {
		head.Quarantine += WithoutMasked
	}
	if b.Imported {
		head.Quarantine += ", also where it was exported"
	}
	if b.ended == 0 {
		head.Quarantine += "; it had not ended where it ran"
	}
	unfinished := head
	unfinished.Quarantine = Importing
	t := store.Transition{Key: key, Epoch: epoch}
	flush := func(h store.Head) error {
		t.Head = &h
		if t.First == 1 {
			t.Plans = []store.EncodedPlan{{Key: b.Definition.Key(), Data: b.planText}}
		}
		verdicts, err := st.Commit(ctx, []store.Transition{t})
		if err == nil {
			err = verdicts[0].Err
		}
		t = store.Transition{Key: key, Epoch: epoch}
		return err
	}
	err = journal.EachEvent(b.journal, func(ev *journal.Event) error {
		if ev.Seq <= done {
			return nil
		}
		if len(t.Frames) > b.Piece {
			if err := flush(unfinished); err != nil {
				return err
			}
		}
		if t.First == 0 {
			t.First = ev.Seq
		}
		t.Last = ev.Seq
		t.Frames = journal.AppendFrame(t.Frames, []journal.Event{*ev})
		return nil
	})
	if err != nil {
		return "", err
	}
	return "imported", flush(head)
}

// have is how many events of the run are stored already. It fails when the stored
// events are those of another run.
func (b *Bundle) have(ctx context.Context, st store.Store, key store.Key) (uint64, error) {
	head, err := st.Head(ctx, key)
	if err != nil {
		return 0, err
	}
	last, same := uint64(0), plan.HashOf(head.PlanHash) == b.Plan
	var mine [][]byte
	err = journal.EachEvent(b.journal, func(ev *journal.Event) error {
		mine = append(mine, journal.AppendFrame(nil, []journal.Event{*ev}))
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = store.EachEvent(ctx, st, key, 0, func(ev *journal.Event) error {
		last = ev.Seq
		same = same && last <= uint64(len(mine)) && slices.Equal(mine[last-1], journal.AppendFrame(nil, []journal.Event{*ev}))
		return nil
	})
	if err == nil && (!same || last < uint64(len(mine)) && head.Quarantine != Importing) {
		err = fault.New(fault.Conflict, "there is another run %s here: import into an empty directory with --data DIR", b.Run)
	}
	return last, err
}
