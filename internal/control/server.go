// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/local"
	"github.com/roux-engine/roux/internal/store"
)

const (
	// maxCall is the size of the largest request.
	maxCall = 16 << 20
	// maxListed is the number of files in one answer. It is also the largest --limit.
	maxListed = 10_000
	// maxChanges is the number of changes in one answer.
	maxChanges = 1_000
)

// How long the server waits for a client. Tests shorten these times.
var (
	// callTime bounds the time to receive a request and the time to send an answer.
	callTime = 15 * time.Second
	// idleTime bounds the time without progress while a file is streamed. It is
	// long, because a user may pipe a file in or out slowly.
	idleTime = time.Hour
)

// A request holds the fields of all operations. Each operation reads its own.
type request struct {
	Key     store.Key     `json:"key"`
	Query   store.Query   `json:"query"`
	After   uint64        `json:"after"`
	Max     int           `json:"max"`
	Hash    string        `json:"hash"`
	Name    string        `json:"name"`
	File    fileRequest   `json:"file,omitzero"`
	Credits creditRequest `json:"credits,omitzero"`
}

// newest is the answer to a request of that name.
type newest struct {
	Last    uint64 `json:"last"`
	Expired uint64 `json:"expired"`
}

// Serve answers other commands of the same user while this process holds the
// directory. Requests about files, and those that change something, go to the service of
// their account. What is no operation of theirs goes to api; nil = nothing answers it. The
// returned function stops it.
func Serve(dir string, r Reader, of func(account string) Service, api http.Handler) (stop func(), err error) {
	ln, cleanup, err := local.Listen(dir)
	if err != nil {
		return nil, err
	}
	j := NewMasked(r)
	mux := http.NewServeMux()
	on := func(op string, fn func(ctx context.Context, in *request) (any, error)) {
		mux.HandleFunc("POST /"+op, func(w http.ResponseWriter, r *http.Request) {
			in, err := decode(w, r)
			if err != nil {
				replyError(w, err)
				return
			}
			out, err := fn(r.Context(), in)
			if err != nil {
				replyError(w, err)
				return
			}
			reply(w, http.StatusOK, out)
		})
	}
	on("head", func(ctx context.Context, in *request) (any, error) { return j.Head(ctx, in.Key) })
	on("list", func(ctx context.Context, in *request) (any, error) { return j.List(ctx, in.Query) })
	on("events", func(ctx context.Context, in *request) (any, error) { return j.Events(ctx, in.Key, in.After, in.Max) })
	on("load", func(ctx context.Context, in *request) (any, error) { return j.Load(ctx, in.Key) })
	on("plan", func(ctx context.Context, in *request) (any, error) { return j.Plan(ctx, in.Hash) })
	on("changes", func(ctx context.Context, in *request) (any, error) {
		return r.Changes(ctx, in.Key.Account, in.After, min(in.Max, maxChanges)) // they have nothing to mask
	})
	on("newest", func(ctx context.Context, in *request) (any, error) {
		last, expired, err := r.Newest(ctx, in.Key.Account)
		return newest{last, expired}, err
	})
	serveFiles(mux, on, of)
	mux.HandleFunc("POST /backup", func(w http.ResponseWriter, r *http.Request) { serveBackup(w, r, of) })
	serveCredits(on, r, of)
	if api != nil {
		mux.Handle("/", api)
	}
	// Errors of connections are not logged: they would appear between the lines that
	// show the run.
	server := &http.Server{Handler: mux, ReadHeaderTimeout: callTime, IdleTimeout: 2 * time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(ln) }) // ends with the function below
	return func() {
		// The command that ended the run may still be waiting for its answer.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		done.Wait()
		cleanup()
	}, nil
}

