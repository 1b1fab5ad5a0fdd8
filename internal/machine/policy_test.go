// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
)

// A run that was expected to cost 120 credits holds 150 (X142, X143). What it pays of
// them depends on how it ends and on the policy of its recipe (X145, X146, X149–X151,
// R16); the rest is released. The figures are those of the recipe-system source and of
// the worked example of the design.
func TestX149_X150_X151_Policies(t *testing.T) {
	type verdict = journal.EventKind
	const completed, failed, cancelled, expired = journal.EvRunCompleted, journal.EvRunFailed, journal.EvRunCancelled, journal.EvRunExpired
	p := compilePlan(t, "name: r\nttl: 1h\nsteps: [{id: a, action: {name: priced}}, {id: b, action: {name: once}}]\n")
	for _, c := range []struct {
		policy ledger.Policy
		used   string
		end    verdict
		pays   int64
	}{
		{ledger.RefundUnused, "61.3", completed, 62}, {ledger.RefundAll, "61.3", completed, 62}, {ledger.NoRefund, "61.3", completed, 62},
		{ledger.RefundUnused, "61.3", cancelled, 62}, {ledger.RefundAll, "61.3", cancelled, 62}, {ledger.NoRefund, "61.3", cancelled, 62},
		{ledger.RefundUnused, "61.3", expired, 62}, {ledger.RefundAll, "61.3", expired, 62}, {ledger.NoRefund, "61.3", expired, 62},
		{ledger.RefundUnused, "61.3", failed, 62}, {ledger.RefundAll, "61.3", failed, 0}, {ledger.NoRefund, "61.3", failed, 120},
		{ledger.RefundUnused, "30.2", failed, 31}, {ledger.RefundAll, "0.000001", failed, 0}, {ledger.NoRefund, "0.000001", failed, 120},
		{ledger.RefundUnused, "120", completed, 120}, {ledger.NoRefund, "149.999999", failed, 150}, {ledger.RefundUnused, "0.000001", completed, 1},
		{ledger.RefundUnused, "150", cancelled, 150},
	} {
		price, err := ledger.ParseAmount(c.used)
		if err != nil {
			t.Fatal(err)
		}
		terms := &journal.Credits{Estimated: 120, Reserved: ledger.Reservation(120, 1_000), Most: 1_000, Policy: c.policy}
		if terms.Reserved != 150 {
			t.Fatalf("%d are reserved for an estimate of 120", terms.Reserved)
		}
		run := NewRun(Prepare(p))
		decide := func(in Input) []journal.Event {
			var turn Turn
			in.At, in.Available = t0+in.At, 150
			run.Decide(&in, &turn)
			if turn.Err != nil {
				t.Fatal(turn.Err)
			}
			return turn.Events
		}
		a, b := journal.Ref{Step: 0}, journal.Ref{Step: 1}
		fence := journal.Fence{Gen: 1, Attempt: 1}
		decide(Input{Kind: InStart, Start: &journal.Start{Run: "run_1", Account: "acct", Pins: []journal.Pin{{Name: "priced", Price: price}, {Name: "once"}}, Credits: terms}})
		decide(Input{Kind: InGranted, Ref: a})
		decide(Input{Kind: InResult, Outcome: Success, Ref: a, Fence: fence, Output: []byte("1")})
		decide(Input{Kind: InGranted, Ref: b})
		var events []journal.Event
		switch c.end {
		case completed:
			events = decide(Input{Kind: InResult, Outcome: Success, Ref: b, Fence: fence, Output: []byte("1")})
		case failed:
			events = decide(Input{Kind: InResult, Outcome: Failed, Ref: b, Fence: fence, Err: &Failure{Code: fault.FileInvalid, Msg: "bad"}})
		case cancelled:
			events = decide(Input{Kind: InCancel})
		case expired:
			events = decide(Input{Kind: InTimer, At: 3_600_000_000})
		}
		last := events[len(events)-2:]
		if last[1].Kind != c.end || last[0].Kind != journal.EvCreditsSettled {
			t.Fatalf("%s, %s used: the last events are %s and %s", c.policy, c.used, last[0].Name(), last[1].Name())
		}
		if last[0].Credits() != c.pays || last[0].Released() != 150-c.pays {
			t.Errorf("%s, %s used, %s: it pays %d and %d are released; want %d", c.policy, c.used, c.end.Name(), last[0].Credits(), last[0].Released(), c.pays)
		}
	}
}
