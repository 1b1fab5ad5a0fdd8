// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/masks"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

func (s *Server) journalRoutes() {
	read := rest.Needs(access.RunsRead)
	rest.Handle(s.rest, rest.Op("executions-journal", http.MethodGet, "/v1/recipe-executions/{id}/journal", "Get events of a run as its journal has them"), read, s.journal)
	plan := read
	plan.Produces = []string{"application/json"}
	rest.Handle(s.rest, rest.Op("executions-heads", http.MethodGet, "/v1/journals", "List runs as a store has them, by the beginning of an id or by the run that they are below"), read, s.heads)
	rest.Handle(s.rest, rest.Op("executions-plan", http.MethodGet, "/v1/recipe-executions/{id}/plan", "Get the plan of a run, as it was when the run started"), plan, s.planOf)
}

type journalIn struct {
	RunPath
	After    uint64 `query:"after" maximum:"9007199254740991" doc:"Only events after this number."`
	MaxBytes int    `query:"maxBytes" minimum:"0" maximum:"262144" default:"262144" doc:"About how many bytes of events are wanted, at least one event; 0 = none."`
	Snapshot bool   `query:"snapshot" doc:"With the newest snapshot."`
}

// A RunHead is what a store has of a run in lists.
type RunHead struct {
	ExecutionID   string            `json:"executionId"`
	AccountID     string            `json:"accountId"`
	RecipeName    string            `json:"recipeName"`
	RecipeVersion string            `json:"recipeVersion,omitempty"`
	ParentRunID   string            `json:"parentRunId,omitempty" doc:"Of a child run."`
	RootRunID     string            `json:"rootRunId,omitempty" doc:"Of a child run."`
	Plan          string            `json:"plan" doc:"Key of its plan."`
	State         string            `json:"state"`
	CreatedAt     time.Time         `json:"createdAt"`
	UpdatedAt     time.Time         `json:"updatedAt"`
	CompletedAt   *time.Time        `json:"completedAt,omitempty"`
	DeletedAt     *time.Time        `json:"deletedAt,omitempty"`
	ErrorCode     string            `json:"errorCode,omitempty"`
	Error         string            `json:"error,omitempty"`
	CreditsUsed   int64             `json:"creditsUsed"`
	HasFailures   bool              `json:"hasFailures"`
	Quarantined   string            `json:"quarantined,omitempty" doc:"Why it is quarantined."`
	Owes          bool              `json:"owes,omitempty" doc:"It has ended, and something of it is yet to be done outside."`
	Labels        map[string]string `json:"labels,omitempty"`
	Damage        string            `json:"damage,omitempty" doc:"Why only the ids here can be trusted; all else is then empty."`
}

// A RunJournal is what a store has of a run: its row in lists, and a part of its journal. With
// its plan it is enough to compute everything that is shown of the run.
type RunJournal struct {
	RunHead
	Events         []byte `json:"events,omitempty" doc:"Consecutive events in the encoding of journals, without the values that the recipe marks as writeOnly. The first ones may be no later than after."`
	Next           uint64 `json:"next" doc:"Number of the last event in events, to be sent as after; without events, after itself."`
	Last           uint64 `json:"last" doc:"Number of the last event of the run."`
	Snapshot       []byte `json:"snapshot,omitempty" doc:"The newest snapshot, as it is stored, if it was asked for and the recipe marks nothing as writeOnly."`
	SnapshotAt     uint64 `json:"snapshotAt,omitempty" doc:"Number of the last event that is in the snapshot."`
	SnapshotFormat int    `json:"snapshotFormat,omitempty" doc:"Format of the snapshot."`
}

// runHead describes a head, of which nothing must be hidden any more.
func runHead(head *store.Head) RunHead {
	if head.Damage != "" {
		return RunHead{ExecutionID: head.Run, AccountID: head.Account, Damage: head.Damage}
	}
	return RunHead{
		ExecutionID: head.Run, AccountID: head.Account, RecipeName: head.Recipe, RecipeVersion: head.Version, ParentRunID: head.Parent, RootRunID: head.Root,
		Plan: head.PlanHash, State: head.Status, CreatedAt: rest.Stamp(head.Created), UpdatedAt: rest.Stamp(head.Updated), CompletedAt: rest.StampOr(head.Ended), DeletedAt: rest.StampOr(head.Deleted),
		ErrorCode: string(head.Code), Error: head.Message, CreditsUsed: head.Used, HasFailures: head.Failures, Quarantined: head.Quarantine, Owes: head.Owes,
		Labels: head.LabelsOf(),
	}
}

