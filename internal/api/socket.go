// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/rest"
)

const (
	// maxSubscriptions is how many runs one socket follows.
	maxSubscriptions = 100
	// maxMessage bounds a message of a client.
	maxMessage = 64 << 10
	// socketProtocol is the subprotocol of the socket. A page in a browser, which cannot send
	// headers, offers its key as a second one: a key in the path would be in logs.
	socketProtocol = "roux.v1"
)

func (s *Server) socketRoutes() {
	stream := rest.Needs(access.RunsRead)
	stream.Stream = true
	o := rest.Op("socket-events", http.MethodGet, "/v1/socket", "Follow many runs over one WebSocket (X185)")
	o.Description = "Messages are JSON objects. A client sends {\"type\":\"subscribe\",\"runId\":…,\"afterEventId\":…,\"types\":…,\"coalesce\":false}, {\"type\":\"unsubscribe\",\"runId\":…} and {\"type\":\"ping\"}. " +
		"The server sends the events of the runs as the stream of one run has them, and subscribed, unsubscribed, ended, reset, error, pong and heartbeat."
	o.Responses = map[string]*huma.Response{"101": {Description: "The connection is a WebSocket from now on."}}
	rest.Handle(s.rest, o, stream, s.socket)
}

func (s *Server) socket(ctx context.Context, _ *struct{}) (*streamOut, error) {
	r := rest.From(ctx)
	if !strings.EqualFold(r.HTTP.Header.Get("Upgrade"), "websocket") {
		err := fault.New(fault.RequestMalformed, "the path is a WebSocket: the request does not ask for an upgrade")
		err.Remedy = "Use a WebSocket client, or the stream of one run, /v1/recipe-executions/{id}/events."
		return nil, err
	}
	counted, err := s.open.Take(rest.Account(ctx))
	if err != nil {
		return nil, err
	}
	return &streamOut{func(huma.Context) {
		defer counted()
		// A page of another origin is refused by the library (A23).
		c, err := websocket.Accept(r.Writer, r.HTTP, &websocket.AcceptOptions{Subprotocols: []string{socketProtocol}})
		if err != nil {
			s.cfg.Logger.DebugContext(ctx, "a socket was refused", "request", r.ID, "error", err)
			return // it was answered
		}
		c.SetReadLimit(maxMessage)
		ctx, _, left, ok := s.enter(ctx)
		if !ok {
			return
		}
		lasting, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(s.times.parting, end) })()
		so := &socket{s: s, conn: c, lasting: lasting, runs: map[string]context.CancelFunc{}}
		left(so.serve(ctx))
	}}, nil
}

// A socket follows many runs for one client.
type socket struct {
	s    *Server
	conn *websocket.Conn
	// lasting ends a while after the context of the socket has. What is read and written with
	// it can still say why the socket ends: the library drops a connection with its context.
	lasting context.Context
	mu      sync.Mutex
	ending  bool // no other run is followed from here on
	runs    map[string]context.CancelFunc
	follow  sync.WaitGroup // the runs
	done    sync.WaitGroup // the rest
}

// A socketMessage is what a client sends.
type socketMessage struct {
	Type     string `json:"type"`
	Run      string `json:"runId"`
	After    uint64 `json:"afterEventId"`
	Types    string `json:"types"`
	Coalesce *bool  `json:"coalesce"`
}

// serve reads messages until the client goes, a write takes too long, or ctx ends.
func (so *socket) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer so.done.Wait()
	defer cancel(nil)
	so.done.Go(func() { so.beat(ctx, cancel) })
	so.done.Add(1)
	context.AfterFunc(ctx, func() {
		defer so.done.Done()
		so.end(ctx)
	})
	for {
		kind, data, err := so.conn.Read(so.lasting)
		if err != nil {
			return err
		}
		if err := so.take(ctx, kind, data, cancel); err != nil {
			so.say(cancel, map[string]any{"type": "error", "code": fault.CodeOf(err), "message": fault.Message(err), "remedy": fault.RemedyOf(err)})
		}
	}
}

// end tells the client why the socket ends, if it is not the client that went, once its runs
// have said where to read on.
func (so *socket) end(ctx context.Context) {
	so.mu.Lock()
	so.ending = true
	so.mu.Unlock()
	so.follow.Wait()
	status, reason := websocket.StatusNormalClosure, ""
	switch cause := context.Cause(ctx); {
	case so.s.stopping.Err() != nil:
		status, reason = websocket.StatusGoingAway, "the server stops: connect again"
	case errors.As(cause, new(*fault.Error)):
		status, reason = websocket.StatusPolicyViolation, fault.Message(cause)
	}
	_ = so.conn.Close(status, reason) // the client may be gone
}

