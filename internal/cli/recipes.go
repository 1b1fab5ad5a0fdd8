// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) recipesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recipes",
		Short: "List, compare and retire registered recipes",
		Long: "List, compare and retire the recipes that are registered in the data directory or on a server, which others execute by name. `roux apply` registers them. " +
			"RECIPE is a name or an id, with an exact version or a range after @, such as pdf-report@1.2; without one it is the newest active version.",
		Example: `roux recipes list
roux recipes diff pdf-report 1.0.0
roux recipes deprecate pdf-report@1.0.0 --note 'use 1.1.0'`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.listRecipesCommand(), a.getRecipeCommand(), a.recipeSourceCommand(), a.recipeVersionsCommand(),
		a.deprecateRecipeCommand(), a.activateRecipeCommand(), a.deleteRecipeCommand())
	cmd.AddCommand(a.recipeDiffCommands()...)
	cmd.AddCommand(a.recipeUseCommands()...)
	return cmd
}

// onRecipe returns a command that asks for something of one recipe and shows it.
func onRecipe[T any](a *app, cmd *cobra.Command, ask func(context.Context, *client.Client, []string) (T, error), show func(T)) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var v T
		err := a.operating(cmd.Context(), false, func(ctx context.Context, c *client.Client) (err error) {
			v, err = ask(ctx, c, args)
			return err
		})
		if err == nil {
			show(v)
		}
		return err
	}
	return cmd
}

func (a *app) listRecipesCommand() *cobra.Command {
	var q client.RecipeQuery
	cmd := onRecipe(a, &cobra.Command{
		Use:     "list",
		Short:   "List the recipes, the newest first, each with its newest version",
		Example: "roux recipes list\nroux recipes list --text invoice --status active -o json",
		Args:    wants(0, 0, ""),
	}, func(ctx context.Context, c *client.Client, _ []string) ([]client.Recipe, error) {
		return client.Collect(c.Recipes.List(ctx, q), 0)
	}, func(list []client.Recipe) {
		a.printRecipes(list, "NAME", func(v *client.Recipe) string { return v.Name })
	})
	cmd.Flags().Var(choice{&q.Status, recipeStatusWords()}, "status", "only those whose newest version is draft, active or deprecated")
	cmd.Flags().StringVar(&q.Category, "category", "", "only recipes of this category")
	cmd.Flags().StringVar(&q.Text, "text", "", "only recipes with this text in name, description or category")
	return cmd
}

func recipeStatusWords() []string { return []string{"draft", "active", "deprecated"} }

// printRecipes shows versions of recipes. The first column is what head says.
func (a *app) printRecipes(list []client.Recipe, head string, first func(*client.Recipe) string) {
	a.show(orEmpty(list), func() {
		if len(list) == 0 {
			a.say("no recipe is registered here; `%s` registers some", a.hint("apply FILE", ""))
			return
		}
		rows := [][]string{{head, "VERSION", "STATUS", "RAN", "UPDATED", "DESCRIPTION"}}
		for i := range list {
			v := &list[i]
			ran := "no"
			if v.HasRun {
				ran = "yes"
			}
			rows = append(rows, []string{view.OneLine(first(v)), v.Version, v.Status, ran, a.when(v.UpdatedAt.UnixMicro()), view.OneLine(view.Cut(v.Description, 80))})
		}
		a.table(rows, 5)
	})
}

func (a *app) getRecipeCommand() *cobra.Command {
	return onRecipe(a, &cobra.Command{
		Use:     "get RECIPE",
		Short:   "Show a version of a recipe",
		Long:    "Show a version of a recipe. With -o json the whole recipe is printed, with its steps, as the server has understood it; `roux recipes source` prints the text.",
		Example: "roux recipes get pdf-report\nroux recipes get pdf-report@1.2 -o json",
		Args:    wants(1, 1, "RECIPE"),
	}, func(ctx context.Context, c *client.Client, args []string) (*client.Recipe, error) {
		return c.Recipes.Get(ctx, args[0])
	}, func(v *client.Recipe) {
		if a.output == asName {
			a.show(v, nil)
			return
		}
		a.show(v.Document, func() { a.printRecipe(v) })
	})
}

func (a *app) printRecipe(v *client.Recipe) {
	status := v.Status
	if v.Note != "" {
		status += ": " + view.OneLine(v.Note)
	}
	if v.SunsetAt != nil {
		status += "; it may be gone from " + view.Stamp(v.SunsetAt.UnixMicro()) + " on"
	}
	ran := "no: `roux apply` may replace it"
	if v.HasRun {
		ran = "yes: it never changes"
	}
	rows := [][]string{{"recipe", view.OneLine(v.Name)}, {"id", v.ID}, {"version", v.Version}, {"status", status}}
	for _, row := range [][]string{{"description", view.OneLine(v.Description)}, {"category", view.OneLine(v.Category)}} {
		if row[1] != "" {
			rows = append(rows, row)
		}
	}
	rows = append(rows, [][]string{
		{"has run", ran}, {"created", a.exact(v.CreatedAt.UnixMicro())}, {"updated", a.exact(v.UpdatedAt.UnixMicro())}, {"by", v.CreatedBy}, {"plan", v.Plan},
	}...)
	if v.Warnings > 0 {
		rows = append(rows, []string{"warnings", fmt.Sprint(v.Warnings)})
	}
	a.sheet(rows)
}

