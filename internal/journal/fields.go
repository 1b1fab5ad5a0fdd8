// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// The meaning of the fields Flag, N and M of an event depends on its kind. The methods
// here name each meaning. A method must only be called for the kinds it lists.

// Status is the new status of the run (EvRunStatus).
func (e *Event) Status() RunStatus { return RunStatus(e.Flag) }

// Previous is the previous status of the run (EvRunStatus).
func (e *Event) Previous() RunStatus { return RunStatus(e.N) }

// Verdict is the status that the run will end with (EvRunEnding).
func (e *Event) Verdict() RunStatus { return RunStatus(e.Flag) }

// FailedStep is the plan-wide index of the first failed step, -1 when there is
// none (EvRunEnding, EvRunFailed).
func (e *Event) FailedStep() int32 { return int32(e.N) }

// HasFailures reports whether steps failed in the run, whatever its end
// (EvRunCompleted, EvRunFailed, EvRunCancelled, EvRunExpired).
func (e *Event) HasFailures() bool { return e.Flag&1 != 0 }

// Interrupted is how many attempts a crash interrupted (EvRunRecovered).
func (e *Event) Interrupted() int64 { return e.N }

// Generation is the number of the generation that a retry opens (EvRunRetried).
func (e *Event) Generation() int64 { return e.N }

// Credits is how many whole credits were reserved, added or settled
// (EvCreditsReserved, EvCreditsExtended, EvCreditsSettled).
func (e *Event) Credits() int64 { return e.N }

// Expected is the estimate that a reservation was made from (EvCreditsReserved), or the
// new one (EvCreditsEstimated), in whole credits.
func (e *Event) Expected() int64 { return e.M }

// Released is how many whole credits of what was held went back to the account
// (EvCreditsSettled).
func (e *Event) Released() int64 { return e.M }

// Spent is what an event adds to what its run has used. Compensations are recorded and
// not charged (R44).
func (e *Event) Spent(p *plan.Plan) (amount ledger.Amount) {
	switch {
	case e.Kind == EvNodeCompleted:
		amount = ledger.Whole(e.Cost())
	case e.Kind == EvNodeCharged && e.Charged():
		amount = e.Amount()
	case e.Kind == EvChildEnded:
		amount = e.ChildUsed()
	}
	if amount != 0 && InCompensation(p, e.Path) {
		return 0
	}
	return amount
}

// LacksCredits reports whether a step is blocked because the account has too few
// credits (EvNodeBlocked).
func (e *Event) LacksCredits() bool { return e.Flag&1 != 0 }

// A Side is one of the two graphs of a condition, or neither.
type Side uint8

// The sides. The numbers are journal format.
const (
	ThenSide Side = iota + 1
	ElseSide
	NoSide // the condition is false and has no else
)

// Side is the side that a condition takes (EvNodeOpened).
func (e *Event) Side() Side { return Side(e.Flag) }

// Branches is how many branches a parallel step opens (EvNodeOpened).
func (e *Event) Branches() int64 { return e.N }

// Items is how many items a loop has; -1 when they are in a file that has not been
// read (EvNodeOpened).
func (e *Event) Items() int64 { return e.N }

// From is the index of the first item that was read (EvNodeItems).
func (e *Event) From() int64 { return e.N }

// Count is how many items were read (EvNodeItems).
func (e *Event) Count() int64 { return e.M }

// More reports whether more items follow (EvNodeItems).
func (e *Event) More() bool { return e.Flag&1 != 0 }

// Item is the index of the item whose iteration opens (EvNodeIteration) or was looked at; -1 =
// none was (EvNodeRound).
func (e *Event) Item() int64 { return e.N }

// Last reports whether the loop opens no further iteration (EvNodeRound).
func (e *Event) Last() bool { return e.Flag&1 != 0 }

// Fraction is how much of the step is done, from 0 to 1 (EvNodeProgress).
func (e *Event) Fraction() float64 { return float64(e.N) / 1e6 }

// Percent is how much of the step is done, from 0 to 100, rounded down (EvNodeProgress).
func (e *Event) Percent() int64 { return e.N / 10_000 }

// DeltaIndex is the number of the delta within its step instance, from 0 (EvNodeDelta).
func (e *Event) DeltaIndex() int64 { return e.N }

