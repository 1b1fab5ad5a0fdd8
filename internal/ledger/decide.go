// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"

	"github.com/roux-engine/roux/fault"
)

// The operations below decide entries at time now (UTC µs) and apply them to the
// account. A clock that was set back does not count: now is no earlier than the last
// entry. The caller makes all entries of one operation durable together. Keys of entries
// that an operation adds are derived from its own.

// Grant adds a lot of n credits, which is named by the caller's key. The entry's own key
// is that behind "grant/", so that no caller can use one which this package derives.
func (a *Account) Grant(now int64, key string, n int64, terms Terms) (*Entry, error) {
	now = max(now, a.at)
	if err := checkAmount("a grant", n); err != nil {
		return nil, err
	}
	terms.Effective = cmp.Or(terms.Effective, now)
	switch {
	case key == "" || len(key) > MaxKey:
		return nil, fault.New(fault.InputInvalid, "a grant needs a key of 1 to %d bytes, which also names its lot", MaxKey)
	case terms.Source != Paid && terms.Source != Promotional:
		return nil, fault.New(fault.InputInvalid, "a grant of source %q: want %q or %q", terms.Source, Paid, Promotional)
	case terms.Expires != 0 && terms.Expires <= max(now, terms.Effective):
		return nil, fault.New(fault.InputInvalid, "a grant that has ended when it takes effect: its expiry must come later")
	}
	e := &Entry{Key: GrantKey(key), Kind: Grant, At: now, Parts: []Part{{key, n}}, Terms: &terms}
	return a.applied(e)
}

// applied applies an entry, and returns it only if it fits.
func (a *Account) applied(e *Entry) (*Entry, error) {
	if err := a.Apply(e); err != nil {
		return nil, err
	}
	return e, nil
}

// take chooses n available credits, from the lots that burn first.
func (a *Account) take(now, n int64) (parts []Part, missing int64) {
	for _, l := range a.order {
		if n == 0 {
			break
		}
		if !l.live(now) {
			continue
		}
		part := Part{l.ID, min(l.Free, n)}
		n -= part.Amount
		parts = append(parts, part)
	}
	return parts, n
}

// Takes returns the parts of which an account takes n credits at a time, at most what is
// available.
func (a *Account) Takes(now, n int64) []Part {
	parts, _ := a.take(max(now, a.at), n)
	return parts
}

// Reserve is ReserveFor without a key, and counts in the day in UTC.
func (a *Account) Reserve(now int64, key, hold, run string, n, until int64) (*Entry, error) {
	return a.ReserveFor(Count{}, now, key, hold, run, n, until)
}

// ReserveFor holds n credits for a run until its settlement. The error is
// INSUFFICIENT_CREDITS when the account has less. Budgets are not judged here.
func (a *Account) ReserveFor(c Count, now int64, key, hold, run string, n, until int64) (*Entry, error) {
	now = max(now, a.at)
	if err := checkAmount("a reservation", n); err != nil {
		return nil, err
	}
	parts, missing := a.take(now, n)
	if missing > 0 {
		return nil, Insufficient(n, n-missing)
	}
	e := &Entry{Key: key, Kind: Reserve, At: now, Parts: parts, Hold: hold, Run: run, HoldUntil: until, KeyName: c.Key, Day: c.Day}
	return a.applied(e)
}

// Extend is ExtendFor and counts in the day in UTC.
func (a *Account) Extend(now int64, key, hold string, n int64) (*Entry, error) {
	return a.ExtendFor(Count{}, now, key, hold, n)
}

// ExtendFor adds n credits to a hold, which keeps its key.
func (a *Account) ExtendFor(c Count, now int64, key, hold string, n int64) (*Entry, error) {
	now = max(now, a.at)
	if err := checkAmount("an extension", n); err != nil {
		return nil, err
	}
	h := a.holds[hold]
	if h == nil {
		return nil, fault.New(fault.Conflict, "there is no reservation %s to extend", hold)
	}
	parts, missing := a.take(now, n)
	if missing > 0 {
		return nil, Insufficient(n, n-missing)
	}
	e := &Entry{Key: key, Kind: Extend, At: now, Parts: parts, Hold: hold, Run: h.Run, Day: c.Day}
	return a.applied(e)
}

// Insufficient is the error of a run that needs more credits than its account has.
func Insufficient(needed, available int64) error { return Bound{}.Refuse(needed, available) }

