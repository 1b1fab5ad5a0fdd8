// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
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
	release, err := s.reads.Acquire(ctx, rest.Account(ctx))
	if err != nil {
		return nil, err
	}
	s.giveWay(ctx)
	e, err := s.eventStream(ctx, in.ID, after)
	release()
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, &rest.Problem{Status: http.StatusNoContent} // R43: nothing to follow
	}
	e.want, e.coalesce = want, in.Coalesce != "0"
	return s.stream(ctx, e, e.live)
}

// giveWay waits a while if other requests have much to do.
func (s *Server) giveWay(ctx context.Context) {
	if s.rest.Running() < busy {
		return
	}
	wait := time.NewTimer(giveWay)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
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
	return &eventStream{s: s, key: key(ctx, run), after: after, live: head.Ended == 0, plan: p, mask: mask}, nil
}

// typeFilter returns whether a type of event was asked for.
func typeFilter(types string) func(string) bool {
	if types == "" {
		return func(string) bool { return true }
	}
	names := strings.Split(types, ",")
	return func(name string) bool {
		return slices.ContainsFunc(names, func(want string) bool {
			return journal.Covers(want, name)
		})
	}
}

// An eventStream sends the events of a run. It implements source.
type eventStream struct {
	s        *Server
	key      store.Key
	after    uint64
	live     bool // the run had not ended when the stream began
	plan     *plan.Plan
	mask     *view.Mask
	want     func(string) bool
	coalesce bool

	watcher *feed.Watcher
	ctx     context.Context // during next
	out     sink            // during next
	release func()          // during read, unless a client is taking what was read
	failed  error           // of a write, or of waiting to read on
	render  *journal.Renderer
	joined  resource.Coalescer
	seen    uint64
}

// maxUnsent is how many bytes of events are collected before they are sent.
const maxUnsent = 64 << 10

// read calls fn, which reads the journal, when it is the turn of its account. Streams that catch
// up so take a part of the processors, and leave the rest to those who start runs.
func (e *eventStream) read(ctx context.Context, fn func() error) error {
	release, err := e.s.reads.Acquire(ctx, e.key.Account)
	if err != nil {
		return err
	}
	e.release = release
	defer func() {
		if e.release != nil {
			e.release()
			e.release = nil
		}
	}()
	return fn()
}

// sendPart sends what was added in the middle of a read. While a slow client takes it, others
// read.
func (e *eventStream) sendPart() error {
	if e.release == nil { // nothing is read from the journal
		return e.out.flush()
	}
	e.release()
	e.release = nil
	if err := e.out.flush(); err != nil {
		return err
	}
	release, err := e.s.reads.Acquire(e.ctx, e.key.Account)
	e.release = release
	return err
}

// open implements source.
func (e *eventStream) open(ctx context.Context, wake func()) error {
	return e.read(ctx, func() error { return e.begin(ctx, wake) })
}

