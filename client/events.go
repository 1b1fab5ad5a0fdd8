// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Event is an event of a run (X179).
type Event struct {
	ID          uint64          `json:"eventId"` // 1, 2, 3 … within the run
	Type        string          `json:"type"`    // such as node.completed
	RunID       string          `json:"runId"`
	WorkflowID  string          `json:"workflowId,omitempty"` // the recipe that the run executes
	Time        time.Time       `json:"timestamp"`
	Correlation *Correlation    `json:"correlation,omitempty"`
	Payload     json.RawMessage `json:"payload"`
}

// A Correlation places an event in its run, and the run in what caused it.
type Correlation struct {
	TraceID       string `json:"traceId,omitempty"`       // 32 hexadecimal digits
	ParentEventID uint64 `json:"parentEventId,omitempty"` // the event that caused this one; 0 = not known
	Wave          *int32 `json:"wave,omitempty"`          // of the step; nil for events of the run
	Phase         string `json:"phase"`
}

// EventOptions select events of a run.
type EventOptions struct {
	After uint64 // only events after this number
	// Types are the types of events that are wanted; one may end with .* . Default: all.
	Types []string
	// Every asks for each event of streamed text as it is stored; else the server joins those
	// of a step that follow one another and are there at the same time.
	Every bool
}

// terminal are the types of the events that end a run.
var terminal = []string{"run.completed", "run.failed", "run.cancelled", "run.timed_out"}

// wants reports whether a type of event was asked for.
func (o *EventOptions) wants(name string) bool {
	return len(o.Types) == 0 || slices.ContainsFunc(o.Types, func(want string) bool {
		group, all := strings.CutSuffix(want, "*")
		return want == name || all && strings.HasPrefix(name, group)
	})
}

// events follows a run at a path.
func (c *Client) events(ctx context.Context, o EventOptions, path ...string) iter.Seq2[Event, error] {
	types := ""
	if len(o.Types) > 0 {
		// The events that end the run are needed to see its end.
		types = strings.Join(append(slices.Clone(o.Types), terminal...), ",")
	}
	return func(yield func(Event, error) bool) {
		s := &stream{
			c: c, after: o.After, ends: func(f frame) bool { return slices.Contains(terminal, f.name) },
			call: func() *call {
				cl := at(http.MethodGet, slices.Clone(path)...).with("types", types)
				if o.Every {
					cl.with("coalesce", "0")
				}
				return cl
			},
		}
		decoded(ctx, s, func(e *Event) bool { return o.wants(e.Type) })(yield)
	}
}

// Events returns the events of a run, each once and in order, and ends after the one that ends
// the run. A connection that is cut off, that falls silent or whose server restarts is made
// again, as often as it takes until ctx ends; only the first one is tried as often as a
// request. A run that does not exist, and a key that is no longer valid, end it with an error.
func (r *Runs) Events(ctx context.Context, id string, o EventOptions) iter.Seq2[Event, error] {
	return r.c.events(ctx, o, "v1", "recipe-executions", id, "events")
}

// FlowEvents is Events with only the 22 types of events of the flow source, unless Types names
// others (X197).
func (r *Runs) FlowEvents(ctx context.Context, id string, o EventOptions) iter.Seq2[Event, error] {
	return r.c.events(ctx, o, "execute", "workflows", id, "events")
}

// Events is that of [Runs], at the path of the job.
func (j *Jobs) Events(ctx context.Context, id string, o EventOptions) iter.Seq2[Event, error] {
	return j.c.events(ctx, o, "jobs", id, "events")
}

// Wait returns a run with its outputs once it has ended, whatever its status.
func (r *Runs) Wait(ctx context.Context, id string) (*Run, error) {
	for _, err := range r.Events(ctx, id, EventOptions{Types: terminal}) {
		if err != nil {
			return nil, err
		}
	}
	return r.Get(ctx, id, true)
}

// A Change is a change of an account: of a run, or of its credits.
type Change struct {
	Number      uint64     `json:"number"` // 1, 2, 3 … within the account
	Type        string     `json:"type"`   // run.changed, run.deleted, credits.entry or credits.notice
	Time        time.Time  `json:"timestamp"`
	RunID       string     `json:"runId,omitempty"`
	RootRunID   string     `json:"rootRunId,omitempty"` // of a child run
	Recipe      string     `json:"recipe,omitempty"`
	Status      string     `json:"status,omitempty"`
	State       string     `json:"state,omitempty"`
	Code        string     `json:"code,omitempty"` // of the error
	CompletedAt *time.Time `json:"completedAt,omitempty"`
	Quarantined bool       `json:"quarantined,omitempty"`
	Entry       uint64     `json:"entry,omitempty"` // number of the entry of the credits
	Kind        string     `json:"kind,omitempty"`  // of the entry
	LimitSource string     `json:"limitSource,omitempty"`
	Limit       int64      `json:"limit,omitempty"`
	Amount      int64      `json:"amount,omitempty"`
	Removed     bool       `json:"removed,omitempty"` // of run.deleted: it is no longer kept
}

// Feed returns the changes of the account after a number, each once and in order, until ctx
// ends. It connects again like [Runs.Events]. Changes that are no longer kept are
// [github.com/roux-engine/roux/fault.CursorExpired].
func (c *Client) Feed(ctx context.Context, after uint64) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		s := &stream{c: c, after: after, call: func() *call { return at(http.MethodGet, "v1", "feed") }}
		decoded[Change](ctx, s, nil)(yield)
	}
}

// A StoredChange is a change with all that the server has of it.
type StoredChange struct {
	Change
	Imported bool   `json:"imported,omitempty"` // the run came in a bundle
	Removed  bool   `json:"removed,omitempty"`  // the run is gone, with all runs below it
	Hidden   bool   `json:"hidden,omitempty"`   // a user has deleted the run, which is still stored
	Key      string `json:"key,omitempty"`      // of an entry
}

// Changes are a part of the changes of the account.
type Changes struct {
	Changes []StoredChange `json:"changes"`
	Last    uint64         `json:"last"`    // number of the last change
	Expired uint64         `json:"expired"` // number of the last change that is no longer kept
}

// Changes returns at most limit changes of the account after a number, the oldest first; at most
// 1,000, and with limit 0 none. [Client.Feed] follows them: after Last,
// it begins with what changes from now on.
func (c *Client) Changes(ctx context.Context, after uint64, limit int) (*Changes, error) {
	out := new(Changes)
	_, err := c.do(ctx, at(http.MethodGet, "v1", "changes").with("after", number(after)).with("limit", strconv.Itoa(limit)), out)
	return result(out, err)
}
