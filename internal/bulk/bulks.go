// SPDX-License-Identifier: Apache-2.0

package bulk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/store"
)

// Records are where bulks are kept; see store.Records.
type Records interface {
	Record(ctx context.Context, key store.RecordKey) (store.Record, error)
	Records(ctx context.Context, q store.RecordQuery) (page []store.Record, more bool, err error)
	PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error)
}

// Store is what bulks read of runs.
type Store interface {
	store.Reader
	store.Searcher
}

// Config is what Bulks are made of. Fields without a default are required.
type Config struct {
	Records Records
	NewID   func() (string, error) // with IDPrefix
	Now     func() time.Time
	// Pace is how many runs of one bulk are done in a second, at most. Default 200.
	Pace int
	// Keep is how long a bulk and its items are kept after its end. Default 30 days.
	Keep   time.Duration
	Logger *slog.Logger // default: discarded
}

const (
	// pageRuns is how many runs are recorded, and then done, at once.
	pageRuns = 50
	// parallel is how many runs of a page are done at the same time.
	parallel = 4
	// working is how many accounts have a bulk in progress at the same time.
	working = 4
)

// Bulks are the bulks of all accounts. They are safe for concurrent use. This process is the
// only one that changes them.
type Bulks struct {
	cfg    Config
	engine *engine.Engine
	store  Store
	slots  chan struct{}

	writing sync.Mutex // one change of bulks at a time

	mu   sync.Mutex
	ctx  context.Context // of the workers; nil before Start and after Stop
	stop context.CancelFunc
	open map[string][]string // ids of the bulks of an account that have not ended, the oldest first
	busy map[string]bool     // accounts that have a worker
	done sync.WaitGroup
}

// New returns bulks of which none is carried out before Start.
func New(cfg Config) (*Bulks, error) {
	if cfg.Records == nil || cfg.NewID == nil || cfg.Now == nil {
		return nil, errors.New("bulk: Records, NewID and Now are required")
	}
	cfg.Pace, cfg.Keep = cmp.Or(cfg.Pace, 200), cmp.Or(cfg.Keep, 30*24*time.Hour)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Bulks{cfg: cfg, slots: make(chan struct{}, working), open: map[string][]string{}, busy: map[string]bool{}}, nil
}

// Attach tells the bulks their engine. Start, if it is called, follows.
func (b *Bulks) Attach(e *engine.Engine, s Store) { b.engine, b.store = e, s }

