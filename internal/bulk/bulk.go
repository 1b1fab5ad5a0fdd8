// SPDX-License-Identifier: Apache-2.0

package bulk

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// A Verb is what a bulk does to each of its runs.
type Verb string

// The verbs.
const (
	Cancel  Verb = "cancel"
	Retry   Verb = "retry" // from what failed
	Delete  Verb = "delete"
	Pause   Verb = "pause"
	Unpause Verb = "unpause"
)

// A State is how far a bulk has come.
type State string

// The states.
const (
	Queued     State = "queued" // another bulk of the account is first
	Running    State = "running"
	Cancelling State = "cancelling" // what has begun is finished
	Completed  State = "completed"  // every run has a result, which may be that it failed
	Cancelled  State = "cancelled"
)

// Ended reports whether nothing more is done.
func (s State) Ended() bool { return s == Completed || s == Cancelled }

// The bounds of a bulk.
const (
	MaxIDs  = 1_000   // runs that are named by their ids
	MaxRuns = 100_000 // runs of one bulk; it is complete after as many
	MaxOpen = 10      // bulks of an account that have not ended

	maxGroups = 100
)

// IDPrefix begins the ids of bulks.
const IDPrefix = "bulk_"

// A Filter selects root runs. What is zero does not restrict the selection.
type Filter struct {
	Statuses      []string          `json:"statuses,omitempty"` // any of these states
	Recipe        string            `json:"recipe,omitempty"`   // its name
	Code          fault.Code        `json:"code,omitempty"`     // that the run ended with
	Step          string            `json:"step,omitempty"`     // id of the first step that failed
	Text          string            `json:"text,omitempty"`     // see store.Query
	Labels        map[string]string `json:"labels,omitempty"`
	Since         int64             `json:"since,omitempty"` // created at or after, UTC µs
	CreatedBefore int64             `json:"createdBefore,omitempty"`
}

func (f *Filter) empty() bool {
	return len(f.Statuses) == 0 && f.Recipe == "" && f.Code == "" && f.Step == "" && f.Text == "" && len(f.Labels) == 0 && f.Since == 0 && f.CreatedBefore == 0
}

// A Spec says what a bulk is to do. Exactly one of IDs and Filter is set.
type Spec struct {
	Verb   Verb
	IDs    []string
	Filter *Filter
	Reason string // of a cancel or a pause, for the journals
	By     string // id of the key that asks
}

func (s *Spec) check() error {
	switch s.Verb {
	case Cancel, Retry, Delete, Pause, Unpause:
	default:
		return fault.New(fault.RequestInvalid, "verb: want cancel, retry, delete, pause or unpause")
	}
	switch {
	case (len(s.IDs) == 0) == (s.Filter == nil):
		return fault.New(fault.RequestInvalid, "want either ids or a filter")
	case s.Filter != nil && s.Filter.empty():
		e := fault.New(fault.RequestInvalid, "filter: it restricts nothing and would take every run of the account")
		e.Remedy = `Name at least one condition, such as "status": "failed".`
		return e
	case len(s.IDs) > MaxIDs:
		return fault.New(fault.RequestInvalid, "ids: want at most %d; a filter takes more", MaxIDs)
	}
	return nil
}

// A Bulk is one thing that is done to many runs. Times are UTC µs, 0 = none.
type Bulk struct {
	ID      string   `json:"id"`
	Verb    Verb     `json:"verb"`
	IDs     []string `json:"ids,omitempty"`
	Filter  *Filter  `json:"filter,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	By      string   `json:"by,omitempty"`
	State   State    `json:"state"`
	Created int64    `json:"created"`
	Ended   int64    `json:"ended,omitempty"`

	// Matched runs have been selected so far. Each has a result, or is pending.
	Matched int `json:"matched"`
	Done    int `json:"done"`
	Skipped int `json:"skipped"` // in which there was nothing to do
	Failed  int `json:"failed"`
	// More reports that there were more runs than MaxRuns.
	More bool `json:"more,omitempty"`
	// Groups are the runs that had failed before, by code and step, the largest first.
	Groups []Group `json:"groups,omitempty"`

	// Settled items have a result; those up to Matched were recorded and may have been
	// begun.
	Settled int `json:"settled"`
	// After is where the selection goes on: behind this run, or, if that is gone, with runs
	// created before Before.
	After    string `json:"after,omitempty"`
	Before   int64  `json:"before,omitempty"`
	Selected bool   `json:"selected,omitempty"` // nothing is left to select

	Revision uint64 `json:"-"`
}

// Pending is how many runs have been selected and have no result yet.
func (b *Bulk) Pending() int { return b.Matched - b.Done - b.Skipped - b.Failed }

// A Group are runs that failed with one code at one step.
type Group struct {
	Recipe string     `json:"recipe"`
	Code   fault.Code `json:"code"`
	Step   string     `json:"step,omitempty"`
	Count  int        `json:"count"`
}

// count adds a run to its group. Groups beyond the most that are kept are not counted.
func count(groups []Group, it *Item) []Group {
	if it.RunCode == "" {
		return groups
	}
	i := slices.IndexFunc(groups, func(g Group) bool { return g.Recipe == it.Recipe && g.Code == it.RunCode && g.Step == it.RunStep })
	switch {
	case i >= 0:
		groups[i].Count++
	case len(groups) < maxGroups:
		groups = append(groups, Group{it.Recipe, it.RunCode, it.RunStep, 1})
	}
	slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(b.Count, a.Count) })
	return groups
}

// A Result is what has come of an item.
type Result string

// The results.
const (
	Pending     Result = "pending"
	ItemDone    Result = "done"
	ItemSkipped Result = "skipped" // there was nothing to do: the run has ended already, or the like
	ItemFailed  Result = "failed"
)

// An Item is a run of a bulk.
type Item struct {
	Number  int        `json:"-"` // from 1
	Run     string     `json:"run"`
	Recipe  string     `json:"recipe,omitempty"`
	Result  Result     `json:"result"`
	Code    fault.Code `json:"code,omitempty"`    // why it was skipped or has failed
	Reason  string     `json:"reason,omitempty"`  // the same for people
	Status  string     `json:"status,omitempty"`  // of the run, before anything was done to it
	Ended   int64      `json:"ended,omitempty"`   // of the run, as Status
	RunCode fault.Code `json:"runCode,omitempty"` // that the run had failed with
	RunStep string     `json:"runStep,omitempty"` // id of its first step that had failed
}

// settle gives an item its result by the error of what was done.
func (it *Item) settle(err error) {
	code := fault.CodeOf(err)
	switch {
	case err == nil:
		it.Result = ItemDone
		return
	case code == fault.TooLate || code == fault.Conflict:
		it.Result = ItemSkipped
	default:
		it.Result = ItemFailed
	}
	it.Code, it.Reason = cmp.Or(code, fault.InternalError), fault.Message(err)
	if code == "" {
		it.Reason = "it failed inside the server, which logged the reason"
	}
}

// The kinds of records. A bulk and its items are records of their account; that a bulk is
// open is one of the operator, because open bulks must be found after a start.
const (
	kindBulk = "bulk"
	kindItem = "bulk.item"
	kindOpen = "bulk.open"
)

// open says whose an open bulk is.
type open struct {
	Account string `json:"account"`
}

// change makes a change of a record.
func change(key store.RecordKey, revision uint64, until int64, v any) (store.RecordChange, error) {
	data, err := json.Marshal(v)
	return store.RecordChange{Record: store.Record{RecordKey: key, Revision: revision, Until: until, Data: data}}, err
}
