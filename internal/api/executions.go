// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/resource"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// executionBody is an execution as its JSON, which is made while the fold stands still.
type executionBody struct {
	rest.JSON
	last          uint64
	status, state string
}

// Schema implements huma.SchemaProvider.
func (executionBody) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[resource.Execution](), true, "Execution")
}

// jobBody is the same for a job.
type jobBody struct{ rest.JSON }

// Schema implements huma.SchemaProvider.
func (jobBody) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[resource.Job](), true, "Job")
}

func (e *executionBody) etag() string { return rest.ETag(e.last) }

func (s *Server) executionRoutes() {
	execute := rest.Needs(access.RunsExecute)
	execute.Once = rest.OnceItself
	start := rest.Op("executions-start", http.MethodPost, "/v1/recipes/{id}/execute", "Start a run of a recipe")
	start.DefaultStatus = http.StatusAccepted
	rest.Handle(s.rest, start, execute, s.execute)
	estimate := rest.Needs(access.RunsExecute)
	estimate.Once = rest.OnceNot
	rest.Handle(s.rest, rest.Op("executions-estimate", http.MethodPost, "/v1/recipes/{id}/estimate", "Estimate what a run may cost"), estimate, s.estimate)
	rest.Handle(s.rest, rest.Op("executions-estimate-query", http.MethodGet, "/v1/recipes/{id}/estimate", "Estimate what a run may cost, for simple inputs"), estimate, s.estimateByQuery)

	read := rest.Needs(access.RunsRead)
	o := rest.Op("executions-list", http.MethodGet, "/v1/recipe-executions", "List runs, the newest first")
	o.Parameters = []*huma.Param{{Name: "label.{key}", In: "query", Description: "Only runs with this value of the label {key}.", Schema: &huma.Schema{Type: huma.TypeString}}}
	rest.Handle(s.rest, o, read, s.listExecutions)
	rest.Handle(s.rest, rest.Op("executions-delete", http.MethodDelete, "/v1/recipe-executions/{id}", "Delete a run that has ended: it is hidden, and removed when it is no longer kept"), rest.Needs(access.RunsControl), s.deleteExecution)
	rest.Handle(s.rest, rest.Op("jobs-delete", http.MethodDelete, "/jobs/{id}", "Delete a run that has ended (X98)"), rest.Needs(access.RunsControl), s.deleteJob)
	rest.Handle(s.rest, rest.Op("executions-get", http.MethodGet, "/v1/recipe-executions/{id}", "Get a run"), read, s.getExecution)
	rest.Handle(s.rest, rest.Op("executions-tags", http.MethodGet, "/v1/recipe-executions/{id}/tags", "List the tags of a run (X228)"), read, s.tags)
	rest.Handle(s.rest, rest.Op("jobs-get", http.MethodGet, "/jobs/{id}", "Get a run in the words of jobs"), read, s.job)
	rest.Handle(s.rest, rest.Op("jobs-graph", http.MethodGet, "/jobs/{id}/graph", "Get the shadow graph of a run (X196)"), read, s.job)
}

type executionIn struct {
	RunPath
	Expand      string `query:"expand" maxLength:"100" doc:"Separated by commas: outputs adds the outputs of the steps, steps those that are open, too, and ledger what the run has cost, for keys with the scope credits:read."`
	Fields      string `query:"fields" maxLength:"1000" doc:"Only these fields of the run, separated by commas."`
	IfNoneMatch string `header:"If-None-Match" maxLength:"100" doc:"ETag of an earlier answer: while the run is the same, the answer is 304."`
}

type executionShown struct {
	ETag string `header:"ETag"`
	Body shownBody
}

func (s *Server) getExecution(ctx context.Context, in *executionIn) (*executionShown, error) {
	p, err := partsOf(in.Expand, in.Fields)
	if err != nil {
		return nil, err
	}
	e, err := s.shown(ctx, in.ID, p)
	if err != nil {
		return nil, err
	}
	tag := e.etag()
	switch {
	case p.ledger: // an adjustment changes it, and not the run
		tag = ""
	case in.IfNoneMatch == tag:
		return nil, &rest.Problem{Status: http.StatusNotModified}
	}
	return &executionShown{ETag: tag, Body: shownBody{*e}}, nil
}

// key names a run of the account.
func key(ctx context.Context, run string) store.Key {
	return store.Key{Account: rest.Account(ctx), Run: run}
}

// execution returns a run as it stands.
func (s *Server) execution(ctx context.Context, run string, outputs bool) (out *executionBody, err error) {
	head, facts, err := s.headOf(ctx, run)
	if err != nil {
		return nil, err
	}
	err = s.views.with(ctx, s, &head, outputs, func(f *folded) (err error) {
		out, err = f.execution(facts, outputs)
		return err
	})
	return out, err
}

// Execution returns a run of an account as it stands, as a request for it shows it.
func (s *Server) Execution(ctx context.Context, account, run string) (json.RawMessage, error) {
	e, err := s.execution(access.With(ctx, &access.Principal{Account: account}), run, false)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(e.JSON), nil
}

