// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/retention"
)

// A fileService is what commands ask of the files of a data directory: the process
// that holds it, or this one. Bytes are streamed both ways.
type fileService interface {
	PutFile(ctx context.Context, r io.Reader, name string) (action.FileInfo, error)
	// ReadFile returns n bytes from `from` on; n < 0 is the whole file, whose
	// hash is verified.
	ReadFile(ctx context.Context, hash string, from, n int64) (io.ReadCloser, error)
	// FindFile names a file by the beginning of its hash.
	FindFile(ctx context.Context, begin string) (shelved, error)
	ListFiles(ctx context.Context, q blob.Query) ([]blob.Entry, error)
	RemoveFile(ctx context.Context, hash string) error
	SweepFiles(ctx context.Context, dry bool) (retention.Removed, error)
}

// A shelved is a file with the runs that name it.
type shelved struct {
	blob.Entry
	Runs []string `json:"runs"`
}

// maxNaming is how many runs of a file are told.
const maxNaming = 20

var (
	_ fileService = (*host)(nil)
	_ fileService = (*remote)(nil)
)

// filing runs a command on files: through the process that holds the data
// directory, or as the one that holds it. It advances no run.
func (a *app) filing(ctx context.Context, makes bool, fn func(ctx context.Context, s fileService) error) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer func() {
		if err != nil && ctx.Err() != nil && !waited(ctx) {
			err = exit(fault.ExitInterrupted)
		}
	}()
	dir, err := a.config.DataDir()
	if err != nil {
		return err
	}
	if !makes {
		if err := mustHold(dir); err != nil {
			return err
		}
	}
	if r := dial(ctx, dir); r != nil {
		return fn(ctx, r)
	}
	h, err := a.openHost(ctx, nil)
	if errors.Is(err, fault.StoreLocked) {
		// It may have begun to listen since we first looked.
		if r := dial(ctx, dir); r != nil {
			return fn(ctx, r)
		}
	}
	if err != nil {
		return err
	}
	defer h.abandon()
	if err := fn(ctx, h); err != nil {
		return datadir.Error(dir, err)
	}
	return h.close(nil)
}

// mustHold is mustExist for commands on files.
func mustHold(dir string) error {
	err := datadir.MustExist(dir)
	if errors.Is(err, fault.RunNotFound) {
		return fault.New(fault.FileNotFound, "%s does not exist: no file is kept there yet; `roux files put FILE` keeps the first", dir)
	}
	return err
}

// PutFile implements fileService.
func (h *host) PutFile(ctx context.Context, r io.Reader, name string) (action.FileInfo, error) {
	return h.put(ctx, r, name)
}

