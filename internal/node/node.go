// SPDX-License-Identifier: Apache-2.0

// Package node assembles what runs recipes on one machine: the store of a data
// directory, its files, the actions and the engine, and what the records of the directory say
// about accounts, keys and webhooks, which applies from the first run on, served or not. The
// root package and the command line each open a node; package service serves it. The package
// decides where things are in a data directory, in which order they are opened and closed, and
// what is said of a node as a whole, and never what a run does.
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
	"sync"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/account"
	"github.com/roux-engine/roux/internal/approval"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/command"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/limits"
	"github.com/roux-engine/roux/internal/moderation"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/provider"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/secrets"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
	"github.com/roux-engine/roux/internal/webhook"
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
	// UnendedStates counts runs of all accounts that have not ended, by account and state, and
	// reads at most that many for it; complete is false if there are more.
	UnendedStates(ctx context.Context, most int) (states []store.UnendedState, complete bool, err error)
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
	Catalogue *catalogue.Catalogue
	commands  *command.Set   // nil = none
	workers   *lease.Manager // nil = no action is carried out by remote workers
	egress    *egress.Client
	models    *provider.Set
	limits    *limits.Set // nil = none
	// moderators are those that steps may demand; nil = none.
	moderators *moderation.Set
	address    string // see UseAddress
}

// NewActions returns Roux's actions and the program's own. One with the same name and
// version as one of Roux's replaces it. Actions may connect to public addresses and to
// the ranges in allow (A17). No provider of models is configured.
func NewActions(allow []netip.Prefix, own ...action.Action) *Actions {
	out := egress.New(egress.Config{Allow: allow})
	return newActions(out, nil, own)
}

// NewActionsWith is NewActions with providers of models and jobs. getenv reads their keys; nil =
// os.Getenv. The error is fault.ConfigInvalid.
func NewActionsWith(allow []netip.Prefix, providers map[string]provider.Config, getenv func(string) string, own ...action.Action) (*Actions, error) {
	out := egress.New(egress.Config{Allow: allow})
	models, err := provider.New(providers, out, getenv)
	if err != nil {
		return nil, err
	}
	return newActions(out, models, own), nil
}

