// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/mutation"
)

// A Lot is a grant and what has become of it.
type Lot struct {
	ID       string `json:"id"`
	Terms    Terms  `json:"terms"`
	Granted  int64  `json:"granted"`
	Created  int64  `json:"createdAt"`          // UTC µs
	Seq      uint64 `json:"seq"`                // of its grant among the entries
	VoidedAt int64  `json:"voidedAt,omitempty"` // when it was voided; 0 = it was not
	Free     int64  `json:"free"`
	Held     int64  `json:"held"`
	Spent    int64  `json:"spent"`
	Expired  int64  `json:"expired"`
	Voided   int64  `json:"voided"`
}

// live reports whether the lot can be reserved from at time t.
func (l *Lot) live(t int64) bool { return t >= l.Terms.Effective && !l.ended(t) }

// ended reports whether the lot has ended at time t.
func (l *Lot) ended(t int64) bool {
	return l.VoidedAt != 0 && t >= l.VoidedAt || l.Terms.Expires != 0 && t >= l.Terms.Expires && !mutation.Expiry
}

// burnsBefore is the order in which lots are used: priority, expiry, creation.
func (l *Lot) burnsBefore(m *Lot) int {
	never := func(t int64) int64 {
		if t == 0 {
			return 1<<63 - 1
		}
		return t
	}
	if mutation.LotOrder {
		return cmp.Compare(l.Seq, m.Seq)
	}
	return cmp.Or(cmp.Compare(l.Terms.Priority, m.Terms.Priority), cmp.Compare(never(l.Terms.Expires), never(m.Terms.Expires)),
		cmp.Compare(l.Seq, m.Seq))
}

// bucket returns the lot's amount in a bucket.
func (l *Lot) bucket(b Bucket) *int64 {
	switch b {
	case Free:
		return &l.Free
	case Held:
		return &l.Held
	case Spent:
		return &l.Spent
	case Expired:
		return &l.Expired
	case Voided:
		return &l.Voided
	}
	return nil
}

// A Hold is a reservation that has not been settled. It names the lots that it took, in
// the order in which it spends them.
type Hold struct {
	ID      string `json:"reservationId"`
	Run     string `json:"run"`
	Created int64  `json:"createdAt"`
	Until   int64  `json:"expiresAt"`
	Parts   []Part `json:"parts"`
	// Key is the name of the key that the run was started with.
	Key  string    `json:"keyName,omitempty"`
	days []dayPart // in which Parts count, the front of Parts first
}

// Amount is what is held.
func (h *Hold) Amount() int64 { return sum(h.Parts) }

// An Account is the state of an account: the fold of its entries. It is for one
// goroutine at a time. Make one with NewAccount.
type Account struct {
	seq   uint64 // of the last entry
	at    int64  // the latest time of an entry
	lots  map[string]*Lot
	order []*Lot // lots that may have free credits, in the order in which they burn
	holds map[string]*Hold
	usage map[string]*usage // by key; that of "" is the account's

	granted int64 // in all
}

// NewAccount returns an account without credits.
func NewAccount() *Account {
	return &Account{lots: map[string]*Lot{}, holds: map[string]*Hold{}, usage: map[string]*usage{}}
}

// Clone returns an account that does not change when a does.
func (a *Account) Clone() *Account {
	c := &Account{seq: a.seq, at: a.at, granted: a.granted, lots: make(map[string]*Lot, len(a.lots)), holds: make(map[string]*Hold, len(a.holds)), usage: make(map[string]*usage, len(a.usage))}
	for id, l := range a.lots {
		lot := *l
		c.lots[id] = &lot
	}
	for _, l := range a.order {
		c.order = append(c.order, c.lots[l.ID])
	}
	for id := range a.holds {
		h, _ := a.Hold(id)
		c.holds[id] = &h
	}
	for key, u := range a.usage {
		c.usage[key] = &usage{u.total, slices.Clone(u.days)}
	}
	return c
}

// Seq is the number of entries applied.
func (a *Account) Seq() uint64 { return a.seq }

// At is the latest time of an entry applied, UTC µs. Later entries are not dated before
// it, except that an expiry is dated at the end of its lot.
func (a *Account) At() int64 { return a.at }

// Size is how many lots and reservations the account has.
func (a *Account) Size() int { return len(a.lots) + len(a.holds) }

