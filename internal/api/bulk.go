// SPDX-License-Identifier: Apache-2.0

//go:build !small

package api

import (
	"context"
	"net/http"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/bulk"
	"github.com/roux-engine/roux/internal/rest"
)

// A BulkFilter selects runs as the list of runs does, and by how they have failed.
type BulkFilter struct {
	Status        string            `json:"status,omitempty" maxLength:"100" doc:"pending, running, completed, failed or cancelled, or a state such as queued."`
	Recipe        string            `json:"recipe,omitempty" maxLength:"300" doc:"Name or id of a recipe."`
	ErrorCode     string            `json:"errorCode,omitempty" maxLength:"100" doc:"Code that the run ended with, such as STEP_TIMEOUT."`
	Step          string            `json:"step,omitempty" maxLength:"300" doc:"Id of the first step that failed."`
	Q             string            `json:"q,omitempty" maxLength:"200" doc:"Text in recipe, id, error or the value of a label."`
	Labels        map[string]string `json:"labels,omitempty"`
	CreatedAfter  *time.Time        `json:"createdAfter,omitempty" doc:"Created at this time or later."`
	CreatedBefore *time.Time        `json:"createdBefore,omitempty"`
}

// A BulkRequest does one thing to many runs.
type BulkRequest struct {
	Verb   string      `json:"verb" enum:"cancel,retry,delete,pause,unpause" doc:"retry starts from what failed."`
	IDs    []string    `json:"ids,omitempty" maxItems:"1000" doc:"Ids of runs. Either ids or filter is given."`
	Filter *BulkFilter `json:"filter,omitempty" doc:"Takes runs that were created before the request, with at least one condition."`
	Reason string      `json:"reason,omitempty" maxLength:"1000" doc:"Of a cancel or a pause, for the journals."`
	DryRun bool        `json:"dryRun,omitempty" doc:"Change nothing, and answer how many runs there are, with the first ones."`
}

// A BulkResource is one thing that is done to many runs, in the background.
type BulkResource struct {
	ID     string `json:"id,omitempty" example:"bulk_01K3ABCDEFGHJKMNPQRSTVWXYZ" doc:"Absent in the answer to a dry run."`
	DryRun bool   `json:"dryRun,omitempty"`
	Verb   string `json:"verb" enum:"cancel,retry,delete,pause,unpause"`
	// State is preview in the answer to a dry run.
	State       string      `json:"state" enum:"queued,running,cancelling,completed,cancelled,preview" doc:"A bulk is completed when every run has a result, which may be that it failed."`
	Reason      string      `json:"reason,omitempty"`
	Matched     int         `json:"matched" doc:"Runs that were selected so far."`
	More        bool        `json:"more,omitempty" doc:"There may be more: a dry run looks at some thousand runs, and a bulk takes 100,000."`
	Pending     int         `json:"pending"`
	Done        int         `json:"done"`
	Skipped     int         `json:"skipped" doc:"Runs with which there was nothing to do."`
	Failed      int         `json:"failed"`
	Groups      []BulkGroup `json:"groups" doc:"Those of the runs that had failed before, by recipe, code and step, the most first."`
	Sample      []BulkItem  `json:"sample,omitempty" doc:"The first runs of a dry run."`
	ItemsURL    string      `json:"itemsUrl,omitempty"`
	CancelURL   string      `json:"cancelUrl,omitempty"`
	CreatedAt   *time.Time  `json:"createdAt,omitempty"`
	CreatedBy   string      `json:"createdBy,omitempty" doc:"Id of the key."`
	CompletedAt *time.Time  `json:"completedAt,omitempty"`
}

// A BulkGroup are runs that failed in one way. With its fields as a filter they are retried.
type BulkGroup struct {
	Recipe    string `json:"recipe" doc:"Its name."`
	ErrorCode string `json:"errorCode"`
	Step      string `json:"step,omitempty" doc:"Id of the first step that failed."`
	Count     int    `json:"count"`
}

// A BulkItem is a run of a bulk.
type BulkItem struct {
	ExecutionID string `json:"executionId"`
	RecipeName  string `json:"recipeName,omitempty"`
	Result      string `json:"result" enum:"pending,done,skipped,failed"`
	Code        string `json:"code,omitempty" doc:"Why it was skipped or has failed."`
	Detail      string `json:"detail,omitempty"`
	ErrorCode   string `json:"errorCode,omitempty" doc:"That the run had failed with before."`
	Step        string `json:"step,omitempty" doc:"Id of its first step that had failed."`
}

func (s *Server) bulkRoutes() {
	read, control := rest.Needs(access.RunsRead), rest.Needs(access.RunsControl)
	create := rest.Op("bulk-create", http.MethodPost, "/v1/bulk", "Cancel, retry, delete, pause or unpause many runs")
	create.DefaultStatus = http.StatusAccepted
	rest.Handle(s.rest, create, control, s.createBulk)
	rest.Handle(s.rest, rest.Op("bulk-list", http.MethodGet, "/v1/bulk", "List the bulks of the account, the newest first"), read, s.listBulks)
	rest.Handle(s.rest, rest.Op("bulk-get", http.MethodGet, "/v1/bulk/{id}", "Get a bulk"), read, s.getBulk)
	rest.Handle(s.rest, rest.Op("bulk-items", http.MethodGet, "/v1/bulk/{id}/items", "List the runs of a bulk with their results, in the order in which they are done"), read, s.bulkItems)
	rest.Handle(s.rest, rest.Op("bulk-cancel", http.MethodPost, "/v1/bulk/{id}/cancel", "Let a bulk take no further runs; what is done stays done"), control, s.cancelBulk)
}