func newActions(out *egress.Client, models *provider.Set, own []action.Action) *Actions {
	list := slices.Concat(builtin.Actions(builtin.Config{Egress: out, Models: models}), models.JobActions(), own)
	return &Actions{List: list, Catalogue: Catalogue(list), egress: out, models: models}
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
			if _, err := catalogue.Price(d); err != nil {
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

// AddCommands adds the commands of the operator. Recipes of an account find those that are
// its; [Open] refuses to start when one of them could not run.
func (a *Actions) AddCommands(set *command.Set) {
	a.commands = set
	a.List = append(a.List, set.Actions()...)
	a.Catalogue = Catalogue(a.List)
}

// AddWorkers adds the actions that remote workers carry out, which replace those of the same name
// and version. The error is fault.ConfigInvalid.
func (a *Actions) AddWorkers(specs map[string]lease.Spec) error {
	if len(specs) == 0 {
		return nil
	}
	remotes, err := lease.Remotes(specs, func(name string) *action.Action { return a.Catalogue.Find(name, "") })
	if err != nil {
		return err
	}
	a.workers = lease.New(remotes, specs)
	a.List = append(a.List, a.workers.Actions()...)
	a.Catalogue = Catalogue(a.List)
	return nil
}

// AddModerators adds the moderators that steps may demand. getenv reads their keys; nil = os.Getenv.
// The error is fault.ConfigInvalid.
func (a *Actions) AddModerators(all map[string]moderation.Config, getenv func(string) string) error {
	if len(all) == 0 {
		return nil
	}
	set, err := moderation.New(all, a.egress, getenv)
	if err != nil {
		return fault.New(fault.ConfigInvalid, "moderation: %v", err)
	}
	a.moderators = set
	return nil
}

// AddGateway adds the moderator of a program.
func (a *Actions) AddGateway(g action.ModerationGateway) { a.moderators = a.moderators.Add(g) }

// permits returns what decides which commands and actions of workers are there for an account;
// nil = there are none.
func (a *Actions) permits() func(account, name string) bool {
	if a.commands == nil && a.workers == nil {
		return nil
	}
	return func(account, name string) bool {
		return a.commands.Permits(account, name) && a.workers.Permits(account, name)
	}
}

// Of returns the actions that are there for an account.
func (a *Actions) Of(account string) catalogue.Actions {
	permits := a.permits()
	if permits == nil {
		return a.Catalogue
	}
	return catalogue.Only(a.Catalogue, func(name string) bool { return permits(account, name) })
}

// With returns the actions with others in addition, which replace those of the same name and
// version.
func (a *Actions) With(own ...action.Action) *Actions {
	list := slices.Concat(a.List, own)
	return &Actions{List: list, Catalogue: Catalogue(list), commands: a.commands, workers: a.workers, egress: a.egress, models: a.models, moderators: a.moderators, address: a.address, limits: a.limits}
}

// SetLimits sets the limits that attempts of the actions have.
func (a *Actions) SetLimits(set *limits.Set) { a.limits = set }

// called is engine.Config.Called. Tasks of remote workers call nothing: what fails there is one
// action.
func (a *Actions) called(of *action.Action, named, model string) (service, called, queue string) {
	switch of.Provider {
	case "":
		return "", model, ""
	case jobs.Workers:
		return "", model, a.workers.Queue(of.Name, of.Version)
	case builtin.Models:
		service, called = a.models.Called(named, model, builtin.ModelKind(of.Name))
		return service, called, ""
	}
	service, called = a.models.Called(of.Provider, model, "")
	if service != of.Provider {
		return of.Provider, model, "" // a service of the program's own
	}
	return service, called, ""
}

// UseAddress sets where services reach this server, see [provider.Set.UseAddress].
func (a *Actions) UseAddress(url string) {
	a.models.UseAddress(url)
	a.address = strings.TrimSuffix(url, "/")
}

// Address is that of UseAddress; "" = it is not known.
func (a *Actions) Address() string { return a.address }

// Providers returns what is configured of the services behind actions.
func (a *Actions) Providers() []provider.Info { return a.models.List() }

// SignWebhook is that of [provider.Set].
func (a *Actions) SignWebhook(name string, body []byte, id string, at time.Time) (http.Header, error) {
	return a.models.SignWebhook(name, body, id, at)
}

// Open prepares the actions for use without a node, in the process of a remote worker: the commands
// have working directories in dir.
func (a *Actions) Open(ctx context.Context, dir string) error {
	return a.commands.Open(ctx, dir)
}

// Send sends a request to an address that actions may connect to, and follows no redirect.
func (a *Actions) Send(req *http.Request) (*http.Response, error) { return a.egress.RoundTrip(req) }

// Close closes idle connections.
func (a *Actions) Close() { a.egress.Close() }

// Catalogue returns a catalogue of actions, in which a later one replaces an earlier one
// with the same name and version, and with what waits for people.
func Catalogue(list []action.Action) *catalogue.Catalogue {
	list = append([]action.Action{approval.Action()}, list...)
	decls := make([]*action.Action, len(list))
	for i := range list {
		decls[i] = &list[i]
	}
	return catalogue.New(decls...)
}

// Config configures a Node. Fields left zero take the default that
// engine.Config names.
type Config struct {
	Dir         string   // data directory; required
	Actions     *Actions // required
	Retention   retention.Policy
	Concurrency int
	Logger      *slog.Logger // default: discarded
	// Accounts are the rules of the accounts that have some of their own. Any other
	// account pays, except engine.LocalAccount. What is set while a server runs comes first.
	Accounts map[string]engine.AccountRules
	// Account is the account of who opens the node, which is listed with those of Accounts.
	Account string
	// Secrets are the secrets that steps may use. Default: those in the environment, for
	// the account local, and in the vault of the data directory.
	Secrets worker.SecretSource
	// Sealer seals the keys of webhooks. Default: with the master key of the data directory
	// or of the environment.
	Sealer *secrets.Sealer
	// Resolve finds the recipes that expressions of steps name, before the registered ones are searched; see
	// [Node.UseRegistered]. Default: these alone.
	Resolve program.ResolveFunc
	// Workspaces is the directory of the workspaces of runs. Default: one in the data directory.
	Workspaces string
	// Select, Idle, CommitFailed and MaxLimits are those of engine.Config.
	Select func(store.Key) bool
	// Services are the providers of external jobs, by name.
	Services     map[string]action.Service
	Idle         bool
	CommitFailed func(error)
	MaxLimits    plan.Limits
	// Observer makes metrics, logs and traces of what the node does, see [Node.Observe].
	// Default: nil, none.
	Observer Observer
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
	Config   Config // that of Open, with its defaults
	Store    Store
	Files    *blob.Store
	Engine   *engine.Engine
	Keys     *access.Keys
	Accounts *account.Accounts
	Hooks    *webhook.Hooks
	Jobs     *jobs.Keeper
	Workers  *lease.Manager // nil = no action is carried out by remote workers
	// Approvals are what people are asked.
	Approvals *approval.Manager

	registered atomic.Pointer[program.ResolveFunc] // see UseRegistered

	serving sync.Mutex                  // held while a service begins or ends
	served  bool                        // Serve was called
	stopped bool                        // Stop was called
	end     func(context.Context) error // that of Serve; nil = none, or it was called

	endSpaces  func(context.Context) // ends the keeper of workspaces, when the engine has stopped
	endJobs    func()                // ends the keeper of jobs
	endWorkers func()                // ends the manager of leases
	endAsking  func()                // ends the manager of approvals
	opened     time.Time
	counting   sync.Mutex
	counted    counted // read under counting
}

// Open opens the files of a data directory and an engine on its store. The node owns the
// store from then on; if Open fails, it closes the store.
func Open(ctx context.Context, st Store, cfg Config) (*Node, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Secrets == nil {
		cfg.Secrets = secrets.New(secrets.Config{EnvAccount: engine.LocalAccount, Data: cfg.Dir})
	}
	n := &Node{Config: cfg, Store: st, opened: time.Now()}
	if err := n.readRecords(ctx); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	files, err := blob.Open(blob.Config{Dir: filepath.Join(cfg.Dir, datadir.Files), Inspect: builtin.AtUpload(), Quota: n.Accounts.Storage})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	n.Files = files
	n.newApprovals()
	if !cfg.Idle {
		if err := cfg.Actions.commands.Open(ctx, filepath.Join(cfg.Dir, datadir.Commands)); err != nil {
			return nil, errors.Join(err, files.Close(), st.Close())
		}
	}
	kept := cfg.Retention
	kept.Accounts = n.Accounts
	ecfg := engine.Config{
		// The recipes of users do not find the action of deliveries: they are compiled with the
		// catalogue of cfg.Actions.
		Store: st, Secrets: cfg.Secrets, Actions: Catalogue(append(slices.Clone(cfg.Actions.List), n.Hooks.Action(), n.Approvals.Action())),
		Blobs: files, Retention: kept, Concurrency: cfg.Concurrency, Logger: cfg.Logger, Accounts: n.Rules,
		Moderators: cfg.Actions.moderators.Of, Review: n.review, Resolve: n.resolve,
		Select: cfg.Select, Idle: cfg.Idle, CommitFailed: cfg.CommitFailed, MaxLimits: cfg.MaxLimits,
	}
	ecfg.Limits, ecfg.Called = cfg.Actions.limits, cfg.Actions.called
	cfg.Actions.models.UseSecrets(cfg.Secrets)
	if slots := cfg.Actions.models.Slots(); slots > 0 {
		ecfg.ProviderSlots = map[string]int{builtin.Models: slots}
	}
	if cfg.Observer != nil {
		ecfg.Observer, ecfg.Traced = cfg.Observer, cfg.Observer.Traced()
	}
	if !cfg.Idle {
		n.Workers = cfg.Actions.workers
	}
	n.keepJobs(&ecfg)
	attach := n.keepWorkspaces(&ecfg)
	open := make(chan struct{})
	n.endJobs = n.Jobs.Start(open) // reads which there are while the engine reads its runs
	if n.Engine, err = engine.Open(ctx, ecfg); err != nil {
		n.endJobs()
		return nil, errors.Join(err, files.Close(), st.Close())
	}
	close(open)
	n.endAsking = n.startApprovals()
	if n.endWorkers, err = n.startWorkers(ctx); err != nil {
		return nil, errors.Join(err, n.Stop(ctx))
	}
	n.Hooks.Attach(webhook.Host{Engine: n.Engine, Store: st})
	if err := attach(ctx); err != nil {
		return nil, errors.Join(err, n.Stop(ctx))
	}
	return n, nil
}

// Observe tells the observer, if there is one, what it observes. It is called once. recipeID is
// that of feed.Host; triggers counts the webhooks that they have refused, nil = there are none.
func (n *Node) Observe(recipeID func(account, name string) string, triggers func() int64) {
	if o := n.Config.Observer; o != nil {
		o.Attach(feed.Host{
			Store: n.Store, Load: n.Engine.Load, Limits: func() []feed.LimitSum { return limitSums(n.Engine.Slots()) },
			Queues: n.queueLoads, Refused: func() feed.Refused { return n.refused(triggers) }, LogSize: n.Config.logSize, RecipeID: recipeID,
		})
	}
}

// Serve calls start, and makes Stop call end before it stops the engine; if start fails, end is
// called at once. A node is served once: the error is fault.Conflict when it has been, and
// fault.Stopping after Stop.
func (n *Node) Serve(ctx context.Context, start, end func(context.Context) error) error {
	n.serving.Lock()
	defer n.serving.Unlock()
	switch {
	case n.stopped:
		return fault.New(fault.Stopping, "the engine is closed")
	case n.served:
		return fault.New(fault.Conflict, "the engine has been served before: one server has all its accounts")
	}
	n.served = true
	if err := start(ctx); err != nil {
		return errors.Join(err, end(ctx))
	}
	n.end = end
	return nil
}

// EndService calls the end that Serve was given, unless it was called before, and returns when
// it has returned.
func (n *Node) EndService(ctx context.Context) error {
	n.serving.Lock()
	defer n.serving.Unlock()
	return n.endService(ctx)
}

func (n *Node) endService(ctx context.Context) error {
	end := n.end
	n.end = nil
	if end == nil {
		return nil
	}
	return end(ctx)
}

// Stop ends what serves the node, accepts no new work, lets running attempts finish until
// ctx ends, and then closes everything. If the store is inside a write that may never
// return, nothing is closed and the error is engine.ErrHangs, because closing would wait
// for that write. The process should end then.
func (n *Node) Stop(ctx context.Context) error {
	n.serving.Lock()
	n.stopped = true
	ended := n.endService(ctx)
	n.serving.Unlock()
	n.endJobs()
	n.endWorkers()
	n.endAsking()
	_, err := n.Engine.Stop(ctx)
	if errors.Is(err, engine.ErrHangs) {
		return err
	}
	n.endSpaces(ctx)
	if o := n.Config.Observer; o != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushFor)
		defer cancel()
		o.Flush(ctx)
	}
	return errors.Join(ended, err, n.Files.Close(), n.Store.Close())
}
