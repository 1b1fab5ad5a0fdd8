// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
)

// A RecipeUse is something that a version of a recipe uses.
type RecipeUse struct {
	Kind    string `json:"kind"`              // recipe, lens or action
	Name    string `json:"name"`              // as a step has it
	Version string `json:"version,omitempty"` // or a range; "" = the newest
}

// A RecipeUser is a version whose steps run a recipe.
type RecipeUser struct {
	ID      string `json:"id"` // of the recipe
	Name    string `json:"name"`
	Version string `json:"version"`
	Status  string `json:"status"` // draft, active or deprecated
	Ref     string `json:"ref"`    // how its step names the recipe
}

// RecipeDependencies are what a version of a recipe uses, and what uses it.
type RecipeDependencies struct {
	ID      string       `json:"id"` // of the recipe
	Name    string       `json:"name"`
	Version string       `json:"version"`
	Uses    []RecipeUse  `json:"uses"`
	UsedBy  []RecipeUser `json:"usedBy"`
	More    bool         `json:"more,omitempty"` // UsedBy has only some of them
}

// Dependencies returns what a version uses, and which versions run the recipe: with a version
// or a range in the id, those that may run that version. A small binary does not tell.
func (r *Recipes) Dependencies(ctx context.Context, id string) (*RecipeDependencies, error) {
	v := new(RecipeDependencies)
	_, err := r.c.do(ctx, at(http.MethodGet, "v1", "recipes", id, "dependencies"), v)
	return result(v, err)
}
