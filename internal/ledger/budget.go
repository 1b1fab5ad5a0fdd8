// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/spell"
)

// A Budget limits what an account, or a named key of it, may spend in a period. What a
// hold takes counts when it is taken, so that runs which go on beside each other cannot
// spend more together; what it releases stops counting, in the same period.
type Budget struct {
	Limit int64 // whole credits; 0 = no limit
	Reset Reset
	Audit bool // going over it is reported and nothing is refused
}

// Check reports whether the budget has a limit and a reset that exist.
func (b *Budget) Check() error {
	switch {
	case b.Limit < 0 || b.Limit > MaxAmount:
		return fmt.Errorf("a limit of %d credits: want from 1 to %d", b.Limit, int64(MaxAmount))
	case !b.Reset.Known():
		return fmt.Errorf("reset %q: want none, daily, weekly or monthly", b.Reset)
	}
	return nil
}

// A Reset says when a budget begins anew.
type Reset string

// The resets of budgets. Days begin at midnight in the time zone of the account, weeks
// on Monday.
const (
	Never   Reset = "none"
	Daily   Reset = "daily"
	Weekly  Reset = "weekly"
	Monthly Reset = "monthly"
)

// Known reports whether there is such a reset.
func (r Reset) Known() bool { return r == Never || r == Daily || r == Weekly || r == Monthly }

// Period returns the day with which the period begins that contains time t, and the time
// when it ends, UTC µs. They are 0 if there is one period only.
func (r Reset) Period(t int64, zone *time.Location) (first, end int64) {
	y, m, d := time.UnixMicro(t).In(zone).Date()
	switch r {
	case Daily:
		return midnight(y, m, d, zone), midnight(y, m, d+1, zone)
	case Weekly:
		d -= (int(time.Date(y, m, d, 12, 0, 0, 0, time.UTC).Weekday()) + 6) % 7 // back to Monday
		return midnight(y, m, d, zone), midnight(y, m, d+7, zone)
	case Monthly:
		return midnight(y, m, 1, zone), midnight(y, m+1, 1, zone)
	}
	return 0, 0
}

// Day returns when the day of a time zone begins that contains time t, UTC µs.
func Day(t int64, zone *time.Location) int64 {
	first, _ := Daily.Period(t, zone)
	return first
}

// midnight returns the first instant of a date. Where clocks are set forward or back at
// midnight, 0:00 does not exist or comes twice.
func midnight(y int, m time.Month, d int, zone *time.Location) int64 {
	want := time.Date(y, m, d, 12, 0, 0, 0, zone)
	t := time.Date(y, m, d, 0, 0, 0, 0, zone)
	for t.Day() != want.Day() && t.Before(want) {
		t = t.Add(30 * time.Minute)
	}
	if before := t.Add(-time.Hour); before.Day() == want.Day() {
		t = before
	}
	return t.UnixMicro()
}

// Budgets are those of an account. What is left zero is not limited.
type Budgets struct {
	Zone *time.Location    // in which days, weeks and months begin; nil = UTC
	Day  Budget            // what the account may spend in a day
	Keys map[string]Budget // what it may spend with a named key
}

func (b Budgets) zone() *time.Location {
	if b.Zone == nil {
		return time.UTC
	}
	return b.Zone
}

// CheckKey refuses a key that the account does not have: the run would escape the budget
// of the one that was meant. No key is fine.
func (b Budgets) CheckKey(account, key string) error {
	if _, ok := b.Keys[key]; ok || key == "" {
		return nil
	}
	near := ""
	if name := spell.Nearest(key, slices.Sorted(maps.Keys(b.Keys))); name != "" {
		near = fmt.Sprintf("; did you mean %s?", name)
	}
	err := fault.New(fault.InputInvalid, "account %s has no key %q%s", account, key, near)
	err.Remedy = "Name a key that `accounts` of the configuration lists under `keys` of the account, or none."
	return err
}

// A Standing is how much of a budget is used.
type Standing struct {
	Source string `json:"limitSource"`
	Limit  int64  `json:"limit"`
	Used   int64  `json:"used"` // in this period
	Reset  Reset  `json:"reset"`
	Audit  bool   `json:"audit"`
	Until  int64  `json:"-"` // when it begins anew, UTC µs; 0 = never
	bound  Bound
}

