// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/view"
	"github.com/roux-engine/roux/internal/yamlx"
)

// A converted is a recipe in another dialect.
type converted struct {
	File string `json:"file"`
	From string `json:"from"`
	To   string `json:"to"`
	Plan string `json:"plan"` // hash, the same as before
	Text string `json:"text"`
	Lost []lost `json:"lost"`
}

// A lost is a part of a text that its conversion does not have.
type lost struct {
	Line int    `json:"line"`
	Text string `json:"text"`
}

func (a *app) convertCommand() *cobra.Command {
	var to string
	var check bool
	limit := int64(defaultSource)
	names := dialectNames()
	cmd := &cobra.Command{
		Use:   "convert FILE --to DIALECT",
		Short: "Print a recipe in another dialect",
		Long: "Print a recipe in another dialect, YAML or JSON as it was: " + strings.Join(names, " or ") + ". It means the same: its plan has the same hash, which is " +
			"checked. What the other dialect says by itself is written out. Comments are lost, and what is only for people in a dialect, and standard error lists them. " +
			"Files that steps name are not converted: recipes of all dialects can name each other.",
		Example: `roux convert recipe.yaml --to dag > recipe.dag.yaml
roux convert --check recipe.yaml --to dag`,
		Args: wants(1, 1, "FILE --to DIALECT"), ValidArgsFunction: completeRecipes,
		RunE: func(_ *cobra.Command, args []string) error {
			l := dialect.Named(to)
			if l == nil {
				return fault.New(fault.Usage, "--to %q: want --to with %s", to, strings.Join(names, " or "))
			}
			c, err := a.compileFile(args[0], limit)
			if err != nil {
				if c != nil {
					a.printDiagnostics(a.stderr, c)
				}
				return err
			}
			out, err := a.convert(c, l, limit)
			if err != nil {
				return err
			}
			a.show(out, func() {
				if !check {
					a.text("%s", out.Text)
				}
			})
			for _, at := range out.Lost {
				a.say("%s:%d: lost: %s", view.OneLine(out.File), at.Line, view.OneLine(at.Text))
			}
			if check && len(out.Lost) > 0 {
				return exit(fault.ExitFailed)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "dialect to print it in: "+strings.Join(names, " or "))
	cmd.Flags().BoolVar(&check, "check", false, "print nothing; exit 1 when something would be lost")
	a.sourceFlags(cmd, &limit)
	return cmd
}

func dialectNames() (names []string) {
	for _, l := range dialect.All() {
		names = append(names, l.Name)
	}
	return names
}

// convert writes a recipe in another dialect, and makes sure that it has the same plan.
func (a *app) convert(c *compiled, to *dialect.Dialect, limit int64) (*converted, error) {
	from := dialect.Of(c.name, c.text)
	out := &converted{File: c.name, From: from.Name, To: to.Name, Plan: c.plan.Hash().String(), Lost: []lost{}}
	tree, err := to.Encode(c.recipe, from)
	if err != nil {
		return nil, fault.New(fault.RecipeInvalid, "%s cannot be written in the dialect %s: %v", c.name, to.Name, err)
	}
	text, write := yamlx.Encode(tree), yamlx.Format
	if dialect.IsJSON(c.name, c.text) {
		text, write = yamlx.EncodeJSON(tree), yamlx.FormatJSON
	} else {
		for _, n := range yamlx.Comments(c.text, jsonx.Limits{Bytes: int(limit)}) {
			out.Lost = append(out.Lost, lost{n.Line, n.Text})
		}
	}
	c.source.EachDropped(func(line int, field string) { out.Lost = append(out.Lost, lost{line, field}) })
	slices.SortFunc(out.Lost, func(a, b lost) int { return cmp.Compare(a.Line, b.Line) })
	formed, problems := write(text, jsonx.Limits{Bytes: len(text) + 1, Tokens: len(text) + 1}, to.Form.KeyOrder())
	if len(problems) > 0 {
		return nil, fault.New(fault.RecipeInvalid, "%s cannot be written in the dialect %s: %s", c.name, to.Name, problems[0].Msg)
	}
	out.Text = string(formed)
	files, err := a.recipesFor(c.name, maxSource)
	if err != nil {
		return nil, err
	}
	p, _, src, diags := compile.Source(c.name, formed, compile.Options{Actions: a.actions, MaxSource: maxSource, Limits: a.config.Nesting().Limits, Recipes: files, Lenses: files})
	switch {
	case p == nil:
		return nil, fault.New(fault.RecipeInvalid, "%s cannot be written in the dialect %s: %s", c.name, to.Name, strings.TrimSpace(src.Format(diags[0])))
	case p.Hash() != c.plan.Hash():
		return nil, fault.Wrap(fault.InternalError, fmt.Errorf("plans %s and %s", c.plan.Hash(), p.Hash()), "%s would mean something else in the dialect %s; please report this", c.name, to.Name)
	}
	return out, nil
}
