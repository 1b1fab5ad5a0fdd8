// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// A journal is what commands that only look ask of a data directory. Every
// store.Store is one, and so is the socket of the process that holds it.
type journal interface {
	Head(ctx context.Context, key store.Key) (store.Head, error)
	List(ctx context.Context, q store.Query) ([]store.Head, error)
	Events(ctx context.Context, key store.Key, after uint64, maxBytes int) (store.Page, error)
	Load(ctx context.Context, key store.Key) (*store.Saved, error)
	Plan(ctx context.Context, hash string) ([]byte, error)
}

// A helm is what commands that change a run ask of the engine. Each returns
// once the change is durable.
type helm interface {
	Cancel(ctx context.Context, run, reason string) error
	Retry(ctx context.Context, run, from string, set map[string]any) error
	Signal(ctx context.Context, run, name string, data json.RawMessage) error
	Release(ctx context.Context, run string) error
}

const (
	socketName = "socket"
	// pointerName is a file that names the socket where the directory's own
	// path is longer than the system lets socket names be.
	pointerName   = "socket.path"
	maxSocketPath = 100
	maxCall       = 16 << 20
)

// answerTime is how long the holder of a directory may take to answer. It
// answers from memory or after one commit: one that takes longer is stopped or
// hangs, and whoever asks it must not hang too. Tests shorten it.
var answerTime = 15 * time.Second

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
	Name   string          `json:"name"`
	Data   json.RawMessage `json:"data,omitempty"`
	File   fileAsk         `json:"file,omitzero"`
}

// serve answers other commands of the same user while this process holds the
// directory. The returned function stops it.
func serve(dir string, j journal, h helm, s shelf) (stop func(), err error) {
	ln, cleanup, err := listen(dir)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	on := func(op string, fn func(ctx context.Context, in *ask) (any, error)) {
		mux.HandleFunc("POST /"+op, func(w http.ResponseWriter, r *http.Request) {
			var in ask
			if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCall)).Decode(&in); err != nil {
				answerError(w, fault.New(fault.Usage, "socket: %v", err))
				return
			}
			out, err := fn(r.Context(), &in)
			if err != nil {
				answerError(w, err)
				return
			}
			_ = json.NewEncoder(w).Encode(out) // the other side has gone
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
		return nil, h.Retry(ctx, in.Key.Run, in.From, set)
	})
	on("signal", func(ctx context.Context, in *ask) (any, error) {
		return nil, h.Signal(ctx, in.Key.Run, in.Name, in.Data)
	})
	on("release", func(ctx context.Context, in *ask) (any, error) { return nil, h.Release(ctx, in.Key.Run) })
	serveFiles(mux, on, s)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
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

// listen makes the socket, readable by this user only. A socket that a killed
// process left behind is replaced: the caller holds the directory's lock.
func listen(dir string) (net.Listener, func(), error) {
	path := filepath.Join(dir, socketName)
	cleanup := func() {}
	if len(path) > maxSocketPath {
		short, err := os.MkdirTemp("", "roux-")
		if err != nil {
			return nil, nil, storageError(os.TempDir(), err)
		}
		path = filepath.Join(short, socketName)
		pointer := filepath.Join(dir, pointerName)
		cleanup = func() {
			_ = os.Remove(pointer)
			_ = os.RemoveAll(short)
		}
		if err := os.WriteFile(pointer, []byte(path), 0o600); err != nil {
			cleanup()
			return nil, nil, storageError(dir, err)
		}
	} else if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, storageError(dir, err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		cleanup()
		return nil, nil, storageError(dir, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = ln.Close()
		cleanup()
		return nil, nil, storageError(dir, err)
	}
	return ln, cleanup, nil
}

func answerError(w http.ResponseWriter, err error) {
	w.WriteHeader(http.StatusConflict)
	_ = json.NewEncoder(w).Encode(errorObject{Code: fault.CodeOf(err), Message: fault.Message(err)}) // the other side has gone
}

// remote is a journal and a helm at the other end of a socket.
type remote struct {
	client *http.Client
	dir    string
}

// dial reaches the process that holds dir; nil when none listens.
func dial(ctx context.Context, dir string) *remote {
	path := filepath.Join(dir, socketName)
	if p, err := os.ReadFile(filepath.Join(dir, pointerName)); err == nil {
		path = string(p)
	}
	conn := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	probe, err := conn(ctx, "", "")
	if err != nil {
		return nil
	}
	_ = probe.Close()
	return &remote{&http.Client{Transport: &http.Transport{
		DialContext: conn, DisableCompression: true, ResponseHeaderTimeout: answerTime,
	}}, dir}
}

func call[T any](ctx context.Context, r *remote, op string, in ask) (out T, err error) {
	return callWith[T](ctx, r, r.client, op, in)
}

func callWith[T any](ctx context.Context, r *remote, client *http.Client, op string, in ask) (out T, err error) {
	res, err := r.post(ctx, client, op, in)
	if err != nil {
		return out, err
	}
	defer res.Body.Close()
	if err := r.refusal(res); err != nil {
		return out, err
	}
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		return out, r.unreachable(err)
	}
	return out, nil
}