// each calls fn with the budgets that apply at time t to a run that was started with a
// key. The period of a budget begins with day first.
func (b Budgets) each(key string, t int64, fn func(by Bound, budget Budget, first int64)) {
	apply := func(by Bound, budget Budget) {
		if budget.Limit == 0 {
			return
		}
		first, end := budget.Reset.Period(t, b.zone())
		by.Limit, by.Until = budget.Limit, end
		fn(by, budget, first)
	}
	apply(Bound{Day: true}, Budget{b.Day.Limit, Daily, b.Day.Audit})
	if key != "" {
		apply(Bound{Key: key}, b.Keys[key])
	}
}

// Standings returns the budgets that apply at time t to a run that was started with a key.
func (b Budgets) Standings(a *Account, key string, t int64) (all []Standing) {
	b.each(key, t, func(by Bound, budget Budget, first int64) {
		all = append(all, Standing{by.Source(), budget.Limit, a.Used(by.Key, first), budget.Reset, budget.Audit, by.Until, by})
	})
	return all
}

// Left calls fn with the budgets that may refuse a run which was started with a key, and
// with how much of each is left at time t. Those in audit mode refuse nothing.
func (b Budgets) Left(a *Account, key string, t int64, fn func(by Bound, left int64)) {
	b.each(key, t, func(by Bound, budget Budget, first int64) {
		if !budget.Audit {
			fn(by, budget.Limit-a.Used(by.Key, first))
		}
	})
}

// NextReset returns when the next budget begins anew that may refuse a run, after time
// t, UTC µs; 0 = none does.
func (b Budgets) NextReset(t int64) (at int64) {
	soonest := func(budget Budget, r Reset) {
		if budget.Limit == 0 || budget.Audit {
			return
		}
		if _, end := r.Period(t, b.zone()); end != 0 && (at == 0 || end < at) {
			at = end
		}
	}
	soonest(b.Day, Daily)
	for _, budget := range b.Keys {
		soonest(budget, budget.Reset)
	}
	return at
}

// Offer is what the account can give at time t to a run that was started with a key, and
// what limits that.
func (b Budgets) Offer(a *Account, key string, t int64) (n int64, by Bound) {
	n = a.Available(t)
	b.Left(a, key, t, func(budget Bound, left int64) {
		if left < n {
			n, by = left, budget
		}
	})
	return n, by
}

// Count says how what is held at time t for a run that was started with a key counts.
func (b Budgets) Count(key string, t int64) Count {
	c := Count{Key: key}
	if b.Zone != nil && b.Zone != time.UTC {
		c.Day = Day(t, b.Zone)
	}
	return c
}

// A Bound says what limits the credits that an account can give to a run: the zero Bound
// is the account's balance.
type Bound struct {
	Key   string // the budget of a key
	Day   bool   // the account's budget of a day
	Limit int64  // of the budget
	Until int64  // when the budget begins anew, UTC µs; 0 = never
}

// Source names the limit in errors.
func (b Bound) Source() string {
	switch {
	case b.Key != "":
		return "key:" + b.Key
	case b.Day:
		return "day"
	}
	return "account"
}

// Helps returns when a run that needs n credits may get them if it waits, UTC µs; 0 means
// that waiting alone does not help.
func (b Bound) Helps(n int64) int64 {
	if n > b.Limit {
		return 0
	}
	return b.Until
}

// Refuse is the error of a run that needs more credits than the account can give it.
func (b Bound) Refuse(needed, available int64) error {
	missing := needed - max(available, 0)
	limit := &fault.Limit{Source: b.Source(), Missing: missing}
	if b.Source() == "account" {
		err := fault.New(fault.InsufficientCredits, "the run needs %s, and the account lacks %d of them (limitSource account)", Credits(needed), missing)
		err.Limit = limit
		return err
	}
	remedy, waiting := "Raise the limit in `accounts` of the configuration, or let the run reserve less.", "waiting does not help"
	if until := b.Helps(needed); until != 0 {
		limit.Until = time.UnixMicro(until).UTC()
		remedy, waiting = "Wait until then, or raise the limit in `accounts` of the configuration.", "the budget begins anew at "+utc(until)
	}
	err := fault.New(fault.InsufficientCredits, "the run needs %s, which is %d more than %s (limitSource %s); %s", Credits(needed), missing, b.allows(), b.Source(), waiting)
	err.Limit, err.Remedy = limit, remedy
	return err
}

