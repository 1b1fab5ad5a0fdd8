// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strings"
	"sync"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/worker"
)

// flights are the attempts in the hands of the pool.
type flights struct {
	mu    sync.Mutex
	tasks map[worker.ID]*flight
}

type flight struct {
	id        taskID
	hash      []byte // of the rendered input
	cancelled bool   // it was told to stop, and nobody waits for its result
}

func poolID(id taskID) worker.ID {
	return worker.ID{Run: id.key.Run, Path: string(id.ref.Path), Step: id.ref.Step, Gen: id.fence.Gen, Attempt: id.fence.Attempt}
}

func (f *flights) add(id taskID) *flight {
	fl := &flight{id: id}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tasks == nil {
		f.tasks = map[worker.ID]*flight{}
	}
	f.tasks[poolID(id)] = fl
	return fl
}

// find returns the flight of an attempt, nil when it was cancelled or is over.
func (f *flights) find(id worker.ID) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.tasks[id]; fl != nil && !fl.cancelled {
		return fl
	}
	return nil
}

// remove ends a flight.
func (f *flights) remove(id worker.ID) (fl *flight, cancelled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl = f.tasks[id]
	delete(f.tasks, id)
	return fl, fl != nil && fl.cancelled
}

func (f *flights) cancel(id taskID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.tasks[poolID(id)]; fl != nil {
		fl.cancelled = true
	}
}

// carryOut does what a durable command asks for.
func (e *Engine) carryOut(ef *effect) {
	switch ef.kind {
	case machine.CmdDispatch:
		fl := e.tasks.add(ef.id)
		task, prog := ef.task, ef.prog
		go e.hand(fl, task, prog)
	case machine.CmdCancelTask:
		e.tasks.cancel(ef.id)
		e.pool.Cancel(poolID(ef.id))
	case machine.CmdNeedItems:
		ask := *ef
		go e.readItems(&ask)
	case machine.CmdCollect:
		ask := *ef
		go e.collect(&ask)
	}
}

// hand renders an attempt's input and gives it to the pool. It runs beside the
// loop: rendering evaluates templates.
func (e *Engine) hand(fl *flight, t *machine.Task, prog *program) {
	input, hash, fail := t.Render()
	if fail != nil {
		e.giveUp(fl, fail, hash)
		return
	}
	act := e.cfg.Actions.Find(t.Pin.Name, t.Pin.Version)
	if act == nil {
		e.giveUp(fl, &machine.Failure{Code: fault.ActionNotFound,
			Msg: "this process has no action " + t.Pin.Name + "@" + t.Pin.Version + ", which the run was started with"}, hash)
		return
	}
	checks, err := e.checks.of(prog, t, act)
	if err != nil {
		e.giveUp(fl, &machine.Failure{Code: fault.CodeOf(err), Msg: fault.Message(err)}, hash)
		return
	}
	fl.hash = hash
	key := fl.id.key
	wt := worker.Task{
		ID: poolID(fl.id), Action: act, TimeoutMS: t.TimeoutMS, NoFiles: e.cfg.Files == nil,
		CheckInput: checks.in, CheckOutput: checks.out,
		Task: action.Task{
			Run: key.Run, Step: t.StepPath, Attempt: int(t.Fence.Attempt), Account: key.Account,
			EffectKey: t.EffectKey, Input: input, Files: e.files(key.Account),
		},
	}
	failpoint.Pass(failpoint.HandBefore)
	err = e.pool.Run(wt)
	failpoint.Pass(failpoint.HandAfter)
	switch fault.CodeOf(err) {
	case "":
		if e.tasks.find(wt.ID) == nil { // cancelled between add and Run
			e.pool.Cancel(wt.ID)
		}
	case fault.Stopping, fault.Conflict:
		// Not started here: it stays open in the journal, or runs already.
	default:
		e.giveUp(fl, &machine.Failure{Code: fault.CodeOf(err), Msg: fault.Message(err)}, hash)
	}
}

func (e *Engine) files(account string) action.Files {
	if e.cfg.Files == nil {
		return noFiles{}
	}
	return e.cfg.Files(account)
}

// giveUp reports an attempt that failed before an action was called.
func (e *Engine) giveUp(fl *flight, fail *machine.Failure, hash []byte) {
	if _, cancelled := e.tasks.remove(poolID(fl.id)); cancelled {
		e.freed(fl)
		return
	}
	e.result(fl, machine.Input{Outcome: machine.Failed, Err: fail, InputHash: hash}, false)
}

// result posts what became of an attempt.
func (e *Engine) result(fl *flight, m machine.Input, holding bool) {
	m.Kind, m.Ref, m.Fence, m.Source = machine.InResult, fl.id.ref, fl.id.fence, machine.FromWorker
	failpoint.Pass(failpoint.ResultBefore)
	_ = e.post(&input{kind: inRun, key: fl.id.key, m: m, holding: holding}) // refused only after the end
	failpoint.Pass(failpoint.ResultAfter)
}

