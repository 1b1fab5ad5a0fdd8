// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/program"
)

// ResolveDefinition implements [program.ResolveFunc] for the recipes that an account has registered: those that a step may name
// with `ref`, and texts that name such recipes.
func (r *Recipes) ResolveDefinition(ctx context.Context, account string, d *program.Definition) (*program.Resolved, error) {
	if d.By == plan.ByText {
		return program.ResolveWith(func(ctx context.Context, account string) (compile.Options, error) {
			return r.options(ctx, account), nil
		})(ctx, account, d)
	}
	if r.cfg.NoRefs {
		return nil, switchedOff(d.Ref)
	}
	c, err := r.Resolve(ctx, account, d.Ref)
	if err != nil {
		return nil, err
	}
	if c.Version.Status == StatusDraft {
		return nil, draft(&c.Version)
	}
	return &program.Resolved{Plan: c.Plan, Name: c.Version.Name, Version: c.Version.Version}, c.Recipe.Runnable()
}

// draft refuses a draft that a step names.
func draft(v *Version) error {
	return fault.New(fault.RecipeNotFound, "version %s of the recipe %q is a draft", v.Version, v.Name)
}
