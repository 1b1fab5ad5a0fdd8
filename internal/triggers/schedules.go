// SPDX-License-Identifier: Apache-2.0

// Package triggers serves what starts runs by itself over HTTP, and what spares them calls:
// schedules, webhooks that come from outside, and the results that are kept for later steps.
//
// It decides what their requests and answers look like. When a schedule starts a run is decided
// by package scheduler, what becomes of a webhook by packages inbound and jobs, which result is
// used again by package resultcache, and what all operations have in common by package rest.
package triggers

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/scheduler"
	"github.com/roux-engine/roux/internal/starts"
)

// Server has the operations.
type Server struct {
	rest      *rest.Router
	schedules *scheduler.Scheduler
}

// Register adds the operations to a router.
func Register(rt *rest.Router, s *scheduler.Scheduler) {
	h := &Server{rt, s}
	read, start := rest.Needs(access.RunsRead), rest.Needs(access.RunsExecute)
	create := rest.Op("schedules-create", http.MethodPost, "/v1/schedules", "Make a schedule: times at which a recipe is started")
	create.DefaultStatus = http.StatusCreated
	rest.Handle(rt, create, start, h.create)
	rest.Handle(rt, rest.Op("schedules-list", http.MethodGet, "/v1/schedules", "List the schedules of the account, by name"), read, h.list)
	rest.Handle(rt, rest.Op("schedules-get", http.MethodGet, "/v1/schedules/{id}", "Get a schedule"), read, h.get)
	rest.Handle(rt, rest.Op("schedules-delete", http.MethodDelete, "/v1/schedules/{id}", "Delete a schedule with its history; its runs go on"), start, h.delete)
	rest.Handle(rt, rest.Op("schedules-pause", http.MethodPost, "/v1/schedules/{id}/pause", "Let a schedule start nothing until it is resumed; what waits is skipped"), start, h.pause)
	rest.Handle(rt, rest.Op("schedules-resume", http.MethodPost, "/v1/schedules/{id}/resume", "Let a paused schedule go on from now"), start, h.resume)
	rest.Handle(rt, rest.Op("schedules-run", http.MethodPost, "/v1/schedules/{id}/run", "Start a run of a schedule now, as its policy of overlap says"), start, h.run)
	rest.Handle(rt, rest.Op("schedules-next", http.MethodGet, "/v1/schedules/{id}/next", "List the next times of a schedule, as if it were not paused"), read, h.next)
	rest.Handle(rt, rest.Op("schedules-history", http.MethodGet, "/v1/schedules/{id}/history", "List what became of the last 100 occurrences of a schedule, the newest first"), read, h.history)
}

// A NewSchedule is what a request says of a schedule. Exactly one of cron, every and at is set.
type NewSchedule struct {
	Name        string `json:"name" maxLength:"64" doc:"Unique in the account: letters, digits, '-', '_' and '.'." example:"nightly-report"`
	Description string `json:"description,omitempty" maxLength:"1000"`
	Recipe      string `json:"recipe" maxLength:"300" doc:"Name or id of a recipe, with @ and a version or a range. The version is found at each start." example:"report@1"`

	Cron  string `json:"cron,omitempty" maxLength:"256" doc:"Minute, hour, day of the month, month, day of the week, on the clock of the zone; or @hourly, @daily, @weekly, @monthly, @yearly." example:"30 6 * * MON-FRI"`
	Every string `json:"every,omitempty" maxLength:"30" doc:"An interval from 10s to 8784h, counted from the creation." example:"15m"`
	At    string `json:"at,omitempty" maxLength:"40" doc:"Once: RFC 3339, or a local time of the zone." example:"2026-12-24T18:00"`
	Zone  string `json:"zone,omitempty" maxLength:"64" doc:"Of the IANA database. Default UTC." example:"Europe/Berlin"`

	CatchUp    string `json:"catchUp,omitempty" enum:"last,none,all" doc:"What becomes of times at which no server ran. Default last: the newest one stands for all."`
	CatchUpMax int    `json:"catchUpMax,omitempty" minimum:"1" maximum:"1000" doc:"How many of them all makes up for, the newest. Default 100."`
	Overlap    string `json:"overlap,omitempty" enum:"skip,allow,queue,cancelPrevious" doc:"What becomes of a time at which the run before has not ended. Default skip."`
	Jitter     string `json:"jitter,omitempty" maxLength:"30" doc:"Start up to so much later, up to 1h: a delay that follows from schedule and time." example:"2m"`

	Parameters json.RawMessage   `json:"parameters,omitempty" doc:"The input of the recipe, up to 256 KiB."`
	FileHashes []string          `json:"fileHashes,omitempty" maxItems:"1000" doc:"Files of the account. They must still be kept at each start."`
	Labels     map[string]string `json:"labels,omitempty" doc:"Of the runs, which also have roux.schedule and roux.occurrence."`
	MaxCredits int64             `json:"maxCredits,omitempty" minimum:"1" maximum:"9007199254740991" doc:"The most that each run may pay."`
	Paused     bool              `json:"paused,omitempty" doc:"Begin paused."`
}