func (e *eventStream) begin(ctx context.Context, wake func()) error {
	e.seen, e.render = e.after, journal.NewRenderer(e.plan, e.key.Run)
	if e.after > 0 { // what the events before the cursor cause and mask must be known
		err := store.EachEvent(ctx, e.s.cfg.Node.Store, e.key, 0, func(ev *journal.Event) error {
			if ev.Seq > e.after {
				return errEnough
			}
			e.render.Note(e.mask.Event(ev))
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	w, err := e.s.cfg.Node.Engine.Feed().Follow(ctx, e.key, e.after, e.event)
	if err == nil {
		e.watcher = w
		w.OnNews(wake)
	}
	return err
}

// next implements source.
func (e *eventStream) next(ctx context.Context, out sink) (more, done bool, err error) {
	e.ctx, e.out = ctx, out
	if e.watcher.Stored() {
		more = true
		err = e.read(ctx, func() error {
			_, err := e.watcher.Poll(ctx)
			return err
		})
	} else {
		more, err = e.watcher.Poll(ctx)
	}
	e.ctx, e.out = nil, nil
	done = e.watcher.Ended()
	switch {
	case e.failed != nil:
		return false, false, e.failed
	case err == nil && (done || !more): // what is held is joined with nothing that is to come
		e.flush(out)
	}
	return more, done, err
}

// close implements source.
func (e *eventStream) close() {
	if e.watcher != nil {
		e.watcher.Close()
	}
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
			e.send(e.out, env)
		}
	} else {
		e.send(e.out, env)
	}
	if e.out.unsent() >= maxUnsent {
		e.failed = e.sendPart()
	}
	return e.failed == nil
}

// flush adds what is held.
func (e *eventStream) flush(out sink) {
	for _, env := range e.joined.Flush() {
		e.send(out, env)
	}
}

func (e *eventStream) send(out sink, env journal.Envelope) {
	if !e.want(env.Type) {
		return
	}
	data, err := jsonx.Marshal(env)
	if err != nil {
		return // an envelope has nothing that cannot be encoded
	}
	out.event(env.EventID, env.Type, data)
}

// heartbeat implements source (R43).
func (e *eventStream) heartbeat(out sink) {
	out.event(0, "heartbeat", []byte(`{"type":"heartbeat","runId":"`+e.key.Run+`","timestamp":"`+journal.Time(e.s.cfg.Now().UnixMicro())+`"}`))
}

// reset implements source. What is held is sent before, because the place to read on is after
// it.
func (e *eventStream) reset(ctx context.Context, out sink, err error) {
	if e.failed != nil {
		return
	}
	e.flush(out)
	reset(ctx, out, e.key.Run, e.seen, err)
}

// reset adds a frame that tells a client why its stream ends early, and the cursor with which
// it reads on.
func reset(ctx context.Context, out sink, run string, after uint64, err error) {
	cause := err
	if c := context.Cause(ctx); c != nil {
		cause = c
	}
	if errors.Is(cause, context.Canceled) {
		return // the client is gone, or wants no more of it
	}
	frame := map[string]any{"type": "reset", "afterEventId": after, "code": fault.CodeOf(cause), "message": fault.Message(cause)}
	if run != "" {
		frame["runId"] = run
	}
	if data, merr := jsonx.Marshal(frame); merr == nil {
		out.event(0, "reset", data)
	}
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
	Removed     bool       `json:"removed,omitempty"` // of run.deleted: it is no longer kept
}

func changeOf(c *store.Change) Change {
	out := Change{Number: c.N, Timestamp: rest.Stamp(c.At), RunID: c.Run, RootRunID: c.Root, Recipe: c.Recipe, Code: string(c.Code), CompletedAt: rest.StampOr(c.Ended), Quarantined: c.Quarantined}
	switch {
	case c.Run != "" && (c.Deleted || c.Hidden):
		out.Type, out.Removed = "run.deleted", c.Deleted
	case c.Run != "":
		out.Type, out.Status, out.State = "run.changed", resource.StatusOf(c.Status), c.Status
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
	return s.stream(ctx, &feedStream{s: s, account: rest.Account(ctx), after: after}, true)
}

// A feedStream sends the changes of an account. It implements source.
type feedStream struct {
	s       *Server
	account string
	after   uint64
	follow  *feed.ChangeFollower
}

// open implements source.
func (f *feedStream) open(_ context.Context, wake func()) error {
	f.follow = f.s.cfg.Node.Engine.Feed().FollowChanges(f.account, f.after)
	f.follow.OnNews(wake)
	return nil
}

// next implements source.
func (f *feedStream) next(ctx context.Context, out sink) (more, done bool, err error) {
	changes, err := f.follow.Poll(ctx)
	for i := range changes {
		c := changeOf(&changes[i])
		data, err := jsonx.Marshal(c)
		if err != nil {
			return false, false, err
		}
		out.event(c.Number, c.Type, data)
		f.after = c.Number
	}
	return len(changes) > 0, false, err
}

// heartbeat implements source (R43).
func (*feedStream) heartbeat(out sink) {
	out.event(0, "heartbeat", []byte(`{"type":"heartbeat"}`))
}

// reset implements source.
func (f *feedStream) reset(ctx context.Context, out sink, err error) {
	reset(ctx, out, "", f.after, err)
}

// close implements source.
func (f *feedStream) close() {
	if f.follow != nil {
		f.follow.Close()
	}
}
