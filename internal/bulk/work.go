// SPDX-License-Identifier: Apache-2.0

package bulk

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// The pauses after an error of the store or of the engine.
const firstPause, longestPause = 100 * time.Millisecond, 30 * time.Second

// account carries out the open bulks of an account, one after the other.
func (b *Bulks) account(ctx context.Context, account string) {
	pause := firstPause
	for {
		b.mu.Lock()
		if len(b.open[account]) == 0 || ctx.Err() != nil {
			delete(b.busy, account)
			b.mu.Unlock()
			return
		}
		id := b.open[account][0]
		b.mu.Unlock()
		ended, err := b.step(ctx, account, id)
		switch {
		case ctx.Err() != nil:
			continue
		case err != nil && (fault.CodeOf(err) == fault.Stopping || fault.CodeOf(err) == fault.StaleEpoch || b.engine.Err() != nil):
			b.mu.Lock()
			delete(b.busy, account)
			b.mu.Unlock()
			return // the process ends
		case err != nil:
			b.cfg.Logger.Warn("a bulk cannot go on; it is tried again", "account", account, "bulk", id, "err", err)
			wait(ctx, pause)
			pause = min(2*pause, longestPause)
			continue
		case ended:
			b.mu.Lock()
			if b.open[account] = b.open[account][1:]; len(b.open[account]) == 0 {
				delete(b.open, account)
			}
			b.mu.Unlock()
		}
		pause = firstPause
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// step carries out a page of a bulk: it records which runs are next, does to them what is to
// be done, and records the results. It reports whether the bulk has ended.
func (b *Bulks) step(ctx context.Context, account, id string) (ended bool, err error) {
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	begin := time.Now()
	bulk, err := b.Get(ctx, account, id)
	switch {
	case fault.CodeOf(err) == fault.RecordNotFound, err == nil && bulk.State.Ended():
		return true, nil // a restored copy of the records may have such
	case err != nil:
		return false, err
	}
	var items []*Item
	if bulk.Settled < bulk.Matched { // recorded before a crash
		if items, _, err = b.Items(ctx, account, id, bulk.Settled, pageRuns); err == nil && len(items) == 0 {
			err = b.lost(ctx, account, id)
		}
	} else if bulk.State != Cancelling && !bulk.Selected {
		items, err = b.plan(ctx, account, bulk)
	}
	if err != nil {
		return false, err
	}
	if err := b.carryOut(ctx, account, bulk, items); err != nil {
		return false, err
	}
	bulk, err = b.record(ctx, account, id, items)
	if err != nil {
		return false, err
	}
	if !bulk.State.Ended() && len(items) > 0 {
		wait(ctx, time.Duration(len(items))*time.Second/time.Duration(b.cfg.Pace)-time.Since(begin))
	}
	return bulk.State.Ended(), nil
}

// lost gives up items that were recorded and are not there any more: nothing is left of a bulk
// that stood still for longer than items are kept.
func (b *Bulks) lost(ctx context.Context, account, id string) error {
	b.cfg.Logger.Error("items of a bulk are gone before they had a result", "account", account, "bulk", id)
	_, err := b.update(ctx, account, id, func(now *Bulk) ([]store.RecordChange, error) {
		now.Failed += now.Matched - now.Settled
		now.Settled = now.Matched
		return nil, nil
	})
	return err
}

// plan selects the next runs and records them as items, before anything is done to them.
func (b *Bulks) plan(ctx context.Context, account string, bulk *Bulk) (items []*Item, err error) {
	sel := *bulk
	if items, err = b.next(ctx, account, &sel); err != nil {
		return nil, err
	}
	if room := MaxRuns - bulk.Matched; len(items) > room || len(items) == room && !sel.Selected {
		items, sel.Selected, sel.More = items[:room], true, true
	}
	_, err = b.update(ctx, account, bulk.ID, func(now *Bulk) (changes []store.RecordChange, err error) {
		switch now.State {
		case Cancelling: // it was running a moment ago
			items = nil
			return nil, nil
		case Queued:
			now.State = Running
		}
		now.After, now.Before, now.Selected, now.More = sel.After, sel.Before, sel.Selected, sel.More
		for _, it := range items {
			now.Matched++
			it.Number = now.Matched
			now.Groups = count(now.Groups, it)
			c, err := b.itemChange(account, bulk.ID, it)
			if err != nil {
				return nil, err
			}
			changes = append(changes, c)
		}
		return changes, nil
	})
	return items, err
}

func (b *Bulks) itemChange(account, id string, it *Item) (store.RecordChange, error) {
	return change(itemKey(account, id, it.Number), store.AnyRevision, b.cfg.Now().Add(b.cfg.Keep).UnixMicro(), it)
}

// carryOut does what is to be done to the runs of items, a few at a time. Without an error
// every item has a result. A cancelled bulk finishes what it has recorded, because nobody
// knows whether it was begun before a crash.
func (b *Bulks) carryOut(ctx context.Context, account string, bulk *Bulk, items []*Item) error {
	slots := make(chan struct{}, parallel)
	errs := make([]error, len(items))
	var done sync.WaitGroup
	for i, it := range items {
		if it.Result != Pending {
			continue
		}
		slots <- struct{}{}
		done.Go(func() {
			defer func() { <-slots }()
			errs[i] = b.do(ctx, account, bulk, it)
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

// do does one thing to one run. An error means that nothing is known yet.
func (b *Bulks) do(ctx context.Context, account string, bulk *Bulk, it *Item) error {
	head, err := b.store.Head(ctx, store.Key{Account: account, Run: it.Run})
	if err == nil {
		var already bool
		if already, err = done(bulk.Verb, &head, it); already {
			it.settle(err)
			return nil
		}
		err = b.ask(ctx, account, bulk, it.Run)
	}
	switch code := fault.CodeOf(err); {
	case ctx.Err() != nil:
		return ctx.Err()
	case code == fault.Stopping, code == fault.StaleEpoch, code == fault.StoreFailed, b.engine.Err() != nil:
		return errors.Join(err, b.engine.Err())
	case code == "" && err != nil:
		b.cfg.Logger.Error("a run of a bulk failed inside", "account", account, "bulk", bulk.ID, "run", it.Run, "err", err)
	}
	it.settle(err)
	return nil
}

// done reports whether the run is as the verb wants it. If it was so before the bulk came to
// it, err says so; else this bulk has done it, before a crash.
func done(v Verb, h *store.Head, it *Item) (already bool, err error) {
	switch v {
	case Cancel:
		if already = h.Status == journal.RunCancelled.String(); already && it.Status == h.Status {
			err = fault.New(fault.TooLate, "the run was cancelled before")
		}
	case Delete:
		already = h.Deleted != 0 // one that was deleted before is not selected
	case Retry:
		already = it.Ended != 0 && h.Ended != it.Ended // its end is another one, or is not yet
	}
	return already, err
}

func (b *Bulks) ask(ctx context.Context, account string, bulk *Bulk, run string) error {
	switch bulk.Verb {
	case Cancel:
		return b.engine.Cancel(ctx, account, run, bulk.Reason)
	case Retry:
		return b.engine.Retry(ctx, account, run, engine.RetryRequest{})
	case Delete:
		return b.engine.SoftDelete(ctx, account, run)
	case Pause:
		return b.engine.Pause(ctx, account, run, bulk.Reason)
	}
	return b.engine.Unpause(ctx, account, run)
}

// record records the results of items, and the end of the bulk if these were the last ones.
func (b *Bulks) record(ctx context.Context, account, id string, items []*Item) (*Bulk, error) {
	return b.update(ctx, account, id, func(now *Bulk) (changes []store.RecordChange, err error) {
		for _, it := range items {
			switch it.Result {
			case ItemDone:
				now.Done++
			case ItemSkipped:
				now.Skipped++
			default:
				now.Failed++
			}
			c, err := b.itemChange(account, id, it)
			if err != nil {
				return nil, err
			}
			changes = append(changes, c)
		}
		now.Settled += len(items)
		if now.Settled == now.Matched && (now.Selected || now.State == Cancelling) {
			if now.State != Cancelling || now.Selected {
				now.State = Completed
			} else {
				now.State = Cancelled
			}
			now.Ended = b.cfg.Now().UnixMicro()
		}
		return changes, nil
	})
}
