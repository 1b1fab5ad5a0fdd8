// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/compile"
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
	if price, err := compile.Price(a); err == nil {
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
	rest.Handle(s.rest, rest.Op("actions-get", http.MethodGet, "/v1/actions/{name}", "Describe an action"), read, s.getAction)
}

// actionsOf are the actions that the recipes of an account may call.
func (s *Server) actionsOf(string) compile.Actions { return s.cfg.Actions.Catalogue }

func (s *Server) listActions(ctx context.Context, _ *struct{}) (*rest.Listed[ActionResource], error) {
	actions := s.actionsOf(rest.Account(ctx))
	var data []ActionResource
	for _, name := range actions.Names() {
		for _, version := range actions.Versions(name) {
			data = append(data, actionOf(actions.Find(name, version)))
		}
	}
	return rest.PageOf(ctx, s.rest, "", "", data), nil
}

type actionIn struct {
	Name    string `path:"name" maxLength:"64" doc:"Name or alias of an action."`
	Version string `query:"version" maxLength:"50" doc:"A version or a range. Default: the newest."`
}

func (s *Server) getAction(ctx context.Context, in *actionIn) (*struct{ Body ActionResource }, error) {
	a := s.actionsOf(rest.Account(ctx)).Find(in.Name, in.Version)
	if a == nil {
		return nil, fault.New(fault.ActionNotFound, "no action of that name and version is registered")
	}
	return &struct{ Body ActionResource }{actionOf(a)}, nil
}
