// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The bounds of what the process that holds a data directory may take for an answer. Tests
// shorten them.
var (
	// answerTime bounds the time until an answer begins. The process answers from memory or
	// after one commit: one that takes longer is stopped or hangs, and its client must not hang
	// with it.
	answerTime = 15 * time.Second
	// streamTime bounds the time that the process takes for streamStep bytes. The time of the
	// client does not count: a user may pipe a file in and out at any pace.
	streamTime = time.Minute
)

const (
	streamStep = 64 << 10
	// slowTime is answerTime for requests that read or write much before they are answered.
	slowTime = 5 * time.Minute
)

// ErrMayHaveArrived marks the error of a request that may have changed something.
var ErrMayHaveArrived = errors.New("the request may have arrived")

// errStill is the cause when a stallTimer ends a request.
var errStill = errors.New("it stands still")

// Requests sends requests to the process that holds a data directory. It implements
// http.RoundTripper. Each is bounded in time while the process has to do something; its errors
// name the directory and the process.
type Requests struct {
	holder *Holder
	quick  *http.Transport
	slow   *http.Transport
	isSlow func(*http.Request) bool
}

// Requests returns what sends requests to the process. slow reports whether one may take long
// until its answer begins.
func (h *Holder) Requests(slow func(*http.Request) bool) *Requests {
	return &Requests{h, h.transport(answerTime), h.transport(slowTime), slow}
}

// CloseIdleConnections is that of http.Transport.
func (t *Requests) CloseIdleConnections() {
	t.quick.CloseIdleConnections()
	t.slow.CloseIdleConnections()
}

// RoundTrip implements http.RoundTripper.
func (t *Requests) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	stall := newStallTimer(cancel)
	out := req.WithContext(ctx)
	var sent *sending
	if req.Body != nil && req.Body != http.NoBody {
		sent = &sending{body: req.Body, stall: stall}
		out.Body = sent
		out.GetBody = nil
	}
	by := t.quick
	if t.isSlow(req) {
		by = t.slow
	}
	res, err := by.RoundTrip(out)
	stall.rest()
	if err != nil {
		defer cancel(nil)
		switch cause := sent.failure(); {
		case cause != nil:
			return nil, cause // it is our side that failed
		case req.Context().Err() != nil:
			return nil, err
		}
		return nil, t.unreachable(ctx, req, err)
	}
	kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	res.Body = &receiving{t: t, req: req, ctx: ctx, body: res.Body, stall: stall, left: streamTime, lines: kind == "application/x-ndjson", events: kind == "text/event-stream"}
	return res, nil
}

// unreachable describes a request that failed.
func (t *Requests) unreachable(ctx context.Context, req *http.Request, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errStill) {
		err = cause
	}
	e := t.holder.Unreachable(err)
	var op *net.OpError
	if req.Method != http.MethodGet && (!errors.As(err, &op) || op.Op != "dial") {
		e.Err = errors.Join(err, ErrMayHaveArrived)
	}
	return e
}

// A stallTimer ends a request when the process makes no progress.
type stallTimer struct {
	end   context.CancelCauseFunc
	timer *time.Timer
}

func newStallTimer(end context.CancelCauseFunc) *stallTimer {
	t := &stallTimer{end, time.AfterFunc(time.Hour, func() { end(errStill) })}
	t.timer.Stop()
	return t
}

// wait starts the timer: the process has d from now.
func (t *stallTimer) wait(d time.Duration) { t.timer.Reset(d) }

// rest stops the timer.
func (t *stallTimer) rest() { t.timer.Stop() }

// sending is the body of a request. It remembers why it could not be read, because the transport
// reports only that the request was cut off. The timer runs while the transport sends what was
// read.
type sending struct {
	body  io.ReadCloser
	stall *stallTimer
	mu    sync.Mutex
	err   error
}

func (s *sending) Close() error { return s.body.Close() }

func (s *sending) Read(p []byte) (int, error) {
	s.stall.rest()
	n, err := s.body.Read(p)
	switch {
	case err == nil:
		s.stall.wait(streamTime)
	case !errors.Is(err, io.EOF):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = err
	}
	return n, err
}

// failure returns why the body could not be read.
func (s *sending) failure() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// receiving is the body of an answer.
type receiving struct {
	t      *Requests
	req    *http.Request
	ctx    context.Context //nolint:containedctx // of the request: Read has none
	body   io.ReadCloser
	stall  *stallTimer
	left   time.Duration // for the bytes that are still to come of this step
	got    int           // of them
	lines  bool          // each read is progress
	events bool          // a stream of events, which may be silent
}

func (r *receiving) Close() error {
	defer r.stall.end(nil)
	return r.body.Close()
}

func (r *receiving) Read(p []byte) (int, error) {
	begin := time.Now()
	if !r.events {
		r.stall.wait(r.left)
	}
	n, err := r.body.Read(p)
	r.stall.rest()
	r.left -= time.Since(begin)
	if r.got += n; r.got >= streamStep || r.lines {
		r.left, r.got = streamTime, 0
	}
	if err == nil || errors.Is(err, io.EOF) || r.req.Context().Err() != nil {
		return n, err
	}
	return n, r.t.unreachable(r.ctx, r.req, err)
}
