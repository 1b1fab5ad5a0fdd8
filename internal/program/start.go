// SPDX-License-Identifier: Apache-2.0

package program

import (
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// A StartRequest holds what a run is started with.
type StartRequest struct {
	Account    string // required
	Plan       *plan.Plan
	Recipe     string // name, for people
	Version    string
	Parameters map[string]any
	Files      []journal.File
	// IdempotencyKey ties a repeated request to the run the first one started.
	IdempotencyKey string
	Correlation    string // default: the run's id
	Labels         map[string]string
	// MaxCredits is the most that the run may pay, if its account pays. Default: what
	// the recipe or the account says, whichever is less.
	MaxCredits int64
	// NoCache makes a run, with its child runs, that uses no earlier results. Its own may be used.
	NoCache bool
	// Key is the name of a key of the account: what the run spends counts in the budget of
	// that key.
	Key string
}

// A Started is the answer to a start. The run is durable when it is returned.
type Started struct {
	Run      string
	Existing bool              // an earlier request with the same key started it
	Reserved int64             // credits that are held for it; of an existing run 0
	Status   journal.RunStatus // after its first turn, which is durable; of an existing run 0
}

// Begin returns what the run starts with, but for its id, its seed and what it may pay. begins is its checked input.
func (req *StartRequest) Begin(prog *Program, begins *Input, actions catalogue.Finder) (*journal.Start, error) {
	pins, tree, err := prog.Pin(actions)
	if err != nil {
		return nil, err
	}
	return &journal.Start{
		Account: req.Account, Recipe: req.Recipe, Version: req.Version, PlanHash: prog.Hash(),
		Parameters: begins.Parameters, Stripped: begins.Stripped, Files: req.Files, Correlation: req.Correlation,
		Pins: pins, Labels: req.Labels, Tree: tree, NoCache: req.NoCache,
	}, nil
}
