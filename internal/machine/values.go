// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// A value is JSON that the journal holds and the run refers to. It never changes, so
// tasks share it with the loop. It is decoded when an expression first needs it.
type value struct {
	seq     uint64 // event that carries it; 0 = none (snapshots then contain the bytes)
	index   int64  // element of that event's array; -1 = the whole of Data
	list    *value // of an element: the array
	raw     []byte // nil until supplied, after Restore
	n       int64  // size of a whole value, also while raw is not supplied
	refs    int32  // references from the run; used by the loop only
	missing bool   // set by Restore: Missing lists it
	dec     atomic.Pointer[any]
}

func newValue(seq uint64, raw []byte) *value {
	return &value{seq: seq, index: -1, raw: raw, n: int64(len(raw))}
}

// decoded returns the value as expressions see it; callers must not change it.
func (v *value) decoded() (any, error) {
	if v == nil {
		return nil, nil
	}
	if d := v.dec.Load(); d != nil {
		return *d, nil
	}
	d, err := jsonx.Decode(v.raw, journal.ValueLimits)
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, err, "a recorded value is not JSON")
	}
	v.dec.Store(&d)
	return d, nil
}

func (v *value) size() int64 {
	if v == nil {
		return 0
	}
	return v.n
}

// addRef counts one more reference to a value. The first one adds its bytes to the
// run's memory (R38). An element counts as its array, because it shares the array's
// memory.
func (r *Run) addRef(v *value) *value {
	if v == nil {
		return nil
	}
	whole := v
	if v.list != nil {
		whole = v.list
	}
	if whole.refs++; whole.refs == 1 {
		r.valueMem += whole.n
	}
	return v
}

// release removes one reference.
func (r *Run) release(v *value) {
	if v == nil {
		return
	}
	if v.list != nil {
		v = v.list
	}
	if v.refs--; v.refs == 0 {
		r.valueMem -= v.n
	}
}

// replace stores v in place of the old value.
func (r *Run) replace(at **value, v *value) {
	r.addRef(v)
	r.release(*at)
	*at = v
}

// inputs are the variables that expressions see of a run's start and its plan. Each is made in the
// loop when the first expression needs it, so that waiting runs do not hold them, and
// never changes after that.
type inputs struct {
	start   *journal.Start
	values  json.RawMessage // of the plan
	vars    *startVars
	decoded atomic.Int64 // bytes of recorded values decoded since forgetDecoded last dropped them
}

// startVars are the variables that have been made, as expressions see them.
type startVars struct{ input, params, hashes, files, workflow, context, inherited any }

func newInputs(st *journal.Start, p *plan.Plan) *inputs { return &inputs{start: st, values: p.Values} }

func (in *inputs) get(name string) (any, bool) {
	if in.vars == nil {
		in.vars = new(startVars)
	}
	st, vars := in.start, in.vars
	switch name {
	case "input", "inputs":
		return once(&vars.input, in.input), true
	case "parameters":
		if len(st.Inherited) == 0 {
			return parameters(st), true
		}
		return once(&vars.params, func() any { return in.with(plan.OfInput, parameters(st)) }), true
	case "fileHashes":
		return once(&vars.hashes, in.fileHashes), true
	case "files":
		return once(&vars.files, in.files), true
	case "workflow":
		return once(&vars.workflow, in.workflow), true
	case "_context":
		return once(&vars.context, func() any {
			return map[string]any{"accountId": st.Account, "correlationId": st.Correlation, "runId": st.Run, "executionId": st.Run}
		}), true
	}
	return nil, false
}

func once(at *any, made func() any) any {
	if *at == nil {
		*at = made()
	}
	return *at
}

func parameters(st *journal.Start) map[string]any {
	if st.Parameters == nil {
		return map[string]any{}
	}
	return st.Parameters
}

