// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/remote"
)

// filing is serving for a command on files.
func (a *app) filing(ctx context.Context, makes bool, fn func(ctx context.Context, s remote.Files) error) error {
	return a.serving(ctx, makes, func(ctx context.Context, s remote.Service) error { return fn(ctx, s) })
}

// serving calls fn for a command on files or credits: through the process that holds the
// data directory, through the server that is named, or with a host of its own that continues no run. If makes is set, the
// data directory need not exist yet.
func (a *app) serving(ctx context.Context, makes bool, fn func(ctx context.Context, s remote.Service) error) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer func() {
		if err != nil && ctx.Err() != nil && !waited(ctx) {
			err = exit(fault.ExitInterrupted)
		}
	}()
	if s, err := a.reach(ctx); err != nil {
		return err
	} else if s != nil {
		return fn(ctx, s)
	}
	dir, err := a.config.DataDir()
	if err != nil {
		return err
	}
	if !makes {
		if err := mustHold(dir); err != nil {
			return err
		}
	}
	if r := a.dial(ctx, dir); r != nil {
		return fn(ctx, r)
	}
	h, err := a.openHost(ctx, nil)
	if errors.Is(err, fault.StoreLocked) {
		// A holder may have started to listen since the first Dial.
		if r := a.dial(ctx, dir); r != nil {
			return fn(ctx, r)
		}
	}
	if err != nil {
		return err
	}
	defer h.abandon()
	if err := fn(ctx, h); err != nil {
		return datadir.Error(dir, err)
	}
	return h.close(nil)
}

// mustHold is datadir.MustExist with an error that speaks of files instead of runs.
func mustHold(dir string) error {
	err := datadir.MustExist(dir)
	if errors.Is(err, fault.RunNotFound) {
		return fault.New(fault.FileNotFound, "%s does not exist: no file is kept there yet; `roux files put FILE` keeps the first", dir)
	}
	return err
}