func (r *remote) post(ctx context.Context, client *http.Client, op string, in ask) (*http.Response, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://roux/"+op, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, r.unreachable(err)
	}
	return res, nil
}

// refusal is the error that an answer carries; nil when it carries a result.
func (r *remote) refusal(res *http.Response) error {
	if res.StatusCode == http.StatusOK {
		return nil
	}
	var e errorObject
	if err := json.NewDecoder(io.LimitReader(res.Body, maxCall)).Decode(&e); err != nil || e.Code == "" {
		return r.unreachable(fmt.Errorf("it answered %s", res.Status))
	}
	return fault.New(e.Code, "%s", strings.ReplaceAll(e.Message, "\x00", ""))
}

func (r *remote) unreachable(err error) error {
	holder := "the process that holds it"
	if pid, _ := os.ReadFile(filepath.Join(r.dir, "lock")); len(bytes.TrimSpace(pid)) > 0 {
		holder = "process " + string(bytes.TrimSpace(pid))
	}
	return fault.Wrap(fault.ServerUnreachable, err, "the data directory %s: %s does not answer: %v", r.dir, holder, err)
}

func (r *remote) Head(ctx context.Context, key store.Key) (store.Head, error) {
	return call[store.Head](ctx, r, "head", ask{Key: key})
}

func (r *remote) List(ctx context.Context, q store.Query) ([]store.Head, error) {
	return call[[]store.Head](ctx, r, "list", ask{Query: q})
}

func (r *remote) Events(ctx context.Context, key store.Key, after uint64, maxBytes int) (store.Page, error) {
	return call[store.Page](ctx, r, "events", ask{Key: key, After: after, Max: maxBytes})
}

func (r *remote) Load(ctx context.Context, key store.Key) (*store.Saved, error) {
	return call[*store.Saved](ctx, r, "load", ask{Key: key})
}

func (r *remote) Plan(ctx context.Context, hash string) ([]byte, error) {
	return call[[]byte](ctx, r, "plan", ask{Hash: hash})
}

func (r *remote) Cancel(ctx context.Context, run, reason string) error {
	_, err := call[any](ctx, r, "cancel", ask{Key: store.Key{Account: account, Run: run}, Reason: reason})
	return err
}

func (r *remote) Retry(ctx context.Context, run, from string, set map[string]any) error {
	fields, err := json.Marshal(set)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	_, err = call[any](ctx, r, "retry", ask{Key: store.Key{Account: account, Run: run}, From: from, Set: fields})
	return err
}

func (r *remote) Signal(ctx context.Context, run, name string, data json.RawMessage) error {
	_, err := call[any](ctx, r, "signal", ask{Key: store.Key{Account: account, Run: run}, Name: name, Data: data})
	return err
}

func (r *remote) Release(ctx context.Context, run string) error {
	_, err := call[any](ctx, r, "release", ask{Key: store.Key{Account: account, Run: run}})
	return err
}