// input is the parameters, with the hashes of the files.
func (in *inputs) input() any {
	params := in.start.Parameters
	input := make(map[string]any, len(params)+1)
	maps.Copy(input, in.inherited(plan.OfInput))
	maps.Copy(input, params)
	input["fileHashes"] = once(&in.vars.hashes, in.fileHashes)
	return input
}

// with returns an object that has what was inherited of a context, and fields before that.
func (in *inputs) with(of plan.Context, fields map[string]any) map[string]any {
	all := make(map[string]any, len(fields))
	maps.Copy(all, in.inherited(of))
	maps.Copy(all, fields)
	return all
}

func (in *inputs) workflow() any {
	own := map[string]any{}
	if len(in.values) > 0 { // checked when the recipe was compiled
		if v, err := jsonx.Decode(in.values, journal.InlineLimits); err == nil {
			own, _ = v.(map[string]any)
		}
	}
	all := in.with(plan.OfWorkflow, own)
	all["name"], all["version"] = in.start.Recipe, in.start.Version
	return all
}

func (in *inputs) fileHashes() any {
	hashes := make([]any, len(in.start.Files))
	for i := range hashes {
		hashes[i] = in.start.Files[i].Hash
	}
	return hashes
}

func (in *inputs) files() any {
	files := make([]any, len(in.start.Files))
	for i := range files {
		f := &in.start.Files[i]
		files[i] = map[string]any{"hash": f.Hash, "name": f.Name, "mimeType": f.MimeType, "sizeBytes": f.Size, "extended": extended(f)}
	}
	return files
}

// extended is the result of file inspection as expressions see it. It is always an
// object, so that has(files[0].extended.pageCount) is valid for every file.
func extended(f *journal.File) map[string]any {
	v, err := jsonx.Decode(f.Extended, journal.InlineLimits)
	if fields, ok := v.(map[string]any); err == nil && ok {
		return fields
	}
	return map[string]any{}
}

// env is the environment of one step instance's expressions. It resolves names in the
// loop; capture records the meaning of a name for other goroutines.
type env struct {
	run   *Run
	scope *scope
	step  int32 // local index of the step
	vars  []plan.Var
	// substitute replaces absent values by '' (X120, X42).
	substitute bool
	// round is set for what a loop evaluates between its iterations, in scope, step being that of the loop.
	round bool
	acc   *value // what the loop has accumulated, if it is not yet in the state
	found vars   // of the last Lookup
}

// Lookup implements expr.Vars.
func (e *env) Lookup(name string) (any, bool) {
	e.found.list = e.found.buf[:0]
	for i := range e.vars {
		if v := &e.vars[i]; v.Name == name {
			e.found.add(e, e.vars[i:i+1])
		}
	}
	if len(e.found.list) == 0 {
		return e.run.input.get(name)
	}
	return e.found.Lookup(name)
}

// capture records what a name means now.
func (e *env) capture(v *plan.Var) captured {
	c := captured{name: v.Name, member: v.Member, substitute: e.substitute}
	if v.Kind == plan.VarStep {
		e.captureStep(v, &c)
		return c
	}
	switch v.Kind {
	case plan.VarBinding:
		for f := e.scope.frame; f != nil; f = outerFrame(f) {
			if f.graph != v.Graph {
				continue
			}
			if val := e.run.bound(f, v.Index); val != nil {
				c.kind, c.val = recordedVar, val
				return c
			}
			break
		}
	case plan.VarItem, plan.VarIndex:
		for s := e.scope; s != nil; s = s.parent {
			if s.graph != v.Graph {
				continue
			}
			if v.Kind == plan.VarIndex {
				c.kind, c.any = plainVar, s.ordinal
			} else {
				c.kind, c.val = recordedVar, s.item
			}
			return c
		}
	case plan.VarAccumulated:
		if val := e.accumulated(v); val != nil {
			c.kind, c.val = recordedVar, val
		}
		return c
	case plan.VarInput:
		if val, ok := e.run.input.get(v.Name); ok {
			c.kind, c.any = plainVar, val
		}
		return c
	case plan.VarBudget:
		c.kind, c.any = plainVar, e.run.budget()
		return c
	case plan.VarInherited:
		from := &e.run.plan.Inherits[v.Index]
		if val, ok := e.run.input.inherited(from.Of)[from.Name]; ok {
			c.kind, c.any = plainVar, val
			return c
		}
	case plan.VarNow, plan.VarSeed:
		c.kind, c.any = plainVar, e.ownVar(v.Kind)
		return c
	}
	if e.substitute {
		c.kind, c.any = plainVar, expr.Blank{}
	}
	return c
}