// whole returns a run with all its steps.
func (s *Server) whole(ctx context.Context, run string, outputs bool) (e *resource.Execution, err error) {
	head, facts, err := s.headOf(ctx, run)
	if err == nil {
		err = s.views.with(ctx, s, &head, outputs, func(f *folded) error {
			e = f.run.Execution(facts, outputs)
			e.Steps, e.MoreSteps = f.run.Steps()
			return nil
		})
	}
	return e, err
}

// headOf returns the head of a run of the account, and what its events do not say.
func (s *Server) headOf(ctx context.Context, run string) (store.Head, resource.Facts, error) {
	head, err := s.cfg.Node.Engine.Head(ctx, rest.Account(ctx), run)
	if err != nil {
		return head, resource.Facts{}, err
	}
	facts, err := s.facts(ctx, &head)
	return head, facts, err
}

// facts are what the events of a run do not say.
func (s *Server) facts(ctx context.Context, head *store.Head) (resource.Facts, error) {
	id, err := s.cfg.Recipes.ID(ctx, head.Account, head.Recipe)
	f := resource.Facts{RecipeID: id, Quarantine: head.Quarantine}
	if cause, _, more := strings.Cut(head.Quarantine, ": "); more {
		f.Quarantine = cause // what follows may be the text of a panic
	}
	return f, err
}

func (s *Server) deleteExecution(ctx context.Context, in *RunPath) (*struct{}, error) {
	return nil, s.cfg.Node.Engine.SoftDelete(ctx, rest.Account(ctx), in.ID)
}

