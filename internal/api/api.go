// SPDX-License-Identifier: Apache-2.0

// Package api serves recipes, runs, files and credits over HTTP.
//
// It decides what a request and an answer look like: paths, fields, statuses, problem
// documents, pages, streams, and the OpenAPI document that describes them, which is made
// from the handlers. Every operation declares the scope that it needs; one that declares
// none does not start (A03). The account of a request is that of its key and nothing else:
// an operation on the runs, recipes and files of an account takes no other (I17).
//
// It decides nothing about runs: it passes requests on to the engine, and shows what the
// engine has made durable.
package api

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/registry"
)

// Config is what a Server is made of.
type Config struct {
	Node    *node.Node        // required
	Actions *node.Actions     // required
	Keys    *access.Keys      // nil = no keys are checked, and every request is Open's
	Recipes *registry.Recipes // required
	// Open is who makes requests where no keys are checked.
	Open *access.Principal
	// Rules returns what applies to the runs of an account. Required.
	Rules func(account string) engine.AccountRules
	// Rate is how many requests an account may send in a second, on average, and Burst how
	// many at once. Defaults 200 and 400; a negative Rate is no limit.
	Rate  float64
	Burst int
	// Logger gets a line for each request that fails inside, and for each request at the
	// level debug. Default: discarded.
	Logger *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Release is the release of the server, for people.
	Release string
}

// A Server answers requests. It is an http.Handler.
type Server struct {
	cfg       Config
	ids       *journal.IDs
	api       huma.API
	mux       *http.ServeMux
	policies  map[string]*policy // by the id of an operation
	repeated  []string           // ids that more than one operation has
	rates     rates
	views     views
	answers   answers
	cursors   cursors
	durations durations
	// stopping ends streams, which no drain waits for.
	stopping context.Context
	stop     context.CancelFunc
	starting sync.Mutex // no stream begins once Stop has cancelled stopping
	streams  sync.WaitGroup
}

// New returns a server. It starts no goroutine and listens nowhere.
func New(cfg Config) (*Server, error) {
	if cfg.Node == nil || cfg.Actions == nil || cfg.Recipes == nil || cfg.Rules == nil {
		return nil, errors.New("api: a node, actions, recipes and rules are required")
	}
	if (cfg.Keys == nil) == (cfg.Open == nil) {
		return nil, errors.New("api: either keys are checked, or every request is made by Open")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rate == 0 {
		cfg.Rate = 200
	}
	if cfg.Burst == 0 {
		cfg.Burst = 400
	}
	s := &Server{
		cfg: cfg, ids: journal.NewIDs(rand.Reader, cfg.Now), mux: http.NewServeMux(), policies: map[string]*policy{},
		rates: newRates(cfg.Rate, cfg.Burst), views: newViews(), answers: newAnswers(), durations: newDurations(),
	}
	s.cursors.key = make([]byte, 32)
	_, _ = rand.Read(s.cursors.key) // never fails (crypto/rand)
	s.stopping, s.stop = context.WithCancel(context.Background())
	doc := humaConfig(cfg.Release)
	doc.Transformers = []huma.Transformer{s.ours}
	s.api = humago.New(s.mux, doc)
	s.api.UseMiddleware(s.guard)
	s.routes()
	if err := s.checkPolicies(); err != nil {
		return nil, err
	}
	s.finishDocument()
	return s, nil
}

// routes registers every operation.
func (s *Server) routes() {
	s.recipeRoutes()
	s.executionRoutes()
	s.controlRoutes()
	s.eventRoutes()
	s.socketRoutes()
	s.fileRoutes()
	s.actionRoutes()
	s.accountRoutes()
	s.keyRoutes()
	s.healthRoutes()
}

// ServeHTTP implements http.Handler. A path that no operation has is answered like any other
// error.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, pattern := s.mux.Handler(r)
	if pattern != "" && path.Clean(r.URL.Path) == r.URL.Path { // else the mux would redirect
		s.mux.ServeHTTP(w, r)
		return
	}
	s.unmatched(w, r, h)
}

// Stop ends the streams in progress: their clients read on elsewhere, or after a restart.
// Other requests go on.
func (s *Server) Stop() {
	s.starting.Lock()
	s.stop()
	s.starting.Unlock()
	s.streams.Wait()
}