// Due is when the wait ends, the next try begins or the job expires, in UTC µs; 0 = a wait
// that only a signal ends (EvNodeWaiting, EvNodeRetried, EvNodeSubmitted).
func (e *Event) Due() int64 { return e.N }

// Delay is the delay before the next try (EvNodeRetried).
func (e *Event) Delay() time.Duration { return time.Duration(e.M) * time.Millisecond }

// HandedBack reports whether an orderly stop handed the attempt back, which does not
// count as a loss (EvNodeLost).
func (e *Event) HandedBack() bool { return e.Flag&1 != 0 }

// FromInner reports whether the output of the step is that of the scope it opened, and
// not in Data (EvNodeCompleted).
func (e *Event) FromInner() bool { return e.Flag&1 != 0 }

// Cached reports whether the output is that of an earlier attempt, which the event before has
// named (EvNodeCompleted).
func (e *Event) Cached() bool { return e.Flag&2 != 0 }

// Amount is what the attempt cost (EvNodeCharged).
func (e *Event) Amount() ledger.Amount { return ledger.Amount(e.N) }

// Charged reports whether the amount counts as used by the run: the attempt completes
// its step with the next event of that step (EvNodeCharged).
func (e *Event) Charged() bool { return e.Flag&1 == 0 }

// Cost is the whole credits that the step or the run used (EvNodeCompleted,
// EvRunCompleted). A step whose action has a price has an amount instead, in
// EvNodeCharged.
func (e *Event) Cost() int64 { return e.N }

// Micros is how long the step took, in µs (EvNodeCompleted, EvNodeFailed, EvNodeCancelled).
func (e *Event) Micros() int64 { return e.M }

// Handled reports whether the failure was handled, so that it ends nothing else
// (EvNodeFailed).
func (e *Event) Handled() bool { return e.Flag&1 != 0 }

// OutcomeUnknown reports whether an attempt has ended whose effect may have happened: it was
// lost or cut off, or has failed without knowing. The next one has the same effect key (I4). It
// may be called for events of any kind. Of EvNodeCancelled it reports false, because the event
// does not say whether its attempt had ended before.
func (e *Event) OutcomeUnknown() bool {
	switch e.Kind {
	case EvNodeLost:
		return true
	case EvNodeRetried, EvNodeFallback, EvNodeFailed, EvNodeSkipped:
		return e.Attempt > 0 && (e.Unknown || fault.EndsUnknown(e.Code))
	}
	return false
}

// SettlesEffect reports whether nothing about the effects of a step's attempts is unknown after the
// event: one has completed the step, has been told that it failed, or what happened was undone. It
// may be called for events of any kind.
func (e *Event) SettlesEffect() bool {
	switch e.Kind {
	case EvNodeCompleted, EvNodeCompensated:
		return true
	case EvNodeRetried, EvNodeFallback, EvNodeFailed, EvNodeSkipped:
		return e.Attempt > 0 && !e.OutcomeUnknown() && fault.Answers(e.Code)
	}
	return false
}

// Reason is why the step was not carried out (EvNodeSkipped, EvNodeCancelled).
func (e *Event) Reason() Reason { return Reason(e.Flag) }

// Before is the status of the step before it was reset (EvNodeInvalidated).
func (e *Event) Before() Status { return Status(e.Flag) }

// PaidBefore is what the earlier attempts of a child run have paid for (EvRunResumed).
func (e *Event) PaidBefore() ledger.Amount { return ledger.Amount(e.N) }

// Anew reports whether the child run of the step, which failed, does not go on: the next try
// starts another one (EvNodeInvalidated).
func (e *Event) Anew() bool { return e.N == 2 }

// Reopened reports whether the step keeps its scopes and continues
// (EvNodeInvalidated).
func (e *Event) Reopened() bool { return e.N == 1 }

// BoundBefore is the event of the value that the step's name has again; 0 = none is kept
// for it (EvNodeInvalidated).
func (e *Event) BoundBefore() uint64 { return uint64(max(e.M, 0)) }

// Source is where the late result came from (EvNodeIgnored).
func (e *Event) Source() Source { return Source(e.Flag) }

// CompensationOK reports whether the compensation succeeded (EvNodeCompensated).
func (e *Event) CompensationOK() bool { return e.Flag == 0 }
