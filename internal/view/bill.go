// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// A Bill is what a run has cost its account, and why: the estimate, what was reserved,
// what each attempt cost, and what each generation of the run paid from which lots.
type Bill struct {
	Run     string `json:"run"`
	Account string `json:"account"`
	Status  string `json:"status"`
	// Imported is set if the run was imported: nothing here has paid for it.
	Imported bool `json:"imported,omitempty"`
	// Root is the run that pays for this one, which is a child run.
	Root    string `json:"rootRunId,omitempty"`
	Metered bool   `json:"metered"` // false: the run costs its account nothing

	Strategy  string `json:"strategy,omitempty"` // of the recipe's creditEstimation
	Formula   string `json:"formula,omitempty"`
	Expanded  string `json:"expanded,omitempty"` // the formula with values in place of names
	Estimated int64  `json:"estimated"`
	Reserved  int64  `json:"creditsReserved"` // when the run started; of a child run, its share
	// Added is what was added to the share of a child run.
	Added  []Extension   `json:"shareExtensions,omitempty"`
	Most   int64         `json:"maxCredits"`
	Policy ledger.Policy `json:"policy,omitempty"` // of a run that fails
	Key    string        `json:"key,omitempty"`    // that the run was started with
	// Budgets are those of the account that apply to the run now.
	Budgets []ledger.Standing `json:"budgets,omitempty"`

	Used      ledger.Amount `json:"used"`      // the sum of what is charged, before it is rounded up
	Uncharged ledger.Amount `json:"uncharged"` // the sum of what is recorded and not charged
	Paid      int64         `json:"paid"`      // by all generations so far
	Held      int64         `json:"held"`      // now
	// Back is what adjustments have given back of Paid.
	Back []Adjusted `json:"adjustments,omitempty"`

	Generations []*GenerationBill `json:"generations"`
	Charges     []Charge          `json:"charges"` // at most MaxSteps
	Truncated   bool              `json:"truncated,omitempty"`
	// Unread is set if the account has more entries since the run began than were read: lots
	// and adjustments may be missing.
	Unread bool `json:"entriesUnread,omitempty"`
}

// A GenerationBill is what one generation of a run reserved and paid.
type GenerationBill struct {
	Generation int64         `json:"generation"`
	Expected   int64         `json:"expected"` // the estimate of what it runs
	Reserved   int64         `json:"reserved"`
	Extensions []Extension   `json:"extensions,omitempty"`
	Held       int64         `json:"held"` // all of that
	Used       ledger.Amount `json:"used"` // by the run until the end of this generation
	Status     string        `json:"status,omitempty"`
	Due        int64         `json:"due"`        // what the run owes in all its generations
	PaidBefore int64         `json:"paidBefore"` // by earlier generations
	Paid       int64         `json:"paid"`
	Released   int64         `json:"released"`
	Why        string        `json:"why,omitempty"` // the arithmetic of Due and Paid
	// Lots are those that it paid with, and Took those that it held credits of, in the
	// order in which it takes them.
	Lots []ledger.Part `json:"lots,omitempty"`
	Took []ledger.Part `json:"took,omitempty"`

	settled *journal.Event // the next event ends the generation
}

// An Extension is what was added to a reservation or a share.
type Extension struct {
	Event   uint64 `json:"event"`
	At      string `json:"at"`
	Credits int64  `json:"credits"`
}

// An Adjusted is what one adjustment has given back.
type Adjusted struct {
	At     string        `json:"at"`
	Amount int64         `json:"amount"`
	Lots   []ledger.Part `json:"lots"`
	Note   string        `json:"note,omitempty"`
}

// A Charge is what one attempt cost.
type Charge struct {
	Event   uint64        `json:"event"`
	Step    string        `json:"step"`
	Attempt uint32        `json:"attempt"`
	Amount  ledger.Amount `json:"amount"`
	Charged bool          `json:"charged"`
	Why     string        `json:"why,omitempty"` // why it is not charged
	Run     string        `json:"run,omitempty"` // the child run that the attempt was
}

// A Biller makes the bill of a run: from the events of its journal, and then from the
// entries of its account.
type Biller struct {
	plan  *plan.Plan
	bill  *Bill
	start *journal.Start
	// children are the child runs that go on.
	children map[journal.Ref]string
}

