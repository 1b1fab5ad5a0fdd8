// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/lint"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) lintCommands() []*cobra.Command {
	return []*cobra.Command{a.lintCommand(), a.refactorCommand()}
}

// A linter is one run of the command.
type linter struct {
	*app
	limit         int64
	ignore        []string
	rules, compat bool
	strict        bool
}

func (a *app) lintCommand() *cobra.Command {
	l := &linter{app: a, limit: defaultSource}
	cmd := &cobra.Command{
		Use:   "lint FILE|DIR…",
		Short: "Check recipes as validate does, and give advice on what is allowed but not wise",
		Long: "Check recipes as `roux validate` does, and give advice on what is allowed but not wise: steps without a timeout, secrets in the text, loops without a bound. " +
			"Each remark has a rule, which docs/lint.md describes and `--rules` lists. The comment `# roux:ignore RULE` ignores a rule in its line or the next, " +
			"`# roux:ignore-file RULE` in the file, --ignore and the setting lint.ignore in all files; one that ignores nothing is a remark itself. Errors cannot be ignored.\n\n" +
			"With --compat it compares two revisions of a recipe, files or NAME@VERSION of registered ones: what is breaking for those who use the old one, and what is only worth a note.\n\n" +
			"Exit code 0: nothing to say; 1: there are remarks, or breaking changes; 3: a recipe is invalid. Beside the usual forms -o takes sarif and github.",
		Example: `roux lint recipes
roux lint recipe.yaml --ignore missing-description
roux lint --rules
roux lint --compat pdf-report@1.2.0 recipe.yaml`,
		Annotations:       map[string]string{"forms": asSARIF + " " + asGitHub},
		ValidArgsFunction: completeRecipes,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case l.rules:
				return l.list(cmd, args)
			case l.compat:
				if err := wants(2, 2, "--compat OLD NEW")(cmd, args); err != nil {
					return err
				}
				return l.compare(cmd.Context(), args[0], args[1])
			}
			if err := wants(1, -1, "FILE|DIR…")(cmd, args); err != nil {
				return err
			}
			return l.check(args)
		},
	}
	cmd.Flags().StringSliceVar(&l.ignore, "ignore", nil, "rules to ignore in all files")
	cmd.Flags().BoolVar(&l.rules, "rules", false, "list the rules")
	cmd.Flags().BoolVar(&l.compat, "compat", false, "compare two revisions of a recipe")
	cmd.Flags().BoolVar(&l.strict, "strict", false, "with --compat: notes end in exit code 1, too")
	completeFlag(cmd, "ignore", lint.Names)
	a.sourceFlags(cmd, &l.limit)
	return cmd
}

// list shows the rules.
func (l *linter) list(cmd *cobra.Command, args []string) error {
	if err := wants(0, 0, "--rules")(cmd, args); err != nil {
		return err
	}
	rules := lint.Rules()
	l.show(rules, func() {
		rows := [][]string{{"RULE", "VALIDATE", "WHAT"}}
		for _, r := range rules {
			rows = append(rows, []string{r.Name, yesNo(r.Also), r.What})
		}
		l.table(rows)
	})
	return nil
}

// ignored returns the rules that the flag and the configuration ignore.
func (l *linter) ignored() ([]string, error) {
	names := slices.Clone(l.ignore)
	v := l.config.Get("lint.ignore")
	for _, name := range strings.Split(settingOr(v, ""), ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if lint.Find(name) == nil {
			return nil, fault.New(fault.Usage, "there is no rule %q to ignore: `roux lint --rules` lists them", view.OneLine(view.Cut(name, 60)))
		}
	}
	return names, nil
}

// check checks files.
func (l *linter) check(args []string) error {
	ignore, err := l.ignored()
	if err != nil {
		return err
	}
	paths, err := l.paths(args)
	if err != nil {
		return err
	}
	out := l.stream()
	list := []validated{}
	var worst error
	remarks := 0
	for _, path := range paths {
		c, err := l.checkFile(path, l.limit)
		if c == nil {
			return err
		}
		lenses, failed := l.recipesFor(c.name, l.limit)
		if failed != nil {
			return failed
		}
		c.diags = lint.Check(lint.Text{Bytes: c.text, Recipe: c.recipe, Plan: c.plan, Source: c.source, Diags: c.diags},
			lint.Options{Actions: l.actions, Lenses: lenses, Ignore: ignore})
		v := validated{File: c.name, Valid: err == nil, Diagnostics: c.diags}
		if err != nil {
			worst = err
		} else if c.plan != nil {
			v.Plan, v.Steps = c.plan.Hash().String(), len(c.plan.Steps)
		}
		remarks += len(c.diags)
		list = append(list, v)
		if l.output != asSARIF && l.output != asGitHub {
			out.add(v)
		}
		l.annotate(c.diags)
		if !l.forPrograms() {
			l.printDiagnostics(l.stderr, c)
		}
	}
	l.finish(list, remarks, out.end)
	switch {
	case worst != nil:
		return exit(fault.ExitCode(worst))
	case remarks > 0:
		return exit(fault.ExitFailed)
	}
	return nil
}

