// SPDX-License-Identifier: Apache-2.0

package roux

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"net/netip"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/media"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/view"
)

// Options configure an Engine. Fields left zero take the default that their comment
// names.
type Options struct {
	// Dir is the data directory. It is created if it does not exist; only one process
	// at a time can hold it. Required.
	Dir string
	// Actions are the program's own actions, in addition to those of Roux. An action
	// with the same name and version as one of Roux's replaces it.
	Actions []action.Action
	// Services are the outside services to which actions submit jobs (action.Result.Job), by
	// the name that a job has as its provider. Webhooks of a service are given to
	// [Engine.Deliver].
	Services map[string]action.Service
	// Account owns the runs, files and credits; [Engine.For] is the same engine for
	// another one. Default "local", which does not pay.
	Account string
	// Accounts are the rules of accounts that have some of their own. Any other account
	// but "local" pays for its runs.
	Accounts map[string]AccountRules
	// Concurrency is how many attempts may run at once. Default 1024.
	Concurrency int
	// Retention is how long runs and files are kept.
	Retention Retention
	// Logger receives errors that no method can return. Default: discarded.
	Logger *slog.Logger
	// EgressAllow lists address ranges that actions may connect to in addition to
	// public addresses. Loopback, private and other special ranges are refused unless
	// they are listed (A17).
	EgressAllow []netip.Prefix
	// ModerationGateway is asked about the steps that say `moderation` (X168), under the name gateway.
	// Default: none; a recipe with such a step is then refused with PROVIDER_NOT_CONFIGURED.
	ModerationGateway ModerationGateway
	// OnPartialOutput is called with each piece of text that an action streams, once it is durable
	// and moderators have passed it, in the order of its step (X174), and before [Engine.Wait] returns
	// for that run. It must return at once: the engine waits for it. Default: nobody is told.
	OnPartialOutput func(PartialOutput)
	// Secrets has the secrets that the parameters of actions name. Default: variables such as
	// ROUX_SECRET_API_TOKEN, for the account "local", and what `roux secrets set` has kept
	// in the data directory.
	Secrets SecretSource
}

// A ModerationGateway decides whether what a step gets or gives may pass.
type ModerationGateway = action.ModerationGateway

// A SecretSource has the secrets of accounts. It is safe for concurrent use.
type SecretSource interface {
	// Secret returns the value of a secret, of at least 6 bytes. The error is
	// fault.SecretNotFound when the account has none of that name. Each attempt that uses a
	// secret asks for it, so that a new value counts from the next attempt on.
	Secret(ctx context.Context, account, name string) (string, error)
}

// Retention is how long an Engine keeps runs and files. Zero fields take the default; a
// negative duration keeps them forever. Expired data is deleted automatically, a little
// each hour.
type Retention struct {
	Runs    time.Duration // after a run has ended. Default 7 days
	Files   time.Duration // after the last run that names a file has ended. Default 7 days
	Uploads time.Duration // after the last use of a file that no run names, at least 1 h. Default 24 h
}

// An Engine runs recipes. It is safe for concurrent use.
type Engine struct {
	account string
	node    *node.Node
}

// Dispatch lets actions parse untrusted files (PDFs, images, HTML) in a child process
// with limits; the child is this program, started again. Call it first in main: in a
// child it does the work and does not return. Without it files are parsed in this
// process, where a panic is caught but memory is not bounded.
func Dispatch() { media.Dispatch() }

