// SPDX-License-Identifier: Apache-2.0

package texts

import (
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A Use is code of a recipe, with the names that it reads.
type Use struct {
	Text
	Refs []expr.Ref
}

// Uses returns what the [Code] of a recipe reads. It skips what cannot be compiled, which package compile reports.
func Uses(r *recipe.Recipe) (list []Use) {
	Code(r, func(t *Text) {
		if refs, err := t.refs(); err == nil {
			list = append(list, Use{*t, refs})
		}
	})
	return list
}

func (t *Text) refs() ([]expr.Ref, error) {
	compile := expr.Compile
	switch t.Kind {
	case Template:
		raw, err := jsonx.Canonical(t.Source)
		if err != nil {
			return nil, err
		}
		tree, err := expr.CompileParameters(raw, expr.MaxCost) // which may contain references to secrets
		if err != nil {
			return nil, err
		}
		return tree.Refs(), nil
	case Formula:
		compile = expr.CompileFormula
	}
	p, err := compile(t.Source)
	if err != nil {
		return nil, err
	}
	return p.Refs(), nil
}
