// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/refactor"
	"github.com/roux-engine/roux/internal/linediff"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// A refactored is what refactor has done, or with --dry-run would do.
type refactored struct {
	File    string   `json:"file"`
	New     string   `json:"new,omitempty"` // the file of the new recipe
	Name    string   `json:"name"`
	Steps   int      `json:"steps"` // that were moved
	Inputs  []string `json:"inputs"`
	Outputs []string `json:"outputs"`
	DryRun  bool     `json:"dryRun,omitempty"`
	Diff    string   `json:"diff,omitempty"`
	Text    string   `json:"text,omitempty"` // of the new recipe, with --dry-run
}

func (a *app) refactorCommand() *cobra.Command {
	var suggest, inline, dry bool
	var extract, name string
	limit := int64(defaultSource)
	cmd := &cobra.Command{
		Use:   "refactor FILE",
		Short: "Move steps of a recipe into a recipe of their own",
		Long: "Move steps of a recipe into a recipe of their own, which one step then runs; without --extract, list the steps that are worth it. " +
			"What the steps read from outside becomes the input of the new recipe, and what others read of them its outputs. A run has the same status and result. " +
			"Only the steps and the names that others read of them change: comments and layout of everything else stay as they are. " +
			"What cannot be moved without a change of meaning is refused, with the reason.\n\n" +
			"The new recipe is in a file beside FILE, or with --inline within it, in the dialect of FILE. The step and the recipe have the name that --name says.",
		Example: `roux refactor recipe.yaml --suggest
roux refactor recipe.yaml --extract steps=fetch..parse --name ingest --dry-run
roux refactor recipe.yaml --extract steps=fetch..parse --name ingest`,
		Args: wants(1, 1, "FILE [--extract steps=FIRST..LAST --name NAME]"), ValidArgsFunction: completeRecipes,
		RunE: func(_ *cobra.Command, args []string) error {
			text, file, err := a.readLimited(args[0], limit)
			if err != nil {
				return err
			}
			files, err := a.recipesFor(file, limit)
			if err != nil {
				return err
			}
			opt := a.compileOptions(files, limit)
			opt.Secret = nil // nothing is said about them, however often the text is compiled
			t, err := refactor.Load(file, text, opt)
			if err != nil {
				return err
			}
			if err := a.checkLocked(files); err != nil {
				return err
			}
			if extract == "" {
				if name != "" || inline || dry {
					return fault.New(fault.Usage, "--name, --inline and --dry-run need --extract steps=FIRST..LAST")
				}
				a.suggest(file, t.Suggest())
				return nil
			}
			if suggest {
				return fault.New(fault.Usage, "--suggest and --extract: want one of them")
			}
			e, err := extraction(extract, name, inline)
			if err != nil {
				return err
			}
			res, err := t.Extract(e)
			if err != nil {
				return err
			}
			return a.refactored(args[0], file, text, e, res, dry)
		},
	}
	cmd.Flags().BoolVar(&suggest, "suggest", false, "list the steps that are worth it (the default)")
	cmd.Flags().StringVar(&extract, "extract", "", "steps to move, by their ids: steps=FIRST..LAST, or steps=ONE")
	cmd.Flags().StringVar(&name, "name", "", "name of the new recipe")
	cmd.Flags().BoolVar(&inline, "inline", false, "keep the new recipe in FILE")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "write nothing; show what would change")
	a.sourceFlags(cmd, &limit)
	return cmd
}

// extraction reads the flags that say what is to be moved.
func extraction(extract, name string, inline bool) (e refactor.Extraction, err error) {
	list, ok := strings.CutPrefix(extract, "steps=")
	first, last, several := strings.Cut(list, "..")
	if !several {
		last = first
	}
	if !ok || first == "" || last == "" {
		return e, fault.New(fault.Usage, "--extract %q: want steps=FIRST..LAST, with the ids of two steps", view.OneLine(view.Cut(extract, 60)))
	}
	if name == "" {
		return e, fault.New(fault.Usage, "--extract needs --name, which the new recipe gets")
	}
	e = refactor.Extraction{First: first, Last: last, Name: name}
	if !inline {
		e.Path = name + ".yaml"
	}
	return e, nil
}

// suggest lists steps that are worth a recipe of their own.
func (a *app) suggest(file string, list []refactor.Suggestion) {
	a.show(orEmpty(list), func() {
		if len(list) == 0 {
			a.say("%s: there is nothing to move", view.OneLine(file))
			return
		}
		rows := [][]string{{"STEPS", "LINE", "MOVES", "IN", "OUT", "WHY"}}
		for _, s := range list {
			rows = append(rows, []string{s.First + ".." + s.Last, strconv.Itoa(s.Line), strconv.Itoa(s.Steps), strconv.Itoa(len(s.Inputs)), strconv.Itoa(len(s.Outputs)), s.Why})
		}
		a.table(rows, 1, 2, 3, 4)
		best := list[0]
		a.say("`roux refactor %s --extract steps=%s..%s --name NAME --dry-run` shows the first", term.ShellQuote(file), best.First, best.Last)
	})
}

// refactored writes the files, or shows what would change.
func (a *app) refactored(path, file string, text []byte, e refactor.Extraction, res *refactor.Result, dry bool) error {
	r := refactored{File: file, Name: e.Name, Steps: res.Steps, Inputs: orEmpty(res.Inputs), Outputs: orEmpty(res.Outputs), DryRun: dry}
	beside := ""
	if e.Path != "" {
		beside = filepath.Join(filepath.Dir(path), e.Path)
		r.New = beside
		if _, err := os.Lstat(beside); !errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.Usage, "there is a %s already: give the new recipe another --name", view.OneLine(beside))
		}
	}
	switch {
	case dry:
		r.Diff, r.Text = linediff.Unified(file, text, res.Text), string(res.New)
	case path == "-":
		return fault.New(fault.Usage, "standard input cannot be changed: name a file, or give --dry-run")
	default:
		if beside != "" {
			if err := writeNew(beside, res.New, false); err != nil {
				return err
			}
		}
		if err := replaceInPlace(path, res.Text); err != nil {
			return err
		}
	}
	a.show(r, func() {
		if dry {
			a.text("%s", view.Clean(r.Diff))
			if r.New != "" {
				a.text("\n%s:\n\n%s", view.OneLine(r.New), view.Clean(r.Text))
			}
			return
		}
		where := "a part of the file"
		if r.New != "" {
			where = "in " + view.OneLine(r.New)
		}
		a.text("%s: %s moved into %q, %s\n", view.OneLine(file), view.Count(r.Steps, "step"), r.Name, where)
	})
	return nil
}
