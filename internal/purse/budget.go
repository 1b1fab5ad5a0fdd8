// SPDX-License-Identifier: Apache-2.0

package purse

import (
	"cmp"
	"math"

	"github.com/roux-engine/roux/internal/ledger"
)

// nextReset is when the next budget of the account begins anew, after time now; 0 = none
// does.
func (p *purse[W]) nextReset(now int64) int64 {
	if now >= p.reset {
		p.reset = cmp.Or(p.budgets.NextReset(now), math.MaxInt64)
	}
	if p.reset == math.MaxInt64 {
		return 0
	}
	return p.reset
}

// promise notes that runs of the batch under construction need n credits more.
func (p *purse[W]) promise(key string, n int64) {
	p.promised += n
	if key == "" || n == 0 {
		return
	}
	if p.keys == nil {
		p.keys = map[string]int64{}
	}
	if p.keys[key] += n; p.keys[key] == 0 {
		delete(p.keys, key)
	}
}

// left calls fn with the budgets that may refuse a run which was started with a key, and
// with what is left of each for another run of the batch under construction.
func (p *purse[W]) left(key string, now int64, fn func(by ledger.Bound, n int64)) {
	p.budgets.Left(p.account, key, now, func(by ledger.Bound, n int64) {
		if by.Key != "" {
			fn(by, n-p.keys[by.Key])
		} else {
			fn(by, n-p.promised)
		}
	})
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
	if p == nil || p.account == nil {
		return n, by
	}
	p.left(key, ps.host.Now(), func(budget ledger.Bound, left int64) {
		if left < n {
			n, by = left, budget
		}
	})
	return n, by
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
	p.left("", now, func(_ ledger.Bound, n int64) { r.all = append(r.all, &room{left: n}) })
	for _, w := range p.waiting {
		if w.key == "" || r.keys[w.key] != nil {
			continue
		}
		p.left(w.key, now, func(by ledger.Bound, n int64) {
			if by.Key == "" {
				return
			}
			if r.keys == nil {
				r.keys = map[string]*room{}
			}
			r.keys[w.key] = &room{left: n}
		})
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