func (b Bound) allows() string {
	if b.Day {
		return "the account may still spend today"
	}
	return "may still be spent with key " + b.Key
}

// Waits says, to a person, what a step of an account's run waits for.
func (b Bound) Waits(account string, missing, available int64) string {
	text := fmt.Sprintf("waits for %s; ", Credits(missing))
	available = max(available, 0)
	switch {
	case b.Source() == "account":
		return text + fmt.Sprintf("account %s has %d available", account, available)
	case b.Until == 0:
		return text + fmt.Sprintf("%d may still be spent with key %s", available, b.Key)
	case b.Day:
		return text + fmt.Sprintf("account %s may spend %d more until %s", account, available, utc(b.Until))
	}
	return text + fmt.Sprintf("%d may still be spent with key %s until %s", available, b.Key, utc(b.Until))
}

func utc(micros int64) string { return time.UnixMicro(micros).UTC().Format(time.RFC3339) }

// A Count says how what is held counts in budgets.
type Count struct {
	Key string // the name of the key that the run was started with; "" = none
	Day int64  // when the day begins in the account's time zone, UTC µs; 0 = the day in UTC
}

const (
	day      = 24 * 60 * 60 * 1_000_000 // µs
	keptDays = 40                       // longer than any period
)

// A dayPart is an amount that counts in the day which begins at start.
type dayPart struct{ start, amount int64 }

// A usage is what is held and spent of an account, or with a key of it. Days that are in
// no period any more are forgotten; the total is not.
type usage struct {
	total int64
	days  []dayPart // by start
}

// add counts an amount, which is negative if it counts no longer.
func (u *usage) add(start, amount int64) {
	u.total += amount
	i, found := slices.BinarySearchFunc(u.days, start, func(d dayPart, s int64) int { return cmp.Compare(d.start, s) })
	switch {
	case found:
		u.days[i].amount += amount
	case amount > 0:
		u.days = slices.Insert(u.days, i, dayPart{start, amount})
		for u.days[0].start < u.days[len(u.days)-1].start-keptDays*day {
			u.days = slices.Delete(u.days, 0, 1)
		}
	}
}

// Used returns what counts in a budget since the day that begins at first; 0 = ever. The
// key "" is the whole account.
func (a *Account) Used(key string, first int64) (n int64) {
	u := a.usage[key]
	if u == nil {
		return 0
	}
	if first == 0 {
		return u.total
	}
	for _, d := range slices.Backward(u.days) {
		if d.start < first {
			break
		}
		n += d.amount
	}
	return n
}

// dayOf returns the day in which an entry counts.
func (e *Entry) dayOf() int64 {
	if e.Day != 0 {
		return e.Day
	}
	return Day(e.At, time.UTC)
}

// count counts an amount for the account, and for a key of it.
func (a *Account) count(key string, start, amount int64) {
	for _, name := range [...]string{"", key} {
		u := a.usage[name]
		if u == nil {
			u = &usage{}
			a.usage[name] = u
		}
		u.add(start, amount)
		if key == "" {
			return
		}
	}
}

// countHeld counts what an entry adds to a hold, in the day of the entry.
func (a *Account) countHeld(h *Hold, e *Entry) {
	start, n := e.dayOf(), e.Amount()
	if last := len(h.days) - 1; last >= 0 && h.days[last].start == start {
		h.days[last].amount += n
	} else {
		h.days = append(h.days, dayPart{start, n})
	}
	a.count(h.Key, start, n)
}

// countEnded takes what an entry settles or releases from the front of a hold's days.
// What is settled goes on to count in the day in which it was held.
func (a *Account) countEnded(h *Hold, e *Entry) {
	n := e.Amount()
	for n > 0 && len(h.days) > 0 {
		part := min(n, h.days[0].amount)
		n -= part
		if e.Kind == Release {
			a.count(h.Key, h.days[0].start, -part)
		}
		if h.days[0].amount -= part; h.days[0].amount == 0 {
			h.days = h.days[1:]
		}
	}
}

// Days is how many days the account remembers, those of each key on their own.
func (a *Account) Days() (n int) {
	for _, u := range a.usage {
		n += len(u.days)
	}
	return n
}
