// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// below compares what the journal of a run says of its child runs with what their own
// journals say, down to the last of the tree: what they have of the root's credits, and
// what they cost. h is the reservation of the root run that is proved, nil if it has none;
// of the root's child runs it has those of its generation.
func (p *proof) below(run string, pay *journal.Payment, h *hold) {
	var read childReader
	for i, c := range pay.Children() {
		if h != nil && run == h.run && c.Fence.Gen != h.gen {
			continue
		}
		if p.failed.Load() != nil {
			return
		}
		p.child(&read, run, pay, &pay.Children()[i], h)
	}
}

// A childReader reads the payments of child runs. The attempts of one that went on often follow one
// another, so it keeps the last one.
type childReader struct {
	run string
	pay *journal.Payment
	err error
}

func (r *childReader) payment(p *proof, run string) (*journal.Payment, error) {
	if r.run != run {
		r.run = run
		r.pay, r.err = p.payment(run)
	}
	return r.pay, r.err
}

// child compares a child run with what the journal of its parent says of it.
func (p *proof) child(read *childReader, parent string, up *journal.Payment, c *journal.ChildCost, h *hold) {
	find := func(found, want string) {
		f := Finding{Run: c.Run, Found: found, Want: want}
		if h != nil {
			e := h.paid()
			f.Entry, f.Key = e.n, e.Key
		}
		p.find(f)
	}
	pay, err := read.payment(p, c.Run)
	switch {
	case errors.Is(err, fault.RunNotFound):
		// One that could not be started has failed and costs nothing. The child runs of an
		// imported run are not here.
		if h != nil && (c.Status != journal.RunFailed || c.Used != 0) {
			find("it is not there", fmt.Sprintf("a child run, which event %d of run %s starts", c.Started, parent))
		}
		return
	case errors.Is(err, fault.StoreCorrupt):
		find(fault.Message(err), "a journal that can be read and follows the rules of charges")
		p.children.Add(1)
		p.note(p.inside, c.Run, unknown) // what comes after the damage may end it, or be about runs below
		return
	case err != nil:
		p.fail(err)
		return
	}
	try := pay.Try(c.Fence)
	if found, want := disagree(parent, up, c, &try, pay.Account() == p.account); found != "" {
		find(found, want)
	} else if c.Ended == 0 && try.Status != journal.RunPending {
		p.untold(parent, c, &try, find)
	}
	if try.Place != pay.Place() {
		return // it has gone on, and is proved as its last attempt
	}
	p.children.Add(1)
	p.note(p.inside, c.Run, usedBy(pay))
	p.below(c.Run, pay, h)
}

// untold looks at a child run that has ended and whose parent does not know. That is so
// while the parent is quarantined, and then the child run's row says that it owes its end.
func (p *proof) untold(parent string, c *journal.ChildCost, try *journal.Try, find func(found, want string)) {
	head, err := p.src.Head(p.ctx, store.Key{Account: p.account, Run: c.Run})
	switch {
	case errors.Is(err, fault.StoreCorrupt), errors.Is(err, fault.RunNotFound): // found by the pass over all runs
	case err != nil:
		p.fail(err)
	case !head.Owes:
		find(fmt.Sprintf("it is %s and costs %s credits", try.Status, try.Cost), fmt.Sprintf("a run that goes on: the journal of run %s has no end of it after event %d", parent, c.Started))
	}
}

// disagree returns in what the journal of a child run is not what its parent's says of it,
// and what was expected; "" = in nothing.
func disagree(parent string, up *journal.Payment, c *journal.ChildCost, try *journal.Try, same bool) (found, want string) {
	place, root, ended := try.Place, parent, try.Status != journal.RunPending
	if up.Place() != nil {
		root = up.Place().Root
	}
	switch {
	case place == nil || place.Parent != parent || place.Root != root || place.Ref() != c.Ref || place.Fence() != c.Fence || !same:
		return "it says of itself that it is another run", fmt.Sprintf("the child run that event %d of run %s starts", c.Started, parent)
	case place.Share.Credits != c.Given.Credits:
		return fmt.Sprintf("it begins with %d credits", place.Share.Credits), fmt.Sprintf("%d, as event %d of run %s says", c.Given.Credits, c.Started, parent)
	case c.Ended != 0 && !ended:
		return "its journal has no end", fmt.Sprintf("%s, as event %d of run %s says", c.Status, c.Ended, parent)
	case c.Ended != 0 && try.Status != c.Status:
		return fmt.Sprintf("it is %s", try.Status), fmt.Sprintf("%s, as event %d of run %s says", c.Status, c.Ended, parent)
	case try.Share != c.Credits:
		return fmt.Sprintf("it has been given %d credits", try.Share), fmt.Sprintf("%d, as the journal of run %s says", c.Credits, parent)
	case c.Ended != 0 && try.Cost != c.Used:
		return fmt.Sprintf("event %d of run %s is charged %s credits for it", c.Ended, parent, c.Used), fmt.Sprintf("%s, as its journal says", try.Cost)
	}
	return "", ""
}

// orphans looks at the child runs that no root has led to, by the journals of their
// parents. Those of a root that is being deleted are left for a moment.
func (p *proof) orphans() error {
	var parent string
	var up *journal.Payment // nil = its journal cannot be read, which was found before
	var read childReader
	for i := range p.strays {
		head := &p.strays[i]
		if used, known := p.inside[maphash.String(p.seed, head.Run)]; known {
			p.checkHead(head, used) // its row comes before that of its root
			continue
		}
		if head.Parent != parent || up == nil {
			var err error
			parent = head.Parent
			switch up, err = p.payment(parent); {
			case errors.Is(err, fault.RunNotFound), errors.Is(err, fault.StoreCorrupt):
				up = nil
				continue
			case err != nil:
				return err
			}
		}
		costs, known := up.Children(), false
		for n := range costs { // one that went on has several
			if c := &costs[n]; c.Run == head.Run {
				known = true
				p.child(&read, parent, up, c, nil)
			}
		}
		if used, read := p.inside[maphash.String(p.seed, head.Run)]; read {
			p.checkHead(head, used)
		} else if !known {
			p.find(Finding{Run: head.Run, Found: "it is a child run of run " + parent, Want: "one that the journal of its parent starts"})
		}
	}
	return nil
}
