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

// maxStates bounds the triggers that have a state. That of a trigger whose limiter is full again
// can be dropped, because it is read anew when the next delivery comes.
const maxStates = 10_000

// A state is what is kept in memory for a trigger. Only a message with a valid signature makes
// one, so that strangers cannot fill the memory.
type state struct {
	limiter *rate.Limiter

	compiling sync.Mutex
	mapping   *mapping // nil = not compiled yet; that of a trigger never changes

	history sync.Mutex
	last    int  // number of the newest entry; -1 = not read yet
	deleted bool // the trigger was
}

// state returns what is kept in memory for a trigger.
func (t *Triggers) state(id string) *state {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.states[id]; st != nil {
		return st
	}
	if len(t.states) >= maxStates {
		now := t.cfg.Now()
		for other, st := range t.states {
			if st.limiter.TokensAt(now) >= Burst {
				delete(t.states, other)
			}
		}
	}
	st := &state{limiter: rate.NewLimiter(PerSecond, Burst), last: -1}
	if len(t.states) < maxStates {
		t.states[id] = st
	}
	return st
}

// take counts a delivery, or refuses it with the time to wait.
func (st *state) take(now time.Time) error {
	r := st.limiter.ReserveN(now, 1)
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
func (st *state) compiled(tr *Trigger) (*mapping, error) {
	st.compiling.Lock()
	defer st.compiling.Unlock()
	if st.mapping != nil {
		return st.mapping, nil
	}
	m, err := compileMapping(&tr.Spec)
	if err != nil { // an earlier release took it
		return nil, fault.Wrap(fault.TemplateError, err, "the trigger cannot be understood: %s", fault.Message(err))
	}
	st.mapping = m
	return m, nil
}

// note adds an entry to the history of a trigger.
func (t *Triggers) note(ctx context.Context, tr *Trigger, st *state, delivery string, o *Outcome) error {
	st.history.Lock()
	defer st.history.Unlock()
	if st.deleted {
		return nil
	}
	if st.last < 0 {
		_, err := t.cfg.Records.Record(ctx, triggerKey(tr.account, tr.ID))
		if fault.CodeOf(err) == fault.RecordNotFound { // since the delivery came
			st.deleted = true
			return nil
		}
		if err != nil {
			return err
		}
		newest, _, err := t.entries(ctx, tr, 0, 1)
		if err != nil {
			return err
		}
		st.last = 0
		if len(newest) > 0 {
			st.last = newest[0].Number
		}
	}
	n := st.last + 1
	if len(delivery) > maxShown {
		delivery = strings.ToValidUTF8(delivery[:maxShown], "") + "…"
	}
	c, err := store.ChangeOf(entryKey(tr.account, tr.ID, n), "", store.AnyRevision, Entry{Number: n, Delivery: view.OneLine(delivery), At: t.cfg.Now().UnixMicro(), Outcome: *o})
	if err != nil {
		return err
	}
	changes := []store.RecordChange{c}
	if old := n - KeptDeliveries; old > 0 {
		changes = append(changes, store.Deletion(entryKey(tr.account, tr.ID, old)))
	}
	if _, err := t.cfg.Records.PutRecords(ctx, changes...); err != nil {
		return err
	}
	st.last = n
	return nil
}
