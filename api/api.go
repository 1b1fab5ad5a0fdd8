// SPDX-License-Identifier: Apache-2.0

// Package api serves the HTTP interface of Roux, /v1, in a Go program or a test: what
// `roux serve` serves, in process.
//
// [New] serves an engine. The [Server] is an http.Handler:
//
//	e, err := roux.Open(ctx, roux.Options{Dir: "data", Actions: []action.Action{greet}})
//	s, err := api.New(ctx, e, api.Options{AdminKey: os.Getenv("ROUX_ADMIN_KEY")})
//	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
//	…
//	s.EndStreams()
//	err = server.Shutdown(ctx)
//	err = e.Stop(ctx)
//
// Requests need a key, unless Options.NoKeys says otherwise. The package only wires parts
// together; package service decides their order. To use the server from Go, see package client.
package api

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/service"
)

// maxSource is how many bytes a recipe may have by default.
const maxSource = 1 << 20

// Options configure a Server. Fields left zero take the default that their comment names.
type Options struct {
	// AdminKey is a key with the role admin in the account of the engine that is not stored.
	// Default: the first New of a data directory makes a key, see [Server.FirstKey].
	AdminKey string
	// NoKeys makes the server check no keys: whoever reaches it may do everything, in the
	// account of the engine. It then answers only requests from this machine, for localhost,
	// and from no page of another origin.
	NoKeys bool
	// Rate is how many requests an account may send in a second, on average, and Burst how
	// many at once. Defaults 200 and 400; a negative Rate is no limit.
	Rate  float64
	Burst int
	// MaxSource is how many bytes a recipe may have. Default 1 MiB.
	MaxSource int64
}

// A Server answers requests to /v1. It is safe for concurrent use.
type Server struct {
	service *service.Service
	noKeys  bool
}

// New serves all accounts of an engine, and listens nowhere. It sends webhooks and carries on
// bulk operations from where the last server of the data directory has left them. Its
// recipes call the actions of the engine; errors that no answer can report go to its logger.
//
// An engine is served once: the error of a second New is fault.Conflict, and fault.Stopping
// after the engine was closed.
func New(ctx context.Context, e *roux.Engine, opt Options) (*Server, error) {
	if opt.NoKeys && opt.AdminKey != "" {
		return nil, fault.New(fault.ConfigInvalid, "api.Options has an AdminKey and NoKeys: a server that checks no keys has none")
	}
	s := &Server{noKeys: opt.NoKeys}
	err := e.Attach(func(n *node.Node, account string) (err error) {
		s.service, err = service.New(ctx, n, service.Config{
			Account: account, AdminToken: opt.AdminKey, Open: opt.NoKeys,
			MaxSource: cmp.Or(opt.MaxSource, maxSource), Rate: opt.Rate, Burst: opt.Burst,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// FirstKey returns the key with the role admin that New has made because the data directory
// had none, or "". It is not stored and not returned again.
func (s *Server) FirstKey() string { return s.service.FirstKey }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.noKeys && !fromHere(r.RemoteAddr) {
		http.Error(w, "a server that checks no keys answers only this machine", http.StatusForbidden)
		return
	}
	s.service.ServeHTTP(w, r)
}

// fromHere reports whether a request comes from this machine. Those over a Unix socket have
// no address.
func fromHere(remote string) bool {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote == "" || remote == "@"
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// EndStreams ends streams of events, for which the Shutdown of an http.Server waits. New ones
// are refused.
func (s *Server) EndStreams() { s.service.API.Stop() }

// Close ends streams, lets requests in progress finish until ctx ends, refuses others, and
// stops what the server does by itself; what is not done goes on with the next server. The
// engine goes on: its Stop calls Close if the program has not.
func (s *Server) Close(ctx context.Context) error { return s.service.Node.EndService(ctx) }
