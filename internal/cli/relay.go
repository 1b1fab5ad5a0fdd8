// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/local"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
)

const (
	// probeTime is how long a process that holds the directory has to answer anything.
	probeTime = 3 * time.Second
	// handTime bounds the time between two processes that carry on a run: the first lets its
	// attempts end before it gives up the directory.
	handTime = 2*grace + patience
)

// A source is what a command reads of a data directory while it follows runs.
type source interface {
	remote.Reader
	remote.Files
}

// A carrier carries on the runs that a command follows: a host in this process, or a relay to
// the process that holds the directory.
type carrier interface {
	source(ctx context.Context) (source, error)
	watch(ctx context.Context, run string, after uint64, fn func(*journal.Event) error) error
	failures() <-chan error // of commits
	refused(err error) error
	lost(err error) error
	failure() error
	// elsewhere names the process that carries the runs on when this one ends; "" = none does.
	elsewhere() string
	close(sigs <-chan os.Signal) error
	finish(sigs <-chan os.Signal) error
	abandon()
	serveGuests(ctx context.Context, sigs <-chan os.Signal)
	// handBack says what becomes of runs that other commands have handed over.
	handBack(ctx context.Context)
}

func (h *host) source(context.Context) (source, error) { return h, nil }
func (h *host) failures() <-chan error                 { return h.failed }
func (h *host) elsewhere() string                      { return "" }

// A relay follows runs in the process that holds the data directory. When that process ends or
// hands them back, this one carries them on, or follows them in the next one.
type relay struct {
	a      *app
	dir    string
	runs   []string // that are followed; set before they are watched
	failed chan error

	mu     sync.Mutex
	remote *remote.Holder
	host   *host // this process, once it has taken over; nil = not
}

// carrying opens the data directory for runs that choose returns. If another process holds it,
// hand hands them over to that process.
func (a *app) carrying(ctx context.Context, choose func(context.Context, store.Reader) ([]store.Head, error), hand func(context.Context, *relay) error) (carrier, error) {
	for deadline := a.now().Add(patience); ; {
		h, err := a.openHost(ctx, choose)
		if err == nil {
			h.guests.admit()
			return h, nil
		}
		if !errors.Is(err, fault.StoreLocked) {
			return nil, err
		}
		r, why := a.relay(ctx)
		if r != nil && why == nil {
			why = hand(ctx, r)
		}
		switch {
		case r == nil && why == nil && a.now().After(deadline):
			return nil, err // it has no socket
		case r == nil && why == nil: // it has closed its socket since, and is about to end
		case why == nil:
			return r, nil
		case errors.Is(why, errSilent):
			return nil, fault.Wrap(fault.StoreLocked, why, "%s; %s", fault.Message(err), fault.Message(why))
		case !refusedForNow(why):
			return nil, why
		case a.now().After(deadline):
			return nil, fault.Wrap(fault.StoreLocked, why, "%s; it takes no run: %s", fault.Message(err), fault.Message(why))
		case !pause(ctx, 20*time.Millisecond):
			return nil, ctx.Err()
		}
	}
}

// errSilent marks the error of a process that holds a directory and does not answer.
var errSilent = errors.New("it does not answer")

// refusedForNow reports whether a process that was asked to take a run took none, and is about
// to end or does something short.
func refusedForNow(err error) bool {
	return errors.Is(err, fault.ServiceUnavailable) || errors.Is(err, fault.Stopping) ||
		errors.Is(err, fault.ServerUnreachable) && !errors.Is(err, local.ErrMayHaveArrived)
}

// relay connects to the process that holds the directory; nil = none listens.
func (a *app) relay(ctx context.Context) (*relay, error) {
	dir, err := a.config.DataDir()
	if err != nil {
		return nil, err
	}
	r := &relay{a: a, dir: dir, failed: make(chan error, 1)}
	found, err := r.connect(ctx)
	if !found || err != nil {
		return nil, err
	}
	return r, nil
}

// connect looks for the process that holds the directory, and whether it answers.
func (r *relay) connect(ctx context.Context) (found bool, err error) {
	h := r.a.dial(ctx, r.dir)
	if h == nil {
		return false, nil
	}
	probe, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if err := h.Client.Healthy(probe); err != nil {
		if probe.Err() != nil && ctx.Err() == nil {
			return false, h.Process.Unreachable(fmt.Errorf("%w within %s", errSilent, probeTime))
		}
		return false, err
	}
	r.remote = h
	return true, nil
}

// hand hands a run over, which is durable when hand returns.
func (r *relay) hand(ctx context.Context, c *compiled, params map[string]any, files []action.FileInfo, pay payment) (string, error) {
	data, err := plan.EncodeFamily(c.plan)
	if err != nil {
		return "", err
	}
	req := client.Handover{Plan: data, Recipe: c.recipe.Name, Version: c.recipe.Version, MaxCredits: pay.most, Key: pay.key, NoCache: pay.noCache}
	if len(params) > 0 {
		req.Parameters = params
	}
	for _, f := range files {
		req.Files = append(req.Files, client.HandedFile{Hash: f.Hash, Name: f.Name})
	}
	started, err := r.remote.Client.Runs.HandOver(ctx, req)
	if err != nil {
		return "", err
	}
	r.runs = []string{started.ID}
	return started.ID, nil
}

