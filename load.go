// SPDX-License-Identifier: Apache-2.0

package roux

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/sources"
	"github.com/roux-engine/roux/internal/userfile"
)

// A Definition is the text of a recipe and where it was found.
type Definition struct {
	Name string // of the recipe; "" = its text has none, or cannot be read
	File string // its path; of a source from outside the path in it
	Text []byte
}

// maxLoaded is how many files of a directory are looked at.
const maxLoaded = 1000

// Load reads recipes: the one in a file, those in the files of a directory, sorted, or those of
// a source from outside, which docs/registry.md describes. Such a source states its hash, as in
// "git+https://example.com/team/recipes@v1#recipes&sha256=…"; without one the error is
// fault.Conflict and names the hash that was found. Addresses that are not public are refused
// unless they are in allow. Load does not check the texts: see [Check].
func Load(ctx context.Context, source string, allow ...netip.Prefix) ([]Definition, error) {
	s, err := sources.Parse(source)
	if err != nil {
		return nil, err
	}
	if s.External() {
		return loadOutside(ctx, s, allow)
	}
	if info, err := os.Stat(source); err == nil && info.IsDir() {
		return loadDir(source, func(name string) string { return filepath.Join(source, name) })
	}
	text, err := userfile.ReadWithin(filepath.Dir(source), filepath.Base(source), form.MaxBytes, fault.RecipeNotFound)
	if err != nil {
		return nil, err
	}
	name, _ := registry.RecipeIn(source, text, form.MaxBytes)
	return []Definition{{name, source, text}}, nil
}

func loadOutside(ctx context.Context, s *sources.Source, allow []netip.Prefix) (list []Definition, err error) {
	client := egress.New(egress.Config{Allow: allow})
	defer client.Close()
	got, err := sources.New(sources.Config{HTTP: client}).Pinned(ctx, s, "")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "roux-recipes-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := got.Unpack(dir); err != nil {
		return nil, err
	}
	return loadDir(dir, func(name string) string { return name })
}

// loadDir reads the recipes in a directory. Other files are passed over.
func loadDir(dir string, shown func(string) string) (list []Definition, err error) {
	names, err := userfile.ListWithin(dir, maxLoaded, ".yaml", ".yml", ".json")
	if err != nil {
		return nil, fault.Wrap(fault.RecipeNotFound, err, "the recipes in %s cannot be read: %v", dir, err)
	}
	for _, name := range names {
		text, err := userfile.ReadWithin(dir, name, form.MaxBytes, fault.RecipeNotFound)
		if err != nil {
			return nil, err
		}
		if called, is := registry.RecipeIn(name, text, form.MaxBytes); is {
			list = append(list, Definition{called, shown(name), text})
		}
	}
	return list, nil
}

// Check compiles a recipe and returns its problems, warnings included; the error has those that
// keep it from running. Recipes that its steps name with `file` are read beside def.File, and
// those that they name with `ref` in the directory recipes; "" = there is none. actions are the
// program's own, in addition to those of Roux.
func Check(def Definition, recipes string, actions ...action.Action) ([]fault.Diagnostic, error) {
	known := node.NewActions(nil, actions...)
	defer known.Close()
	file := cmp.Or(def.File, "recipe")
	files := registry.NewFiles(registry.Config{Recipe: file, Dir: recipes, MaxSource: form.MaxBytes})
	p, _, _, diags := compile.Source(file, def.Text, compile.Options{Actions: known.Catalogue, MaxSource: form.MaxBytes, Recipes: files, Lenses: files})
	if p != nil {
		return diags, nil
	}
	code := fault.RecipeInvalid
	for _, d := range diags {
		if d.Severity == fault.SeverityError {
			code = d.Code
			break
		}
	}
	return diags, fault.Invalid(code, diags)
}

// compile returns the plan of a request, and the name and version of its recipe.
func (e *Engine) compile(ctx context.Context, req *Request) (p *plan.Plan, name, version string, err error) {
	if req.Ref != "" {
		return e.registered(ctx, req)
	}
	p, r, _, diags := compile.Source(cmp.Or(req.Source, "recipe"), req.Recipe, compile.Options{Actions: e.node.Config.Actions.Catalogue})
	if p == nil {
		return nil, "", "", fault.Invalid(fault.RecipeInvalid, diags)
	}
	return p, r.Name, r.Version, r.Runnable()
}

// registered is compile for a registered recipe. Its version never changes from then on.
func (e *Engine) registered(ctx context.Context, req *Request) (p *plan.Plan, name, version string, err error) {
	if len(req.Recipe) > 0 {
		return nil, "", "", fault.New(fault.InputInvalid, "the request has a recipe and the reference %q: want one of them", req.Ref)
	}
	recipes := e.recipes()
	c, err := recipes.Resolve(ctx, e.account, req.Ref)
	if err != nil {
		return nil, "", "", err
	}
	if err := c.Recipe.Runnable(); err != nil {
		return nil, "", "", err
	}
	return c.Plan, c.Version.Name, c.Version.Version, recipes.MarkRan(ctx, e.account, &c.Version)
}

// recipes are the registered recipes. They remember nothing, because a server of the engine may change them meanwhile.
func (e *Engine) recipes() *registry.Recipes {
	return registry.NewRecipes(registry.RecipesConfig{
		Records: e.node, Now: time.Now, NewID: func() (string, error) { return "", errors.New("nothing is registered here") },
		Actions: e.node.Accounts.Actions, MaxSource: form.MaxBytes,
	})
}

// resolve finds the recipes that expressions of steps name.
func (e *Engine) resolve(ctx context.Context, account string, d *program.Definition) (*program.Resolved, error) {
	return e.recipes().ResolveDefinition(ctx, account, d)
}
