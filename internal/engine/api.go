// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"iter"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/estimate"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/resultcache"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/terms"
)

// minKeyLifetime is how long an idempotency key is kept at least, in µs (I13).
const minKeyLifetime = 24 * hour

// A StartRequest holds what a run is started with; see [program.StartRequest].
type StartRequest = program.StartRequest

// Started is the answer to a start; see [program.Started].
type Started = program.Started

// Start begins a run.
func (e *Engine) Start(ctx context.Context, req StartRequest) (Started, error) {
	if e.stopping.Load() {
		return Started{}, errStopping
	}
	e.cleaner.BlockRemoval()
	defer e.cleaner.AllowRemoval()
	in, err := e.startInput(ctx, &req)
	if err != nil {
		return Started{}, err
	}
	out := e.request(ctx, in)
	started := Started{Run: out.run, Existing: out.existing, Status: out.status}
	if c := in.m.Start.Credits; c != nil && !out.existing {
		started.Reserved = c.Reserved
	}
	return started, out.err
}

// startInput checks a request and turns it into an input.
func (e *Engine) startInput(ctx context.Context, req *StartRequest) (*input, error) {
	if req.Account == "" || req.Plan == nil {
		return nil, fault.New(fault.Usage, "a run needs an account and a plan")
	}
	prog, begins, err := e.core.programs.Checked(req.Plan, req.Parameters, req.Files)
	if err != nil {
		return nil, err
	}
	return e.checkedInput(ctx, req, prog, &begins)
}

// checkedInput turns a checked request into an input. It is apart from startInput, whose
// callers are often new goroutines: together with the check it needs more than the stack
// that these begin with.
func (e *Engine) checkedInput(ctx context.Context, req *StartRequest, prog *program.Program, begins *program.Input) (*input, error) {
	if err := prog.CheckGates(e.cfg.Moderators); err != nil {
		return nil, err
	}
	begin, err := req.Begin(prog, begins, e.cfg.Actions)
	if err != nil {
		return nil, err
	}
	rules := e.cfg.Accounts(req.Account)
	begin.Credits, err = terms.Of(terms.Request{Account: req.Account, MaxCredits: req.MaxCredits, Key: req.Key}, rules, func() *estimate.Budget { return prog.Budget(e.cfg.Actions, begins.Parameters, req.Files) })
	if err != nil {
		return nil, err
	}
	named := []any{begins.Parameters}
	for _, p := range prog.Stored() {
		named = append(named, p.Data)
	}
	if err := e.cleaner.Touch(ctx, req.Account, req.Files, named...); err != nil {
		return nil, err
	}
	labels, err := store.EncodeLabels(req.Labels)
	if err != nil {
		return nil, err
	}
	if begin.Run, begin.Seed, err = e.ids.Run(); err != nil {
		return nil, err
	}
	begin.Correlation = cmp.Or(begin.Correlation, begin.Run)
	in := &input{kind: inStart, key: store.Key{Account: req.Account, Run: begin.Run}, start: &runStart{
		prog: prog, recipe: req.Recipe, version: req.Version, labels: labels, limited: rules.LiveLimit() > 0,
	}}
	in.m.Kind, in.m.Start = machine.InStart, begin
	if req.IdempotencyKey != "" {
		body, err := program.StartHash(in.m.Start, req.Parameters, req.MaxCredits, req.Key)
		if err != nil {
			return nil, err
		}
		in.start.idem = &store.Idempotency{Key: req.IdempotencyKey, BodyHash: body, Until: e.now() + minKeyLifetime}
	}
	return in, nil
}

// request posts an input and waits for its answer, which arrives when everything that
// the answer depends on is durable. Cancelling ctx does not withdraw the request.
func (e *Engine) request(ctx context.Context, in *input) answer {
	if n := e.pending.Add(1); n > int64(e.cfg.MaxPending) {
		e.pending.Add(-1)
		return answer{err: &fault.Error{Code: fault.ServiceUnavailable, RetryAfterMS: 1000,
			Msg: "too many requests wait for the disk; try again in a moment"}}
	}
	defer e.pending.Add(-1)
	reply := make(chan answer, 1)
	in.reply = reply
	if err := e.post(in); err != nil {
		return answer{err: err}
	}
	select {
	case out := <-reply:
		return out
	case <-ctx.Done():
		return answer{run: in.key.Run, err: ctx.Err()}
	}
}

// runInput returns a request to a run.
func runInput(account, run string, m machine.Input) *input {
	return &input{kind: inRun, key: store.Key{Account: account, Run: run}, m: m}
}

// checkNotEnded refuses a request that makes sense only for a run that has not ended,
// without loading one that has (F18).
func (e *Engine) checkNotEnded(ctx context.Context, account, run, what string) error {
	head, err := e.cfg.Store.Head(ctx, store.Key{Account: account, Run: run})
	if err != nil {
		return err
	}
	if head.Settled() {
		return fault.New(fault.TooLate, "run %s is %s; %s", run, head.Status, what)
	}
	return nil
}

// Cancel cancels a run. A nil error means that the run will end cancelled and that only
// compensations are handed out afterwards (I8); fault.TooLate means that its outcome
// was decided before.
func (e *Engine) Cancel(ctx context.Context, account, run, reason string) error {
	in, err := e.cancelInput(ctx, account, run, reason)
	return e.submit(ctx, in, err)
}

func (e *Engine) cancelInput(ctx context.Context, account, run, reason string) (*input, error) {
	return e.unendedInput(ctx, account, run, "it cannot be cancelled any more", machine.Input{Kind: machine.InCancel, Text: reason})
}

