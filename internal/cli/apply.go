// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/linediff"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// maxApplied is how many files of a directory are looked at.
const maxApplied = 10_000

func (a *app) applyCommand() *cobra.Command {
	limit := int64(defaultSource)
	dry := false
	cmd := &cobra.Command{
		Use:   "apply FILE|DIR|SOURCE…",
		Short: "Register recipes and lenses, so that they can be used by name",
		Long: "Register the recipes in files, and in all files of directories. All are checked first, and nothing is registered as long as one is invalid. " +
			"A text that is registered already is left alone, and a version that never ran is replaced. One that has run with another text never changes: give the new text another version. " +
			"Lenses, also those in the directory lenses of a directory, are put before the recipes that name them, which are judged with them. Recipes that name one another are registered in an order that works. " +
			"A SOURCE is a package (recipes.tar.gz), an https URL of a text or a package, or git+https://host/repository@ref#directory; it is pinned in roux.lock or with #sha256=HASH. A small binary takes none.",
		Example: `roux apply recipes
roux apply recipe.yaml --dry-run
roux apply recipes --server https://roux.example.org
cat recipe.yaml | roux apply -`,
		Args: wants(1, -1, "FILE|DIR|SOURCE…"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > maxSource {
				return fault.New(fault.Usage, "--max-source %d: want 1 byte to 16MiB", limit)
			}
			ap := &applier{app: a, dry: dry, limit: limit}
			if err := ap.collect(args); err != nil {
				return err
			}
			return ap.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "check everything, show what would be registered and which lines would change; register nothing")
	cmd.Flags().Var((*config.Size)(&limit), "max-source", "largest recipe, up to 16MiB")
	return cmd
}

// What comes of a file.
const (
	applyRegistered = "registered"
	applyReplaced   = "replaced"
	applyUnchanged  = "unchanged"
	applyRefused    = "refused" // the version has run with another text
	applyInvalid    = "invalid"
	applyUntouched  = "not registered" // another one is invalid or was refused
)

// An applied is what came of a file, or with --dry-run what would come of it.
type applied struct {
	File        string             `json:"file"`
	Kind        string             `json:"kind,omitempty"` // lens; "" = a recipe
	Name        string             `json:"name,omitempty"` // of a lens its id
	Version     string             `json:"version,omitempty"`
	Outcome     string             `json:"outcome"`
	DryRun      bool               `json:"dryRun,omitempty"`
	ID          string             `json:"id,omitempty"`      // of the recipe
	Diff        string             `json:"diff,omitempty"`    // from the text that is registered
	Message     string             `json:"message,omitempty"` // why it was refused
	UsedBy      []string           `json:"usedBy,omitempty"`  // registered recipes that run this one
	Diagnostics []fault.Diagnostic `json:"diagnostics,omitempty"`
}

// An applyFile is a recipe to be registered.
type applyFile struct {
	applied
	text     []byte
	source   *recipe.Source
	lens     *lensDocument // nil = it is a recipe, or invalid
	uses     []lensUse     // the lenses that its steps name
	revision uint64        // of the version that is registered
	waits    bool          // it names recipes that are not registered yet, or lenses that are not put
	done     bool          // it is registered
	err      error         // why it was refused
}

// An applier registers the recipes in files.
type applier struct {
	*app
	files  []*applyFile
	lenses []*applyFile // those that are to be put, in that order
	dry    bool
	limit  int64
}

// collect reads the files.
func (ap *applier) collect(args []string) error {
	seen := map[string]bool{}
	for _, given := range args {
		arg, err := ap.fetched(given)
		if err != nil {
			return err
		}
		paths, err := applyPaths(arg)
		if err != nil {
			return err
		}
		for _, path := range paths {
			text, name, err := readSource(path, ap.stdin, ap.limit)
			if err != nil {
				return err
			}
			if _, is := registry.RecipeIn(name, text, ap.limit); !is && !isLens(name, text) && path != arg || seen[name] {
				continue // a directory may hold other files
			}
			seen[name] = true
			if arg != given {
				name = ap.shownSource(given) + strings.TrimPrefix(filepath.ToSlash(name), filepath.ToSlash(arg))
			}
			ap.files = append(ap.files, &applyFile{applied: applied{File: name, DryRun: ap.dry}, text: text})
		}
	}
	if len(ap.files) == 0 {
		return fault.New(fault.RecipeNotFound, "there is no recipe in %s: want files that end in .yaml, .yml or .json", view.OneLine(args[0]))
	}
	return nil
}

func (ap *applier) run(ctx context.Context) error {
	if err := ap.parse(); err != nil {
		return err
	}
	return ap.operating(ctx, !ap.dry, func(ctx context.Context, c *client.Client) error {
		if err := ap.check(ctx, c); err != nil {
			return err
		}
		if err := ap.findUsers(ctx, c); err != nil {
			return err
		}
		if err := ap.failed(); err != nil || ap.dry {
			ap.show(ap.outcomes(), ap.print)
			return err
		}
		err := ap.registerAll(ctx, c)
		if err == nil {
			err = ap.failed()
		}
		if err == nil || errors.As(err, new(exit)) {
			ap.show(ap.outcomes(), ap.print)
		}
		return err
	})
}

// parse reads the texts and refuses those that are no recipes, and two of one version.
func (ap *applier) parse() error {
	names := map[string]*applyFile{}
	for _, f := range ap.files {
		if isLens(f.File, f.text) {
			if f.parseLens(); f.lens != nil {
				if err := ap.admit(f, registry.FoundLens, false); err != nil {
					return err
				}
			}
			continue
		}
		r, src, diags := dialect.Parse(f.File, f.text, form.Options{MaxBytes: int(ap.limit)})
		f.source = src
		if r == nil {
			f.Outcome, f.Diagnostics = applyInvalid, diags
			continue
		}
		f.Name, f.Version, f.uses = r.Name, r.Version, lensesOf(r)
		if err := ap.admit(f, registry.FoundRecipe, r.Status == registry.StatusDraft); err != nil {
			return err
		}
		id := f.Name + "@" + f.Version
		if other := names[id]; other != nil {
			return fault.New(fault.Conflict, "two files are the recipe %q of version %s: %s and %s", f.Name, cmp.Or(f.Version, "none"), other.File, f.File)
		}
		names[id] = f
	}
	if err := ap.failed(); err != nil {
		ap.show(ap.outcomes(), ap.print)
		return err
	}
	return nil
}

// admit refuses a text that the lock of the project has otherwise.
func (ap *applier) admit(f *applyFile, kind string, isDraft bool) error {
	text := registry.Found{Kind: kind, Name: f.Name, Version: f.Version, Text: sha256.Sum256(f.text)}
	if kind == registry.FoundRecipe {
		text.Version = cmp.Or(f.Version, "0.0.0")
	}
	err := ap.checkTextLocked(text, isDraft)
	if fault.CodeOf(err) == fault.Conflict {
		f.Outcome, f.err, f.Message = applyRefused, err, fault.Message(err)
		return nil
	}
	return err
}

// check has all texts checked where they are to be registered, and finds out what would come
// of each. One that names recipes which are not registered yet waits for the others, and one that names
// a lens which is to be put is judged with that: what is wrong with it now may be mended then.
func (ap *applier) check(ctx context.Context, c *client.Client) error {
	if err := ap.compareLenses(ctx, c); err != nil {
		return err
	}
	for _, f := range ap.files {
		if f.lens != nil {
			continue
		}
		v, err := c.Recipes.Named(f.Name).Check(ctx, f.text)
		if err != nil {
			return err
		}
		f.Diagnostics = f.diagnostics(v)
		uses := f.usesOf(ap.lenses)
		f.waits = len(uses) > 0
		if f.Version = cmp.Or(v.Version, f.Version); !v.Valid {
			if f.waits = len(ap.files) > 1 && f.onlyUnknown(uses); !f.waits {
				f.Outcome = applyInvalid
				continue
			}
			f.Diagnostics = nil
		}
		if err := f.compare(ctx, c); err != nil {
			return err
		}
		if f.waits {
			if diags := f.unknownValues(uses); diags != nil {
				f.Outcome, f.Diagnostics = applyInvalid, diags
			}
		}
	}
	return nil
}

func (f *applyFile) diagnostics(v *client.Validation) (list []fault.Diagnostic) {
	for i := range v.Diagnostics {
		d := v.Diagnostics[i].Diagnostic()
		d.Pos.File = f.File
		list = append(list, d)
	}
	return list
}

// onlyUnknown reports whether all errors may go when the other files are registered: they are recipes and
// lenses that are not known, or are about steps whose lenses are to be put. What such a step gives may be
// something else then, so the expressions of the others are not judged either.
func (f *applyFile) onlyUnknown(uses []lensUse) bool {
	return !slices.ContainsFunc(f.Diagnostics, func(d fault.Diagnostic) bool {
		switch {
		case d.Severity != fault.SeverityError || d.Code == fault.RecipeNotFound || d.Code == fault.LensNotFound:
			return false
		case d.Code != fault.RecipeInvalid:
			return true
		}
		at := f.source.ModelPointer(d.Pointer)
		return !slices.ContainsFunc(uses, func(u lensUse) bool { return u.mayMend(d, at) })
	})
}

// compare compares a text with the one that is registered as its version.
func (f *applyFile) compare(ctx context.Context, c *client.Client) error {
	f.Outcome = applyRegistered
	if f.Version == "" {
		return nil // the server gives it one
	}
	id := f.Name + "@" + f.Version
	v, err := c.Recipes.Get(ctx, id)
	if errors.Is(err, fault.RecipeNotFound) {
		return nil
	}
	var known []byte
	if err == nil {
		known, err = c.Recipes.Source(ctx, id)
	}
	if err != nil {
		return err
	}
	f.ID, f.revision = v.ID, v.Revision
	switch {
	case bytes.Equal(known, f.text):
		f.Outcome, f.waits, f.done = applyUnchanged, false, true
		return nil
	case v.HasRun:
		e := fault.New(fault.Conflict, "%s: version %s of the recipe %q has run with another text, and never changes", f.File, f.Version, f.Name)
		e.Remedy = "Give the text another version; `roux recipes source " + id + "` prints the one that is registered."
		f.Outcome, f.err, f.Message = applyRefused, e, e.Msg
	default:
		f.Outcome = applyReplaced
	}
	f.Diff = linediff.Unified(f.Name, known, f.text)
	return nil
}

// registerAll registers the texts that are not, lenses first. It begins again as long as something was
// registered, because recipes may name others.
func (ap *applier) registerAll(ctx context.Context, c *client.Client) error {
	if err := ap.putLenses(ctx, c); err != nil {
		return err
	}
	open := slices.DeleteFunc(slices.Clone(ap.files), func(f *applyFile) bool { return f.Outcome == applyUnchanged || f.lens != nil })
	for len(open) > 0 {
		before := len(open)
		var left []*applyFile
		for _, f := range open {
			if f.waits {
				v, err := c.Recipes.Named(f.Name).Check(ctx, f.text)
				if err != nil {
					return err
				}
				if f.Diagnostics = f.diagnostics(v); !v.Valid {
					left = append(left, f)
					continue
				}
			}
			if err := f.register(ctx, c); err != nil {
				return err
			}
		}
		if open = left; len(open) == before {
			break
		}
	}
	for _, f := range open {
		f.Outcome = applyInvalid
	}
	return nil
}

func (f *applyFile) register(ctx context.Context, c *client.Client) (err error) {
	var v *client.Recipe
	created := true
	if f.Outcome == applyReplaced {
		v, _, err = c.Recipes.Replace(ctx, f.Name, f.text, f.revision)
	} else {
		v, created, err = c.Recipes.Named(f.Name).Create(ctx, f.text)
	}
	if err != nil {
		return err
	}
	if !created {
		f.Outcome = applyUnchanged
	}
	f.ID, f.Version, f.done = v.ID, v.Version, true
	return nil
}

// failed returns an error if a file is invalid or was refused.
func (ap *applier) failed() error {
	var worst error
	for _, f := range ap.files {
		switch f.Outcome {
		case applyInvalid:
			return exit(fault.ExitCode(fault.Invalid(fault.RecipeInvalid, nil)))
		case applyRefused:
			worst = exit(fault.ExitCode(f.err))
		}
	}
	return worst
}

// outcomes returns what came of the files.
func (ap *applier) outcomes() []applied {
	list := make([]applied, len(ap.files))
	for i, f := range ap.files {
		list[i] = f.applied
		switch f.Outcome {
		case applyRegistered, applyReplaced, "":
			if !f.done && (!ap.dry || ap.failed() != nil) {
				list[i].Outcome = applyUntouched
			}
		}
	}
	return list
}

// print shows people what came of the files.
func (ap *applier) print() {
	rows := [][]string{{"RECIPE", "OUTCOME", "FILE"}}
	list := ap.outcomes()
	for i, f := range ap.files {
		ap.printDiagnostics(ap.stderr, &compiled{source: f.source, diags: f.Diagnostics})
		if f.err != nil {
			ap.screen.Print(ap.screen.Paint("error", "error:") + " " + view.OneLine(f.Message) + "\n  " + fault.RemedyOf(f.err) + "\n")
		}
		name, outcome := view.Join(" ", f.Kind, f.Name), list[i].Outcome
		if f.Version != "" {
			name += "@" + f.Version
		}
		if ap.dry && (outcome == applyRegistered || outcome == applyReplaced) {
			outcome = "would be " + outcome
		}
		rows = append(rows, []string{cmp.Or(view.OneLine(name), "?"), outcome, view.OneLine(f.File)})
	}
	ap.table(rows, 2)
	ap.printUsers()
	if ap.dry {
		for _, f := range ap.files {
			ap.text("%s", f.Diff)
		}
	}
	if ap.failed() != nil && !slices.ContainsFunc(ap.files, func(f *applyFile) bool { return f.done && f.Outcome != applyUnchanged }) {
		ap.screen.Print("nothing was registered\n")
	}
}

// applyPaths returns the files that an argument of apply stands for: itself, or of a directory those
// in it and in its directory lenses.
func applyPaths(arg string) (paths []string, err error) {
	if info, err := os.Stat(arg); err != nil || !info.IsDir() || arg == "-" {
		return []string{arg}, nil // reading it says what is wrong
	}
	for _, dir := range []string{arg, filepath.Join(arg, "lenses")} {
		names, err := userfile.ListWithin(dir, maxApplied, ".yaml", ".yml", ".json")
		if dir != arg && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fault.Wrap(fault.RecipeNotFound, err, "the files in %s cannot be read: %v", dir, err)
		}
		for _, name := range names {
			if filepath.Base(name) != config.ProjectFile && !registry.IsTest(name) {
				paths = append(paths, filepath.Join(dir, filepath.FromSlash(name)))
			}
		}
	}
	return paths, nil
}
