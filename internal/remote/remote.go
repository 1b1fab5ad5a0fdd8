// SPDX-License-Identifier: Apache-2.0

// Package remote shows the runs, files and credits of a server as those of a data directory,
// so that the commands that read and change them are the same for both.
//
// It decides with which operations of the server a command gets what it asks for. It computes
// nothing about a run: the journal comes from the server as it is stored there, without the
// values that recipes mark as writeOnly.
package remote

import (
	"context"
	"sync"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/backup"
	"github.com/roux-engine/roux/internal/control"
	"github.com/roux-engine/roux/internal/store"
)

// A Server is a server as its client sees it. It is safe for concurrent use.
type Server struct {
	Client      *client.Client
	AccountName string // whose credits are granted
	Own         string // the account of the client

	mu    sync.Mutex
	plans map[string]string // by the key of a plan, a run that has it
}

// New returns the runs, files and credits that a client reaches.
func New(c *client.Client, own, account string) *Server {
	return &Server{Client: c, Own: own, AccountName: account, plans: map[string]string{}}
}

var (
	_ control.Service = (*Server)(nil)
	_ control.Reader  = (*Server)(nil)
)

// Unsupported is the error of what no operation of a server does.
func Unsupported(what string) error {
	e := fault.New(fault.Usage, "%s: not over a server yet", what)
	e.Remedy = "Do it on the machine of the server, in its data directory: --data names that."
	return e
}

// Changes implements store.Feed: [client.Client.Feed] follows the changes of a server.
func (s *Server) Changes(context.Context, string, uint64, int) ([]store.Change, error) {
	return nil, Unsupported("changes without following them")
}

// Newest implements store.Feed.
func (s *Server) Newest(context.Context, string) (last, expired uint64, err error) {
	return 0, 0, Unsupported("changes without following them")
}

// Backup implements control.Backups.
func (s *Server) Backup(context.Context, string, func(backup.Progress)) (*backup.Manifest, error) {
	return nil, Unsupported("a backup")
}