// NewBiller returns a biller of a run of p, without events.
func NewBiller(p *plan.Plan, run string) *Biller {
	b := &Bill{Run: run, Status: journal.RunPending.String(), Generations: []*GenerationBill{}, Charges: []Charge{}}
	if p.Estimate != nil {
		b.Strategy, b.Formula = p.Estimate.Strategy, p.Estimate.Formula
	}
	return &Biller{plan: p, bill: b, children: map[journal.Ref]string{}}
}

// Bill returns the bill after the events and entries so far.
func (x *Biller) Bill() *Bill { return x.bill }

// Start is the start of the run; nil before run.started.
func (x *Biller) Start() *journal.Start { return x.start }

// Apply adds the next event of the run.
func (x *Biller) Apply(ev *journal.Event) error {
	b := x.bill
	switch ev.Kind {
	case journal.EvRunStarted:
		start, err := journal.DecodeStart(ev.Data)
		if err != nil {
			return err
		}
		if start.Child != nil {
			b.Root = start.Child.Root
		}
		x.start, b.Account, b.Status = start, start.Account, journal.RunDispatching.String()
		if c := start.Credits; c != nil {
			b.Key = c.Key
			b.Metered, b.Estimated, b.Reserved, b.Most, b.Policy = true, c.Estimated, c.Reserved, c.Most, c.Policy
		}
		b.Generations = append(b.Generations, &GenerationBill{Generation: 1, Expected: b.Estimated})
	case journal.EvRunStatus:
		b.Status = ev.Status().String()
	case journal.EvRunRetried:
		b.Generations = append(b.Generations, &GenerationBill{Generation: ev.Generation(), PaidBefore: b.Paid})
		b.Status = journal.RunDispatching.String()
	case journal.EvCreditsEstimated:
		b.Estimated = ev.Expected()
	case journal.EvCreditsReserved, journal.EvCreditsExtended:
		x.hold(ev)
	case journal.EvRunResumed:
		if share, err := ev.Share(); err == nil { // what it had before is paid
			b.Reserved, b.Added = share.Credits, nil
		}
	case journal.EvRunExtended:
		if ev.Resource() == journal.CreditsShare {
			b.Added = append(b.Added, Extension{ev.Seq, Stamp(ev.At), ev.Added()})
		}
	case journal.EvCreditsSettled:
		settled := *ev
		x.last().settled = &settled
	case journal.EvChildStarted:
		x.children[ev.Ref()] = strings.Clone(ev.Text)
	case journal.EvNodeCharged, journal.EvNodeCompleted, journal.EvChildEnded:
		x.charge(ev)
	}
	if ev.Kind.Ends() {
		b.Status = ev.Kind.EndStatus().String()
		x.settle(ev)
	}
	return nil
}

// last is the bill of the present generation.
func (x *Biller) last() *GenerationBill {
	if len(x.bill.Generations) == 0 {
		x.bill.Generations = append(x.bill.Generations, &GenerationBill{Generation: 1})
	}
	return x.bill.Generations[len(x.bill.Generations)-1]
}

func (x *Biller) hold(ev *journal.Event) {
	g := x.last()
	if ev.Kind == journal.EvCreditsReserved {
		g.Reserved, g.Expected = ev.Credits(), ev.Expected()
	} else {
		g.Extensions = append(g.Extensions, Extension{ev.Seq, Stamp(ev.At), ev.Credits()})
	}
	g.Held += ev.Credits()
	x.bill.Held += ev.Credits()
}

// charge adds what an attempt cost.
func (x *Biller) charge(ev *journal.Event) {
	b := x.bill
	c := Charge{Event: ev.Seq, Attempt: ev.Attempt, Charged: true}
	switch ev.Kind {
	case journal.EvNodeCompleted:
		c.Amount = ledger.Whole(ev.Cost())
	case journal.EvChildEnded:
		c.Amount, c.Run = ev.ChildUsed(), x.children[ev.Ref()]
		delete(x.children, ev.Ref())
	default:
		c.Amount, c.Charged = ev.Amount(), ev.Charged()
	}
	if c.Amount == 0 {
		return
	}
	switch {
	case journal.InCompensation(x.plan, ev.Path):
		c.Charged, c.Why = false, "compensations are not charged"
	case !c.Charged:
		c.Why = "the attempt did not complete its step"
	}
	if c.Charged {
		b.Used = b.Used.Plus(c.Amount)
	} else {
		b.Uncharged = b.Uncharged.Plus(c.Amount)
	}
	if len(b.Charges) >= MaxSteps {
		b.Truncated = true
		return
	}
	c.Step = journal.StepPath(x.plan, ev.Ref())
	b.Charges = append(b.Charges, c)
}

