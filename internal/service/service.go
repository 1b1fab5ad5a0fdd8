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
	"encoding/json"
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
	"github.com/roux-engine/roux/internal/backup"
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
	// Local makes a service for commands of one user, who reach it by [Service.Local] only. Its
	// interface is made when it is first used. It makes no first key, sends no webhooks, and
	// carries on no bulk that another process has begun: a command does what its user asked for.
	Local bool
	// Take is that of api.Config.
	Take func() (done func(account, run string), err error)
	// MaxSource is how many bytes a recipe may have. Required.
	MaxSource int64
	// Rate and Burst are those of api.Config.
	Rate    float64
	Burst   int
	Streams int // as in api.Config
	Release string
	// Build is the build that backups name. Default: Release.
	Build string
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
	API   *api.Server // nil until a service for commands is first used
	Hooks *webhook.Hooks
	Bulks *bulk.Bulks
	// FirstKey is the token of the key that was made because there was none; "" = there was
	// one, or the engine is idle. It is not stored.
	FirstKey string

	cfg      Config
	keys     *access.Keys
	recipes  *registry.Recipes
	accounts *account.Accounts
	making   sync.Mutex // of API
	servers  []*http.Server
	locals   []*http.Server // of ServeLocal
	done     sync.WaitGroup
	// endUses ends the goroutine that stores when keys were last used; nil = there is none.
	endUses context.CancelFunc
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
	s := new(Service)
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
	s.cfg = cfg
	n, err := node.Open(ctx, st, cfg.Node)
	if err != nil {
		return nil, err
	}
	rec.node, s.Node, s.keys, s.recipes = n, n, keys, recipes
	if err := s.open(ctx); err != nil {
		stopped, cancel := context.WithCancel(context.Background())
		cancel()
		return nil, errors.Join(err, n.Stop(stopped))
	}
	if keys != nil && !cfg.Node.Idle && !cfg.Local {
		s.saveUses()
	}
	return s, nil
}

func (s *Service) open(ctx context.Context) error {
	local, idle := s.cfg.Local, s.cfg.Node.Idle
	if !s.cfg.Open && !idle && !local { // nobody uses one that only looks
		if err := s.firstKey(ctx); err != nil {
			return err
		}
	}
	s.accounts.Watch(func(ctx context.Context, account string) error {
		s.recipes.ActionsChanged(account)
		if why := s.accounts.Admit(account); why != nil && s.keys != nil {
			s.keys.End(account, why)
		}
		return s.Node.Engine.RulesChanged(ctx)
	})
	s.Bulks.Attach(s.Node.Engine, s.Node.Store)
	if !local {
		if _, err := s.server(ctx); err != nil {
			return err
		}
	}
	host := webhook.Host{Engine: s.Node.Engine, Store: s.Node.Store, Execution: s.execution}
	if local && !idle {
		s.Bulks.StartNew(ctx)
	}
	if local || idle {
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

// server returns the interface, which it makes if need be.
func (s *Service) server(ctx context.Context) (*api.Server, error) {
	s.making.Lock()
	defer s.making.Unlock()
	if s.API != nil {
		return s.API, nil
	}
	cursors, err := s.cursorKey(ctx)
	if err != nil {
		return nil, err
	}
	cfg := api.Config{
		Node: s.Node, Actions: s.cfg.Actions, Keys: s.keys, Recipes: s.recipes, Rules: s.cfg.Node.Rules,
		Rate: s.cfg.Rate, Burst: s.cfg.Burst, Streams: s.cfg.Streams, Logger: s.cfg.Logger, Release: s.cfg.Release,
		Hooks: s.Hooks, Bulks: s.Bulks, Accounts: s.accounts, Secrets: s.cfg.Secrets, CursorKey: cursors, Take: s.cfg.Take,
		Backup: s.backup,
	}
	if s.cfg.Open {
		cfg.Open = access.Anyone(s.cfg.Account)
	}
	s.API, err = api.New(cfg)
	return s.API, err
}

// backup is that of api.Config.
func (s *Service) backup(ctx context.Context, to string, progress func(backup.Progress)) (*backup.Manifest, error) {
	return backup.Create(ctx, backup.Source{
		Dir: s.cfg.Node.Dir, Store: s.Node.Store, Files: s.Node.Files, Keep: s.Node.Engine.Files().KeepFiles, Version: cmp.Or(s.cfg.Build, s.cfg.Release), Now: time.Now,
	}, to, progress)
}

// saveUses stores when keys were last used, about once a minute and when the service is closed.
func (s *Service) saveUses() {
	ctx, end := context.WithCancel(context.Background())
	s.endUses = end
	save := func(ctx context.Context, last bool) {
		if err := s.keys.SaveUses(ctx, last); err != nil && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "when keys were last used could not be stored", "error", err)
		}
	}
	s.done.Go(func() {
		tick := time.NewTicker(access.UseEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				save(ctx, false)
			case <-ctx.Done():
				last, cancel := context.WithTimeout(context.Background(), lastAnswers)
				save(last, true)
				cancel()
				return
			}
		}
	})
}

