// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// What the runs of a tree execute was fixed when a user asked for its root, whatever is registered later and
// however often the process has restarted since (R28). What a child run has of its parent is what its text
// reads of it (R24), and nothing that it does changes its parent (X237).

// contextNames are the names of the contexts in the start of a run.
var contextNames = [...]string{plan.OfInput: "input", plan.OfWorkflow: "workflow", plan.OfSteps: "steps", plan.OfNames: "names"}

// inherited is what a run has of the context of its parent, by the context and the name.
type inherited map[string]map[string]any

func decodeInherited(raw []byte) (inherited, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	v, err := jsonx.Decode(raw, journal.InlineLimits)
	if err != nil {
		return nil, err
	}
	all := inherited{}
	contexts, _ := v.(map[string]any)
	for of, fields := range contexts {
		if !slices.Contains(contextNames[:], of) {
			return nil, fmt.Errorf("there is no context %q", of)
		}
		if all[of], _ = fields.(map[string]any); all[of] == nil {
			return nil, fmt.Errorf("its context %q is no object", of)
		}
	}
	return all, nil
}

// checkRoot asserts that a root run executes what was asked for.
func (c *checker) checkRoot(t *runRecord) {
	a, known := c.w.registry.asked[t.key]
	if !known {
		c.w.fail("R28: run %s has started, and nobody asked for it", t.key.Run)
	}
	if t.tree.asked = a; t.prog.Plan().Key() != a.plan.Key() {
		c.w.fail("R28: run %s executes plan %s, and plan %s was asked for", t.key.Run, t.prog.Plan().Key(), a.plan.Key())
	}
}

// checkAsked asserts that a child run executes the plan that the reference in its parent stood for when the
// start of its root was asked for.
func (c *checker) checkAsked(t, parent, root *runRecord, ref *plan.ChildRef) {
	want := keyOfRef(root.tree.asked.plan, ref)
	if got := t.prog.Plan().Key(); want != "" && got != want {
		c.w.fail("R28: child run %s executes plan %s, and recipe %s was plan %s when its root was started", t.key.Run, got, ref, want)
	}
	c.countChild(t, parent, root, ref, want)
}

// checkNamed returns the key of the plan of a child run whose recipe an expression has named or given, if the root
// has pinned that recipe; "" = it has not. A child run does not record what its expression gave, so that all pins are
// looked through; a tree has few.
func (c *checker) checkNamed(t, root *runRecord, ref *plan.ChildRef) string {
	st, key := t.replica.Start(), t.prog.Plan().Key()
	for _, r := range root.tree.shared.Recipes {
		static := r.By == "" && ref.By == plan.ByName // the name was pinned when the root started
		if !static && r.By != ref.By || r.Key != key || r.Name != st.Recipe || r.Version != st.Version {
			continue
		}
		if t.tree.fresh {
			c.countNamed(root, &r)
		}
		return key
	}
	return ""
}

// keyOfRef returns the key of the plan that a reference stands for, which p has or a plan of its child runs;
// "" = it is not known.
func keyOfRef(p *plan.Plan, ref *plan.ChildRef) string {
	if !ref.Registered() {
		return ref.Key
	}
	for i := range p.Registered {
		if r := &p.Registered[i]; r.Ref == *ref && r.Plan != nil {
			return r.Plan.Key()
		}
	}
	return ""
}

// checkPrompt asserts that a prompt is made of the version of the lens that there was when the root of the
// tree was asked for.
func (w *World) checkPrompt(t *runRecord, step int32, input []byte) {
	p := t.prog.Plan().Steps[step].Prompt
	if p == nil || w.c.Later == nil {
		return
	}
	var in struct{ Prompt string }
	if err := json.Unmarshal(input, &in); err != nil {
		w.fail("run %s: the input of a step is no JSON: %v", t.key.Run, err)
	}
	root := w.checker.rootOf(t)
	if revised := strings.HasPrefix(in.Prompt, revisedPrompt); revised != lensRevised(p) || revised && !root.tree.asked.revised {
		w.fail("R28: run %s has a prompt of the newer lens: %v; its plan has the lens %s, and when its root was started the newer one was registered: %v",
			t.key.Run, revised, p.Lens, root.tree.asked.revised)
	}
	if w.registry.revised && !root.tree.asked.revised {
		w.stats.Trees.OldPrompts++
	}
}

// rootOf is the root of the tree of a run.
func (c *checker) rootOf(t *runRecord) *runRecord {
	if t.tree.self == nil {
		return t
	}
	return c.runs[store.Key{Account: t.key.Account, Run: t.tree.self.Root}]
}

