// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/control"
	"github.com/roux-engine/roux/internal/local"
)

// answerTime bounds the time until an answer of the process that holds the directory begins.
// It answers from memory or after one commit: one that takes longer is stopped or hangs.
const answerTime = 15 * time.Second

// A connection is a client of the process that holds the data directory, on behalf of the
// account of the command.
type connection struct {
	*client.Client
	reader control.Reader // reads what the process has made durable
	host   *host          // this process, if it is the one; nil = another one is
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
		if h := local.Find(ctx, dir); h != nil {
			c, err := a.clientOf(&holderTransport{h, h.Transport(answerTime)})
			if err != nil {
				return nil, err
			}
			return &connection{Client: c, reader: a.dial(ctx, dir)}, nil
		}
		h, err := open(ctx)
		if err == nil {
			c, err := a.clientOf(h.pipe.Transport())
			if err != nil {
				h.abandon()
				return nil, err
			}
			return &connection{Client: c, reader: h, host: h}, nil
		}
		if !errors.Is(err, fault.StoreLocked) || local.Find(ctx, dir) == nil || a.now().After(deadline) {
			return nil, err
		}
	}
}

// clientOf returns a client whose requests t sends. Each is sent once: a process that has not
// answered has ended or is stopped.
func (a *app) clientOf(t http.RoundTripper) (*client.Client, error) {
	return client.New(client.Config{
		HTTP:   &http.Client{Transport: t},
		Header: http.Header{"Roux-Account": {a.account}}, UserAgent: "roux/" + thisBuild().short(), Attempts: 1,
	})
}

// A holderTransport sends requests to the process that holds a data directory. Its errors name
// the directory and the process.
type holderTransport struct {
	holder *local.Holder
	*http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *holderTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.Transport.RoundTrip(req)
	if err == nil || req.Context().Err() != nil {
		return res, err
	}
	e := t.holder.Unreachable(err)
	var op *net.OpError
	if req.Method != http.MethodGet && (!errors.As(err, &op) || op.Op != "dial") {
		e.Err = errors.Join(err, errMayHaveArrived)
	}
	return nil, e
}

// errMayHaveArrived marks the error of a request that may have changed something.
var errMayHaveArrived = errors.New("the request may have arrived")

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
		changed := !errors.Is(err, fault.ServerUnreachable) || errors.Is(err, errMayHaveArrived)
		if c.host != nil || changed || !a.holderGone(ctx) {
			return err
		}
	}
}
