// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"runtime/debug"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/resultcache"
	"github.com/roux-engine/roux/internal/worker"
)

func poolID(id taskID) worker.ID {
	return worker.ID{Run: id.Key.Run, Path: string(id.Ref.Path), Step: id.Ref.Step, Gen: id.Fence.Gen, Attempt: id.Fence.Attempt}
}

// Withdrawn implements worker.Owner.
func (a *inFlight) Withdrawn() bool { return a.cancelled.Load() }

// perform carries out an effect.
func (e *Engine) perform(ef *effect) {
	switch ef.kind {
	case machine.CmdDispatch:
		ef.attempt.e = e
		e.jobs = append(e.jobs, ef.attempt)
	case machine.CmdCancelTask:
		ef.attempt.cancelled.Store(true)
		e.pool.Cancel(poolID(ef.id))
	case machine.CmdNeedItems:
		copied := *ef
		go e.withSlot(e.readSlots, func() { e.readItems(&copied) })
	case CmdResolve:
		copied := *ef
		go e.resolve(&copied)
	case machine.CmdCollect:
		copied := *ef
		go e.withSlot(e.collectSlots, func() { e.collect(&copied) })
	}
}

// How many loops are served at once: each that reads holds a window of items, each that collects a page and outputs (I15).
const (
	maxReading    = 8
	maxCollecting = 2
)

// withSlot calls fn once a slot of sem is free, or not at all if the engine ends
// before.
func (e *Engine) withSlot(sem chan struct{}, fn func()) {
	select {
	case sem <- struct{}{}:
	case <-e.ctx.Done():
		return // the run still owes the command, which is repeated after the next start
	}
	defer func() { <-sem }()
	fn()
}

// Do renders an attempt's input and has the pool call its action. It runs outside of the loop because rendering
// evaluates templates, or on the loop's goroutine while another one may take over the core.
func (a *inFlight) Do() {
	e := a.e
	if a.Withdrawn() {
		e.postFreed(a)
		return
	}
	var task worker.Task
	if fail := a.prepare(&task); fail != nil {
		e.failAttempt(a, fail)
		return
	}
	a.settling(&task)
	failpoint.Pass(failpoint.HandBefore)
	err := e.pool.Do(&task)
	failpoint.Pass(failpoint.HandAfter)
	switch fault.CodeOf(err) {
	case "":
	case fault.Stopping, fault.Conflict:
		if a.settle != nil {
			a.settle.reply <- answer{err: err}
		}
		// Not started here: it stays open in the journal, or is already running.
	default:
		e.failAttempt(a, &machine.Failure{Code: fault.CodeOf(err), Msg: fault.Message(err)})
	}
}

// prepare renders the attempt's input and finds its action. Both depend on the recipe,
// so a panic in them is a failure of this attempt (I16).
func (a *inFlight) prepare(task *worker.Task) (fail *machine.Failure) {
	e, t, id := a.e, a.task, a.id()
	defer func() {
		if v := recover(); v != nil {
			err := e.panicked(id.Key.Run, "preparing step "+t.StepPath, v)
			fail = &machine.Failure{Code: err.Code, Msg: err.Msg}
		}
	}()
	input, hash, fail := t.Render()
	a.report.m.InputHash = hash
	if fail != nil {
		return fail
	}
	call, fail := a.prog.Call(&e.actions, t)
	if fail != nil {
		return fail
	}
	gate, err := a.gate()
	if err != nil {
		return &machine.Failure{Code: fault.CodeOf(err), Msg: fault.Message(err)}
	}
	task.ID, task.Owner, task.Gate, task.Action, task.CheckInput, task.CheckOutput = poolID(id), a, gate, call.Action, call.CheckInput, call.CheckOutput
	task.TimeoutMS, task.NoFiles, task.Workspace = t.TimeoutMS, e.cfg.Files == nil, t.Workspace()
	to := &task.Task
	to.Run, to.Step, to.Attempt, to.Account, to.EffectKey, to.Input = id.Key.Run, t.StepPath, int(t.Fence.Attempt), id.Key.Account, t.EffectKey, input
	to.Files, to.TraceParent = blob.WithNames(e.files(id.Key.Account), t.Files()), t.TraceParent(e.cfg.Traced)
	return a.cached(task)
}

// cached lets a task whose step uses earlier results look for one.
func (a *inFlight) cached(task *worker.Task) (fail *machine.Failure) {
	k, key, fail := a.task.Cache()
	if t := a.task; k != nil { // the result of a job is the attempt's own
		task.Cache = a.e.cache.Of(task, resultcache.Step{Cache: k, Key: key, InputC: t.InputC, OutputC: t.OutputC, Files: t.Files(), Fresh: a.settle != nil || t.NoCache()})
	}
	return fail
}

