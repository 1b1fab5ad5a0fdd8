// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// A runControl is what commands that change a run ask of the engine. Each returns
// once the change is durable.
type runControl interface {
	Cancel(ctx context.Context, run, reason string) error
	Retry(ctx context.Context, run string, req engine.RetryRequest) error
	Signal(ctx context.Context, run, name string, data json.RawMessage) error
	Release(ctx context.Context, run string) error
}

const (
	// maxCall is the largest request, maxCallers how many are served at a time.
	maxCall    = 16 << 20
	maxCallers = 64
	// maxListed is how many files one answer lists; --limit ends there too.
	maxListed = 10_000
)

// How long this end waits for the other one. Tests shorten them.
var (
	// callTime is how long a request may take to arrive, and an answer to leave.
	callTime = 15 * time.Second
	// idleTime is how long a stream of a file's bytes may stand still: what a
	// user pipes into a command, or reads out of one, has its own pace.
	idleTime = time.Hour
)

// ask is the one request of the socket; each operation reads its fields.
type ask struct {
	Key    store.Key       `json:"key"`
	Query  store.Query     `json:"query"`
	After  uint64          `json:"after"`
	Max    int             `json:"max"`
	Hash   string          `json:"hash"`
	Reason string          `json:"reason"`
	From   string          `json:"from"`
	Set    json.RawMessage `json:"set,omitempty"`
	Limits plan.Limits     `json:"limits,omitzero"`
	Name   string          `json:"name"`
	Data   json.RawMessage `json:"data,omitempty"`
	File   fileAsk         `json:"file,omitzero"`
}

// serve answers other commands of the same user while this process holds the
// directory. The returned function stops it.
func serve(dir string, j store.Reader, h runControl, s fileService) (stop func(), err error) {
	ln, cleanup, err := listen(dir)
	if err != nil {
		return nil, err
	}
	j = newMaskedJournal(j)
	mux := http.NewServeMux()
	on := func(op string, fn func(ctx context.Context, in *ask) (any, error)) {
		mux.HandleFunc("POST /"+op, func(w http.ResponseWriter, r *http.Request) {
			in, err := question(w, r)
			if err != nil {
				answerError(w, err)
				return
			}
			out, err := fn(r.Context(), in)
			if err != nil {
				answerError(w, err)
				return
			}
			answer(w, http.StatusOK, out)
		})
	}
	on("head", func(ctx context.Context, in *ask) (any, error) { return j.Head(ctx, in.Key) })
	on("list", func(ctx context.Context, in *ask) (any, error) { return j.List(ctx, in.Query) })
	on("events", func(ctx context.Context, in *ask) (any, error) { return j.Events(ctx, in.Key, in.After, in.Max) })
	on("load", func(ctx context.Context, in *ask) (any, error) { return j.Load(ctx, in.Key) })
	on("plan", func(ctx context.Context, in *ask) (any, error) { return j.Plan(ctx, in.Hash) })
	on("cancel", func(ctx context.Context, in *ask) (any, error) {
		return nil, h.Cancel(ctx, in.Key.Run, in.Reason)
	})
	on("retry", func(ctx context.Context, in *ask) (any, error) {
		set, err := decodeSet(in.Set)
		if err != nil {
			return nil, err
		}
		return nil, h.Retry(ctx, in.Key.Run, engine.RetryRequest{From: in.From, Edits: set, Limits: in.Limits})
	})
	on("signal", func(ctx context.Context, in *ask) (any, error) {
		return nil, h.Signal(ctx, in.Key.Run, in.Name, in.Data)
	})
	on("release", func(ctx context.Context, in *ask) (any, error) { return nil, h.Release(ctx, in.Key.Run) })
	serveFiles(mux, on, s)
	// What its connections suffer is not the user's to read: it would stand among
	// the lines of the run.
	server := &http.Server{Handler: mux, ReadHeaderTimeout: callTime, IdleTimeout: 2 * time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(ln) }) // ends with the function below
	return func() {
		// Whoever steered the run to its end is still waiting for the answer.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		done.Wait()
		cleanup()
	}, nil
}

// question reads a request; the server lifts the deadline when all of it has
// come, and reads on to learn that the caller has gone. Whose runs it is about is not the caller's to say,
// and what it asks for has a bound.
func question(w http.ResponseWriter, r *http.Request) (*ask, error) {
	ctl := http.NewResponseController(w)
	if err := ctl.SetReadDeadline(time.Now().Add(callTime)); err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	var in ask
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCall))
	if err == nil {
		err = json.Unmarshal(text, &in)
	}
	if err != nil {
		return nil, fault.New(fault.Usage, "socket: %v", err)
	}
	in.Key.Account, in.Query.Account = account, account
	in.Max = min(max(in.Max, 1), store.PageBytes)
	in.Query.Limit = in.Query.Cap()
	in.File.Query.Limit = min(max(in.File.Query.Limit, 0), maxListed)
	return &in, nil
}

// answer ends a request. That it cannot be written means that the caller has gone.
func answer(w http.ResponseWriter, status int, v any) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(callTime))
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func answerError(w http.ResponseWriter, err error) {
	answer(w, http.StatusConflict, errorObject{Code: fault.CodeOf(err), Message: fault.Message(err)})
}
