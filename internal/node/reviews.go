// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/approval"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/worker"
)

// kindReview is the kind of the requests that ask people about what moderators have flagged.
const kindReview = "review"

// A reviewed says what a request of the kind review is about.
type reviewed struct {
	Phase   string `json:"phase"`
	Action  string `json:"action"`
	Version string `json:"version"`
	Cost    *int64 `json:"cost,omitempty"`
	Price   string `json:"price,omitempty"`
}

// review asks people about what moderators have flagged. What was flagged is shown to those only who
// may decide.
func (n *Node) review(ctx context.Context, t *action.Task, r *plan.Review, f *worker.Flagged) (*action.Job, error) {
	options, err := json.Marshal(reviewed{Phase: f.Phase, Action: f.Action.Name, Version: f.Action.Version, Cost: f.Cost, Price: f.Price})
	if err != nil {
		return nil, err
	}
	decisions := []approval.Decision{approval.Approved, approval.Rejected}
	if f.Phase == journal.OutputPhase {
		decisions = append(decisions, approval.Edited)
	}
	text := "A moderator has flagged it"
	if len(f.Verdict.Categories) > 0 {
		text += " for " + strings.Join(f.Verdict.Categories, ", ")
	}
	if f.Verdict.Reason != "" {
		text += ": " + f.Verdict.Reason
	}
	return n.Approvals.Submit(ctx, t, &approval.Request{
		Kind: kindReview, Title: fmt.Sprintf("The %s of %s was flagged", f.Phase, t.Step), Text: text, Value: f.Value, Held: true,
		Decisions: decisions, Approvers: r.By, Options: options,
		Timeout: time.Duration(r.TimeoutMS) * time.Millisecond, Remind: time.Duration(r.RemindMS) * time.Millisecond,
	})
}

// reviewResult makes what people have decided the result of the attempt. An input that they approve is
// what its action is called with now.
func (n *Node) reviewResult(ctx context.Context, r *approval.Request, a *approval.Answer, t *action.Task) (action.Result, error) {
	var of reviewed
	if err := json.Unmarshal(r.Options, &of); err != nil {
		return action.Result{}, fault.Wrap(fault.InternalError, err, "what was reviewed cannot be read: %v", err)
	}
	decided := worker.Reviewed{Phase: of.Phase, By: a.By, Decision: string(a.Decision), Output: r.Value}
	switch {
	case a.Decision == approval.Rejected:
		text := a.By + " has rejected the " + of.Phase + ", which was flagged"
		if a.Comment != "" {
			text += ": " + a.Comment
		}
		return action.Result{}, fault.New(fault.ModerationRejected, "%s", text)
	case of.Phase == journal.OutputPhase:
		if a.Decision == approval.Edited {
			decided.Output = a.Value
		}
		return action.Result{Output: decided, Cost: of.Cost, Price: of.Price}, nil
	}
	called := n.Config.Actions.Catalogue.Find(of.Action, of.Version)
	if called == nil || called.Run == nil {
		return action.Result{}, fault.New(fault.ActionNotFound, "there is no action %s@%s any more", of.Action, of.Version)
	}
	out, err := called.Run(ctx, t)
	if err == nil && out.Job != nil {
		err = fault.New(fault.NotAvailable, "the input of an action that submits a job cannot be reviewed: %s has submitted %s", called.Name, out.Job.ID)
	}
	decided.Output = out.Output
	out.Output = decided
	return out, err
}
