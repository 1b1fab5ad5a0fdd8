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
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/media"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/view"
)

// Options are what an Engine is made of. Fields left zero take the default
// their comment names.
type Options struct {
	// Dir is the data directory; it is made when absent, and one process has it
	// at a time. Required.
	Dir string
	// Actions are the program's own, beside those that come with Roux. One of
	// the same name and version takes the place of Roux's.
	Actions []action.Action
	// Account owns the runs and files. Default "local".
	Account string
	// Concurrency is how many attempts may be under way at once. Default 1024.
	Concurrency int
	// Retention is how long runs and files are kept.
	Retention Retention
	// Logger receives what goes wrong without an answer to tell it in. Default:
	// discarded.
	Logger *slog.Logger
	// EgressAllow opens address ranges to actions that speak to the outside.
	// Public addresses are reachable without; loopback, private and other
	// special ranges are not (A17).
	EgressAllow []netip.Prefix
}

// Retention is how long an Engine keeps what it holds. Zero fields take the
// default; less than zero keeps for ever. What is over goes by itself, a little
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
	actions *node.Actions
}

// Dispatch lets actions that parse files from strangers (PDFs, images, pages) do so
// in a child process under limits, which is this program started again. Call it
// first in main; in such a child it does the work and does not return. Without it
// they are parsed in this process, where a panic is caught and memory is not bounded.
func Dispatch() { media.Dispatch() }

// Open opens a data directory and goes on with the runs in it. A program that does
// little else may call debug.SetGCPercent(200), as the roux binary does.
func Open(ctx context.Context, opt Options) (*Engine, error) {
	actions := node.NewActions(opt.EgressAllow, opt.Actions...)
	st, err := node.OpenStore(ctx, opt.Dir)
	if err != nil {
		return nil, err
	}
	n, err := node.Open(ctx, st, node.Config{
		Dir: opt.Dir, Actions: actions.Catalogue, Retention: retention.Policy(opt.Retention), Concurrency: opt.Concurrency, Logger: opt.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &Engine{account: cmp.Or(opt.Account, "local"), node: n, actions: actions}, nil
}

// Close stops the engine: attempts under way are given up and go on after the
// next Open. To let them finish first, see [Engine.Stop].
func (e *Engine) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return e.Stop(ctx)
}

// Stop takes no new work, lets attempts under way finish until ctx ends, and
// then closes. Where the disk hangs inside a write it says so and leaves the store open,
// since closing would wait for that write: end the process.
func (e *Engine) Stop(ctx context.Context) error {
	err := e.node.Stop(ctx)
	e.actions.Close()
	return err
}

// A Request is what a run is started with.
type Request struct {
	// Recipe is the definition, JSON or YAML. Required.
	Recipe []byte
	// Source names the definition in diagnostics, such as a path.
	Source string
	// Input is held to the recipe's inputSchema. Values are what encoding/json
	// makes or takes.
	Input map[string]any
	// Files are the run's input files, as Put returned them.
	Files []action.FileInfo
	// IdempotencyKey makes a repeated request return the run of the first one.
	IdempotencyKey string
	// Correlation is what expressions see as _context.correlationId. Default: the
	// id of the run.
	Correlation string
	Labels      map[string]string
}

// Start compiles a recipe and begins a run of it. The run is durable when its
// id is returned.
func (e *Engine) Start(ctx context.Context, req Request) (run string, err error) {
	p, r, _, diags := compile.Source(cmp.Or(req.Source, "recipe"), req.Recipe, compile.Options{Actions: e.actions.Catalogue})
	if p == nil {
		return "", fault.Invalid(fault.RecipeInvalid, diags)
	}
	if err := r.Runnable(); err != nil {
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
		Account: e.account, Plan: p, Recipe: r.Name, Version: r.Version, Parameters: input, Files: files,
		IdempotencyKey: req.IdempotencyKey, Correlation: req.Correlation, Labels: req.Labels,
	})
	return started.Run, err
}

// plain turns what a Go program holds into plain JSON values.
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

// Put stores a file for runs to work on. It is durable when Put returns, and
// the same content is stored once.
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

