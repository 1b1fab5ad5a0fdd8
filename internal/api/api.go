// SPDX-License-Identifier: Apache-2.0

// Package api serves recipes, runs, files and credits over HTTP.
//
// It decides which operations there are and what their requests and answers look like: paths, fields, statuses and
// streams. What they have in common, such as keys, problem documents, pages and the OpenAPI document that is made from
// them, is that of package rest. An operation on the runs, recipes and files of an account takes no account but that
// of its key (I17).
//
// It decides nothing about runs: it passes requests on to the engine, and shows what the
// engine has made durable.
package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/account"
	"github.com/roux-engine/roux/internal/approvals"
	"github.com/roux-engine/roux/internal/backup"
	"github.com/roux-engine/roux/internal/bulk"
	"github.com/roux-engine/roux/internal/dependencies"
	"github.com/roux-engine/roux/internal/docpage"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/inbound"
	"github.com/roux-engine/roux/internal/lenses"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/scheduler"
	"github.com/roux-engine/roux/internal/secrets"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/triggers"
	"github.com/roux-engine/roux/internal/webhook"
	"github.com/roux-engine/roux/internal/workers"
	"github.com/roux-engine/roux/internal/workflows"
)

// Config is what a Server is made of.
type Config struct {
	Node     *node.Node        // required
	Actions  *node.Actions     // required
	Keys     *access.Keys      // nil = no keys are checked, and every request is Open's
	Recipes  *registry.Recipes // required
	Hooks    *webhook.Hooks    // required
	Bulks    *bulk.Bulks       // required
	Accounts *account.Accounts // required
	Secrets  *secrets.Secrets  // required
	// Schedules are also runs with a key. Required.
	Schedules *scheduler.Scheduler
	Starts    *starts.Starter   // required
	Triggers  *inbound.Triggers // required
	// Open is who makes requests where no keys are checked.
	Open *access.Principal
	// Rules returns what applies to the runs of an account. Required.
	Rules func(account string) engine.AccountRules
	// Rate is how many requests an account may send in a second, on average, and Burst how
	// many at once. Defaults 200 and 400; a negative Rate is no limit.
	Rate  float64
	Burst int
	// Streams is how many streams of events an account may have at once; the runs that a
	// socket follows count like streams. Default 20,000.
	Streams int
	// Logger gets a line for each request that fails inside, and for each request at the
	// level debug. Default: discarded.
	Logger *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// CursorKey is that of rest.Config.
	CursorKey []byte
	// Release is the release of the server, for people.
	Release string
	// Backup makes a backup of the data directory, see backup.Create. Required.
	Backup func(ctx context.Context, to string, progress func(backup.Progress)) (*backup.Manifest, error)
	// Take is called before a run of another process is taken over, and done with its id once
	// it is; "" = it was not. An error refuses it. Default: every one is taken.
	Take func() (done func(account, run string), err error)
}

// A Server answers requests. It is an http.Handler.
type Server struct {
	cfg       Config
	rest      *rest.Router
	views     views
	times     times
	durations durations
	docs      func() ([]byte, error) // the page of the OpenAPI document, made when somebody first asks for it
	reads     *rest.FairLimit        // of journals, by streams that catch up
	// stopping ends streams, which no drain waits for.
	stopping context.Context
	stop     context.CancelFunc
	open     *rest.StreamCounts
	starting sync.Mutex // no stream begins once Stop has cancelled stopping
	streams  sync.WaitGroup
}

// What streams that catch up leave to those who start runs.
const (
	// maxReads is how many streams read journals at once.
	maxReads = 2
	// busy is how many requests are carried out at once when the server has much to do: each of
	// them waits for a commit, so a few are nothing.
	busy = 16
	// giveWay is how long a stream that begins then waits. So all streams catch up some time,
	// also on a server that is always busy.
	giveWay = 5 * time.Millisecond
	// longestRead is how long a stream waits for its turn to read.
	longestRead = time.Minute
)

// New returns a server. It starts no goroutine and listens nowhere.
func New(cfg Config) (*Server, error) {
	if cfg.Node == nil || cfg.Actions == nil || cfg.Recipes == nil || cfg.Hooks == nil || cfg.Bulks == nil || cfg.Rules == nil || cfg.Accounts == nil || cfg.Schedules == nil || cfg.Starts == nil || cfg.Triggers == nil || cfg.Secrets == nil || cfg.Backup == nil {
		return nil, errors.New("api: a node, actions, recipes, hooks, bulks, rules, accounts, schedules, triggers, secrets and backups are required")
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
	cfg.Rate, cfg.Burst, cfg.Streams = cmp.Or(cfg.Rate, 200), cmp.Or(cfg.Burst, 400), cmp.Or(cfg.Streams, rest.DefaultStreams)
	if cfg.Take == nil {
		cfg.Take = func() (func(account, run string), error) { return func(string, string) {}, nil }
	}
	s := &Server{cfg: cfg, open: rest.NewStreamCounts(cfg.Streams), views: newViews(), times: streamTimes, durations: newDurations(), reads: rest.NewPatientLimit(maxReads, longestRead)}
	s.rest = rest.New(rest.Config{
		Records: cfg.Node, Keys: cfg.Keys, Open: cfg.Open, Rate: cfg.Rate, Burst: cfg.Burst, RateOf: cfg.Accounts.Rate, Admit: cfg.Accounts.Admit,
		Logger: cfg.Logger, Now: cfg.Now, Tags: groups, CursorKey: cfg.CursorKey, Release: cfg.Release,
	})
	s.docs = sync.OnceValues(func() ([]byte, error) {
		data, err := s.rest.Document()
		if err != nil {
			return nil, err
		}
		return docpage.Reference(data)
	})
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.routes()
	if err := s.rest.Start(); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	return s, nil
}

// routes registers every operation.
func (s *Server) routes() {
	s.recipeRoutes()
	s.executionRoutes()
	s.controlRoutes()
	s.handoverRoutes()
	s.whyRoutes()
	s.journalRoutes()
	s.eventRoutes()
	s.socketRoutes()
	s.fileRoutes()
	s.actionRoutes()
	s.accountRoutes()
	s.operatorRoutes()
	s.settingsRoutes()
	s.keyRoutes()
	s.secretRoutes()
	s.webhookRoutes()
	s.bulkRoutes()
	triggers.Register(s.rest, s.cfg.Schedules)
	triggers.RegisterInbound(s.rest, s.cfg.Triggers)
	triggers.RegisterProviders(s.rest, s.cfg.Node.Jobs)
	triggers.RegisterCache(s.rest, s.cfg.Node.Engine.Cache)
	workers.Register(s.rest, s.cfg.Node.Workers)
	lenses.Register(s.rest, s.cfg.Recipes)
	dependencies.Register(s.rest, s.cfg.Recipes)
	workflows.Register(s.rest, workflows.Config{Recipes: s.cfg.Recipes, Schedules: s.cfg.Schedules, Starts: s.cfg.Starts, Engine: s.cfg.Node.Engine, Runs: s.cfg.Node.Store, Show: s.whole}, recipeTypes)
	approvals.Register(s.rest, s.cfg.Node.Approvals, s.cfg.Actions.Address)
	s.healthRoutes()
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.rest.ServeHTTP(w, r) }

// Document returns the OpenAPI document.
func (s *Server) Document() ([]byte, error) { return s.rest.Document() }

// Stop ends the streams in progress: their clients read on elsewhere, or after a restart.
// Other requests go on.
func (s *Server) Stop() {
	s.starting.Lock()
	s.stop()
	s.starting.Unlock()
	s.streams.Wait()
}
