// SPDX-License-Identifier: Apache-2.0

// Package node assembles what runs recipes on one machine: the store of a data
// directory, its files, the actions and the engine. The root package and the command
// line each open a node. The package decides where things are in a data directory and in
// which order they are opened and closed, and never what a run does.
package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/secrets"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
	"github.com/roux-engine/roux/internal/worker"
)

// Store is the store of a data directory.
type Store interface {
	store.Store
	store.Inspector
	store.Snapshotter
	// EndFeeds makes the feeds of all accounts go on at numbers far above those in the store.
	// Readers are told that the changes that it has are no longer kept.
	EndFeeds(ctx context.Context) error
	// Accounts returns the accounts that have runs.
	Accounts(ctx context.Context) ([]string, error)
	// MeteredAccounts returns the accounts that have entries, sorted.
	MeteredAccounts(ctx context.Context) ([]string, error)
	// FoldLedger and HeadsAfter are those of a [reconcile.Source].
	FoldLedger(ctx context.Context, account string, fn func(a *ledger.Account, e *ledger.Entry, n uint64) error) error
	HeadsAfter(ctx context.Context, account, after string) ([]store.Head, error)
}

// Schema is the version of the schema of a store that this release writes.
const Schema = sqlite.Schema

// OpenStore opens the store of a data directory exclusively for this process, and creates
// the directory if it does not exist. The error fault.StoreLocked means that another
// process holds it, fault.StoreCorrupt that its log is damaged.
func OpenStore(ctx context.Context, dir string) (Store, error) {
	st, err := sqlite.Open(ctx, sqlite.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	return st, nil
}

// Actions are the actions that steps may call.
type Actions struct {
	List      []action.Action // Roux's, followed by the program's own
	Catalogue *compile.Catalogue
	egress    *egress.Client
}

// NewActions returns Roux's actions and the program's own. One with the same name and
// version as one of Roux's replaces it. Actions may connect to public addresses and to
// the ranges in allow (A17).
func NewActions(allow []netip.Prefix, own ...action.Action) *Actions {
	out := egress.New(egress.Config{Allow: allow})
	list := append(builtin.Actions(builtin.Config{Egress: out}), own...)
	return &Actions{List: list, Catalogue: Catalogue(list), egress: out}
}

// SetPrices replaces what actions cost by the prices of a table: "name" is every version
// of an action, "name@version" one of them. What an action declares as its cost no longer
// counts. A name without an action, or a text that is no price, is fault.ConfigInvalid.
func (a *Actions) SetPrices(prices map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(prices)) {
		of, version, one := strings.Cut(name, "@")
		found := false
		for i := range a.List {
			d := &a.List[i]
			if d.Name != of && !slices.Contains(d.Aliases, of) || one && d.Version != version {
				continue
			}
			found = true
			d.Cost, d.Price = 0, prices[name]
			if _, err := compile.Price(d); err != nil {
				return fault.New(fault.ConfigInvalid, "prices: %s", fault.Message(err))
			}
		}
		if !found {
			return fault.New(fault.ConfigInvalid, "prices: there is no action %q; `roux actions list` shows those there are", name)
		}
	}
	a.Catalogue = Catalogue(a.List)
	return nil
}

// With returns the actions with others in addition, which replace those of the same name and
// version.
func (a *Actions) With(own ...action.Action) *Actions {
	list := slices.Concat(a.List, own)
	return &Actions{List: list, Catalogue: Catalogue(list), egress: a.egress}
}

// Send sends a request to an address that actions may connect to, and follows no redirect.
func (a *Actions) Send(req *http.Request) (*http.Response, error) { return a.egress.RoundTrip(req) }

// Close closes idle connections.
func (a *Actions) Close() { a.egress.Close() }

// Catalogue returns a catalogue of actions, in which a later one replaces an earlier one
// with the same name and version.
func Catalogue(list []action.Action) *compile.Catalogue {
	decls := make([]*action.Action, len(list))
	for i := range list {
		decls[i] = &list[i]
	}
	return compile.NewCatalogue(decls...)
}

