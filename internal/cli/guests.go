// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// guests are runs that other commands have handed over to a host.
type guests struct {
	mu      sync.Mutex
	open    bool // the host takes runs
	pending int  // that are being handed over
	runs    map[store.Key]bool
}

// take is that of api.Config: a run is handed over.
func (g *guests) take() (done func(account, run string), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open {
		err := fault.New(fault.ServiceUnavailable, "the process that holds the data directory is about to end, or does something else than running recipes")
		err.Remedy = "Try again in a moment."
		return nil, err
	}
	g.pending++
	return func(account, run string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.pending--
		if run != "" {
			g.runs[store.Key{Account: account, Run: run}] = true
		}
	}, nil
}

// admit makes the host take runs.
func (g *guests) admit() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.runs = true, map[store.Key]bool{}
}

// leave forgets the runs that are over or suspended, and returns how many are left. When none
// is, the host takes no more.
func (g *guests) leave(over func(store.Key) bool) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.runs {
		if over(key) {
			delete(g.runs, key)
		}
	}
	n := len(g.runs) + g.pending
	g.open = g.open && n > 0
	return n
}

// guestsLeft returns how many runs of other commands are neither over nor suspended, which waits
// in the store.
func (h *host) guestsLeft(ctx context.Context) int {
	return h.guests.leave(func(key store.Key) bool {
		head, err := h.Head(ctx, key)
		if err != nil || head.Settled() || head.Quarantine != "" {
			return true
		}
		saved, err := h.Load(ctx, key)
		return err != nil || saved.Suspension != nil
	})
}

// handBack says what becomes of the runs of other commands when this process ends.
func (h *host) handBack(ctx context.Context) {
	n := h.guestsLeft(ctx)
	if n == 0 {
		return
	}
	next := h.a.hint("resume", "")
	if n == 1 {
		h.a.say("1 run of other commands is here: it goes on in its command, if that still runs, else with `%s`", next)
		return
	}
	h.a.say("%d runs of other commands are here: each goes on in its command, if that still runs, else with `%s`", n, next)
}

// serveGuests carries on the runs of other commands until each has ended or is suspended. A
// signal ends it: their commands then carry them on.
func (h *host) serveGuests(ctx context.Context, sigs <-chan os.Signal) {
	said := false
	for n := h.guestsLeft(ctx); n > 0; n = h.guestsLeft(ctx) {
		if !said {
			said = true
			h.a.say("what this command was for is done; it carries on %s of other commands, which take over after Ctrl-C", view.Count(n, "run"))
		}
		select {
		case <-sigs:
			h.handBack(ctx)
			return
		case <-ctx.Done():
			return
		case <-h.svc.Node.Engine.Done():
			return
		case <-time.After(pollInterval):
		}
	}
}