// panicked turns a panic in work that is done for a run outside of the loop into an error of that run. Only the
// log gets the value and the stack, because they may contain secrets (I18).
func (e *Engine) panicked(run, activity string, v any) *fault.Error {
	e.cfg.Logger.Error("a panic was contained", "run", run, "doing", activity, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	return fault.New(fault.InternalError, "%s panicked; the log has the details", activity)
}

// contain calls fn, which does work for a run outside of the loop, and returns a panic
// in it as an error (I16).
func (e *Engine) contain(run, activity string, fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = e.panicked(run, activity, v)
		}
	}()
	return fn()
}

func (e *Engine) files(account string) action.Files {
	if e.cfg.Files == nil {
		return blob.None{}
	}
	return e.cfg.Files(account)
}

// failAttempt reports an attempt that failed before its action was called.
func (e *Engine) failAttempt(attempt *inFlight, fail *machine.Failure) {
	if attempt.Withdrawn() {
		e.postFreed(attempt)
		return
	}
	if s := attempt.settle; s != nil && s.job.Mark != nil {
		s.reply <- answer{err: fault.New(fail.Code, "%s", fail.Msg)}
		return
	}
	attempt.report.m.Outcome, attempt.report.m.Err = machine.Failed, fail
	e.postResult(attempt, &attempt.report)
}

// postResult posts the result of an attempt. in belongs to the loop from then on.
func (e *Engine) postResult(attempt *inFlight, in *input) {
	taken := attempt.inline && in == &attempt.report && !in.holding // runInline itself takes it
	failpoint.Pass(failpoint.ResultBefore)
	if e.inbox.Put(in) != nil {
		return // the engine has ended: the attempt stays open in the journal
	}
	if !taken {
		e.wake()
	}
	failpoint.Pass(failpoint.ResultAfter)
}

// taskDone is called by the pool when an attempt has ended.
func (e *Engine) taskDone(res worker.Result) {
	attempt := res.Owner.(*inFlight)
	if res.Late {
		_ = e.post(attempt.about(machine.Input{Kind: machine.InResult, Source: journal.FromWorker, Outcome: machine.Submitted, Job: program.Submission(res.Job, "")}))
		return
	}
	if attempt.Withdrawn() && res.Err != nil && res.Err.Code == fault.ExecutionCancelled {
		e.postFreed(attempt) // it stopped as requested
		return
	}
	if s := attempt.settle; s != nil && (s.job.Mark != nil || s.unsettled.Load()) {
		s.reply <- answer{err: s.answer(res.Err)}
		return
	}
	in := &attempt.report
	in.holding, in.tokens = res.Holding, res.Tokens
	m := &in.m
	m.Outcome, m.Output, m.Cost, m.Price, m.Cached, m.Moderation = machine.Success, res.Output, res.Cost, res.Price, res.Cached, machine.ModerationOf(res.Verdicts)
	if res.Job != nil {
		if m.Outcome = machine.Submitted; m.Job == nil { // otherwise it is that of a remote worker
			m.Job = program.Submission(res.Job, "")
		}
	}
	if res.Err != nil {
		m.Outcome, m.Output, m.Err = machine.Failed, nil, program.FailureOf(res.Err)
	}
	e.postResult(attempt, in)
}

// taskFreed is called by the pool when a timed-out action has returned or was abandoned.
func (e *Engine) taskFreed(_ worker.ID, owner worker.Owner) { e.postFreed(owner.(*inFlight)) }

// postFreed tells the core that an attempt no longer holds its slot.
func (e *Engine) postFreed(attempt *inFlight) {
	id := attempt.id()
	_ = e.post(&input{kind: inFreed, key: id.Key, m: machine.Input{Ref: id.Ref, Fence: id.Fence}})
}

var progressKinds = [...]machine.ProgressKind{worker.Progress: machine.ProgressFraction, worker.Log: machine.ProgressLog, worker.Delta: machine.ProgressDelta}

// taskReport is called by the pool with the progress of an attempt.
func (e *Engine) taskReport(r worker.Report) {
	attempt := r.Owner.(*inFlight)
	if attempt.Withdrawn() {
		return
	}
	if r.Kind == worker.Preview {
		e.postResult(attempt, attempt.about(machine.Input{Kind: machine.InResult, Source: attempt.report.m.Source, Outcome: machine.Preview, Output: r.Value, Moderation: &machine.Moderation{Shown: r.Passed}}))
		return
	}
	p := machine.Progress{Kind: progressKinds[r.Kind], Fraction: r.Fraction, Level: r.Level, Text: r.Text, Passed: r.Passed}
	_ = e.post(attempt.about(machine.Input{Kind: machine.InProgress, Progress: &p}))
}

// about returns an input that says something of an attempt.
func (a *inFlight) about(m machine.Input) *input {
	if m.Ref, m.Fence = a.report.m.Ref, a.report.m.Fence; a.settle != nil {
		m.Mark = a.settle.job.Mark
	}
	return &input{kind: inRun, key: a.report.key, loaded: a.report.loaded, m: m}
}
