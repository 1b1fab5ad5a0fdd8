// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// maxLives bounds the triggers in memory. One that has not been used for a while is as good as
// none.
const maxLives = 10_000

// A live is what is in memory of a trigger to which messages come that are signed. Nobody else
// makes one.
type live struct {
	limiter *rate.Limiter

	compiling sync.Mutex
	mapping   *mapping // nil = not compiled yet; that of a trigger never changes

	history sync.Mutex
	last    int  // number of the newest entry; -1 = not read yet
	gone    bool // the trigger was deleted
}

// live returns what is in memory of a trigger.
func (t *Triggers) live(id string) *live {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lives[id]; l != nil {
		return l
	}
	if len(t.lives) >= maxLives {
		now := t.cfg.Now()
		for other, l := range t.lives {
			if l.limiter.TokensAt(now) >= Burst {
				delete(t.lives, other)
			}
		}
	}
	l := &live{limiter: rate.NewLimiter(PerSecond, Burst), last: -1}
	if len(t.lives) < maxLives {
		t.lives[id] = l
	}
	return l
}

// take counts a delivery, or refuses it with the time to wait.
func (l *live) take(now time.Time) error {
	r := l.limiter.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait == 0 {
		return nil
	}
	r.CancelAt(now)
	return &fault.Error{
		Code: fault.RequestRateExceeded, RetryAfterMS: wait.Milliseconds() + 1,
		Msg: "deliveries come faster than the trigger takes them: send this one again later",
	}
}

// compiled returns the mapping of a trigger.
func (l *live) compiled(tr *Trigger) (*mapping, error) {
	l.compiling.Lock()
	defer l.compiling.Unlock()
	if l.mapping != nil {
		return l.mapping, nil
	}
	m, err := compileMapping(&tr.Spec)
	if err != nil { // an earlier release took it
		return nil, fault.Wrap(fault.TemplateError, err, "the trigger cannot be understood: %s", fault.Message(err))
	}
	l.mapping = m
	return m, nil
}

// note adds an entry to the history of a trigger.
func (t *Triggers) note(ctx context.Context, tr *Trigger, l *live, delivery string, o *Outcome) error {
	l.history.Lock()
	defer l.history.Unlock()
	if l.gone {
		return nil
	}
	if l.last < 0 {
		_, err := t.cfg.Records.Record(ctx, triggerKey(tr.account, tr.ID))
		if fault.CodeOf(err) == fault.RecordNotFound { // it was deleted since the delivery came
			l.gone = true
			return nil
		}
		if err != nil {
			return err
		}
		newest, _, err := t.entries(ctx, tr, 0, 1)
		if err != nil {
			return err
		}
		l.last = 0
		if len(newest) > 0 {
			l.last = newest[0].Number
		}
	}
	n := l.last + 1
	if len(delivery) > maxShown {
		delivery = strings.ToValidUTF8(delivery[:maxShown], "") + "…"
	}
	c, err := change(entryKey(tr.account, tr.ID, n), "", store.AnyRevision, Entry{Number: n, Delivery: view.OneLine(delivery), At: t.cfg.Now().UnixMicro(), Outcome: *o})
	if err != nil {
		return err
	}
	changes := []store.RecordChange{c}
	if old := n - KeptDeliveries; old > 0 {
		changes = append(changes, gone(entryKey(tr.account, tr.ID, old)))
	}
	if _, err := t.cfg.Records.PutRecords(ctx, changes...); err != nil {
		return err
	}
	l.last = n
	return nil
}
