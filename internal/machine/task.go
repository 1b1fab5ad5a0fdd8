// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/wire"
)

// A Task is what a worker needs to carry out an attempt. It is captured in the loop
// and rendered elsewhere; it shares nothing mutable with the run.
type Task struct {
	Ref       journal.Ref
	Fence     journal.Fence
	Pin       *journal.Pin // of the start: never changed
	StepPath  string       // for example pages[3].resize
	EffectKey string
	TimeoutMS int64
	InputC    json.RawMessage // the step's contracts, in addition to the action's schemas
	OutputC   json.RawMessage
	Gate      *plan.Gate // what moderators look at; nil = nothing

	step *plan.Step
	code *stepCode // nil with noInput
	// noInput is that of stepBrief. Such a task reads neither step nor code: with many steps, none of
	// them is in the processor's cache.
	noInput bool
	vars    vars
	start   *journal.Start // of its run
}

// Task captures the attempt of a CmdDispatch; nil when the fence is no longer the
// current one, or its step is to be cancelled.
func (r *Run) Task(ref journal.Ref, fence journal.Fence) *Task {
	t := new(Task)
	if !r.TaskInto(t, ref, fence) {
		return nil
	}
	return t
}

// Tasks are tasks that are used again, for TaskInto. The zero Tasks is empty. Only one
// goroutine at a time may use it.
type Tasks struct{ free []*Task }

// maxTasks bounds the tasks that are kept.
const maxTasks = 1024

// Take returns an empty task.
func (ts *Tasks) Take() *Task {
	last := len(ts.free) - 1
	if last < 0 {
		return new(Task)
	}
	t := ts.free[last]
	ts.free = ts.free[:last]
	return t
}

// Return keeps a task that nobody uses any more, for Take.
func (ts *Tasks) Return(t *Task) {
	if len(ts.free) < maxTasks {
		*t = Task{} // it must not hold its run
		ts.free = append(ts.free, t)
	}
}

// Files are the run's input files, under the names they have in this run. The caller
// must not change them.
func (t *Task) Files() []journal.File { return t.start.Files }

// Workspace is the path of the run's workspace; "" = it has none.
func (t *Task) Workspace() string {
	if t.start.Child == nil {
		return ""
	}
	return t.start.Child.Workspace
}

// TraceParent is what the attempt sends to services, see [journal.Start.TraceParent].
func (t *Task) TraceParent(recorded bool) string {
	return t.start.TraceParent(t.Ref, t.Fence, recorded)
}

// TaskInto is like Task but stores the task in t, which is empty; it reports false where Task would
// return nil.
func (r *Run) TaskInto(t *Task, ref journal.Ref, fence journal.Fence) bool {
	s, i := r.at(ref)
	if s == nil {
		return false
	}
	st := &s.steps[i]
	if st.status != journal.Running || s.state == scopeSweep || s.comps[i] != nil || st.attempt != fence.Attempt || fence.Gen != r.gen {
		return false
	}
	r.capture(t, s, i, fence)
	return true
}

// capture captures an attempt of a step.
func (r *Run) capture(t *Task, s *scope, i int32, fence journal.Fence) {
	ref, step, brief := s.ref(i), s.step(r.plan, i), r.brief(s, i)
	t.Ref, t.Fence, t.Pin, t.StepPath = ref, fence, r.pin(brief), journal.StepPath(r.plan, ref)
	t.EffectKey, t.TimeoutMS = r.effectKey(s, i), brief.timeoutMS
	t.step, t.noInput, t.start = step, brief.noInput, r.start
	if brief.noInput {
		return
	}
	t.code = r.prog.code(ref.Step)
	if brief.plain {
		return
	}
	t.InputC, t.OutputC, t.Gate = step.InputC, step.OutputC, step.Gate
	if step.Prompt != nil {
		t.InputC = nil // Render checks what it is about
	}
	if len(step.ParamRef) > 0 || len(step.Bindings) > 0 || step.Prompt != nil || step.Cache != nil && step.Cache.Key != nil {
		t.resolve(r.env(s, i, step, nil))
	}
}

// effectKey is derived, never random (I4). It stays the same while the outcome of the
// last attempt is unknown, and changes after a definitive failure and in a new
// generation. Fields are length-prefixed so that different lists never encode alike.
func (r *Run) effectKey(s *scope, i int32) string {
	st := &s.steps[i]
	var buf [256]byte
	b := buf[:0]
	for _, f := range [...]string{r.start.Account, r.start.Run, string(s.path), s.step(r.plan, i).ID} {
		b = wire.AppendString(b, f)
	}
	b = binary.AppendUvarint(b, uint64(st.keyGen))
	b = binary.AppendUvarint(b, uint64(st.keyTry))
	sum := sha256.Sum256(b)
	var text [32]byte
	hex.Encode(text[:], sum[:16])
	return string(text[:])
}

// resolve resolves the names that the step's bindings and parameters use. The values
// are shared and never change; Render decodes and evaluates them.
func (t *Task) resolve(e *env) {
	step := t.step
	t.vars.add(e, step.ParamRef)
	t.addAll(e, step.Bindings)
	if step.Prompt != nil {
		t.addAll(e, step.Prompt.Values)
	}
	if step.Cache != nil && step.Cache.Key != nil {
		t.vars.add(e, step.Cache.Key.Vars)
	}
}

