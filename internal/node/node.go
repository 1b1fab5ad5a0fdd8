// SPDX-License-Identifier: Apache-2.0

// Package node assembles what runs recipes on one machine: the store of a data
// directory, its files, the actions and the engine. The root package and the command
// line open one each; what they let their callers do with it is theirs. It decides
// where things lie in a data directory and in which order they open and close, and
// never what a run does.
package node

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// Store is the store of a data directory.
type Store interface {
	store.Store
	store.Inspector
}

// OpenStore opens the store of a data directory for this process alone, and makes
// the directory when it is absent. fault.StoreLocked says that another process has it,
// fault.StoreCorrupt that its log is damaged.
func OpenStore(ctx context.Context, dir string) (Store, error) {
	st, err := sqlite.Open(ctx, sqlite.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	return st, nil
}

// Actions are what steps may call.
type Actions struct {
	List      []action.Action // Roux's, and then the program's own
	Catalogue *compile.Catalogue
	egress    *egress.Client
}

// NewActions returns Roux's actions and others. One of the same name and version takes
// the place of Roux's. Those that speak to the outside reach public addresses, and the
// ranges of allow besides (A17).
func NewActions(allow []netip.Prefix, own ...action.Action) *Actions {
	out := egress.New(egress.Config{Allow: allow})
	list := append(builtin.Actions(builtin.Config{Egress: out}), own...)
	return &Actions{List: list, Catalogue: Catalogue(list), egress: out}
}

// Close closes idle connections.
func (a *Actions) Close() { a.egress.Close() }

// Catalogue is a catalogue of actions, in which a later one of the same name and
// version takes the place of an earlier one.
func Catalogue(list []action.Action) *compile.Catalogue {
	decls := make([]*action.Action, len(list))
	for i := range list {
		decls[i] = &list[i]
	}
	return compile.NewCatalogue(decls...)
}

// Config is what a Node is made of beside its store. Fields left zero take the default
// that engine.Config names.
type Config struct {
	Dir         string // of the data; required
	Actions     *compile.Catalogue
	Retention   retention.Policy
	Concurrency int
	Logger      *slog.Logger
	// Select and CommitFailed are the engine's.
	Select       func(store.Key) bool
	CommitFailed func(error)
}

// A Node is an engine on a data directory.
type Node struct {
	Store  Store
	Files  *blob.Store
	Engine *engine.Engine
}

// Open opens the files of a data directory and an engine over its store. The store is
// the node's from then on; where Open fails it is closed.
func Open(ctx context.Context, st Store, cfg Config) (*Node, error) {
	files, err := blob.Open(blob.Config{Dir: filepath.Join(cfg.Dir, datadir.Files), Inspect: builtin.AtUpload()})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	e, err := engine.Open(ctx, engine.Config{
		Store: st, Actions: cfg.Actions, Blobs: files, Retention: cfg.Retention, Concurrency: cfg.Concurrency, Logger: cfg.Logger,
		Select: cfg.Select, CommitFailed: cfg.CommitFailed,
	})
	if err != nil {
		return nil, errors.Join(err, files.Close(), st.Close())
	}
	return &Node{Store: st, Files: files, Engine: e}, nil
}

// Stop takes no new work, lets attempts under way finish until ctx ends, and then
// closes everything. Where the store is inside a write that may never return, nothing
// is closed and the error is engine.ErrHangs: closing would wait for that write. The
// process is expected to end then.
func (n *Node) Stop(ctx context.Context) error {
	_, err := n.Engine.Stop(ctx)
	if errors.Is(err, engine.ErrHangs) {
		return err
	}
	return errors.Join(err, n.Files.Close(), n.Store.Close())
}
