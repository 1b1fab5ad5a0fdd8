// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"

	"github.com/roux-engine/roux/internal/ledger"
)

// credits is what a Checker knows of the credits of a run (I11). Without terms the run
// moves none.
type credits struct {
	terms   *Credits
	held    int64 // for this generation
	settled int64 // by earlier generations
	used    ledger.Amount
	ends    *Event // what settled this generation; the next event must end the run
}

// use counts what a step cost: never more than what is settled and held.
func (c *Checker) use(ev *Event) error {
	m := &c.credits
	if m.terms == nil {
		return nil
	}
	amount := ev.spent(c.plan)
	if amount == 0 {
		return nil
	}
	if m.used = m.used.Plus(amount); m.used.Ceil() > m.settled+m.held {
		return fmt.Errorf("I11: the run has used %s credits, %d are settled and %d held", m.used, m.settled, m.held)
	}
	return nil
}

// checkCredits checks the events that move credits, and that nothing stays held when a
// run ends.
func (c *Checker) checkCredits(ev *Event) error {
	m := &c.credits
	settled := m.ends
	m.ends = nil
	switch {
	case settled != nil && !ev.Kind.Ends():
		return fmt.Errorf("I11: event %d settles the run and event %d does not end it", settled.Seq, ev.Seq)
	case settled != nil:
		return c.checkDue(ev, settled)
	case ev.Kind.Ends() && m.held != 0:
		return fmt.Errorf("I11: event %d ends the run while it holds %d credits", ev.Seq, m.held)
	}
	switch ev.Kind {
	case EvCreditsReserved, EvCreditsExtended:
		switch {
		case m.terms == nil:
			return fmt.Errorf("I11: event %d holds credits for a run that costs nothing", ev.Seq)
		case ev.Kind == EvCreditsReserved && m.held != 0:
			return fmt.Errorf("I11: event %d reserves credits, and %d are held", ev.Seq, m.held)
		case ev.Credits() <= 0 || m.settled+m.held+ev.Credits() > m.terms.Most:
			return fmt.Errorf("I11: event %d holds %d credits more; %d are settled and %d held of at most %d", ev.Seq, ev.Credits(), m.settled, m.held, m.terms.Most)
		}
		m.held += ev.Credits()
	case EvCreditsSettled:
		if m.held == 0 || ev.Credits() < 0 || ev.Released() < 0 || ev.Credits()+ev.Released() != m.held {
			return fmt.Errorf("I11: event %d settles %d and releases %d of %d credits", ev.Seq, ev.Credits(), ev.Released(), m.held)
		}
		ends := *ev
		m.ends = &ends
	}
	return nil
}

// checkDue checks what a generation has paid, now that its end is known.
func (c *Checker) checkDue(ev, settled *Event) error {
	m := &c.credits
	due := m.terms.Policy.Due(ev.Kind == EvRunFailed, m.used, m.terms.Estimated, m.terms.Reserved)
	if want := min(m.held, ledger.Settlement(due, m.settled)); settled.Credits() != want {
		return fmt.Errorf("I11: event %d settles %d credits; the run owes %d, has paid %d before and holds %d", settled.Seq, settled.Credits(), due, m.settled, m.held)
	}
	m.settled += settled.Credits()
	m.held = 0
	return nil
}
