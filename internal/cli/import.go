// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/importer"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// An imported is what became of a definition of another system.
type imported struct {
	*importer.Result
	File string `json:"file"`
	Out  string `json:"out,omitempty"` // the file that has the recipe
	Text string `json:"text,omitempty"`
}

// An importFlags is what the flags of import say.
type importFlags struct {
	from, out                        string
	actions                          []string
	mapped, check, force, unverified bool
	limit                            int64
}

func (a *app) importCommand() *cobra.Command {
	f := &importFlags{limit: defaultSource}
	names := strings.Join(importer.Names(), ", ")
	cmd := &cobra.Command{
		Use:   "import FILE…",
		Short: "Read a run that export wrote, or turn definitions of other systems into recipes",
		Long: "What import does depends on the content of FILE.\n\n" +
			"A bundle that `roux export` wrote: its run is read to inspect it here; runs get, events, trace, explain, diff and replay work on it. Nothing of it " +
			"is carried out, and the run is marked as imported wherever it is shown: it cannot be retried or resumed unless `roux runs adopt` " +
			"makes it one of this data directory. A bundle that was changed is refused; who wrote it is not checked. Importing the same run " +
			"again changes nothing.\n\n" +
			"A definition of another system: it becomes a recipe on standard output, or in files with --out; no data directory is used. --from says its language (" + names + "), " +
			"which else its names tell. What was dropped or changed is listed on standard error, with its place. If a part cannot be had, it is refused, there is no recipe, and the exit code is 3. " +
			"docs/import.md lists what becomes of each feature.",
		Example: `roux import bug.roux.zip
roux import machine.asl.json > recipe.yaml
roux import flow.yaml --from argo --action busybox=run-shell
roux import definitions/* --out recipes`,
		Args: wants(1, -1, "FILE…"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if isBundle(args[0]) {
				if len(args) > 1 {
					return fault.New(fault.Usage, "%s is a bundle with a run: import one at a time", view.OneLine(args[0]))
				}
				return a.importBundle(cmd, args[0], f.unverified)
			}
			return a.importDefinitions(args, f)
		},
	}
	cmd.Flags().StringVar(&f.from, "from", "", "language of the definitions: "+names+" (default: as their names tell)")
	cmd.Flags().StringArrayVar(&f.actions, "action", nil, "action for what a definition calls, SOURCE=ACTION (repeatable)")
	cmd.Flags().StringVarP(&f.out, "out", "O", "", "file for the recipe; for several definitions, or if it is one, a directory")
	cmd.Flags().BoolVar(&f.force, "force", false, "overwrite files")
	cmd.Flags().BoolVar(&f.mapped, "mapped", false, "also list what was mapped")
	cmd.Flags().BoolVar(&f.check, "check", false, "write nothing, only list what would become of the definitions")
	cmd.Flags().Var((*config.Size)(&f.limit), "max-source", "largest definition, up to 16MiB")
	cmd.Flags().BoolVar(&f.unverified, "unverified", false, "also read a bundle of an earlier release, which has no checksums")
	completeFlag(cmd, "from", importer.Names)
	return cmd
}

// importDefinitions turns definitions into recipes. All are read before anything is written.
func (a *app) importDefinitions(paths []string, f *importFlags) error {
	if f.limit < 1 || f.limit > maxSource {
		return fault.New(fault.Usage, "--max-source %d: want 1 byte to 16MiB", f.limit)
	}
	if len(paths) > 1 && f.out == "" && !f.check {
		return fault.New(fault.Usage, "several recipes need --out DIR, and --check needs none")
	}
	opt := importer.Options{From: f.from, Actions: map[string]string{}, MaxBytes: int(f.limit)}
	for _, m := range f.actions {
		i := strings.LastIndexByte(m, '=')
		if i < 1 || !catalogue.IsActionName(m[i+1:]) {
			return fault.New(fault.Usage, "--action %q: want SOURCE=ACTION, such as arn:aws:lambda:eu-west-1:123456789012:function:charge=charge-card", m)
		}
		opt.Actions[m[:i]] = m[i+1:]
	}
	list := []*imported{}
	refused := 0
	for _, path := range paths {
		text, name, err := readSource(path, a.stdin, f.limit)
		if err != nil {
			return err
		}
		res, err := importer.Import(name, text, opt)
		if err != nil {
			return err
		}
		if res.Text == nil {
			refused++
		}
		list = append(list, &imported{Result: res, File: name, Text: string(res.Text)})
	}
	for _, d := range list {
		a.sayNotes(d, f.mapped)
	}
	if f.out != "" && !f.check && refused == 0 {
		if err := a.writeImported(list, f); err != nil {
			return err
		}
	}
	a.show(list, func() {
		for _, d := range list {
			switch {
			case d.Out != "":
				a.text("%s: %s\n", view.OneLine(d.File), view.OneLine(d.Out))
			case !f.check && refused == 0:
				a.text("%s", d.Text)
			}
		}
	})
	if refused > 0 {
		e := fault.New(fault.RecipeInvalid, "%s cannot be imported: what is refused above has no equal in a recipe", view.Count(refused, "definition"))
		e.Remedy = "Change the definition at these places, or write a recipe; docs/import.md says what is read of each language."
		return e
	}
	return nil
}

// sayNotes lists what became of a definition.
func (a *app) sayNotes(d *imported, all bool) {
	for _, n := range d.Notes {
		if n.Kind != importer.Mapped || all {
			a.say("%s:%s", view.OneLine(d.File), view.OneLine(n.String()))
		}
	}
	for _, c := range d.Actions {
		if len(a.actions.Versions(c.Name)) == 0 {
			a.say("%s: calls the action %s for %s, which is not known here; --action '%s=ACTION' names another one", view.OneLine(d.File), c.Name, view.OneLine(c.Source), view.OneLine(c.Source))
		}
	}
	k := d.Keys
	a.say("%s: %s: %s, %d mapped, %d dropped, %d refused", view.OneLine(d.File), d.Format, view.Count(k.All, "field"), k.Mapped, k.Dropped, k.Refused)
}

// writeImported writes the recipes into files.
func (a *app) writeImported(list []*imported, f *importFlags) error {
	dir := len(list) > 1 || strings.HasSuffix(f.out, string(filepath.Separator))
	if info, err := os.Stat(f.out); err == nil && info.IsDir() {
		dir = true
	}
	if dir {
		d, err := userfile.OpenDir(f.out) // which makes it if need be
		if err != nil {
			return err
		}
		d.Close()
	}
	taken := map[string]string{}
	for _, d := range list {
		path := f.out
		if dir {
			path = filepath.Join(f.out, userfile.SafeName(d.Name, "imported")+".yaml")
		}
		if first, again := taken[path]; again {
			return fault.New(fault.Usage, "%s and %s would both become %s", first, d.File, path)
		}
		taken[path] = d.File
		if err := writeNew(path, d.Result.Text, f.force); err != nil {
			return err
		}
		d.Out = path
	}
	return nil
}

// writeNew writes a file at once, or not at all.
func writeNew(path string, text []byte, force bool) error {
	root, base, err := userfile.OpenParent(path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	w, err := userfile.NewAtomic(root, base, path, 0o644, force)
	if err != nil {
		return err
	}
	defer w.Discard()
	if _, err := w.Write(text); err != nil {
		return userfile.WriteError(path, err)
	}
	return w.Place()
}
