// SPDX-License-Identifier: Apache-2.0

package ledger

import "slices"

// ApplyAll applies entries in order, or none of them: on an error the account is as it
// was before.
func (a *Account) ApplyAll(entries []*Entry) error {
	if len(entries) == 1 {
		return a.Apply(entries[0])
	}
	undo := make([]saved, 0, len(entries))
	for _, e := range entries {
		before := a.save(e)
		if err := a.Apply(e); err != nil {
			for _, s := range slices.Backward(undo) {
				a.restore(s)
			}
			return err
		}
		undo = append(undo, before)
	}
	return nil
}

// saved is what an entry may change of an account.
type saved struct {
	seq     uint64
	at      int64
	granted int64
	lots    []Lot // as they were; an absent one has only its name
	holdID  string
	hold    *Hold // nil = there was none
	keys    []string
	usage   []*usage // of keys; nil = there was none
}

func (a *Account) save(e *Entry) saved {
	s := saved{seq: a.seq, at: a.at, granted: a.granted, holdID: e.Hold, lots: make([]Lot, 0, len(e.Parts))}
	for _, p := range e.Parts {
		if l := a.lots[p.Lot]; l != nil {
			s.lots = append(s.lots, *l)
		} else {
			s.lots = append(s.lots, Lot{ID: p.Lot})
		}
	}
	if h, ok := a.Hold(e.Hold); ok {
		s.hold = &h
	}
	if e.Kind == Reserve || e.Kind == Extend || e.Kind == Release {
		s.keys = append(s.keys, "")
		if key := e.KeyName; key != "" {
			s.keys = append(s.keys, key)
		} else if s.hold != nil && s.hold.Key != "" {
			s.keys = append(s.keys, s.hold.Key)
		}
		for _, key := range s.keys {
			var was *usage
			if u := a.usage[key]; u != nil {
				was = &usage{u.total, slices.Clone(u.days)}
			}
			s.usage = append(s.usage, was)
		}
	}
	return s
}

func (a *Account) restore(s saved) {
	a.seq, a.at, a.granted = s.seq, s.at, s.granted
	for i := range s.lots {
		was := &s.lots[i]
		l := a.lots[was.ID]
		if was.Seq == 0 { // the entry granted it
			l.Free = 0
			a.list(l)
			delete(a.lots, was.ID)
			continue
		}
		*l = *was
		a.list(l)
	}
	if s.hold != nil {
		a.holds[s.holdID] = s.hold
	} else {
		delete(a.holds, s.holdID)
	}
	for i, key := range s.keys {
		if s.usage[i] != nil {
			a.usage[key] = s.usage[i]
		} else {
			delete(a.usage, key)
		}
	}
}
