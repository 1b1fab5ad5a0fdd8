// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"context"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/worker"
)

// attempt carries out an attempt: as an executor does, but with the world's reply in place of
// the action. It returns the report, and how long the attempt takes.
func (s *sandbox) attempt(ef *engine.Effect) (machine.Input, int64) {
	t := ef.Task
	input, hash, fail := t.Render()
	in := machine.Input{Kind: machine.InResult, InputHash: hash}
	if fail != nil {
		return failed(in, fail), 0
	}
	task, fail := s.taskOf(ef, input)
	if fail != nil {
		return failed(in, fail), 0
	}
	var r reply
	if ef.Settles != nil {
		in.InputHash, task.CheckInput, r.run = nil, nil, ef.Settles
	} else {
		path := t.StepPath
		c := &call{
			key: ef.Key, path: path, id: stepID(path), attempt: int(ef.Fence.Attempt), gen: ef.Fence.Gen, action: task.Action, input: input, hash: hash, now: s.now,
		}
		if c.child = s.isChild(ef); c.child {
			c.path = s.parentPath(ef) + "/" + path
		}
		var err error
		if r, err = s.world.call(c); err != nil {
			s.failed = err
			return in, 0
		}
	}
	if r.raw != nil {
		in.Outcome, in.Output = machine.Success, r.raw
		return in, r.delay
	}
	task.TimeoutMS = t.TimeoutMS
	if r.run != nil {
		act := *task.Action
		act.Run, act.Streams = r.run, nil
		task.Action = &act
	}
	// The machine ends an attempt that takes too long; what it reports later is not taken.
	return s.carryOut(in, task, r.job), r.delay
}

// stepID returns the id of a step of its path.
func stepID(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

func failed(in machine.Input, fail *machine.Failure) machine.Input {
	in.Outcome, in.Err = machine.Failed, fail
	return in
}

// taskOf returns the task of an attempt as the pool takes it.
func (s *sandbox) taskOf(ef *engine.Effect, input []byte) (*worker.Task, *machine.Failure) {
	t := ef.Task
	refuse := func(err error) (*worker.Task, *machine.Failure) {
		return nil, &machine.Failure{Code: fault.CodeOf(err), Msg: fault.Message(err)}
	}
	head, err := s.store.Head(s.ctx, ef.Key)
	if err != nil {
		return refuse(err)
	}
	prog, err := s.programs.Load(s.ctx, s.store, head.PlanHash)
	if err != nil {
		return refuse(err)
	}
	call, fail := prog.Call(s.actions, t)
	if fail != nil {
		return nil, fail
	}
	task := &worker.Task{
		ID:     worker.ID{Run: ef.Key.Run, Path: string(ef.Ref.Path), Step: ef.Ref.Step, Gen: ef.Fence.Gen, Attempt: ef.Fence.Attempt},
		Action: call.Action, CheckInput: call.CheckInput, CheckOutput: call.CheckOutput, NoFiles: s.files == nil,
	}
	if g := t.Gate; g != nil {
		task.Gate = &worker.Gate{Input: g.Input && ef.Settles == nil, Output: g.Output, Hold: g.Hold}
		if task.Gate.Moderator, err = s.gates.Of(g.By); err != nil {
			return refuse(err)
		}
	}
	files := s.files
	if files == nil {
		files = blob.None{}
	}
	task.Task = action.Task{
		Run: ef.Key.Run, Step: t.StepPath, Attempt: int(t.Fence.Attempt), Account: ef.Key.Account, EffectKey: t.EffectKey,
		Input: input, Files: blob.WithNames(files, t.Files()),
	}
	return task, nil
}

// carryOut has the pool carry out a task, and returns the report.
func (s *sandbox) carryOut(in machine.Input, task *worker.Task, end *jobEnd) machine.Input {
	s.result.Store(nil)
	if err := s.pool.Do(task); err != nil {
		return failed(in, &machine.Failure{Code: fault.CodeOf(err), Msg: fault.Message(err)})
	}
	res := s.result.Load()
	if res == nil {
		return failed(in, &machine.Failure{Code: fault.Stopping, Msg: "the tests are stopping"})
	}
	in.Outcome, in.Output, in.Cost, in.Price, in.Moderation = machine.Success, res.Output, res.Cost, res.Price, machine.ModerationOf(res.Verdicts)
	switch {
	case res.Err != nil:
		in.Output = nil
		return failed(in, program.FailureOf(res.Err))
	case res.Job != nil && end == nil:
		return failed(in, &machine.Failure{Code: fault.NotAvailable, Msg: "action " + task.Action.Name + " has submitted a job, which nobody ends here: mock the action"})
	case res.Job != nil:
		in.Outcome, in.Job = machine.Submitted, program.Submission(res.Job, "")
		s.ends[res.Job.ID] = end
	}
	return in
}

// isChild reports whether an attempt is one of a child run.
func (s *sandbox) isChild(ef *engine.Effect) bool {
	head, err := s.store.Head(s.ctx, ef.Key)
	return err == nil && head.Root != ""
}

// parentPath names the steps above a child run.
func (s *sandbox) parentPath(ef *engine.Effect) string {
	l, ok := s.stage.Find(ef.Key)
	if !ok || l.Run.Start().Child == nil {
		return ""
	}
	up := l.Run.Start().Child
	parent, ok := s.stage.Find(store.Key{Account: ef.Key.Account, Run: up.Parent})
	if !ok {
		return ""
	}
	path := journal.StepPath(parent.Run.Plan(), up.Ref())
	if over := parent.Run.Start().Child; over != nil {
		above := *ef
		above.Key = store.Key{Account: ef.Key.Account, Run: up.Parent}
		return s.parentPath(&above) + "/" + path
	}
	return path
}

// returns makes an action of an output.
func returns(res action.Result) action.Func {
	return func(context.Context, *action.Task) (action.Result, error) { return res, nil }
}

// fails makes an action of an error.
func fails(err error) action.Func {
	return func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, err }
}