// execution is that of webhook.Host.
func (s *Service) execution(ctx context.Context, account, run string) (json.RawMessage, error) {
	server, err := s.server(ctx)
	if err != nil {
		return nil, err
	}
	return server.Execution(ctx, account, run)
}

// firstKey makes a key for the operator if no key admits anybody.
func (s *Service) firstKey(ctx context.Context) error {
	any, err := s.keys.Any(ctx)
	if err != nil || any {
		return err
	}
	_, s.FirstKey, err = s.keys.Create(ctx, access.Anyone(s.cfg.Account), access.Spec{Account: s.cfg.Account, Name: "first key", Role: access.Admin})
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
	case s.cfg.Node.Idle, s.cfg.Local: // it writes nothing
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

// Recipes are the recipes that the service has, for what registers some without a request.
func (s *Service) Recipes() *registry.Recipes { return s.recipes }

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
	who := access.User(s.cfg.Account)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server, err := s.server(r.Context())
		if err != nil {
			s.cfg.Logger.ErrorContext(r.Context(), "the interface cannot be made", "error", err)
			http.Error(w, "the interface cannot be made", http.StatusInternalServerError)
			return
		}
		server.ServeHTTP(w, r.WithContext(access.With(r.Context(), who)))
	})
}

// ServeLocal serves what Local returns on a listener, until Close.
func (s *Service) ServeLocal(ln net.Listener) {
	s.locals = append(s.locals, s.begin(ln, s.Local()))
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
	s.servers = append(s.servers, s.begin(ln, h))
}

func (s *Service) begin(ln net.Listener, h http.Handler) *http.Server {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	s.done.Go(func() { _ = server.Serve(ln) }) // ends with Close
	return server
}

// Quiet ends the streams in progress. Their clients read on elsewhere.
func (s *Service) Quiet() {
	s.making.Lock()
	server := s.API
	s.making.Unlock()
	if server != nil {
		server.Stop()
	}
}

// Close drains the service: it takes no new requests, ends streams, lets requests and
// attempts in progress finish until ctx ends, and closes the store.
func (s *Service) Close(ctx context.Context) error {
	s.Quiet()
	var failed error
	for _, server := range s.servers {
		failed = errors.Join(failed, shutDown(ctx, server))
	}
	// Commands of the user may still be waiting for an answer, and may read a file for as long as
	// they like, which must not take the time that attempts have.
	for _, server := range s.locals {
		soon, cancel := context.WithCancel(ctx)
		cancel()
		failed = errors.Join(failed, shutDown(soon, server))
	}
	if s.endUses != nil {
		s.endUses()
	}
	s.done.Wait()
	s.Bulks.Stop()
	s.Hooks.Stop()
	return errors.Join(failed, s.Node.Stop(ctx))
}

// shutDown closes a server once its requests have been answered, or ctx has ended.
func shutDown(ctx context.Context, server *http.Server) error {
	if server.Shutdown(ctx) == nil {
		return nil
	}
	// Answers that are complete, such as those of streams, may not have been sent yet.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
	defer cancel()
	if server.Shutdown(last) == nil {
		return nil
	}
	return server.Close()
}
