// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/sse"
)

// A frame is one of a stream of server-sent events.
type frame struct {
	id   uint64 // 0 = it does not move the cursor
	name string
	data []byte
}

// A stream follows a stream of the server. It connects again, with the number of the last
// frame that it has passed on, until the server says that nothing more follows.
type stream struct {
	c     *Client
	call  func() *call
	after uint64
	// ends reports whether a frame may be the last one of the stream; nil = it has no end.
	ends func(frame) bool

	last      frame         // that was passed on
	hint      time.Duration // how long to wait before connecting again, as the server said
	connected bool
}

// errSilent is why a connection is given up that says nothing.
var errSilent = errors.New("the stream is silent")

// errStopped is returned when whoever reads the stream wants no more of it.
var errStopped = errors.New("stopped")

// errDone is returned at the end of the stream.
var errDone = errors.New("done")

// frames returns the frames with a number, each once and in order. After an error it ends.
func (s *stream) frames(ctx context.Context) iter.Seq2[frame, error] {
	return func(yield func(frame, error) bool) {
		for failed := 0; ; {
			before := s.after
			err := s.read(ctx, yield)
			switch {
			case errors.Is(err, errStopped), errors.Is(err, errDone):
				return
			case ctx.Err() != nil:
				yield(frame{}, fmt.Errorf("following %s: %w", s.call().path, context.Cause(ctx)))
				return
			case lasting(err):
				yield(frame{}, err)
				return
			}
			if failed++; s.after > before {
				failed = 1
			}
			if !s.connected && failed >= s.c.cfg.Attempts {
				yield(frame{}, err)
				return
			}
			if serr := s.c.cfg.Sleep(ctx, s.pause(failed, err)); serr != nil {
				yield(frame{}, fmt.Errorf("following %s: %w", s.call().path, serr))
				return
			}
		}
	}
}

// pause returns how long to wait before connecting again.
func (s *stream) pause(failed int, err error) time.Duration {
	wait := s.c.backoff(failed)
	if s.connected {
		wait = max(wait, jitter(s.hint))
	}
	var p *Problem
	if errors.As(err, &p) {
		wait = max(wait, min(p.RetryAfter, s.c.cfg.MaxRetryAfter))
	}
	return wait
}

// lasting reports whether connecting again would not help: the server has said no.
func lasting(err error) bool {
	var p *Problem
	if errors.As(err, &p) {
		return p.Status < 500 && p.Status != http.StatusTooManyRequests && p.Status != http.StatusRequestTimeout || p.Status == http.StatusNotImplemented
	}
	return !errors.Is(err, fault.ServerUnreachable)
}

// read passes on the frames of one connection. The error says why it ended.
func (s *stream) read(ctx context.Context, yield func(frame, error) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(s.c.cfg.Silence, func() { cancel(errSilent) })
	defer quiet.Stop()
	cl := s.call().set("Accept", "text/event-stream").with("afterEventId", number(s.after))
	res, err := s.c.once(ctx, cl)
	if err != nil {
		return silent(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusNoContent {
		return errDone
	}
	s.connected = true
	r := sse.NewReader(heard{res.Body, func() { quiet.Reset(s.c.cfg.Silence) }}, maxFrame)
	for {
		f, err := next(r)
		if r.Retry() > 0 {
			s.hint = r.Retry()
		}
		switch {
		case errors.Is(err, sse.ErrTooLong):
			return fault.New(fault.ValueTooLarge, "the stream has an event of more than %d bytes", maxFrame)
		case err != nil:
			return silent(ctx, unreachable(ctx, cl, err))
		case f == nil && s.ends != nil && s.ends(s.last) && whole(res):
			return errDone
		case f == nil || f.name == "reset":
			return fault.New(fault.ServerUnreachable, "the stream was cut off")
		case f.id <= s.after:
			continue // a heartbeat, or what was passed on before
		}
		// What follows may take its time: a slow reader is no silent server.
		quiet.Stop()
		s.after, s.last = f.id, *f
		if !yield(*f, nil) {
			return errStopped
		}
		quiet.Reset(s.c.cfg.Silence)
	}
}

// silent replaces the end of a connection that said nothing.
func silent(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return fault.Wrap(fault.ServerUnreachable, errSilent, "the stream is silent")
	}
	return err
}

// whole reports whether the end of the body is the end that the server has meant: without
// chunks it may be that of a connection that was cut off.
func whole(res *http.Response) bool {
	return res.ProtoMajor >= 2 || slices.Contains(res.TransferEncoding, "chunked")
}

// maxFrame bounds an event of a stream.
const maxFrame = 64 << 20

// A heard calls alive whenever its reader has said something.
type heard struct {
	io.Reader
	alive func()
}

func (h heard) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.alive()
	}
	return n, err
}

// next returns the next frame, or nil at the end. A frame that was cut off is left out.
func next(r *sse.Reader) (*frame, error) {
	ev, err := r.Next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	}
	f := &frame{name: ev.Name, data: slices.Clone(ev.Data)}
	if ev.Own {
		if f.id, err = strconv.ParseUint(ev.ID, 10, 63); err != nil {
			return nil, fmt.Errorf("an event has a number that is none: %w", err)
		}
	}
	return f, nil
}

// decoded turns frames into values.
func decoded[T any](ctx context.Context, s *stream, keep func(*T) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for f, err := range s.frames(ctx) {
			if err != nil {
				yield(none, err)
				return
			}
			var v T
			if err := json.Unmarshal(f.data, &v); err != nil {
				yield(none, fault.Wrap(fault.InternalError, err, "the event %d cannot be read: %v", f.id, err))
				return
			}
			if keep != nil && !keep(&v) {
				continue
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}
