// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"

	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
)

// A Source gives the recipes of simulated runs. Case must give the same Case for
// the same n, may be called for any n, and may be called from several goroutines.
// Compiling is most of the price of a short schedule, so one Case serves
// SeedsPerCase seeds and is never changed.
type Source interface {
	Case(n uint64) (*Case, error)
}

// SeedsPerCase is how many neighbouring seeds play the same recipe.
const SeedsPerCase = 32

// A Case is a compiled recipe and what its runs are given.
type Case struct {
	Name    string         // for reports
	Recipe  []byte         // the source text, for reports
	Plan    *plan.Plan     // sealed
	Actions engine.Actions // every action the plan calls; none is ever executed

	Parameters map[string]any // of a start
	Files      []File         // of a start: they are there when the run begins

	// Signals are the names that impatient users send, Edits the input fields
	// that they replace, From the steps that they retry from. Any may be empty.
	Signals []string
	Edits   []map[string]any
	// Payloads are what signals carry, by name; others carry a small object.
	Payloads map[string]any
	From     []string

	// Answer makes the output of an attempt that succeeds: canonical JSON. nil
	// stands for small values of every JSON type.
	Answer func(dice *rand.Rand, t *machine.Task, input []byte) []byte
}

// A File is one that a run is given.
type File struct {
	Hash     string
	Name     string
	MimeType string
	Data     []byte
}