// Config configures a Node. Fields left zero take the default that
// engine.Config names.
type Config struct {
	Dir         string // data directory; required
	Actions     *compile.Catalogue
	Retention   retention.Policy
	Concurrency int
	Logger      *slog.Logger
	// Accounts are the rules of the accounts that have some of their own. Any other
	// account pays, except engine.LocalAccount.
	Accounts map[string]engine.AccountRules
	// Override, when set, changes the rules of an account by what the service keeps of it. It
	// is called at every start.
	Override func(account string, rules engine.AccountRules) engine.AccountRules
	// Storage, when set, returns how many bytes the files of an account may have; see
	// blob.Config.
	Storage func(account string) int64
	// Budgets, when set, adds budgets to those of an account, such as those of its API keys.
	// It is called at every start.
	Budgets func(account string, b ledger.Budgets) ledger.Budgets
	// Internal, when set, reports whether an account is one of the service itself. Its runs
	// cost nothing.
	Internal func(account string) bool
	// Secrets are the secrets that steps may use. Default: those in the environment, for
	// the account local, and in the vault of the data directory.
	Secrets worker.SecretSource
	// Select, Idle and CommitFailed are those of engine.Config.
	Select       func(store.Key) bool
	Idle         bool
	CommitFailed func(error)
	// Observer makes metrics, logs and traces of what the node does. Default: nil, none.
	Observer Observer
	// RecipeID is that of feed.Host.
	RecipeID func(account, name string) string
}

// An Observer is what package telemetry has for a node.
type Observer interface {
	feed.Observer
	// Attach is called once, when the engine is open. Runs may have been observed before.
	Attach(host feed.Host)
	// Traced reports whether spans are recorded.
	Traced() bool
	// Flush finishes what is observed, before the store is closed. Nothing follows.
	Flush(ctx context.Context)
}

// flushFor is how long a node that stops waits for its observer.
const flushFor = 2 * time.Second

// Rules returns what applies to the runs of an account.
func (cfg Config) Rules(account string) engine.AccountRules {
	if cfg.Internal != nil && cfg.Internal(account) {
		return engine.AccountRules{Unmetered: true}
	}
	rules, ok := cfg.Accounts[account]
	if !ok {
		rules = engine.DefaultRules(account)
	}
	if cfg.Override != nil {
		rules = cfg.Override(account, rules)
	}
	if cfg.Budgets != nil {
		rules.Budgets = cfg.Budgets(account, rules.Budgets)
	}
	return rules
}

// logSize returns the size of the database's write-ahead log.
func (cfg Config) logSize() int64 {
	info, err := os.Stat(filepath.Join(cfg.Dir, datadir.Database+"-wal"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// A Node is an engine on a data directory.
type Node struct {
	Store  Store
	Files  *blob.Store
	Engine *engine.Engine

	observer Observer // nil = none
}

// Open opens the files of a data directory and an engine on its store. The node owns the
// store from then on; if Open fails, it closes the store.
func Open(ctx context.Context, st Store, cfg Config) (*Node, error) {
	files, err := blob.Open(blob.Config{Dir: filepath.Join(cfg.Dir, datadir.Files), Inspect: builtin.AtUpload(), Quota: cfg.Storage})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	if cfg.Secrets == nil {
		cfg.Secrets = secrets.New(secrets.Config{EnvAccount: engine.LocalAccount, Data: cfg.Dir})
	}
	ecfg := engine.Config{
		Store: st, Secrets: cfg.Secrets, Actions: cfg.Actions, Blobs: files, Retention: cfg.Retention, Concurrency: cfg.Concurrency, Logger: cfg.Logger, Accounts: cfg.Rules,
		Select: cfg.Select, Idle: cfg.Idle, CommitFailed: cfg.CommitFailed,
	}
	if cfg.Observer != nil {
		ecfg.Observer, ecfg.Traced = cfg.Observer, cfg.Observer.Traced()
	}
	e, err := engine.Open(ctx, ecfg)
	if err != nil {
		return nil, errors.Join(err, files.Close(), st.Close())
	}
	if cfg.Observer != nil {
		cfg.Observer.Attach(feed.Host{Store: st, Load: e.Load, LogSize: cfg.logSize, RecipeID: cfg.RecipeID})
	}
	return &Node{Store: st, Files: files, Engine: e, observer: cfg.Observer}, nil
}

// Stop accepts no new work, lets running attempts finish until ctx ends, and then closes
// everything. If the store is inside a write that may never return, nothing is closed and
// the error is engine.ErrHangs, because closing would wait for that write. The process
// should end then.
func (n *Node) Stop(ctx context.Context) error {
	_, err := n.Engine.Stop(ctx)
	if errors.Is(err, engine.ErrHangs) {
		return err
	}
	if n.observer != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushFor)
		defer cancel()
		n.observer.Flush(ctx)
	}
	return errors.Join(err, n.Files.Close(), n.Store.Close())
}
