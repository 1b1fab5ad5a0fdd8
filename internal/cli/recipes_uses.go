// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/view"
)

// recipeUseCommands returns the commands that tell what depends on what.
func (a *app) recipeUseCommands() []*cobra.Command {
	ask := func(ctx context.Context, c *client.Client, args []string) (*client.RecipeDependencies, error) {
		return c.Recipes.Dependencies(ctx, args[0])
	}
	return []*cobra.Command{
		onRecipe(a, &cobra.Command{
			Use:     "uses RECIPE",
			Short:   "List the recipes, lenses and actions that a version uses",
			Long:    "List the recipes that the steps of a version run, the lenses that they send and the actions that they call. What those recipes use in turn is not listed.",
			Example: "roux recipes uses pdf-report\nroux recipes uses pdf-report@1.0.0 -o json",
			Args:    wants(1, 1, "RECIPE"),
		}, ask, func(d *client.RecipeDependencies) {
			a.show(orEmpty(d.Uses), func() {
				if len(d.Uses) == 0 {
					a.say("%s uses no recipes, lenses or actions", view.OneLine(d.Name+"@"+d.Version))
					return
				}
				rows := [][]string{{"KIND", "NAME", "VERSION"}}
				for _, u := range d.Uses {
					rows = append(rows, []string{u.Kind, view.OneLine(u.Name), view.OneLine(u.Version)})
				}
				a.table(rows, 1)
			})
		}),
		onRecipe(a, &cobra.Command{
			Use:     "used-by RECIPE",
			Short:   "List the registered recipes that run a recipe",
			Long:    "List the versions of registered recipes whose steps run a recipe: with a version after @, those that may run that version.",
			Example: "roux recipes used-by digest\nroux recipes used-by digest@1.0.0",
			Args:    wants(1, 1, "RECIPE"),
		}, ask, func(d *client.RecipeDependencies) {
			a.show(orEmpty(d.UsedBy), func() {
				if len(d.UsedBy) == 0 {
					a.say("no registered recipe runs %s", view.OneLine(d.Name))
					return
				}
				rows := [][]string{{"RECIPE", "STATUS", "REF"}}
				for _, u := range d.UsedBy {
					rows = append(rows, []string{view.OneLine(u.Name + "@" + u.Version), u.Status, view.OneLine(u.Ref)})
				}
				a.table(rows, 0)
				if d.More {
					a.say("there are more")
				}
			})
		}),
	}
}

// findUsers finds the registered recipes that run what is to be replaced, or whose next run has
// a new version. A server that does not tell has no say.
func (ap *applier) findUsers(ctx context.Context, c *client.Client) error {
	for _, f := range ap.files {
		if f.lens != nil || f.Outcome == applyUnchanged || f.Outcome == applyInvalid || f.Name == "" {
			continue
		}
		d, err := c.Recipes.Dependencies(ctx, f.Name)
		switch fault.CodeOf(err) {
		case "":
		case fault.RecipeNotFound, fault.NotFound, fault.Forbidden, fault.MethodNotAllowed:
			continue // it is new, or the server is a small one
		default:
			return err
		}
		for _, u := range d.UsedBy {
			if by := u.Name + "@" + u.Version; u.Name != f.Name && u.Status != "deprecated" && admits(u.Ref, f.Version) {
				f.UsedBy = append(f.UsedBy, by)
			}
		}
	}
	return nil
}

// admits reports whether a step that names a recipe by ref may run a version of it.
func admits(ref, version string) bool {
	_, wanted, _ := strings.Cut(ref, "@")
	return wanted == "" || catalogue.Admits(wanted, version)
}

// printUsers says who runs what was changed.
func (ap *applier) printUsers() {
	for _, f := range ap.files {
		if len(f.UsedBy) > 0 {
			ap.say("%s is run by %s", view.OneLine(f.Name+"@"+f.Version), view.OneLine(view.Cut(strings.Join(f.UsedBy, ", "), 500)))
		}
	}
}