// Open opens a data directory and continues the runs in it. What a server has set for the
// accounts of the directory applies, as do the spending limits of its keys. A program that does
// little else may call debug.SetGCPercent(200), as the roux binary does.
func Open(ctx context.Context, opt Options) (*Engine, error) {
	rules := make(map[string]engine.AccountRules, len(opt.Accounts))
	for name, r := range opt.Accounts {
		own, err := r.rules()
		if err != nil {
			return nil, fault.New(fault.ConfigInvalid, "account %s: %v", name, err)
		}
		rules[name] = own
	}
	st, err := node.OpenStore(ctx, opt.Dir)
	if err != nil {
		return nil, err
	}
	actions := node.NewActions(opt.EgressAllow, opt.Actions...)
	if opt.ModerationGateway != nil {
		actions.AddGateway(opt.ModerationGateway)
	}
	account := cmp.Or(opt.Account, engine.LocalAccount)
	cfg := node.Config{
		Dir: opt.Dir, Actions: actions, Retention: retention.Policy{Runs: opt.Retention.Runs, Files: opt.Retention.Files, Uploads: opt.Retention.Uploads}, Concurrency: opt.Concurrency, Logger: opt.Logger,
		Accounts: rules, Account: account, Secrets: opt.Secrets, Services: opt.Services,
	}
	if opt.OnPartialOutput != nil {
		cfg.Observer = partialOutputs(opt.OnPartialOutput)
	}
	n, err := node.Open(ctx, st, cfg)
	if err != nil {
		actions.Close()
		return nil, err
	}
	e := &Engine{account: account, node: n}
	n.UseRegistered(e.resolve)
	return e, nil
}

// Attach calls fn with the parts of the engine and its account. It is for package api, which
// serves an engine over HTTP: the types of the parts are internal to this module.
func (e *Engine) Attach(fn func(n *node.Node, account string) error) error {
	return fn(e.node, e.account)
}

// Close stops the engine. Running attempts are abandoned and made again after the next
// Open. To let them finish first, use [Engine.Stop].
func (e *Engine) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return e.Stop(ctx)
}

// Stop accepts no new work, lets running attempts finish until ctx ends, and then closes
// the engine. A server of the engine (package api) is closed first. If the disk hangs
// inside a write, Stop returns an error and leaves the store open, because closing would
// wait for that write: end the process then.
func (e *Engine) Stop(ctx context.Context) error {
	err := e.node.Stop(ctx)
	e.node.Config.Actions.Close()
	return err
}

// A Request describes a run to start.
type Request struct {
	// Recipe is the definition, JSON or YAML. Required, unless Ref is set.
	Recipe []byte
	// Ref names a recipe that the account has registered in the data directory, in place of
	// Recipe: its name or id, with a version or a range after @, such as "digest@1".
	Ref string
	// Source names the definition in diagnostics, such as a path.
	Source string
	// Input is validated against the recipe's inputSchema. Its values must be such that
	// encoding/json can encode them.
	Input map[string]any
	// Files are the run's input files, as Put returned them.
	Files []action.FileInfo
	// IdempotencyKey makes a repeated request return the run that the first one
	// started.
	IdempotencyKey string
	// Correlation is what expressions see as _context.correlationId. Default: the
	// id of the run.
	Correlation string
	// Labels are at most 64, with names of at most 128 bytes and values of at most 1,024.
	Labels map[string]string
	// MaxCredits is the most that the run pays, if the recipe and the account's rules do
	// not allow less. Default: what they allow.
	MaxCredits int64
	// NoCache makes a run, with its child runs, that uses no earlier results of actions, also in
	// steps that may.
	NoCache bool
	// Key is the name of one of AccountRules.Keys: what the run spends counts in the budget
	// of that key.
	Key string
}

// Start compiles a recipe and starts a run of it. The run is durable when Start returns
// its id. If the account pays for its runs and has too few credits, the error is
// fault.InsufficientCredits; if a price is unknown, fault.PriceUnknown.
func (e *Engine) Start(ctx context.Context, req Request) (run string, err error) {
	p, name, version, err := e.compile(ctx, &req)
	if err != nil {
		return "", err
	}
	input, err := plain(req.Input)
	if err != nil {
		return "", err
	}
	files := make([]journal.File, len(req.Files))
	for i, f := range req.Files {
		files[i] = journal.File{Hash: f.Hash, Name: f.Name, MimeType: f.MimeType, Size: f.Size, Extended: f.Extended}
	}
	started, err := e.node.Engine.Start(ctx, engine.StartRequest{
		Account: e.account, Plan: p, Recipe: name, Version: version, Parameters: input, Files: files,
		IdempotencyKey: req.IdempotencyKey, Correlation: req.Correlation, Labels: req.Labels,
		MaxCredits: req.MaxCredits, NoCache: req.NoCache, Key: req.Key,
	})
	return started.Run, err
}

