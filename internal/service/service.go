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
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/api"
	"github.com/roux-engine/roux/internal/backup"
	"github.com/roux-engine/roux/internal/bulk"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/inbound"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/scheduler"
	"github.com/roux-engine/roux/internal/secrets"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/webhook"
)

// Config is what a Service is made of. Fields left zero take the default that their comment
// names.
type Config struct {
	Node node.Config // for Open; New has a node
	// Account is the account of the first key, and of requests where no keys are checked.
	// Required.
	Account string
	// AdminToken is a key with the role admin that is not stored, see access.Keys.SetAdmin.
	AdminToken string
	// Open makes the service check no keys. It then listens on loopback only.
	Open bool
	// Local makes a service for commands of one user, who reach it by [Service.Local] only. Its
	// interface is made when it is first used. It makes no first key, sends no webhooks, starts
	// nothing by schedules, and carries on no bulk that another process has begun: a command does what its user asked for.
	Local bool
	// Take is that of api.Config.
	Take func() (done func(account, run string), err error)
	// MaxSource is how many bytes a recipe may have. Required.
	MaxSource int64
	// Limits are those that recipes are compiled with, and the most that a retry may raise.
	Limits compile.Limits
	// NoRefs refuses steps that name registered recipes.
	NoRefs bool
	// Rate and Burst are those of api.Config.
	Rate    float64
	Burst   int
	Streams int // as in api.Config
	Release string
	// Build is the build that backups name. Default: Release.
	Build string
	// Metrics, when set, is served at /metrics of the administration listener.
	Metrics http.Handler
}

// A Service is an engine with the interface over HTTP.
type Service struct {
	Node  *node.Node
	API   *api.Server // nil until a service for commands is first used
	Hooks *webhook.Hooks
	Bulks *bulk.Bulks
	// Schedules start runs once the service is open.
	Schedules *scheduler.Scheduler
	Triggers  *inbound.Triggers
	// FirstKey is the token of the key that was made because there was none; "" = there was
	// one, or the engine is idle. It is not stored.
	FirstKey string

	cfg     Config
	log     *slog.Logger
	keys    *access.Keys // nil = none are checked
	recipes *registry.Recipes
	starter *starts.Starter
	making  sync.Mutex // of API
	servers []*http.Server
	locals  []*http.Server // of ServeLocal
	done    sync.WaitGroup
	// requests are those of ServeHTTP; none begins once ended is set.
	gate     sync.Mutex
	ended    bool
	requests sync.WaitGroup
	// endUses ends the goroutine that stores when keys were last used; nil = there is none.
	endUses context.CancelFunc
}

// Open opens a node on a store, which the service owns from then on, carries on the runs in
// it, and serves it.
func Open(ctx context.Context, st node.Store, cfg Config) (*Service, error) {
	if err := access.CheckAdmin(cfg.AdminToken); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	cfg.Node.Account, cfg.Node.MaxLimits = cfg.Account, cfg.Limits.Max
	n, err := node.Open(ctx, st, cfg.Node)
	if err != nil {
		return nil, err
	}
	s, err := New(ctx, n, cfg)
	if err != nil {
		stopped, cancel := context.WithCancel(context.Background())
		cancel()
		return nil, errors.Join(err, n.Stop(stopped))
	}
	return s, nil
}

// New serves a node, which calls the service's end before it stops.
func New(ctx context.Context, n *node.Node, cfg Config) (*Service, error) {
	if err := access.CheckAdmin(cfg.AdminToken); err != nil {
		return nil, err
	}
	now := time.Now
	ids := journal.NewIDs(rand.Reader, now)
	s := &Service{Node: n, Hooks: n.Hooks, cfg: cfg, log: n.Config.Logger}
	var err error
	s.Bulks, err = bulk.New(bulk.Config{Records: n, NewID: func() (string, error) { return ids.ID(bulk.IDPrefix) }, Now: now, Logger: s.log})
	if err != nil {
		return nil, err
	}
	s.recipes = registry.NewRecipes(registry.RecipesConfig{
		Records: n, Now: now, NewID: func() (string, error) { return ids.ID("recipe_") }, MaxSource: cfg.MaxSource,
		Actions: n.Accounts.Actions, Limits: cfg.Limits, NoRefs: cfg.NoRefs,
	})
	n.UseRegistered(s.recipes.ResolveDefinition)
	s.starter = starts.New(starts.Config{
		Recipes: s.recipes, Files: n.Files, Actions: n.Accounts.Actions, Rules: n.Rules, Admit: n.Accounts.Admit,
	}, n.Engine)
	s.Schedules, err = scheduler.New(scheduler.Config{
		Records: n, Starter: s.starter, Runs: n.Engine, NewID: func() (string, error) { return ids.ID(scheduler.IDPrefix) }, Now: now, Logger: s.log,
	})
	if err != nil {
		return nil, err
	}
	s.Triggers, err = inbound.New(inbound.Config{
		Records: n, Starter: s.starter, Keyed: s.Schedules, Runs: n.Engine, Secrets: n.Config.Secrets, NewID: func() (string, error) { return ids.ID(inbound.IDPrefix) }, Now: now, Logger: s.log,
	})
	if err != nil {
		return nil, err
	}
	if err := n.Serve(ctx, s.open, s.end); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Service) open(ctx context.Context) error {
	local, idle := s.cfg.Local, s.Node.Config.Idle
	s.Node.Observe(s.recipeID, s.Triggers.Refused)
	if !s.cfg.Open {
		s.keys = s.Node.Keys
		if s.cfg.AdminToken != "" {
			s.keys.SetAdmin(s.cfg.AdminToken, s.cfg.Account)
		}
	}
	if s.keys != nil && !idle && !local { // nobody uses one that only looks
		if err := s.firstKey(ctx); err != nil {
			return err
		}
		s.saveUses()
	}
	s.Node.Accounts.Watch(func(ctx context.Context, account string) error {
		s.recipes.ActionsChanged(account)
		if why := s.Node.Accounts.Admit(account); why != nil && s.keys != nil {
			s.keys.End(account, why)
		}
		return s.Node.Engine.RulesChanged(ctx)
	})
	s.Bulks.Attach(s.Node.Engine, s.Node.Store)
	switch {
	case local && idle:
		return nil
	case local:
		s.Bulks.StartNew(ctx)
		return nil
	}
	if _, err := s.server(ctx); err != nil || idle {
		return err
	}
	if err := s.Bulks.Start(ctx); err != nil {
		return err
	}
	s.Schedules.Start(ctx)
	return s.Hooks.Start(ctx, s.execution)
}

