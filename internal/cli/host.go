// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/control"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/store"
)

// patience is how long a command waits for one that holds the directory
// without a socket: that one only looks, and is gone in a moment.
const patience = 2 * time.Second

// datadir.Files is where a data directory keeps its files.

// openStore opens the data directory for this process alone.
func (a *app) openStore(ctx context.Context, dir string) (st node.Store, err error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fault.New(fault.Usage, "%s is not a directory: --data and ROUX_DATA name one", dir)
	}
	for deadline := a.now().Add(patience); ; {
		st, err = node.OpenStore(ctx, dir)
		if !errors.Is(err, fault.StoreLocked) || a.now().After(deadline) {
			if err != nil {
				return nil, datadir.Error(dir, notAsked(dir, err))
			}
			if n := st.Unfinished(); n > 0 {
				a.log.Warn("a commit that was never answered was dropped, as after a power cut", "dir", dir, "pages", n)
			}
			return st, nil
		}
		if r := control.Dial(ctx, dir); r != nil {
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
	if _, why := control.Socket(dir); why != nil && !errors.Is(why, fs.ErrNotExist) {
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
	dir, err := a.config.DataDir()
	if err != nil {
		return err
	}
	if err := datadir.MustExist(dir); err != nil {
		return err
	}
	if r := control.Dial(ctx, dir); r != nil {
		a.log.Debug("reading through the process that holds the data directory", "dir", dir)
		return fn(ctx, r)
	}
	a.log.Debug("data directory", "dir", dir)
	st, err := a.openStore(ctx, dir)
	if errors.Is(err, fault.StoreLocked) {
		// It may have begun to listen since we first looked.
		if r := control.Dial(ctx, dir); r != nil {
			return fn(ctx, r)
		}
	}
	if err != nil {
		return err
	}
	err = fn(ctx, st)
	return errors.Join(err, datadir.Error(dir, st.Close()))
}

// A host is a node on a data directory, with the socket that lets other commands of
// the same user reach it.
type host struct {
	control.Local
	dir    string
	failed chan error // holds the first error of a commit, for the person who waits
	unhook func()     // closes the socket
	closed bool
}

// errAtOnce: the user would not wait for an orderly stop.
var errAtOnce = errors.New("stopped at once")

// openHost opens the data directory with an engine. choose names the runs there that
// the engine carries on; it is asked before the engine begins. Others rest, as Ctrl-C
// promised: they must not go on because another one is started in their directory.
func (a *app) openHost(ctx context.Context, choose func(context.Context, store.Reader) ([]store.Head, error)) (*host, error) {
	engine.SetGC(a.getenv("GOGC"))
	dir, err := a.config.DataDir()
	if err != nil {
		return nil, err
	}
	st, err := a.openStore(ctx, dir)
	if err != nil {
		return nil, err
	}
	a.log.Debug("data directory", "dir", dir)
	chosen := map[store.Key]bool{}
	if choose != nil {
		heads, err := choose(ctx, st)
		if err != nil {
			return nil, errors.Join(err, st.Close())
		}
		for _, head := range heads {
			chosen[head.Key] = true
		}
	}
	h := &host{Local: control.Local{Reader: st}, dir: dir, failed: make(chan error, 1), unhook: func() {}}
	if h.Node, err = node.Open(ctx, st, node.Config{
		Dir: dir, Actions: a.actions, Retention: a.config.Retention(), Concurrency: a.config.Number("concurrency"), Logger: a.log,
		Select: func(key store.Key) bool { return chosen[key] }, CommitFailed: h.commitFailed,
	}); err != nil {
		return nil, datadir.Error(dir, err)
	}
	if h.unhook, err = control.Serve(dir, st, h, h); err != nil {
		h.unhook = func() {}
		return nil, errors.Join(datadir.Error(dir, err), h.stop(0))
	}
	return h, nil
}

// commitFailed keeps the first error of a commit.
func (h *host) commitFailed(err error) {
	select {
	case h.failed <- err:
	default:
	}
}

// start begins a run; it is durable when start returns.
func (h *host) start(ctx context.Context, c *compiled, params map[string]any, files []action.FileInfo) (string, error) {
	req := engine.StartRequest{
		Account: account, Plan: c.plan, Recipe: c.recipe.Name, Version: c.recipe.Version, Parameters: params,
	}
	for _, f := range files {
		req.Files = append(req.Files, journal.File{Hash: f.Hash, Name: f.Name, MimeType: f.MimeType, Size: f.Size, Extended: f.Extended})
	}
	started, err := h.Node.Engine.Start(ctx, req)
	return started.Run, err
}

// watch is a watcher.
func (h *host) watch(ctx context.Context, run string, after uint64, fn func(*journal.Event) error) error {
	for {
		last, ended := after, false
		for ev, err := range h.Node.Engine.Watch(ctx, account, run, after) {
			if err == nil {
				last, ended = ev.Seq, ev.Kind.Ends()
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

// failure is why the engine ended by itself; nil while it runs.
func (h *host) failure() error { return h.Node.Engine.Err() }

// refused is an answer of the engine; where a commit failed, what failed it.
func (h *host) refused(err error) error {
	select {
	case cause := <-h.failed:
		return h.lost(cause)
	default:
		return datadir.Error(h.dir, err)
	}
}

// lost is what to say when a commit failed. The engine would go on trying; a
// person at a terminal wants to know, and can go on with `resume`. Nothing is
// waited for: the process ends, which is what the store is made for.
func (h *host) lost(err error) error {
	h.closed = true
	return datadir.Error(h.dir, err)
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
	return datadir.Error(h.dir, h.Node.Stop(ctx))
}

// lastEvent is the number of the run's last event.
func lastEvent(ctx context.Context, j store.Reader, key store.Key) (uint64, error) {
	page, err := j.Events(ctx, key, 0, 1)
	return page.Last, err
}
