// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// Schedules start runs of recipes at times. Each is named by its id or its name.
type Schedules struct{ c *Client }

// A NewSchedule is a schedule that is made. Exactly one of Cron, Every and At is set.
type NewSchedule struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Recipe      string `json:"recipe"` // name or id, with @ and a version or a range

	Cron  string `json:"cron,omitempty"`  // such as 30 6 * * MON-FRI, on the clock of Zone
	Every string `json:"every,omitempty"` // such as 15m
	At    string `json:"at,omitempty"`    // once: RFC 3339, or a local time of Zone
	Zone  string `json:"zone,omitempty"`  // default UTC

	CatchUp    string `json:"catchUp,omitempty"`    // last (the default), none or all
	CatchUpMax int    `json:"catchUpMax,omitempty"` // default 100
	Overlap    string `json:"overlap,omitempty"`    // skip (the default), allow, queue or cancelPrevious
	Jitter     string `json:"jitter,omitempty"`     // such as 2m

	Parameters any               `json:"parameters,omitempty"` // an object that the recipe admits
	FileHashes []string          `json:"fileHashes,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"` // of the runs
	MaxCredits int64             `json:"maxCredits,omitempty"`
	Paused     bool              `json:"paused,omitempty"`
}

// A Schedule starts runs of a recipe.
type Schedule struct {
	ID              string            `json:"id"`
	Name            string            `json:"name"`
	Description     string            `json:"description,omitempty"`
	Recipe          string            `json:"recipe"`
	Cron            string            `json:"cron,omitempty"`
	Every           string            `json:"every,omitempty"`
	At              string            `json:"at,omitempty"`
	Zone            string            `json:"zone"`
	CatchUp         string            `json:"catchUp"`
	CatchUpMax      int               `json:"catchUpMax"`
	Overlap         string            `json:"overlap"`
	Jitter          string            `json:"jitter,omitempty"`
	InputFields     []string          `json:"inputFields,omitempty"` // names of the parameters; their values are not shown
	FileHashes      []string          `json:"fileHashes,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	MaxCredits      int64             `json:"maxCredits,omitempty"`
	State           string            `json:"state"` // active, paused or done
	PausedAt        *time.Time        `json:"pausedAt,omitempty"`
	NextAt          *time.Time        `json:"nextAt,omitempty"`
	Waiting         int               `json:"waiting"` // occurrences that wait for the end of the run before
	LastExecutionID string            `json:"lastExecutionId,omitempty"`
	CreatedAt       time.Time         `json:"createdAt"`
	CreatedBy       string            `json:"createdBy,omitempty"` // id of the key
}

// A ScheduleFiring is what became of an occurrence, or of some that were skipped together.
type ScheduleFiring struct {
	Number        int        `json:"number"`
	Occurrence    string     `json:"occurrence"` // its local time, or the time in UTC
	Last          string     `json:"last,omitempty"`
	Count         int        `json:"count"`
	More          bool       `json:"more,omitempty"` // there were others before, which were not counted
	At            time.Time  `json:"at"`
	DecidedAt     *time.Time `json:"decidedAt,omitempty"`
	Result        string     `json:"result"` // started, skipped, failed or queued
	Manual        bool       `json:"manual,omitempty"`
	ExecutionID   string     `json:"executionId,omitempty"` // that was started, or had not ended
	RecipeVersion string     `json:"recipeVersion,omitempty"`
	ErrorCode     string     `json:"errorCode,omitempty"`
	Reason        string     `json:"reason,omitempty"`
}

// A ScheduleTime is an occurrence to come.
type ScheduleTime struct {
	Occurrence string    `json:"occurrence"`
	At         time.Time `json:"at"` // with its delay
}

func (s *Schedules) one(ctx context.Context, cl *call) (*Schedule, error) {
	out := new(Schedule)
	_, err := s.c.do(ctx, cl, out)
	return result(out, err)
}

// Create makes a schedule.
func (s *Schedules) Create(ctx context.Context, req NewSchedule) (*Schedule, error) {
	cl, err := at(http.MethodPost, "v1", "schedules").send(req)
	if err != nil {
		return nil, err
	}
	return s.one(ctx, cl)
}

// List returns the schedules of the account, by name.
func (s *Schedules) List(ctx context.Context) iter.Seq2[Schedule, error] {
	return list[Schedule](ctx, s.c, func() *call { return at(http.MethodGet, "v1", "schedules") })
}

// Get returns a schedule.
func (s *Schedules) Get(ctx context.Context, id string) (*Schedule, error) {
	return s.one(ctx, at(http.MethodGet, "v1", "schedules", id))
}

// Pause lets a schedule start nothing until Resume. What waits is skipped.
func (s *Schedules) Pause(ctx context.Context, id string) (*Schedule, error) {
	return s.one(ctx, at(http.MethodPost, "v1", "schedules", id, "pause"))
}

// Resume lets a paused schedule go on from now.
func (s *Schedules) Resume(ctx context.Context, id string) (*Schedule, error) {
	return s.one(ctx, at(http.MethodPost, "v1", "schedules", id, "resume"))
}

// Delete deletes a schedule with its history. Its runs go on.
func (s *Schedules) Delete(ctx context.Context, id string) error {
	_, err := s.c.do(ctx, at(http.MethodDelete, "v1", "schedules", id), nil)
	return err
}

// Run starts a run of a schedule now, as its policy of overlap says.
func (s *Schedules) Run(ctx context.Context, id string) (*ScheduleFiring, error) {
	out := new(ScheduleFiring)
	_, err := s.c.do(ctx, at(http.MethodPost, "v1", "schedules", id, "run"), out)
	return result(out, err)
}

// Next returns the next n times of a schedule, at most 100, as if it were not paused.
func (s *Schedules) Next(ctx context.Context, id string, n int) iter.Seq2[ScheduleTime, error] {
	return list[ScheduleTime](ctx, s.c, func() *call { return at(http.MethodGet, "v1", "schedules", id, "next").with("count", strconv.Itoa(n)) })
}

// History returns what became of the last occurrences of a schedule, the newest first.
func (s *Schedules) History(ctx context.Context, id string) iter.Seq2[ScheduleFiring, error] {
	return list[ScheduleFiring](ctx, s.c, func() *call { return at(http.MethodGet, "v1", "schedules", id, "history") })
}