func bulkOf(b *bulk.Bulk) BulkResource {
	base := "/v1/bulk/" + b.ID
	return BulkResource{
		ID: b.ID, Verb: string(b.Verb), State: string(b.State), Reason: b.Reason, Matched: b.Matched, More: b.More, Pending: b.Pending(), Done: b.Done, Skipped: b.Skipped, Failed: b.Failed,
		Groups: groupsOf(b.Groups), ItemsURL: base + "/items", CancelURL: base + "/cancel", CreatedAt: rest.StampOr(b.Created), CreatedBy: b.By, CompletedAt: rest.StampOr(b.Ended),
	}
}

func groupsOf(groups []bulk.Group) []BulkGroup {
	list := make([]BulkGroup, len(groups))
	for i, g := range groups {
		list[i] = BulkGroup{Recipe: g.Recipe, ErrorCode: string(g.Code), Step: g.Step, Count: g.Count}
	}
	return list
}

func itemsOf(items []*bulk.Item) []BulkItem {
	list := make([]BulkItem, len(items))
	for i, it := range items {
		list[i] = BulkItem{
			ExecutionID: it.Run, RecipeName: it.Recipe, Result: string(it.Result), Code: string(it.Code), Detail: it.Reason, ErrorCode: string(it.RunCode), Step: it.RunStep,
		}
	}
	return list
}

type bulkAccepted struct {
	Status   int
	Location string `header:"Location"`
	Body     BulkResource
}

func (s *Server) createBulk(ctx context.Context, in *struct{ Body BulkRequest }) (*bulkAccepted, error) {
	spec := &bulk.Spec{Verb: bulk.Verb(in.Body.Verb), IDs: in.Body.IDs, Reason: in.Body.Reason, By: access.From(ctx).Key}
	if f := in.Body.Filter; f != nil {
		var err error
		if spec.Filter, err = s.bulkFilter(ctx, f); err != nil {
			return nil, err
		}
	}
	if in.Body.DryRun {
		p, err := s.cfg.Bulks.Preview(ctx, rest.Account(ctx), spec)
		if err != nil {
			return nil, err
		}
		return &bulkAccepted{Status: http.StatusOK, Body: BulkResource{
			DryRun: true, Verb: in.Body.Verb, State: "preview", Reason: in.Body.Reason, Matched: p.Matched, More: p.More, Groups: groupsOf(p.Groups), Sample: itemsOf(p.Sample),
		}}, nil
	}
	b, err := s.cfg.Bulks.Create(ctx, rest.Account(ctx), spec)
	if err != nil {
		return nil, err
	}
	return &bulkAccepted{Status: http.StatusAccepted, Location: "/v1/bulk/" + b.ID, Body: bulkOf(b)}, nil
}

func (s *Server) bulkFilter(ctx context.Context, f *BulkFilter) (*bulk.Filter, error) {
	states, err := statesOf(f.Status)
	if err != nil {
		return nil, fault.New(fault.RequestInvalid, "filter.%s", fault.Message(err))
	}
	out := &bulk.Filter{Statuses: states, Recipe: s.recipeName(ctx, f.Recipe), Code: fault.Code(f.ErrorCode), Step: f.Step, Text: f.Q, Labels: f.Labels}
	if f.CreatedAfter != nil {
		out.Since = f.CreatedAfter.UnixMicro()
	}
	if f.CreatedBefore != nil {
		out.CreatedBefore = f.CreatedBefore.UnixMicro()
	}
	return out, nil
}

type bulkFound struct{ Body BulkResource }

// A BulkPath names a bulk.
type BulkPath struct {
	ID string `path:"id" maxLength:"64" doc:"Id of a bulk operation."`
}

func (s *Server) getBulk(ctx context.Context, in *BulkPath) (*bulkFound, error) {
	b, err := s.cfg.Bulks.Get(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	return &bulkFound{bulkOf(b)}, nil
}

func (s *Server) cancelBulk(ctx context.Context, in *BulkPath) (*bulkFound, error) {
	b, err := s.cfg.Bulks.Cancel(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	return &bulkFound{bulkOf(b)}, nil
}

func (s *Server) listBulks(ctx context.Context, in *rest.Paging) (*rest.Listed[BulkResource], error) {
	list := "bulks " + rest.Account(ctx)
	place, err := s.rest.Place(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	found, next, err := s.cfg.Bulks.List(ctx, rest.Account(ctx), place, in.Limit)
	if err != nil {
		return nil, err
	}
	data := make([]BulkResource, len(found))
	for i, b := range found {
		data[i] = bulkOf(b)
	}
	return rest.PageOf(ctx, s.rest, list, next, data), nil
}

type bulkItemsIn struct {
	BulkPath
	rest.Paging
}

func (s *Server) bulkItems(ctx context.Context, in *bulkItemsIn) (*rest.Listed[BulkItem], error) {
	list := "bulk " + rest.Account(ctx) + " " + in.ID
	after, err := s.rest.PlaceNumber(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	items, next, err := s.cfg.Bulks.Items(ctx, rest.Account(ctx), in.ID, int(after), in.Limit)
	if err != nil {
		return nil, err
	}
	place := ""
	if next > 0 {
		place = number(uint64(next))
	}
	return rest.PageOf(ctx, s.rest, list, place, itemsOf(items)), nil
}
