// SPDX-License-Identifier: Apache-2.0

package program

import (
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/machine"
)

// Actions are the actions of one engine.
type Actions struct{ catalogue.Finder }

// A Call is the action of a step, with the contracts of the step and of the action.
type Call struct {
	Action *action.Action
	// CheckInput and CheckOutput return a [Violation] for a value that does not satisfy its
	// contract. They are nil if there is none.
	CheckInput, CheckOutput func(any) error

	actions       *Actions // of which it is one
	name, version string
}

// Call returns the action of an attempt. The action is looked up and its contracts are
// compiled once per step and engine, as long as runs pin the same version.
func (p *Program) Call(actions *Actions, t *machine.Task) (*Call, *machine.Failure) {
	cached := &p.calls[t.Ref.Step]
	if c := cached.Load(); c != nil && c.actions == actions && c.name == t.Pin.Name && c.version == t.Pin.Version {
		return c, nil
	}
	act := actions.Find(t.Pin.Name, t.Pin.Version)
	if act == nil {
		return nil, &machine.Failure{Code: fault.ActionNotFound,
			Msg: "this process has no action " + t.Pin.Name + "@" + t.Pin.Version + ", which the run was started with"}
	}
	c := &Call{actions: actions, name: t.Pin.Name, version: t.Pin.Version, Action: act}
	var err error
	if c.CheckInput, err = contractCheck("input", act.Input, t.InputC); err == nil {
		c.CheckOutput, err = contractCheck("output", act.Output, t.OutputC)
	}
	if err != nil {
		return nil, &machine.Failure{Code: fault.CodeOf(err), Msg: fault.Message(err)}
	}
	cached.Store(c)
	return c, nil
}

// A Violation is a value that does not satisfy its contract (X172).
type Violation struct {
	Phase string // input or output
	List  []string
}

func (v *Violation) Error() string {
	return "the " + v.Phase + " does not fit its contract: " + strings.Join(v.List, "; ")
}

// Redacted returns the violation with its texts changed.
func (v *Violation) Redacted(change func(string) string) error {
	out := &Violation{Phase: v.Phase, List: make([]string, len(v.List))}
	for i, text := range v.List {
		out.List[i] = change(text)
	}
	return out
}

// FailureOf returns the failure that an action's error is, with the violation that it is about.
func FailureOf(err *fault.Error) *machine.Failure {
	f := &machine.Failure{Code: err.Code, Msg: fault.Message(err), RetryAfterMS: err.RetryAfterMS, Unknown: err.OutcomeUnknown}
	//nolint:errorlint // errors.As would call methods of an action's own error, which may panic
	if v, ok := err.Err.(*Violation); ok {
		f.Phase, f.Violations = v.Phase, v.List
	}
	return f
}

// FailedCommand is the result of a step if a command of the machine that is not an attempt could not be carried
// out.
func FailedCommand(ref journal.Ref, fence journal.Fence, err error) machine.Input {
	return machine.Input{
		Kind: machine.InResult, Ref: ref, Fence: fence, Outcome: machine.Failed,
		Err: &machine.Failure{Code: fault.CodeOf(err), Msg: fault.Message(err)},
	}
}

func contractCheck(phase string, raws ...[]byte) (func(any) error, error) {
	var schemas []*jsonschema.Schema
	for _, raw := range raws {
		if len(raw) == 0 {
			continue
		}
		s, err := jsonschema.Compile(raw)
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
		return &Violation{Phase: phase, List: list}
	}, nil
}

// Submission is a job that an action has submitted as the machine takes it. task is the id of the task
// that the remote worker has which is the one that has submitted it; "" = there is none.
func Submission(j *action.Job, task string) *machine.Submission {
	return &machine.Submission{Job: journal.Job{Provider: j.Provider, ID: j.ID, Handle: j.Handle}, Task: task, TTLMS: j.TTL.Milliseconds()}
}
