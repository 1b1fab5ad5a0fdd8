// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/store"
)

const (
	// maxStarts bounds the deliveries of an account that are being started, and reading how
	// many accounts have their changes looked at, at one time.
	maxStarts = 16
	reading   = 8
	// saveEvery is how many changes that no hook is told of are read before the cursor is
	// stored. After a crash at most that many are read again.
	saveEvery = 1000
	// MaxWaiting is how many deliveries of a hook may wait. A hook with more is disabled: its
	// receiver takes less than is sent to it.
	MaxWaiting = 100_000
	// The pauses after an error of the store or of the engine.
	firstPause, longestPause = 100 * time.Millisecond, 30 * time.Second
)

// followers are the readers of the feeds of accounts that have hooks, one for each.
type followers struct {
	mu      sync.Mutex
	ctx     context.Context // of all of them; nil before Start and after Stop
	stop    context.CancelFunc
	of      map[string]context.CancelFunc
	done    sync.WaitGroup
	reading chan struct{}
}

// Attach tells the hooks their engine, for which attempts at deliveries wait. From then on
// hooks can be changed and deliveries are sent; those of what happens wait for Start.
func (h *Hooks) Attach(host Host) {
	h.host = host
	close(h.attached)
}

// Start begins to read the feeds of accounts that have hooks, each from where it was last
// read to. Attach comes before.
func (h *Hooks) Start(ctx context.Context, execution Execution) error {
	f := &h.follow
	f.mu.Lock()
	h.execution = execution
	f.ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	f.of, f.reading = map[string]context.CancelFunc{}, make(chan struct{}, reading)
	f.mu.Unlock()
	q := store.RecordQuery{Kind: kindAccount, Limit: 500, KeysOnly: true}
	for {
		page, more, err := h.cfg.Records.Records(ctx, q)
		if err != nil {
			h.Stop()
			return err
		}
		for i := range page {
			h.followAccount(page[i].ID)
			q.After = page[i].ID
		}
		if !more {
			return nil
		}
	}
}

// Stop ends the readers. What they have read and not handled is read again after the next
// Start.
func (h *Hooks) Stop() {
	f := &h.follow
	f.mu.Lock()
	if f.ctx == nil {
		f.mu.Unlock()
		return
	}
	f.stop()
	f.ctx = nil
	f.mu.Unlock()
	f.done.Wait()
}

// followAccount begins to read the feed of an account, unless it is read already.
func (h *Hooks) followAccount(account string) {
	f := &h.follow
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx == nil || f.of[account] != nil {
		return
	}
	ctx, cancel := context.WithCancel(f.ctx)
	f.of[account] = cancel
	f.done.Go(func() { h.followFeed(ctx, account) })
}

// unfollowAccount ends the reader of an account that has no hooks any more.
func (h *Hooks) unfollowAccount(account string) {
	f := &h.follow
	f.mu.Lock()
	defer f.mu.Unlock()
	if cancel := f.of[account]; cancel != nil {
		cancel()
		delete(f.of, account)
	}
}

