// SPDX-License-Identifier: Apache-2.0

// Package rest is what all operations over HTTP have in common.
//
// It decides who makes a request and whether its key allows it, how fast the requests of an
// account may come, which bodies and parameters are read, how a repeated request is
// recognised, and what problem documents, pages and the OpenAPI document look like. Every
// operation declares the scope that it needs; a router with one that declares none does not
// start (A03). The account of a request is that of its key and nothing else (I17).
//
// It knows no operation: those of package api register themselves.
package rest

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"path"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// Records are where answers are kept.
type Records interface {
	Record(ctx context.Context, key store.RecordKey) (store.Record, error)
	PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error)
}

// Config is what a Router is made of. Every field but Keys, Open, RateOf, Admit, CursorKey and Release is required.
type Config struct {
	Records Records
	Keys    *access.Keys // nil = no keys are checked, and every request is Open's
	// Open is who makes requests where no keys are checked.
	Open *access.Principal
	// Rate is how many requests an account may send in a second, on average, and Burst how
	// many at once. A negative Rate is no limit.
	Rate  float64
	Burst int
	// RateOf returns the rate and the burst of an account that has others; 0 = it has not.
	// Default: none has.
	RateOf func(account string) (perSecond float64, burst int)
	// Admit refuses the requests of an account, unless the key administers accounts. Default:
	// none is refused.
	Admit func(account string) error
	// Logger gets a line for each request that fails inside, and for each request at the
	// level debug.
	Logger *slog.Logger
	// Now is the clock.
	Now func() time.Time
	// Tags describe the groups of operations by their names, which begin the ids of the
	// operations. An operation of a group without a description does not start.
	Tags map[string]string
	// CursorKey signs the cursors of lists. With the same key they go on after a restart.
	// Default: a new one.
	CursorKey []byte
	// Release is the release of the server, for people.
	Release string
}

// A Router takes requests to the operations that [Handle] has registered. It is an
// http.Handler once Start has returned.
type Router struct {
	cfg      Config
	ids      *journal.IDs
	api      huma.API
	mux      *http.ServeMux
	policies map[string]*Policy // by the id of an operation
	repeated []string           // ids that more than one operation has
	hidden   []string           // parts of inputs that would be ignored
	unfit    []error            // what inputs and outputs cannot have
	rates    rates
	fair     *FairLimit
	answers  answers
	cursors  cursors
}

// maxRequests is how many requests are carried out at once. Those that start runs share
// commits, so many at once cost less than few; more than that only make each other wait.
const maxRequests = 64

// New returns a router without operations.
func New(cfg Config) *Router {
	rt := &Router{
		cfg: cfg, ids: journal.NewIDs(rand.Reader, cfg.Now), mux: http.NewServeMux(), policies: map[string]*Policy{},
		rates: newRates(cfg.Rate, cfg.Burst, cfg.RateOf), fair: NewFairLimit(maxRequests), answers: newAnswers(),
	}
	if rt.cursors.key = cfg.CursorKey; rt.cursors.key == nil {
		rt.cursors.key = NewCursorKey()
	}
	doc := humaConfig(cfg.Release)
	doc.Transformers = []huma.Transformer{rt.ours}
	rt.api = humago.New(rt.mux, doc)
	return rt
}

// Running returns how many requests of accounts are carried out, streams apart.
func (rt *Router) Running() int { return rt.fair.Running() }

// Start completes the document when every operation is registered. It fails if one of them
// has no policy or one that says nothing, if two have one id, if one has no group, or if an
// input has an embedded type that is not exported.
func (rt *Router) Start() error {
	if err := rt.checkPolicies(); err != nil {
		return err
	}
	rt.finishDocument()
	return nil
}

// ServeHTTP implements http.Handler. A path that no operation has is answered like any other
// error.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, pattern := rt.mux.Handler(r)
	if pattern != "" && path.Clean(r.URL.Path) == r.URL.Path { // else the mux would redirect
		rt.mux.ServeHTTP(w, r)
		return
	}
	rt.unmatched(w, r, h)
}