// Lot returns a copy of a lot.
func (a *Account) Lot(id string) (lot Lot, ok bool) {
	l := a.lots[id]
	if l == nil {
		return Lot{}, false
	}
	return *l, true
}

// Lots returns copies of all lots, in the order in which they were granted.
func (a *Account) Lots() []Lot {
	lots := make([]Lot, 0, len(a.lots))
	for _, l := range a.lots {
		lots = append(lots, *l)
	}
	heap.Sort(lots, func(l, m Lot) int { return cmp.Compare(l.Seq, m.Seq) })
	return lots
}

// Hold returns a copy of a hold.
func (a *Account) Hold(id string) (hold Hold, ok bool) {
	h := a.holds[id]
	if h == nil {
		return Hold{}, false
	}
	hold = *h
	hold.Parts, hold.days = slices.Clone(h.Parts), slices.Clone(h.days)
	return hold, true
}

// Balance returns the account's credits at time t, which is not before the last entry.
func (a *Account) Balance(t int64) (b Balance) {
	for _, l := range a.lots {
		b.Granted += l.Granted
		b.Held += l.Held
		b.Spent += l.Spent
		b.Expired += l.Expired
		b.Voided += l.Voided
		switch {
		case t < l.Terms.Effective && !l.ended(t):
			b.Pending += l.Free
		case l.ended(t):
			b.Expired += l.Free // no entry has said so yet
		default:
			b.Available += l.Free
		}
	}
	return b
}

// Available is what can be reserved at time t.
func (a *Account) Available(t int64) (n int64) {
	for _, l := range a.order {
		if l.live(t) {
			n += l.Free
		}
	}
	return n
}

// NextChange is when a lot with free credits next takes effect or ends, after time t; 0
// = never. A lot that has ended by then without an entry that says so counts at once.
func (a *Account) NextChange(t int64) (at int64) {
	for _, l := range a.order {
		for _, change := range [...]int64{l.Terms.Effective, l.Terms.Expires} {
			if change != 0 && (change > t || change == l.Terms.Expires) && (at == 0 || change < at) {
				at = change
			}
		}
	}
	return at
}

// Apply applies an entry that was decided before, by this account or by another copy of
// it. An error means that the entry does not fit, and changes nothing: a lot or a hold
// is missing, or has less than the entry moves. This is the guard of the store; it does
// not judge in which order lots were chosen.
func (a *Account) Apply(e *Entry) error {
	if err := a.check(e); err != nil {
		return err
	}
	a.seq++
	a.at = max(a.at, e.At)
	if e.Kind == Grant {
		l := &Lot{ID: e.Parts[0].Lot, Terms: *e.Terms, Granted: e.Parts[0].Amount, Created: e.At, Seq: a.seq}
		a.lots[l.ID] = l
		a.granted += l.Granted
	}
	from, to := e.Kind.Postings()
	for _, p := range e.Parts {
		l := a.lots[p.Lot]
		if b := l.bucket(from); b != nil {
			*b -= p.Amount
		}
		*l.bucket(to) += p.Amount
		if e.Kind == Void && l.VoidedAt == 0 {
			l.VoidedAt = e.At // later ones void what its holds return
		}
		a.list(l)
	}
	a.applyHold(e)
	return nil
}

// list keeps the lots with free credits in order.
func (a *Account) list(l *Lot) {
	i, found := slices.BinarySearchFunc(a.order, l, (*Lot).burnsBefore)
	switch {
	case l.Free > 0 && !found:
		a.order = slices.Insert(a.order, i, l)
	case l.Free == 0 && found:
		a.order = slices.Delete(a.order, i, i+1)
	}
}

func (a *Account) applyHold(e *Entry) {
	switch e.Kind {
	case Reserve:
		h := &Hold{ID: e.Hold, Run: e.Run, Created: e.At, Until: e.HoldUntil, Parts: slices.Clone(e.Parts), Key: e.KeyName}
		a.holds[e.Hold] = h
		a.countHeld(h, e)
	case Extend:
		h := a.holds[e.Hold]
		for _, p := range e.Parts {
			if last := len(h.Parts) - 1; last >= 0 && h.Parts[last].Lot == p.Lot {
				h.Parts[last].Amount += p.Amount
			} else {
				h.Parts = append(h.Parts, p)
			}
		}
		a.countHeld(h, e)
	case Settle, Release:
		h := a.holds[e.Hold]
		h.Parts = h.Parts[:copy(h.Parts, rest(h.Parts, e.Amount()))]
		a.countEnded(h, e)
		if len(h.Parts) == 0 {
			delete(a.holds, e.Hold)
		}
	}
}

