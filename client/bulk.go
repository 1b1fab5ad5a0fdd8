// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// Bulks do one thing to many runs, in the background.
type Bulks struct{ c *Client }

// A BulkFilter selects runs that were created before the request. What is zero does not
// restrict the selection; at least one field is set.
type BulkFilter struct {
	Status        string            `json:"status,omitempty"` // or a state, such as queued
	Recipe        string            `json:"recipe,omitempty"` // name or id
	ErrorCode     string            `json:"errorCode,omitempty"`
	Step          string            `json:"step,omitempty"` // id of the first step that failed
	Q             string            `json:"q,omitempty"`    // text in recipe, id, error or the value of a label
	Labels        map[string]string `json:"labels,omitempty"`
	CreatedAfter  *time.Time        `json:"createdAfter,omitempty"`
	CreatedBefore *time.Time        `json:"createdBefore,omitempty"`
}

// A BulkRequest is what is to be done. Either IDs or Filter is set.
type BulkRequest struct {
	Verb   string      `json:"verb"` // cancel, retry, delete, pause or unpause
	IDs    []string    `json:"ids,omitempty"`
	Filter *BulkFilter `json:"filter,omitempty"`
	Reason string      `json:"reason,omitempty"` // of a cancel or a pause
}

// A Bulk is one thing that is done to many runs.
type Bulk struct {
	ID          string      `json:"id"` // "" for a preview
	DryRun      bool        `json:"dryRun"`
	Verb        string      `json:"verb"`
	State       string      `json:"state"` // queued, running, cancelling, completed, cancelled or preview
	Reason      string      `json:"reason,omitempty"`
	Matched     int         `json:"matched"` // runs that were selected so far
	More        bool        `json:"more"`    // there may be more
	Pending     int         `json:"pending"`
	Done        int         `json:"done"`
	Skipped     int         `json:"skipped"` // there was nothing to do
	Failed      int         `json:"failed"`
	Groups      []BulkGroup `json:"groups"`           // the runs that had failed before
	Sample      []BulkItem  `json:"sample,omitempty"` // the first runs of a preview
	ItemsURL    string      `json:"itemsUrl"`
	CancelURL   string      `json:"cancelUrl"`
	CreatedAt   *time.Time  `json:"createdAt,omitempty"` // nil for a preview
	CreatedBy   string      `json:"createdBy,omitempty"` // id of the key
	CompletedAt *time.Time  `json:"completedAt,omitempty"`
}

// A BulkGroup are runs that failed in one way.
type BulkGroup struct {
	Recipe    string `json:"recipe"`
	ErrorCode string `json:"errorCode"`
	Step      string `json:"step,omitempty"`
	Count     int    `json:"count"`
}

// A BulkItem is a run of a bulk.
type BulkItem struct {
	ExecutionID string `json:"executionId"`
	RecipeName  string `json:"recipeName,omitempty"`
	Result      string `json:"result"`         // pending, done, skipped or failed
	Code        string `json:"code,omitempty"` // why it was skipped or has failed
	Detail      string `json:"detail,omitempty"`
	ErrorCode   string `json:"errorCode,omitempty"` // that the run had failed with before
	Step        string `json:"step,omitempty"`
}

func (b *Bulks) one(ctx context.Context, cl *call) (*Bulk, error) {
	out := new(Bulk)
	_, err := b.c.do(ctx, cl, out)
	return result(out, err)
}

func (b *Bulks) create(ctx context.Context, req BulkRequest, dry bool) (*Bulk, error) {
	cl, err := at(http.MethodPost, "v1", "bulk").send(struct {
		BulkRequest
		DryRun bool `json:"dryRun,omitempty"`
	}{req, dry})
	if err != nil {
		return nil, err
	}
	return b.one(ctx, cl)
}

// Create begins a bulk, which goes on in the background.
func (b *Bulks) Create(ctx context.Context, req BulkRequest) (*Bulk, error) {
	return b.create(ctx, req, false)
}

// Preview says how many runs a bulk would take, and shows the first ones. It changes nothing.
func (b *Bulks) Preview(ctx context.Context, req BulkRequest) (*Bulk, error) {
	return b.create(ctx, req, true)
}

// Get returns a bulk.
func (b *Bulks) Get(ctx context.Context, id string) (*Bulk, error) {
	return b.one(ctx, at(http.MethodGet, "v1", "bulk", id))
}

// Cancel lets a bulk take no further runs. What is done stays done.
func (b *Bulks) Cancel(ctx context.Context, id string) (*Bulk, error) {
	return b.one(ctx, at(http.MethodPost, "v1", "bulk", id, "cancel"))
}

// List returns the bulks of the account, the newest first.
func (b *Bulks) List(ctx context.Context) iter.Seq2[Bulk, error] {
	return list[Bulk](ctx, b.c, func() *call { return at(http.MethodGet, "v1", "bulk") })
}

// Items returns the runs of a bulk with their results.
func (b *Bulks) Items(ctx context.Context, id string) iter.Seq2[BulkItem, error] {
	return list[BulkItem](ctx, b.c, func() *call { return at(http.MethodGet, "v1", "bulk", id, "items") })
}