// ReadFile implements fileService.
func (h *host) ReadFile(ctx context.Context, hash string, from, n int64) (io.ReadCloser, error) {
	if n < 0 {
		f, err := h.node.Files.Open(ctx, account, hash)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	r, _, err := h.node.Files.Part(ctx, account, hash, from, n)
	return r, err
}

// FindFile implements fileService.
func (h *host) FindFile(ctx context.Context, begin string) (shelved, error) {
	e, err := h.node.Files.Find(ctx, account, begin)
	if err != nil {
		return shelved{}, err
	}
	runs, err := h.node.Engine.NamedBy(ctx, account, e.Info.Hash, maxNaming)
	return shelved{e, runs}, err
}

// ListFiles implements fileService.
func (h *host) ListFiles(ctx context.Context, q blob.Query) ([]blob.Entry, error) {
	return h.node.Files.List(ctx, account, q)
}

// RemoveFile implements fileService.
func (h *host) RemoveFile(ctx context.Context, hash string) error {
	return h.node.Engine.RemoveFile(ctx, account, hash)
}

// SweepFiles implements fileService.
func (h *host) SweepFiles(ctx context.Context, dry bool) (retention.Removed, error) {
	return h.node.Engine.Clean(ctx, dry)
}

// fileAsk is the part of a request that is about files.
type fileAsk struct {
	Hash  string     `json:"hash,omitempty"`
	From  int64      `json:"from,omitempty"`
	N     int64      `json:"n,omitempty"`
	Query blob.Query `json:"query,omitzero"`
	Dry   bool       `json:"dry,omitempty"`
}

// The trailers of a file that is streamed through the socket. Without either of
// them the stream was cut off.
const (
	trailerDone  = "Roux-Done"
	trailerError = "Roux-Error"
)

// largeAnswer is how long the holder of a directory may take to answer about a
// file: it syncs and inspects what it was given, and hashes what it has already.
const largeAnswer = 5 * time.Minute

// serveFiles answers commands on files.
func serveFiles(mux *http.ServeMux, on func(op string, fn func(ctx context.Context, in *ask) (any, error)), s fileService) {
	on("file-find", func(ctx context.Context, in *ask) (any, error) { return s.FindFile(ctx, in.File.Hash) })
	on("file-list", func(ctx context.Context, in *ask) (any, error) { return s.ListFiles(ctx, in.File.Query) })
	on("file-rm", func(ctx context.Context, in *ask) (any, error) { return nil, s.RemoveFile(ctx, in.File.Hash) })
	on("file-gc", func(ctx context.Context, in *ask) (any, error) { return s.SweepFiles(ctx, in.File.Dry) })
	mux.HandleFunc("POST /file-put", func(w http.ResponseWriter, r *http.Request) {
		info, err := s.PutFile(r.Context(), &arriving{r.Body, http.NewResponseController(w)}, r.URL.Query().Get("name"))
		if err != nil {
			answerError(w, err)
			return
		}
		answer(w, http.StatusOK, info)
	})
	mux.HandleFunc("POST /file-get", func(w http.ResponseWriter, r *http.Request) {
		in, err := question(w, r)
		if err != nil {
			answerError(w, err)
			return
		}
		f, err := s.ReadFile(r.Context(), in.File.Hash, in.File.From, in.File.N)
		if err != nil {
			answerError(w, err)
			return
		}
		defer func() { _ = f.Close() }()
		w.Header().Set("Trailer", trailerDone+", "+trailerError)
		if _, err := io.Copy(&leaving{w, http.NewResponseController(w)}, f); err != nil {
			text, merr := json.Marshal(errorObject{Code: fault.CodeOf(err), Message: fault.Message(err)})
			if merr != nil {
				text = nil // the stream then counts as cut off
			}
			w.Header().Set(trailerError, string(text))
			return
		}
		w.Header().Set(trailerDone, "yes")
	})
}

// arriving is the body of an upload: it ends when the caller stands still.
type arriving struct {
	r   io.Reader
	ctl *http.ResponseController
}

func (a *arriving) Read(p []byte) (int, error) {
	if err := a.ctl.SetReadDeadline(time.Now().Add(idleTime)); err != nil {
		return 0, err
	}
	return a.r.Read(p)
}

// leaving is where a download goes: it ends when the caller stands still.
type leaving struct {
	w   io.Writer
	ctl *http.ResponseController
}

func (l *leaving) Write(p []byte) (int, error) {
	if err := l.ctl.SetWriteDeadline(time.Now().Add(idleTime)); err != nil {
		return 0, err
	}
	return l.w.Write(p)
}

// PutFile implements fileService.
func (r *remote) PutFile(ctx context.Context, body io.Reader, name string) (info action.FileInfo, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	src := &source{r: body, guard: newGuard(cancel)}
	defer src.guard.rest()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://roux/file-put?name="+url.QueryEscape(name), io.NopCloser(src))
	if err != nil {
		return info, fmt.Errorf("socket: %w", err)
	}
	res, err := r.patient(largeAnswer).Do(req)
	src.guard.rest()
	if src.err != nil {
		return info, src.err // it is our side that failed
	}
	if err != nil {
		return info, r.unreachable(err)
	}
	defer res.Body.Close()
	src.guard.wait(streamTime)
	return info, r.result(res, &info)
}

// streamTime is how long the other end may take for streamStep bytes of a
// file, not counting how long this end takes. Tests shorten it.
var streamTime = time.Minute

const streamStep = 64 << 10

// errStill is why a guard ends a request.
var errStill = errors.New("it stands still")

// A guard ends a request while whose other end nothing happens.
type guard struct {
	end   context.CancelCauseFunc
	timer *time.Timer
}

func newGuard(end context.CancelCauseFunc) *guard {
	g := &guard{end, time.AfterFunc(time.Hour, func() { end(errStill) })}
	g.timer.Stop()
	return g
}

// wait begins to wait for the other end, for at most d.
func (g *guard) wait(d time.Duration) { g.timer.Reset(d) }

// rest ends the waiting.
func (g *guard) rest() { g.timer.Stop() }

// source remembers why the user's file could not be read: the transport only
// says that the request broke off. From what it has given until more is asked
// for, the other end is waited for.
type source struct {
	r     io.Reader
	guard *guard
	err   error
}

func (s *source) Read(p []byte) (int, error) {
	s.guard.rest()
	n, err := s.r.Read(p)
	switch {
	case err == nil:
		s.guard.wait(streamTime)
	case !errors.Is(err, io.EOF):
		s.err = err
	}
	return n, err
}

// ReadFile implements fileService.
func (r *remote) ReadFile(ctx context.Context, hash string, from, n int64) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	res, err := r.post(ctx, r.patient(largeAnswer), "file-get", ask{File: fileAsk{Hash: hash, From: from, N: n}})
	if err != nil {
		cancel(nil)
		return nil, err
	}
	s := &streamed{remote: r, res: res, guard: newGuard(cancel), left: streamTime}
	s.guard.wait(streamTime)
	err = r.refusal(res)
	s.guard.rest()
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// streamed is a file that comes through the socket. It ends well only when the
// other side said so.
type streamed struct {
	remote *remote
	res    *http.Response
	guard  *guard
	left   time.Duration // for the bytes that are still to come of this step
	got    int           // of them
}

func (s *streamed) Close() error {
	defer s.guard.end(nil)
	return s.res.Body.Close()
}

func (s *streamed) Read(p []byte) (int, error) {
	begin := time.Now()
	s.guard.wait(s.left)
	n, err := s.res.Body.Read(p)
	s.guard.rest()
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
		var e errorObject
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

// FindFile implements fileService.
func (r *remote) FindFile(ctx context.Context, begin string) (shelved, error) {
	return call[shelved](ctx, r, "file-find", ask{File: fileAsk{Hash: begin}})
}

// ListFiles implements fileService.
func (r *remote) ListFiles(ctx context.Context, q blob.Query) ([]blob.Entry, error) {
	return callWithin[[]blob.Entry](ctx, r, largeAnswer, "file-list", ask{File: fileAsk{Query: q}})
}

// RemoveFile implements fileService.
func (r *remote) RemoveFile(ctx context.Context, hash string) error {
	_, err := call[any](ctx, r, "file-rm", ask{File: fileAsk{Hash: hash}})
	return err
}

// SweepFiles implements fileService.
func (r *remote) SweepFiles(ctx context.Context, dry bool) (retention.Removed, error) {
	return callWithin[retention.Removed](ctx, r, largeAnswer, "file-gc", ask{File: fileAsk{Dry: dry}})
}