// Settle ends a hold: due credits of its front are spent and the rest is released. What
// it returns to lots that have ended is expired or voided. due is at most what is held.
func (a *Account) Settle(now int64, key, hold string, due int64) ([]*Entry, error) {
	now = max(now, a.at)
	h := a.holds[hold]
	switch {
	case h == nil:
		return nil, fault.New(fault.Conflict, "there is no reservation %s to settle", hold)
	case due < 0 || due > h.Amount():
		return nil, fault.New(fault.Conflict, "reservation %s holds %d credits and cannot settle %d", hold, h.Amount(), due)
	}
	run, spent, left := h.Run, front(h.Parts, due), rest(h.Parts, due)
	var entries []*Entry
	if len(spent) > 0 {
		entries = append(entries, &Entry{Key: key, Kind: Settle, At: now, Parts: spent, Hold: hold, Run: run})
	}
	if len(left) > 0 {
		entries = append(entries, &Entry{Key: key + "/release", Kind: Release, At: now, Parts: left, Hold: hold, Run: run})
	}
	return a.applyReturned(now, key, entries, left)
}

// Adjust returns spent credits to the lots that they came from, such as after a
// complaint: n credits of a settlement, the last ones first. adjusted is how many of it
// earlier adjustments have returned; the caller has them. What it returns to lots that
// have ended is expired or voided.
func (a *Account) Adjust(now int64, key string, charge *Entry, adjusted, n int64, note string) ([]*Entry, error) {
	now = max(now, a.at)
	if err := checkAmount("an adjustment", n); err != nil {
		return nil, err
	}
	left := charge.Amount() - adjusted
	switch {
	case len(note) > MaxNote:
		return nil, longNote()
	case charge.Kind != Settle || adjusted < 0:
		return nil, fault.New(fault.InputInvalid, "an adjustment of %d credits of entry %s, which is no settlement", n, charge.Key)
	case n > left:
		return nil, fault.New(fault.InputInvalid, "an adjustment of %d credits: %d of the charge are left", n, max(0, left))
	}
	parts := rest(front(charge.Parts, left), left-n)
	slices.Reverse(parts)
	e := &Entry{Key: key, Kind: Adjust, At: now, Parts: parts, Hold: charge.Hold, Run: charge.Run, Note: note}
	return a.applyReturned(now, key, []*Entry{e}, parts)
}

// Void ends a lot: its free credits are voided, and so are those that its holds return
// later.
func (a *Account) Void(now int64, key, lot, note string) (*Entry, error) {
	now = max(now, a.at)
	l := a.lots[lot]
	switch {
	case len(note) > MaxNote:
		return nil, longNote()
	case l == nil:
		return nil, fault.New(fault.InputInvalid, "there is no lot %s", lot)
	case l.ended(now):
		return nil, fault.New(fault.Conflict, "lot %s has ended already", lot)
	}
	// A lot without free credits is voided too: for what its holds return.
	e := &Entry{Key: key, Kind: Void, At: now, Parts: []Part{{lot, l.Free}}, Note: note}
	return a.applied(e)
}

func longNote() error {
	return fault.New(fault.InputInvalid, "a note may have %d bytes", MaxNote)
}

// Expire returns an entry for each lot that has expired with free credits of which no
// entry has said so. Each is dated at the end of its lot. On an error it returns the
// entries that were applied.
func (a *Account) Expire(now int64) ([]*Entry, error) {
	now = max(now, a.at)
	var entries []*Entry
	for _, l := range slices.Clone(a.order) {
		if l.ended(now) {
			e := &Entry{Key: "expire/" + l.ID, Kind: Expire, At: l.Terms.Expires, Parts: []Part{{l.ID, l.Free}}}
			if err := a.Apply(e); err != nil {
				return entries, err
			}
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// byLot merges parts of one lot, in the order in which lots first appear.
func byLot(parts []Part) (merged []Part) {
	for _, p := range parts {
		i := slices.IndexFunc(merged, func(m Part) bool { return m.Lot == p.Lot })
		if i < 0 {
			merged = append(merged, p)
		} else {
			merged[i].Amount += p.Amount
		}
	}
	return merged
}

// applyReturned applies entries, and expires or voids what they return to lots that
// have ended; these belong to the same reservation. On an error it returns the entries
// that were applied.
func (a *Account) applyReturned(now int64, key string, entries []*Entry, returned []Part) ([]*Entry, error) {
	for i, e := range entries {
		if err := a.Apply(e); err != nil {
			return entries[:i], err
		}
	}
	for _, p := range byLot(returned) {
		l := a.lots[p.Lot]
		if !l.ended(now) {
			continue
		}
		e := &Entry{Key: key + "/expire/" + p.Lot, Kind: Expire, At: now, Parts: []Part{p}, Hold: entries[0].Hold, Run: entries[0].Run}
		if l.VoidedAt != 0 {
			e.Key, e.Kind = key+"/void/"+p.Lot, Void
		}
		if err := a.Apply(e); err != nil {
			return entries, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}
