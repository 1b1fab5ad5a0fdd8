// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"slices"

	"github.com/roux-engine/roux/internal/ledger"
)

// This file is a second model of the ledger. It was written from section 12 of
// the design and from the package's documentation, without its source. It keeps
// every credit by itself and searches all of them for every question, so that it
// has nothing in common with the buckets of the package.

// A place is where one credit is.
type place int

const (
	placeFree place = iota
	placeHeld
	placeSpent
	placeExpired
	placeVoided
	places
)

// A credit is one credit of a lot. A held credit knows its hold and a spent one
// its charge, by number, and its position in them.
type credit struct {
	lot   int
	place place
	owner int
	pos   int
}

type modelLot struct {
	id      string
	terms   ledger.Terms
	created int64
	voided  int64 // when it was; 0 = it was not
}

// expired reports whether the lot's time is over at t.
func (l *modelLot) expired(t int64) bool { return l.terms.Expires != 0 && l.terms.Expires <= t }

// ended returns where credits go that come back to the lot at t.
func (l *modelLot) ended(t int64) place {
	switch {
	case l.voided != 0:
		return placeVoided
	case l.expired(t):
		return placeExpired
	}
	return placeFree
}

// burnsBefore reports whether lot l of the model is spent before lot k.
func (m *model) burnsBefore(l, k int) bool {
	a, b := m.lots[l].terms, m.lots[k].terms
	if a.Priority != b.Priority {
		return a.Priority < b.Priority
	}
	if a.Expires != b.Expires {
		return b.Expires == 0 || a.Expires != 0 && a.Expires < b.Expires
	}
	return l < k // the order of creation
}

type modelHold struct {
	id      string
	created int64
	open    bool
	size    int // credits it has taken
}

// A modelCharge is what a settlement has spent.
type modelCharge struct {
	entry int // of the settlement, in the journal
	left  int64
}

type model struct {
	now     int64 // of the history
	last    int64 // when something was last written
	lots    []modelLot
	credits []credit
	holds   []modelHold
	charges []modelCharge
	entries int
}

// A move is what the model wants an entry to say.
type move struct {
	kind  ledger.Kind
	at    int64
	parts []ledger.Part
}

// A refusal says why the model refuses an operation; "" is that it does not.
type refusal string

const (
	invalid refusal = "refused"
	short   refusal = "INSUFFICIENT_CREDITS"
)

// available returns how many credits can be taken at t.
func (m *model) available(t int64) int64 { return m.balance(t).Available }

// balance counts the credits at t.
func (m *model) balance(t int64) (b ledger.Balance) {
	for _, c := range m.credits {
		b.Granted++
		l := &m.lots[c.lot]
		switch {
		case c.place == placeHeld:
			b.Held++
		case c.place == placeSpent:
			b.Spent++
		case c.place == placeVoided:
			b.Voided++
		case c.place == placeExpired, l.expired(t):
			b.Expired++
		case t < l.terms.Effective:
			b.Pending++
		default:
			b.Available++
		}
	}
	return b
}

// first returns the free credit that burns first at t.
func (m *model) first(t int64) *credit {
	var best *credit
	for i := range m.credits {
		c := &m.credits[i]
		l := &m.lots[c.lot]
		if c.place != placeFree || l.expired(t) || t < l.terms.Effective {
			continue
		}
		if best == nil || c.lot != best.lot && m.burnsBefore(c.lot, best.lot) {
			best = c
		}
	}
	return best
}

// owned returns the credits in a place of an owner in the order of their positions.
func (m *model) owned(p place, owner int) []*credit {
	list := make([]*credit, 0, 16)
	for i := range m.credits {
		if c := &m.credits[i]; c.place == p && c.owner == owner {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *credit) int { return a.pos - b.pos })
	return list
}

// parts names the lots of credits in their order.
func (m *model) parts(credits []*credit) []ledger.Part {
	var parts []ledger.Part
	for _, c := range credits {
		id := m.lots[c.lot].id
		if n := len(parts); n > 0 && parts[n-1].Lot == id {
			parts[n-1].Amount++
			continue
		}
		parts = append(parts, ledger.Part{Lot: id, Amount: 1})
	}
	return parts
}

func (m *model) lot(id string) int {
	return slices.IndexFunc(m.lots, func(l modelLot) bool { return l.id == id })
}

func (m *model) hold(id string) int {
	return slices.IndexFunc(m.holds, func(h modelHold) bool { return h.id == id && h.open })
}

func (m *model) grant(at int64, id string, n int64, terms ledger.Terms) ([]move, refusal) {
	if n < 1 || m.lot(id) >= 0 || terms.Expires != 0 && terms.Expires <= max(at, terms.Effective) {
		return nil, invalid
	}
	for range n {
		m.credits = append(m.credits, credit{lot: len(m.lots)})
	}
	m.lots = append(m.lots, modelLot{id: id, terms: terms, created: at})
	return []move{{ledger.Grant, at, []ledger.Part{{Lot: id, Amount: n}}}}, ""
}

// take moves the n credits that burn first to the end of a hold.
func (m *model) take(kind ledger.Kind, at int64, hold int, n int64) []move {
	var taken []*credit
	for range n {
		c := m.first(at)
		c.place, c.owner, c.pos = placeHeld, hold, m.holds[hold].size
		m.holds[hold].size++
		taken = append(taken, c)
	}
	return []move{{kind, at, m.parts(taken)}}
}

