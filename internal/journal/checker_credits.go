// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"

	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// credits is what a Checker knows of the credits of a run (I11). Without terms the run
// moves none.
type credits struct {
	terms     *Credits
	estimated int64 // what the run is expected to cost, as last estimated
	child     bool  // its root holds, reserves and settles; held is its share
	held      int64 // for this generation
	given     int64 // of that, the shares of child runs that go on
	settled   int64 // by earlier generations
	used      ledger.Amount
	before    ledger.Amount // what the earlier attempts of a child run that goes on have paid for
	due       ledger.Amount // what the attempt that ended last costs
	ends      *Event        // what settled this generation; the next event must end the run
	short     bool          // more is given than there is; the next event extends what is held
}

// start takes the terms of a run.
func (m *credits) start(st *Start) {
	m.terms = st.Credits
	if st.Credits != nil {
		m.estimated = st.Credits.Estimated
	}
	if st.Child != nil {
		m.child, m.held = true, st.Child.Share.Credits
	}
}

// use counts what a step cost: never more than what is settled and held, and not given
// to child runs. A run that moves no credits records what its steps cost all the same.
func (m *credits) use(ev *Event, p *plan.Plan) error {
	amount := ev.Spent(p)
	if amount == 0 {
		return nil
	}
	m.used = m.used.Plus(amount)
	return m.covered()
}

// give counts the share with which a child run starts.
func (m *credits) give(n int64) error {
	m.given += n
	return m.covered()
}

// giveMore counts what is added to that share. If the run has too little, its own extension
// is the next event.
func (m *credits) giveMore(n int64) {
	m.given += n
	m.short = m.covered() != nil
}

func (m *credits) covered() error {
	if m.terms == nil || (m.used-m.before).Ceil()+m.given <= m.settled+m.held {
		return nil
	}
	return fmt.Errorf("I11: the run has used %s credits, %d are settled and %d held, %d of those for child runs", m.used, m.settled, m.held, m.given)
}

// check checks the events that move credits, and that nothing stays held when a
// run ends.
func (m *credits) check(ev *Event) error {
	if m.short {
		return m.checkShort(ev)
	}
	settled := m.ends
	m.ends = nil
	switch {
	case settled != nil && !ev.Kind.Ends():
		return fmt.Errorf("I11: event %d settles the run and event %d does not end it", settled.Seq, ev.Seq)
	case settled != nil:
		return m.checkDue(ev, settled)
	case ev.Kind == EvCreditsEstimated:
		return m.estimate(ev)
	case m.child:
		return m.checkShare(ev)
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

// estimate takes a new estimate (R15).
func (m *credits) estimate(ev *Event) error {
	if m.terms == nil || ev.Expected() < 0 || ev.Expected() == m.estimated {
		return fmt.Errorf("R15: event %d estimates %d credits after %d, of a run with the terms %+v", ev.Seq, ev.Expected(), m.estimated, m.terms)
	}
	m.estimated = ev.Expected()
	return nil
}

// checkShort checks that a run which has given more than it has gets that much at once.
func (m *credits) checkShort(ev *Event) error {
	m.short = false
	if ev.Kind == EvCreditsExtended || ev.Kind == EvRunExtended && ev.Resource() == CreditsShare {
		if err := m.check(ev); err != nil {
			return err
		}
	}
	return m.covered()
}

// checkDue checks what a generation has paid, now that its end is known.
func (m *credits) checkDue(ev, settled *Event) error {
	due := m.terms.Policy.Due(ev.Kind == EvRunFailed, m.used, m.estimated, m.terms.Reserved)
	if want := min(m.held, ledger.Settlement(due, m.settled)); settled.Credits() != want {
		return fmt.Errorf("I11: event %d settles %d credits; the run owes %d, has paid %d before and holds %d", settled.Seq, settled.Credits(), due, m.settled, m.held)
	}
	m.settled += settled.Credits()
	m.held = 0
	return nil
}

// checkShare checks the events that move credits of a child run: its share is held by its
// root, which reserves and settles.
func (m *credits) checkShare(ev *Event) error {
	switch {
	case ev.Kind.Ends():
		m.due = m.cost(ev.Kind == EvRunFailed)
	case ev.Kind == EvRunResumed:
		return m.resumed(ev)
	case ev.Kind == EvCreditsReserved, ev.Kind == EvCreditsExtended, ev.Kind == EvCreditsSettled:
		return fmt.Errorf("I11: event %d moves credits of a child run", ev.Seq)
	case ev.Kind != EvRunExtended || ev.Resource() != CreditsShare:
	case m.terms == nil || m.before.Ceil()+m.held+ev.Added() > m.terms.Most:
		return fmt.Errorf("I11: event %d adds %d credits to %d; the run may use %+v", ev.Seq, ev.Added(), m.held, m.terms)
	default:
		m.held += ev.Added()
	}
	return nil
}

// resumed takes the share of a child run that goes on. What its earlier attempts have used is
// not charged again.
func (m *credits) resumed(ev *Event) error {
	share, err := ev.Share()
	before := max(m.used, m.before+m.due)
	if err != nil || ev.PaidBefore() != before || m.terms != nil && before.Ceil()+share.Credits > max(m.terms.Most, before.Ceil()) {
		return fmt.Errorf("I11: event %d gives the share %.60q to a run that has paid for %s credits, not %s, and may use %+v", ev.Seq, ev.Data, before, ev.PaidBefore(), m.terms)
	}
	m.before, m.held = before, share.Credits
	return nil
}

// cost is what the present attempt of a child run costs its parent, now that it has ended.
func (m *credits) cost(failed bool) ledger.Amount {
	if m.terms == nil {
		return m.used - m.before
	}
	return m.terms.Policy.CostOfTry(failed, m.used, m.before, m.estimated, m.held)
}
