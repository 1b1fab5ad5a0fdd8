// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"strings"

	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// A Move is an event of a run that moves credits of its account.
type Move struct {
	Kind       EventKind // EvCreditsReserved, EvCreditsExtended or EvCreditsSettled
	Seq        uint64    // of the event
	At         int64
	Generation uint32
	Credits    int64 // that were reserved, added or settled
	Released   int64
}

// A ChildCost is what the journal of a run says of one of its child runs.
type ChildCost struct {
	Run     string
	Ref     Ref // the step instance that runs it
	Fence   Fence
	Started uint64 // number of the event
	Ended   uint64 // 0 = it goes on
	Given   Share  // when it started
	Credits int64  // that it has, or had at its end
	Status  RunStatus
	Used    ledger.Amount // what it costs the run
}

// A Payment is the part of a run's journal that is about credits: what its steps cost,
// what it has reserved and paid, and what it has given to child runs and is charged for
// them. It checks what a [Checker] checks of them, with the same code, and keeps nothing
// else of the run.
type Payment struct {
	plans     func(hash string) (*plan.Plan, error)
	plan      *plan.Plan
	account   string
	credits   credits
	children  children
	last      uint64
	gen       uint32
	status    RunStatus // how the run has ended; RunPending = it goes on
	ended     Try       // as it was before the last retry
	moves     []Move
	costs     []ChildCost
	openCosts map[Ref]int // in costs
	tries     []Try       // before the present one
}

// NewPayment returns the payment of a run whose journal is empty so far. plans returns the
// plan with a hash.
func NewPayment(plans func(hash string) (*plan.Plan, error)) *Payment {
	return &Payment{plans: plans, gen: 1}
}

// TTL is how long the run may take, in µs.
func (p *Payment) TTL() int64 {
	if p.plan == nil {
		return 0
	}
	return p.plan.TTLMS * 1000
}

// Status is how the last event has ended the run; RunPending = it has not.
func (p *Payment) Status() RunStatus { return p.status }

// Ended reports whether the last event has ended the run.
func (p *Payment) Ended() bool { return p.status != RunPending }

// Moves returns the events so far that move credits.
func (p *Payment) Moves() []Move { return p.moves }

// Used is what the run has used in all its generations.
func (p *Payment) Used() ledger.Amount { return p.credits.used }

// Place is where a child run says that it belongs; nil = it is a root run.
func (p *Payment) Place() *Child { return p.children.self }

// Account is the account of the run, by its start.
func (p *Payment) Account() string { return p.account }

// Share is how many credits a child run has from its parent.
func (p *Payment) Share() int64 { return p.credits.held }

// Cost is what a child run that has ended costs its parent.
func (p *Payment) Cost() ledger.Amount {
	return p.credits.cost(p.status == RunFailed)
}

// A Try is a child run as one of the attempts of the step that has started it: most runs are
// one, and one that goes on after a failure is several.
type Try struct {
	Place  *Child
	Status RunStatus // how it has ended; RunPending = it goes on
	Share  int64     // the credits that it has from its parent, or had
	Cost   ledger.Amount
}

// Try returns the attempt with that fence, or the last one.
func (p *Payment) Try(fence Fence) Try {
	for _, t := range p.tries {
		if t.Place.Fence() == fence {
			return t
		}
	}
	return Try{p.Place(), p.status, p.Share(), p.Cost()}
}

// Children are the child runs that the run has started, first to last.
func (p *Payment) Children() []ChildCost { return p.costs }

// Add adds the next event of the run.
func (p *Payment) Add(ev *Event) error {
	if ev.Seq != p.last+1 {
		return fmt.Errorf("I14: event %d follows event %d", ev.Seq, p.last)
	}
	p.last = ev.Seq
	switch {
	case ev.Kind.Ends():
		p.status = ev.Kind.EndStatus()
	case ev.Kind == EvRunRetried:
		p.ended = Try{p.Place(), p.status, p.Share(), p.Cost()}
		p.status, p.gen = RunPending, uint32(ev.Generation())
	case ev.Kind == EvRunResumed && p.Place() != nil:
		p.tries = append(p.tries, p.ended)
	case ev.Kind == EvRunStarted:
		if err := p.start(ev); err != nil {
			return err
		}
	case ev.Kind == EvCreditsReserved, ev.Kind == EvCreditsExtended, ev.Kind == EvCreditsSettled:
		m := Move{Kind: ev.Kind, Seq: ev.Seq, At: ev.At, Generation: p.gen, Credits: ev.Credits()}
		if ev.Kind == EvCreditsSettled {
			m.Released = ev.Released()
		}
		p.moves = append(p.moves, m)
	}
	switch {
	case p.plan == nil:
		return fmt.Errorf("event %d comes before run.started", ev.Seq)
	case int(ev.Step) >= len(p.plan.Steps):
		return fmt.Errorf("event %d is about step %d, the plan has %d", ev.Seq, ev.Step, len(p.plan.Steps))
	}
	if err := p.credits.check(ev); err != nil {
		return err
	}
	if err := p.children.check(ev, p.plan, &p.credits); err != nil {
		return err
	}
	switch ev.Kind {
	case EvChildStarted, EvChildExtended, EvChildEnded:
		p.child(ev)
	}
	return p.credits.use(ev, p.plan)
}

func (p *Payment) start(ev *Event) (err error) {
	st, err := DecodeStart(ev.Data)
	if err != nil {
		return fmt.Errorf("event %d: %w", ev.Seq, err)
	}
	p.account = st.Account
	p.credits.start(st)
	p.children.self = st.Child
	if p.plan, err = p.plans(st.PlanHash); err != nil {
		return fmt.Errorf("its plan cannot be read: %w", err)
	}
	return nil
}

// child records what an event says of a child run, which was checked.
func (p *Payment) child(ev *Event) {
	if ev.Kind == EvChildStarted {
		if p.openCosts == nil {
			p.openCosts = map[Ref]int{}
		}
		share, _ := ev.Share() // children has read it
		// The memory of the event is the journal's.
		ref := Ref{Path(strings.Clone(string(ev.Path))), ev.Step}
		p.openCosts[ref] = len(p.costs)
		p.costs = append(p.costs, ChildCost{Run: strings.Clone(ev.Text), Ref: ref, Fence: Fence{Gen: p.gen, Attempt: ev.Attempt},
			Started: ev.Seq, Given: share, Credits: share.Credits})
		return
	}
	c := &p.costs[p.openCosts[ev.Ref()]]
	switch {
	case ev.Kind == EvChildEnded:
		c.Ended, c.Status, c.Used = ev.Seq, ev.ChildStatus(), ev.ChildUsed()
		delete(p.openCosts, ev.Ref())
	case ev.Resource() == CreditsShare:
		c.Credits += ev.Added()
	}
}
