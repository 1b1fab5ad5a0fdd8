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
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/local"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/secrets"
	"github.com/roux-engine/roux/internal/service"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/telemetry"
)

// patience is how long a command waits for another one that holds the directory and cannot do
// its work: without a socket, that one only reads and will end soon; with one, it does not serve.
const patience = 2 * time.Second

// dial connects to the process that holds a data directory, on behalf of the account.
func (a *app) dial(ctx context.Context, dir string) *remote.Holder {
	return remote.Dial(ctx, dir, a.account, a.agent())
}

// openStore opens the data directory for this process alone. It waits for a process that only
// reads; one that answers requests is an error at once, because the caller can ask it.
func (a *app) openStore(ctx context.Context, dir string) (node.Store, error) {
	return a.openWithin(ctx, dir, func(error) bool { return a.dial(ctx, dir) == nil })
}

// openWithin opens the data directory for this process alone. While another process holds it,
// and for as long as patience, waits decides whether to try again.
func (a *app) openWithin(ctx context.Context, dir string, waits func(error) bool) (st node.Store, err error) {
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
		if !waits(err) {
			return nil, err
		}
		if !pause(ctx, 20*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// notAsked adds to a StoreLocked error why the holder was not asked.
func notAsked(dir string, err error) error {
	if !errors.Is(err, fault.StoreLocked) {
		return err
	}
	if _, why := local.Socket(dir); why != nil && !errors.Is(why, fs.ErrNotExist) {
		return fault.Wrap(fault.StoreLocked, err, "%s; it was not asked: %v", fault.Message(err), why)
	}
	return err
}

// pause waits for d. It returns false when the context ends first.
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

// reading calls fn with a reader of the server or the data directory, for a command that
// changes nothing. It reads through the process that holds the directory, if there is one.
func (a *app) reading(ctx context.Context, fn func(ctx context.Context, j store.Reader) error) error {
	return a.readingAll(ctx, func(ctx context.Context, r remote.Reader) error { return fn(ctx, r) })
}

// readingAll is reading for a command that also reads credits or what changes.
func (a *app) readingAll(ctx context.Context, fn func(ctx context.Context, r remote.Reader) error) error {
	if s, err := a.reach(ctx); err != nil {
		return err
	} else if s != nil {
		return fn(ctx, s)
	}
	dir, err := a.config.DataDir()
	if err != nil {
		return err
	}
	if err := datadir.MustExist(dir); err != nil {
		return err
	}
	if r := a.dial(ctx, dir); r != nil {
		a.log.Debug("reading through the process that holds the data directory", "dir", dir)
		return fn(ctx, r)
	}
	a.log.Debug("data directory", "dir", dir)
	st, err := a.openStore(ctx, dir)
	if errors.Is(err, fault.StoreLocked) {
		// A holder may have started to listen since the first Dial.
		if r := a.dial(ctx, dir); r != nil {
			return fn(ctx, r)
		}
	}
	if err != nil {
		return err
	}
	err = fn(ctx, st)
	return errors.Join(err, datadir.Error(dir, st.Close()))
}

// A host is a service in this process, with the socket through which other commands
// of the same user reach it.
type host struct {
	remote.Directory
	a         *app
	guests    guests
	svc       *service.Service
	pipe      *local.Pipe // serves this process
	dir       string
	telemetry *telemetry.Telemetry // nil = none
	failed    chan error           // holds the first error of a commit
	closed    bool
}

// errAtOnce is returned when the user does not wait for an orderly stop.
var errAtOnce = errors.New("stopped at once")

// openHost opens the data directory with an engine. choose returns the runs that
// the engine carries on; it is called before the engine starts. All others stay as
// they are, because a user who interrupted a run does not expect it to continue
// when another one is started in the same directory.
func (a *app) openHost(ctx context.Context, choose func(context.Context, store.Reader) ([]store.Head, error)) (*host, error) {
	return a.openIdle(ctx, false, choose)
}

// openIdle is openHost for a command that only changes runs, if idle is true: no attempt
// of theirs begins.
func (a *app) openIdle(ctx context.Context, idle bool, choose func(context.Context, store.Reader) ([]store.Head, error)) (*host, error) {
	node.SetGC(a.getenv("GOGC"))
	dir, err := a.config.DataDir()
	if err != nil {
		return nil, err
	}
	st, err := a.openStore(ctx, dir)
	if err != nil {
		return nil, err
	}
	a.log.Debug("data directory", "dir", dir)
	selected := map[store.Key]bool{}
	if choose != nil {
		heads, err := choose(ctx, st)
		if err != nil {
			return nil, errors.Join(err, st.Close())
		}
		for _, head := range heads {
			selected[head.Key] = true
		}
	}
	h := &host{a: a, dir: dir, failed: make(chan error, 1)}
	nesting := a.config.Nesting()
	cfg := service.Config{
		Node: node.Config{
			Dir: dir, Actions: a.built, Retention: a.config.Retention(), Concurrency: a.config.Number("concurrency"), Logger: a.log, Accounts: a.rules(), Secrets: a.secretsIn(dir), Sealer: secrets.NewSealer(dir, a.getenv), Workspaces: nesting.Workspaces, Resolve: program.ResolveWith(a.resolveOptions),
			Select: func(key store.Key) bool { return selected[key] }, Idle: idle, CommitFailed: h.commitFailed,
		},
		Local: true, Take: h.guests.take, Account: config.Account, MaxSource: maxSource, Rate: -1, Release: thisBuild().Version, Build: thisBuild().short(), Limits: nesting.Limits, NoRefs: nesting.NoRegistry,
	}
	if h.telemetry, err = a.telemetry(ctx, false); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	if h.telemetry != nil {
		cfg.Node.Observer = h.telemetry
	}
	if h.svc, err = service.Open(ctx, st, cfg); err != nil {
		return nil, datadir.Error(dir, err)
	}
	h.Directory = remote.Directory{Reader: st, Node: h.svc.Node, AccountName: a.account}
	h.pipe = local.NewPipe()
	h.svc.ServeLocal(h.pipe)
	ln, _, err := local.Listen(dir)
	if err != nil {
		return nil, errors.Join(datadir.Error(dir, err), h.stop(0))
	}
	h.svc.ServeLocal(ln) // until it is closed, which closes the socket before the store
	return h, nil
}

// commitFailed stores the first error of a commit.
func (h *host) commitFailed(err error) {
	select {
	case h.failed <- err:
	default:
	}
}

// start starts a run. The run is durable when start returns.
func (h *host) start(ctx context.Context, c *compiled, params map[string]any, files []action.FileInfo, pay payment) (string, error) {
	req := engine.StartRequest{
		Account: h.AccountName, Plan: c.plan, Recipe: c.recipe.Name, Version: c.recipe.Version, Parameters: params, MaxCredits: pay.most, Key: pay.key, NoCache: pay.noCache,
	}
	for _, f := range files {
		req.Files = append(req.Files, journal.File{Hash: f.Hash, Name: f.Name, MimeType: f.MimeType, Size: f.Size, Extended: f.Extended})
	}
	started, err := h.Node.Engine.Start(ctx, req)
	return started.Run, err
}

// watch implements watcher.
func (h *host) watch(ctx context.Context, run string, after uint64, fn func(*journal.Event) error) error {
	for {
		last, ended := after, false
		for ev, err := range h.Node.Engine.Watch(ctx, h.AccountName, run, after) {
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
		// The run ended while its journal was read.
		after = last
	}
}

// failure returns why the engine ended by itself; nil while it runs.
func (h *host) failure() error { return h.Node.Engine.Err() }

// refused returns the error for a request that the engine refused: the cause, when
// a commit has failed.
func (h *host) refused(err error) error {
	select {
	case cause := <-h.failed:
		return h.lost(cause)
	default:
		return datadir.Error(h.dir, err)
	}
}

// lost returns the error for a failed commit. The engine would keep trying, but
// the user at a terminal wants to know and can continue with `resume`. The host is
// not closed: the store is made for a process that ends at any moment.
func (h *host) lost(err error) error {
	h.closed = true
	return datadir.Error(h.dir, err)
}

// close stops the engine in order. A signal interrupts it, which is as safe as a
// crash; the process should then end.
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

// finish closes a host whose runs have ended. A signal ends the wait, and the
// command ends with the exit code of its runs.
func (h *host) finish(sigs <-chan os.Signal) error {
	if err := h.close(sigs); err != nil && !errors.Is(err, errAtOnce) {
		return err
	}
	return nil
}

// abandon closes a host after an error.
func (h *host) abandon() {
	if !h.closed {
		h.closed = true
		// The earlier error is the one to report.
		_ = h.stop(0)
	}
}

func (h *host) stop(wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	err := datadir.Error(h.dir, h.svc.Close(ctx))
	if h.telemetry != nil {
		h.telemetry.Close()
	}
	return err
}

// lastEvent returns the number of the last event of a run.
func lastEvent(ctx context.Context, j store.Reader, key store.Key) (uint64, error) {
	page, err := j.Events(ctx, key, 0, 1)
	return page.Last, err
}