// plain converts Go values into plain JSON values.
func plain(input map[string]any) (map[string]any, error) {
	if input == nil {
		return nil, nil
	}
	data, err := json.Marshal(input)
	if err != nil {
		return nil, fault.Wrap(fault.InputInvalid, err, "the input is no JSON object: %v", err)
	}
	v, err := jsonx.Decode(data, jsonx.Limits{})
	if err != nil {
		return nil, fault.Wrap(fault.InputInvalid, err, "the input is no JSON object: %v", err)
	}
	m, _ := v.(map[string]any)
	return m, nil
}

// Put stores a file for runs. It is durable when Put returns; the same content is stored
// only once.
func (e *Engine) Put(ctx context.Context, r io.Reader, name, mimeType string) (action.FileInfo, error) {
	return e.node.Files.Put(ctx, e.account, r, name, mimeType)
}

// File opens a file, such as one that an action made.
func (e *Engine) File(ctx context.Context, hash string) (action.File, error) {
	return e.node.Files.Open(ctx, e.account, hash)
}

// An Event is one thing that happened to a run.
type Event struct {
	ID      uint64 // 1, 2, 3 … per run
	Type    string // such as "node.completed"
	Run     string
	Step    string // scope path and step id; "" for events of the run
	Time    time.Time
	Payload map[string]any
}

// Watch yields the events of a run after the event number `after`, without gaps or
// duplicates, and ends when the run has ended. Inputs that the recipe marks as writeOnly
// are masked.
func (e *Engine) Watch(ctx context.Context, run string, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		mask, err := e.mask(ctx, run)
		if err != nil {
			yield(Event{}, err)
			return
		}
		from := after
		if mask != nil {
			from = 0 // the values to mask are in the events from the first one on
		}
		for ev, err := range e.node.Engine.Watch(ctx, e.account, run, from) {
			if err != nil {
				yield(Event{}, err)
				return
			}
			if ev.Event = mask.Event(ev.Event); ev.Seq <= after {
				continue
			}
			out := Event{ID: ev.Seq, Type: ev.Name(), Run: run, Time: time.UnixMicro(ev.At).UTC(), Payload: ev.Envelope().Payload}
			if ev.Step >= 0 {
				out.Step = journal.StepPath(ev.Plan, ev.Ref())
			}
			if !yield(out, nil) {
				return
			}
		}
	}
}

// mask returns the mask of a run's recipe, or nil if it marks no input as
// writeOnly.
func (e *Engine) mask(ctx context.Context, run string) (*view.Mask, error) {
	_, mask, err := e.node.Engine.MaskOf(ctx, e.account, run)
	return mask, err
}

// A Result is the status or the outcome of a run. Inputs that the recipe marks as
// writeOnly are masked, as in [Engine.Watch].
type Result struct {
	Run    string
	Status string // such as "running", "completed", "failed"
	Ended  bool
	// Outputs are the run's outputs, a JSON object; nil unless the run completed. A
	// string or list that is too large is replaced by
	//
	//
	//	{"$roux":"ref","bytes":3145730,"hash":"sha256_…","size":3145728,"type":"string"}
	//
	// whose content [Engine.File] opens: text in UTF-8, or for the type "list" a
	// JSON array. size counts characters or elements.
	Outputs json.RawMessage
	// Err is why the run did not complete.
	Err     *fault.Error
	Credits int64 // used
	// HasFailures is set if a step failed and nothing handled the failure, also in a
	// run that completed.
	HasFailures bool
	// Imported is set if the run came in a bundle (`roux import`) and was not adopted.
	// Its events happened elsewhere, if at all, and it does not continue here.
	Imported bool
}

