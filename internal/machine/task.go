// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// A Task is what an attempt needs to be carried out, captured in the loop and
// rendered elsewhere: it shares nothing with the run that changes.
type Task struct {
	Ref       Ref
	Fence     Fence
	Pin       Pin
	StepPath  string // pages[3].resize
	EffectKey string
	TimeoutMS int64
	InputC    json.RawMessage // the step's contracts, beside the action's schemas
	OutputC   json.RawMessage

	step *plan.Step
	code *stepCode
	// vars are the step's variables, resolved; absent ones are not there.
	vars  expr.MapVars
	files []File
	err   error
}

// Task captures the attempt a CmdDispatch speaks of; nil when its fence is not
// the live one any more.
func (r *Run) Task(ref Ref, fence Fence) *Task {
	t := new(Task)
	if !r.TaskInto(t, ref, fence) {
		return nil
	}
	return t
}

// TaskInto is Task with memory of the caller; false is its nil.
func (r *Run) TaskInto(t *Task, ref Ref, fence Fence) bool {
	s, i := r.at(ref)
	if s == nil {
		return false
	}
	st, step := &s.steps[i], s.step(r.plan, i)
	if st.status != Running || s.comps[i] != nil || st.attempt != fence.Attempt || fence.Gen != r.gen {
		return false
	}
	*t = Task{Ref: ref, Fence: fence, Pin: r.pin(step), StepPath: StepPath(r.plan, ref),
		EffectKey: r.effectKey(s, i), TimeoutMS: step.TimeoutMS, InputC: step.InputC, OutputC: step.OutputC,
		step: step, code: r.prog.code(ref.Step), files: r.start.Files}
	t.capture(r.env(s, step, nil))
	return true
}

// effectKey is derived, never random (I4): the same while the outcome of the
// last attempt is unknown, another after a definitive failure or in a new
// generation. Fields are length-prefixed so that no two lists read alike.
func (r *Run) effectKey(s *scope, i int32) string {
	st := &s.steps[i]
	h := sha256.New()
	var b [binary.MaxVarintLen64]byte
	put := func(f string) {
		h.Write(b[:binary.PutUvarint(b[:], uint64(len(f)))])
		h.Write([]byte(f))
	}
	put(r.start.Account)
	put(r.start.Run)
	put(string(s.path))
	put(s.step(r.plan, i).ID)
	h.Write(b[:binary.PutUvarint(b[:], uint64(st.keyGen))])
	h.Write(b[:binary.PutUvarint(b[:], uint64(st.keyTry))])
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// capture resolves what the step's bindings and parameters name. It decodes what
// no expression has asked for yet, once a value; from then on values are shared
// and nobody changes them. Evaluating is left to Render.
func (t *Task) capture(e *env) {
	step := t.step
	if len(step.ParamRef) == 0 && len(step.Bindings) == 0 {
		return
	}
	t.vars = make(expr.MapVars, 4)
	add := func(vars []plan.Var) {
		e.vars = vars
		for k := range vars {
			name := vars[k].Name
			if _, ok := t.vars[name]; ok && vars[k].Member == "" {
				continue
			}
			v, ok := e.Lookup(name)
			if !ok {
				continue
			}
			if have, isMap := t.vars[name].(map[string]any); isMap && vars[k].Member != "" {
				for m, obj := range v.(map[string]any) {
					have[m] = obj
				}
				continue
			}
			t.vars[name] = v
		}
	}
	add(step.ParamRef)
	for k := range step.Bindings {
		add(step.Bindings[k].Expr.Vars)
	}
	t.err = e.err
}

// Render makes the action's input: parameters and bindings in one object (a
// clash was refused at compile), the run's only file where a file input has no
// binding. It is pure and may run on any goroutine. hash is SHA-256 of input.
func (t *Task) Render() (input, hash []byte, fail *Failure) {
	if t.err == nil && t.code.err != nil {
		t.err = t.code.err
	}
	if t.err != nil {
		return nil, nil, failureOf(t.err, fault.TemplateError)
	}
	var vars expr.Vars = t.vars
	obj := make(map[string]any, 4)
	if t.code.params != nil {
		v, err := t.code.params.Eval(vars)
		if err != nil {
			return nil, nil, failureOf(err, fault.TemplateError)
		}
		for k, p := range v.(map[string]any) {
			obj[k] = p
		}
	}
	for k := range t.step.Bindings {
		b := &t.step.Bindings[k]
		v, err := t.code.bindings[k].Eval(vars)
		if err != nil {
			if t.absent(b) {
				return nil, nil, &Failure{Code: fault.InputMissing, Msg: fmt.Sprintf(
					"input %q is bound to %q, which has no value: its step did not run", b.Name, b.Expr.Src)}
			}
			f := failureOf(err, fault.TemplateError)
			f.Msg = fmt.Sprintf("input %q: %s", b.Name, f.Msg)
			return nil, nil, f
		}
		obj[b.Name] = v
	}
	if t.step.FileInput != "" && len(t.files) == 1 {
		if _, given := obj[t.step.FileInput]; !given {
			obj[t.step.FileInput] = t.files[0].Hash
		}
	}
	for _, name := range t.step.Required {
		if _, ok := obj[name]; !ok {
			return nil, nil, t.missing(name)
		}
	}
	raw, err := jsonx.Canonical(obj)
	if err != nil {
		return nil, nil, failureOf(err, fault.TemplateError)
	}
	if len(raw) > maxInline {
		return nil, nil, &Failure{Code: fault.ValueTooLarge, Msg: "the input has " + sizeText(int64(len(raw))) +
			", the limit is " + sizeText(maxInline) + "; pass a file"}
	}
	sum := sha256.Sum256(raw)
	return raw, sum[:], nil
}

// absent: a root name of the binding has no value at all, as when its branch
// was not taken (R40).
func (t *Task) absent(b *plan.Binding) bool {
	for k := range b.Expr.Vars {
		v := &b.Expr.Vars[k]
		if v.Kind == plan.VarBinding {
			if _, ok := t.vars[v.Name]; !ok {
				return true
			}
		}
	}
	return false
}

func (t *Task) missing(name string) *Failure {
	msg := fmt.Sprintf("input %q of %s is required and has no value", name, t.Pin.Name)
	if name == t.step.FileInput {
		msg = fmt.Sprintf("input %q of %s takes the run's file, but the run has %d files; pass one with --file, or bind it", name, t.Pin.Name, len(t.files))
	}
	return &Failure{Code: fault.InputMissing, Msg: msg}
}