// decode reads a request and bounds what is asked for. A client may name any account:
// whoever reaches the socket is the user who owns the directory, and could open it. The
// server removes the deadline once the request has been read, and reads on to notice
// that the client has gone.
func decode(w http.ResponseWriter, r *http.Request) (*request, error) {
	ctl := http.NewResponseController(w)
	if err := ctl.SetReadDeadline(time.Now().Add(callTime)); err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	var in request
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCall))
	if err == nil {
		err = json.Unmarshal(text, &in)
	}
	if err != nil {
		return nil, fault.New(fault.Usage, "socket: %v", err)
	}
	in.Key.Account = cmp.Or(in.Key.Account, config.Account)
	in.Query.Account = cmp.Or(in.Query.Account, config.Account)
	in.Max = min(max(in.Max, 1), store.PageBytes)
	in.Query.Limit = in.Query.Cap()
	in.File.Query.Limit = min(max(in.File.Query.Limit, 0), maxListed)
	return &in, nil
}

// reply sends an answer. It ignores write errors, because the client has gone.
func reply(w http.ResponseWriter, status int, v any) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(callTime))
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// A wireError is an error in an answer.
type wireError struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
	// Remedy and Limit are those of the error itself. Older clients do not read them.
	Remedy string       `json:"remedy,omitempty"`
	Limit  *fault.Limit `json:"limit,omitempty"`
}

func replyError(w http.ResponseWriter, err error) {
	out := wireError{Code: fault.CodeOf(err), Message: fault.Message(err)}
	var e *fault.Error
	if errors.As(err, &e) {
		out.Remedy, out.Limit = e.Remedy, e.Limit
	}
	reply(w, http.StatusConflict, out)
}

// A fileRequest is the part of a request about files.
type fileRequest struct {
	Hash  string     `json:"hash,omitempty"`
	From  int64      `json:"from,omitempty"`
	N     int64      `json:"n,omitempty"`
	Query blob.Query `json:"query,omitzero"`
	Dry   bool       `json:"dry,omitempty"`
}

// serveFiles adds the operations on files.
func serveFiles(mux *http.ServeMux, on func(op string, fn func(ctx context.Context, in *request) (any, error)), of func(account string) Service) {
	on("file-find", func(ctx context.Context, in *request) (any, error) {
		return of(in.Key.Account).FindFile(ctx, in.File.Hash)
	})
	on("file-list", func(ctx context.Context, in *request) (any, error) {
		return of(in.Key.Account).ListFiles(ctx, in.File.Query)
	})
	on("file-rm", func(ctx context.Context, in *request) (any, error) {
		return nil, of(in.Key.Account).RemoveFile(ctx, in.File.Hash)
	})
	on("file-gc", func(ctx context.Context, in *request) (any, error) {
		return of(in.Key.Account).CleanFiles(ctx, in.File.Dry)
	})
	mux.HandleFunc("POST /file-put", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		info, err := of(cmp.Or(q.Get("account"), config.Account)).PutFile(r.Context(), &arriving{r.Body, http.NewResponseController(w)}, q.Get("name"))
		if err != nil {
			replyError(w, err)
			return
		}
		reply(w, http.StatusOK, info)
	})
	mux.HandleFunc("POST /file-get", func(w http.ResponseWriter, r *http.Request) {
		in, err := decode(w, r)
		if err != nil {
			replyError(w, err)
			return
		}
		f, err := of(in.Key.Account).ReadFile(r.Context(), in.File.Hash, in.File.From, in.File.N)
		if err != nil {
			replyError(w, err)
			return
		}
		defer func() { _ = f.Close() }()
		w.Header().Set("Trailer", trailerDone+", "+trailerError)
		if _, err := io.Copy(&leaving{w, http.NewResponseController(w)}, f); err != nil {
			text, merr := json.Marshal(wireError{Code: fault.CodeOf(err), Message: fault.Message(err)})
			if merr != nil {
				text = nil // the stream then counts as cut off
			}
			w.Header().Set(trailerError, string(text))
			return
		}
		w.Header().Set(trailerDone, "yes")
	})
}

// arriving is the body of an upload. Reading fails when nothing arrives for
// idleTime.
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

// leaving is the target of a download. Writing fails when the client takes
// nothing for idleTime.
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
