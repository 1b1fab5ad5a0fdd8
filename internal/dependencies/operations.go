// SPDX-License-Identifier: Apache-2.0

//go:build !small

package dependencies

import (
	"context"
	"net/http"
	"strings"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/rest"
)

type server struct{ recipes *registry.Recipes }

func register(rt *rest.Router, recipes *registry.Recipes) {
	s := &server{recipes}
	o := rest.Op("recipes-dependencies", http.MethodGet, "/v1/recipes/{id}/dependencies", "What a version of a recipe uses, and which versions of recipes run it")
	o.Description = "`uses` are the recipes that its steps run, the lenses that they send and the actions that they call. `usedBy` are the versions whose steps run this recipe; " +
		"with a version in the id, those that may run that version."
	rest.Handle(rt, o, rest.Needs(access.RecipesRead), s.get)
}

// A RecipeUse is something that a version uses.
type RecipeUse struct {
	Kind    string `json:"kind" enum:"recipe,lens,action"`
	Name    string `json:"name" example:"digest"`
	Version string `json:"version,omitempty" doc:"The version or range that a step names; none = the newest. Of a lens the version that it stood for."`
}

// A RecipeUser is a version that runs the recipe.
type RecipeUser struct {
	ID      string `json:"id" doc:"Of the recipe."`
	Name    string `json:"name"`
	Version string `json:"version"`
	Status  string `json:"status" enum:"draft,active,deprecated"`
	Ref     string `json:"ref" example:"digest@1" doc:"How its step names the recipe."`
}

// A RecipeDependencies is what a version uses, and what uses it.
type RecipeDependencies struct {
	ID      string       `json:"id" doc:"Of the recipe."`
	Name    string       `json:"name"`
	Version string       `json:"version"`
	Uses    []RecipeUse  `json:"uses"`
	UsedBy  []RecipeUser `json:"usedBy"`
	More    bool         `json:"more,omitempty" doc:"There are more versions that run it than are listed."`
}

type input struct {
	ID string `path:"id" maxLength:"400" doc:"Id or name of a recipe, with an exact version or a range after @, such as pdf-report@1.2."`
}

func (s *server) get(ctx context.Context, in *input) (*struct{ Body RecipeDependencies }, error) {
	account := rest.Account(ctx)
	v, err := s.recipes.Find(ctx, account, in.ID)
	if err != nil {
		return nil, err
	}
	uses, err := s.recipes.Uses(ctx, account, v)
	if err != nil {
		return nil, err
	}
	users, more, err := s.recipes.UsedBy(ctx, account, v, !strings.Contains(in.ID, "@"))
	if err != nil {
		return nil, err
	}
	out := RecipeDependencies{ID: v.Recipe, Name: v.Name, Version: v.Version, Uses: []RecipeUse{}, UsedBy: []RecipeUser{}, More: more}
	for _, u := range uses {
		out.Uses = append(out.Uses, RecipeUse(u))
	}
	for _, u := range users {
		ref := u.Use.Name
		if u.Use.Version != "" {
			ref += "@" + u.Use.Version
		}
		out.UsedBy = append(out.UsedBy, RecipeUser{u.Version.Recipe, u.Version.Name, u.Version.Version, u.Version.Status, ref})
	}
	return &struct{ Body RecipeDependencies }{out}, nil
}