// Start carries on the bulks that have not ended.
func (b *Bulks) Start(ctx context.Context) error {
	q := store.RecordQuery{Kind: kindOpen, Limit: 500}
	for {
		page, more, err := b.cfg.Records.Records(ctx, q)
		if err != nil {
			return err
		}
		for i := range page {
			of, err := store.DecodeRecord[open](&page[i])
			if err != nil {
				return err
			}
			b.open[of.Account] = append(b.open[of.Account], page[i].ID)
			q.After = page[i].ID
		}
		if !more {
			break
		}
	}
	b.StartNew(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	for account := range b.open {
		b.work(account)
	}
	return nil
}

// StartNew is Start for a process that carries on only what is created in it. The next Start
// carries on the others.
func (b *Bulks) StartNew(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
}

// Stop ends the workers after the runs that they are at. The next Start carries on.
func (b *Bulks) Stop() {
	b.mu.Lock()
	if b.ctx != nil {
		b.stop()
		b.ctx = nil
	}
	b.mu.Unlock()
	b.done.Wait()
}

// work makes the account's worker work. b.mu is held.
func (b *Bulks) work(account string) {
	if b.ctx == nil || b.busy[account] {
		return
	}
	b.busy[account] = true
	ctx := b.ctx
	b.done.Go(func() { b.account(ctx, account) })
}

func bulkKey(account, id string) store.RecordKey {
	return store.RecordKey{Account: account, Kind: kindBulk, ID: id}
}

func itemKey(account, id string, n int) store.RecordKey {
	return store.RecordKey{Account: account, Kind: kindItem, ID: fmt.Sprintf("%s.%06d", id, n)}
}

// Create makes a bulk, which is durable when it returns, and begins to carry it out. It takes
// only runs that were created before.
func (b *Bulks) Create(ctx context.Context, account string, spec *Spec) (*Bulk, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	n := len(b.open[account])
	b.mu.Unlock()
	if n >= MaxOpen {
		return nil, fault.OverQuota("bulks", n, MaxOpen, "the account has %d bulks that have not ended, which is the most: wait for one, or cancel one", n)
	}
	id, err := b.cfg.NewID()
	if err != nil {
		return nil, err
	}
	ids := slices.Clone(spec.IDs)
	slices.Sort(ids)
	made := &Bulk{
		ID: id, Verb: spec.Verb, IDs: slices.Compact(ids), Filter: spec.Filter, Reason: spec.Reason, By: spec.By, State: Queued, Created: b.cfg.Now().UnixMicro(),
	}
	bulk, err := change(bulkKey(account, id), 0, 0, made)
	if err != nil {
		return nil, err
	}
	opened, err := change(store.RecordKey{Kind: kindOpen, ID: id}, 0, 0, open{account})
	if err != nil {
		return nil, err
	}
	stored, err := b.cfg.Records.PutRecords(ctx, bulk, opened)
	if err != nil {
		return nil, err
	}
	made.Revision = stored[0].Revision
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[account] = append(b.open[account], id)
	b.work(account)
	return made, nil
}

// Get returns a bulk, or fault.RecordNotFound.
func (b *Bulks) Get(ctx context.Context, account, id string) (*Bulk, error) {
	rec, err := b.cfg.Records.Record(ctx, bulkKey(account, id))
	if err != nil {
		if fault.CodeOf(err) == fault.RecordNotFound {
			err = fault.New(fault.RecordNotFound, "the account has no such bulk")
		}
		return nil, err
	}
	return bulkOf(&rec)
}

func bulkOf(rec *store.Record) (*Bulk, error) {
	out, err := store.DecodeRecord[Bulk](rec)
	if err == nil {
		out.Revision = rec.Revision
	}
	return out, err
}

// List returns the bulks of an account, the newest first. place is where the page begins, and
// next where the following one does; "" = it was the last.
func (b *Bulks) List(ctx context.Context, account, place string, limit int) (list []*Bulk, next string, err error) {
	page, more, err := b.cfg.Records.Records(ctx, store.RecordQuery{Account: account, Kind: kindBulk, After: place, Newest: true, Limit: limit})
	if err != nil {
		return nil, "", err
	}
	for i := range page {
		bulk, err := bulkOf(&page[i])
		if err != nil {
			return nil, "", err
		}
		list = append(list, bulk)
	}
	if more {
		next = page[len(page)-1].ID
	}
	return list, next, nil
}

// Items returns the items of a bulk after a number, in the order in which they are done, and
// the number after which the next page begins; 0 = this is the last one so far.
func (b *Bulks) Items(ctx context.Context, account, id string, after, limit int) (list []*Item, next int, err error) {
	if _, err := b.Get(ctx, account, id); err != nil {
		return nil, 0, err
	}
	q := store.RecordQuery{Account: account, Kind: kindItem, Prefix: id + ".", Limit: limit}
	if after > 0 {
		q.After = itemKey(account, id, after).ID
	}
	page, more, err := b.cfg.Records.Records(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	for i := range page {
		it, err := itemOf(&page[i])
		if err != nil {
			return nil, 0, err
		}
		list = append(list, it)
	}
	if more {
		next = list[len(list)-1].Number
	}
	return list, next, nil
}

func itemOf(rec *store.Record) (*Item, error) {
	it, err := store.DecodeRecord[Item](rec)
	if err == nil {
		it.Number, err = strconv.Atoi(rec.ID[len(rec.ID)-6:])
	}
	return it, err
}

// Cancel lets a bulk take no further runs. What it has done stays done. fault.TooLate means
// that it has ended.
func (b *Bulks) Cancel(ctx context.Context, account, id string) (*Bulk, error) {
	return b.update(ctx, account, id, func(bulk *Bulk) ([]store.RecordChange, error) {
		if bulk.State.Ended() {
			return nil, fault.New(fault.TooLate, "the bulk is %s", bulk.State)
		}
		bulk.State = Cancelling
		return nil, nil
	})
}

// update changes a bulk, and other records in the same transaction.
func (b *Bulks) update(ctx context.Context, account, id string, fn func(*Bulk) ([]store.RecordChange, error)) (*Bulk, error) {
	b.writing.Lock()
	defer b.writing.Unlock()
	bulk, err := b.Get(ctx, account, id)
	if err != nil {
		return nil, err
	}
	more, err := fn(bulk)
	if err != nil {
		return nil, err
	}
	until := int64(0)
	if bulk.Ended != 0 {
		until = bulk.Ended + b.cfg.Keep.Microseconds()
		more = append(more, store.Deletion(store.RecordKey{Kind: kindOpen, ID: id}))
	}
	c, err := change(bulkKey(account, id), bulk.Revision, until, bulk)
	if err != nil {
		return nil, err
	}
	stored, err := b.cfg.Records.PutRecords(ctx, append([]store.RecordChange{c}, more...)...)
	if err != nil {
		return nil, err
	}
	bulk.Revision = stored[0].Revision
	return bulk, nil
}
