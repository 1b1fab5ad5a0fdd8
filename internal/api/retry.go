// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/resource"
	"github.com/roux-engine/roux/internal/rest"
)

// A RetryPlan is what a retry would do.
type RetryPlan struct {
	ExecutionID string `json:"executionId"`
	DryRun      bool   `json:"dryRun" enum:"true"`
	// ResumeToken makes the retry that follows fail if the run has gone on meanwhile.
	ResumeToken      string   `json:"resumeToken" doc:"Send it with the retry: it answers 409 if the run has gone on since."`
	Generation       int64    `json:"generation" doc:"That the retry would open."`
	Steps            []string `json:"steps" doc:"Paths of the steps that would run again, as far as they have run before."`
	MoreSteps        int      `json:"moreSteps,omitempty"`
	CreditsEstimated int64    `json:"creditsEstimated" doc:"What would run again is expected to cost; 0 for an account that does not pay."`
	CreditsReserved  int64    `json:"creditsReserved" doc:"What the retry would hold."`
	CreditsAvailable int64    `json:"creditsAvailable" doc:"What the account can pay now."`
	Payable          bool     `json:"payable"`
}

// retried is the answer to a retry: the run, or a plan.
type retried struct {
	ETag string `header:"ETag"`
	Body retryBody
}

// A retryBody is an Execution or a RetryPlan, as JSON.
type retryBody struct{ rest.JSON }

// Schema implements huma.SchemaProvider.
func (retryBody) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		r.Schema(reflect.TypeFor[resource.Execution](), true, "Execution"), r.Schema(reflect.TypeFor[RetryPlan](), true, "RetryPlan"),
	}}
}

// retryPlan decides a retry on a copy of the run, of which nothing is stored. Limits that
// would be raised change nothing of what would run again.
func (s *Server) retryPlan(ctx context.Context, in *retryIn, edits map[string]any) (*retried, error) {
	account := rest.Account(ctx)
	head, err := s.cfg.Node.Engine.Head(ctx, account, in.ID) // of a run that its user has deleted there is none
	if err != nil {
		return nil, err
	}
	if err := s.current(ctx, in.ID, in.Body.ResumeToken); err != nil {
		return nil, err
	}
	run, err := s.cfg.Node.Engine.State(ctx, account, head.Run, 0)
	if err != nil {
		return nil, err
	}
	out := RetryPlan{ExecutionID: head.Run, DryRun: true, ResumeToken: run.ResumeToken(), Steps: []string{}}
	if start := run.Start(); start != nil && start.Credits != nil && start.Child == nil {
		a, err := s.cfg.Node.Store.Account(ctx, account, s.cfg.Now().UnixMicro())
		if err != nil {
			return nil, err
		}
		out.CreditsAvailable = a.Balance(s.cfg.Now().UnixMicro()).Available
	}
	reset, err := program.Retried(run, in.Body.From, edits, s.cfg.Now().UnixMicro())
	if err != nil {
		return nil, err
	}
	out.Generation, out.Steps, out.MoreSteps = int64(run.Generation()), append(out.Steps, reset.Steps...), reset.More
	out.CreditsReserved, out.CreditsEstimated = reset.Reserved, reset.Expected
	out.Payable = out.CreditsReserved <= out.CreditsAvailable
	data, err := jsonx.Marshal(out)
	return &retried{ETag: rest.ETag(run.Last()), Body: retryBody{data}}, err
}
