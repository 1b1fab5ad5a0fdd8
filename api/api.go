// SPDX-License-Identifier: Apache-2.0

// Package api serves the HTTP interface of Roux, /v1, in a Go program or a test: what
// `roux serve` serves, in process.
//
// [Open] opens a data directory and carries on its runs. The [Server] is an http.Handler:
//
//	s, err := api.Open(ctx, api.Options{Dir: "data", AdminKey: os.Getenv("ROUX_ADMIN_KEY")})
//	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
//	…
//	s.EndStreams()
//	err = server.Shutdown(ctx)
//	err = s.Close(ctx)
//
// Requests need a key, unless Options.NoKeys says otherwise. The package only wires parts
// together; package service decides their order. To use the server from Go, see package client.
package api

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/service"
)

// maxSource is how many bytes a recipe may have by default.
const maxSource = 1 << 20

// Options configure a Server. Fields left zero take the default that their comment names.
type Options struct {
	// Dir is the data directory. It is created if it does not exist; only one process at a
	// time can hold it. Required.
	Dir string
	// Actions are the program's own actions, in addition to those of Roux.
	Actions []action.Action
	// EgressAllow lists address ranges that actions may connect to in addition to public
	// addresses.
	EgressAllow []netip.Prefix
	// Account is the account of the first key and of AdminKey, and of all requests where no
	// keys are checked. Default "local", which does not pay.
	Account string
	// AdminKey is a key with the role admin that is not stored. Default: the first Open of a
	// data directory makes a key, see [Server.FirstKey].
	AdminKey string
	// NoKeys makes the server check no keys: whoever reaches it may do everything. It then
	// answers only requests from this machine, for localhost, and from no page of another
	// origin.
	NoKeys bool
	// Rate is how many requests an account may send in a second, on average, and Burst how
	// many at once. Defaults 200 and 400; a negative Rate is no limit.
	Rate  float64
	Burst int
	// MaxSource is how many bytes a recipe may have. Default 1 MiB.
	MaxSource int64
	// Concurrency is how many attempts may run at once. Default 1024.
	Concurrency int
	// Logger receives errors that no answer can report. Default: discarded.
	Logger *slog.Logger
}

// A Server answers requests to /v1. It is safe for concurrent use.
type Server struct {
	service *service.Service
	actions *node.Actions
	noKeys  bool
}

// Open opens a data directory, carries on the runs in it, and returns its server, which
// listens nowhere.
func Open(ctx context.Context, opt Options) (*Server, error) {
	if opt.Dir == "" {
		return nil, fault.New(fault.ConfigInvalid, "api.Options.Dir is empty: name a data directory")
	}
	if opt.NoKeys && opt.AdminKey != "" {
		return nil, fault.New(fault.ConfigInvalid, "api.Options has an AdminKey and NoKeys: a server that checks no keys has none")
	}
	actions := node.NewActions(opt.EgressAllow, opt.Actions...)
	st, err := node.OpenStore(ctx, opt.Dir)
	if err != nil {
		actions.Close()
		return nil, err
	}
	s, err := service.Open(ctx, st, service.Config{
		Node:    node.Config{Dir: opt.Dir, Actions: actions.Catalogue, Concurrency: opt.Concurrency, Logger: opt.Logger},
		Actions: actions, Account: cmp.Or(opt.Account, engine.LocalAccount), AdminToken: opt.AdminKey, Open: opt.NoKeys,
		MaxSource: cmp.Or(opt.MaxSource, maxSource), Rate: opt.Rate, Burst: opt.Burst, Logger: opt.Logger,
	})
	if err != nil {
		actions.Close()
		return nil, err
	}
	return &Server{service: s, actions: actions, noKeys: opt.NoKeys}, nil
}

// FirstKey returns the key with the role admin that Open has made because the data directory
// had none, or "". It is not stored and not returned again.
func (s *Server) FirstKey() string { return s.service.FirstKey }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.noKeys && !fromHere(r.RemoteAddr) {
		http.Error(w, "a server that checks no keys answers only this machine", http.StatusForbidden)
		return
	}
	s.service.API.ServeHTTP(w, r)
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

// Close ends streams, lets attempts in progress finish until ctx ends, and closes the data
// directory; what is not done is attempted again after the next Open. Close the listener
// first: call EndStreams, then Shutdown of the http.Server, then Close.
func (s *Server) Close(ctx context.Context) error {
	err := s.service.Close(ctx)
	s.actions.Close()
	return err
}