func (t *Task) addAll(e *env, bindings []plan.Binding) {
	for k := range bindings {
		b := &bindings[k]
		t.vars.add(e, b.Expr.Vars)
		for i := range b.From {
			t.vars.add(e, b.From[i].Expr.Vars)
		}
	}
}

// emptyInput is the input of a step that has neither parameters nor bindings.
var (
	emptyInput     = []byte("{}")
	emptyInputHash = sha256.Sum256(emptyInput)
)

// Render makes the action's input: one object of parameters and bindings (a clash was
// refused at compile), and the run's only file when a file input has no binding. It is
// pure and may run on any goroutine. hash is the SHA-256 of input. The caller must
// change neither.
func (t *Task) Render() (input, hash []byte, fail *Failure) {
	if t.noInput {
		return emptyInput, emptyInputHash[:], nil
	}
	if t.code.err != nil {
		return nil, nil, failureOf(t.code.err, fault.TemplateError)
	}
	raw, fail := t.render()
	if t.vars.err != nil { // an evaluation error would only be a consequence of this one
		fail = failureOf(t.vars.err, fault.TemplateError)
	}
	if fail != nil {
		return nil, nil, fail
	}
	if len(raw) > maxInline {
		return nil, nil, inputTooLarge(sizeText(int64(len(raw))))
	}
	if len(raw) == len(emptyInput) {
		return emptyInput, emptyInputHash[:], nil
	}
	sum := sha256.Sum256(raw)
	n := len(raw)
	raw = append(raw, sum[:]...)
	return raw[:n:n], raw[n:], nil
}

func inputTooLarge(size string) *Failure {
	return &Failure{Code: fault.ValueTooLarge, Msg: "the input has " + size + ", the limit is " + sizeText(maxInline) + "; pass a file"}
}

func (t *Task) render() ([]byte, *Failure) {
	step := t.step
	if t.code.params == nil && step.Prompt == nil && (step.FileInput == "" || len(t.start.Files) != 1) {
		if raw, fail, ok := t.renderBindings(); ok {
			return raw, fail
		}
	}
	obj := make(map[string]any, 4)
	if t.code.params != nil {
		v, err := t.code.params.Eval(&t.vars)
		if err != nil {
			return nil, failureOf(err, fault.TemplateError)
		}
		for k, p := range v.(map[string]any) {
			obj[k] = p
		}
	}
	texts := 0
	for k := range step.Bindings {
		v, fail := t.bound(&step.Bindings[k], t.code.bindings[k])
		if fail != nil {
			return nil, fail
		}
		if text, ok := v.(string); ok {
			if texts += len(text); texts > maxInline {
				return nil, inputTooLarge("more than " + sizeText(maxInline))
			}
		}
		obj[step.Bindings[k].Name] = v
	}
	if step.Prompt != nil {
		text, fail := t.prompt()
		if fail != nil {
			return nil, fail
		}
		obj[promptInput] = text
	}
	if step.FileInput != "" && len(t.start.Files) == 1 {
		if _, given := obj[step.FileInput]; !given {
			obj[step.FileInput] = t.start.Files[0].Hash
		}
	}
	for _, name := range step.Required {
		if _, ok := obj[name]; !ok {
			return nil, t.missing(name)
		}
	}
	raw, err := jsonx.Canonical(obj)
	if err != nil {
		return nil, failureOf(err, fault.TemplateError)
	}
	return raw, nil
}

// renderBindings renders an input that consists of a few bindings only. A binding that
// only selects a part of a recorded value is copied without decoding. ok is false when
// the input has another form.
func (t *Task) renderBindings() (raw []byte, fail *Failure, ok bool) {
	step, order := t.step, t.code.order
	var parts [8]struct {
		raw []byte
		v   any
	}
	if len(order) > len(parts) {
		return nil, nil, false
	}
	for _, name := range step.Required {
		if !slices.ContainsFunc(step.Bindings, func(b plan.Binding) bool { return b.Name == name }) {
			return nil, nil, false
		}
	}
	size := len(emptyInput) + sha256.Size
	for k := range step.Bindings {
		p := &parts[k]
		if p.raw, ok = t.code.bindings[k].selectRaw(&step.Bindings[k], &t.vars); !ok {
			if p.v, fail = t.bound(&step.Bindings[k], t.code.bindings[k]); fail != nil {
				return nil, fail, true
			}
		}
		size += len(t.code.names[k]) + len(p.raw) + 16
	}
	raw = append(make([]byte, 0, size), '{')
	for n, k := range order {
		if n > 0 {
			raw = append(raw, ',')
		}
		raw = append(raw, t.code.names[k]...)
		if p := &parts[k]; p.raw != nil {
			raw = append(raw, p.raw...)
			continue
		}
		var err error
		if raw, err = jsonx.AppendCanonical(raw, parts[k].v); err != nil {
			return nil, failureOf(err, fault.TemplateError), true
		}
	}
	return append(raw, '}'), nil, true
}

func (t *Task) missing(name string) *Failure {
	msg := fmt.Sprintf("input %q of %s is required and has no value", name, t.Pin.Name)
	if name == t.step.FileInput {
		msg = fmt.Sprintf("input %q of %s takes the run's file, but the run has %d files; pass one with --file, or bind it", name, t.Pin.Name, len(t.start.Files))
	}
	return &Failure{Code: fault.InputMissing, Msg: msg}
}
