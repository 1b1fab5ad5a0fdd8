// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/lens"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) lensesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lenses",
		Short: "Keep the prompt templates that steps name, in versions",
		Long: "Keep the prompt templates that steps name: lenses. A lens has versions, which never change, and one of them is the current one: that of steps which name no version. " +
			"The version that is put last is the current one; `roux lenses current` sets it back.",
		Example: `roux lenses put lenses/summarize.yaml
roux lenses show summarize@1
roux lenses current summarize 1`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.putLensesCommand(), a.listLensesCommand(), a.showLensCommand(), a.lensVersionsCommand(), a.currentLensCommand(), a.deleteLensCommand())
	return cmd
}

// A lensPut is what came of a file with a lens.
type lensPut struct {
	File    string `json:"file"`
	ID      string `json:"id"`
	Version string `json:"version"`
	Outcome string `json:"outcome"` // put or unchanged
}

func (a *app) putLensesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "put FILE…",
		Short: "Add versions of lenses from files",
		Long: "Add versions of lenses from files, in their order. All are checked first, and nothing is put as long as one is invalid. " +
			"A file has the fields lens (its id), template, and if you like version, model and contracts with input and output, which are JSON Schemas. Without a version it gets the next whole number. " +
			"What is kept already is left alone.",
		Example: `roux lenses put lenses/summarize.yaml lenses/translate.yaml
cat summarize.yaml | roux lenses put -`,
		Args: wants(1, -1, "FILE…"),
		RunE: func(cmd *cobra.Command, args []string) error {
			docs, names, err := a.readLenses(args)
			if err != nil {
				return err
			}
			var list []lensPut
			err = a.operating(cmd.Context(), true, func(ctx context.Context, c *client.Client) error {
				for i, d := range docs {
					v, created, err := c.Lenses.Put(ctx, d.Lens, newLens(d))
					if err != nil {
						return err
					}
					put := lensPut{File: names[i], ID: v.ID, Version: v.Version, Outcome: "put"}
					if !created {
						put.Outcome = "unchanged"
					}
					list = append(list, put)
				}
				return nil
			})
			if err != nil && len(list) == 0 {
				return err
			}
			a.show(orEmpty(list), func() {
				rows := [][]string{{"LENS", "OUTCOME", "FILE"}}
				for _, p := range list {
					rows = append(rows, []string{p.ID + "@" + p.Version, p.Outcome, view.OneLine(p.File)})
				}
				a.table(rows, 2)
			})
			return err
		},
	}
}

// readLenses reads lenses from files. Everything that is wrong in them is shown.
func (a *app) readLenses(paths []string) (docs []*lens.Document, names []string, err error) {
	for _, path := range paths {
		text, name, rerr := readSource(path, a.stdin, lens.MaxDocument)
		if rerr != nil {
			return nil, nil, rerr
		}
		d, src, diags := lens.Parse(name, text)
		if d == nil {
			a.printDiagnostics(a.stderr, &compiled{source: recipe.NewSource(src, nil), diags: diags})
			err = exit(fault.ExitCode(fault.Invalid(fault.RecipeInvalid, nil)))
			continue
		}
		docs, names = append(docs, d), append(names, name)
	}
	if err != nil {
		a.screen.Print("nothing was put\n")
	}
	return docs, names, err
}

// checkFile is compileFile for a file that may also be a lens or have tests. Of these there is neither recipe nor plan.
func (a *app) checkFile(path string, limit int64) (*compiled, error) {
	text, name, err := a.readLimited(path, limit)
	if err != nil {
		return nil, err
	}
	if c, ok, err := a.checkTest(name, text, limit); ok {
		return c, err
	}
	if !lens.Is(name, text) {
		return a.compileText(name, text, limit)
	}
	d, src, diags := lens.Parse(name, text)
	c := &compiled{text: text, name: name, kind: "a lens", source: recipe.NewSource(src, nil), diags: diags}
	if d == nil {
		return c, fault.Invalid(fault.RecipeInvalid, diags)
	}
	return c, nil
}

func (a *app) listLensesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the lenses of an account, each with its current version",
		Example: "roux lenses list",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := fetch(cmd.Context(), a, func(ctx context.Context, c *client.Client) ([]client.Lens, error) {
				return client.Collect(c.Lenses.List(ctx), 0)
			})
			if err == nil {
				a.printLenses(list)
			}
			return err
		},
	}
}

