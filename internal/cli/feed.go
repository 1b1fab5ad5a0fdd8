// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// maxFeed is the largest --limit of `roux feed`.
const maxFeed = 10_000

func (a *app) feedCommand() *cobra.Command {
	var after uint64
	var limit int
	var follow bool
	cmd := &cobra.Command{
		Use:   "feed",
		Short: "List what has changed: runs and credits, one change per line",
		Long: "List what has changed, the newest changes last: the status of a run, its deletion, an entry of the credits. Changes are numbered 1, 2, 3 …; " +
			"--after continues after one that was seen. They are kept at least as long as runs are (`roux config get retain.runs`); a number from before is refused and the message names the oldest that is kept.",
		Example: "roux feed\nroux feed -f\nroux feed --after 120 -o jsonl",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > maxFeed {
				return fault.New(fault.Usage, "--limit %d: want 1 to %d", limit, maxFeed)
			}
			r := feedReader{app: a, out: a.stream(), after: after, left: limit, follow: follow}
			r.begun = cmd.Flags().Changed("after")
			if r.begun && follow {
				r.left = -1 // a reader that continues must not miss any
			}
			if err := r.run(cmd.Context()); err != nil {
				return err
			}
			r.out.end()
			if !r.any && !follow {
				a.say("no changes here: `roux run FILE` makes some")
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new changes until Ctrl-C")
	cmd.Flags().Uint64Var(&after, "after", 0, "only changes after this number (default: the newest)")
	cmd.Flags().IntVar(&limit, "limit", 50, "list at most this many; with --follow and --after, all are listed")
	return cmd
}

// A feedReader prints changes.
type feedReader struct {
	app    *app
	out    *stream
	after  uint64
	begun  bool // after is set
	left   int  // how many more are listed; < 0: all
	follow bool
	any    bool // some were
}

// run prints the changes that are stored and, with follow, those that come until the user
// interrupts the command.
func (r *feedReader) run(ctx context.Context) error {
	a := r.app
	if r.follow {
		var stop func()
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
	}
	for {
		held := false
		err := a.readingAll(ctx, func(ctx context.Context, j remote.Reader) error {
			held = carriesOn(j)
			return r.read(ctx, j)
		})
		switch {
		case err == nil && !r.follow:
			return nil
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return ctx.Err() // --timeout
		case ctx.Err() != nil && r.follow:
			return nil // the user has interrupted the command
		case a.target == nil && errors.Is(err, fault.ServerUnreachable) && a.holderGone(ctx):
			continue // it ended during the request: its answer is in the store
		case err != nil:
			return err
		}
		r.left = -1
		if held && a.target != nil {
			pause(ctx, time.Second) // each look is a request that counts
		} else if held {
			pause(ctx, pollInterval)
		} else if err := a.awaitHolder(ctx); err != nil {
			return err
		}
	}
}

// read prints the changes that are stored.
func (r *feedReader) read(ctx context.Context, j store.Feed) error {
	if !r.begun {
		last, expired, err := j.Newest(ctx, r.app.account)
		if err != nil {
			return err
		}
		r.after, r.begun = expired, true
		if most := uint64(r.left); last-expired > most {
			r.after = last - most
		}
	}
	for r.left != 0 {
		want := maxFeed
		if r.left > 0 {
			want = r.left
		}
		changes, err := j.Changes(ctx, r.app.account, r.after, want)
		if err != nil || len(changes) == 0 {
			return err
		}
		for i := range changes {
			r.print(&changes[i])
		}
		r.after, r.any = changes[len(changes)-1].N, true
		if r.left > 0 {
			r.left -= len(changes)
		}
	}
	return nil
}

// awaitHolder returns when a process has held the data directory since this one read it, or
// ctx ends. Nothing changes without one, and opening the store again and again would stand
// in the way of those that want it.
func (a *app) awaitHolder(ctx context.Context) error {
	dir, err := a.config.DataDir()
	if err != nil {
		return err
	}
	used := func() time.Time { // each holder writes the lock file
		info, err := os.Stat(filepath.Join(dir, datadir.Lock))
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	for last := used(); pause(ctx, pollInterval) && used().Equal(last) && a.dial(ctx, dir) == nil; {
	}
	return nil
}

// A changeView is a change in JSON. Its fields only grow.
type changeView struct {
	ID          uint64        `json:"id"`
	At          string        `json:"at"`
	Run         string        `json:"run,omitempty"`
	Recipe      string        `json:"recipe,omitempty"`
	Status      string        `json:"status,omitempty"`
	Code        fault.Code    `json:"code,omitempty"`
	EndedAt     string        `json:"endedAt,omitempty"`
	Deleted     bool          `json:"deleted,omitempty"` // removed
	Hidden      bool          `json:"hidden,omitempty"`  // deleted by its user, and still stored
	Quarantined bool          `json:"quarantined,omitempty"`
	Imported    bool          `json:"imported,omitempty"`
	Entry       *changedEntry `json:"entry,omitempty"`
	// Notice is a level of the credits that was crossed: available credits that are fewer
	// than limit (limitSource account), or more used of a budget in audit mode.
	Notice *ledger.Notice `json:"notice,omitempty"`
}

// A changedEntry is an entry of the credits in a change.
type changedEntry struct {
	Number uint64 `json:"number"`
	Key    string `json:"key"`
	Kind   string `json:"kind"`
}

func viewOfChange(c *store.Change) changeView {
	v := changeView{
		ID: c.N, At: view.Stamp(c.At), Run: c.Run, Recipe: c.Recipe, Status: c.Status, Code: c.Code,
		Deleted: c.Deleted, Hidden: c.Hidden, Quarantined: c.Quarantined, Imported: c.Imported,
	}
	if c.Ended != 0 {
		v.EndedAt = view.Stamp(c.Ended)
	}
	switch {
	case c.Notice.Source != "":
		v.Notice = &c.Notice
	case c.Run == "":
		v.Entry = &changedEntry{c.Entry, c.Key, c.Kind.String()}
	}
	return v
}

func (r *feedReader) print(c *store.Change) {
	if r.app.output == asTable {
		r.app.text("%s\n", r.app.changeLine(c))
		return
	}
	r.out.add(viewOfChange(c))
}

// changeLine formats a change as one line without control codes.
func (a *app) changeLine(c *store.Change) string {
	at := view.UTC(c.At).Format("2006-01-02 15:04:05.000")
	if a.times == timeISO {
		at = view.Stamp(c.At)
	}
	what, of, more := c.Status, c.Run, c.Recipe
	switch {
	case c.Notice.Source == "account":
		what, of, more = "low balance", fmt.Sprintf("%d available", c.Notice.Amount), fmt.Sprintf("fewer than %d", c.Notice.Limit)
	case c.Notice.Source != "":
		what, of, more = "over budget", c.Notice.Source, fmt.Sprintf("%d used of %d", c.Notice.Amount, c.Notice.Limit)
	case c.Run == "":
		what, of, more = c.Kind.String(), c.Key, fmt.Sprintf("entry %d", c.Entry)
	case c.Deleted:
		what = "deleted"
	}
	notes := []string{string(c.Code)}
	switch {
	case c.Hidden:
		notes = append(notes, "hidden")
	case c.Imported:
		notes = append(notes, store.ImportedReason)
	case c.Quarantined:
		notes = append(notes, "quarantined")
	}
	line := fmt.Sprintf("%6d  %s  %-11s  %s", c.N, at, view.OneLine(what), view.OneLine(of))
	for _, text := range []string{view.Cut(more, 60), view.Join(", ", notes...)} {
		if text != "" {
			line += "  " + view.OneLine(text)
		}
	}
	return strings.TrimRight(line, " ")
}
