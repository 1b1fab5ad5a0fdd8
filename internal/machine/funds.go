// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/estimate"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
)

// funds are the credits of a run that an account pays for (Start.Credits). Whatever its
// attempts cost, it never uses more than what is settled and held: an attempt begins
// only when its ceiling, which its cost never passes, fits beside those in flight.
type funds struct {
	held    int64 // whole credits, for this generation
	settled int64 // whole credits, by earlier generations
	// estimated is a new estimate of the whole run, whole credits; 0 = that of the start.
	estimated int64
	before    ledger.Amount // what earlier attempts of a child run that goes on have paid for, see resume.go
	open      ledger.Amount // the ceilings of the attempts in flight
	// uncounted is true after Restore: a snapshot does not hold open, because the
	// prices are in the first event, which is read last.
	uncounted bool
}

// Held is how many credits are held for the run, and how many earlier generations have
// settled.
func (r *Run) Held() (held, settled int64) { return r.funds.held, r.funds.settled }

// metered reports whether an account pays for the run.
func (r *Run) metered() bool { return r.start != nil && r.start.Credits != nil }

// budget is what expressions see of the run's credits: what it has used, and what it may
// still spend. Nothing limits a run that no account pays for, so that a recipe which
// compares the numbers works for it too.
func (r *Run) budget() map[string]any {
	credits := func(a ledger.Amount) float64 { return float64(a) / float64(ledger.Credit) }
	remaining := float64(ledger.MaxAmount)
	if r.metered() {
		remaining = credits(max(0, ledger.Whole(r.start.Credits.Most)-r.used))
	}
	return map[string]any{"used": credits(r.used), "remaining": remaining}
}

// ceiling is the most that one attempt of a step can cost the account. What
// compensations cost is recorded and not charged (R44).
func (r *Run) ceiling(s *scope, i int32) ledger.Amount {
	if s.inCompensation() {
		return 0
	}
	return r.ceilingOf(r.brief(s, i))
}

func (r *Run) ceilingOf(step *stepBrief) ledger.Amount {
	return r.pin(step).Most()
}

// trackCeiling counts the ceilings of the attempts in flight. It is called before an
// event is applied to its step.
func (r *Run) trackCeiling(s *scope, i int32, kind journal.EventKind) {
	if r.funds.uncounted || !r.metered() {
		return
	}
	switch kind {
	case journal.EvNodeStarted:
		r.funds.open = r.funds.open.Plus(r.ceiling(s, i))
	case journal.EvNodeRetried, journal.EvNodeLost, journal.EvNodeFallback, journal.EvNodeCompleted,
		journal.EvNodeFailed, journal.EvNodeSkipped, journal.EvNodeCancelled:
		if s.attemptOpen(i) && s.comps[i] == nil {
			r.funds.open -= r.ceiling(s, i)
		}
	}
}

// openCeilings is the sum of the ceilings of the attempts in flight and of the shares of
// child runs.
func (r *Run) openCeilings() ledger.Amount {
	if r.funds.uncounted {
		r.funds.open, r.funds.uncounted = 0, false
		r.eachScope(func(s *scope) {
			for k := range s.steps {
				if i := int32(k); s.attemptOpen(i) && s.comps[i] == nil {
					r.funds.open = r.funds.open.Plus(r.ceiling(s, i))
				}
			}
		})
	}
	return r.funds.open.Plus(ledger.Whole(r.given.Credits))
}

// fund makes sure that the run holds enough for another attempt of a step. Otherwise it
// emits why not: the step is blocked until the account has more, or it fails because
// the run may not pay more.
func (r *Run) fund(s *scope, i int32, in *Input) bool {
	if !r.metered() {
		return true
	}
	missing := r.shortfall(s, i)
	if missing <= 0 {
		return true
	}
	f := &r.funds
	most := r.start.Credits.Most
	room := most - r.paid() - f.held
	if r.start.Child != nil && missing > r.room.Credits { // the runs above have a most, too
		r.turn.Short = r.turn.Short || missing <= room
		room = min(room, r.room.Credits)
	}
	switch st := &s.steps[i]; {
	case missing > room:
		r.finalFailure(s, i, &Failure{Code: fault.InsufficientCredits, Msg: fmt.Sprintf(
			"the step may cost %s and the run may pay %s in all, of which %s are used and attempts in flight may use %s (limitSource run)",
			r.ceiling(s, i), ledger.Credits(most), r.used, r.openCeilings())}, nil)
		return false
	case missing > in.Available:
		if st.flags&flagUnfunded == 0 {
			r.emitStep(s, i, journal.Event{Kind: journal.EvNodeBlocked, Flag: 1, Text: in.bound().Waits(r.start.Account, missing, in.Available)})
		}
		return false
	}
	r.extendCredits(missing, in.Available)
	return true
}

// extendCredits adds what is missing to what the run holds, or has as its share. It adds a
// quarter of that at a time, because a run of many cheap steps would otherwise be
// extended for each of them.
func (r *Run) extendCredits(missing, available int64) {
	f := &r.funds
	if missing <= 0 || !r.metered() {
		return
	}
	ev := journal.Event{Kind: journal.EvCreditsExtended, N: min(max(missing, f.held/4), r.start.Credits.Most-r.paid()-f.held, available)}
	if r.start.Child != nil {
		ev.Kind, ev.Flag = journal.EvRunExtended, uint8(journal.CreditsShare)
	}
	r.emitRun(ev)
}

