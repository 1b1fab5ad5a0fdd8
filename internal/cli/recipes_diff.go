// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
)

func (a *app) recipeDiffCommands() []*cobra.Command {
	return []*cobra.Command{onRecipe(a, &cobra.Command{
		Use:     "diff RECIPE FROM",
		Short:   "Show how a version differs from version FROM of the same recipe",
		Long:    "Show the lines in which a version differs from version FROM of the same recipe, as diff -u does, and whether both do the same.",
		Example: "roux recipes diff pdf-report 1.0.0\nroux recipes diff pdf-report@1.2.0 1.1.0",
		Args:    wants(2, 2, "RECIPE FROM"),
	}, func(ctx context.Context, c *client.Client, args []string) (*client.RecipeDiff, error) {
		from := args[1]
		if _, version, named := strings.Cut(from, "@"); named { // RECIPE@VERSION is understood, too
			from = version
		}
		return c.Recipes.Diff(ctx, args[0], from)
	}, func(d *client.RecipeDiff) {
		a.show(d, func() {
			a.text("%s", d.Unified)
			switch {
			case d.Unified == "":
				a.say("the texts of %s and %s are the same", d.From, d.To)
			case d.Same:
				a.say("both do the same: only the text differs")
			}
		})
	})}
}
