// SPDX-License-Identifier: Apache-2.0

package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// ErrNotFound says that the recipe which an expression has named is still to be found.
var ErrNotFound = errors.New("the recipe is still to be found")

// A Definition is what an expression has given; see [machine.Definition].
type Definition = machine.Definition

// Definitions finds and compiles what an expression of a step has named for an account (X251). It may take
// its time. An error is that of the step, unless it is a fault.ServiceUnavailable, after which it is asked again.
type Definitions func(ctx context.Context, account string, d *Definition) (*Defined, error)

// Defined is a recipe that was found.
type Defined struct {
	Plan    *plan.Plan
	Name    string
	Version string
}

// Compiled finds the recipes that options find, and compiles them with these. options is called each time, by one
// goroutine at a time for each run.
func Compiled(options func(ctx context.Context, account string) (compile.Options, error)) Definitions {
	return func(ctx context.Context, account string, d *Definition) (*Defined, error) {
		opt, err := options(ctx, account)
		if err != nil {
			return nil, err
		}
		text := &compile.Text{File: made, Name: made, Data: d.Text}
		if d.By == plan.ByName {
			if opt.Recipes == nil {
				return nil, fault.New(fault.RecipeNotFound, "nothing is registered here")
			}
			if text, err = opt.Recipes.Find(plan.SplitRef(d.Ref)); err != nil {
				return nil, err
			}
		}
		if d.By == plan.ByText {
			// Whoever has made the text, perhaps a model, is not who runs the service.
			opt.Recipes, opt.NoSecrets = refsOnly{opt.Recipes}, true
		}
		opt.Name = text.Name
		p, r, _, diags := compile.Source(text.File, text.Data, opt)
		if p == nil {
			return nil, fault.Invalid(fault.RecipeInvalid, diags)
		}
		return &Defined{p, r.Name, cmp.Or(text.Version, r.Version)}, r.Runnable()
	}
}

// refsOnly finds registered recipes, and none in files.
type refsOnly struct{ compile.Recipes }

// File implements compile.Recipes.
func (refsOnly) File(_, name string) (*compile.Text, error) {
	return nil, fault.New(fault.RecipeNotFound, "%q is a file: a recipe that a step has made names others with `ref`, or has them inline", name)
}

// made names a text that a step has made, and a recipe without a name in it.
const made = "definition"

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

// A Found is a recipe that an expression has named, as it is pinned.
type Found struct {
	Named *Definition
	Tree  *journal.Tree
	Plans []store.EncodedPlan
	// Programs are those of the plans, which are used before the plans are durable.
	Programs Family
	// Failure is why there is none; nil = there is, or Later.
	Failure *machine.Failure
	Later   bool // it could not be looked up now
}

// Find finds what an expression has named, and what that refers to in turn.
func (f *Found) Find(ctx context.Context, c *Cache, in Definitions, account string, actions catalogue.Finder, moderators Moderators) error {
	if in == nil {
		return fault.New(fault.RecipeNotFound, "nothing is registered here")
	}
	def, err := in(ctx, account, f.Named)
	if err != nil {
		return err
	}
	prog, err := c.Of(def.Plan)
	if err != nil {
		return err
	}
	if err := prog.CheckGates(moderators); err != nil {
		return err
	}
	pins, tree, err := prog.Pin(actions)
	if err != nil {
		return err
	}
	f.Tree = &journal.Tree{Recipes: []journal.TreeRecipe{{Ref: f.Named.Ref, Name: def.Name, Version: def.Version, Key: prog.Key(), By: f.Named.By}}}
	for i, a := range prog.Plan().Actions {
		f.Tree.Actions = append(f.Tree.Actions, journal.TreeAction{Ref: a.String(), Pin: pins[i]})
	}
	if tree != nil {
		f.Tree = f.Tree.With(tree)
	}
	f.Plans, f.Programs = prog.Stored(), Family{prog.Key(): prog}
	if all := prog.family.Load(); all != nil {
		f.Programs = *all
	}
	return nil
}

// Fail notes why nothing was found; nil = something was.
func (f *Found) Fail(err error) {
	if f.Later = errors.Is(err, fault.ServiceUnavailable); err != nil && !f.Later {
		name := f.Named.Ref
		if f.Named.By == plan.ByText {
			name = "that a step has made"
		}
		f.Failure = ChildFailure(name, err)
	}
}

// FitInto makes it a failure if the runs of a tree have as many such recipes as they may.
func (f *Found) FitInto(t *journal.Tree) {
	if f.Tree != nil && t.Recipe(f.Named.Ref) == nil {
		f.Fail(full(t))
	}
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
