// SPDX-License-Identifier: Apache-2.0

package program

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/estimate"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
)

// Budget returns what a run of the plan may cost. It is computed once for a plan whose
// cost does not depend on the input.
func (p *Program) Budget(actions catalogue.Finder, params map[string]any, files []journal.File) *estimate.Budget {
	if b := p.fixed.Load(); b != nil {
		return b
	}
	pl := p.Plan()
	b := estimate.Of(pl, actions, estimate.Known{Input: params, Files: machine.FileFacts(files)})
	depends := pl.Estimate != nil && pl.Estimate.Strategy != "" && pl.Estimate.Strategy != "fixed"
	for i := range pl.Steps {
		depends = depends || pl.Steps[i].Kind == plan.Loop || pl.Steps[i].Kind == plan.Recipe
	}
	if !depends {
		p.fixed.Store(b)
	}
	return b
}

// Terms returns the terms of a run with a budget: it may use at most `most`, less if the
// recipe or one of limits says so; a limit of 0 is none. A recipe whose formula gives no
// number of credits is fault.PriceUnknown. What is reserved is left to the caller.
func Terms(b *estimate.Budget, most int64, limits ...int64) (*journal.Credits, error) {
	if b.Problem != "" {
		return nil, fault.New(fault.PriceUnknown, "the credits of a run cannot be estimated: %s", b.Problem)
	}
	for _, n := range append(limits, b.Cap) {
		if n > 0 {
			most = min(most, n)
		}
	}
	return &journal.Credits{Estimated: min(b.Expected, ledger.MaxAmount), Most: most, Policy: ledger.Policy(b.Policy)}, nil
}