// deleteJob answers with the job as it is from then on: DELETED.
func (s *Server) deleteJob(ctx context.Context, in *RunPath) (*struct{ Body jobBody }, error) {
	head, err := s.cfg.Node.Engine.Head(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	f, err := s.views.fold(ctx, s, &head, true)
	if err != nil {
		return nil, err
	}
	if err := f.read(ctx, s, 0); err != nil {
		return nil, err
	}
	facts, err := s.facts(ctx, &head)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Node.Engine.SoftDelete(ctx, rest.Account(ctx), in.ID); err != nil {
		return nil, err
	}
	facts.DeletedAt = s.cfg.Now().UnixMicro()
	data, err := jsonx.Marshal(f.run.Job(facts))
	return &struct{ Body jobBody }{jobBody{data}}, err
}

type jobIn struct {
	RunPath
	At uint64 `query:"at" doc:"The graph as it was after this event; 0 = now."`
}

func (s *Server) job(ctx context.Context, in *jobIn) (*struct{ Body jobBody }, error) {
	head, err := s.cfg.Node.Engine.Head(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	f, err := s.views.fold(ctx, s, &head, true)
	if err != nil {
		return nil, err
	}
	if err := f.read(ctx, s, in.At); err != nil {
		return nil, err
	}
	if in.At > f.run.Last() {
		return nil, fault.New(fault.RequestInvalid, "at: the run has no event %d yet; the last one is %d", in.At, f.run.Last())
	}
	facts, err := s.facts(ctx, &head)
	if err != nil {
		return nil, err
	}
	data, err := jsonx.Marshal(f.run.Job(facts))
	return &struct{ Body jobBody }{jobBody{data}}, err
}

// ExecutionSummary is a run in a list.
type ExecutionSummary struct {
	ID            string            `json:"id"`
	RecipeID      string            `json:"recipeId"`
	RecipeName    string            `json:"recipeName"`
	RecipeVersion string            `json:"recipeVersion,omitempty"`
	Status        string            `json:"status" enum:"pending,running,completed,failed,cancelled"`
	State         string            `json:"state"`
	ParentRunID   string            `json:"parentRunId,omitempty" doc:"Of a child run."`
	RootRunID     string            `json:"rootRunId,omitempty" doc:"Of a child run."`
	CreditsUsed   int64             `json:"creditsUsed"`
	HasFailures   bool              `json:"hasFailures"`
	Quarantined   bool              `json:"quarantined"`
	ErrorCode     string            `json:"errorCode,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	DeletedAt     *time.Time        `json:"deletedAt,omitempty"`
	CreatedAt     time.Time         `json:"createdAt"`
	CompletedAt   *time.Time        `json:"completedAt,omitempty"`
}

type executionsIn struct {
	rest.Paging
	Status        string    `query:"status" maxLength:"100" doc:"pending, running, completed, failed or cancelled, or a state such as queued."`
	Recipe        string    `query:"recipe" maxLength:"300" doc:"Name or id of a recipe."`
	Parent        string    `query:"parent" maxLength:"64" doc:"Only the child runs of this run."`
	CreatedAfter  time.Time `query:"createdAfter" doc:"Only runs that were created at this time or later, RFC 3339."`
	CreatedBefore time.Time `query:"createdBefore" doc:"Only runs that were created before this time."`
	Q             string    `query:"q" maxLength:"200" doc:"Only runs with this text in recipe, id, error or the value of a label."`
	Deleted       bool      `query:"deleted" doc:"Only runs that were deleted, instead of the others."`
	Fields        string    `query:"fields" maxLength:"1000" doc:"Only these fields of each run, separated by commas."`
}

// labelsOf are the labels that a query asks for: label.NAME=VALUE.
func labelsOf(q url.Values) map[string]string {
	var labels map[string]string
	for name, values := range q {
		if label, ok := strings.CutPrefix(name, "label."); ok {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[label] = values[0]
		}
	}
	return labels
}

func (s *Server) listExecutions(ctx context.Context, in *executionsIn) (*rest.Listed[ShownSummary], error) {
	fields, err := namesOf("fields", in.Fields, summaryFields)
	if err != nil {
		return nil, err
	}
	filters := rest.From(ctx).HTTP.URL.Query()
	filters.Del("cursor")
	filters.Del("limit")
	filters.Del("fields")
	list := "executions " + rest.Account(ctx) + " " + filters.Encode()
	place, err := s.rest.Place(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	q := store.Query{Account: rest.Account(ctx), Parent: in.Parent, After: place, Limit: in.Limit}
	if !in.CreatedAfter.IsZero() {
		q.Since = in.CreatedAfter.UnixMicro()
	}
	q.Recipe = s.recipeName(ctx, in.Recipe)
	want, err := statesOf(in.Status)
	if err != nil {
		return nil, err
	}
	q.Statuses, q.Text, q.Deleted, q.Labels = want, in.Q, in.Deleted, labelsOf(rest.From(ctx).HTTP.URL.Query())
	if !in.CreatedBefore.IsZero() {
		q.CreatedBefore = in.CreatedBefore.UnixMicro()
	}
	heads, next, err := s.cfg.Node.Store.Search(ctx, q)
	if err != nil {
		return nil, err
	}
	data := make([]ShownSummary, len(heads))
	for i := range heads {
		data[i].fields = fields
		if data[i].ExecutionSummary, err = s.summaryOf(ctx, &heads[i]); err != nil {
			return nil, err
		}
	}
	return rest.PageOf(ctx, s.rest, list, next, data), nil
}

// recipeName is the name of the recipe that a filter names by its id. A name may be that of a
// recipe that was deleted, or of none.
func (s *Server) recipeName(ctx context.Context, ref string) string {
	if ref == "" {
		return ""
	}
	if r, err := s.cfg.Recipes.Recipe(ctx, rest.Account(ctx), ref); err == nil {
		return r.Name
	}
	return ref
}

// summaryOf describes a head.
func (s *Server) summaryOf(ctx context.Context, h *store.Head) (ExecutionSummary, error) {
	id, err := s.cfg.Recipes.ID(ctx, h.Account, h.Recipe)
	return ExecutionSummary{
		ID: h.Run, RecipeID: id, RecipeName: h.Recipe, RecipeVersion: h.Version, Status: resource.StatusOf(h.Status), State: h.Status,
		ParentRunID: h.Parent, RootRunID: h.Root, CreditsUsed: h.Used, HasFailures: h.Failures, Quarantined: h.Quarantine != "", ErrorCode: string(h.Code), Labels: h.LabelsOf(), DeletedAt: rest.StampOr(h.Deleted),
		CreatedAt: rest.Stamp(h.Created), CompletedAt: rest.StampOr(h.Ended),
	}, err
}

// states are the states of a run by its status in the words of the recipe system.
var states = func() map[string][]string {
	m := map[string][]string{}
	for s := journal.RunPending; s.Known(); s++ {
		status := resource.ExecutionStatus(s)
		m[status] = append(m[status], s.String())
	}
	return m
}()

func statesOf(status string) ([]string, error) {
	if status == "" {
		return nil, nil
	}
	if list, ok := states[status]; ok {
		return list, nil
	}
	for _, list := range states {
		if slices.Contains(list, status) {
			return []string{status}, nil
		}
	}
	return nil, fault.New(fault.RequestMalformed, "status: want pending, running, completed, failed or cancelled, or one of the states queued, dispatching, preview and expired")
}

type tagsIn struct {
	RunPath
	rest.Paging
}

func (s *Server) tags(ctx context.Context, in *tagsIn) (*rest.Listed[resource.Tag], error) {
	list := "tags " + rest.Account(ctx) + " " + in.ID
	after, err := s.rest.PlaceNumber(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	p, mask, err := s.cfg.Node.Engine.MaskOf(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	var rows []resource.Tag
	next := ""
	err = s.eachMasked(ctx, in.ID, after, mask, func(ev *journal.Event) error {
		if len(rows) >= in.Limit {
			next = number(ev.Seq - 1)
			return errEnough
		}
		rows = append(rows, resource.Tags(p, in.ID, ev)...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rest.PageOf(ctx, s.rest, list, next, rows), nil
}

// eachMasked calls fn with the events of a run after a number, as they may be shown.
func (s *Server) eachMasked(ctx context.Context, run string, after uint64, mask *view.Mask, fn func(*journal.Event) error) error {
	from := after
	if mask != nil {
		from = 0 // the values to mask are in the events from the first one on
	}
	for ev, err := range s.cfg.Node.Engine.Feed().Events(ctx, key(ctx, run), from) {
		if err == nil {
			if ev.Event = mask.Event(ev.Event); ev.Seq > after {
				err = fn(ev.Event)
			}
		}
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
