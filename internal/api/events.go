// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/rest"
)

// slowest is how long a client may take for one write, or for the next part of an upload. One
// that takes longer is cut off, and reads on with its cursor (F37).
const slowest = 30 * time.Second

// times are those of streams.
type times struct {
	// heartbeat is how often a stream without events says that it lives (R43).
	heartbeat time.Duration
	slowest   time.Duration
	backup    time.Duration // between two lines about a backup
	// parting is how long a client may take once its stream must end, because the key was
	// revoked or the server stops. One that reads nothing holds neither up.
	parting time.Duration
}

// streamTimes are those of a server that is made. Tests shorten them.
var streamTimes = times{heartbeat: 15 * time.Second, slowest: slowest, backup: 500 * time.Millisecond, parting: time.Second}

// reconnect is how long a client waits before it connects again (R43).
const reconnect = 2 * time.Second

func (s *Server) eventRoutes() {
	stream := rest.Needs(access.RunsRead)
	stream.Stream = true
	o := rest.Op("executions-events", http.MethodGet, "/v1/recipe-executions/{id}/events", "Follow the events of a run (server-sent events)")
	streamed(&o)
	rest.Handle(s.rest, o, stream, s.runEvents)
	j := rest.Op("jobs-events", http.MethodGet, "/jobs/{id}/events", "Follow the events of a run in the words of jobs (server-sent events)")
	streamed(&j)
	rest.Handle(s.rest, j, stream, s.runEvents)
	w := rest.Op("workflows-events", http.MethodGet, "/execute/workflows/{id}/events", "Follow the 22 types of events of the flow source (X197)")
	streamed(&w)
	rest.Handle(s.rest, w, stream, s.flowEvents)
	rest.Handle(s.rest, rest.Op("workflows-stop", http.MethodPost, "/execute/workflows/{id}/stop", "Cancel a run (X221)"), rest.Needs(access.RunsControl), s.cancel)
	f := rest.Op("feed-events", http.MethodGet, "/v1/feed", "Follow the changes of the account (server-sent events)")
	streamed(&f)
	rest.Handle(s.rest, f, stream, s.feedEvents)
}

// streamed documents that an operation answers with server-sent events.
func streamed(o *huma.Operation) {
	o.Responses = map[string]*huma.Response{"200": {
		Description: "Frames with id, event and data; data is a JSON object on one line.",
		Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}, "204": {Description: "There is nothing after the cursor, and there never will be: do not connect again."}}
}

// CursorInput is where a stream begins. The parameter beats the header (X182).
type CursorInput struct {
	After       string `query:"afterEventId" maxLength:"20" doc:"Number of the last event that the client has."`
	LastEventID string `header:"Last-Event-ID" maxLength:"20" doc:"The same, as browsers send it."`
}

func (c *CursorInput) number() (uint64, error) {
	text, name := c.After, "afterEventId"
	if text == "" {
		text, name = c.LastEventID, "Last-Event-ID"
	}
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fault.New(fault.RequestMalformed, "%s is not the number of an event", name)
	}
	return n, nil
}

type eventsIn struct {
	RunPath
	CursorInput
	Types    string `query:"types" maxLength:"2000" doc:"Only events of these types, separated by commas; a type may end with .* ."`
	Coalesce string `query:"coalesce" enum:"0,1" doc:"0 sends every delta as it is stored; else those of a step that are there at the same time are joined, up to 4 KiB."`
}

// A streamOut is an answer that is written as it comes.
type streamOut struct {
	Body func(huma.Context)
}

// A sink takes the frames of a stream.
type sink interface {
	// event adds a frame. data is JSON on one line. Without an id it does not move the cursor.
	event(id uint64, name string, data []byte)
	// flush sends what was added.
	flush() error
	// unsent is how many bytes were added and not sent.
	unsent() int
}

// errStops is why the streams of a server that stops end.
var errStops = fault.New(fault.Stopping, "the server stops: connect again")

// enter begins a stream: its context ends when the server stops, too, and end is called when
// the stream has ended. ok is false if the server has stopped.
func (s *Server) enter(ctx context.Context) (lasting context.Context, cancel context.CancelCauseFunc, end func(error), ok bool) {
	ctx, cancel = context.WithCancelCause(ctx)
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.stopping.Err() != nil { // Stop may be waiting for the streams by now
		cancel(nil)
		return ctx, cancel, nil, false
	}
	s.streams.Add(1)
	forget := context.AfterFunc(s.stopping, func() { cancel(errStops) })
	return ctx, cancel, func(err error) {
		if err != nil && ctx.Err() == nil {
			r := rest.From(ctx)
			s.cfg.Logger.DebugContext(ctx, "a stream ended", "request", r.ID, "operation", r.Operation, "error", err)
		}
		forget()
		cancel(nil)
		s.streams.Done()
	}, true
}
