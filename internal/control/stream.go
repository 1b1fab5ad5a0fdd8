// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/retention"
)

// The trailers after the content of a file. A stream without either of them was
// cut off.
const (
	trailerDone  = "Roux-Done"
	trailerError = "Roux-Error"
)

// largeAnswer bounds the time until an answer about a file begins. The server
// syncs and inspects a new file, and hashes a stored one.
const largeAnswer = 5 * time.Minute

// PutFile implements Files.
func (r *Remote) PutFile(ctx context.Context, body io.Reader, name string) (info action.FileInfo, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	src := &source{r: body, stall: newStallTimer(cancel)}
	defer src.stall.rest()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://roux/file-put?"+url.Values{"name": {name}, "account": {r.account}}.Encode(), io.NopCloser(src))
	if err != nil {
		return info, fmt.Errorf("socket: %w", err)
	}
	res, err := r.patient(largeAnswer).Do(req)
	src.stall.rest()
	if src.err != nil {
		return info, src.err // it is our side that failed
	}
	if err != nil {
		return info, r.unreachable(err)
	}
	defer res.Body.Close()
	src.stall.wait(streamTime)
	return info, r.result(res, &info)
}

// streamTime bounds the time that the server takes for streamStep bytes of a
// file. The time of the client does not count. Tests shorten it.
var streamTime = time.Minute

const streamStep = 64 << 10

// errStill is the cause when a stallTimer ends a request.
var errStill = errors.New("it stands still")

// A stallTimer ends a request when the server makes no progress.
type stallTimer struct {
	end   context.CancelCauseFunc
	timer *time.Timer
}

func newStallTimer(end context.CancelCauseFunc) *stallTimer {
	t := &stallTimer{end, time.AfterFunc(time.Hour, func() { end(errStill) })}
	t.timer.Stop()
	return t
}

// wait starts the timer: the server has d from now.
func (t *stallTimer) wait(d time.Duration) { t.timer.Reset(d) }

// rest stops the timer.
func (t *stallTimer) rest() { t.timer.Stop() }

// source is the content of an upload. It remembers why the user's file could not
// be read, because the transport reports only that the request was cut off. The
// timer runs while the transport sends what was read.
type source struct {
	r     io.Reader
	stall *stallTimer
	err   error
}

func (s *source) Read(p []byte) (int, error) {
	s.stall.rest()
	n, err := s.r.Read(p)
	switch {
	case err == nil:
		s.stall.wait(streamTime)
	case !errors.Is(err, io.EOF):
		s.err = err
	}
	return n, err
}

// ReadFile implements Files.
func (r *Remote) ReadFile(ctx context.Context, hash string, from, n int64) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	res, err := r.post(ctx, r.patient(largeAnswer), "file-get", request{Key: r.key(""), File: fileRequest{Hash: hash, From: from, N: n}})
	if err != nil {
		cancel(nil)
		return nil, err
	}
	s := &streamed{remote: r, res: res, stall: newStallTimer(cancel), left: streamTime}
	s.stall.wait(streamTime)
	err = r.refusal(res)
	s.stall.rest()
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// streamed is the content of a download. It ends with io.EOF only when the server
// has sent trailerDone.
type streamed struct {
	remote *Remote
	res    *http.Response
	stall  *stallTimer
	left   time.Duration // for the bytes that are still to come of this step
	got    int           // of them
}

func (s *streamed) Close() error {
	defer s.stall.end(nil)
	return s.res.Body.Close()
}

func (s *streamed) Read(p []byte) (int, error) {
	begin := time.Now()
	s.stall.wait(s.left)
	n, err := s.res.Body.Read(p)
	s.stall.rest()
	s.left -= time.Since(begin)
	if s.got += n; s.got >= streamStep {
		s.left, s.got = streamTime, 0
	}
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, s.remote.unreachable(err)
	}
	if text := s.res.Trailer.Get(trailerError); text != "" {
		var e wireError
		err := json.Unmarshal([]byte(text), &e)
		if _, known := fault.Lookup(e.Code); err == nil && known {
			return n, fault.New(e.Code, "%s", e.Message)
		}
	}
	if s.res.Trailer.Get(trailerDone) == "" {
		return n, s.remote.unreachable(io.ErrUnexpectedEOF)
	}
	return n, io.EOF
}

// FindFile implements Files.
func (r *Remote) FindFile(ctx context.Context, begin string) (File, error) {
	return call[File](ctx, r, "file-find", request{Key: r.key(""), File: fileRequest{Hash: begin}})
}

// ListFiles implements Files.
func (r *Remote) ListFiles(ctx context.Context, q blob.Query) ([]blob.Entry, error) {
	return callWithin[[]blob.Entry](ctx, r, largeAnswer, "file-list", request{Key: r.key(""), File: fileRequest{Query: q}})
}

// RemoveFile implements Files.
func (r *Remote) RemoveFile(ctx context.Context, hash string) error {
	_, err := call[any](ctx, r, "file-rm", request{Key: r.key(""), File: fileRequest{Hash: hash}})
	return err
}

// CleanFiles implements Files.
func (r *Remote) CleanFiles(ctx context.Context, dry bool) (retention.Removed, error) {
	return callWithin[retention.Removed](ctx, r, largeAnswer, "file-gc", request{Key: r.key(""), File: fileRequest{Dry: dry}})
}
