// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// prove compares a reservation with the journal of its run, and those of the runs below.
func (p *proof) prove(h *hold) {
	if p.failed.Load() != nil {
		return
	}
	pay, err := p.payment(h.run)
	first := h.entries[0]
	switch {
	case errors.Is(err, fault.RunNotFound):
		p.deleted.Add(1)
		if !h.closed {
			p.find(Finding{Entry: first.n, Key: first.Key, Run: h.run, Found: fmt.Sprintf("%d credits are held for run %s, which is not there", h.held, h.run), Want: "nothing held for a run that was deleted"})
		}
		p.names(h)
		return
	case errors.Is(err, fault.StoreCorrupt):
		p.find(Finding{Entry: first.n, Key: first.Key, Run: h.run, Found: fault.Message(err), Want: "a journal that can be read and follows the rules of charges"})
		return
	case err != nil:
		p.fail(err)
		return
	}
	p.names(h)
	p.match(h, pay)
	p.generations(h, pay)
	p.below(h.run, pay, h)
	p.note(p.seen, h.run, usedBy(pay))
}

// usedBy is what a run has used, if it has ended.
func usedBy(pay *journal.Payment) int64 {
	if pay.Ended() {
		return pay.Used().Ceil()
	}
	return goesOn
}

// note records what a run has used, for the pass over all runs. If there is no room for
// that, it compares the run's row at once.
func (p *proof) note(seen map[uint64]int64, run string, used int64) {
	sum := maphash.String(p.seed, run)
	p.mu.Lock()
	_, room := seen[sum]
	if room = room || len(seen) < maxSeen; room {
		seen[sum] = used
	}
	p.mu.Unlock()
	if room {
		return
	}
	head, err := p.src.Head(p.ctx, store.Key{Account: p.account, Run: run})
	switch {
	case err == nil:
		p.checkHead(&head, used)
	case !errors.Is(err, fault.StoreCorrupt) && !errors.Is(err, fault.RunNotFound):
		p.fail(err)
	}
}

// checkHead compares what the list of runs says with the journal. The row may be older
// than the journal, never newer.
func (p *proof) checkHead(head *store.Head, used int64) {
	switch {
	case used == unknown || used == goesOn && head.Ended == 0:
	case used == goesOn:
		p.find(Finding{Run: head.Run, Found: "the list of runs says that it is " + head.Status, Want: "a run that goes on: its journal has no end"})
	case head.Used != used:
		p.find(Finding{Run: head.Run, Found: fmt.Sprintf("the list of runs says that it used %d credits", head.Used), Want: fmt.Sprintf("%d, the sum of what its steps cost", used)})
	}
}

// payment reads what the journal of a run says of credits. What contradicts itself is
// fault.StoreCorrupt.
func (p *proof) payment(run string) (*journal.Payment, error) {
	pay := journal.NewPayment(func(hash string) (*plan.Plan, error) { return p.planOf(run, hash) })
	err := store.EachEvent(p.ctx, p.src, store.Key{Account: p.account, Run: run}, 0, func(ev *journal.Event) error {
		if err := pay.Add(ev); err != nil {
			return fault.Wrap(fault.StoreCorrupt, err, "run %s: %v", run, err)
		}
		return nil
	})
	return pay, err
}

// names checks what the entries of a reservation are called.
func (p *proof) names(h *hold) {
	for _, e := range h.entries {
		if e.Run != h.run {
			p.find(Finding{Entry: e.n, Key: e.Key, Run: e.Run, Found: "it is an entry of run " + e.Run, Want: "run " + h.run + ", whose reservation it names"})
		}
	}
}

// A want is the entry that an event must have.
type want struct {
	kind   ledger.Kind
	amount int64
	move   *journal.Move
}

// wants are the entries of a generation, as its events say.
func wants(moves []journal.Move, gen uint32) (list []want) {
	for i := range moves {
		m := &moves[i]
		if m.Generation != gen {
			continue
		}
		switch m.Kind {
		case journal.EvCreditsReserved:
			list = append(list, want{ledger.Reserve, m.Credits, m})
		case journal.EvCreditsExtended:
			if list == nil { // a generation that had nothing to reserve
				list = append(list, want{ledger.Reserve, m.Credits, m})
			} else {
				list = append(list, want{ledger.Extend, m.Credits, m})
			}
		case journal.EvCreditsSettled:
			if m.Credits > 0 {
				list = append(list, want{ledger.Settle, m.Credits, m})
			}
			if m.Released > 0 {
				list = append(list, want{ledger.Release, m.Released, m})
			}
		}
	}
	return list
}

