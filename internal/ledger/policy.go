// SPDX-License-Identifier: Apache-2.0

package ledger

// A Policy says what a run that fails is charged (R16). Runs that complete, are
// cancelled or expire are charged what they used, whatever their policy.
type Policy string

// The policies of a definition.
const (
	RefundUnused Policy = "refund_unused" // the default: what completed steps used (X150)
	RefundAll    Policy = "refund_all"    // nothing (X149)
	NoRefund     Policy = "no_refund"     // the estimate, or what was used where that is more (X151)
)

// Due is what a run owes in all its generations when it ends.
func (p Policy) Due(failed bool, used Amount, estimated, reserved int64) int64 {
	return p.Cost(failed, used, estimated, reserved).Ceil()
}

// Cost is what a child run that has ended costs its parent; reserved is its share. Only
// the root rounds.
func (p Policy) Cost(failed bool, used Amount, estimated, reserved int64) Amount {
	switch {
	case failed && p == RefundAll:
		return 0
	case failed && p == NoRefund:
		return max(used, Whole(min(estimated, reserved)))
	}
	return used
}

// CostOfTry is what another attempt of a child run costs its parent, which goes on after a
// failure: what the policy says of all its attempts, without what they have paid before, and
// never more than its share.
func (p Policy) CostOfTry(failed bool, used, before Amount, estimated, share int64) Amount {
	return max(0, min(p.Cost(failed, used, estimated, before.Ceil()+share)-before, Whole(share)))
}

// Settlement is what a generation settles of what its run owes: never less than
// nothing, because an earlier settlement is not paid back.
func Settlement(due, settled int64) int64 { return max(0, due-settled) }

// Reservation is what is held for an estimate: a quarter more, up to most.
func Reservation(estimated, most int64) int64 {
	return min(most, withBuffer(estimated))
}

// NextReservation is what a further generation of a run holds: settled is what earlier
// ones have settled, used what the run has used, and remaining the estimate of what will
// run.
func NextReservation(settled int64, used Amount, remaining, most int64) int64 {
	return max(0, min(most-settled, used.Ceil()-settled+withBuffer(remaining)))
}

// withBuffer is an estimate and a quarter, rounded up.
func withBuffer(estimated int64) int64 {
	return (min(estimated, MaxAmount)*5 + 3) / 4
}
