// SPDX-License-Identifier: Apache-2.0

//go:build !small

package workflows

import (
	"context"
	"encoding/json"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/resource"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/scheduler"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
)

// A WorkflowTrigger is what a run of a workflow starts with.
type WorkflowTrigger struct {
	Parameters json.RawMessage   `json:"parameters,omitempty" doc:"The input of the workflow, an object of at most 256 KiB. If a run goes on, fields of its input that are replaced: nodes that read them run again."`
	FileHashes []string          `json:"fileHashes,omitempty" maxItems:"1000" doc:"Files of the account, as POST /v1/files answered. A run that goes on has those that it was started with."`
	Labels     map[string]string `json:"labels,omitempty" doc:"Of a run that starts."`
	MaxCredits int64             `json:"maxCredits,omitempty" minimum:"1" maximum:"9007199254740991" doc:"The most that a run that starts may pay."`
	Fresh      bool              `json:"fresh,omitempty" doc:"Start a run also if the one before has failed."`
}

// A WorkflowTriggered says what a trigger has done.
type WorkflowTriggered struct {
	ID          string `json:"id"`
	ExecutionID string `json:"execution_id"`
	Status      string `json:"status" enum:"PENDING,RUNNING,COMPLETED,FAILED,CANCELLED"`
	Outcome     string `json:"outcome" enum:"started,retried,active" doc:"retried: the run that had failed goes on. active: a run was active before, and nothing has started."`
}

type triggerIn struct {
	WorkflowPath
	Body *WorkflowTrigger
}

type triggered struct {
	Location string `header:"Location"`
	Body     WorkflowTriggered
}

// trigger runs a workflow.
func (s *server) trigger(ctx context.Context, in *triggerIn) (*triggered, error) {
	if in.Body == nil {
		in.Body = &WorkflowTrigger{}
	}
	v, err := s.version(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out := &triggered{Location: "/workflows/" + v.id, Body: WorkflowTriggered{ID: v.id, Status: running}}
	switch {
	case v.head != nil && v.head.Ended == 0:
		out.Body.ExecutionID, out.Body.Outcome = v.head.Run, "active"
	case v.head != nil && resource.StatusOf(v.head.Status) == "failed" && !in.Body.Fresh:
		err = s.retry(ctx, v.head, in.Body, &out.Body)
	default:
		err = s.start(ctx, v, in.Body, &out.Body)
	}
	if err != nil {
		return nil, err
	}
	if head, err := s.cfg.Engine.Head(ctx, rest.Account(ctx), out.Body.ExecutionID); err == nil {
		out.Body.Status = capitals(head.Status)
	}
	return out, nil
}

// retry goes on with a run that has failed (X119).
func (s *server) retry(ctx context.Context, head *store.Head, t *WorkflowTrigger, out *WorkflowTriggered) error {
	if len(t.FileHashes) > 0 || len(t.Labels) > 0 || t.MaxCredits > 0 {
		err := fault.New(fault.RequestInvalid, "fileHashes, labels and maxCredits are those of a run that starts, and run %s goes on, which has failed", head.Run)
		err.Remedy = "Send fresh: true to start another run."
		return err
	}
	edits, err := starts.Parameters(t.Parameters)
	if err != nil {
		return err
	}
	out.ExecutionID, out.Outcome = head.Run, "retried"
	err = s.cfg.Engine.Retry(ctx, head.Account, head.Run, engine.RetryRequest{Edits: edits})
	if now, _ := s.cfg.Engine.Head(ctx, head.Account, head.Run); fault.CodeOf(err) == fault.Conflict && now.Run != "" && now.Ended == 0 {
		out.Outcome, err = "active", nil // another trigger was faster
	}
	return err
}

// start starts a run. Of several triggers at once one does.
func (s *server) start(ctx context.Context, v *version, t *WorkflowTrigger, out *WorkflowTriggered) error {
	if err := rest.CheckLabels(t.Labels); err != nil {
		return err
	}
	k, err := s.cfg.Schedules.Execute(ctx, rest.Account(ctx), &scheduler.KeyedRequest{
		Key: "workflow " + v.id, IfActive: schedule.OverlapSkip, Idempotency: rest.From(ctx).Key, Start: starts.Request{
			Recipe: v.name + "@" + v.version, Parameters: t.Parameters, Files: t.FileHashes, Labels: t.Labels, MaxCredits: t.MaxCredits, Budget: access.From(ctx).Budget,
		},
	})
	if err != nil {
		return err
	}
	if out.ExecutionID, out.Outcome = k.Run, "started"; k.Result == scheduler.Skipped {
		out.Outcome = "active"
	}
	return nil
}
