// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"time"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// An Observer is told everything that an engine makes durable, of all runs, for metrics,
// logs and traces. Unlike a subscriber it is called by the engine itself, which waits for
// it: it must return at once and never block. Both methods may be called at a time, each
// by one goroutine.
type Observer interface {
	// Commit is called after each commit of that many transitions. err is why it failed.
	Commit(transitions int, took time.Duration, err error)
	// Durable is called with what the commits since the last call have made durable, in
	// their order. The caller reuses the slice; what its elements point to is not changed
	// any more.
	Durable(runs []Observed)
}

// Observed is what a commit has made durable of a run. After a restart nothing that was
// durable before is observed again. If a commit fails and was written all the same, what
// it made durable is not observed.
type Observed struct {
	Published
	// Plan and Start are nil if the run is not in memory, as when it is quarantined.
	Plan       *plan.Plan
	Start      *journal.Start
	Generation uint32
	Started    bool  // the commit has started the run
	Ended      bool  // the commit has ended the run's generation: Head says how
	Used       int64 // whole credits that the run has used since the last head
	Memory     int64 // bytes that its values and scopes take
}

// Seen is what has been observed of a run, in this process or an earlier one.
type Seen struct {
	Started     bool
	Ended, Used int64
}

// Note sets what follows from a new head, if the commit has written one.
func (s *Seen) Note(o *Observed) {
	if h := o.Head; h != nil {
		o.Started, o.Ended, o.Used = !s.Started, h.Ended != 0 && h.Ended != s.Ended, h.Used-s.Used
		*s = Seen{true, h.Ended, h.Used}
	}
}

// A Host is what an observer reads by itself.
type Host struct {
	Store Accounts
	Load  func() Load
	// Limits are the limits of attempts that are in use, in their order; nil = not known.
	Limits func() []LimitSum
	// Queues are the queues of remote workers, by their names; nil = there are none.
	Queues func() []QueueLoad
	// Refused is what was refused since the start; nil = that is not known.
	Refused func() Refused
	// LogSize returns the size of the write-ahead log in bytes; 0 = not known.
	LogSize func() int64
	// RecipeID returns the id of the recipe that an account has registered under a name, or
	// the name. nil = no recipes are registered.
	RecipeID func(account, name string) string
}

// Accounts is a store that knows which accounts there are.
type Accounts interface {
	store.Store
	// Accounts returns the accounts that have runs.
	Accounts(ctx context.Context) ([]string, error)
	// MeteredAccounts returns the accounts that have entries.
	MeteredAccounts(ctx context.Context) ([]string, error)
}

// A LimitSum is the state of a limit of attempts; of one with keys, of all of them together.
type LimitSum struct {
	Of, Name       string // as in slots.Usage
	InUse, Waiting int
}

// A QueueLoad is how many tasks of a queue no remote worker has, and how long the first of them has
// waited.
type QueueLoad struct {
	Queue   string
	Waiting int
	Oldest  time.Duration
}

// Refused counts what has come from outside and was refused.
type Refused struct {
	Results  []Count // of remote workers, by reason
	Webhooks []Count // whose signature does not fit, by what they are about
}

// A Count is how often something happened.
type Count struct {
	Name string
	N    int64
}

// A Load is what an engine has to do at the moment.
type Load struct {
	Loaded   int            // runs in memory
	Attempts int            // in flight
	ByAction map[string]int // those in flight, by the name of their action
	Finished uint64         // attempts that have ended since the engine opened
	Requests int64          // that wait for the disk
	Inputs   int64          // that have arrived and are not handled yet
	Lag      int            // commits of runs that the feed has not delivered yet
}

// Lag returns how much is published and not yet delivered.
func (f *Feed) Lag() int {
	f.queueMu.Lock()
	defer f.queueMu.Unlock()
	return len(f.queue)
}
