// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/compile/estimate"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/resource"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/scheduler"
	"github.com/roux-engine/roux/internal/starts"
)

// An ExecuteRequest starts a run (X191).
type ExecuteRequest struct {
	FileHashes []string          `json:"fileHashes,omitempty" maxItems:"1000" doc:"Files of the account, as POST /v1/files answered." example:"[\"sha256_0a1b…\"]"`
	Parameters json.RawMessage   `json:"parameters,omitempty" doc:"The input of the recipe, an object that its inputSchema admits."`
	Async      *bool             `json:"async,omitempty" doc:"false waits up to 60 seconds for the end of the run, as the header Prefer: wait=60 does."`
	MaxCredits int64             `json:"maxCredits,omitempty" minimum:"1" maximum:"9007199254740991" doc:"The most that the run may pay, if recipe and account do not allow less."`
	NoCache    bool              `json:"noCache,omitempty" doc:"Use no earlier results of actions, also in steps that may (docs/cache.md)."`
	Labels     map[string]string `json:"labels,omitempty" doc:"Names and values to find the run by."`
	DryRun     bool              `json:"dryRun,omitempty" doc:"Check everything and estimate, and start nothing."`
	Key        string            `json:"key,omitempty" maxLength:"255" doc:"At most one run with a key is active in the account."`
	IfActive   string            `json:"ifActive,omitempty" enum:"skip,queue,cancelPrevious" doc:"With key, while a run with it is active: skip answers with that run (the default), queue starts the run when that one has ended, cancelPrevious cancels that one first and takes the place of those that wait."`
	Debounce   string            `json:"debounce,omitempty" maxLength:"30" doc:"With key: start the run when no other request with the key and debounce has come for so long, up to 24h; the last one counts." example:"30s"`
}

