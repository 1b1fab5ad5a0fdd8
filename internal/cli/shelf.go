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
	"path/filepath"
	"syscall"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/engine"
)

// A shelf is what commands ask of the files of a data directory: the process
// that holds it, or this one. Bytes are streamed both ways.
type shelf interface {
	PutFile(ctx context.Context, r io.Reader, name string) (action.FileInfo, error)
	// ReadFile returns n bytes from `from` on; n < 0 is the whole file, whose
	// hash is verified.
	ReadFile(ctx context.Context, hash string, from, n int64) (io.ReadCloser, error)
	// FindFile names a file by the beginning of its hash.
	FindFile(ctx context.Context, begin string) (shelved, error)
	ListFiles(ctx context.Context, q blob.Query) ([]blob.Entry, error)
	RemoveFile(ctx context.Context, hash string) error
	SweepFiles(ctx context.Context, dry bool) (engine.Swept, error)
}

// A shelved is a file with the runs that name it.
type shelved struct {
	blob.Entry
	Runs []string `json:"runs"`
}

// maxNaming is how many runs of a file are told.
const maxNaming = 20

var (
	_ shelf = (*host)(nil)
	_ shelf = (*remote)(nil)
)

// filing runs a command on files: through the process that holds the data
// directory, or as the one that holds it. It advances no run.
func (a *app) filing(ctx context.Context, makes bool, fn func(ctx context.Context, s shelf) error) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer func() {
		if err != nil && ctx.Err() != nil && !waited(ctx) {
			err = exit(fault.ExitInterrupted)
		}
	}()
	dir, err := dataDir(a.data, a.getenv)
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
		return storageError(dir, err)
	}
	return h.close(nil)
}

// mustHold is mustExist for commands on files.
func mustHold(dir string) error {
	err := mustExist(dir)
	if errors.Is(err, fault.RunNotFound) {
		return fault.New(fault.FileNotFound, "%s does not exist: no file is kept there yet; `roux files put FILE` keeps the first", dir)
	}
	return err
}

// PutFile implements shelf.
func (h *host) PutFile(ctx context.Context, r io.Reader, name string) (action.FileInfo, error) {
	return h.put(ctx, r, name)
}

