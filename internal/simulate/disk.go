// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A disk is the store as one process sees it: calls fail, and the process may die in a
// call.
type disk struct {
	*memory.Store
	p     *process
	epoch uint64
	open  int // calls under way (F48: readers that pause hold none)
}

// processDied is the panic value of a call in which the process dies.
type processDied struct{ p *process }

var errRead = fault.New(fault.ServiceUnavailable, "the store does not answer")

// enter begins a call.
func (d *disk) enter() (leave func()) {
	w := d.p.w
	if d.p.dying || w.happens(KilledInCall) {
		panic(processDied{d.p})
	}
	d.open++
	return d.leave
}

func (d *disk) leave() { d.open-- }

// readFails reports whether this read fails.
func (d *disk) readFails() bool { return d.p.w.happens(ReadFailed) }

// Own implements store.Store.
func (d *disk) Own(ctx context.Context) (uint64, error) {
	defer d.enter()()
	if d.readFails() {
		return 0, errRead
	}
	d.p.w.owner = d.p
	epoch, err := d.Store.Own(ctx)
	d.epoch = epoch
	return epoch, err
}

// Commit implements store.Store. The checker sees every batch that was synced.
func (d *disk) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	defer d.enter()()
	verdicts, err := d.Store.Commit(ctx, batch)
	d.p.w.checker.committed(batch, verdicts, err)
	return verdicts, err
}

// Load implements store.Store.
func (d *disk) Load(ctx context.Context, key store.Key) (*store.Saved, error) {
	defer d.enter()()
	if d.readFails() {
		return nil, errRead
	}
	return d.Store.Load(ctx, key)
}

// Account implements store.Store.
func (d *disk) Account(ctx context.Context, account string, at int64) (*ledger.Account, error) {
	defer d.enter()()
	if d.readFails() {
		return nil, errRead
	}
	return d.Store.Account(ctx, account, at)
}

// Recover implements store.Store.
func (d *disk) Recover(ctx context.Context, fn func(*store.Saved) error) error {
	defer d.enter()()
	if d.readFails() {
		return errRead
	}
	return d.Store.Recover(ctx, fn)
}

// Due implements store.Store.
func (d *disk) Due(ctx context.Context, until int64, limit int) ([]store.Wake, error) {
	defer d.enter()()
	if d.readFails() {
		return nil, errRead
	}
	return d.Store.Due(ctx, until, limit)
}

// Events implements store.Store. No process dies in it, because the engine calls it
// where it recovers panics of a replay.
func (d *disk) Events(ctx context.Context, key store.Key, after uint64, maxBytes int) (store.Page, error) {
	d.open++
	defer d.leave()
	return d.Store.Events(ctx, key, after, maxBytes)
}

// Head implements store.Store.
func (d *disk) Head(ctx context.Context, key store.Key) (store.Head, error) {
	d.open++
	defer d.leave()
	if d.readFails() {
		return store.Head{}, errRead
	}
	return d.Store.Head(ctx, key)
}

// Note implements store.Store.
func (d *disk) Note(ctx context.Context, name string) ([]byte, error) {
	defer d.enter()()
	if d.readFails() {
		return nil, errRead
	}
	return d.Store.Note(ctx, name)
}

// SetNote implements store.Store.
func (d *disk) SetNote(ctx context.Context, epoch uint64, name string, value []byte) error {
	defer d.enter()()
	if d.readFails() {
		return errRead
	}
	return d.Store.SetNote(ctx, epoch, name, value)
}

// Delete implements store.Store.
func (d *disk) Delete(ctx context.Context, epoch uint64, at int64, keys []store.Key) ([]store.Verdict, error) {
	defer d.enter()()
	verdicts, err := d.Store.Delete(ctx, epoch, at, keys)
	for i, v := range verdicts {
		if err == nil && v.Err == nil {
			d.p.w.checker.deleted(keys[i], d.p)
		}
	}
	d.p.w.checker.followFeeds()
	return verdicts, err
}