// Watch yields the events of a run after number `after`, without gap or
// duplicate, and ends with the run. Inputs that the recipe marks as writeOnly are
// masked.
func (e *Engine) Watch(ctx context.Context, run string, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		mask, err := e.mask(ctx, run)
		if err != nil {
			yield(Event{}, err)
			return
		}
		from := after
		if mask != nil {
			from = 0 // what is to be masked is learned from the first event on
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

// mask is that of a run's recipe; nil when it marks no input as writeOnly.
func (e *Engine) mask(ctx context.Context, run string) (*view.Mask, error) {
	p, err := e.node.Engine.PlanOf(ctx, e.account, run)
	if err != nil {
		return nil, err
	}
	return view.NewMask(p), nil
}

// A Result is how a run stands or ended. Inputs that the recipe marks as writeOnly
// are masked in it, as in [Engine.Watch].
type Result struct {
	Run    string
	Status string // such as "running", "completed", "failed"
	Ended  bool
	// Outputs are the run's outputs, a JSON object; nil unless it completed. A text
	// or list that is too large to travel in it stands there as
	//
	//	{"$roux":"ref","bytes":3145730,"hash":"sha256_…","size":3145728,"type":"string"}
	//
	// whose content [Engine.File] opens: text in UTF-8, or for the type "list" a
	// JSON array. size counts characters, or elements.
	Outputs json.RawMessage
	// Err is why it did not complete.
	Err     *fault.Error
	Credits int64 // used
	// HasFailures says that a step failed and nothing handled it, also in a run
	// that completed.
	HasFailures bool
	// Imported says that the run came in a bundle (`roux import`) and was not
	// adopted: what it says happened elsewhere, if at all, and it is not carried on.
	Imported bool
}

// Get says how a run stands.
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
	res.Outputs, res.Credits = h.Outputs, h.Used
	if res.Err != nil && h.Error != nil {
		res.Err.Msg = h.Error.Message // the head's may hold what is to be masked
	}
	return res, nil
}

// Wait returns how a run ended, once it has.
func (e *Engine) Wait(ctx context.Context, run string) (Result, error) {
	if _, err := e.node.Engine.Wait(ctx, e.account, run); err != nil {
		return Result{}, err
	}
	return e.Get(ctx, run)
}

// Cancel ends a run. nil means that it will end cancelled; fault.TooLate that
// its verdict was fixed before.
func (e *Engine) Cancel(ctx context.Context, run, reason string) error {
	return e.node.Engine.Cancel(ctx, e.account, run, reason)
}

// Signal gives a run what one of its wait steps waits for.
func (e *Engine) Signal(ctx context.Context, run, name string, data any) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return fault.Wrap(fault.InputInvalid, err, "the signal's data is no JSON value: %v", err)
	}
	return e.node.Engine.Signal(ctx, e.account, run, name, json.RawMessage(raw))
}

// Retry runs again what failed in a run that has ended, or everything from step
// `from` on. Results of what completed are kept.
func (e *Engine) Retry(ctx context.Context, run, from string) error {
	return e.RetryWith(ctx, run, RetryOptions{From: from})
}

// RetryOptions say what a retry begins with, and under which input and limits.
type RetryOptions struct {
	// From is the step to start from. Default: what failed.
	From string
	// Input replaces fields of the run's input; what read them runs again.
	Input map[string]any
	// Limits raise limits of the run, from now on.
	Limits Limits
}

// Limits are limits of a run, named as in recipes. A field that is zero stays as it
// is. None can be lowered, nor raised above what a recipe may ask for.
type Limits struct {
	MaxTotalSteps     int64
	MaxLoopItems      int64
	MemoryLimitMB     int64
	MaxExpressionCost int64
}

// RetryWith is Retry with more to say.
func (e *Engine) RetryWith(ctx context.Context, run string, opt RetryOptions) error {
	edits, err := plain(opt.Input)
	if err != nil {
		return err
	}
	l := opt.Limits
	memory := max(-1, min(l.MemoryLimitMB, 1<<40)) << 20 // what would overflow is refused all the same
	return e.node.Engine.Retry(ctx, e.account, run, engine.RetryRequest{From: opt.From, Edits: edits, Limits: plan.Limits{
		TotalSteps: l.MaxTotalSteps, LoopItems: l.MaxLoopItems, MemoryBytes: memory, ExpressionCost: l.MaxExpressionCost,
	}})
}
