// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"

	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
)

// A StepState is a step instance whose scope has opened, whether it has settled or not.
type StepState struct {
	Step        string        `json:"step"` // its path
	Type        string        `json:"type"`
	Action      string        `json:"action,omitempty"`
	Status      string        `json:"status"`
	Attempts    uint32        `json:"attempts,omitempty"`
	StartedAt   string        `json:"startedAt,omitempty"`
	CompletedAt string        `json:"completedAt,omitempty"` // when it settled, whatever its status
	Duration    string        `json:"duration,omitempty"`    // absent until it has settled, and for a step that did not begin
	CreditsUsed ledger.Amount `json:"creditsUsed"`
	Cached      bool          `json:"cached,omitempty"` // it has an earlier result, and its action was not called
	Reason      string        `json:"reason,omitempty"` // why it was skipped or cancelled
	Error       *Error        `json:"error,omitempty"`
	ChildRunID  string        `json:"childRunId,omitempty"` // the run of a nested recipe
}

// Steps returns the steps of the run in the order of its definition, and how many are not
// listed. Of more than MaxSteps it has those that are open, those that failed, and then the
// first.
func (r *Run) Steps() (list []*StepState, more int64) {
	known := r.instances(func(s *scope, _ *step) bool { return !s.skipped })
	heap.Sort(known, func(a, b instance) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), journal.Compare(r.plan, a.ref(), b.ref()))
	})
	more = r.gone.all + int64(max(0, len(known)-MaxSteps))
	known = known[:min(len(known), MaxSteps)]
	heap.Sort(known, func(a, b instance) int { return journal.Compare(r.plan, a.ref(), b.ref()) })
	list = make([]*StepState, len(known))
	for i, in := range known {
		n, res := in.node(r.plan), in.result(r.plan, false)
		list[i] = &StepState{
			Step: in.path(r.plan), Type: n.Type, Action: n.Action, Status: n.Status, Attempts: res.Attempts, StartedAt: n.StartedAt, CompletedAt: n.CompletedAt,
			CreditsUsed: res.CreditsUsed, Cached: res.Cached, Reason: n.Reason, Error: n.Error, ChildRunID: in.step.run,
		}
		if in.step.status.Settled() {
			list[i].Duration = res.Duration
		}
	}
	return list, more
}
