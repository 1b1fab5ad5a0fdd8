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

// A RunJournal is what the server has stored of a run: its row in lists, and a part of its
// journal.
type RunJournal struct {
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
	ErrorCode     fault.Code        `json:"errorCode,omitempty"`
	Error         string            `json:"error,omitempty"`
	CreditsUsed   int64             `json:"creditsUsed"`
	HasFailures   bool              `json:"hasFailures"`
	Quarantined   string            `json:"quarantined,omitempty"` // why it is
	Owes          bool              `json:"owes,omitempty"`        // it has ended, and something is yet to be done
	Labels        map[string]string `json:"labels,omitempty"`
	// Events are consecutive events in the encoding of journals, which the command roux reads;
	// programs use [Runs.Events]. The first ones may be no later than was asked for.
	Events []byte `json:"events,omitempty"`
	Next   uint64 `json:"next"` // number of the last event in Events
	Last   uint64 `json:"last"` // number of the last event of the run
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