// ownVar is a variable that depends on the step itself. It is rarely used and long;
// keeping it out of line keeps capture short.
//
//go:noinline
func (e *env) ownVar(kind plan.VarKind) string {
	if kind == plan.VarNow {
		return e.readyTime()
	}
	return e.uuidSeed()
}

// readyTime is when the step became ready in its generation. All its attempts, and the
// expressions evaluated before it begins, see the same time, so that their input is
// the same. What a loop evaluates between its iterations sees when that is.
func (e *env) readyTime() string {
	at := e.run.clock
	if e.round {
		return time.UnixMicro(at).UTC().Format(time.RFC3339Nano)
	}
	if st := &e.scope.steps[e.step]; st.status.Begun() {
		at = st.at
	}
	return time.UnixMicro(at).UTC().Format(time.RFC3339Nano)
}

// uuidSeed is a text that is unique to this step instance and to the generation in its
// effect key.
func (e *env) uuidSeed() string {
	if e.round {
		return strings.Join([]string{e.run.start.Account, e.run.start.Run, journal.ScopePath(e.run.plan, e.scope.path),
			strconv.Itoa(int(e.run.gen)), "round"}, "\x00")
	}
	ref := e.scope.ref(e.step)
	return strings.Join([]string{e.run.start.Account, e.run.start.Run, journal.StepPath(e.run.plan, ref),
		strconv.Itoa(int(e.scope.steps[e.step].keyGen))}, "\x00")
}

// bound is the value of a binding: the output of the step that bound it last, nil when
// there is none. A retry that resets a step empties the slot that the step filled. The
// value that another step bound before then applies again.
func (r *Run) bound(f *scope, slot int32) (val *value) {
	if int(slot) < len(f.slots) {
		val = f.slots[slot]
	}
	if val == nil && r.gen > 1 && len(f.slots) > 0 {
		f.eachBound(f, r.plan, slot, func(_ *scope, _ int32, v *value) {
			if val == nil || v.seq > val.seq {
				val = v
			}
		})
	}
	return val
}

// eachBound calls fn with the outputs that were bound to a slot of frame f, in s and in the
// scopes that share the frame, in no particular order.
func (s *scope) eachBound(f *scope, p *plan.Plan, slot int32, fn func(in *scope, i int32, v *value)) {
	for i, v := range s.outs {
		if v != nil && s.step(p, i).Slot == slot {
			fn(s, i, v)
		}
	}
	for _, c := range s.comps {
		for _, child := range c.children {
			if child.frame == f {
				child.eachBound(f, p, slot, fn)
			}
		}
	}
}

func outerFrame(f *scope) *scope {
	if f.parent == nil {
		return nil
	}
	return f.parent.frame
}

// captureStep captures `steps.<id>`: output and result if there is one, status, and
// error (null when the step did not fail, X43).
func (e *env) captureStep(v *plan.Var, c *captured) {
	c.kind, c.status = stepVar, journal.Pending
	for s := e.scope; s != nil; s = s.parent {
		if s.graph != v.Graph {
			continue
		}
		i := v.Index - s.g.First
		c.status, c.val = s.steps[i].status, s.outs[i]
		if se, ok := s.errs[i]; ok {
			kept := se
			c.failed = &kept
		}
		break
	}
}
