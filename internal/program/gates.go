// SPDX-License-Identifier: Apache-2.0

package program

import (
	"slices"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/moderation"
	"github.com/roux-engine/roux/internal/plan"
)

// Moderators returns what asks the moderators with these names; without names, all that there are.
type Moderators func(names []string) (action.ModerationGateway, error)

// Of is the call of the function; nil has no moderators.
func (m Moderators) Of(names []string) (action.ModerationGateway, error) {
	if m == nil {
		return (*moderation.Set)(nil).Of(names)
	}
	return m(names)
}

// CheckGates reports a moderator that a step of the plan, or of a recipe that it runs, demands and
// that is not there (X168).
func (p *Program) CheckGates(moderators Moderators) error {
	if !p.gated {
		return nil
	}
	for _, q := range append([]*plan.Plan{p.Plan()}, familyOf(p.Plan())...) {
		for i := range q.Steps {
			if g := q.Steps[i].Gate; g != nil {
				if _, err := moderators.Of(g.By); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// hasGates reports whether a step of a plan, or of a recipe that it runs, has a gate.
func hasGates(p *plan.Plan) bool {
	has := func(q *plan.Plan) bool {
		return slices.ContainsFunc(q.Steps, func(st plan.Step) bool { return st.Gate != nil })
	}
	return has(p) || slices.ContainsFunc(familyOf(p), has)
}