func (m *model) reserve(at int64, id string, n int64) ([]move, refusal) {
	if n < 1 || m.hold(id) >= 0 {
		return nil, invalid
	}
	if n > m.available(at) {
		return nil, short
	}
	m.holds = append(m.holds, modelHold{id: id, created: at, open: true})
	return m.take(ledger.Reserve, at, len(m.holds)-1, n), ""
}

func (m *model) extend(at int64, id string, n int64) ([]move, refusal) {
	h := m.hold(id)
	if n < 1 || h < 0 {
		return nil, invalid
	}
	if n > m.available(at) {
		return nil, short
	}
	return m.take(ledger.Extend, at, h, n), ""
}

// giveBack returns credits to their lots, and out of those that have ended.
func (m *model) giveBack(kind ledger.Kind, at int64, list []*credit) []move {
	if len(list) == 0 {
		return nil
	}
	moves := []move{{kind, at, m.parts(list)}}
	for l := range m.lots {
		var gone []*credit
		end := m.lots[l].ended(at)
		for _, c := range list {
			if c.lot == l {
				c.place = end
				gone = append(gone, c)
			}
		}
		if len(gone) > 0 && end == placeExpired {
			moves = append(moves, move{ledger.Expire, at, m.parts(gone)})
		}
		if len(gone) > 0 && end == placeVoided {
			moves = append(moves, move{ledger.Void, at, m.parts(gone)})
		}
	}
	return moves
}

func (m *model) settle(at int64, id string, due int64) (moves []move, no refusal) {
	h := m.hold(id)
	if h < 0 || due < 0 {
		return nil, invalid
	}
	held := m.owned(placeHeld, h)
	if due > int64(len(held)) {
		return nil, invalid
	}
	m.holds[h].open = false
	if due > 0 {
		moves = append(moves, move{ledger.Settle, at, m.parts(held[:due])})
		for _, c := range held[:due] {
			c.place, c.owner = placeSpent, len(m.charges)
		}
		m.charges = append(m.charges, modelCharge{m.entries, due})
	}
	return append(moves, m.giveBack(ledger.Release, at, held[due:])...), ""
}

func (m *model) adjust(at int64, entry int, n int64) ([]move, refusal) {
	k := slices.IndexFunc(m.charges, func(c modelCharge) bool { return c.entry == entry })
	if k < 0 || n < 1 || n > m.charges[k].left {
		return nil, invalid
	}
	m.charges[k].left -= n
	spent := m.owned(placeSpent, k)
	slices.Reverse(spent)
	return m.giveBack(ledger.Adjust, at, spent[:n]), ""
}

func (m *model) void(at int64, id string) ([]move, refusal) {
	l := m.lot(id)
	if l < 0 || m.lots[l].ended(at) != placeFree {
		return nil, invalid
	}
	m.lots[l].voided = at
	n := m.sweep(l, placeVoided)
	return []move{{ledger.Void, at, []ledger.Part{{Lot: id, Amount: n}}}}, ""
}

func (m *model) expire(at int64) (moves []move, no refusal) {
	for l := range m.lots {
		if !m.lots[l].expired(at) {
			continue
		}
		if n := m.sweep(l, placeExpired); n > 0 {
			part := ledger.Part{Lot: m.lots[l].id, Amount: n}
			moves = append(moves, move{ledger.Expire, m.lots[l].terms.Expires, []ledger.Part{part}})
		}
	}
	return moves, ""
}

// sweep moves the free credits of a lot and returns how many there were.
func (m *model) sweep(lot int, to place) (n int64) {
	for i := range m.credits {
		if c := &m.credits[i]; c.lot == lot && c.place == placeFree {
			c.place = to
			n++
		}
	}
	return n
}

// A step is one operation of a history.
type step struct {
	do    string
	now   int64
	id    string // of a lot or a hold
	n     int64
	entry int // that is adjusted
	terms ledger.Terms
}

func (s step) String() string {
	switch s.do {
	case "wait":
		return fmt.Sprintf("wait until %d", s.now)
	case "expire":
		return fmt.Sprintf("at %d expire", s.now)
	case "grant":
		return fmt.Sprintf("at %d grant %s %d, %s, priority %d, from %d until %d", s.now, s.id, s.n,
			s.terms.Source, s.terms.Priority, s.terms.Effective, s.terms.Expires)
	case "void":
		return fmt.Sprintf("at %d void %s", s.now, s.id)
	case "adjust":
		return fmt.Sprintf("at %d adjust entry %d by %d", s.now, s.entry, s.n)
	}
	return fmt.Sprintf("at %d %s %s %d", s.now, s.do, s.id, s.n)
}

// apply does the step in the model. An operation whose time is before that of
// the last entry happens at the time of that entry.
func (m *model) apply(s step) (moves []move, no refusal) {
	at := max(s.now, m.last)
	switch s.do {
	case "grant":
		moves, no = m.grant(at, s.id, s.n, s.terms)
	case "reserve":
		moves, no = m.reserve(at, s.id, s.n)
	case "extend":
		moves, no = m.extend(at, s.id, s.n)
	case "settle":
		moves, no = m.settle(at, s.id, s.n)
	case "adjust":
		moves, no = m.adjust(at, s.entry, s.n)
	case "void":
		moves, no = m.void(at, s.id)
	case "expire":
		moves, no = m.expire(at)
	}
	for _, want := range moves {
		m.last = max(m.last, want.at)
	}
	m.entries += len(moves)
	return moves, no
}
