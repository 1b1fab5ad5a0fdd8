// SPDX-License-Identifier: Apache-2.0

package purse

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
)

// A Change moves credits of an account and belongs to no turn of a run: a grant, the end
// of a lot, or an adjustment.
type Change struct {
	Void   bool
	Adjust *Adjustment // set for an adjustment
	Lot    string      // the key of the grant, which also names its lot
	Amount int64       // of a grant or an adjustment, whole credits
	Terms  ledger.Terms
	Note   string // of the end of a lot, or of an adjustment

	Entries []*ledger.Entry // what it came to
	Made    []*ledger.Entry // of an adjustment: the same, or those of the one that it repeats
}

// A GrantRequest adds a lot of credits to an account.
type GrantRequest struct {
	Account string
	// Key names the grant and its lot: a repeated request with the same key changes
	// nothing, and one with other terms is fault.IdempotencyMismatch.
	Key    string
	Amount int64 // whole credits
	Terms  ledger.Terms
}

// Change is the request as a change of the account.
func (req *GrantRequest) Change() *Change {
	return &Change{Lot: req.Key, Amount: req.Amount, Terms: req.Terms}
}

// Key is the key of the first entry of a change, and that of a repeated one, which has no
// entries. It is "" for an adjustment that was refused.
func (ch *Change) Key() string {
	switch {
	case len(ch.Made) > 0:
		return ch.Made[0].Key
	case ch.Adjust != nil:
		return ""
	case ch.Void:
		return voidKey(ch.Lot)
	}
	return ledger.GrantKey(ch.Lot)
}

func voidKey(lot string) string { return "void/" + lot }

// Change decides a change of an account. One that was made before changes nothing.
func (ps *Purses[W]) Change(account string, ch *Change) error {
	p := ps.of(account)
	if p == nil {
		return fault.New(fault.InputInvalid, "account %s does not pay for its runs and has no credits", account)
	}
	if err := ps.load(p); err != nil {
		return err
	}
	ps.expire(p)
	lot, exists := p.account.Lot(ch.Lot)
	var err error
	switch {
	case ch.Adjust != nil:
		ch.Made = nil
		ch.Entries, err = ps.adjust(p, ps.host.Now(), ch)
	case ch.Void && exists && lot.VoidedAt != 0:
		return nil
	case ch.Void:
		ch.Entries, err = one(p.account.Void(ps.host.Now(), voidKey(ch.Lot), ch.Lot, ch.Note))
	case exists && !ch.repeats(&lot):
		return fault.New(fault.IdempotencyMismatch, "key %q was used for another grant", ch.Lot)
	case exists:
		return nil
	default:
		ch.Entries, err = one(p.account.Grant(ps.host.Now(), ch.Lot, ch.Amount, ch.Terms))
	}
	if err != nil {
		return err
	}
	ps.write(p, ch.Entries)
	ps.grow(p)
	return nil
}

// repeats reports whether a grant is the one that made the lot.
func (ch *Change) repeats(lot *ledger.Lot) bool {
	terms := ch.Terms
	if terms.Effective == 0 {
		terms.Effective = lot.Created // it took effect at once
	}
	return ch.Amount == lot.Granted && terms == lot.Terms
}
