// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/sse"
)

// stream returns an answer whose frames src sends. That to HEAD has no body, so it ends with
// its headers: a stream would keep the connection from its next request.
//
// A live stream is one that may be silent. Over HTTP/1.1 it takes the connection over as soon
// as it has caught up, and the handler returns: what a handler needs, above all its stack and
// its buffers, is most of what a silent stream would cost. Other streams end with their handler.
func (s *Server) stream(ctx context.Context, src source, live bool) (*streamOut, error) {
	left, err := s.open.Take(rest.Account(ctx))
	if err != nil {
		return nil, err
	}
	return &streamOut{func(h huma.Context) {
		r := rest.From(ctx)
		takes := live && r.HTTP.ProtoMajor == 1 && r.HTTP.ProtoMinor > 0
		begin(h, takes)
		if h.Method() == http.MethodHead {
			left()
			return
		}
		s.follow(ctx, r, src, takes, left)
	}}, nil
}

// begin sets the status and the headers of a stream (X183). The connection of one that takes
// it over is closed at its end.
func begin(h huma.Context, closes bool) {
	h.SetHeader("Content-Type", "text/event-stream; charset=utf-8")
	h.SetHeader("Cache-Control", "no-cache, no-transform")
	h.SetHeader("Connection", "keep-alive")
	if closes && h.Method() != http.MethodHead {
		h.SetHeader("Connection", "close")
	}
	h.SetHeader("X-Accel-Buffering", "no")
	h.SetStatus(http.StatusOK)
}

// follow sends a stream until it ends, or until it has taken over the connection of its
// request. It calls counted when the stream has ended.
func (s *Server) follow(request context.Context, r *rest.Request, src source, takes bool, counted func()) {
	lasting, release, err := s.rest.Lasting(request)
	if err != nil {
		counted()
		return // the account has been disabled since the request was admitted
	}
	ctx, cancel, left, ok := s.enter(lasting)
	if !ok {
		release()
		counted()
		return
	}
	gone := context.AfterFunc(request, func() { cancel(context.Cause(request)) })
	defer gone()
	out := newFrames(ctx, r.Writer, s.times)
	ended := make(chan struct{})
	p := &pump{ctx: ctx, src: src, out: out, every: s.times.heartbeat, ended: func(err error) {
		out.end()
		left(err)
		release()
		counted()
		close(ended)
	}}
	if !p.first() {
		return
	}
	if takes && out.takeOver(func() { cancel(context.Canceled) }) {
		gone() // the context of the request ends with its handler
		p.park()
		return
	}
	p.park()
	<-ended
}

// A line is the connection of a stream.
type line interface {
	Write(b []byte) (int, error)
	Flush() error
	SetWriteDeadline(t time.Time) error
}

// A handled is the line of a stream inside a handler.
type handled struct {
	http.ResponseWriter
	*http.ResponseController
}

// SetWriteDeadline implements line. A recorder in a test has no deadlines.
func (h handled) SetWriteDeadline(t time.Time) error {
	if err := h.ResponseController.SetWriteDeadline(t); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// A taken is a connection that was taken over from the server: what is written are chunks of
// the body that has begun.
type taken struct{ net.Conn }

// Write implements line.
func (c taken) Write(b []byte) (int, error) {
	chunk := make([]byte, 0, len(b)+12)
	chunk = strconv.AppendInt(chunk, int64(len(b)), 16)
	chunk = append(chunk, "\r\n"...)
	chunk = append(chunk, b...)
	return c.Conn.Write(append(chunk, "\r\n"...))
}

// Flush implements line.
func (taken) Flush() error { return nil }

// watch calls gone when the client closes the connection. It reads one byte, as the server does
// while a handler runs: a client that sends another request on the connection of a stream is
// not answered, and a client that goes after that is noticed by the next write.
func (c taken) watch(gone func()) {
	var b [1]byte
	if _, err := c.Read(b[:]); err != nil {
		gone()
	}
}

// A frames writes server-sent events. It implements sink.
type frames struct {
	ctx context.Context
	buf []byte
	times
	failed error       // of a write
	stop   func() bool // see newFrames
	parted chan struct{}

	mu sync.Mutex
	to line // changes once
}

// newFrames returns frames for a stream that lasts as long as ctx. Call end before the handler returns, unless the
// connection was taken over: from then on it serves another request, whose deadline is not changed any more.
func newFrames(ctx context.Context, w http.ResponseWriter, t times) *frames {
	f := &frames{ctx: ctx, to: handled{w, http.NewResponseController(w)}, times: t, parted: make(chan struct{})}
	f.buf = sse.AppendRetry(f.buf, reconnect)
	f.stop = context.AfterFunc(ctx, func() {
		defer close(f.parted)
		_ = f.within(f.parting)
	})
	return f
}

// end completes the answer, unless a write has failed.
func (f *frames) end() {
	if !f.stop() {
		<-f.parted
	}
	c, ok := f.to.(taken)
	if !ok {
		return // the handler returns
	}
	if f.within(f.parting) == nil && f.failed == nil {
		_, _ = c.Conn.Write([]byte("0\r\n\r\n"))
	}
	_ = c.Close() // the client may have gone
}

// takeOver takes the connection from the server and calls gone when the client closes it. It
// returns false if the connection cannot be taken.
func (f *frames) takeOver(gone func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	h, ok := f.to.(handled)
	if !ok {
		return false
	}
	conn, buf, err := h.Hijack()
	if err != nil {
		return false
	}
	c := taken{conn}
	f.to = c
	if buf.Reader.Buffered() == 0 {
		go c.watch(gone)
	}
	return true
}

// event implements sink.
func (f *frames) event(id uint64, name string, data []byte) {
	f.buf = sse.Append(f.buf, id, name, data)
}

// unsent implements sink.
func (f *frames) unsent() int { return len(f.buf) }

// within bounds the write in progress and those that follow.
func (f *frames) within(d time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.to.SetWriteDeadline(time.Now().Add(d))
}

// flush implements sink.
func (f *frames) flush() error {
	if len(f.buf) == 0 {
		return nil
	}
	err := f.within(f.slowest)
	if err == nil && f.ctx.Err() != nil { // it may have ended before that
		err = f.within(f.parting)
	}
	if err == nil {
		_, err = f.to.Write(f.buf)
	}
	if err == nil {
		err = f.to.Flush()
	}
	f.buf = nil // most streams are silent most of the time
	f.failed = err
	return err
}