// match compares the entries of a reservation with the events, in order.
func (p *proof) match(h *hold, pay *journal.Payment) {
	list := wants(pay.Moves(), h.gen)
	for i, e := range h.entries {
		f := Finding{Entry: e.n, Key: e.Key, Run: h.run, Found: fmt.Sprintf("%s %d at %d", e.Kind, e.Amount(), e.At)}
		if i >= len(list) {
			f.Want = "no entry: the run's journal has no such event"
			p.find(f)
			return
		}
		w := list[i]
		switch {
		case e.Kind != w.kind || e.Amount() != w.amount:
			f.Want = fmt.Sprintf("%s %d, as event %d says", w.kind, w.amount, w.move.Seq)
		case e.At < w.move.At:
			f.Want = fmt.Sprintf("at %d or later, the time of event %d", w.move.At, w.move.Seq)
		case !keyFits(&e, h.id, w.move.Seq):
			f.Found, f.Want = "the key "+e.Key, "one that names its reservation and event "+fmt.Sprint(w.move.Seq)
		case e.Kind == ledger.Reserve && e.HoldUntil != w.move.At+pay.TTL():
			f.Found, f.Want = fmt.Sprintf("a reservation until %d", e.HoldUntil), fmt.Sprintf("%d, the end of the run's ttl", w.move.At+pay.TTL())
		default:
			continue
		}
		p.find(f)
		return
	}
	if len(list) > len(h.entries) && (h.closed || !p.cut.Load()) {
		w, last := list[len(h.entries)], h.entries[len(h.entries)-1]
		p.find(Finding{Entry: last.n, Key: last.Key, Run: h.run, Found: "it is the last entry of its reservation", Want: fmt.Sprintf("another one: %s %d, as event %d says", w.kind, w.amount, w.move.Seq)})
	}
}

// keyFits reports whether an entry has the key that it gets from its event. Those of
// settlements were once named after their reservation alone.
func keyFits(e *entry, hold string, event uint64) bool {
	if e.Kind == ledger.Reserve {
		return e.Key == "reserve/"+hold
	}
	kind, rest := e.Kind, ""
	if kind == ledger.Release {
		kind, rest = ledger.Settle, "/release"
	}
	return e.Key == ledger.EventKey(kind, hold, event)+rest || kind == ledger.Settle && e.Key == "settle/"+hold+rest
}

// generations checks that later generations of the run that moved credits have entries:
// one without any would never be compared. Earlier ones may have been elsewhere, if the
// run was adopted.
func (p *proof) generations(h *hold, pay *journal.Payment) {
	moves := pay.Moves()
	for i := range moves {
		g := moves[i].Generation
		if g <= h.gen || i > 0 && moves[i-1].Generation == g {
			continue
		}
		key := fmt.Sprintf("reserve/%s.%d", h.run, g)
		e, _, err := p.src.Entry(p.ctx, p.account, key)
		switch {
		case err != nil && !errors.Is(err, fault.StoreCorrupt):
			p.fail(err)
		case e == nil:
			p.find(Finding{Run: h.run, Found: fmt.Sprintf("generation %d has no reservation", g), Want: fmt.Sprintf("entry %s, as event %d says", key, moves[i].Seq)})
		}
	}
}

// others looks for runs whose journal moves credits and that have no entry: those that
// are left when the ones with entries are left out. If these are too many for the memory,
// the ledger is read again for a part of them at a time.
func (p *proof) others() error {
	rounds := uint64(p.report.Runs)/maxSeen + 1
	for round := range rounds {
		if rounds > 1 {
			if err := p.remember(rounds, round); err != nil {
				return err
			}
		}
		for after := ""; ; {
			heads, err := p.src.HeadsAfter(p.ctx, p.account, after)
			if err != nil {
				return err
			}
			if len(heads) == 0 {
				break
			}
			for i := range heads {
				if err := p.other(&heads[i], rounds, round); err != nil {
					return err
				}
			}
			after = heads[len(heads)-1].Run
		}
	}
	return p.orphans()
}

// remember reads which runs have entries, of one part of all.
func (p *proof) remember(parts, part uint64) error {
	clear(p.seen)
	err := p.src.FoldLedger(p.ctx, p.account, func(_ *ledger.Account, e *ledger.Entry, _ uint64) error {
		if sum := maphash.String(p.seed, e.Run); e.Kind == ledger.Reserve && sum%parts == part {
			p.seen[sum] = unknown
		}
		return p.ctx.Err()
	})
	if errors.Is(err, fault.StoreCorrupt) {
		return nil // it was found before
	}
	return err
}

// other compares the head of a run that was read, and reads a root run that has no
// entries. Child runs are read with their roots.
func (p *proof) other(head *store.Head, parts, part uint64) error {
	sum := maphash.String(p.seed, head.Run)
	if sum%parts != part {
		return nil
	}
	seen := p.seen
	if head.Root != "" {
		seen = p.inside
	}
	if head.Damage != "" {
		p.find(Finding{Run: head.Run, Found: head.Damage, Want: "a row that can be read"})
		return nil
	}
	if used, known := seen[sum]; known {
		p.checkHead(head, used)
		return nil
	}
	if head.Imported() {
		return nil
	}
	if head.Root != "" {
		p.strays = append(p.strays, *head)
		return nil
	}
	pay, err := p.payment(head.Run)
	switch {
	case errors.Is(err, fault.StoreCorrupt):
		p.find(Finding{Run: head.Run, Found: fault.Message(err), Want: "a journal that can be read"})
		return nil
	case err != nil:
		return err
	}
	if len(pay.Moves()) > 0 {
		p.report.Elsewhere++
	}
	p.below(head.Run, pay, nil)
	return nil
}
