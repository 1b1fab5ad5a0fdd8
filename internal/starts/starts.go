// SPDX-License-Identifier: Apache-2.0

// Package starts starts runs of requests that were stored before: by schedules, and by
// whatever else begins a run without a caller that waits for it.
//
// It decides which version of a recipe a stored request runs, at the moment of the start, and
// whether the account may start anything then. It keeps no requests and never decides when one
// is carried out.
package starts

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/registry"
)

// The bounds of a stored request.
const (
	MaxParameters = 256 << 10 // bytes
	MaxFiles      = 1_000
	MaxLabels     = 20
)

// A Request is what a run is started with later.
type Request struct {
	Recipe     string            `json:"recipe"` // name or id, with @ and a range; resolved at the start
	Parameters json.RawMessage   `json:"parameters,omitempty"`
	Files      []string          `json:"files,omitempty"` // hashes
	Labels     map[string]string `json:"labels,omitempty"`
	MaxCredits int64             `json:"maxCredits,omitempty"`
	NoCache    bool              `json:"noCache,omitempty"` // that of engine.StartRequest
	// Budget is that of engine.StartRequest.Key: the key that stored the request pays.
	Budget string `json:"budget,omitempty"`
}

// Config is what a Starter is made of. All fields are required.
type Config struct {
	Recipes *registry.Recipes
	Files   interface {
		Find(ctx context.Context, account, hash string) (blob.Entry, error)
	}
	Actions func(account string) catalogue.Actions
	Rules   func(account string) engine.AccountRules
	Admit   func(account string) error // refuses an account that is disabled
}

// A Starter starts runs. It is safe for concurrent use.
type Starter struct {
	cfg    Config
	engine *engine.Engine
}

// New returns a starter.
func New(cfg Config, e *engine.Engine) *Starter { return &Starter{cfg, e} }

// A Run is what was started.
type Run struct {
	ID      string
	Version string // of the recipe
	// Existing is true if an earlier request with the same key started it.
	Existing bool
}

// Find refuses a recipe that no run could be started of now.
func (s *Starter) Find(ctx context.Context, account, recipe string) error {
	_, err := s.resolve(ctx, account, recipe)
	return err
}

// Check refuses a request that would not start a run now.
func (s *Starter) Check(ctx context.Context, account string, r *Request) error {
	req, _, err := s.prepare(ctx, account, r)
	if err != nil {
		return err
	}
	_, err = QuoteOf(&req, s.cfg.Actions(account), s.cfg.Rules(account))
	return err
}

// Start starts a run under an idempotency key, with labels beside those of the request. It is
// durable when it is returned.
func (s *Starter) Start(ctx context.Context, account string, r *Request, key string, labels map[string]string) (Run, error) {
	if err := s.cfg.Admit(account); err != nil {
		return Run{}, err
	}
	req, version, err := s.prepare(ctx, account, r)
	if err != nil {
		return Run{}, err
	}
	req.IdempotencyKey, req.Labels = key, maps.Clone(r.Labels)
	if req.Labels == nil {
		req.Labels = map[string]string{}
	}
	maps.Copy(req.Labels, labels)
	if err := s.cfg.Recipes.MarkRan(ctx, account, version); err != nil {
		return Run{}, err
	}
	started, err := s.engine.Start(ctx, req)
	return Run{started.Run, version.Version, started.Existing}, err
}

func (s *Starter) resolve(ctx context.Context, account, recipe string) (*registry.Compiled, error) {
	c, err := s.cfg.Recipes.Resolve(ctx, account, recipe)
	if err == nil && c.Version.Status == registry.StatusDraft {
		err = fault.New(fault.Conflict, "version %s of the recipe %q is a draft, which is not run", c.Version.Version, c.Version.Name)
	}
	return c, err
}

// prepare resolves the recipe and the files of a request.
func (s *Starter) prepare(ctx context.Context, account string, r *Request) (req engine.StartRequest, v *registry.Version, err error) {
	if len(r.Parameters) > MaxParameters || len(r.Files) > MaxFiles || len(r.Labels) > MaxLabels {
		return req, nil, fault.New(fault.RequestInvalid, "want parameters of at most %d bytes, at most %d files and %d labels", MaxParameters, MaxFiles, MaxLabels)
	}
	c, err := s.resolve(ctx, account, r.Recipe)
	if err != nil {
		return req, nil, err
	}
	req = engine.StartRequest{
		Account: account, Plan: c.Plan, Recipe: c.Version.Name, Version: c.Version.Version, MaxCredits: r.MaxCredits, NoCache: r.NoCache, Key: r.Budget, Labels: r.Labels,
	}
	if req.Parameters, err = Parameters(r.Parameters); err != nil {
		return req, nil, err
	}
	for i, hash := range r.Files {
		f, err := s.cfg.Files.Find(ctx, account, hash)
		if err == nil && f.Info.Hash != hash || fault.CodeOf(err) == fault.FileNotFound {
			err = fault.New(fault.FileNotFound, "file %d: the account has no such file, or no longer", i+1)
		}
		if err != nil {
			return req, nil, err
		}
		req.Files = append(req.Files, journal.File{Hash: f.Info.Hash, Name: f.Info.Name, MimeType: f.Info.MimeType, Size: f.Info.Size, Extended: f.Info.Extended})
	}
	return req, &c.Version, nil
}

// Parameters decodes the input of a run: an object, or nothing.
func Parameters(raw json.RawMessage) (map[string]any, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	v, err := jsonx.Decode(raw, jsonx.Limits{Bytes: MaxParameters})
	if err != nil {
		return nil, fault.Wrap(fault.RequestInvalid, err, "parameters: %v", err)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fault.New(fault.RequestInvalid, "parameters: want an object with the fields of the recipe's inputSchema, not %s", jsonx.TypeName(v))
	}
	return m, nil
}