func (a *app) printLenses(list []client.Lens) {
	a.show(orEmpty(list), func() {
		if len(list) == 0 {
			a.say("account %s has no lenses; `%s` puts one", a.account, a.hint("lenses put FILE", ""))
			return
		}
		rows := [][]string{{"LENS", "VERSION", "CURRENT", "MODEL", "SIZE", "CREATED"}}
		for i := range list {
			l := &list[i]
			rows = append(rows, []string{l.ID, l.Version, yesNo(l.Current), view.OneLine(cmp.Or(l.Model, "-")), view.Bytes(int64(l.Size)), a.when(l.CreatedAt.UnixMicro())})
		}
		a.table(rows, 3)
	})
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func (a *app) showLensCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show LENS",
		Short:   "Show a version of a lens with its template and contracts",
		Long:    "Show a version of a lens with its template and contracts. LENS is an id, with @ and a version if not the current one is meant.",
		Example: "roux lenses show summarize\nroux lenses show summarize@1 -o yaml",
		Args:    wants(1, 1, "LENS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, version, _ := strings.Cut(args[0], "@")
			return fetchAndShow(cmd.Context(), a, a.printLens, func(ctx context.Context, c *client.Client) (*client.Lens, error) {
				return c.Lenses.Get(ctx, id, version)
			})
		},
	}
}

func (a *app) printLens(l *client.Lens) {
	d := details{{"lens", l.ID}, {"version", l.Version}, {"current", yesNo(l.Current)}}
	d.add("model", l.Model)
	d.add("input", string(l.Contracts.Input))
	d.add("output", string(l.Contracts.Output))
	d.add("created", a.exact(l.CreatedAt.UnixMicro()))
	d.add("by", l.CreatedBy)
	a.sheet(d)
	a.text("\n%s\n", view.Clean(strings.TrimRight(l.Template, "\n")))
}

func (a *app) lensVersionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "versions LENS",
		Short:   "List the versions of a lens, the newest first",
		Example: "roux lenses versions summarize",
		Args:    wants(1, 1, "LENS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := fetch(cmd.Context(), a, func(ctx context.Context, c *client.Client) ([]client.Lens, error) {
				return client.Collect(c.Lenses.Versions(ctx, args[0]), 0)
			})
			if err == nil {
				a.printLenses(list)
			}
			return err
		},
	}
}

func (a *app) currentLensCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "current LENS VERSION",
		Short:   "Make a version of a lens the current one",
		Long:    "Make a version of a lens the current one: that of steps which name no version, in runs that start from now on.",
		Example: "roux lenses current summarize 1",
		Args:    wants(2, 2, "LENS VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetchAndShow(cmd.Context(), a, func(l *client.Lens) {
				a.text("%s@%s is the current version\n", l.ID, l.Version)
			}, func(ctx context.Context, c *client.Client) (*client.Lens, error) {
				return c.Lenses.SetCurrent(ctx, args[0], args[1], 0)
			})
		},
	}
}

func (a *app) deleteLensCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "delete LENS",
		Short:   "Delete a lens with all its versions",
		Long:    "Delete a lens with all its versions. Runs go on with what they have; recipes that name it cannot be started any more.",
		Example: "roux lenses delete summarize",
		Args:    wants(1, 1, "LENS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if id, version, one := strings.Cut(args[0], "@"); one {
				e := fault.New(fault.Usage, "%s names a version, and a lens is deleted with all of them", view.OneLine(args[0]))
				e.Remedy = fmt.Sprintf("`roux lenses delete %s` deletes the lens; `roux lenses current %s VERSION` makes another version than %s the current one.", id, id, version)
				return e
			}
			err := a.operating(cmd.Context(), false, func(ctx context.Context, c *client.Client) error { return c.Lenses.Delete(ctx, args[0]) })
			if err == nil {
				a.show(map[string]string{"id": args[0], "done": "deleted"}, func() { a.text("%s is deleted\n", view.OneLine(args[0])) })
			}
			return err
		},
	}
}

// lensNames completes the lenses of the account.
func (a *app) lensNames(ctx context.Context, c *client.Client) []string {
	return wordsOf(c.Lenses.List(ctx), func(l *client.Lens) string { return l.ID + "\t" + l.Version })
}
