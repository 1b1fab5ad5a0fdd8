// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/view"
)

// The limits of the source of a recipe.
const (
	defaultSource = form.DefaultBytes
	maxSource     = form.MaxBytes
)

// A compiled is a compiled recipe, or its source and what is wrong with it.
type compiled struct {
	text   []byte
	name   string // of the file
	kind   string // what it is if it is no recipe
	recipe *recipe.Recipe
	plan   *plan.Plan
	source *recipe.Source
	diags  []fault.Diagnostic // warnings and errors
}

// compileFile reads and compiles a recipe. When the recipe is invalid, it returns
// an error and a compiled with the source and all diagnostics.
func (a *app) compileFile(path string, limit int64) (*compiled, error) {
	text, name, err := a.readLimited(path, limit)
	if err != nil {
		return nil, err
	}
	return a.compileText(name, text, limit)
}

// readLimited reads a file with the limit that --max-source has set.
func (a *app) readLimited(path string, limit int64) (text []byte, name string, err error) {
	if limit < 1 || limit > maxSource {
		return nil, "", fault.New(fault.Usage, "--max-source %d: want 1 byte to 16MiB", limit)
	}
	return readSource(path, a.stdin, limit)
}

// compileText is compileFile for a text that has been read.
func (a *app) compileText(name string, text []byte, limit int64) (*compiled, error) {
	files, err := a.recipesFor(name, limit)
	if err != nil {
		return nil, err
	}
	c, err := a.compileWith(files, name, text, limit)
	if err == nil {
		err = a.checkLocked(files)
		if err != nil {
			return nil, err
		}
	}
	return c, err
}

// compileWith compiles a text that finds others in files.
func (a *app) compileWith(files *registry.Files, name string, text []byte, limit int64) (*compiled, error) {
	c := &compiled{text: text, name: name}
	c.plan, c.recipe, c.source, c.diags = compile.Source(name, text, a.compileOptions(files, limit))
	if c.plan != nil {
		return c, nil
	}
	code := fault.RecipeInvalid
	for _, d := range c.diags {
		if d.Severity == fault.SeverityError {
			code = d.Code
			break
		}
	}
	return c, fault.Invalid(code, c.diags)
}

// compileOptions returns what a recipe is compiled against that finds others in files.
func (a *app) compileOptions(files *registry.Files, limit int64) compile.Options {
	return compile.Options{Actions: a.actions, MaxSource: limit, Limits: a.config.Nesting().Limits, Recipes: files, Lenses: files, Secret: a.hasSecret}
}

// resolveOptions returns what the recipes are compiled with that expressions of steps name.
func (a *app) resolveOptions(context.Context, string) (compile.Options, error) {
	files, err := a.recipesFor("definition", maxSource)
	return a.compileOptions(files, maxSource), err
}

// recipesFor returns where the recipe in a file finds the recipes and lenses that its steps name.
func (a *app) recipesFor(name string, limit int64) (*registry.Files, error) {
	dir, err := a.fetched(a.recipes)
	if err != nil {
		return nil, err
	}
	return registry.NewFiles(a.recipesIn(name, dir, limit)), nil
}

// recipesIn returns where the recipe in a file finds others, with dir for those that have a name.
func (a *app) recipesIn(name, dir string, limit int64) registry.Config {
	n := a.config.Nesting()
	return registry.Config{Recipe: name, Dir: dir, MaxSource: limit, Dirs: n.Dirs, Project: n.Project, NoRefs: n.NoRegistry}
}

// sourceFlags adds the flags of a command that compiles a recipe.
func (a *app) sourceFlags(cmd *cobra.Command, limit *int64) {
	cmd.Flags().Var((*config.Size)(limit), "max-source", "largest recipe, up to 16MiB")
	cmd.Flags().StringVar(&a.recipes, "recipes", "", "directory of the recipes that steps name with ref (default ./recipes where it exists)")
	if err := cmd.MarkFlagDirname("recipes"); err != nil {
		panic(err) // a flag that was never defined: no input can cause it
	}
}

