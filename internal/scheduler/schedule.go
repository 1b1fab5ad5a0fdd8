// SPDX-License-Identifier: Apache-2.0

// Package scheduler keeps the schedules of accounts and starts the runs that they ask for.
//
// It decides which schedules an account may have, how what one has decided is kept, and how a
// start is repeated after a crash: an occurrence is stored as one to start before its run is
// started, under an idempotency key of the schedule and the name of the occurrence, and removed
// when that run is durable. So each occurrence starts at most one run, and none that was to
// start is lost. When schedules occur is decided by package schedule. Starts with a key, of
// which at most one run is active, are kept in the same way.
//
// It holds no schedule in memory. The store has a record for each that has something to do, in
// the order of when that is; one goroutine reads those that are due. It never decides what a
// run does.
package scheduler

import (
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
)

// The bounds of schedules.
const (
	MaxSchedules = 1_000 // of an account
	// KeptFirings is how many entries the history of a schedule has.
	KeptFirings    = 100
	maxDescription = 1_000
	maxName        = 64
)

// IDPrefix begins the ids of schedules.
const IDPrefix = "sched_"

// The labels of runs that schedules start.
const (
	LabelSchedule   = "roux.schedule"   // name of the schedule
	LabelOccurrence = "roux.occurrence" // name of the occurrence
)

// A Spec is what a user says of a schedule.
type Spec struct {
	Name        string
	Description string
	When        schedule.Spec
	Start       starts.Request
	Paused      bool
	By          string // id of the key that makes it
}

// A Schedule starts runs of a recipe. Times are UTC µs, 0 = none.
type Schedule struct {
	ID          string         `json:"id"`
	Name        string         `json:"name"` // unique in the account
	Description string         `json:"description,omitempty"`
	When        schedule.Spec  `json:"when"`
	Start       starts.Request `json:"start"`
	Paused      int64          `json:"paused,omitempty"` // since when
	Created     int64          `json:"created"`
	By          string         `json:"by,omitempty"`

	schedule.State
	Active   string `json:"active,omitempty"`   // the run that was started last
	Firings  int    `json:"firings"`            // entries of the history, also those that are gone
	Due      string `json:"due,omitempty"`      // id of the record that says when there is something to do
	Attempts int    `json:"attempts,omitempty"` // at the first occurrence of the queue that have failed, or found its run active

	// Key and Requests are those of a key of starts, see [Scheduler.Execute].
	Key      string              `json:"key,omitempty"`
	Requests map[string]*request `json:"requests,omitempty"` // of the queue, by the names of its occurrences
	Latest   string              `json:"latest,omitempty"`   // name of the occurrence whose run is Active

	Next     int64  `json:"-"` // when it occurs next; 0 = never, or it is paused
	Revision uint64 `json:"-"`
}

// A Result is what has come of occurrences.
type Result string

// The results.
const (
	Started Result = "started"
	Skipped Result = "skipped"
	Failed  Result = "failed" // the run could not be started
	Queued  Result = "queued" // the run before is active; never in a history
)

// A Firing is an entry of the history of a schedule: an occurrence, or some that follow each
// other and were skipped for one reason.
type Firing struct {
	Number  int        `json:"number"` // from 1
	Name    string     `json:"name"`   // of the occurrence; of several, the first one
	At      int64      `json:"at"`     // when that was due, without its delay
	Last    string     `json:"last,omitempty"`
	Count   int        `json:"count"`
	More    bool       `json:"more,omitempty"` // there were others before them, which were not counted
	Decided int64      `json:"decided"`
	Result  Result     `json:"result"`
	Manual  bool       `json:"manual,omitempty"` // a user asked for it
	Run     string     `json:"run,omitempty"`    // that was started, or was active
	Version string     `json:"version,omitempty"`
	Code    fault.Code `json:"code,omitempty"`
	Reason  string     `json:"reason,omitempty"`

	// For the caller that asked for the occurrence: why it Failed, and whether its run had been
	// started before.
	err      error
	existing bool
}

// reasons are what a history says for people.
var reasons = map[schedule.Reason]string{
	schedule.Missed:     "no server ran at that time",
	schedule.Active:     "the run before had not ended",
	schedule.Superseded: "a newer occurrence came before it could start",
	schedule.QueueFull:  fmt.Sprintf("%d occurrences waited already", schedule.MaxQueue),
	schedule.Paused:     "the schedule was paused while it waited",
}

// The kinds of records. A schedule and its firings are records of their account; when there is
// something to do is one of the operator, because it must be found for all accounts.
const (
	kindSchedule = "schedule"
	kindFiring   = "schedule.firing"
	kindDue      = "schedule.due"
)

// due says whose a schedule is that has something to do.
type due struct {
	Account string `json:"account"`
	ID      string `json:"id"`
}

// dueID sorts by time. It has 19 digits, and so has every time in µs.
func dueID(at int64, id string) string { return fmt.Sprintf("%019d.%s", max(at, 0), id) }

func scheduleKey(account, id string) store.RecordKey {
	return store.RecordKey{Account: account, Kind: kindSchedule, ID: id}
}

func dueKey(id string) store.RecordKey { return store.RecordKey{Kind: kindDue, ID: id} }

func firingKey(account, id string, n int) store.RecordKey {
	return store.RecordKey{Account: account, Kind: kindFiring, ID: fmt.Sprintf("%s.%010d", id, n)}
}
