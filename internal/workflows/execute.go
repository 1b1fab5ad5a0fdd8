// SPDX-License-Identifier: Apache-2.0

//go:build !small

package workflows

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/resource"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/starts"
)

// A WorkflowExecution asks for a run of a workflow.
type WorkflowExecution struct {
	WorkflowID string            `json:"workflowId" minLength:"1" maxLength:"300" doc:"Id or name of a workflow, with a version or a range after @ if not the newest one is meant."`
	RootInputs json.RawMessage   `json:"rootInputs,omitempty" doc:"The input, an object of at most 256 KiB. A placeholder of a lens to which no edge leads gets the field of its name."`
	FileHashes []string          `json:"fileHashes,omitempty" maxItems:"1000" doc:"Files of the account, as POST /v1/files answered."`
	Labels     map[string]string `json:"labels,omitempty"`
	MaxCredits int64             `json:"maxCredits,omitempty" minimum:"1" maximum:"9007199254740991" doc:"The most that the run may pay."`
}

// A WorkflowExecuted is the run that a request has started, or the one that an earlier one has.
type WorkflowExecuted struct {
	RunID          string `json:"runId"`
	WorkflowID     string `json:"workflowId" doc:"As the request has it."`
	Version        string `json:"version"`
	Status         string `json:"status" enum:"pending,running,completed,failed,cancelled"`
	IdempotencyKey string `json:"idempotencyKey" doc:"Of the request, or the SHA-256 of its workflowId and rootInputs."`
	EventsURL      string `json:"eventsUrl"`
}

type executeIn struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Default: the SHA-256 of workflowId and of rootInputs in canonical form. A repeated request with the same key is answered with the run that the first one started."`
	Body           WorkflowExecution
}

type executed struct {
	Location string `header:"Location"`
	Replayed string `header:"Idempotent-Replayed"`
	Body     WorkflowExecuted
}

// execute starts a run, once for a workflow and an input (X103).
func (s *server) execute(ctx context.Context, in *executeIn) (*executed, error) {
	if err := rest.CheckLabels(in.Body.Labels); err != nil {
		return nil, err
	}
	key := in.IdempotencyKey
	if key == "" {
		inputs, err := starts.Parameters(in.Body.RootInputs)
		if err != nil {
			return nil, err
		}
		if inputs == nil {
			inputs = map[string]any{}
		}
		data, err := jsonx.Canonical(inputs)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(append([]byte(in.Body.WorkflowID), data...))
		key = hex.EncodeToString(sum[:])
	}
	run, err := s.cfg.Starts.Start(ctx, rest.Account(ctx), &starts.Request{
		Recipe: in.Body.WorkflowID, Parameters: in.Body.RootInputs, Files: in.Body.FileHashes, Labels: in.Body.Labels,
		MaxCredits: in.Body.MaxCredits, Budget: access.From(ctx).Budget,
	}, key, nil)
	if err != nil {
		return nil, err
	}
	head, err := s.cfg.Engine.Head(ctx, rest.Account(ctx), run.ID)
	if err != nil {
		return nil, err
	}
	out := &executed{Location: "/v1/recipe-executions/" + run.ID, Body: WorkflowExecuted{
		RunID: run.ID, WorkflowID: in.Body.WorkflowID, Version: run.Version, Status: resource.StatusOf(head.Status), IdempotencyKey: key,
		EventsURL: "/execute/workflows/" + run.ID + "/events",
	}}
	if run.Existing {
		out.Replayed, out.Body.Version = "true", head.Version
	}
	return out, nil
}