type headsIn struct {
	Prefix       string    `query:"prefix" maxLength:"64" doc:"Only runs whose id begins so."`
	Parent       string    `query:"parent" maxLength:"64" doc:"Only the child runs of this run, the oldest first."`
	Root         string    `query:"root" maxLength:"64" doc:"Only the runs below this one, by parent."`
	All          bool      `query:"all" doc:"Child runs too, by id."`
	Status       string    `query:"status" maxLength:"100" doc:"Only runs of this state, such as queued."`
	Recipe       string    `query:"recipe" maxLength:"300" doc:"Only runs of this recipe, by its name."`
	CreatedAfter time.Time `query:"createdAfter" doc:"Only runs that were created at this time or later, RFC 3339."`
	After        string    `query:"after" maxLength:"64" doc:"Only runs that come after this one in the list."`
	Limit        int       `query:"limit" default:"50" minimum:"1" maximum:"500" doc:"How many are wanted."`
}

// A RunHeads is a part of a list.
type RunHeads struct {
	Runs []RunHead `json:"runs"`
}

func (s *Server) heads(ctx context.Context, in *headsIn) (*struct{ Body RunHeads }, error) {
	q := store.Query{Account: rest.Account(ctx), Prefix: in.Prefix, Parent: in.Parent, Root: in.Root, All: in.All, Status: in.Status, Recipe: in.Recipe, After: in.After, Limit: in.Limit}
	if !in.CreatedAfter.IsZero() {
		q.Since = in.CreatedAfter.UnixMicro()
	}
	found, err := s.cfg.Node.Store.List(ctx, q)
	if err != nil {
		return nil, err
	}
	out, hidden := RunHeads{Runs: make([]RunHead, len(found))}, masks.NewHeads(s.cfg.Node.Store)
	for i := range found {
		hidden.Hide(ctx, &found[i])
		out.Runs[i] = runHead(&found[i])
	}
	return &struct{ Body RunHeads }{out}, nil
}

func (s *Server) journal(ctx context.Context, in *journalIn) (*struct{ Body RunJournal }, error) {
	// The head is read first, so that the events include the end that it reports.
	head, err := s.cfg.Node.Engine.Head(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	_, mask, err := s.cfg.Node.Engine.MaskOf(ctx, head.Account, head.Run)
	if err != nil {
		return nil, err
	}
	hide(&head, mask)
	page, err := s.page(ctx, head.Key, in.After, in.MaxBytes, mask)
	if err != nil {
		return nil, err
	}
	out := RunJournal{RunHead: runHead(&head), Events: page.Frames, Next: page.Next, Last: page.Last}
	if !in.Snapshot {
		return &struct{ Body RunJournal }{out}, nil
	}
	saved, err := s.cfg.Node.Store.Load(ctx, head.Key)
	if err != nil {
		return nil, err
	}
	head = saved.Head // as of the snapshot and of the number of the last event
	hide(&head, mask)
	out.RunHead, out.Last = runHead(&head), saved.Last
	if mask == nil { // the state of a run has its values
		out.Snapshot, out.SnapshotAt, out.SnapshotFormat = saved.State, saved.StateLast, int(saved.Format)
	}
	return &struct{ Body RunJournal }{out}, nil
}

// hide hides in a head what a mask may hide in the events: the message of a failed run may contain a marked value, and
// so may the text of a panic, after the first colon of the reason of a quarantine.
func hide(head *store.Head, mask *view.Mask) {
	if mask == nil {
		return
	}
	if head.Message != "" {
		head.Message = view.Masked
	}
	if ours, _, cause := strings.Cut(head.Quarantine, ": "); cause && !head.Imported() {
		head.Quarantine = ours + ": " + view.Masked
	}
}

// page returns a part of a journal as it may be shown.
func (s *Server) page(ctx context.Context, key store.Key, after uint64, most int, mask *view.Mask) (store.Page, error) {
	page, err := s.cfg.Node.Store.Events(ctx, key, after, max(most, 1))
	if err != nil || most == 0 || page.Next <= after {
		return store.Page{Next: after, Last: page.Last}, err
	}
	if mask == nil {
		return page, nil
	}
	out := store.Page{Next: after, Last: page.Last}
	err = s.eachMasked(ctx, key.Run, after, mask, func(ev *journal.Event) error {
		if len(out.Frames) >= most || ev.Seq > page.Last {
			return errEnough
		}
		out.Frames, out.Next = journal.AppendFrame(out.Frames, []journal.Event{*ev}), ev.Seq
		return nil
	})
	return out, err
}

type planFound struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func (s *Server) planOf(ctx context.Context, in *RunPath) (*planFound, error) {
	head, err := s.cfg.Node.Engine.Head(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	text, err := s.cfg.Node.Store.Plan(ctx, head.PlanHash)
	return &planFound{ContentType: "application/json", Body: text}, err
}
