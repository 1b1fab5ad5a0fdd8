// SPDX-License-Identifier: Apache-2.0

package ledger

import "slices"

// A Watch says which levels of an account's credits are reported when a commit crosses
// them.
type Watch struct {
	// Low are levels of what is available. Falling below one is reported, and again only
	// after it was reached.
	Low []int64
	// Budgets that are in audit mode are reported when more than their limit is used.
	Budgets Budgets
}

// NewWatch returns a watch of the levels and of the budgets that are in audit mode, or nil
// if there are none.
func NewWatch(low []int64, budgets Budgets) *Watch {
	audits := budgets.Day.Audit
	for _, b := range budgets.Keys {
		audits = audits || b.Audit
	}
	if len(low) == 0 && !audits {
		return nil
	}
	return &Watch{Low: low, Budgets: budgets}
}

// A Notice says that a level was crossed.
type Notice struct {
	Source string `json:"limitSource"` // "account": the available credits; else that of a budget
	Limit  int64  `json:"limit"`       // the level
	Amount int64  `json:"amount"`      // what is available, or what is used
}

// ApplyAll applies entries to an account as [Account.ApplyAll] does, and returns which
// levels they have crossed. A nil Watch has none.
func (w *Watch) ApplyAll(a *Account, entries []*Entry) ([]Notice, error) {
	if w == nil {
		return nil, a.ApplyAll(entries)
	}
	t := a.at
	for _, e := range entries {
		t = max(t, e.At)
	}
	// A lot may have ended since the last entry, which is no reason to miss that the
	// credits fall below a level now.
	before := max(a.Available(a.at), a.Available(t))
	used := w.audited(a, entries, t)
	if err := a.ApplyAll(entries); err != nil {
		return nil, err
	}
	var notices []Notice
	after := a.Available(t)
	for _, low := range w.Low {
		if before >= low && after < low {
			notices = append(notices, Notice{"account", low, after})
		}
	}
	for i, s := range used {
		first, _ := s.Reset.Period(t, w.Budgets.zone())
		if n := a.Used(s.bound.Key, first); used[i].Used <= s.Limit && n > s.Limit {
			notices = append(notices, Notice{s.Source, s.Limit, n})
		}
	}
	return notices, nil
}

// audited returns the budgets in audit mode in which entries count.
func (w *Watch) audited(a *Account, entries []*Entry, t int64) (all []Standing) {
	for _, e := range entries {
		key := e.KeyName
		switch h := a.holds[e.Hold]; {
		case e.Kind != Reserve && e.Kind != Extend:
			continue
		case h != nil:
			key = h.Key
		}
		for _, s := range w.Budgets.Standings(a, key, t) {
			known := slices.ContainsFunc(all, func(o Standing) bool { return o.Source == s.Source })
			if s.Audit && !known {
				all = append(all, s)
			}
		}
	}
	return all
}
