// SPDX-License-Identifier: Apache-2.0

package purse

import (
	"time"

	"github.com/roux-engine/roux/internal/ledger"
)

// budgets are those of an account, with what runs of the batch under construction need
// of each.
type budgets struct {
	ledger.Budgets
	day  limit
	keys map[string]*limit
}

// A limit is what is known of a budget in memory.
type limit struct {
	promised   int64
	first, end int64 // of the period, as of the last look
	known      bool
}

// zone is where days begin.
func (b *budgets) zone() *time.Location {
	if b.Zone == nil {
		return time.UTC
	}
	return b.Zone
}

// count says how what is held now for a run counts.
func (b *budgets) count(now int64, key string) ledger.Count {
	c := ledger.Count{Key: key}
	if b.Zone != nil && b.Zone != time.UTC {
		c.Day = ledger.Day(now, b.Zone)
	}
	return c
}

// of returns the limit of a key.
func (b *budgets) of(key string) *limit {
	l := b.keys[key]
	if l == nil {
		if b.keys == nil {
			b.keys = map[string]*limit{}
		}
		l = &limit{}
		b.keys[key] = l
	}
	return l
}

// period looks at the clock.
func (b *budgets) period(l *limit, r ledger.Reset, now int64) {
	if !l.known || l.end != 0 && now >= l.end {
		l.first, l.end = r.Period(now, b.zone())
		l.known = true
	}
}

// nextReset is when the next budget of the account begins anew that something may wait
// for, after time now; 0 = none does.
func (b *budgets) nextReset(now int64) (at int64) {
	soonest := func(l *limit, budget ledger.Budget) {
		if budget.Limit == 0 || budget.Audit {
			return
		}
		if b.period(l, budget.Reset, now); l.end != 0 && (at == 0 || l.end < at) {
			at = l.end
		}
	}
	soonest(&b.day, b.daily())
	for key := range b.keys {
		soonest(b.keys[key], b.Keys[key])
	}
	return at
}

// daily is the budget of a day; its reset is not asked for.
func (b *budgets) daily() ledger.Budget {
	return ledger.Budget{Limit: b.Day.Limit, Reset: ledger.Daily, Audit: b.Day.Audit}
}

// promise notes that runs of the batch under construction need n credits more.
func (p *purse[W]) promise(key string, n int64) {
	p.promised += n
	if p.budgets.Day.Limit != 0 {
		p.budgets.day.promised += n
	}
	if key != "" {
		p.budgets.of(key).promised += n
	}
}

// A waiting step, and the name of the key that its run was started with.
type waiting[W any] struct {
	w   W
	key string
}

// Offer is what the account can give to another run of the batch under construction that
// was started with a key, and what limits that.
func (ps *Purses[W]) Offer(account, key string) (n int64, by ledger.Bound) {
	n = ps.Available(account)
	p := ps.byName[account]
	if p == nil || p.account == nil || p.budgets.Day.Limit == 0 && key == "" {
		return n, by
	}
	least := func(l *limit, b ledger.Budget, bound ledger.Bound) {
		if m, limited := p.room(ps.host.Now(), l, b, bound.Key); limited && m < n {
			bound.Limit, bound.Until = b.Limit, l.end
			n, by = m, bound
		}
	}
	least(&p.budgets.day, p.budgets.daily(), ledger.Bound{Day: true})
	if key != "" {
		least(p.budgets.of(key), p.budgets.Keys[key], ledger.Bound{Key: key})
	}
	return n, by
}

// room is how much more may be spent of a budget in this period. limited is false if the
// budget refuses nothing.
func (p *purse[W]) room(now int64, l *limit, b ledger.Budget, key string) (n int64, limited bool) {
	if b.Limit == 0 || b.Audit {
		return 0, false
	}
	p.budgets.period(l, b.Reset, now)
	return b.Limit - p.account.Used(key, l.first) - l.promised, true
}

// A room is what may still be taken, and by whom: when somebody wants more, those who
// come later do not overtake.
type room struct {
	left   int64
	closed bool
}

// rooms are those of an account, and of its keys.
type rooms struct {
	all  []*room          // each step needs room here
	keys map[string]*room // and those of runs with a key here, if its budget is limited
}

// rooms returns what those who wait can be given.
func (ps *Purses[W]) rooms(p *purse[W]) rooms {
	r := rooms{all: []*room{{left: ps.Available(p.name)}}}
	if p.account == nil {
		return r
	}
	now := ps.host.Now()
	if n, limited := p.room(now, &p.budgets.day, p.budgets.daily(), ""); limited {
		r.all = append(r.all, &room{left: n})
	}
	for _, w := range p.waiting {
		if w.key == "" || r.keys[w.key] != nil {
			continue
		}
		if n, limited := p.room(now, p.budgets.of(w.key), p.budgets.Keys[w.key], w.key); limited {
			if r.keys == nil {
				r.keys = map[string]*room{}
			}
			r.keys[w.key] = &room{left: n}
		}
	}
	return r
}

// take takes n credits for a step, or closes what has too few.
func (r *rooms) take(key string, n int64) bool {
	need := r.all
	if k := r.keys[key]; k != nil {
		need = append(need[:len(need):len(need)], k)
	}
	for _, x := range need {
		if x.closed {
			return false
		}
	}
	fits := true
	for _, x := range need {
		if x.left < n {
			x.closed, fits = true, false
		}
	}
	if fits {
		for _, x := range need {
			x.left -= n
		}
	}
	return fits
}