// CreditsMissing is how many credits the account must give before an attempt of a step
// that is blocked for lack of credits can begin; 0 = none.
func (r *Run) CreditsMissing(ref journal.Ref) int64 {
	s, i := r.at(ref)
	if s == nil || !r.metered() || s.steps[i].flags&flagUnfunded == 0 {
		return 0
	}
	return max(0, r.shortfall(s, i))
}

// shortfall is how many credits more the run must hold before another attempt of a step
// begins.
func (r *Run) shortfall(s *scope, i int32) int64 {
	ceiling := r.ceiling(s, i)
	if ceiling == 0 {
		return 0
	}
	return r.unpaid().Plus(r.openCeilings()).Plus(ceiling).Ceil() - r.funds.settled - r.funds.held
}

// costOf is what a completed attempt costs in whole credits. Where there is a price
// that is the most the step costs, and the result's cost counts as nothing. An account
// pays at most the declared cost; one that was not declared is unknown.
func (r *Run) costOf(s *scope, i int32, in *Input) (int64, *Failure) {
	if in.Cost == 0 {
		return 0, nil
	}
	pin := r.pin(r.brief(s, i))
	switch {
	case pin.Price > 0:
		return 0, nil
	case in.Cost <= pin.Cost || !r.metered() || s.inCompensation():
		return in.Cost, nil
	case pin.Cost == 0:
		return 0, &Failure{Code: fault.PriceUnknown, Msg: fmt.Sprintf(
			"action %s reported a cost of %s and declares none", pin.Name, ledger.Credits(in.Cost))}
	}
	return pin.Cost, nil
}

// estimated is what the run is expected to cost, as last estimated.
func (r *Run) estimated() int64 { return cmp.Or(r.funds.estimated, r.start.Credits.Estimated) }

// estimateAgain estimates what the run costs when a step has completed that its formula
// names, if all such steps have now (R15).
func (r *Run) estimateAgain(i int32) {
	est := r.plan.Estimate
	if est == nil || !r.metered() {
		return
	}
	slot := r.root.step(r.plan, i).Slot
	if !slices.ContainsFunc(est.Reads, func(v plan.Var) bool { return v.Index == slot }) {
		return
	}
	known := estimate.Known{Input: r.start.Parameters, Files: FileFacts(r.start.Files), Outputs: map[string]any{}}
	env := r.env(r.root, i, r.root.step(r.plan, i), est.Reads)
	for k := range est.Reads {
		name := est.Reads[k].Name
		v, ok := env.Lookup(name)
		if !ok {
			return
		}
		known.Outputs[name] = v
	}
	n, ok := estimate.Formula(r.plan, known)
	if n = min(n, ledger.MaxAmount); ok && n > 0 && n != r.estimated() {
		r.emitRun(journal.Event{Kind: journal.EvCreditsEstimated, M: n})
	}
}

// FileFacts describe input files as file-inspect returns them.
func FileFacts(files []journal.File) (facts []map[string]any) {
	for _, f := range files {
		fact := map[string]any{"hash": f.Hash, "name": f.Name, "mimeType": f.MimeType, "sizeBytes": f.Size}
		if extended, err := jsonx.Decode(f.Extended, journal.InlineLimits); err == nil { // a file that was not inspected has none
			fact["extended"] = extended
		}
		facts = append(facts, fact)
	}
	return facts
}

// settleCredits ends what is held for this generation, in the turn that ends it.
func (r *Run) settleCredits(failed bool) {
	f := &r.funds
	if f.held == 0 || r.start.Child != nil { // the share of a child run is held by its root
		return
	}
	c := r.start.Credits
	due := c.Policy.Due(failed, r.used, r.estimated(), c.Reserved)
	n := min(f.held, ledger.Settlement(due, f.settled))
	if mutation.Settle {
		n = f.held
	}
	r.emitRun(journal.Event{Kind: journal.EvCreditsSettled, N: n, M: f.held - n})
}

// nextReservation is what a retry holds for the steps that it resets, and the estimate
// of what they cost.
func (r *Run) nextReservation(resets []reset) (n, expected int64) {
	if !r.metered() {
		return 0, 0
	}
	cost := ledger.Amount(0)
	for _, x := range resets {
		if x.scope == r.root {
			cost = cost.Plus(r.mostOf(r.root.g.First + x.step))
		}
	}
	c := r.start.Credits
	expected = cost.Ceil()
	return ledger.NextReservation(r.funds.settled, r.used, expected, c.Most), expected
}

// mostOf is the most that one try of a step costs, with each loop counted once.
func (r *Run) mostOf(step int32) (cost ledger.Amount) {
	st := &r.plan.Steps[step]
	cost = r.ceilingOf(&r.prog.briefs[step])
	for _, g := range st.Graphs() {
		if r.plan.Graphs[g].Role == plan.Compensation || g <= st.Graph { // an inner graph comes after the one around it
			continue
		}
		graph, inner := &r.plan.Graphs[g], ledger.Amount(0)
		for k := range graph.N {
			inner = inner.Plus(r.mostOf(graph.First + k))
		}
		if st.Kind == plan.Condition && graph.Role != plan.Fallback {
			cost = max(cost, inner)
		} else {
			cost = cost.Plus(inner)
		}
	}
	return cost
}