// recipeID is that of feed.Host.
func (s *Service) recipeID(account, name string) string {
	id, err := s.recipes.ID(context.Background(), account, name)
	if err != nil {
		return name // it is only logged
	}
	return id
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
		Node: s.Node, Actions: s.Node.Config.Actions, Keys: s.keys, Recipes: s.recipes, Rules: s.Node.Rules,
		Rate: s.cfg.Rate, Burst: s.cfg.Burst, Streams: s.cfg.Streams, Logger: s.log, Release: s.cfg.Release,
		Hooks: s.Hooks, Bulks: s.Bulks, Accounts: s.Node.Accounts, Secrets: s.secrets(), CursorKey: cursors, Take: s.cfg.Take,
		Backup: s.backup, Schedules: s.Schedules, Starts: s.starter, Triggers: s.Triggers,
	}
	if s.cfg.Open {
		cfg.Open = access.Anyone(s.cfg.Account)
	}
	s.API, err = api.New(cfg)
	return s.API, err
}

// secrets are those that accounts may keep over HTTP. Where steps use secrets of the program's
// own, what is kept over HTTP would have no effect, so there is no vault.
func (s *Service) secrets() *secrets.Secrets {
	if own, ok := s.Node.Config.Secrets.(*secrets.Secrets); ok {
		return own
	}
	return secrets.New(secrets.Config{})
}

// backup is that of api.Config.
func (s *Service) backup(ctx context.Context, to string, progress func(backup.Progress)) (*backup.Manifest, error) {
	return backup.Create(ctx, backup.Source{
		Dir: s.Node.Config.Dir, Store: s.Node.Store, Files: s.Node.Files, Keep: s.Node.Engine.Files().KeepFiles, Version: cmp.Or(s.cfg.Build, s.cfg.Release), Now: time.Now,
	}, to, progress)
}

// saveUses stores when keys were last used, about once a minute and when the service is closed.
func (s *Service) saveUses() {
	ctx, end := context.WithCancel(context.Background())
	s.endUses = end
	save := func(ctx context.Context, last bool) {
		if err := s.keys.SaveUses(ctx, last); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "when keys were last used could not be stored", "error", err)
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
	case s.Node.Config.Idle, s.cfg.Local: // it writes nothing
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
			s.log.ErrorContext(r.Context(), "the interface cannot be made", "error", err)
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

// ServeHTTP answers a request of a listener that the service does not have. Close waits for it
// as for one of its own.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.gate.Lock()
	ended := s.ended
	if !ended {
		s.requests.Add(1)
	}
	s.gate.Unlock()
	if ended {
		http.Error(w, "the server is closed", http.StatusServiceUnavailable)
		return
	}
	defer s.requests.Done()
	s.API.ServeHTTP(w, r)
}

// drain ends ServeHTTP: it waits for the requests in progress until ctx ends, and at least as
// long as answers may take to be sent.
func (s *Service) drain(ctx context.Context) error {
	s.gate.Lock()
	s.ended = true
	s.gate.Unlock()
	done := make(chan struct{})
	go func() {
		s.requests.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-done:
		return nil
	case <-time.After(lastAnswers):
		return context.Cause(ctx)
	}
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
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
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
func (s *Service) Close(ctx context.Context) error { return s.Node.Stop(ctx) }

// end is Close up to the engine.
func (s *Service) end(ctx context.Context) error {
	s.Quiet()
	failed := s.drain(ctx)
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
	s.Schedules.Stop()
	s.Bulks.Stop()
	s.Hooks.Stop()
	return failed
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