// followFeed reads the feed of an account until ctx or the engine ends.
func (h *Hooks) followFeed(ctx context.Context, account string) {
	pause := firstPause
	for {
		err := h.readFeed(ctx, account, func() { pause = firstPause })
		switch {
		case ctx.Err() != nil, fault.CodeOf(err) == fault.Stopping, fault.CodeOf(err) == fault.StaleEpoch, h.host.Engine.Err() != nil:
			return
		}
		h.cfg.Logger.Warn("the feed of an account cannot be read for its webhooks; it is tried again", "account", account, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-h.host.Engine.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// A reader reads the feed of an account.
type reader struct {
	h        *Hooks
	account  string
	at       uint64 // the last change that was handled
	stored   uint64 // the one that the cursor says
	revision uint64 // of the cursor
}

// readFeed handles changes from the stored cursor on. It calls progress when it has handled
// some.
func (h *Hooks) readFeed(ctx context.Context, account string, progress func()) error {
	rec, err := h.cfg.Records.Record(ctx, accountKey(account))
	if err != nil {
		return err
	}
	c, err := store.DecodeRecord[cursor](&rec)
	if err != nil {
		return err
	}
	r := &reader{h: h, account: account, at: c.After, stored: c.After, revision: rec.Revision}
	if err := r.checkCursor(ctx); err != nil {
		return err
	}
	follow := h.host.Engine.Feed().FollowChanges(account, r.at)
	defer follow.Close()
	for {
		changes, err := follow.Next(ctx, ctx)
		if err != nil {
			return err
		}
		if err := r.handle(ctx, changes); err != nil {
			return err
		}
		progress()
	}
}

// checkCursor moves a cursor of which the feed no longer knows: what came after it was
// removed, or the store was restored from a copy that is older than the cursor.
func (r *reader) checkCursor(ctx context.Context) error {
	last, expired, err := r.h.host.Store.Newest(ctx, r.account)
	if err != nil {
		return err
	}
	switch {
	case r.at < expired:
		r.h.cfg.Logger.Warn("changes of an account were removed before its webhooks were told of them", "account", r.account, "after", r.at, "until", expired)
		r.at = expired
	case r.at > last:
		r.h.cfg.Logger.Warn("the feed of an account ends before the place that its webhooks have been told of", "account", r.account, "last", last, "place", r.at)
		r.at = last
	default:
		return nil
	}
	return r.save(ctx)
}

// handle starts the deliveries of changes, and then moves the cursor behind them. The order
// is what makes a crash harmless: changes whose deliveries are durable may be read again,
// and find them; none is passed over.
func (r *reader) handle(ctx context.Context, changes []store.Change) error {
	select {
	case r.h.follow.reading <- struct{}{}:
		defer func() { <-r.h.follow.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	all, err := r.match(ctx, changes)
	if err != nil {
		return err
	}
	if err := r.start(ctx, all); err != nil {
		return err
	}
	r.at = changes[len(changes)-1].N
	if len(all) == 0 && r.at-r.stored < saveEvery {
		return nil
	}
	return r.save(ctx)
}

// save stores the cursor.
func (r *reader) save(ctx context.Context) error {
	c, err := recordOf("", kindAccount, r.account, r.revision, cursor{r.at})
	if err != nil {
		return err
	}
	stored, err := r.h.cfg.Records.PutRecords(ctx, c)
	if err != nil {
		return err
	}
	r.stored, r.revision = r.at, stored[0].Revision
	return nil
}

// A delivery is what a run delivers.
type delivery struct {
	hook    *Hook
	event   string
	message string
	body    []byte
	test    bool
	resent  string // id of the run whose message is sent again
}

// match returns the deliveries of changes.
func (r *reader) match(ctx context.Context, changes []store.Change) (all []delivery, err error) {
	hooks, err := r.h.List(ctx, r.account)
	if err != nil {
		return nil, err
	}
	if hooks, err = r.enabled(ctx, hooks); err != nil {
		return nil, err
	}
	for i := range changes {
		e := EventOf(&changes[i])
		labels := sync.OnceValues(func() (map[string]string, error) { return r.labels(ctx, e.Change) })
		execution := sync.OnceValues(func() (json.RawMessage, error) { return r.execution(ctx, &e) })
		for _, hook := range hooks {
			ok, err := hook.matches(&e, labels)
			if err != nil {
				return nil, err
			}
			if !ok {
				continue
			}
			var shown json.RawMessage
			if hook.Payload == Full {
				if shown, err = execution(); err != nil {
					return nil, err
				}
			}
			body, err := hook.body(&e, shown)
			if err != nil {
				return nil, err
			}
			all = append(all, delivery{hook: hook, event: e.Type, message: message(hook.ID, &e), body: body})
		}
	}
	return all, nil
}

// enabled returns the hooks that are told of anything. One with too many deliveries that
// wait is disabled.
func (r *reader) enabled(ctx context.Context, hooks []*Hook) (list []*Hook, err error) {
	for _, hook := range hooks {
		if !hook.Enabled {
			continue
		}
		waiting, err := r.h.host.Store.Unended(ctx, Account(r.account, hook.ID))
		if err != nil {
			return nil, err
		}
		if waiting.Live >= MaxWaiting {
			if err := r.h.Disable(ctx, r.account, hook.ID, "too many deliveries wait, because the receiver takes fewer than there are"); err != nil {
				return nil, err
			}
			continue
		}
		list = append(list, hook)
	}
	return list, nil
}

// labels are those of the run of a change: those of its root. A run that is gone has none.
func (r *reader) labels(ctx context.Context, c *store.Change) (map[string]string, error) {
	run := c.Run
	if c.Root != "" {
		run = c.Root
	}
	head, err := r.h.host.Store.Head(ctx, store.Key{Account: r.account, Run: run})
	switch fault.CodeOf(err) {
	case "":
		return head.LabelsOf(), nil
	case fault.RunNotFound, fault.StoreCorrupt:
		return nil, nil
	}
	return nil, err
}

// execution is the run of an event as it is shown; nil = it is not shown.
func (r *reader) execution(ctx context.Context, e *Event) (json.RawMessage, error) {
	if e.Change.Run == "" || e.Type == RunDeleted || e.Type == RunRemoved {
		return nil, nil
	}
	shown, err := r.h.execution(ctx, r.account, e.Change.Run)
	switch fault.CodeOf(err) {
	case "":
		return shown, nil
	case fault.RunNotFound, fault.StoreCorrupt, fault.Quarantined:
		return nil, nil
	}
	return nil, err
}

// start starts deliveries, a few at a time, and returns when all are durable.
func (r *reader) start(ctx context.Context, all []delivery) error {
	slots := make(chan struct{}, maxStarts)
	errs := make([]error, len(all))
	var done sync.WaitGroup
	for i := range all {
		slots <- struct{}{}
		done.Go(func() {
			defer func() { <-slots }()
			_, errs[i] = r.h.start(ctx, r.account, &all[i], all[i].message)
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

// start starts a delivery under a key and returns its run, which is durable then. One that
// the key has started before is that one.
func (h *Hooks) start(ctx context.Context, account string, d *delivery, key string) (run string, err error) {
	of := h.repeated
	input := map[string]any{"message": d.message, "event": d.event, "payload": string(d.body)}
	if d.test {
		of, input["test"] = h.single, true
	}
	if d.resent != "" {
		input["resent"] = d.resent
	}
	p, err := of()
	if err != nil {
		return "", err
	}
	started, err := h.host.Engine.Start(ctx, engine.StartRequest{
		Account: Account(account, d.hook.ID), Plan: p, Recipe: Recipe, Parameters: input, IdempotencyKey: key,
	})
	switch fault.CodeOf(err) {
	case fault.IdempotencyMismatch:
		return "", nil // the run of the event has gone on since the message was first made
	case fault.InputInvalid, fault.ValueTooLarge, fault.MemoryLimit: // no other attempt can succeed
		h.cfg.Logger.Error("a message to a webhook cannot be sent", "account", account, "hook", d.hook.ID, "message", d.message, "err", err)
		return "", nil
	}
	return started.Run, err
}