// printDiagnostics prints every problem with its source line and a caret.
func (a *app) printDiagnostics(w io.Writer, c *compiled) {
	for _, d := range c.diags {
		text := c.source.Format(d)
		if w == a.stderr && a.screen.Coloured() {
			head, rest, _ := strings.Cut(text, "\n")
			text = a.screen.Paint(d.Severity.String(), head) + "\n" + rest
			a.screen.Print(text)
			continue
		}
		fmt.Fprint(w, text)
	}
}

// countDiagnostics counts diagnostics. text is such as "2 errors, 1 warning".
func countDiagnostics(diags []fault.Diagnostic) (errors, warnings int, text string) {
	for _, d := range diags {
		if d.Severity == fault.SeverityError {
			errors++
		} else {
			warnings++
		}
	}
	var parts []string
	if errors > 0 {
		parts = append(parts, view.Count(errors, "error"))
	}
	if warnings > 0 {
		parts = append(parts, view.Count(warnings, "warning"))
	}
	return errors, warnings, strings.Join(parts, ", ")
}

// A validated is the result of validate for one file.
type validated struct {
	File        string             `json:"file"`
	Valid       bool               `json:"valid"`
	Plan        string             `json:"plan,omitempty"`
	Steps       int                `json:"steps,omitempty"`
	Diagnostics []fault.Diagnostic `json:"diagnostics"`
}

func (a *app) validateCommand() *cobra.Command {
	var strict bool
	limit := int64(defaultSource)
	cmd := &cobra.Command{
		Use:   "validate FILE…",
		Short: "Check recipes, lenses and test files, and show every problem with its place",
		Long: "Check recipes, lenses and test files, and show every problem with its place. Beside the usual forms -o takes sarif (for code scanning) and github " +
			"(annotations); CI=1 adds the latter to any form.",
		Example: `roux validate examples/document-digest.yaml
roux validate --strict recipes/*.yaml
roux validate recipe.yaml -o sarif > roux.sarif
cat recipe.yaml | roux validate -`,
		Annotations: map[string]string{"forms": asSARIF + " " + asGitHub},
		Args:        wants(1, -1, "FILE…"),
		RunE: func(_ *cobra.Command, args []string) error {
			out := a.stream()
			var list []validated
			var worst error
			for _, path := range args {
				c, err := a.checkFile(path, limit)
				if c == nil {
					return err
				}
				v := validated{File: c.name, Valid: err == nil, Diagnostics: c.diags}
				if v.Diagnostics == nil {
					v.Diagnostics = []fault.Diagnostic{}
				}
				if err != nil {
					worst = err
				} else if c.plan != nil {
					v.Plan, v.Steps = c.plan.Hash().String(), len(c.plan.Steps)
				}
				if strict && len(c.diags) > 0 && worst == nil {
					worst = fault.Invalid(fault.RecipeInvalid, c.diags)
				}
				list = append(list, v)
				if a.output != asSARIF && a.output != asGitHub {
					out.add(v)
				}
				a.printValidated(c, v)
			}
			switch a.output {
			case asSARIF:
				_ = writeJSON(a.stdout, sarif(list), true) // a write error means that the reader has gone
			case asGitHub:
				for _, v := range list {
					for _, d := range v.Diagnostics {
						a.text("%s", annotation(d))
					}
				}
			default:
				out.end()
			}
			if worst != nil {
				return exit(fault.ExitCode(worst))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings end in exit code 3, too")
	a.sourceFlags(cmd, &limit)
	return cmd
}

func (a *app) printValidated(c *compiled, v validated) {
	a.annotate(c.diags)
	if a.forPrograms() {
		return
	}
	a.printDiagnostics(a.stderr, c)
	_, _, problems := countDiagnostics(c.diags)
	if !v.Valid {
		a.screen.Print(fmt.Sprintf("%s: %s\n", view.OneLine(c.name), problems))
		return
	}
	if c.recipe == nil {
		a.text("%s: valid, %s\n", view.OneLine(c.name), c.kind)
		return
	}
	note := ""
	if c.recipe.Runnable() != nil {
		note = "; a draft, which `run` refuses without --draft"
	}
	a.text("%s: valid, %s%s\n", view.OneLine(c.name), view.Join(", ", view.Count(v.Steps, "step"), problems), note)
}