// Get returns the current status of a run.
func (e *Engine) Get(ctx context.Context, run string) (Result, error) {
	head, err := e.node.Engine.Head(ctx, e.account, run)
	if err != nil {
		return Result{}, err
	}
	res := Result{Run: run, Status: head.Status, Ended: head.Ended != 0, HasFailures: head.Failures, Imported: head.Imported()}
	if head.Code != "" {
		res.Err = fault.New(head.Code, "%s", head.Message)
	}
	h, err := e.node.Engine.History(ctx, e.account, run, 1)
	if err != nil {
		return Result{}, err
	}
	res.Outputs, res.Credits = h.Outputs, h.Used()
	if res.Err != nil && h.Error != nil {
		res.Err.Msg = h.Error.Message // the head's message is not masked
	}
	return res, nil
}

// Wait waits until a run has ended and returns its outcome.
func (e *Engine) Wait(ctx context.Context, run string) (Result, error) {
	if _, err := e.node.Engine.Wait(ctx, e.account, run); err != nil {
		return Result{}, err
	}
	return e.Get(ctx, run)
}

// Cancel cancels a run. If it returns nil, the run will end cancelled; fault.TooLate
// means that the run's final status was already decided.
func (e *Engine) Cancel(ctx context.Context, run, reason string) error {
	return e.node.Engine.Cancel(ctx, e.account, run, reason)
}

// Pause lets no further attempt of a run begin until Unpause. Attempts in flight go on,
// and results, signals and timers are taken.
func (e *Engine) Pause(ctx context.Context, run, reason string) error {
	return e.node.Engine.Pause(ctx, e.account, run, reason)
}

// Unpause lets a paused run go on.
func (e *Engine) Unpause(ctx context.Context, run string) error {
	return e.node.Engine.Unpause(ctx, e.account, run)
}

// Signal sends a run the signal that one of its wait steps waits for.
func (e *Engine) Signal(ctx context.Context, run, name string, data any) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return fault.Wrap(fault.InputInvalid, err, "the signal's data is no JSON value: %v", err)
	}
	return e.node.Engine.Signal(ctx, e.account, run, name, json.RawMessage(raw))
}

// Retry retries a run that has ended: it runs the failed steps again or, if `from` is not
// empty, everything from that step on. Results of other completed steps are kept.
func (e *Engine) Retry(ctx context.Context, run, from string) error {
	return e.RetryWith(ctx, run, RetryOptions{From: from})
}

// RetryOptions are the steps, input and limits of a retry.
type RetryOptions struct {
	// From is the step to start from. Default: the failed steps.
	From string
	// Input replaces fields of the run's input; the steps that read them run again.
	Input map[string]any
	// Limits raises limits of the run from now on.
	Limits Limits
}

// Limits are limits of a run, named as in recipes. A zero field leaves the limit
// unchanged. A limit cannot be lowered, nor raised above the maximum for recipes.
type Limits struct {
	MaxTotalSteps     int64
	MaxLoopItems      int64
	MemoryLimitMB     int64
	MaxExpressionCost int64
}

// RetryWith is like Retry, with more options.
func (e *Engine) RetryWith(ctx context.Context, run string, opt RetryOptions) error {
	edits, err := plain(opt.Input)
	if err != nil {
		return err
	}
	l := opt.Limits
	memory := max(-1, min(l.MemoryLimitMB, 1<<40)) << 20 // a value that would overflow is refused anyway
	return e.node.Engine.Retry(ctx, e.account, run, engine.RetryRequest{From: opt.From, Edits: edits, Limits: plan.Limits{
		TotalSteps: l.MaxTotalSteps, LoopItems: l.MaxLoopItems, MemoryBytes: memory, ExpressionCost: l.MaxExpressionCost,
	}})
}
