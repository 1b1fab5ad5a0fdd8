// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// Importing is why a run is quarantined until all of it is stored.
const Importing = store.ImportedReason + " in part, because the import was interrupted: import it again"

// WithoutMasked is part of the reason of an imported run whose journal lacks values
// that its steps read.
const WithoutMasked = ", without what was masked or redacted"

// Commit stores the run and the runs below it for an account, in several transactions
// when they are long. Until the last one the run is quarantined, so that a part of a run,
// or of a tree, never continues. state is "imported", or "unchanged" when everything was
// stored before. Another run with one of the ids is fault.Conflict.
func (b *Bundle) Commit(ctx context.Context, st store.Store, account string) (state string, err error) {
	key := store.Key{Account: account, Run: b.Run}
	done, head, err := b.stored(ctx, st, key, &b.own)
	switch {
	case err != nil:
		return "", err
	case done == b.own.last && head.Quarantine != Importing:
		return "unchanged", nil
	}
	w := &writer{st: st, piece: b.Piece}
	if w.epoch, err = st.Own(ctx); err != nil {
		return "", err
	}
	if err := w.write(ctx, b.head(key, &b.own), &b.own, done, b.encodedPlans()); err != nil {
		return "", err
	}
	for i := range b.below {
		c := &b.below[i]
		key := store.Key{Account: account, Run: c.run}
		done, stored, err := b.stored(ctx, st, key, c)
		if err != nil {
			return "", err
		}
		if done == c.last && stored.Quarantine != Importing {
			continue
		}
		head := b.head(key, c)
		head.Root, head.Parent, head.Labels = b.Run, c.parent, ""
		if err := w.write(ctx, head, c, done, nil); err != nil {
			return "", err
		}
		if err := w.finish(ctx, head); err != nil {
			return "", err
		}
	}
	if err := w.finish(ctx, b.head(key, &b.own)); err != nil {
		return "", err
	}
	return "imported", w.flush(ctx)
}

// encodedPlans are the plans of the bundle, that of the run first.
func (b *Bundle) encodedPlans() []store.EncodedPlan {
	list := []store.EncodedPlan{{Key: b.own.plan.Key(), Data: b.own.plan.text}}
	for _, hash := range slices.Sorted(maps.Keys(b.plans)) {
		if p := b.plans[hash]; p != b.own.plan {
			list = append(list, store.EncodedPlan{Key: p.Key(), Data: p.text})
		}
	}
	return list
}

// head is the head of an imported run.
func (b *Bundle) head(key store.Key, c *content) store.Head {
	head := c.head
	head.Key, head.Quarantine = key, store.ImportedReason
	if b.Unverified {
		head.Quarantine += ", not verified"
	}
	if b.Partial {
		head.Quarantine += WithoutMasked
	}
	if b.Imported {
		head.Quarantine += ", also where it was exported"
	}
	if head.Ended == 0 {
		head.Quarantine += "; it had not ended where it ran"
	}
	return head
}

// A writer stores imported runs.
type writer struct {
	st    store.Store
	epoch uint64
	piece int // bytes of journals per commit

	batch []store.Transition
	size  int // of their events, bytes
}

// maxBatch is how many transitions are stored per commit.
const maxBatch = 1000

// add adds a transition to the batch.
func (w *writer) add(ctx context.Context, t *store.Transition) error {
	t.Epoch = w.epoch
	w.batch, w.size = append(w.batch, *t), w.size+len(t.Frames)
	if w.size >= w.piece || len(w.batch) >= maxBatch {
		return w.flush(ctx)
	}
	return nil
}

// flush stores the batch.
func (w *writer) flush(ctx context.Context) error {
	if len(w.batch) == 0 {
		return nil
	}
	verdicts, err := w.st.Commit(ctx, w.batch)
	for i := range verdicts {
		if err == nil {
			err = verdicts[i].Err
		}
	}
	w.batch, w.size = nil, 0
	return err
}

// write stores the events of a run after number done. The run stays quarantined as one
// that is not whole; finish changes that.
func (w *writer) write(ctx context.Context, head store.Head, c *content, done uint64, plans []store.EncodedPlan) error { //nolint:gocritic // it is stored
	head.Quarantine = Importing
	t := store.Transition{Key: head.Key, Head: &head}
	if done == 0 {
		t.Plans = plans
		if plans == nil {
			t.Plans = []store.EncodedPlan{{Key: c.plan.Key(), Data: c.plan.text}}
		}
	}
	err := journal.EachEvent(c.journal, func(ev *journal.Event) error {
		if ev.Seq <= done {
			return nil
		}
		if len(t.Frames) > w.piece {
			if err := w.add(ctx, &t); err != nil {
				return err
			}
			t = store.Transition{Key: head.Key, Head: &head}
		}
		if t.First == 0 {
			t.First = ev.Seq
		}
		t.Last = ev.Seq
		t.Frames = journal.AppendFrame(t.Frames, []journal.Event{*ev})
		return nil
	})
	if err != nil || t.First == 0 {
		return err
	}
	return w.add(ctx, &t)
}

// finish marks a run as imported as a whole.
func (w *writer) finish(ctx context.Context, head store.Head) error { //nolint:gocritic // it is stored
	return w.add(ctx, &store.Transition{Key: head.Key, Head: &head})
}

// stored is how many events of a run are stored already, with its head. It fails when the
// stored events are those of another run.
func (b *Bundle) stored(ctx context.Context, st store.Store, key store.Key, c *content) (last uint64, head store.Head, err error) {
	head, err = st.Head(ctx, key)
	if errors.Is(err, fault.RunNotFound) {
		return 0, head, nil
	}
	if err != nil {
		return 0, head, err
	}
	same := head.PlanHash == c.plan.Key()
	var mine [][]byte
	err = journal.EachEvent(c.journal, func(ev *journal.Event) error {
		mine = append(mine, journal.AppendFrame(nil, []journal.Event{*ev}))
		return nil
	})
	if err != nil {
		return 0, head, err
	}
	err = store.EachEvent(ctx, st, key, 0, func(ev *journal.Event) error {
		last = ev.Seq
		same = same && last <= uint64(len(mine)) && slices.Equal(mine[last-1], journal.AppendFrame(nil, []journal.Event{*ev}))
		return nil
	})
	switch {
	case err != nil:
		return last, head, err
	case !same || last < uint64(len(mine)) && head.Quarantine != Importing:
		return last, head, fault.New(fault.Conflict, "there is another run %s here: import into an empty directory with --data DIR", c.run)
	case c.parent != "" && head.Parent != c.parent:
		return last, head, fault.New(fault.Conflict, "run %s is here without the run that started it: import into an empty directory with --data DIR", c.run)
	}
	return last, head, nil
}
