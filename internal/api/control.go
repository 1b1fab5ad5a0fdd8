// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/rest"
)

// A RunPath names a run.
type RunPath struct {
	ID string `path:"id" maxLength:"64" doc:"Id of a run."`
}

// A reasonIn is a request with a reason for the journal.
type reasonIn struct {
	RunPath
	Body *struct {
		Reason      string `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the journal."`
		ResumeToken string `json:"resumeToken,omitempty" maxLength:"64" doc:"That of the run as it was read; a run that has gone on since answers 409."`
	}
}

// reason and token are those of the body, which may be absent.
func (in *reasonIn) reason() string {
	if in.Body == nil {
		return ""
	}
	return in.Body.Reason
}

func (in *reasonIn) token() string {
	if in.Body == nil {
		return ""
	}
	return in.Body.ResumeToken
}

type executionFound struct {
	ETag string `header:"ETag"`
	Body executionBody
}

func (s *Server) controlRoutes() {
	control := rest.Needs(access.RunsControl)
	rest.Handle(s.rest, rest.Op("executions-cancel", http.MethodPost, "/v1/recipe-executions/{id}/cancel", "Cancel a run"), control, s.cancel)
	rest.Handle(s.rest, rest.Op("executions-pause", http.MethodPost, "/v1/recipe-executions/{id}/pause", "Let no further attempt of a run begin"), control, s.pause)
	rest.Handle(s.rest, rest.Op("executions-unpause", http.MethodPost, "/v1/recipe-executions/{id}/unpause", "Let a paused run go on"), control, s.unpause)
	rest.Handle(s.rest, rest.Op("executions-retry", http.MethodPost, "/v1/recipe-executions/{id}/retry", "Run an ended run again, from what failed or from a step"), control, s.retry)
	rest.Handle(s.rest, rest.Op("executions-signal", http.MethodPost, "/v1/recipe-executions/{id}/signal", "Send a run the signal that it waits for"), control, s.signal)
	release := rest.Needs(access.ServerAdmin)
	rest.Handle(s.rest, rest.Op("executions-release", http.MethodPost, "/v1/recipe-executions/{id}/release", "Release a run from quarantine"), release, s.release)
}

// current checks a resume token: it is that of the run as a client has seen it.
func (s *Server) current(ctx context.Context, run, token string) error {
	if token == "" {
		return nil
	}
	state, err := s.cfg.Node.Engine.State(ctx, rest.Account(ctx), run, 0)
	if err != nil {
		return err
	}
	if state.ResumeToken() != token {
		return fault.New(fault.Conflict, "the resumeToken is not that of the run now: it has gone on since it was read")
	}
	return nil
}

// changed carries out a change and answers with the run as it stands then.
func (s *Server) changed(ctx context.Context, run, token string, fn func() error) (*executionFound, error) {
	if err := s.current(ctx, run, token); err != nil {
		return nil, err
	}
	if err := fn(); err != nil {
		return nil, err
	}
	e, err := s.execution(ctx, run, false)
	if err != nil {
		return nil, err
	}
	return &executionFound{ETag: e.etag(), Body: *e}, nil
}

func (s *Server) cancel(ctx context.Context, in *reasonIn) (*executionFound, error) {
	return s.changed(ctx, in.ID, in.token(), func() error {
		return s.cfg.Node.Engine.Cancel(ctx, rest.Account(ctx), in.ID, in.reason())
	})
}

func (s *Server) pause(ctx context.Context, in *reasonIn) (*executionFound, error) {
	return s.changed(ctx, in.ID, in.token(), func() error {
		return s.cfg.Node.Engine.Pause(ctx, rest.Account(ctx), in.ID, in.reason())
	})
}

func (s *Server) unpause(ctx context.Context, in *reasonIn) (*executionFound, error) {
	return s.changed(ctx, in.ID, in.token(), func() error {
		return s.cfg.Node.Engine.Unpause(ctx, rest.Account(ctx), in.ID)
	})
}

func (s *Server) release(ctx context.Context, in *reasonIn) (*executionFound, error) {
	return s.changed(ctx, in.ID, in.token(), func() error {
		return s.cfg.Node.Engine.Release(ctx, rest.Account(ctx), in.ID)
	})
}

// A RetryRequest opens a new generation of a run that has ended.
type RetryRequest struct {
	From        string          `json:"from,omitempty" maxLength:"1000" doc:"Step to start from. Default: what failed."`
	Input       json.RawMessage `json:"input,omitempty" doc:"Fields of the run's input that are replaced, an object; steps that read them run again."`
	Limits      *Limits         `json:"limits,omitempty" doc:"Limits of the run that are raised."`
	ResumeToken string          `json:"resumeToken,omitempty" maxLength:"64"`
	DryRun      bool            `json:"dryRun,omitempty" doc:"Change nothing, and answer what would run again and what it would cost."`
}

// Limits are limits of a run, named as in recipes.
type Limits struct {
	MaxTotalSteps     int64 `json:"max_total_steps,omitempty" minimum:"1"`
	MaxLoopItems      int64 `json:"max_loop_items,omitempty" minimum:"1"`
	MemoryLimitMB     int64 `json:"memory_limit_mb,omitempty" minimum:"1" maximum:"1048576"`
	MaxExpressionCost int64 `json:"max_expression_cost,omitempty" minimum:"1"`
}

type retryIn struct {
	RunPath
	Body *RetryRequest
}

func (s *Server) retry(ctx context.Context, in *retryIn) (*retried, error) {
	if in.Body == nil {
		in.Body = &RetryRequest{}
	}
	edits, err := parameters(in.Body.Input)
	if err != nil {
		return nil, err
	}
	if in.Body.DryRun {
		return s.retryPlan(ctx, in, edits)
	}
	req := engine.RetryRequest{From: in.Body.From, Edits: edits}
	if l := in.Body.Limits; l != nil {
		req.Limits = plan.Limits{TotalSteps: l.MaxTotalSteps, LoopItems: l.MaxLoopItems, MemoryBytes: l.MemoryLimitMB << 20, ExpressionCost: l.MaxExpressionCost}
	}
	out, err := s.changed(ctx, in.ID, in.Body.ResumeToken, func() error {
		return s.cfg.Node.Engine.Retry(ctx, rest.Account(ctx), in.ID, req)
	})
	if err != nil {
		return nil, err
	}
	return &retried{ETag: out.ETag, Body: retryBody{out.Body.JSON}}, nil
}

type signalIn struct {
	RunPath
	Body struct {
		Name        string          `json:"name" minLength:"1" maxLength:"200" doc:"Of the signal that a wait step waits for."`
		Payload     json.RawMessage `json:"payload,omitempty" doc:"Any JSON value; the output of the step."`
		ResumeToken string          `json:"resumeToken,omitempty" maxLength:"64"`
	}
}

func (s *Server) signal(ctx context.Context, in *signalIn) (*executionFound, error) {
	var data any
	if len(in.Body.Payload) > 0 {
		var err error
		if data, err = jsonx.Decode(in.Body.Payload, rest.BodyLimits); err != nil {
			return nil, fault.Wrap(fault.RequestInvalid, err, "payload: %v", err)
		}
	}
	return s.changed(ctx, in.ID, in.Body.ResumeToken, func() error {
		return s.cfg.Node.Engine.Signal(ctx, rest.Account(ctx), in.ID, in.Body.Name, data)
	})
}