type executeIn struct {
	RecipePath
	Prefer         string `header:"Prefer" maxLength:"100" doc:"wait=N waits up to N seconds (at most 60) for the end of the run."`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"A repeated request with the same key is answered with the run that the first one started."`
	Body           ExecuteRequest
}

// An Accepted is the answer to a start (X191): the run is durable.
type Accepted struct {
	ExecutionID       string           `json:"executionId" doc:"Empty for a dry run, and if outcome is queued."`
	Outcome           string           `json:"outcome,omitempty" enum:"started,active,queued" doc:"With key: active is answered with the run that is, and queued starts when that has ended."`
	Status            string           `json:"status"`
	State             string           `json:"state"`
	CreditsReserved   int64            `json:"creditsReserved"`
	EstimatedDuration string           `json:"estimatedDuration,omitempty" doc:"ISO 8601." example:"PT2M30S"`
	ProgressURL       string           `json:"progressUrl"`
	EventsURL         string           `json:"eventsUrl"`
	CancelURL         string           `json:"cancelUrl"`
	Warnings          []string         `json:"warnings,omitempty"`
	Estimate          *estimate.Budget `json:"estimate,omitempty" doc:"With dryRun."`
	Execution         *executionBody   `json:"execution,omitempty" doc:"The run as it stands, if the request has waited for its end."`
}

// EncodedJSON implements rest.Encoded: the run, which may be large, is not read again.
func (a Accepted) EncodedJSON() []byte {
	type plain Accepted
	run := a.Execution
	a.Execution = nil
	data, _ := jsonx.Marshal(plain(a)) // never fails
	if run == nil {
		return data
	}
	return slices.Concat(data[:len(data)-1], []byte(`,"execution":`), run.JSON, []byte("}"))
}

type accepted struct {
	Ending
	Status   int
	Location string `header:"Location"`
	Replayed string `header:"Idempotent-Replayed"`
	Applied  string `header:"Preference-Applied"`
	Body     Accepted
}

// parameters decodes the input of a run.
func parameters(raw json.RawMessage) (map[string]any, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	v, err := jsonx.Decode(raw, rest.BodyLimits)
	if err != nil {
		return nil, fault.Wrap(fault.RequestInvalid, err, "parameters: %v", err)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fault.New(fault.RequestInvalid, "parameters: want an object with the fields of the recipe's inputSchema, not %s", jsonx.TypeName(v))
	}
	return m, nil
}

// files finds the input files of a run.
func (s *Server) files(ctx context.Context, hashes []string) ([]journal.File, error) {
	var list []journal.File
	for i, hash := range hashes {
		f, err := s.cfg.Node.Files.Find(ctx, rest.Account(ctx), hash)
		if err == nil && f.Info.Hash != hash {
			err = fault.New(fault.FileNotFound, "no such file")
		}
		if err != nil {
			if fault.CodeOf(err) == fault.FileNotFound {
				err = fault.New(fault.FileNotFound, "fileHashes[%d]: the account has no such file: upload it with POST /v1/files", i)
			}
			return nil, err
		}
		list = append(list, journal.File{Hash: f.Info.Hash, Name: f.Info.Name, MimeType: f.Info.MimeType, Size: f.Info.Size, Extended: f.Info.Extended})
	}
	return list, nil
}

// startRequest turns a request into one of the engine.
func (s *Server) startRequest(ctx context.Context, c *registry.Compiled, in *ExecuteRequest) (engine.StartRequest, error) {
	params, err := parameters(in.Parameters)
	if err != nil {
		return engine.StartRequest{}, err
	}
	files, err := s.files(ctx, in.FileHashes)
	if err != nil {
		return engine.StartRequest{}, err
	}
	if err := rest.CheckLabels(in.Labels); err != nil {
		return engine.StartRequest{}, err
	}
	return engine.StartRequest{
		Account: rest.Account(ctx), Plan: c.Plan, Recipe: c.Version.Name, Version: c.Version.Version, Parameters: params, Files: files,
		Correlation: rest.From(ctx).Correlation, Labels: in.Labels, MaxCredits: in.MaxCredits, Key: access.From(ctx).Budget, NoCache: in.NoCache,
	}, nil
}

func (s *Server) execute(ctx context.Context, in *executeIn) (*accepted, error) {
	c, err := s.cfg.Recipes.Resolve(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	req, err := s.startRequest(ctx, c, &in.Body)
	if err != nil {
		return nil, err
	}
	if in.Body.DryRun {
		return s.dryRun(ctx, c, &req)
	}
	if c.Version.Status == registry.StatusDraft {
		err := fault.New(fault.Conflict, "version %s of the recipe %q is a draft, which is not run", c.Version.Version, c.Version.Name)
		err.Remedy = "Send dryRun: true to check it, or register the text with status active."
		return nil, err
	}
	if in.Body.Key != "" {
		return s.executeKeyed(ctx, c, in)
	}
	if in.Body.IfActive != "" || in.Body.Debounce != "" {
		return nil, fault.New(fault.RequestInvalid, "ifActive and debounce say what becomes of requests with one key: set key")
	}
	if err := s.cfg.Recipes.MarkRan(ctx, rest.Account(ctx), &c.Version); err != nil {
		return nil, err
	}
	return s.start(ctx, c, &req, in)
}

// executeKeyed starts a run of which at most one with its key is active.
func (s *Server) executeKeyed(ctx context.Context, c *registry.Compiled, in *executeIn) (*accepted, error) {
	debounce, err := rest.Duration("debounce", in.Body.Debounce)
	if err != nil {
		return nil, err
	}
	k, err := s.cfg.Schedules.Execute(ctx, rest.Account(ctx), &scheduler.KeyedRequest{
		Key: in.Body.Key, IfActive: schedule.Overlap(cmp.Or(in.Body.IfActive, "skip")), Debounce: debounce, Idempotency: in.IdempotencyKey, Start: starts.Request{
			Recipe: c.Version.Name + "@" + c.Version.Version, Parameters: in.Body.Parameters, Files: in.Body.FileHashes, Labels: in.Body.Labels,
			MaxCredits: in.Body.MaxCredits, Budget: access.From(ctx).Budget, NoCache: in.Body.NoCache,
		},
	})
	if err != nil {
		return nil, err
	}
	out := &accepted{Status: http.StatusAccepted, Body: Accepted{Status: "pending", State: "pending", Outcome: string(k.Result)}}
	warn(out, &c.Version)
	if k.Result == scheduler.Queued {
		return out, nil
	}
	out.Body = s.acceptedBody(ctx, c, engine.Started{Run: k.Run, Existing: true})
	if out.Body.Outcome, out.Location = "started", out.Body.ProgressURL; k.Result == scheduler.Skipped {
		out.Body.Outcome = "active"
	} else if k.Existing {
		out.Replayed = "true"
	}
	return out, s.await(ctx, in, out, k.Run)
}

// start starts a run, and waits for its end as long as its request says.
func (s *Server) start(ctx context.Context, c *registry.Compiled, req *engine.StartRequest, in *executeIn) (*accepted, error) {
	req.IdempotencyKey = in.IdempotencyKey
	started, err := s.cfg.Node.Engine.Start(ctx, *req)
	if err != nil {
		return nil, err
	}
	out := &accepted{Status: http.StatusAccepted, Body: s.acceptedBody(ctx, c, started)}
	out.Location = out.Body.ProgressURL
	if started.Existing {
		out.Replayed = "true"
	}
	warn(out, &c.Version)
	return out, s.await(ctx, in, out, started.Run)
}

// warn says in an answer that the version is deprecated.
func warn(out *accepted, v *registry.Version) {
	out.Ending = ending(v)
	if v.Status != registry.StatusDeprecated {
		return
	}
	text := "version " + v.Version + " is deprecated"
	if v.Sunset != 0 {
		text += " and may be gone from " + rest.Stamp(v.Sunset).Format(time.RFC3339) + " on"
	}
	if v.Note != "" {
		text += ": " + v.Note
	}
	out.Body.Warnings = append(out.Body.Warnings, text)
}

// acceptedBody describes a run that has been accepted.
func (s *Server) acceptedBody(ctx context.Context, c *registry.Compiled, started engine.Started) Accepted {
	base, state := "/v1/recipe-executions/"+started.Run, started.Status.String()
	if started.Existing { // it has gone on since it was started
		if head, err := s.cfg.Node.Store.Head(ctx, key(ctx, started.Run)); err == nil {
			state = head.Status
		}
	}
	return Accepted{
		ExecutionID: started.Run, Status: resource.StatusOf(state), State: state, CreditsReserved: started.Reserved,
		EstimatedDuration: s.estimatedDuration(ctx, c), ProgressURL: base, EventsURL: base + "/events", CancelURL: base + "/cancel",
	}
}

// await waits for the end of a run as long as its request says.
func (s *Server) await(ctx context.Context, in *executeIn, out *accepted, run string) error {
	d, applied := rest.WaitFor(in.Prefer, in.Body.Async)
	if d == 0 {
		return nil
	}
	out.Applied = applied
	rest.Waits(ctx)
	wait, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	_, err := s.cfg.Node.Engine.Wait(wait, rest.Account(ctx), run)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case wait.Err() != nil:
		return nil // it goes on: the answer says where to look
	case err != nil:
		return err
	}
	e, err := s.execution(ctx, run, true)
	if err != nil {
		return err
	}
	out.Status = http.StatusOK
	out.Body.Status, out.Body.State, out.Body.Execution = e.status, e.state, e
	return nil
}

// dryRun answers what a start would do.
func (s *Server) dryRun(ctx context.Context, c *registry.Compiled, req *engine.StartRequest) (*accepted, error) {
	quote, err := s.quote(ctx, req)
	if err != nil {
		return nil, err
	}
	out := &accepted{Status: http.StatusOK, Body: Accepted{
		Status: "pending", State: "pending", Estimate: quote.Budget, EstimatedDuration: s.estimatedDuration(ctx, c),
	}}
	if quote.Credits != nil {
		out.Body.CreditsReserved = quote.Credits.Reserved
	}
	warn(out, &c.Version)
	return out, nil
}

func (s *Server) quote(ctx context.Context, req *engine.StartRequest) (*starts.Quote, error) {
	return starts.QuoteOf(req, s.cfg.Accounts.Actions(rest.Account(ctx)), s.cfg.Rules(rest.Account(ctx)))
}

// An Estimate is what a run may cost and how long it may take (X192).
type Estimate struct {
	EstimatedCredits  int64            `json:"estimatedCredits"`
	CreditsReserved   int64            `json:"creditsReserved" doc:"What a start would hold."`
	MinCredits        int64            `json:"minCredits"`
	MaxCredits        int64            `json:"maxCredits,omitempty" doc:"The most that the run can pay."`
	EstimatedDuration string           `json:"estimatedDuration,omitempty" example:"PT2M30S"`
	MinDuration       string           `json:"minDuration,omitempty"`
	MaxDuration       string           `json:"maxDuration,omitempty"`
	BalanceAfter      *int64           `json:"balanceAfter,omitempty" doc:"What would be available after the reservation; negative = the start would be refused."`
	Detail            *estimate.Budget `json:"detail"`
}

type estimateIn struct {
	RecipePath
	Body ExecuteRequest
}

type estimateQuery struct {
	RecipePath
	FileHashes string `query:"fileHashes" maxLength:"20000" doc:"Hashes of files, separated by commas."`
	Parameters string `query:"parameters" maxLength:"20000" doc:"The input as a JSON object."`
}

func (s *Server) estimateByQuery(ctx context.Context, in *estimateQuery) (*struct{ Body Estimate }, error) {
	full := &estimateIn{RecipePath: in.RecipePath}
	full.Body.Parameters = json.RawMessage(in.Parameters)
	if in.FileHashes != "" {
		full.Body.FileHashes = strings.Split(in.FileHashes, ",")
	}
	return s.estimate(ctx, full)
}

func (s *Server) estimate(ctx context.Context, in *estimateIn) (*struct{ Body Estimate }, error) {
	c, err := s.cfg.Recipes.Resolve(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	req, err := s.startRequest(ctx, c, &in.Body)
	if err != nil {
		return nil, err
	}
	quote, err := s.quote(ctx, &req)
	if err != nil {
		return nil, err
	}
	b := quote.Budget
	out := Estimate{
		EstimatedCredits: b.Expected, CreditsReserved: b.Reserved, MinCredits: b.Least, MaxCredits: b.Cap, Detail: b,
		EstimatedDuration: s.estimatedDuration(ctx, c), MinDuration: isoDuration(b.LeastMS), MaxDuration: isoDuration(b.MostMS),
	}
	if quote.Credits == nil {
		out.CreditsReserved = 0
	} else {
		out.CreditsReserved = quote.Credits.Reserved
		a, err := s.cfg.Node.Store.Account(ctx, rest.Account(ctx), s.cfg.Now().UnixMicro())
		if err != nil {
			return nil, err
		}
		left := a.Balance(s.cfg.Now().UnixMicro()).Available - quote.Credits.Reserved
		out.BalanceAfter = &left
	}
	return &struct{ Body Estimate }{out}, nil
}