// paths lists the files of the arguments: those named, and the recipes and lenses in directories.
func (l *linter) paths(args []string) (paths []string, err error) {
	for _, arg := range args {
		found, err := applyPaths(arg)
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			if path == arg {
				paths = append(paths, path)
				continue
			}
			text, name, err := l.readLimited(path, l.limit)
			if err != nil {
				return nil, err
			}
			if _, is := registry.RecipeIn(name, text, l.limit); is || isLens(name, text) {
				paths = append(paths, path)
			}
		}
	}
	if len(paths) == 0 {
		return nil, fault.New(fault.RecipeNotFound, "there is no recipe in %s: want files that end in .yaml, .yml or .json", view.OneLine(args[0]))
	}
	return paths, nil
}

// finish shows what was found in all files.
func (l *linter) finish(list []validated, remarks int, end func()) {
	switch l.output {
	case asSARIF:
		_ = writeJSON(l.stdout, sarif(list), true) // a write error means that the reader has gone
		return
	case asGitHub:
		for _, v := range list {
			for _, d := range v.Diagnostics {
				l.text("%s", annotation(d))
			}
		}
		return
	}
	end()
	if l.forPrograms() {
		return
	}
	if remarks == 0 {
		l.text("%s: nothing to say\n", view.Count(len(list), "file"))
		return
	}
	l.say("%s in %s; `roux lint --rules` says what the rules are about", view.Count(remarks, "remark"), view.Count(len(list), "file"))
}

// A compared is what --compat found.
type compared struct {
	Old        string        `json:"old"`
	New        string        `json:"new"`
	Compatible bool          `json:"compatible"`
	Same       bool          `json:"same"` // both have the same plan
	Changes    []lint.Change `json:"changes"`
}

// compare compares two revisions.
func (l *linter) compare(ctx context.Context, old, now string) error {
	before, err := l.revision(ctx, old)
	if err != nil {
		return err
	}
	after, err := l.revision(ctx, now)
	if err != nil {
		return err
	}
	c := compared{Old: before.name, New: after.name, Compatible: true, Same: before.plan.Hash() == after.plan.Hash(), Changes: []lint.Change{}}
	text := func(c *compiled) lint.Text {
		return lint.Text{Bytes: c.text, Recipe: c.recipe, Plan: c.plan, Source: c.source, Diags: c.diags}
	}
	c.Changes = append(c.Changes, lint.Compatible(text(before), text(after), l.actions)...)
	for _, change := range c.Changes {
		c.Compatible = c.Compatible && change.Severity != lint.Breaking
	}
	l.show(c, func() {
		for _, change := range c.Changes {
			l.text("%s\n", view.OneLine(change.String()))
		}
		switch {
		case c.Compatible && c.Same:
			l.say("compatible: both do the same")
		case c.Compatible:
			l.say("compatible with %s", view.OneLine(c.Old))
		default:
			l.say("not compatible with %s; runs that have started keep their plan", view.OneLine(c.Old))
		}
	})
	if !c.Compatible || l.strict && len(c.Changes) > 0 {
		return exit(fault.ExitFailed)
	}
	return nil
}

// revision reads and compiles a recipe: a file, or a registered one.
func (l *linter) revision(ctx context.Context, arg string) (*compiled, error) {
	_, err := os.Stat(arg)
	if arg == "-" || err == nil || !errors.Is(err, fs.ErrNotExist) || strings.ContainsAny(arg, `/\`) || strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".json") || strings.HasSuffix(arg, ".yml") {
		c, err := l.compileFile(arg, l.limit)
		return l.valid(c, err)
	}
	text, err := fetch(ctx, l.app, func(ctx context.Context, c *client.Client) ([]byte, error) { return c.Recipes.Source(ctx, arg) })
	if err != nil {
		return nil, err
	}
	c, err := l.compileText(arg, text, maxSource)
	return l.valid(c, err)
}

// valid shows what is wrong with a recipe that is to be compared.
func (l *linter) valid(c *compiled, err error) (*compiled, error) {
	switch {
	case err != nil && c == nil:
		return nil, err
	case err != nil:
		if !l.forPrograms() {
			l.printDiagnostics(l.stderr, c)
			l.shown = true
		}
		return nil, fmt.Errorf("%s is invalid: %w", c.name, err)
	case c.recipe == nil:
		return nil, fault.New(fault.RecipeInvalid, "%s is no recipe", view.OneLine(c.name))
	}
	return c, nil
}