// beat sends heartbeats, by which a client that is gone is noticed.
func (so *socket) beat(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(so.s.times.heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			so.say(cancel, map[string]any{"type": "heartbeat"})
		}
	}
}

// say sends a message; if that fails, the socket ends.
func (so *socket) say(cancel context.CancelCauseFunc, v any) {
	data, err := jsonx.Marshal(v)
	if err == nil {
		err = so.write(data)
	}
	if err != nil {
		cancel(err)
	}
}

// write sends a message. A client that does not take it in time is cut off, and reads on
// with its cursors (F37).
func (so *socket) write(data []byte) error {
	ctx, cancel := context.WithTimeout(so.lasting, so.s.times.slowest)
	defer cancel()
	return so.conn.Write(ctx, websocket.MessageText, data)
}

// take carries out a message.
func (so *socket) take(ctx context.Context, kind websocket.MessageType, data []byte, cancel context.CancelCauseFunc) error {
	if kind != websocket.MessageText {
		return fault.New(fault.RequestMalformed, "a message is a JSON text")
	}
	if err := jsonx.Valid(data, jsonx.Limits{Bytes: maxMessage}); err != nil {
		return fault.Wrap(fault.RequestMalformed, err, "the message is no JSON: %v", err)
	}
	var m socketMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return fault.New(fault.RequestInvalid, "the message has a field of another type than it should")
	}
	switch m.Type {
	case "subscribe":
		return so.subscribe(ctx, &m, cancel)
	case "unsubscribe":
		so.mu.Lock()
		stop := so.runs[m.Run]
		so.mu.Unlock()
		if stop == nil {
			return fault.New(fault.RequestInvalid, "the socket does not follow that run")
		}
		stop()
	case "ping":
		so.say(cancel, map[string]any{"type": "pong"})
	default:
		return fault.New(fault.RequestInvalid, "type: want subscribe, unsubscribe or ping")
	}
	return nil
}

// subscribe begins to follow a run.
func (so *socket) subscribe(ctx context.Context, m *socketMessage, cancel context.CancelCauseFunc) error {
	e, err := so.s.eventStream(ctx, m.Run, m.After)
	if err != nil {
		return err
	}
	so.mu.Lock()
	defer so.mu.Unlock()
	switch {
	case so.ending:
		return fault.New(fault.Stopping, "the socket ends: connect again")
	case so.runs[m.Run] != nil:
		return fault.New(fault.Conflict, "the socket follows that run already: unsubscribe first to begin elsewhere")
	case len(so.runs) >= maxSubscriptions:
		return fault.New(fault.QuotaExceeded, "a socket follows at most %d runs: open another one", maxSubscriptions)
	}
	counted, err := so.s.open.Take(rest.Account(ctx))
	if err != nil {
		return err
	}
	so.say(cancel, map[string]any{"type": "subscribed", "runId": m.Run, "afterEventId": m.After})
	if e == nil {
		counted()
		so.say(cancel, map[string]any{"type": "ended", "runId": m.Run, "afterEventId": m.After})
		return nil
	}
	e.want, e.coalesce = typeFilter(m.Types), m.Coalesce == nil || *m.Coalesce
	ctx, stop := context.WithCancel(ctx)
	so.runs[m.Run] = stop
	so.follow.Add(1)
	p := &pump{ctx: ctx, src: e, out: &socketSink{so: so}, ended: func(err error) {
		defer so.follow.Done()
		defer stop()
		defer counted()
		so.mu.Lock()
		delete(so.runs, m.Run)
		so.mu.Unlock()
		switch {
		case err == nil:
			so.say(cancel, map[string]any{"type": "ended", "runId": m.Run, "afterEventId": e.seen})
		case errors.Is(context.Cause(ctx), context.Canceled): // of this run alone; else it was reset
			so.say(cancel, map[string]any{"type": "unsubscribed", "runId": m.Run, "afterEventId": e.seen})
		}
	}}
	go func() {
		if p.first() {
			p.park()
		}
	}()
	return nil
}

// A socketSink sends the frames of one run over a socket.
type socketSink struct {
	so   *socket
	list [][]byte
	size int
}

// event implements sink.
func (k *socketSink) event(_ uint64, _ string, data []byte) {
	k.list = append(k.list, data)
	k.size += len(data)
}

// unsent implements sink.
func (k *socketSink) unsent() int { return k.size }

// flush implements sink.
func (k *socketSink) flush() error {
	for _, data := range k.list {
		if err := k.so.write(data); err != nil {
			return err
		}
	}
	k.list, k.size = k.list[:0], 0
	return nil
}
