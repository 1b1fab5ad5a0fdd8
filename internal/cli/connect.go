// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/local"
	"github.com/roux-engine/roux/internal/remote"
)

// A connection is a client of the process that holds the data directory, on behalf of the
// account of the command.
type connection struct {
	*client.Client
	reader remote.Reader // reads what the process has made durable
	host   *host         // this process, if it is the one; nil = another one is
}

// client connects to the process that holds the data directory. If there is none, open makes
// this one hold it, and the client reaches it through a pipe; the caller then closes the host.
// A holder that has come or gone in between is no error: both are tried again.
func (a *app) client(ctx context.Context, open func(context.Context) (*host, error)) (*connection, error) {
	dir, err := a.config.DataDir()
	if err != nil {
		return nil, err
	}
	for deadline := a.now().Add(patience); ; {
		if h := a.dial(ctx, dir); h != nil {
			return &connection{Client: h.Client, reader: h}, nil
		}
		h, err := open(ctx)
		if err == nil {
			c, err := remote.ClientOf(h.pipe.Transport(), a.account, a.agent())
			if err != nil {
				h.abandon()
				return nil, err
			}
			return &connection{Client: c, reader: h, host: h}, nil
		}
		if !errors.Is(err, fault.StoreLocked) || a.now().After(deadline) {
			return nil, err
		}
	}
}

// agent names this program in requests.
func (a *app) agent() string { return "roux/" + thisBuild().short() }

// asking calls fn with a connection, and again if the process that held the directory has ended
// before it was told to change anything. fn closes the host, if the connection has one.
func (a *app) asking(ctx context.Context, open func(context.Context) (*host, error), fn func(context.Context, *connection) error) error {
	for {
		c, err := a.client(ctx, open)
		if err != nil {
			return err
		}
		err = fn(ctx, c)
		c.Close()
		changed := !errors.Is(err, fault.ServerUnreachable) || errors.Is(err, local.ErrMayHaveArrived)
		if c.host != nil || changed || !a.holderGone(ctx) {
			return err
		}
	}
}

// withHolder calls fn with a client of the server that is named, or of the process that holds
// the data directory.
func (a *app) withHolder(ctx context.Context, fn func(context.Context, *client.Client) error) error {
	if c, err := a.remote(ctx); err != nil {
		return err
	} else if c != nil {
		return fn(ctx, c)
	}
	none := func(context.Context) (*host, error) {
		dir, _ := a.config.DataDir() // asking has it already
		err := fault.New(fault.ServiceUnavailable, "no process holds %s, so nothing happens there", dir)
		err.Remedy = "Start `roux serve` or `roux dev` first, or name a server with --server."
		return nil, err
	}
	return a.asking(ctx, none, func(ctx context.Context, c *connection) error { return fn(ctx, c.Client) })
}
