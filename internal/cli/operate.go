// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
)

// operating calls fn with a client of the server that is named, of the process that holds the
// data directory, or of this process, which then holds it and carries on no run. If makes is
// set, the data directory need not exist yet.
func (a *app) operating(ctx context.Context, makes bool, fn func(ctx context.Context, c *client.Client) error) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer func() {
		if err != nil && ctx.Err() != nil && !waited(ctx) {
			err = exit(fault.ExitInterrupted)
		}
	}()
	if c, err := a.remote(ctx); err != nil {
		return err
	} else if c != nil {
		return fn(ctx, c)
	}
	dir, err := a.config.DataDir()
	if err != nil {
		return err
	}
	if !makes {
		if err := datadir.MustExist(dir); errors.Is(err, fault.RunNotFound) {
			e := fault.New(fault.NotFound, "%s does not exist: nothing is kept there yet", dir)
			e.Remedy = "`roux serve` or `roux apply FILE` makes it; --data names another directory, --server a server."
			return e
		} else if err != nil {
			return err
		}
	}
	open := func(ctx context.Context) (*host, error) { return a.openHost(ctx, nil) }
	return a.asking(ctx, open, func(ctx context.Context, c *connection) error {
		err := fn(ctx, c.Client)
		switch {
		case c.host == nil:
			return err
		case err != nil:
			defer c.host.abandon()
			return c.host.refused(err)
		}
		return c.host.close(nil)
	})
}

// shownOnce refuses a form of output that leaves out what is shown once and never again.
func (a *app) shownOnce(what string) error {
	if a.output == asName {
		return fault.New(fault.Usage, "-o name leaves out the %s, which is shown once: want table, json, jsonl, yaml or a template", what)
	}
	return nil
}

// orEmpty makes the list of a result that has none an empty one in JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// A topView is what `top` shows, in JSON. Its fields only grow.
type topView struct {
	client.ServerLoad
	// AtRest means that no process holds the data directory: only runs and accounts say
	// something.
	AtRest bool `json:"atRest,omitempty"`
}