func (a *app) recipeSourceCommand() *cobra.Command {
	return onRecipe(a, &cobra.Command{
		Use:     "source RECIPE",
		Short:   "Print the text of a version as it was registered",
		Example: "roux recipes source pdf-report > pdf-report.yaml",
		Args:    wants(1, 1, "RECIPE"),
	}, func(ctx context.Context, c *client.Client, args []string) ([]byte, error) {
		return c.Recipes.Source(ctx, args[0])
	}, func(text []byte) {
		a.show(map[string]string{"source": string(text)}, func() {
			a.text("%s", text)
			if len(text) > 0 && text[len(text)-1] != '\n' {
				a.text("\n")
			}
		})
	})
}

func (a *app) recipeVersionsCommand() *cobra.Command {
	return onRecipe(a, &cobra.Command{
		Use:     "versions RECIPE",
		Short:   "List the versions of a recipe, the newest first",
		Example: "roux recipes versions pdf-report",
		Args:    wants(1, 1, "RECIPE"),
	}, func(ctx context.Context, c *client.Client, args []string) ([]client.Recipe, error) {
		return client.Collect(c.Recipes.Versions(ctx, args[0]), 0)
	}, func(list []client.Recipe) {
		a.printRecipes(list, "RECIPE", func(v *client.Recipe) string { return v.Name + "@" + v.Version })
	})
}

func (a *app) deprecateRecipeCommand() *cobra.Command {
	var note, sunset string
	cmd := &cobra.Command{
		Use:   "deprecate RECIPE",
		Short: "Mark a version as one that should not be used",
		Long: "Mark a version as one that should not be used. It can still be executed; who does so is warned, and told --note and from when on it may be gone (--sunset). " +
			"Nothing happens by itself then. `roux recipes activate` takes it back.",
		Example: "roux recipes deprecate pdf-report@1.0.0 --note 'use 1.1.0' --sunset 2027-01-31",
		Args:    wants(1, 1, "RECIPE"),
	}
	cmd.Flags().StringVar(&note, "note", "", "why, for those who use it")
	cmd.Flags().StringVar(&sunset, "sunset", "", "from when on it may be gone, such as 30d or 2027-01-31")
	return onRecipe(a, cmd, func(ctx context.Context, c *client.Client, args []string) (*client.Recipe, error) {
		why := client.Deprecation{Note: note}
		at, err := a.timeFlag("sunset", sunset)
		if err != nil {
			return nil, err
		}
		if at != 0 {
			why.Sunset = new(time.UnixMicro(at).UTC())
		}
		return c.Recipes.Deprecate(ctx, args[0], why)
	}, a.printStanding)
}

func (a *app) activateRecipeCommand() *cobra.Command {
	return onRecipe(a, &cobra.Command{
		Use:     "activate RECIPE",
		Short:   "Let a deprecated version be used again",
		Example: "roux recipes activate pdf-report@1.0.0",
		Args:    wants(1, 1, "RECIPE"),
	}, func(ctx context.Context, c *client.Client, args []string) (*client.Recipe, error) {
		return c.Recipes.Activate(ctx, args[0])
	}, a.printStanding)
}

func (a *app) printStanding(v *client.Recipe) {
	a.show(v, func() { a.text("%s@%s is %s\n", view.OneLine(v.Name), v.Version, v.Status) })
}

func (a *app) deleteRecipeCommand() *cobra.Command {
	return onRecipe(a, &cobra.Command{
		Use:     "delete RECIPE",
		Short:   "Delete a recipe with all its versions",
		Long:    "Delete a recipe with all its versions. Its runs go on, with the version that they began with, and its name is free. To retire one version, deprecate it.",
		Example: "roux recipes delete pdf-report",
		Args:    wants(1, 1, "RECIPE"),
	}, func(ctx context.Context, c *client.Client, args []string) (string, error) {
		if name, version, one := strings.Cut(args[0], "@"); one {
			e := fault.New(fault.Usage, "%s names a version, and a recipe is deleted with all of them", view.OneLine(args[0]))
			e.Remedy = fmt.Sprintf("`roux recipes delete %s` deletes the recipe; `roux recipes deprecate %s@%s` retires the version.", name, name, version)
			return "", e
		}
		return args[0], c.Recipes.Delete(ctx, args[0])
	}, func(name string) {
		a.show(map[string]string{"name": name, "done": "deleted"}, func() { a.text("%s is deleted\n", view.OneLine(name)) })
	})
}

// recipeNames completes the names of recipes.
func (a *app) recipeNames(ctx context.Context, c *client.Client) []string {
	return wordsOf(c.Recipes.List(ctx, client.RecipeQuery{}), func(v *client.Recipe) string {
		return v.Name + "\t" + v.Version + " " + view.OneLine(view.Cut(v.Description, 60))
	})
}