// Pause keeps the attempts of a run from beginning until Unpause; those in flight go on,
// and results, signals and timers are taken. The run's ttl goes on, and so does what it
// holds of its account's credits. fault.TooLate means that the run has ended.
func (e *Engine) Pause(ctx context.Context, account, run, reason string) error {
	in, err := e.unendedInput(ctx, account, run, "it can neither be paused nor go on", machine.Input{Kind: machine.InPause, Text: reason})
	return e.submit(ctx, in, err)
}

// Unpause lets a paused run go on. It changes nothing for one that is not paused.
func (e *Engine) Unpause(ctx context.Context, account, run string) error {
	in, err := e.unendedInput(ctx, account, run, "it can neither be paused nor go on", machine.Input{Kind: machine.InUnpause})
	return e.submit(ctx, in, err)
}

// Continue carries on a run that Config.Select leaves out.
func (e *Engine) Continue(ctx context.Context, account, run string) error {
	in, err := e.unendedInput(ctx, account, run, "nothing is left to do", machine.Input{Kind: machine.InTimer})
	return e.submit(ctx, in, err)
}

func (e *Engine) unendedInput(ctx context.Context, account, run, what string, m machine.Input) (*input, error) {
	if err := e.checkNotEnded(ctx, account, run, what); err != nil {
		return nil, err
	}
	return runInput(account, run, m), nil
}

// Signal sends a run the signal that a wait step waits for. data is any JSON value.
func (e *Engine) Signal(ctx context.Context, account, run, name string, data any) error {
	e.cleaner.BlockRemoval()
	defer e.cleaner.AllowRemoval()
	in, err := e.signalInput(ctx, account, run, name, data)
	return e.submit(ctx, in, err)
}

func (e *Engine) signalInput(ctx context.Context, account, run, name string, data any) (*input, error) {
	raw, err := jsonx.Canonical(data)
	if err != nil {
		return nil, fault.Wrap(fault.InputInvalid, err, "the signal's data is no JSON value: %v", err)
	}
	if err := e.checkNotEnded(ctx, account, run, "it takes no signal"); err != nil {
		return nil, err
	}
	if err := e.cleaner.Touch(ctx, account, nil, data); err != nil {
		return nil, err
	}
	return runInput(account, run, machine.Input{Kind: machine.InSignal, Name: name, Data: raw}), nil
}

// A RetryRequest says how a run is reopened; see [program.RetryRequest].
type RetryRequest = program.RetryRequest

// Retry opens a new generation of a run that has ended: the steps that failed run
// again, or everything from a step on.
func (e *Engine) Retry(ctx context.Context, account, run string, req RetryRequest) error {
	if e.stopping.Load() {
		return errStopping
	}
	e.cleaner.BlockRemoval()
	defer e.cleaner.AllowRemoval()
	in, err := e.retryInput(ctx, account, run, req)
	return e.submit(ctx, in, err)
}

func (e *Engine) retryInput(ctx context.Context, account, run string, req RetryRequest) (*input, error) {
	m, err := req.Input(e.cfg.MaxLimits)
	if err == nil && len(req.Edits) > 0 {
		err = e.cleaner.Touch(ctx, account, nil, req.Edits)
	}
	if err != nil {
		return nil, err
	}
	return runInput(account, run, m), nil
}

// submit makes the request that an input is, unless err says what is wrong with it.
func (e *Engine) submit(ctx context.Context, in *input, err error) error {
	if err != nil {
		return err
	}
	return e.request(ctx, in).err
}

// Release releases a run from quarantine.
func (e *Engine) Release(ctx context.Context, account, run string) error {
	return e.request(ctx, &input{kind: inRelease, key: store.Key{Account: account, Run: run}}).err
}

// SoftDelete hides a root run that has ended from its user, with the runs below it: it
// takes no requests, lists leave it out, and Head does not find it. It stays stored until
// retention removes it. fault.Conflict means that it has not ended, or is a child run.
func (e *Engine) SoftDelete(ctx context.Context, account, run string) error {
	return e.request(ctx, &input{kind: inSoftDelete, key: store.Key{Account: account, Run: run}}).err
}

// Sync returns when everything that the engine received before the call is durable.
func (e *Engine) Sync(ctx context.Context) error {
	return e.request(ctx, &input{kind: inBarrier}).err
}

// Watch yields the run's events after number `after`; see feed.Feed.Watch. It ends with
// an error when the engine stops.
func (e *Engine) Watch(ctx context.Context, account, run string, after uint64) iter.Seq2[feed.Event, error] {
	return e.feed.Watch(ctx, store.Key{Account: account, Run: run}, after)
}

// Wait returns the head of the run once it has ended.
func (e *Engine) Wait(ctx context.Context, account, run string) (store.Head, error) {
	key := store.Key{Account: account, Run: run}
	// Nothing needs to be read for a run in memory that has not ended: it will publish
	// its end.
	head, err := e.feed.Wait(ctx, key, func() bool { return e.core.residency.unended(key) })
	return *head, err
}

// Clean is that of retention.Cleaner: it removes everything that is no longer kept.
func (e *Engine) Clean(ctx context.Context, dry bool) (retention.Removed, error) {
	return e.cleaner.Clean(ctx, dry)
}

// PutRecords changes records at the engine's time, as the owner of the store; see
// store.Records.
func (e *Engine) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	return e.cfg.Store.PutRecords(ctx, e.core.epoch, e.now(), changes)
}

// Files is what keeps the files of runs: it says which runs name one, and removes one that
// none does.
func (e *Engine) Files() *retention.Cleaner { return &e.cleaner }

// Cache has the results of attempts that others may use.
func (e *Engine) Cache() *resultcache.Cache { return e.cache }

// Feed returns what delivers events to those who watch a run, and changes to those who
// follow an account. It ends with an error when the engine stops.
func (e *Engine) Feed() *feed.Feed { return e.feed }
