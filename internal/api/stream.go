// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/resource"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// runEvents follows a run (X176, X178 to X186). The stream ends after the event that ends
// the run.
func (s *Server) runEvents(ctx context.Context, in *eventsIn) (*streamOut, error) {
	return s.streamRun(ctx, in, typeFilter(in.Types))
}

// flowEvents is runEvents for a client of the flow source, which knows 22 types of events:
// others come only if it names them, and numbers may be missing (R30).
func (s *Server) flowEvents(ctx context.Context, in *eventsIn) (*streamOut, error) {
	want := journal.ForFlow
	if in.Types != "" {
		want = typeFilter(in.Types)
	}
	return s.streamRun(ctx, in, want)
}

func (s *Server) streamRun(ctx context.Context, in *eventsIn, want func(string) bool) (*streamOut, error) {
	after, err := in.number()
	if err != nil {
		return nil, err
	}
	e, err := s.eventStream(ctx, in.ID, after)
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, &rest.Problem{Status: http.StatusNoContent} // R43: nothing to follow
	}
	e.want, e.coalesce = want, in.Coalesce != "0"
	return &streamOut{func(h huma.Context) {
		s.streaming(ctx, func(ctx context.Context) error { return e.follow(ctx, s.begin(ctx, h)) })
	}}, nil
}

// eventStream returns a stream of a run, or nil when nothing comes after the cursor.
func (s *Server) eventStream(ctx context.Context, run string, after uint64) (*eventStream, error) {
	p, mask, err := s.cfg.Node.Engine.MaskOf(ctx, rest.Account(ctx), run)
	if err != nil {
		return nil, err
	}
	page, err := s.cfg.Node.Store.Events(ctx, key(ctx, run), after, 1)
	if err != nil {
		return nil, err
	}
	head, err := s.cfg.Node.Engine.Head(ctx, rest.Account(ctx), run)
	if err != nil || after > page.Last || after == page.Last && head.Ended != 0 {
		return nil, err
	}
	return &eventStream{s: s, run: run, after: after, plan: p, mask: mask}, nil
}

// typeFilter returns whether a type of event was asked for.
func typeFilter(types string) func(string) bool {
	if types == "" {
		return func(string) bool { return true }
	}
	names := strings.Split(types, ",")
	return func(name string) bool {
		return slices.ContainsFunc(names, func(want string) bool {
			group, all := strings.CutSuffix(want, "*")
			return want == name || all && strings.HasPrefix(name, group)
		})
	}
}

// An eventStream sends the events of a run.
type eventStream struct {
	s        *Server
	run      string
	after    uint64
	plan     *plan.Plan
	mask     *view.Mask
	want     func(string) bool
	coalesce bool
	quiet    bool // send no heartbeats: something else does

	out    sink
	failed error // of a write
	render *journal.Renderer
	joined resource.Coalescer
	seen   uint64
}

// maxUnsent is how many bytes of events are collected before they are sent.
const maxUnsent = 64 << 10

// follow sends events until the run has ended. Events and silence come over one channel of
// the watcher: a stream has one goroutine.
func (e *eventStream) follow(ctx context.Context, out sink) error {
	e.out, e.render = out, journal.NewRenderer(e.plan, e.run)
	if err := out.flush(); err != nil {
		return err
	}
	// What the events before the cursor cause and mask must be known.
	err := store.EachEvent(ctx, e.s.cfg.Node.Store, key(ctx, e.run), 0, func(ev *journal.Event) error {
		if ev.Seq > e.after {
			return errEnough
		}
		e.render.Note(e.mask.Event(ev))
		return nil
	})
	e.seen = e.after
	if err != nil && !errors.Is(err, errEnough) {
		return e.reset(ctx, err)
	}
	w, err := e.s.cfg.Node.Engine.Feed().Follow(ctx, key(ctx, e.run), e.after, e.event)
	if err != nil {
		return e.reset(ctx, err)
	}
	defer w.Close()
	for !w.Ended() {
		quiet := e.s.times.heartbeat
		if e.joined.Holds() {
			quiet = 0 // joined with what is there already, and with nothing that is to come
		}
		wait, cancel := context.WithTimeout(ctx, quiet)
		err := w.Next(ctx, wait)
		silent := wait.Err() != nil && ctx.Err() == nil
		cancel()
		if e.failed != nil {
			return e.failed
		}
		if err != nil && (!silent || !errors.Is(err, context.DeadlineExceeded)) {
			return e.reset(ctx, err)
		}
		if err := e.pass(silent); err != nil {
			return err
		}
	}
	for _, env := range e.joined.Flush() {
		e.send(env)
	}
	return out.flush()
}

// event takes an event of the run.
func (e *eventStream) event(ev feed.Event, err error) bool {
	if err != nil {
		return false
	}
	shown := e.mask.Event(ev.Event)
	env := e.render.Render(shown)
	e.seen = ev.Seq
	if e.coalesce {
		for _, env := range e.joined.Add(shown, env) {
			e.send(env)
		}
	} else {
		e.send(env)
	}
	if e.out.unsent() >= maxUnsent {
		e.failed = e.out.flush()
	}
	return e.failed == nil
}

