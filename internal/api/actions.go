// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/rest"
)

// An ActionResource is an action that recipes may call (X10 to X12).
type ActionResource struct {
	Name           string          `json:"name" example:"file-inspect"`
	Version        string          `json:"version" example:"1.0.0"`
	Aliases        []string        `json:"aliases,omitempty"`
	Description    string          `json:"description"`
	Input          json.RawMessage `json:"inputSchema,omitempty" doc:"JSON Schema of its input."`
	Output         json.RawMessage `json:"outputSchema,omitempty"`
	RecipeMetadata action.Metadata `json:"recipeMetadata"`
	Price          string          `json:"price" doc:"Credits for a completed call, up to six decimals."`
	Provider       string          `json:"provider,omitempty"`
	Limits         []string        `json:"limits,omitempty"`
	Faults         []string        `json:"faults,omitempty" doc:"Codes that it fails with, besides those that any action has."`
}

func actionOf(a *action.Action) ActionResource {
	out := ActionResource{
		Name: a.Name, Version: a.Version, Aliases: a.Aliases, Description: a.Description, Input: a.Input, Output: a.Output,
		RecipeMetadata: a.Metadata, Provider: a.Provider, Limits: a.Limits,
	}
	if price, err := catalogue.Price(a); err == nil {
		out.Price = price.String()
	}
	for _, code := range a.Faults {
		out.Faults = append(out.Faults, string(code))
	}
	return out
}

func (s *Server) actionRoutes() {
	read := rest.Needs(access.RecipesRead)
	rest.Handle(s.rest, rest.Op("actions-list", http.MethodGet, "/v1/actions", "List the actions that recipes may call"), read, s.listActions)
	call := rest.Needs(access.RunsExecute)
	call.Once = rest.OnceItself
	rest.Handle(s.rest, rest.Op("actions-call", http.MethodPost, "/v1/actions/{name}/call", "Call an action outside a recipe, as a run of one step"), call, s.callAction)
	rest.Handle(s.rest, rest.Op("actions-get", http.MethodGet, "/v1/actions/{name}", "Describe an action"), read, s.getAction)
}

func (s *Server) listActions(ctx context.Context, _ *struct{}) (*rest.Listed[ActionResource], error) {
	actions := s.cfg.Accounts.Actions(rest.Account(ctx))
	var data []ActionResource
	for _, name := range actions.Names() {
		for _, version := range actions.Versions(name) {
			data = append(data, actionOf(actions.Find(name, version)))
		}
	}
	return rest.PageOf(ctx, s.rest, "", "", data), nil
}

// An ActionPath names an action.
type ActionPath struct {
	Name    string `path:"name" maxLength:"64" doc:"Name or alias of an action."`
	Version string `query:"version" maxLength:"50" doc:"A version or a range. Default: the newest."`
}

func (s *Server) getAction(ctx context.Context, in *ActionPath) (*struct{ Body ActionResource }, error) {
	a := s.cfg.Accounts.Actions(rest.Account(ctx)).Find(in.Name, in.Version)
	if a == nil {
		return nil, fault.New(fault.ActionNotFound, "no action of that name and version is registered")
	}
	return &struct{ Body ActionResource }{actionOf(a)}, nil
}

type callIn struct {
	ActionPath
	Prefer         string `header:"Prefer" maxLength:"100" doc:"wait=N waits up to N seconds (at most 60) for the end of the run. Default 60."`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"A repeated request with the same key is answered with the run that the first one started."`
	Body           ExecuteRequest
}

// callAction starts a run of one step (X154). It holds what the action costs, and pays it at
// its end, as every run does.
func (s *Server) callAction(ctx context.Context, in *callIn) (*accepted, error) {
	a := s.cfg.Accounts.Actions(rest.Account(ctx)).Find(in.Name, in.Version)
	if a == nil {
		return nil, fault.New(fault.ActionNotFound, "no action of that name and version is registered")
	}
	if in.Body.Key != "" {
		return nil, fault.New(fault.RequestInvalid, "key: it is for recipes, not for a single action")
	}
	req, err := s.startRequest(ctx, &registry.Compiled{}, &in.Body)
	if err != nil {
		return nil, err
	}
	giveFiles(a, &req)
	c, err := s.oneStep(ctx, a, req.Parameters)
	if err != nil {
		return nil, err
	}
	req.Plan, req.Recipe, req.Version = c.Plan, c.Version.Name, c.Version.Version
	if in.Body.DryRun {
		return s.dryRun(ctx, c, &req)
	}
	if in.Body.Async == nil {
		in.Body.Async = new(bool)
	}
	return s.start(ctx, c, &req, &executeIn{Prefer: in.Prefer, IdempotencyKey: in.IdempotencyKey, Body: in.Body})
}

// giveFiles fills the fields of an action's input that take files and are not given: the only
// one that takes a file with the only file of the request, and lists with all.
func giveFiles(a *action.Action, req *engine.StartRequest) {
	if len(req.Files) == 0 {
		return
	}
	if req.Parameters == nil {
		req.Parameters = map[string]any{}
	}
	given := func(name string) bool {
		_, ok := req.Parameters[name]
		return ok
	}
	if names := slices.DeleteFunc(jsonschema.FileFields(a.Input), given); len(names) == 1 && len(req.Files) == 1 {
		req.Parameters[names[0]] = req.Files[0].Hash
	}
	for _, name := range slices.DeleteFunc(jsonschema.FileLists(a.Input), given) {
		hashes := make([]any, len(req.Files))
		for i := range req.Files {
			hashes[i] = req.Files[i].Hash
		}
		req.Parameters[name] = hashes
	}
}

// oneStep returns the recipe of a single call with an input.
func (s *Server) oneStep(ctx context.Context, a *action.Action, input map[string]any) (*registry.Compiled, error) {
	text, err := catalogue.CallText(a, input, nil, true)
	if err != nil {
		return nil, err
	}
	p, _, _, diags := compile.Source("call", text, compile.Options{Actions: s.cfg.Accounts.Actions(rest.Account(ctx))})
	if p == nil {
		return nil, fault.Invalid(fault.RecipeInvalid, diags)
	}
	name := "action:" + a.Name // the name of no recipe
	return &registry.Compiled{Plan: p, Version: registry.Version{Recipe: name, Name: name, Version: a.Version}}, nil
}