// checkInherited asserts that a child run has what its text reads of its parent and what its parent had, and
// nothing else.
func (c *checker) checkInherited(t, parent *runRecord, l *link) {
	own, captures := t.prog.Plan(), parent.prog.Plan().Steps[t.tree.self.Step].Child.Captures
	for of, fields := range t.tree.inherited {
		for name := range fields {
			is := plan.Inherited{Of: plan.Context(slices.Index(contextNames[:], of)), Name: name}
			captured := slices.ContainsFunc(captures, func(h plan.Capture) bool { return h.Inherited == is })
			if !captured || !slices.Contains(own.Inherits, is) {
				c.w.fail("R24: child run %s inherited %s.%s of its parent, which its text does not read", t.key.Run, of, name)
			}
		}
	}
	for i := range captures {
		h := &captures[i]
		of := contextNames[h.Of]
		got, has := t.tree.inherited[of][h.Name]
		want, sure := parent.inheritable(h, l)
		switch {
		case sure && has != (want != nil):
			c.w.fail("R24: child run %s inherited %s.%s: %v, and its parent had it: %v", t.key.Run, of, h.Name, has, want != nil)
		case has && want != nil && !want(got):
			c.w.fail("R24: child run %s inherited another %s.%s than its parent had", t.key.Run, of, h.Name)
		}
		if has {
			c.w.stats.Trees.Inherited[h.Of]++
		}
	}
}

// inheritable returns a test of the value that a child run may have inherited of the run; nil = there was none to
// inherit. sure is false if the checker does not know whether there was one.
func (t *runRecord) inheritable(h *plan.Capture, l *link) (want func(any) bool, sure bool) {
	up := t.tree.inherited[contextNames[h.Of]]
	switch {
	case h.Of == plan.OfInput:
		return t.field(l.input, up, h.Name), true
	case h.Of == plan.OfWorkflow:
		return t.field(values(t.prog.Plan()), up, h.Name), true
	case h.Var.Kind == plan.VarInherited:
		return t.field(nil, up, h.Name), true
	case h.Var.Kind == plan.VarStep:
		return func(v any) bool { return t.stepWas(h.Var.Index, v) }, true
	case h.Var.Kind == plan.VarBinding:
		return t.hadOutput, false // its step may not have run
	}
	return func(any) bool { return true }, false // a variable of a loop
}

// field returns a test of the value of a field: the run's own one, or else the one that it has inherited itself.
func (*runRecord) field(own, up map[string]any, name string) func(any) bool {
	v, ok := own[name]
	if !ok {
		v, ok = up[name]
	}
	if !ok {
		return nil
	}
	return func(got any) bool { return sameValue(got, v) }
}

// values are the fields of `workflow` that a plan has.
func values(p *plan.Plan) map[string]any {
	v, err := jsonx.Decode(p.Values, journal.InlineLimits)
	if err != nil {
		return nil // it has none
	}
	fields, _ := v.(map[string]any)
	return fields
}

// stepWas reports whether v, the status, error and output of a step, may have been those of the step.
func (t *runRecord) stepWas(step int32, v any) bool {
	fields, ok := v.(map[string]any)
	if !ok || fields["status"] == nil {
		return false
	}
	out := fields["output"]
	return out == nil || t.hadOutput(out)
}

// hadOutput reports whether v is the output that a step of the run has had. The output of a step that owns others
// is made of theirs and not known here: if there was one, v may be it.
func (t *runRecord) hadOutput(v any) bool {
	raw, err := jsonx.Canonical(v)
	if err != nil {
		return false
	}
	for i := range t.events {
		ev := &t.events[i]
		switch {
		case ev.Kind != journal.EvNodeCompleted && ev.Kind != journal.EvNodeCached && ev.Kind != journal.EvChildEnded:
		case bytes.Equal(ev.Data, raw):
			return true
		case ev.Kind == journal.EvNodeCompleted && t.prog.Plan().Steps[ev.Step].Graphs() != nil:
			return true
		}
	}
	return false
}

func sameValue(a, b any) bool {
	x, err := jsonx.Canonical([]any{a})
	y, err2 := jsonx.Canonical([]any{b})
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

// checkParent asserts that an attempt of a run which has had child runs gets the input that the journal of the
// run alone gives: no child run has changed a variable of its parent.
func (p *process) checkParent(k *task) {
	t := k.run
	if p != p.w.owner || len(t.tree.links) == 0 || k.fail != nil {
		return // a process that was replaced may be out of date
	}
	alone := t.replica.Task(k.ef.Ref, k.ef.Fence)
	if alone == nil {
		return
	}
	input, _, fail := alone.Render()
	if p.w.stats.Trees.Parents++; fail != nil || !bytes.Equal(input, k.input) {
		p.w.fail("X237: run %s, which has had child runs, gives step %s the input %.200s, and by its journal alone %.200s", t.key.Run, k.ef.Task.StepPath, k.input, input)
	}
}