// front returns the first n credits of parts.
func front(parts []Part, n int64) (taken []Part) {
	for _, p := range parts {
		if n == 0 {
			break
		}
		p.Amount = min(p.Amount, n)
		n -= p.Amount
		taken = append(taken, p)
	}
	return taken
}

// rest returns parts without the first n credits.
func rest(parts []Part, n int64) []Part {
	for i := range parts {
		if n < parts[i].Amount {
			left := slices.Clone(parts[i:])
			left[0].Amount -= n
			return left
		}
		n -= parts[i].Amount
	}
	return nil
}

// check reports why an entry does not fit.
func (a *Account) check(e *Entry) error {
	if len(e.Parts) == 0 {
		return misfit(e, "it moves nothing")
	}
	from, to := e.Kind.Postings()
	switch {
	case from == to:
		return misfit(e, "kind %d is unknown", e.Kind)
	case e.At < a.at && e.Kind != Expire:
		return misfit(e, "it is dated before an earlier entry")
	case e.Day != 0 && max(e.Day-e.At, e.At-e.Day) > 2*day:
		return misfit(e, "it does not count in a day near its own")
	case e.Key == "" || max(len(e.Key), len(e.Hold), len(e.Run), len(e.KeyName), len(e.Note)) > maxText:
		return misfit(e, "a name of it is empty or longer than %d bytes", maxText)
	}
	need := make(map[string]int64, len(e.Parts))
	for _, p := range e.Parts {
		if p.Amount <= 0 && e.Kind != Void || p.Amount < 0 || p.Amount > MaxAmount {
			return misfit(e, "a part of %d credits", p.Amount)
		}
		n, ok := add(need[p.Lot], p.Amount)
		if !ok {
			return misfit(e, "its parts are larger than any account")
		}
		need[p.Lot] = n
	}
	if e.Kind == Grant {
		return a.checkGrant(e)
	}
	for id, n := range need {
		l := a.lots[id]
		switch {
		case l == nil:
			return misfit(e, "there is no lot %s", id)
		case *l.bucket(from) < n:
			return misfit(e, "lot %s has %d credits there, %d are wanted", id, *l.bucket(from), n)
		case (e.Kind == Reserve || e.Kind == Extend) && !l.live(e.At):
			return misfit(e, "lot %s is not in effect", id)
		case e.Kind == Expire && !l.ended(e.At):
			return misfit(e, "lot %s has not ended", id)
		case e.Kind == Void && n != l.Free:
			return misfit(e, "lot %s has %d free credits, it voids %d", id, l.Free, n)
		}
	}
	return a.checkHold(e)
}

func (a *Account) checkGrant(e *Entry) error {
	if len(e.Parts) != 1 || e.Terms == nil {
		return misfit(e, "a grant has one lot, and its terms")
	}
	p := e.Parts[0]
	if p.Lot == "" || len(p.Lot) > maxText {
		return misfit(e, "the name of the lot is empty or longer than %d bytes", maxText)
	}
	if a.lots[p.Lot] != nil {
		return misfit(e, "there is a lot %s", p.Lot)
	}
	if _, ok := add(a.granted, p.Amount); !ok {
		return fault.New(fault.InputInvalid, "a grant of %d credits: the account would have been granted more than %d in all", p.Amount, int64(MaxAmount))
	}
	return nil
}

func (a *Account) checkHold(e *Entry) error {
	switch e.Kind {
	case Reserve:
		if a.holds[e.Hold] != nil {
			return misfit(e, "there is a reservation %s", e.Hold)
		}
		return nil
	case Extend, Settle, Release:
		h := a.holds[e.Hold]
		if h == nil {
			return misfit(e, "there is no reservation %s", e.Hold)
		}
		if e.Kind != Extend && !slices.Equal(front(h.Parts, e.Amount()), e.Parts) {
			return misfit(e, "it does not take the front of reservation %s", e.Hold)
		}
	}
	return nil
}

func misfit(e *Entry, format string, args ...any) error {
	return fault.New(fault.Conflict, "entry %s (%s): %s", e.Key, e.Kind, fmt.Sprintf(format, args...))
}