// taskDone is the pool's report of an attempt's end.
func (e *Engine) taskDone(res worker.Result) {
	fl, cancelled := e.tasks.remove(res.ID)
	if fl == nil {
		return
	}
	if cancelled && res.Err != nil && res.Err.Code == fault.ExecutionCancelled {
		e.freed(fl) // it did as it was told
		return
	}
	m := machine.Input{Outcome: machine.Success, Output: res.Output, Cost: res.Cost, InputHash: fl.hash}
	if res.Err != nil {
		m.Outcome, m.Output, m.Err = machine.Failed, nil, failureOf(res.Err)
	}
	if res.Holding {
		e.tasks.mu.Lock()
		e.tasks.tasks[res.ID] = fl // until taskFreed
		e.tasks.mu.Unlock()
	}
	e.result(fl, m, res.Holding)
}

// taskFreed is the pool's report that a timed-out action has returned after all,
// or was abandoned: its slot is free now.
func (e *Engine) taskFreed(id worker.ID) {
	if fl, _ := e.tasks.remove(id); fl != nil {
		e.freed(fl)
	}
}

// freed tells the core that an attempt holds its slot no more.
func (e *Engine) freed(fl *flight) {
	_ = e.post(&input{kind: inFreed, key: fl.id.key, m: machine.Input{Ref: fl.id.ref, Fence: fl.id.fence}})
}

// taskReport is what an attempt says while it works.
func (e *Engine) taskReport(r worker.Report) {
	fl := e.tasks.find(r.ID)
	if fl == nil {
		return
	}
	if r.Kind == worker.Preview {
		e.result(fl, machine.Input{Outcome: machine.Preview, Output: r.Value}, false)
		return
	}
	p := machine.Progress{Fraction: r.Fraction, Level: r.Level, Text: r.Text}
	switch r.Kind {
	case worker.Log:
		p.Kind = machine.ProgressLog
	case worker.Delta:
		p.Kind = machine.ProgressDelta
	}
	_ = e.post(&input{kind: inRun, key: fl.id.key,
		m: machine.Input{Kind: machine.InProgress, Ref: fl.id.ref, Fence: fl.id.fence, Progress: p}})
}

func failureOf(err *fault.Error) *machine.Failure {
	f := &machine.Failure{Code: err.Code, Msg: fault.Message(err), RetryAfterMS: err.RetryAfterMS}
	var v *violationError
	if errors.As(err, &v) {
		f.Phase, f.Violations = v.phase, v.list
	}
	return f
}

// A violationError is a value that does not fit its contract (X172).
type violationError struct {
	phase string
	list  []string
}

func (e *violationError) Error() string {
	return "the " + e.phase + " does not fit its contract: " + strings.Join(e.list, "; ")
}

// checks are the contracts of a step and of the action it calls. They are
// compiled once per plan step and action.
type checks struct {
	in, out func(any) error
}

type checkKey struct {
	prog *program
	step int32
	act  *action.Action
}

// checkCache keeps compiled contracts; it is emptied when it is full.
type checkCache struct {
	mu sync.Mutex
	m  map[checkKey]*checks
}

const maxChecks = 10_000

func (c *checkCache) of(prog *program, t *machine.Task, act *action.Action) (*checks, error) {
	key := checkKey{prog, t.Ref.Step, act}
	c.mu.Lock()
	ch := c.m[key]
	c.mu.Unlock()
	if ch != nil {
		return ch, nil
	}
	ch = new(checks)
	var err error
	if ch.in, err = checkOf("input", act.Input, t.InputC); err != nil {
		return nil, err
	}
	if ch.out, err = checkOf("output", act.Output, t.OutputC); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) >= maxChecks {
		c.m = map[checkKey]*checks{}
	}
	c.m[key] = ch
	return ch, nil
}

func checkOf(phase string, raws ...[]byte) (func(any) error, error) {
	var schemas []*expr.Schema
	for _, raw := range raws {
		if len(raw) == 0 {
			continue
		}
		s, err := expr.CompileSchema(raw)
		if err != nil {
			return nil, fault.Wrap(fault.RecipeInvalid, err, "the %s contract cannot be used: %v", phase, err)
		}
		schemas = append(schemas, s)
	}
	if schemas == nil {
		return nil, nil
	}
	return func(v any) error {
		var list []string
		for _, s := range schemas {
			for _, bad := range s.Validate(v) {
				list = append(list, phase+bad.Pointer+": "+bad.Msg)
			}
		}
		if list == nil {
			return nil
		}
		return &violationError{phase: phase, list: list}
	}, nil
}
