// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/linediff"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// A formatted is the result of fmt for one file.
type formatted struct {
	File    string `json:"file"`
	Changed bool   `json:"changed"`
	Diff    string `json:"diff,omitempty"`

	text, out []byte
}

func (a *app) fmtCommand() *cobra.Command {
	var check, diff bool
	limit := int64(defaultSource)
	cmd := &cobra.Command{
		Use:   "fmt FILE…",
		Short: "Format recipes and test files, and keep their comments",
		Long: "Format recipes and test files, YAML or JSON, in the standard form: two spaces a level, fields in the order of the format, no more quotes than needed, " +
			"at most one empty line. Comments stay in place, and the recipe means the same: its plan has the same hash. " +
			"Files are replaced at once, or not at all; - formats standard input to standard output.",
		Example: `roux fmt recipe.yaml
roux fmt --check recipes/*.yaml
roux fmt --diff recipe.yaml
cat recipe.yaml | roux fmt -`,
		Args: wants(1, -1, "FILE… [--check | --diff]"), ValidArgsFunction: completeRecipes,
		RunE: func(_ *cobra.Command, args []string) error {
			if limit < 1 || limit > maxSource {
				return fault.New(fault.Usage, "--max-source %d: want 1 byte to 16MiB", limit)
			}
			// All files are read before any is written.
			list := []*formatted{}
			for _, path := range args {
				f, err := a.format(path, limit)
				if err != nil {
					return err
				}
				if f.Changed && diff {
					f.Diff = linediff.Unified(f.File, f.text, f.out)
				}
				list = append(list, f)
			}
			return a.finishFormat(args, list, check, diff)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "write nothing; exit 1 when a file is not formatted")
	cmd.Flags().BoolVar(&diff, "diff", false, "write nothing; show what would change")
	cmd.Flags().Var((*config.Size)(&limit), "max-source", "largest recipe, up to 16MiB")
	return cmd
}

// format reads and formats one file.
func (a *app) format(path string, limit int64) (*formatted, error) {
	text, name, err := readSource(path, a.stdin, limit)
	if err != nil {
		return nil, err
	}
	f := &formatted{File: name, text: text}
	out, diags := dialect.FormatAs(name, text, int(limit), keyOrder(name, text))
	if diags != nil {
		return nil, fault.Invalid(fault.RecipeInvalid, diags)
	}
	f.out, f.Changed = out, !bytes.Equal(text, out)
	return f, nil
}

// finishFormat writes the formatted files, or reports what would change.
func (a *app) finishFormat(args []string, list []*formatted, check, diff bool) error {
	changed := 0
	for i, f := range list {
		if f.Changed {
			changed++
		}
		if check || diff || args[i] == "-" || !f.Changed {
			continue
		}
		if err := replaceInPlace(args[i], f.out); err != nil {
			return err
		}
	}
	if len(args) == 1 && args[0] == "-" && !check && !diff {
		a.text("%s", list[0].out)
		return nil
	}
	a.show(list, func() {
		for _, f := range list {
			switch {
			case f.Diff != "":
				a.text("%s", view.Clean(f.Diff))
			case f.Changed && (check || diff):
				a.text("%s: not formatted\n", view.OneLine(f.File))
			case f.Changed:
				a.text("%s: formatted\n", view.OneLine(f.File))
			}
		}
	})
	if check && changed > 0 {
		a.say("%s to format: `roux fmt FILE…` does, `roux fmt --diff FILE…` shows how", view.Count(changed, "file"))
		return exit(fault.ExitFailed)
	}
	if changed == 0 {
		a.say("nothing to do: %s formatted already", was(len(list)))
	}
	return nil
}

func was(n int) string {
	if n == 1 {
		return "the file is"
	}
	return fmt.Sprintf("all %d files are", n)
}

// replaceInPlace replaces a file in one step and keeps its mode. For a symbolic
// link it replaces the target.
func replaceInPlace(path string, text []byte) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return userfile.OpenError(path, fault.RecipeNotFound, err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return userfile.OpenError(path, fault.RecipeNotFound, err)
	}
	root, base, err := userfile.OpenParent(real)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	d, err := userfile.NewAtomic(root, base, real, 0o600, true)
	if err != nil {
		return err
	}
	defer d.Discard()
	// The umask is for new files, and this one is not new.
	if err := d.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	if _, err := d.Write(text); err != nil {
		return err
	}
	return d.Place()
}