// settle ends a generation. Its arithmetic is that of the machine and the ledger.
func (x *Biller) settle(ev *journal.Event) {
	b, g := x.bill, x.last()
	g.Status, g.Used = b.Status, b.Used
	if !b.Metered || b.Root != "" {
		return
	}
	failed := ev.Kind == journal.EvRunFailed
	g.Due = b.Policy.Due(failed, b.Used, b.Estimated, b.Reserved)
	if g.settled != nil {
		g.Paid, g.Released = g.settled.Credits(), g.settled.Released()
	}
	b.Paid += g.Paid
	b.Held = 0
	g.Why = whyDue(b, g, failed) + "; " + whyPaid(g)
}

// whyDue explains what a run owes.
func whyDue(b *Bill, g *GenerationBill, failed bool) string {
	used := fmt.Sprintf("it used %s", b.Used)
	if b.Used != ledger.Whole(b.Used.Ceil()) {
		used += ", rounded up"
	}
	switch {
	case failed && b.Policy == ledger.RefundAll:
		return fmt.Sprintf("the run failed and its policy is %s: it owes 0", b.Policy)
	case failed && b.Policy == ledger.NoRefund:
		return fmt.Sprintf("the run failed and its policy is %s: it owes the estimate of %d, at most what was reserved (%d), or what it used (%s) if that is more, so %d",
			b.Policy, b.Estimated, b.Reserved, b.Used, g.Due)
	case failed:
		return fmt.Sprintf("the run failed and its policy is %s: it owes what its completed steps cost; %s, so %d", b.Policy, used, g.Due)
	}
	return fmt.Sprintf("the run is %s: it owes what it used; %s, so %d", g.Status, used, g.Due)
}

// whyPaid explains what a generation paid of what its run owes.
func whyPaid(g *GenerationBill) string {
	var b strings.Builder
	switch rest := ledger.Settlement(g.Due, g.PaidBefore); {
	case g.PaidBefore > 0 && g.Due < g.PaidBefore:
		fmt.Fprintf(&b, "earlier generations have paid %d, which is not paid back", g.PaidBefore)
	case g.PaidBefore > 0:
		fmt.Fprintf(&b, "earlier generations have paid %d, so %d are left to pay", g.PaidBefore, rest)
	default:
		fmt.Fprintf(&b, "nothing was paid before")
	}
	fmt.Fprintf(&b, "; of the %d held, %d are paid and %d released", g.Held, g.Paid, g.Released)
	return b.String()
}

// Entry adds an entry of the run's account. Entries of other runs change nothing.
func (x *Biller) Entry(e *ledger.Entry) {
	generation, ok := strings.CutPrefix(e.Hold, x.bill.Run+".")
	n, err := strconv.ParseInt(generation, 10, 64)
	if !ok || err != nil {
		return
	}
	if e.Kind == ledger.Adjust {
		x.bill.Back = append(x.bill.Back, Adjusted{At: Stamp(e.At), Amount: e.Amount(), Lots: e.Parts, Note: e.Note})
	}
	for _, g := range x.bill.Generations {
		if g.Generation != n {
			continue
		}
		switch e.Kind {
		case ledger.Reserve, ledger.Extend:
			g.Took = addParts(g.Took, e.Parts)
		case ledger.Settle:
			g.Lots = addParts(g.Lots, e.Parts)
		}
	}
}

func addParts(to, parts []ledger.Part) []ledger.Part {
	for _, p := range parts {
		if n := len(to); n > 0 && to[n-1].Lot == p.Lot {
			to[n-1].Amount += p.Amount
			continue
		}
		to = append(to, p)
	}
	return to
}