// A ScheduleResource starts runs of a recipe at times.
type ScheduleResource struct {
	ID          string            `json:"id" example:"sched_01K3ABCDEFGHJKMNPQRSTVWXYZ"`
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	Recipe      string            `json:"recipe"`
	Cron        string            `json:"cron,omitempty"`
	Every       string            `json:"every,omitempty"`
	At          string            `json:"at,omitempty"`
	Zone        string            `json:"zone"`
	CatchUp     string            `json:"catchUp" enum:"last,none,all"`
	CatchUpMax  int               `json:"catchUpMax"`
	Overlap     string            `json:"overlap" enum:"skip,allow,queue,cancelPrevious"`
	Jitter      string            `json:"jitter,omitempty"`
	InputFields []string          `json:"inputFields,omitempty" doc:"Names of the parameters. Their values are not shown: some may be confidential."`
	FileHashes  []string          `json:"fileHashes,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	MaxCredits  int64             `json:"maxCredits,omitempty"`
	State       string            `json:"state" enum:"active,paused,done" doc:"done = it never occurs again."`
	PausedAt    *time.Time        `json:"pausedAt,omitempty"`
	NextAt      *time.Time        `json:"nextAt,omitempty" doc:"When it starts a run next."`
	Waiting     int               `json:"waiting" doc:"Occurrences that wait for the end of the run before, or for a start that is tried again."`
	LastRun     string            `json:"lastExecutionId,omitempty"`
	CreatedAt   time.Time         `json:"createdAt"`
	CreatedBy   string            `json:"createdBy,omitempty" doc:"Id of the key that made it."`
}

// A ScheduleFiring is an occurrence of a schedule, or some that were skipped together.
type ScheduleFiring struct {
	Number     int        `json:"number"`
	Occurrence string     `json:"occurrence" doc:"Its local time, or the time in UTC; of several, the first one."`
	Last       string     `json:"last,omitempty" doc:"The last one of several."`
	Count      int        `json:"count"`
	More       bool       `json:"more,omitempty" doc:"There were others before them, which were not counted."`
	At         time.Time  `json:"at"`
	DecidedAt  *time.Time `json:"decidedAt,omitempty"`
	Result     string     `json:"result" enum:"started,skipped,failed,queued"`
	Manual     bool       `json:"manual,omitempty" doc:"A request asked for it."`
	Run        string     `json:"executionId,omitempty" doc:"That was started, or had not ended."`
	Version    string     `json:"recipeVersion,omitempty"`
	ErrorCode  string     `json:"errorCode,omitempty"`
	Reason     string     `json:"reason,omitempty"`
}

// A ScheduleTime is an occurrence to come.
type ScheduleTime struct {
	Occurrence string    `json:"occurrence"`
	At         time.Time `json:"at" doc:"With its delay."`
}

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} { // 15m0s, 1h0m0s
		if n := len(text) - len(zero); n > 0 && text[n:] == zero {
			text = text[:n+1]
		}
	}
	return text
}

func resource(s *scheduler.Schedule) ScheduleResource {
	out := ScheduleResource{
		ID: s.ID, Name: s.Name, Description: s.Description, Recipe: s.Start.Recipe, Cron: s.When.Cron, Every: durationText(s.When.Every), At: s.When.At, Zone: s.When.Zone,
		CatchUp: string(s.When.CatchUp), CatchUpMax: s.When.CatchUpMax, Overlap: string(s.When.Overlap), Jitter: durationText(s.When.Jitter),
		FileHashes: s.Start.Files, Labels: s.Start.Labels, MaxCredits: s.Start.MaxCredits, State: "active", PausedAt: rest.StampOr(s.Paused), NextAt: rest.StampOr(s.Next),
		Waiting: len(s.Queue), LastRun: s.Active, CreatedAt: rest.Stamp(s.Created), CreatedBy: s.By,
	}
	switch {
	case s.Paused != 0:
		out.State = "paused"
	case s.Next == 0 && len(s.Queue) == 0:
		out.State = "done"
	}
	if params, err := starts.Parameters(s.Start.Parameters); err == nil {
		out.InputFields = slices.Sorted(maps.Keys(params))
	}
	return out
}

func firing(f *scheduler.Firing) ScheduleFiring {
	return ScheduleFiring{
		Number: f.Number, Occurrence: f.Name, Last: f.Last, Count: f.Count, More: f.More, At: rest.Stamp(f.At), DecidedAt: rest.StampOr(f.Decided), Result: string(f.Result),
		Manual: f.Manual, Run: f.Run, Version: f.Version, ErrorCode: string(f.Code), Reason: f.Reason,
	}
}

type found struct{ Body ScheduleResource }

type created struct {
	Location string `header:"Location"`
	Body     ScheduleResource
}

func (h *Server) create(ctx context.Context, in *struct{ Body NewSchedule }) (*created, error) {
	b := &in.Body
	every, err := rest.Duration("every", b.Every)
	if err != nil {
		return nil, err
	}
	jitter, err := rest.Duration("jitter", b.Jitter)
	if err != nil {
		return nil, err
	}
	if err := rest.CheckLabels(b.Labels); err != nil {
		return nil, err
	}
	who := access.From(ctx)
	s, err := h.schedules.Create(ctx, who.Account, &scheduler.Spec{
		Name: b.Name, Description: b.Description, Paused: b.Paused, By: who.Key,
		When: schedule.Spec{
			Cron: b.Cron, Every: every, At: b.At, Zone: b.Zone, CatchUp: schedule.CatchUp(b.CatchUp), CatchUpMax: b.CatchUpMax, Overlap: schedule.Overlap(b.Overlap), Jitter: jitter,
		},
		Start: starts.Request{Recipe: b.Recipe, Parameters: b.Parameters, Files: b.FileHashes, Labels: b.Labels, MaxCredits: b.MaxCredits, Budget: who.Budget},
	})
	if err != nil {
		return nil, err
	}
	return &created{"/v1/schedules/" + s.ID, resource(s)}, nil
}

// A SchedulePath names a schedule.
type SchedulePath struct {
	ID string `path:"id" maxLength:"64" doc:"Id or name of a schedule."`
}

func one(s *scheduler.Schedule, err error) (*found, error) {
	if err != nil {
		return nil, err
	}
	return &found{resource(s)}, nil
}

func (h *Server) get(ctx context.Context, in *SchedulePath) (*found, error) {
	return one(h.schedules.Get(ctx, rest.Account(ctx), in.ID))
}

func (h *Server) pause(ctx context.Context, in *SchedulePath) (*found, error) {
	return one(h.schedules.Pause(ctx, rest.Account(ctx), in.ID))
}

func (h *Server) resume(ctx context.Context, in *SchedulePath) (*found, error) {
	return one(h.schedules.Resume(ctx, rest.Account(ctx), in.ID))
}

func (h *Server) delete(ctx context.Context, in *SchedulePath) (*struct{}, error) {
	return nil, h.schedules.Delete(ctx, rest.Account(ctx), in.ID)
}

func (h *Server) list(ctx context.Context, in *rest.Paging) (*rest.Listed[ScheduleResource], error) {
	list := "schedules " + rest.Account(ctx)
	place, err := h.rest.Place(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	all, next, err := h.schedules.List(ctx, rest.Account(ctx), place, in.Limit)
	if err != nil {
		return nil, err
	}
	data := make([]ScheduleResource, len(all))
	for i, s := range all {
		data[i] = resource(s)
	}
	return rest.PageOf(ctx, h.rest, list, next, data), nil
}

func (h *Server) run(ctx context.Context, in *SchedulePath) (*struct{ Body ScheduleFiring }, error) {
	f, err := h.schedules.RunNow(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	return &struct{ Body ScheduleFiring }{firing(f)}, nil
}

type nextIn struct {
	SchedulePath
	Count int `query:"count" default:"5" minimum:"1" maximum:"100" doc:"How many."`
}

func (h *Server) next(ctx context.Context, in *nextIn) (*rest.Listed[ScheduleTime], error) {
	list, err := h.schedules.Coming(ctx, rest.Account(ctx), in.ID, in.Count)
	if err != nil {
		return nil, err
	}
	data := make([]ScheduleTime, len(list))
	for i, o := range list {
		data[i] = ScheduleTime{o.Name, rest.Stamp(o.At)}
	}
	return rest.PageOf(ctx, h.rest, "", "", data), nil
}

type historyIn struct {
	SchedulePath
	rest.Paging
}

func (h *Server) history(ctx context.Context, in *historyIn) (*rest.Listed[ScheduleFiring], error) {
	list := "schedule history " + rest.Account(ctx) + " " + in.ID
	before, err := h.rest.PlaceNumber(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	all, next, err := h.schedules.History(ctx, rest.Account(ctx), in.ID, int(before), in.Limit)
	if err != nil {
		return nil, err
	}
	place := ""
	if next > 0 {
		place = strconv.Itoa(next)
	}
	data := make([]ScheduleFiring, len(all))
	for i, f := range all {
		data[i] = firing(f)
	}
	return rest.PageOf(ctx, h.rest, list, place, data), nil
}