// resume makes the process that holds the directory carry on runs.
func (r *relay) resume(ctx context.Context, heads []store.Head) error {
	r.runs = nil
	for _, head := range heads {
		if _, err := r.remote.Client.Runs.Continue(ctx, head.Run); err != nil && !errors.Is(err, fault.TooLate) {
			return err
		}
		r.runs = append(r.runs, head.Run)
	}
	return nil
}

// at returns where the runs are carried on now.
func (r *relay) at() (*remote.Holder, *host) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.remote, r.host
}

// moved is called when a request to a process has failed because that has ended. It makes this
// process carry on the runs, or finds the one that does.
func (r *relay) moved(ctx context.Context, from *remote.Holder) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.host != nil || r.remote != from {
		return nil // another run has found out
	}
	for deadline := r.a.now().Add(handTime); ; {
		h, err := r.a.openHost(ctx, func(ctx context.Context, j store.Reader) (heads []store.Head, err error) {
			for _, run := range r.runs {
				head, err := j.Head(ctx, store.Key{Account: r.a.account, Run: run})
				if err != nil {
					return nil, err
				}
				heads = append(heads, head)
			}
			return heads, nil
		})
		if err == nil {
			h.guests.admit()
			r.host = h
			r.a.say("the process that held the data directory has ended; this one carries on")
			go func() {
				select {
				case err := <-h.failed:
					r.failed <- err
				case <-h.svc.Node.Engine.Done():
				}
			}()
			return nil
		}
		if !errors.Is(err, fault.StoreLocked) {
			return err
		}
		found, why := r.connect(ctx)
		for _, run := range r.runs {
			if found && why == nil {
				if _, why = r.remote.Client.Runs.Continue(ctx, run); errors.Is(why, fault.TooLate) {
					why = nil
				}
			}
		}
		switch {
		case found && why == nil:
			return nil
		case why != nil && !refusedForNow(why), r.a.now().After(deadline):
			return fault.Wrap(fault.StoreLocked, errors.Join(err, why), "%s; `%s` goes on with what was followed here", fault.Message(err), r.a.hint("resume", ""))
		case !pause(ctx, 20*time.Millisecond):
			return ctx.Err()
		}
	}
}

// source implements carrier. The process that carried on the runs may have ended with them.
func (r *relay) source(ctx context.Context) (source, error) {
	there, h := r.at()
	if h == nil && local.Find(ctx, r.dir) == nil {
		if err := r.moved(ctx, there); err != nil {
			return nil, err
		}
		there, h = r.at()
	}
	if h != nil {
		return h, nil
	}
	return there, nil
}

// readFrom calls fn with what a carrier has of its runs, and again if the process that has it has
// ended in between.
func (a *app) readFrom(ctx context.Context, h carrier, fn func(source) error) error {
	for {
		from, err := h.source(ctx)
		if err == nil {
			err = fn(from)
		}
		if a.target != nil || h.elsewhere() == "" || !errors.Is(err, fault.ServerUnreachable) || !a.holderGone(ctx) {
			return err
		}
	}
}

// watch implements carrier.
func (r *relay) watch(ctx context.Context, run string, after uint64, fn func(*journal.Event) error) error {
	key := store.Key{Account: r.a.account, Run: run}
	for {
		there, h := r.at()
		if h != nil {
			return h.watch(ctx, run, after, fn)
		}
		ended := false
		err := store.EachEvent(ctx, there, key, after, func(ev *journal.Event) error {
			after, ended = ev.Seq, ev.Kind.Ends()
			return fn(ev)
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fault.ServerUnreachable) && r.a.holderGone(ctx):
			if err := r.moved(ctx, there); err != nil {
				return err
			}
			continue
		case err != nil || ended:
			return err
		}
		pause(ctx, pollInterval)
	}
}

func (r *relay) failures() <-chan error { return r.failed }

func (r *relay) elsewhere() string {
	if _, h := r.at(); h != nil {
		return ""
	}
	return r.remote.Process.String()
}

func (r *relay) refused(err error) error {
	if _, h := r.at(); h != nil {
		return h.refused(err)
	}
	return err
}

func (r *relay) lost(err error) error {
	if _, h := r.at(); h != nil {
		return h.lost(err)
	}
	return err
}

func (r *relay) failure() error {
	if _, h := r.at(); h != nil {
		return h.failure()
	}
	return nil
}

func (r *relay) close(sigs <-chan os.Signal) error {
	if _, h := r.at(); h != nil {
		return h.close(sigs)
	}
	return nil
}

func (r *relay) finish(sigs <-chan os.Signal) error {
	if _, h := r.at(); h != nil {
		return h.finish(sigs)
	}
	return nil
}

func (r *relay) abandon() {
	if _, h := r.at(); h != nil {
		h.abandon()
	}
}

func (r *relay) serveGuests(ctx context.Context, sigs <-chan os.Signal) {
	if _, h := r.at(); h != nil {
		h.serveGuests(ctx, sigs)
	}
}

func (r *relay) handBack(ctx context.Context) {
	if _, h := r.at(); h != nil {
		h.handBack(ctx)
	}
}
