// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"runtime/debug"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/limits"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/slots"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// routeOf returns the limits that an attempt of a step passes, and what else they depend on.
// After a restart it returns the same for an attempt that is open.
func (c *core) routeOf(l *loadedRun, ref journal.Ref) (*route, *slots.Demand) {
	start := l.run.Start()
	_, i := l.run.Calls(ref.Step)
	if i < 0 || int(i) >= len(start.Pins) {
		return c.attempts.Arbiter.Route(new(slots.Target), false), nil // the engine's own
	}
	if l.routes == nil {
		l.routes = make([]*route, len(l.run.Plan().Actions))
	}
	if l.routes[i] != nil {
		return l.routes[i], nil
	}
	pin := &start.Pins[i]
	a := c.cfg.Actions.Find(pin.Name, pin.Version)
	if a == nil {
		a = &action.Action{Name: pin.Name, Provider: pin.Provider}
	}
	t := slots.Target{Action: pin.Name, Slots: a.Slots, Provider: pin.Provider, ProviderSlots: c.cfg.ProviderSlots[pin.Provider], Account: l.key.Account}
	demand := c.describe(l, ref, a, &t)
	r := c.attempts.Arbiter.Route(&t, demand != nil && demand.Retry)
	if l.throttled = l.throttled || r.Throttled(); r.Lasting() && c.cfg.Limits == nil {
		l.routes[i] = r
	}
	return r, demand
}

// describe finds which service an attempt calls, and which limits of the configuration apply.
func (c *core) describe(l *loadedRun, ref journal.Ref, a *action.Action, t *slots.Target) *slots.Demand {
	if t.Provider == "" && c.cfg.Limits == nil {
		return nil
	}
	w, demand := machine.Wanted{}, new(slots.Demand)
	if t.Provider != "" || c.cfg.Limits.Called() {
		w = c.wants(l, ref)
		demand.Retry, demand.Tokens, demand.Credits = w.Retry, w.Tokens, int64(w.Ceiling)
	}
	service, model, queue := c.cfg.Called(a, w.Provider, w.Model)
	if t.Provider != "" {
		t.Service = service
	}
	if c.cfg.Limits != nil {
		t.Keys, demand.Ranks = c.cfg.Limits.Of(&limits.Facts{
			Account: l.key.Account, Action: a.Name, Provider: service, Model: model, Queue: queue, Labels: l.run.Start().Labels,
		})
	}
	return demand
}

// wants is machine.Run.Wants. It evaluates what the recipe says, and a panic in that must not end
// the process (I16): the attempt will meet it again, and fail.
func (c *core) wants(l *loadedRun, ref journal.Ref) (w machine.Wanted) {
	defer func() {
		if v := recover(); v != nil {
			c.cfg.Logger.Error("what a step calls could not be computed", "run", l.key.Run, "panic", view.PanicText(l.run.Plan(), v), "stack", string(debug.Stack()))
		}
	}()
	return l.run.Wants(ref)
}

// settleLimits tells the limits of an attempt how it has ended. l may be nil.
func (c *core) settleLimits(l *loadedRun, in *input) {
	m := &in.m
	if m.Kind != machine.InResult || m.Outcome != machine.Success && m.Outcome != machine.Failed || l.set() != nil && !l.throttled {
		return
	}
	o := slots.Outcome{Tokens: in.tokens, Unused: m.Cached != nil, Uncounted: m.Cached != nil}
	if m.Outcome == machine.Failed {
		o = limits.OutcomeOf(m.Err.Code, m.Err.RetryAfterMS, in.tokens)
	}
	if req := c.attempts.Find(l.set(), in.task()); req != nil {
		c.attempts.Arbiter.Settle(req, &o)
		return
	}
	if l == nil || l.dropped || m.Source == journal.FromWorker || !l.run.JobTask(new(machine.Task), m.Ref, m.Fence) {
		return
	}
	if route, _ := c.routeOf(l, m.Ref); route.Service() != "" { // a job that holds no slots
		c.attempts.Arbiter.Report(route, &o)
	}
}

// spend tells the limits of an attempt what it has cost.
func (c *core) spend(l *loadedRun, ref journal.Ref, amount ledger.Amount) {
	if req := l.requests.Get(ref); req != nil {
		c.attempts.Arbiter.Spend(req, int64(amount))
	}
}

// Waiting returns where those of the steps of a run stand that want an attempt. It is computed
// now and recorded nowhere.
func (e *Engine) Waiting(ctx context.Context, account, run string, refs []journal.Ref) (map[journal.Ref]*view.Waiting, error) {
	all := map[journal.Ref]*view.Waiting{}
	in := &input{kind: inLook, key: store.Key{Account: account, Run: run}}
	in.look = func(c *core) {
		if l := c.residency.runs[in.key]; l != nil {
			for _, ref := range refs {
				if s, ok := c.attempts.Arbiter.Standing(l.requests.Get(ref)); ok {
					all[ref] = limits.Waiting(&s, c.stepName(account))
				}
			}
		}
	}
	if err := e.request(ctx, in).err; err != nil {
		return nil, err
	}
	return all, nil
}

// stepName returns a function that names steps of runs in memory.
func (c *core) stepName(account string) func(*slots.Place) string {
	return func(p *slots.Place) string {
		if l := c.residency.runs[store.Key{Account: account, Run: p.Run}]; l != nil {
			return journal.StepPath(l.run.Plan(), p.Ref)
		}
		return ""
	}
}
