// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/roux-engine/roux/fault"
)

// A RunHead is what the server has stored of a run in lists.
type RunHead struct {
	ExecutionID   string            `json:"executionId"`
	AccountID     string            `json:"accountId"`
	RecipeName    string            `json:"recipeName"`
	RecipeVersion string            `json:"recipeVersion,omitempty"`
	ParentRunID   string            `json:"parentRunId,omitempty"` // of a child run
	RootRunID     string            `json:"rootRunId,omitempty"`   // of a child run
	Plan          string            `json:"plan"`                  // key of its plan
	State         string            `json:"state"`
	CreatedAt     time.Time         `json:"createdAt"`
	UpdatedAt     time.Time         `json:"updatedAt"`
	CompletedAt   *time.Time        `json:"completedAt,omitempty"`
	DeletedAt     *time.Time        `json:"deletedAt,omitempty"`
	ErrorCode     fault.Code        `json:"errorCode,omitempty"`
	Error         string            `json:"error,omitempty"`
	CreditsUsed   int64             `json:"creditsUsed"`
	HasFailures   bool              `json:"hasFailures"`
	Quarantined   string            `json:"quarantined,omitempty"` // why it is
	Owes          bool              `json:"owes,omitempty"`        // it has ended, and something is yet to be done
	Labels        map[string]string `json:"labels,omitempty"`
	Damage        string            `json:"damage,omitempty"` // why only the ids here can be trusted
}

// A RunJournal is what the server has stored of a run: its row in lists, and a part of its
// journal.
type RunJournal struct {
	RunHead
	// Events are consecutive events in the encoding of journals, which the command roux reads;
	// programs use [Runs.Events]. The first ones may be no later than was asked for.
	Events []byte `json:"events,omitempty"`
	Next   uint64 `json:"next"` // number of the last event in Events
	Last   uint64 `json:"last"` // number of the last event of the run
	// Snapshot is the newest snapshot, for [Runs.Snapshot] only.
	Snapshot       []byte `json:"snapshot,omitempty"`
	SnapshotAt     uint64 `json:"snapshotAt,omitempty"` // number of its last event
	SnapshotFormat int    `json:"snapshotFormat,omitempty"`
}

// A HeadQuery selects runs for [Runs.Heads]. Fields left zero do not restrict.
type HeadQuery struct {
	Prefix       string // of the id
	Parent       string // its child runs, the oldest first
	Root         string // the runs below it
	All          bool   // child runs too, by id
	Status       string // a state
	Recipe       string // its name
	CreatedAfter time.Time
	After        string // the last run of the part before
	Limit        int    // default 50, at most 500
}

// Heads returns a part of a list of runs, as they are stored; programs use [Runs.List].
func (r *Runs) Heads(ctx context.Context, q HeadQuery) ([]RunHead, error) {
	cl := at(http.MethodGet, "v1", "journals").with("prefix", q.Prefix).with("parent", q.Parent).with("root", q.Root).with("status", q.Status)
	cl.with("recipe", q.Recipe).with("createdAfter", stamp(q.CreatedAfter)).with("after", q.After).with("limit", number(max(q.Limit, 0)))
	if q.All {
		cl.with("all", "true")
	}
	var out struct {
		Runs []RunHead `json:"runs"`
	}
	_, err := r.c.do(ctx, cl, &out)
	return out.Runs, err
}

// Snapshot returns the newest snapshot of a run without events of its journal. It is empty
// when the recipe marks values as writeOnly.
func (r *Runs) Snapshot(ctx context.Context, id string) (*RunJournal, error) {
	out := new(RunJournal)
	_, err := r.c.do(ctx, r.at(http.MethodGet, id, "journal").with("maxBytes", "0").with("snapshot", "true"), out)
	return result(out, err)
}

// NoEvents asks [Runs.Journal] for no events.
const NoEvents = -1

// Journal returns events of a run after a number, as they are stored: about maxBytes of them,
// and at least one if there is one. 0 = as many as the server likes.
func (r *Runs) Journal(ctx context.Context, id string, after uint64, maxBytes int) (*RunJournal, error) {
	cl := r.at(http.MethodGet, id, "journal").with("after", number(after))
	switch {
	case maxBytes < 0:
		cl.with("maxBytes", "0")
	case maxBytes > 0:
		cl.with("maxBytes", strconv.Itoa(maxBytes))
	}
	out := new(RunJournal)
	_, err := r.c.do(ctx, cl, out)
	return result(out, err)
}

// Plan returns the plan that a run started with, as it is stored.
func (r *Runs) Plan(ctx context.Context, id string) (json.RawMessage, error) {
	a, err := r.c.do(ctx, r.at(http.MethodGet, id, "plan"), nil)
	if err != nil {
		return nil, err
	}
	return a.body, nil
}