func (e *eventStream) send(env journal.Envelope) {
	if !e.want(env.Type) {
		return
	}
	data, err := encodeJSON(env)
	if err != nil {
		return // an envelope has nothing that cannot be encoded
	}
	e.out.event(env.EventID, env.Type, data)
}

// pass sends what is there, or a heartbeat (R43).
func (e *eventStream) pass(silent bool) error {
	if silent {
		for _, env := range e.joined.Flush() {
			e.send(env)
		}
	}
	if e.out.unsent() == 0 {
		if !silent || e.quiet {
			return nil
		}
		e.out.event(0, "heartbeat", []byte(`{"type":"heartbeat","runId":"`+e.run+`","timestamp":"`+journal.Time(e.s.cfg.Now().UnixMicro())+`"}`))
	}
	return e.out.flush()
}

// reset tells the client that the stream ends early, and where to read on. What is held is
// sent before, because the place to read on is after it.
func (e *eventStream) reset(ctx context.Context, err error) error {
	for _, env := range e.joined.Flush() {
		e.send(env)
	}
	return reset(ctx, e.out, e.run, e.seen, err)
}

// reset sends a frame that tells a client why its stream ends early, and the cursor with which
// it reads on. It returns err.
func reset(ctx context.Context, out sink, run string, after uint64, err error) error {
	cause := err
	if c := context.Cause(ctx); c != nil {
		cause = c
	}
	if errors.Is(cause, context.Canceled) {
		return err // the client is gone, or wants no more of it
	}
	frame := map[string]any{"type": "reset", "afterEventId": after, "code": fault.CodeOf(cause), "message": fault.Message(cause)}
	if run != "" {
		frame["runId"] = run
	}
	if data, merr := encodeJSON(frame); merr == nil {
		out.event(0, "reset", data)
		_ = out.flush() // the error that ends the stream is returned
	}
	return err
}

type feedIn struct {
	CursorInput
}

// A Change is a change of an account: of a run, or of its credits.
type Change struct {
	Number      uint64     `json:"number"`
	Type        string     `json:"type" enum:"run.changed,run.deleted,credits.entry,credits.notice"`
	Timestamp   time.Time  `json:"timestamp"`
	RunID       string     `json:"runId,omitempty"`
	RootRunID   string     `json:"rootRunId,omitempty"`
	Recipe      string     `json:"recipe,omitempty"`
	Status      string     `json:"status,omitempty"`
	State       string     `json:"state,omitempty"`
	Code        string     `json:"code,omitempty"`
	CompletedAt *time.Time `json:"completedAt,omitempty"`
	Quarantined bool       `json:"quarantined,omitempty"`
	Entry       uint64     `json:"entry,omitempty"`
	Kind        string     `json:"kind,omitempty"`
	LimitSource string     `json:"limitSource,omitempty"`
	Limit       int64      `json:"limit,omitempty"`
	Amount      int64      `json:"amount,omitempty"`
}

func changeOf(c *store.Change) Change {
	out := Change{Number: c.N, Timestamp: rest.Stamp(c.At), RunID: c.Run, RootRunID: c.Root, Recipe: c.Recipe, Code: string(c.Code), CompletedAt: rest.StampOr(c.Ended), Quarantined: c.Quarantined}
	switch {
	case c.Run != "" && (c.Deleted || c.Hidden):
		out.Type = "run.deleted"
	case c.Run != "":
		out.Type, out.Status, out.State = "run.changed", executionStatus(c.Status), c.Status
	case c.Entry != 0:
		out.Type, out.Entry, out.Kind = "credits.entry", c.Entry, c.Kind.String()
	default:
		out.Type, out.LimitSource, out.Limit, out.Amount = "credits.notice", c.Notice.Source, c.Notice.Limit, c.Notice.Amount
	}
	return out
}

// feedEvents follows the changes of the account.
func (s *Server) feedEvents(ctx context.Context, in *feedIn) (*streamOut, error) {
	after, err := in.number()
	if err != nil {
		return nil, err
	}
	if _, err := s.cfg.Node.Store.Changes(ctx, rest.Account(ctx), after, 1); err != nil {
		return nil, err
	}
	return &streamOut{func(h huma.Context) {
		s.streaming(ctx, func(ctx context.Context) error { return s.followFeed(ctx, s.begin(ctx, h), after) })
	}}, nil
}

func (s *Server) followFeed(ctx context.Context, out *frames, after uint64) error {
	if err := out.flush(); err != nil {
		return err
	}
	follow := s.cfg.Node.Engine.Feed().FollowChanges(rest.Account(ctx), after)
	defer follow.Close()
	for {
		wait, cancel := context.WithTimeout(ctx, s.times.heartbeat)
		changes, err := follow.Next(ctx, wait)
		silent := wait.Err() != nil && ctx.Err() == nil
		cancel()
		if err != nil && (!silent || !errors.Is(err, context.DeadlineExceeded)) {
			return reset(ctx, out, "", after, err)
		}
		for i := range changes {
			c := changeOf(&changes[i])
			data, err := encodeJSON(c)
			if err != nil {
				return err
			}
			out.event(c.Number, c.Type, data)
			after = c.Number
		}
		if len(changes) == 0 {
			out.event(0, "heartbeat", []byte(`{"type":"heartbeat"}`))
		}
		if err := out.flush(); err != nil {
			return err
		}
	}
}