// ReadFile implements shelf.
func (h *host) ReadFile(ctx context.Context, hash string, from, n int64) (io.ReadCloser, error) {
	if n < 0 {
		f, err := h.files.Open(ctx, account, hash)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	r, _, err := h.files.Part(ctx, account, hash, from, n)
	return r, err
}

// FindFile implements shelf.
func (h *host) FindFile(ctx context.Context, begin string) (shelved, error) {
	e, err := h.files.Find(ctx, account, begin)
	if err != nil {
		return shelved{}, err
	}
	runs, err := h.engine.NamedBy(ctx, account, e.Info.Hash, maxNaming)
	return shelved{e, runs}, err
}

// ListFiles implements shelf.
func (h *host) ListFiles(ctx context.Context, q blob.Query) ([]blob.Entry, error) {
	return h.files.List(ctx, account, q)
}

// RemoveFile implements shelf.
func (h *host) RemoveFile(ctx context.Context, hash string) error {
	return h.engine.RemoveFile(ctx, account, hash)
}

// SweepFiles implements shelf.
func (h *host) SweepFiles(ctx context.Context, dry bool) (engine.Swept, error) {
	return h.engine.Sweep(ctx, dry)
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
func serveFiles(mux *http.ServeMux, on func(op string, fn func(ctx context.Context, in *ask) (any, error)), s shelf) {
	on("file-find", func(ctx context.Context, in *ask) (any, error) { return s.FindFile(ctx, in.File.Hash) })
	on("file-list", func(ctx context.Context, in *ask) (any, error) { return s.ListFiles(ctx, in.File.Query) })
	on("file-rm", func(ctx context.Context, in *ask) (any, error) { return nil, s.RemoveFile(ctx, in.File.Hash) })
	on("file-gc", func(ctx context.Context, in *ask) (any, error) { return s.SweepFiles(ctx, in.File.Dry) })
	mux.HandleFunc("POST /file-put", func(w http.ResponseWriter, r *http.Request) {
		info, err := s.PutFile(r.Context(), r.Body, r.URL.Query().Get("name"))
		if err != nil {
			answerError(w, err)
			return
		}
		_ = json.NewEncoder(w).Encode(info) // the other side has gone
	})
	mux.HandleFunc("POST /file-get", func(w http.ResponseWriter, r *http.Request) {
		var in ask
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCall)).Decode(&in); err != nil {
			answerError(w, fault.New(fault.Usage, "socket: %v", err))
			return
		}
		f, err := s.ReadFile(r.Context(), in.File.Hash, in.File.From, in.File.N)
		if err != nil {
			answerError(w, err)
			return
		}
		defer func() { _ = f.Close() }()
		w.Header().Set("Trailer", trailerDone+", "+trailerError)
		if _, err := io.Copy(w, f); err != nil {
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

// slow is the client for calls that take as long as a large file does.
func (r *remote) slow() *http.Client {
	t, ok := r.client.Transport.(*http.Transport)
	if !ok {
		return r.client
	}
	t = t.Clone()
	t.ResponseHeaderTimeout = largeAnswer
	return &http.Client{Transport: t}
}

// PutFile implements shelf.
func (r *remote) PutFile(ctx context.Context, body io.Reader, name string) (info action.FileInfo, err error) {
	src := &source{r: body}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://roux/file-put?name="+url.QueryEscape(name), io.NopCloser(src))
	if err != nil {
		return info, fmt.Errorf("socket: %w", err)
	}
	res, err := r.slow().Do(req)
	if src.err != nil {
		return info, src.err // it is our side that failed
	}
	if err != nil {
		return info, r.unreachable(err)
	}
	defer res.Body.Close()
	if err := r.refusal(res); err != nil {
		return info, err
	}
	if err := json.NewDecoder(res.Body).Decode(&info); err != nil {
		return info, r.unreachable(err)
	}
	return info, nil
}

// source remembers why the user's file could not be read: the transport only
// says that the request broke off.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// ReadFile implements shelf.
func (r *remote) ReadFile(ctx context.Context, hash string, from, n int64) (io.ReadCloser, error) {
	res, err := r.post(ctx, r.slow(), "file-get", ask{File: fileAsk{Hash: hash, From: from, N: n}})
	if err != nil {
		return nil, err
	}
	if err := r.refusal(res); err != nil {
		_ = res.Body.Close()
		return nil, err
	}
	return &streamed{remote: r, res: res}, nil
}

// streamed is a file that comes through the socket. It ends well only when the
// other side said so.
type streamed struct {
	remote *remote
	res    *http.Response
}

func (s *streamed) Close() error { return s.res.Body.Close() }

func (s *streamed) Read(p []byte) (int, error) {
	n, err := s.res.Body.Read(p)
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, s.remote.unreachable(err)
	}
	if text := s.res.Trailer.Get(trailerError); text != "" {
		var e errorObject
		if json.Unmarshal([]byte(text), &e) == nil && e.Code != "" {
			return n, fault.New(e.Code, "%s", e.Message)
		}
	}
	if s.res.Trailer.Get(trailerDone) == "" {
		return n, s.remote.unreachable(io.ErrUnexpectedEOF)
	}
	return n, io.EOF
}

// FindFile implements shelf.
func (r *remote) FindFile(ctx context.Context, begin string) (shelved, error) {
	return call[shelved](ctx, r, "file-find", ask{File: fileAsk{Hash: begin}})
}

// ListFiles implements shelf.
func (r *remote) ListFiles(ctx context.Context, q blob.Query) ([]blob.Entry, error) {
	return callWith[[]blob.Entry](ctx, r, r.slow(), "file-list", ask{File: fileAsk{Query: q}})
}

// RemoveFile implements shelf.
func (r *remote) RemoveFile(ctx context.Context, hash string) error {
	_, err := call[any](ctx, r, "file-rm", ask{File: fileAsk{Hash: hash}})
	return err
}

// SweepFiles implements shelf.
func (r *remote) SweepFiles(ctx context.Context, dry bool) (engine.Swept, error) {
	return callWith[engine.Swept](ctx, r, r.slow(), "file-gc", ask{File: fileAsk{Dry: dry}})
}

// openRegular opens a file of the user's for reading. A pipe or a device is
// named before it is opened: to open one can wait for ever, and to read one can
// go on for ever.
func openRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, fileError(path, fault.FileNotFound, err)
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return nil, 0, fault.New(fault.FileNotFound, "%s is a directory: name a file in it, or all of them with %s", path, shellWord(filepath.Join(path, "*")))
	case !mode.IsRegular():
		return nil, 0, fault.New(fault.FileInvalid, "%s is %s and no regular file: what comes out of it is given with `… | roux files put -`", path, kindOf(mode))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fileError(path, fault.FileNotFound, err)
	}
	opened, err := f.Stat()
	if err == nil && !os.SameFile(info, opened) {
		err = errors.New("it was replaced while it was opened: try again")
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, fileError(path, fault.FileNotFound, err)
	}
	return f, opened.Size(), nil
}

func kindOf(mode os.FileMode) string {
	switch {
	case mode&os.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&os.ModeSocket != 0:
		return "a socket"
	case mode&os.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}
