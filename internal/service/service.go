// SPDX-License-Identifier: Apache-2.0

// Package service runs the server of a data directory.
//
// It decides in which order the parts of a server are opened, drained and closed: the store,
// the keys, the engine, the recipes and the interface over HTTP. It decides nothing about a
// request, which is the part of package api.
package service

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/account"
	"github.com/roux-engine/roux/internal/api"
	"github.com/roux-engine/roux/internal/bulk"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/secrets"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/webhook"
)

// Config is what a Service is made of. Fields left zero take the default that their comment
// names.
type Config struct {
	Node    node.Config   // required; Actions, Override, Storage, Budgets and Internal are set here
	Actions *node.Actions // required
	// Account is the account of the first key, and of requests where no keys are checked.
	// Required.
	Account string
	// AdminToken is a key with the role admin that is not stored, see access.Config.
	AdminToken string
	// Open makes the service check no keys. It then listens on loopback only.
	Open bool
	// MaxSource is how many bytes a recipe may have. Required.
	MaxSource int64
	// Rate and Burst are those of api.Config.
	Rate    float64
	Burst   int
	Release string
	// Metrics, when set, is served at /metrics of the administration listener.
	Metrics http.Handler
	// Secrets are the secrets that accounts keep over HTTP. Default: the vault of the data
	// directory and the environment, as for node.Config.Secrets.
	Secrets *secrets.Secrets
	// Sealer seals the keys of webhooks. Default: with the master key of the data directory
	// or of the environment.
	Sealer *secrets.Sealer
	Logger *slog.Logger
}

// A Service is an engine with the interface over HTTP.
type Service struct {
	Node  *node.Node
	API   *api.Server
	Hooks *webhook.Hooks
	Bulks *bulk.Bulks
	// FirstKey is the token of the key that was made because there was none; "" = there was
	// one, or the engine is idle. It is not stored.
	FirstKey string

	cfg      Config
	accounts *account.Accounts
	servers  []*http.Server
	done     sync.WaitGroup
}

// stored are the records of a store.
type stored store.Records

// records are those of a store whose engine is opened after the keys were read.
type records struct {
	stored
	node *node.Node
}

// PutRecords changes them as the owner of the store.
func (r *records) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	return r.node.PutRecords(ctx, changes...)
}

