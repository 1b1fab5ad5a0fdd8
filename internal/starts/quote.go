// SPDX-License-Identifier: Apache-2.0

package starts

import (
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/estimate"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/terms"
)

// A Quote is what a run may cost, and on what terms it would start.
type Quote struct {
	Budget  *estimate.Budget
	Credits *journal.Credits // nil = the account does not pay
}

// QuoteOf checks a request as [engine.Engine.Start] does and returns the terms of its run,
// without an engine. It does not look at the credits of the account.
func QuoteOf(req *engine.StartRequest, actions catalogue.Finder, rules engine.AccountRules) (*Quote, error) {
	prog, err := program.New(req.Plan)
	if err != nil {
		return nil, err
	}
	in, err := prog.Input(req.Parameters, req.Files, "")
	if err != nil {
		return nil, err
	}
	if _, _, err := prog.Pin(actions); err != nil {
		return nil, err
	}
	b := prog.Budget(actions, in.Parameters, req.Files)
	credits, err := terms.Of(terms.Request{Account: req.Account, MaxCredits: req.MaxCredits, Key: req.Key}, rules, func() *estimate.Budget { return b })
	return &Quote{b, credits}, err
}
