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
	"github.com/roux-engine/roux/internal/resource"
	"github.com/roux-engine/roux/internal/rest"
)

// A handover is a run that another process of the user hands over to the one that holds the
// data directory.
type handover struct {
	Plan       json.RawMessage   `json:"plan"` // the result of plan.EncodeFamily
	Recipe     string            `json:"recipe"`
	Version    string            `json:"version"`
	Parameters json.RawMessage   `json:"parameters"`
	Files      []handedFile      `json:"files"`
	MaxCredits int64             `json:"maxCredits"`
	NoCache    bool              `json:"noCache"`
	Key        string            `json:"key"`
	Labels     map[string]string `json:"labels"`
}

// A handedFile is an input file, which the account keeps already, under its name in the run.
type handedFile struct {
	Hash string `json:"hash"`
	Name string `json:"name"`
}

type handoverIn struct {
	RawBody        []byte `contentType:"application/octet-stream"`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"A repeated request with the same key is answered with the run that the first one started."`
}

func (s *Server) handoverRoutes() {
	hand := rest.Op("executions-handover", http.MethodPost, "/v1/handovers", "Hand a run over to the process that holds the data directory")
	hand.Description = "For commands of Roux of the same release, over the socket of the data directory: the body has a compiled plan. Other callers are refused."
	hand.DefaultStatus, hand.MaxBodyBytes = http.StatusAccepted, 4*rest.MaxText
	policy := rest.Needs(access.ServerAdmin)
	policy.Once = rest.OnceItself
	rest.Handle(s.rest, hand, policy, s.handOver)
	resume := rest.Op("executions-continue", http.MethodPost, "/v1/recipe-executions/{id}/continue", "Carry on a run that an earlier process has left")
	resume.Description = "Over the socket of the data directory only. A server carries on every run anyway."
	rest.Handle(s.rest, resume, rest.Needs(access.ServerAdmin), s.continueRun)
}

// take begins to take over a run, for the user of the data directory.
func (s *Server) take(ctx context.Context) (done func(run string), err error) {
	who := access.From(ctx)
	if !who.Local {
		err := fault.New(fault.Forbidden, "runs are handed over through the socket of the data directory only")
		err.Remedy = "Register the recipe and execute it: POST /v1/recipes, POST /v1/recipes/{id}/execute."
		return nil, err
	}
	taken, err := s.cfg.Take()
	if err != nil {
		return nil, err
	}
	return func(run string) { taken(who.Account, run) }, nil
}

func (s *Server) handOver(ctx context.Context, in *handoverIn) (_ *accepted, err error) {
	run := ""
	done, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { done(run) }()
	req, err := s.handedRun(ctx, in.RawBody)
	if err != nil {
		return nil, err
	}
	req.IdempotencyKey = in.IdempotencyKey
	started, err := s.cfg.Node.Engine.Start(ctx, req)
	if err != nil {
		return nil, err
	}
	run = started.Run
	base, state := "/v1/recipe-executions/"+run, started.Status.String()
	return &accepted{Status: http.StatusAccepted, Location: base, Body: Accepted{
		ExecutionID: run, Status: resource.StatusOf(state), State: state, CreditsReserved: started.Reserved,
		ProgressURL: base, EventsURL: base + "/events", CancelURL: base + "/cancel",
	}}, nil
}

// handedRun reads what a run is started with.
func (s *Server) handedRun(ctx context.Context, body []byte) (req engine.StartRequest, err error) {
	var h handover
	if err := json.Unmarshal(body, &h); err != nil {
		return req, fault.Wrap(fault.RequestMalformed, err, "the body is no handover: %v", err)
	}
	p, err := plan.DecodeFamily(h.Plan)
	if err != nil {
		e := fault.Wrap(fault.RequestInvalid, err, "plan: %v", err)
		e.Remedy = "Use the same release of Roux in both processes, or wait until the other one has ended."
		return req, e
	}
	req = engine.StartRequest{Account: rest.Account(ctx), Plan: p, Recipe: h.Recipe, Version: h.Version, MaxCredits: h.MaxCredits, NoCache: h.NoCache, Key: h.Key, Labels: h.Labels}
	if len(h.Parameters) > 0 && string(h.Parameters) != "null" {
		v, err := jsonx.Decode(h.Parameters, jsonx.Limits{})
		if err != nil {
			return req, fault.Wrap(fault.InputInvalid, err, "parameters: %v", err)
		}
		var ok bool
		if req.Parameters, ok = v.(map[string]any); !ok {
			return req, fault.New(fault.InputInvalid, "parameters: want an object, not %s", jsonx.TypeName(v))
		}
	}
	if err := rest.CheckLabels(h.Labels); err != nil {
		return req, err
	}
	hashes := make([]string, len(h.Files))
	for i, f := range h.Files {
		hashes[i] = f.Hash
	}
	if req.Files, err = s.files(ctx, hashes); err != nil {
		return req, err
	}
	for i, f := range h.Files {
		if f.Name != "" {
			req.Files[i].Name = f.Name
		}
	}
	return req, nil
}

func (s *Server) continueRun(ctx context.Context, in *RunPath) (*executionFound, error) {
	run := ""
	done, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { done(run) }()
	return s.changed(ctx, in.ID, "", func() error {
		err := s.cfg.Node.Engine.Continue(ctx, rest.Account(ctx), in.ID)
		if err == nil {
			run = in.ID
		}
		return err
	})
}
