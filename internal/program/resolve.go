// SPDX-License-Identifier: Apache-2.0

package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/singleflight"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// ErrUnresolved says that what an expression has named is not resolved yet.
var ErrUnresolved = errors.New("the recipe is not resolved yet")

// A Definition is what an expression has given; see [machine.Definition].
type Definition = machine.Definition

// A ResolveFunc finds and compiles the recipe of an account that an expression has named (X251). It may take its time. An
// error is that of the step, unless it is a fault.ServiceUnavailable, after which the step asks again.
type ResolveFunc func(ctx context.Context, account string, d *Definition) (*Resolved, error)

// Resolved is a recipe that was found.
type Resolved struct {
	Plan    *plan.Plan
	Name    string
	Version string
}

// ResolveWith finds the recipes that compile options find, and compiles them with these. options is called for each
// recipe.
func ResolveWith(options func(ctx context.Context, account string) (compile.Options, error)) ResolveFunc {
	return func(ctx context.Context, account string, d *Definition) (*Resolved, error) {
		opt, err := options(ctx, account)
		if err != nil {
			return nil, err
		}
		text := &compile.Text{File: made, Name: made, Data: d.Text}
		switch {
		case d.By == plan.ByText:
			// Whoever has made the text, perhaps a model, is not who runs the service.
			opt.Recipes, opt.NoSecrets = refsOnly{opt.Recipes}, true
		case opt.Recipes == nil:
			return nil, nothingRegistered()
		default:
			if text, err = opt.Recipes.Find(plan.SplitRef(d.Ref)); err != nil {
				return nil, err
			}
		}
		opt.Name = text.Name
		p, r, _, diags := compile.Source(text.File, text.Data, opt)
		if p == nil {
			return nil, fault.Invalid(fault.RecipeInvalid, diags)
		}
		return &Resolved{p, r.Name, cmp.Or(text.Version, r.Version)}, r.Runnable()
	}
}

// made names a text that a step has made, and a recipe without a name in it.
const made = "definition"

func nothingRegistered() error { return fault.New(fault.RecipeNotFound, "nothing is registered here") }

// refsOnly finds registered recipes, and none in files.
type refsOnly struct{ compile.Recipes }

// File implements compile.Recipes.
func (refsOnly) File(_, name string) (*compile.Text, error) {
	return nil, fault.New(fault.RecipeNotFound, "%q is a file: a recipe that a step has made names others with `ref`, or has them inline", name)
}

// Find implements compile.Recipes.
func (r refsOnly) Find(name, version string) (*compile.Text, error) {
	if r.Recipes == nil {
		return nil, nothingRegistered()
	}
	return r.Recipes.Find(name, version)
}

// Names implements compile.Recipes.
func (r refsOnly) Names() []string {
	if r.Recipes == nil {
		return nil
	}
	return r.Recipes.Names()
}

// A Family has programs by the keys of their plans.
type Family map[string]*Program

// With adds programs. f may be nil.
func (f Family) With(more Family) Family {
	if f == nil {
		f = Family{}
	}
	maps.Copy(f, more)
	return f
}

// A Resolver resolves what expressions name. It is safe for concurrent use: steps that ask for the same at the same
// time share an answer.
type Resolver struct {
	Programs   *Cache
	Resolve    ResolveFunc // nil = nothing is found
	Actions    catalogue.Finder
	Moderators Moderators

	calls singleflight.Group
}

// A Resolution is what an expression has named, as it is pinned, with what that refers to in turn. Nobody changes it.
type Resolution struct {
	Definition *Definition
	Tree       *journal.Tree
	Plans      []store.EncodedPlan
	Programs   Family // those of the plans, which are used before the plans are durable
	Err        error  // why there is none
}

// Later reports whether the step is to ask again later.
func (r *Resolution) Later() bool { return errors.Is(r.Err, fault.ServiceUnavailable) }

// Failure is that of the step in a tree of runs which has pinned t; nil = it can run the recipe.
func (r *Resolution) Failure(t *journal.Tree) *machine.Failure {
	err := r.Err
	if err == nil && t.Recipe(r.Definition.Ref) == nil {
		err = full(t)
	}
	switch {
	case err == nil:
		return nil
	case r.Definition.By == plan.ByText:
		return ChildFailure("that a step has made", withPlace(err))
	}
	return ChildFailure(r.Definition.Ref, withPlace(err))
}

// withPlace returns err with one text if it is about mistakes in a recipe: the first, where it is and what may be meant.
func withPlace(err error) error {
	var e *fault.Error
	if !errors.As(err, &e) || e.Msg != "" {
		return err
	}
	i := slices.IndexFunc(e.Diags, func(d fault.Diagnostic) bool { return d.Severity == fault.SeverityError })
	if i < 0 {
		return err
	}
	d := e.Diags[i]
	if d.Hint != "" {
		d.Msg += "; " + d.Hint
	}
	return fault.New(e.Code, "%s: %s", d.Pos, d.Msg)
}

// Of resolves what an expression has named. do calls a function that may take its time; what it returns is the error
// of the resolution.
func (r *Resolver) Of(ctx context.Context, account string, d *Definition, do func(func() error) error) *Resolution {
	v, _, _ := r.calls.Do(account+"\x00"+d.Ref, func() (any, error) {
		out := &Resolution{Definition: d}
		out.Err = do(func() error { return r.find(ctx, account, out) })
		return out, nil
	})
	return v.(*Resolution)
}

func (r *Resolver) find(ctx context.Context, account string, out *Resolution) error {
	if r.Resolve == nil {
		return nothingRegistered()
	}
	d := out.Definition
	found, err := r.Resolve(ctx, account, d)
	if err != nil {
		return err
	}
	prog, err := r.Programs.Of(found.Plan)
	if err != nil {
		return err
	}
	if err := prog.CheckGates(r.Moderators); err != nil {
		return err
	}
	pins, below, err := prog.Pin(r.Actions)
	if err != nil {
		return err
	}
	t := &journal.Tree{Recipes: []journal.TreeRecipe{{Ref: d.Ref, Name: found.Name, Version: found.Version, Key: prog.Key(), By: d.By}}}
	for i, a := range prog.Plan().Actions {
		t.Actions = append(t.Actions, journal.TreeAction{Ref: a.String(), Pin: pins[i]})
	}
	if below != nil {
		t = t.With(below)
	}
	out.Tree, out.Plans, out.Programs = t, prog.Stored(), Family{prog.Key(): prog}
	if all := prog.family.Load(); all != nil {
		out.Programs = *all
	}
	return nil
}

// full reports that the expressions of a tree of runs may name no other recipe.
func full(t *journal.Tree) error {
	if t.ByExpressions() < machine.MaxPinned {
		return nil
	}
	return fault.New(fault.ValueTooLarge, "the expressions of this tree of runs have named %d recipes, which is the most", machine.MaxPinned)
}

// ChildFailure is the failure of a step that cannot run a recipe.
func ChildFailure(recipe string, err error) *machine.Failure {
	return &machine.Failure{Code: fault.CodeOf(err), Msg: fmt.Sprintf("recipe %s: %s", recipe, fault.Message(err))}
}