// Open opens an engine on a store, which the service owns from then on, and carries on the
// runs in it.
func Open(ctx context.Context, st node.Store, cfg Config) (*Service, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Secrets == nil {
		cfg.Secrets = secrets.New(secrets.Config{EnvAccount: engine.LocalAccount, Data: cfg.Node.Dir})
	}
	if cfg.Node.Secrets == nil {
		cfg.Node.Secrets = cfg.Secrets
	}
	now := time.Now
	ids := journal.NewIDs(rand.Reader, now)
	rec := &records{stored: st}
	s := &Service{cfg: cfg}
	var keys *access.Keys
	if !cfg.Open {
		var err error
		keys, err = access.OpenKeys(ctx, access.Config{
			Store: rec, Now: now, NewID: func() (string, error) { return ids.ID("key_") }, AdminToken: cfg.AdminToken, AdminAccount: cfg.Account,
			Logger: cfg.Logger,
		})
		if err != nil {
			return nil, errors.Join(err, st.Close())
		}
		cfg.Node.Budgets = keys.Budgets
	}
	accounts, err := account.Open(ctx, account.Config{
		Store: rec, Actions: cfg.Actions.Catalogue, Configured: cfg.Node.Rules, Retention: cfg.Node.Retention, Logger: cfg.Logger,
		Named: append(slices.Collect(maps.Keys(cfg.Node.Accounts)), cfg.Account),
	})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	s.accounts = accounts
	cfg.Node.Override, cfg.Node.Storage, cfg.Node.Retention.Accounts = accounts.Rules, accounts.Storage, accounts
	hooks, err := webhook.New(webhook.Config{
		Records: rec, Sealer: cmp.Or(cfg.Sealer, secrets.NewSealer(cfg.Node.Dir, nil)), NewID: func() (string, error) { return ids.ID(webhook.IDPrefix) },
		Send: cfg.Actions.Send, Now: now, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	s.Hooks = hooks
	s.Bulks, err = bulk.New(bulk.Config{Records: rec, NewID: func() (string, error) { return ids.ID(bulk.IDPrefix) }, Now: now, Logger: cfg.Logger})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	// The recipes of users do not find the action of deliveries: they are compiled with the
	// catalogue of cfg.Actions.
	cfg.Node.Actions = node.Catalogue(append(slices.Clone(cfg.Actions.List), hooks.Action()))
	cfg.Node.Internal = webhook.Internal
	recipes := registry.NewRecipes(registry.RecipesConfig{
		Records: rec, Now: now, NewID: func() (string, error) { return ids.ID("recipe_") }, MaxSource: cfg.MaxSource,
		Actions: accounts.Actions,
	})
	cfg.Node.RecipeID = func(account, name string) string {
		id, err := recipes.ID(context.Background(), account, name)
		if err != nil {
			return name // it is only logged
		}
		return id
	}
	n, err := node.Open(ctx, st, cfg.Node)
	if err != nil {
		return nil, err
	}
	rec.node, s.Node = n, n
	if err := s.open(ctx, cfg, keys, recipes); err != nil {
		stopped, cancel := context.WithCancel(context.Background())
		cancel()
		return nil, errors.Join(err, n.Stop(stopped))
	}
	return s, nil
}

func (s *Service) open(ctx context.Context, cfg Config, keys *access.Keys, recipes *registry.Recipes) error {
	var open *access.Principal
	if cfg.Open {
		open = access.Anyone(cfg.Account)
	} else if !cfg.Node.Idle { // nobody uses one that only looks
		if err := s.firstKey(ctx, keys); err != nil {
			return err
		}
	}
	accounts := s.accounts
	accounts.Watch(func(ctx context.Context, account string) error {
		recipes.ActionsChanged(account)
		if why := accounts.Admit(account); why != nil && keys != nil {
			keys.End(account, why)
		}
		return s.Node.Engine.RulesChanged(ctx)
	})
	cursors, err := s.cursorKey(ctx)
	if err != nil {
		return err
	}
	server, err := api.New(api.Config{
		Node: s.Node, Actions: cfg.Actions, Keys: keys, Recipes: recipes, Open: open, Rules: cfg.Node.Rules,
		Rate: cfg.Rate, Burst: cfg.Burst, Logger: cfg.Logger, Release: cfg.Release,
		Hooks: s.Hooks, Bulks: s.Bulks, Accounts: accounts, Secrets: cfg.Secrets, CursorKey: cursors,
	})
	if err != nil {
		return err
	}
	s.API = server
	s.Bulks.Attach(s.Node.Engine, s.Node.Store)
	host := webhook.Host{Engine: s.Node.Engine, Store: s.Node.Store, Execution: server.Execution}
	if cfg.Node.Idle {
		s.Hooks.Attach(host)
		return nil
	}
	if err := s.Bulks.Start(ctx); err != nil {
		return err
	}
	if err := s.Hooks.Start(ctx, host); err != nil {
		s.Bulks.Stop()
		return err
	}
	return nil
}

// firstKey makes a key for the operator if no key admits anybody.
func (s *Service) firstKey(ctx context.Context, keys *access.Keys) error {
	any, err := keys.Any(ctx)
	if err != nil || any {
		return err
	}
	_, s.FirstKey, err = keys.Create(ctx, access.Anyone(s.cfg.Account), access.Spec{Account: s.cfg.Account, Name: "first key", Role: access.Admin})
	return err
}

// cursorKey returns the key that signs cursors of lists, so that a list which is read when the
// server restarts goes on. It protects nothing secret: whoever has the store can read the lists.
func (s *Service) cursorKey(ctx context.Context) ([]byte, error) {
	name := store.RecordKey{Kind: "cursor.key", ID: "lists"}
	r, err := s.Node.Record(ctx, name)
	switch code := fault.CodeOf(err); {
	case err == nil:
		return r.Data, nil
	case code != fault.RecordNotFound && code != fault.StoreCorrupt:
		return nil, err
	case s.cfg.Node.Idle: // it writes nothing
		return nil, nil
	}
	r = store.Record{RecordKey: name, Revision: store.AnyRevision, Data: rest.NewCursorKey()}
	_, err = s.Node.PutRecords(ctx, store.RecordChange{Record: r})
	return r.Data, err
}

// The times of a connection. A stream sets its own.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	// lastAnswers is how long a service that has no time left lets answers be sent.
	lastAnswers = time.Second
	// maxHeader bounds the headers of a request (A08).
	maxHeader = 32 << 10
)

// Serve answers requests on a listener until Close. A service that checks no keys serves
// loopback and sockets only (A04).
func (s *Service) Serve(ln net.Listener) error {
	if addr := ln.Addr(); s.cfg.Open && !local(addr) {
		return errors.Join(fault.New(fault.ConfigInvalid, "a server that checks no keys listens on loopback only, not on %s", addr), ln.Close())
	}
	s.serve(ln, s.API)
	return nil
}

// Local returns the interface for a listener that lets in nobody but the user whose data
// directory it is, who could open the directory and needs no key: requests are made by the
// operator, of the account that the header Roux-Account names.
func (s *Service) Local() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.API.ServeHTTP(w, r.WithContext(access.With(r.Context(), access.Anyone(s.cfg.Account))))
	})
}

// local reports whether only programs of this machine reach an address.
func local(addr net.Addr) bool {
	switch addr := addr.(type) {
	case *net.TCPAddr:
		return addr.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// ServeAdmin serves metrics and the state of the server on a listener of its own, without
// keys: who reaches it learns names of recipes and numbers, and nothing of a run.
func (s *Service) ServeAdmin(ln net.Listener) {
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz"} {
		mux.Handle("GET "+path, s.API)
	}
	if s.cfg.Metrics != nil {
		mux.Handle("GET /metrics", s.cfg.Metrics)
	}
	s.serve(ln, mux)
}

func (s *Service) serve(ln net.Listener, h http.Handler) {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	s.servers = append(s.servers, server)
	s.done.Go(func() { _ = server.Serve(ln) }) // ends with Close
}

// Close drains the service: it takes no new requests, ends streams, lets requests and
// attempts in progress finish until ctx ends, and closes the store.
func (s *Service) Close(ctx context.Context) error {
	s.API.Stop()
	var failed error
	for _, server := range s.servers {
		if server.Shutdown(ctx) == nil {
			continue
		}
		// Answers that are complete, such as those of streams, may not have been sent yet.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
		if server.Shutdown(last) != nil {
			failed = errors.Join(failed, server.Close())
		}
		cancel()
	}
	s.done.Wait()
	s.Bulks.Stop()
	s.Hooks.Stop()
	return errors.Join(failed, s.Node.Stop(ctx))
}
