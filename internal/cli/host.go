// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// patience is how long a command waits for one that holds the directory
// without a socket: that one only looks, and is gone in a moment.
const patience = 2 * time.Second

// filesDir is where a data directory keeps its files.
const filesDir = datadir.Files

// openStore opens the data directory for this process alone.
func (a *app) openStore(ctx context.Context, dir string) (st *sqlite.Store, err error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fault.New(fault.Usage, "%s is not a directory: --data and ROUX_DATA name one", dir)
	}
	for deadline := a.now().Add(patience); ; {
		st, err = sqlite.Open(ctx, sqlite.Options{Dir: dir})
		if !errors.Is(err, fault.StoreLocked) || a.now().After(deadline) {
			if err != nil {
				return nil, storageError(dir, notAsked(dir, err))
			}
			if n := st.Unfinished(); n > 0 {
				a.log.Warn("a commit that was never answered was dropped, as after a power cut", "dir", dir, "pages", n)
			}
			return st, nil
		}
		if r := dial(ctx, dir); r != nil {
			return nil, err
		}
		if !pause(ctx, 20*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// notAsked adds to an error about a directory that is held why its holder was
// not asked.
func notAsked(dir string, err error) error {
	if !errors.Is(err, fault.StoreLocked) {
		return err
	}
	if _, why := socketOf(dir); why != nil && !errors.Is(why, fs.ErrNotExist) {
		return fault.Wrap(fault.StoreLocked, err, "%s; it was not asked: %v", fault.Message(err), why)
	}
	return err
}

// pause waits, unless the context ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// reading opens the data directory for a command that only looks: through the
// process that holds it, or else directly. It advances nothing.
func (a *app) reading(ctx context.Context, fn func(ctx context.Context, j store.Reader) error) error {
	dir, err := a.dataDir()
	if err != nil {
		return err
	}
	if err := mustExist(dir); err != nil {
		return err
	}
	if r := dial(ctx, dir); r != nil {
		a.log.Debug("reading through the process that holds the data directory", "dir", dir)
		return fn(ctx, r)
	}
	a.log.Debug("data directory", "dir", dir)
	st, err := a.openStore(ctx, dir)
	if errors.Is(err, fault.StoreLocked) {
		// It may have begun to listen since we first looked.
		if r := dial(ctx, dir); r != nil {
			return fn(ctx, r)
		}
	}
	if err != nil {
		return err
	}
	err = fn(ctx, st)
	return errors.Join(err, storageError(dir, st.Close()))
}

// A host is an engine on a data directory, with the socket that lets other
// commands of the same user reach it.
type host struct {
	store.Reader
	dir    string
	store  *chosen
	files  *blob.Store
	engine *engine.Engine
	unhook func() // closes the socket
	closed bool
}

var _ runControl = (*host)(nil)

// errAtOnce: the user would not wait for an orderly stop.
var errAtOnce = errors.New("stopped at once")

// openHost opens the data directory with an engine. choose names the runs that
// the engine may take up; it is asked before the engine begins.
func (a *app) openHost(ctx context.Context, choose func(ctx context.Context, c *chosen) error) (*host, error) {
	engine.SetGC(a.getenv("GOGC"))
	dir, err := a.dataDir()
	if err != nil {
		return nil, err
	}
	st, err := a.openStore(ctx, dir)
	if err != nil {
		return nil, err
	}
	a.log.Debug("data directory", "dir", dir)
	h := &host{Reader: st, dir: dir, store: newChosen(st), unhook: func() {}}
	if choose != nil {
		if err := choose(ctx, h.store); err != nil {
			return nil, errors.Join(err, st.Close())
		}
	}
	if h.files, err = blob.Open(blob.Config{Dir: filepath.Join(dir, filesDir), Inspect: builtin.AtUpload()}); err != nil {
		return nil, errors.Join(storageError(dir, err), st.Close())
	}
	if h.engine, err = engine.Open(ctx, engine.Config{
		Store: h.store, Actions: a.actions, Blobs: h.files, Retention: a.retention(), Concurrency: a.number("concurrency"), Logger: a.log,
	}); err != nil {
		return nil, errors.Join(storageError(dir, err), h.files.Close(), st.Close())
	}
	if h.unhook, err = serve(dir, st, h, h); err != nil {
		h.unhook = func() {}
		return nil, errors.Join(storageError(dir, err), h.stop(0))
	}
	return h, nil
}

// put keeps a file for the account.
func (h *host) put(ctx context.Context, r io.Reader, name string) (action.FileInfo, error) {
	return h.files.Put(ctx, account, r, name, "")
}

// start begins a run; it is durable when start returns.
func (h *host) start(ctx context.Context, c *compiled, params map[string]any, files []action.FileInfo) (string, error) {
	req := engine.StartRequest{
		Account: account, Plan: c.plan, Recipe: c.recipe.Name, Version: c.recipe.Version, Parameters: params,
	}
	for _, f := range files {
		req.Files = append(req.Files, journal.File{Hash: f.Hash, Name: f.Name, MimeType: f.MimeType, Size: f.Size, Extended: f.Extended})
	}
	started, err := h.engine.Start(ctx, req)
	return started.Run, err
}

// watch is a watcher.
func (h *host) watch(ctx context.Context, run string, after uint64, fn func(*journal.Event) error) error {
	for {
		last, ended := after, false
		for ev, err := range h.engine.Watch(ctx, account, run, after) {
			if err == nil {
				last, ended = ev.Seq, terminal(ev.Event)
				err = fn(ev.Event)
			}
			if err != nil {
				return err
			}
		}
		if ended || last == after || ctx.Err() != nil {
			return ctx.Err()
		}
		// The run ended while its journal was being read.
		after = last
	}
}

// terminal says that the event ends a run, until a retry opens it again.
func terminal(ev *journal.Event) bool {
	return ev.Kind >= journal.EvRunCompleted && ev.Kind <= journal.EvRunExpired
}

// Cancel implements runControl.
func (h *host) Cancel(ctx context.Context, run, reason string) error {
	return h.engine.Cancel(ctx, account, run, reason)
}

// Retry implements runControl.
func (h *host) Retry(ctx context.Context, run string, req engine.RetryRequest) error {
	return h.engine.Retry(ctx, account, run, req)
}

// Signal implements runControl.
func (h *host) Signal(ctx context.Context, run, name string, data json.RawMessage) error {
	var v any
	if len(data) > 0 {
		var err error
		if v, err = jsonx.Decode(data, jsonx.Limits{}); err != nil {
			return fault.Wrap(fault.Usage, err, "the signal's payload is no JSON: %v", err)
		}
	}
	return h.engine.Signal(ctx, account, run, name, v)
}

// Release implements runControl.
func (h *host) Release(ctx context.Context, run string) error {
	return h.engine.Release(ctx, account, run)
}

// failure is why the engine ended by itself; nil while it runs.
func (h *host) failure() error { return h.engine.Err() }

// refused is an answer of the engine; where a commit failed, what failed it.
func (h *host) refused(err error) error {
	select {
	case cause := <-h.store.failed:
		return h.lost(cause)
	default:
		return storageError(h.dir, err)
	}
}

// lost is what to say when a commit failed. The engine would go on trying; a
// person at a terminal wants to know, and can go on with `resume`. Nothing is
// waited for: the process ends, which is what the store is made for.
func (h *host) lost(err error) error {
	h.closed = true
	return storageError(h.dir, err)
}

// close stops the engine in order. What a second signal interrupts is as safe
// as after a crash; the process is expected to end then.
func (h *host) close(sigs <-chan os.Signal) error {
	if h.closed {
		return nil
	}
	h.closed = true
	done := make(chan error, 1)
	go func() { done <- h.stop(grace) }()
	select {
	case err := <-done:
		return err
	case <-sigs:
		return errAtOnce
	}
}

// finish closes what has done all its work. A signal that comes now has nothing to
// interrupt: it ends the wait, and the command ends as its runs did.
func (h *host) finish(sigs <-chan os.Signal) error {
	if err := h.close(sigs); err != nil && !errors.Is(err, errAtOnce) {
		return err
	}
	return nil
}

// abandon closes what an error left open.
func (h *host) abandon() {
	if !h.closed {
		h.closed = true
		// The error that led here is the one to report.
		_ = h.stop(0)
	}
}

func (h *host) stop(wait time.Duration) error {
	h.unhook()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	_, err := h.engine.Stop(ctx)
	if errors.Is(err, engine.ErrHangs) {
		// The store is inside a write that may never return, and closing it would
		// wait for that. The process ends, which is what the store is made for.
		return err
	}
	if err = errors.Join(err, h.files.Close(), h.store.Close()); err != nil {
		return storageError(h.dir, err)
	}
	return nil
}

// lastEvent is the number of the run's last event.
func lastEvent(ctx context.Context, j store.Reader, key store.Key) (uint64, error) {
	page, err := j.Events(ctx, key, 0, 1)
	return page.Last, err
}
