// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/roux-engine/roux/internal/admission"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// An admitting run is how a run in memory counts against the limit of its account.
type admitting struct {
	limited  bool // its account has a limit, or it is queued
	class    admission.Class
	queuedAt int64 // when it was queued last
}

// loadedClass determines how a run counts that was read from the store with its head. If
// the head lags behind the journal, the difference is a change.
func (c *core) loadedClass(l *loadedRun, head *store.Head) {
	l.class = admission.ClassOf(head)
	queued := admission.ClassOfRun(l.run.Last(), l.run.Status()) == admission.Queued
	if queued {
		l.queuedAt = head.Updated
		if l.class != admission.Queued {
			l.queuedAt = l.run.Now()
		}
	}
	l.limited = l.place == nil && (queued || c.cfg.Accounts(l.key.Account).LiveLimit() > 0)
}

// reclassify tells the queue of the account how a run counts now.
func (c *core) reclassify(l *loadedRun, to admission.Class) {
	if from := l.class; from != to {
		l.class = to
		c.queues.Moved(l.key, from, to)
	}
}

// unstored is called when a run leaves memory with changes that will not be stored: it
// counts as it does by its last encoded head.
func (c *core) unstored(l *loadedRun) {
	if !l.limited {
		return
	}
	to := admission.None
	if l.start == nil || l.committing { // otherwise its start was never sent to the store
		to = admission.ClassOf(&l.head)
	}
	c.reclassify(l, to)
	if to == admission.Queued {
		c.queues.Add(l.key, l.head.Updated)
	}
}

// admit decides whether a run that begins must be queued, and refuses one for which there
// is no place. A start with a key is sent to the store all the same, because the key may
// have started a run already.
func (c *core) admit(l *loadedRun, in *machine.Input) error {
	if !l.limited || in.Kind != machine.InStart && !l.run.Status().Terminal() {
		return nil
	}
	if err := c.queues.Refuses(l.key.Account); err != nil {
		if l.start == nil || l.start.idem == nil {
			return err
		}
		l.start.idem.Refusal, l.limited = err, false
		return nil
	}
	in.Queued = c.queues.Full(l.key.Account)
	return nil
}

// A queueHost is the core as the queues see it.
type queueHost struct{ *core }

func (h queueHost) Now() int64 { return h.now }

func (h queueHost) Limit(account string) int { return h.cfg.Accounts(account).LiveLimit() }

func (h queueHost) Unended(account string) (store.Unended, error) {
	return h.cfg.Store.Unended(h.ctx, account)
}

func (h queueHost) Building() uint64 { return h.pipeline.number }

func (h queueHost) Settled(batch uint64) bool {
	first := h.pipeline.number // the first batch that is not settled
	if h.pipeline.committing != nil {
		first--
	}
	return batch < first
}

func (h queueHost) Selects(key store.Key) bool { return h.residency.selects(key) }

func (h queueHost) Admit(key store.Key) (permanently bool, err error) {
	l, err := h.residency.get(key)
	if err == nil {
		failpoint.Pass(failpoint.AdmitBefore)
		err = h.inject(l, machine.Input{Kind: machine.InAdmit})
		h.pipeline.building.urgent = true
	}
	if err != nil {
		h.cfg.Logger.Warn("a queued run could not be admitted", "run", key.Run, "err", err)
	}
	return store.Permanent(err), err
}

func (h queueHost) Warn(account string, err error) {
	h.cfg.Logger.Warn("the live runs of an account could not be counted", "account", account, "err", err)
}

// listQueued reads which runs are queued. They stay out of memory until it is their turn.
func (r *recovery) listQueued() error {
	const page = 1_000
	for after := (store.Wake{}); ; {
		queued, err := r.c.cfg.Store.Queued(r.c.ctx, after, page)
		if err != nil {
			return err
		}
		for _, w := range queued {
			r.c.queues.Add(w.Key, w.At)
		}
		if len(queued) < page {
			return nil
		}
		after = queued[page-1]
	}
}

// refusedClass is unstored for a run of which the store has refused a transition. Unless
// that began the run, nobody knows what the store has of it: it is read again.
func (c *core) refusedClass(l *loadedRun) {
	switch {
	case !l.limited:
	case l.start != nil:
		c.reclassify(l, admission.None)
	default:
		l.class = admission.None
		c.queues.Recount(l.key.Account)
	}
}
