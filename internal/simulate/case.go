// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"

	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
)

// A Source provides the recipes of simulated runs. Case must return the same Case for
// the same n, for any n, and may be called from several goroutines. Compiling takes
// most of the time of a short schedule, so one Case serves SeedsPerCase seeds and
// never changes.
type Source interface {
	Case(n uint64) (*Case, error)
}

// SeedsPerCase is how many consecutive seeds play the same recipe.
const SeedsPerCase = 32

// A Case is a compiled recipe and the inputs of its runs.
type Case struct {
	Name   string       // for reports
	Recipe []byte       // the source text, for reports
	Plan   *plan.Plan   // sealed
	Others []*plan.Plan // of other recipes that users start as well, with the same input
	// Later has the plans once newer versions are registered; nil = that never happens.
	Later   *Revision
	Actions catalogue.Finder // every action the plans call; none is ever executed

	// Pays is true when the accounts of some worlds pay, and may have too few credits.
	Pays bool
	// Scheduled is true when schedules start runs in some worlds.
	Scheduled bool
	// Prices are the same actions at other prices, to which those of a world that pays
	// change while runs go on.
	Prices []catalogue.Finder

	Parameters map[string]any // of a start
	Files      []File         // of a start: they exist when the run begins

	// What impatient users do: Signals are the names of the signals they send, Edits
	// are the input fields they replace, and From are the steps they retry from. Each
	// may be empty.
	Signals []string
	Edits   []map[string]any
	// Payloads are the payloads of signals, by name; other signals carry a small
	// object.
	Payloads map[string]any
	From     []string

	// Answer makes the output of a successful attempt: canonical JSON. nil = small
	// values of every JSON type.
	Answer func(dice *rand.Rand, t *machine.Task, input []byte) []byte

	text    *compile.Text // Recipe with the name of its file, if it is drawn
	sources *sources      // the texts of other recipes; nil = there are none
}

// A File is an input file of a run.
type File struct {
	Hash     string
	Name     string
	MimeType string
	Data     []byte
}
