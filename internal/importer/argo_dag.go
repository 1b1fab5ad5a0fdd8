// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/importer/syntax"
	"github.com/roux-engine/roux/internal/jsonx"
)

// body writes the steps or tasks of a template into a recipe.
func (a *argo) body(t value, name string, s *argoScope, r *recipe.Recipe) {
	if len(a.calls) == 0 { // the entry point, whose parameters are those of the workflow
		s.params = a.inputs(t, s.params)
		a.calls = append(a.calls, name)
		a.deepest = max(a.deepest, 1)
		defer func() { a.calls = nil }()
		a.retryEntry(t)
	}
	s.steps, s.loops = map[string]string{}, map[string]bool{}
	if t.has("dag") {
		a.dag(t.get("dag"), s, r)
	} else {
		a.groups(t.get("steps"), s, r)
	}
	for _, d := range []string{"timeout", "activeDeadlineSeconds"} {
		if v := t.get(d); v.there() {
			r.TTL = a.duration(v, s)
		}
	}
	out := t.get("outputs")
	out.get("artifacts").refuse("artifacts are not supported: an action returns files by their hashes")
	if params := out.get("parameters"); params.there() {
		var fields []field
		for _, p := range params.items() {
			n, from := p.get("name").str(), p.get("valueFrom")
			ref := from.get("parameter")
			p.get("globalName").refuse("a global output is not supported")
			from.rest("valueFrom")
			p.rest("an output")
			if src, ok := ref.text(); ok {
				fields = append(fields, field{n, a.text(ref, src, s).cel})
			} else {
				p.refuse("an output of steps needs valueFrom.parameter")
			}
		}
		r.Outputs = map[string]string{"parameters": mapOf(fields).src}
	}
	out.rest("outputs")
	a.common(t)
	t.mapped("template %q: %d steps", syntax.Short(name), len(r.Steps))
}

func (a *argo) retryEntry(t value) {
	t.get("retryStrategy").refuse("the retry of the entry point is not supported: put it on a template that it calls")
}

// A dagTask is a task of a DAG, or a step of steps.
type dagTask struct {
	value
	name    string
	parents []string
	depends *syntax.Condition
	when    string
	step    *recipe.Step
}

// groups writes the steps of a template of steps: lists, one after the other, of steps that run at the same time.
func (a *argo) groups(list value, s *argoScope, r *recipe.Recipe) {
	if !list.list("steps") {
		return
	}
	single := true
	for _, g := range list.n.Children {
		single = single && (g.Kind != jsonx.Array || len(g.Children) == 1)
	}
	before := []string{}
	for _, g := range list.items() {
		steps := []value{g}
		if g.is(jsonx.Array) {
			steps = g.items()
		}
		var ids []string
		for _, v := range steps {
			t := &dagTask{value: v}
			step := a.task(t, s)
			if step == nil {
				continue
			}
			step.When = t.when
			if on := v.get("continueOn"); on.there() {
				step.ContinueOnError = a.continues(on)
			}
			if !single {
				deps := slices.Clone(before)
				step.DependsOn = &deps
			}
			v.rest("a step")
			ids = append(ids, step.ID)
			r.Steps = append(r.Steps, step)
		}
		before = ids
	}
}

func (a *argo) continues(on value) bool {
	yes := false
	for _, name := range []string{"failed", "error"} {
		if v := on.get(name); v.is(jsonx.Bool) && v.n.Bool {
			yes = true
		}
	}
	on.rest("continueOn")
	return yes
}

// task returns the step of a task, without what it depends on.
func (a *argo) task(t *dagTask, s *argoScope) *recipe.Step {
	if !t.object("a step") {
		return nil
	}
	t.name = t.get("name").str()
	if t.name == "" || s.steps[t.name] != "" {
		t.refuse("a step needs a name of its own")
		return nil
	}
	for name, why := range map[string]string{"templateRef": "a template elsewhere is not supported: import that template", "hooks": "hooks are not supported", "onExit": "onExit of a step is not supported"} {
		t.get(name).refuse("%s", why)
	}
	items, over, as := a.over(t, s)
	inner := *s
	if items {
		inner.item = as
	}
	when := t.get("when")
	cond := ""
	if when.there() {
		cond = a.when(when, &inner)
	}
	args := map[string]argument{}
	av := t.get("arguments")
	av.get("artifacts").refuse("artifacts are not supported: pass a file by its hash")
	for _, p := range av.get("parameters").items() {
		p.get("valueFrom").refuse("valueFrom of an argument is not supported")
		v := p.get("value")
		src, ok := v.scalar()
		if !ok {
			v.refuse("an argument needs a value")
			continue
		}
		args[p.get("name").str()] = a.text(v, src, &inner)
		p.rest("an argument")
	}
	av.rest("arguments")
	id := t.name
	if items {
		s.w.loops--
		id = s.w.id(t.name)
	}
	name := t.name
	if items {
		name += "-item"
	}
	var step *recipe.Step
	if in := t.get("inline"); in.there() {
		step = a.callTemplate(t.value, name, in, t.name+" (inline)", &inner, args)
	} else {
		ref := t.get("template")
		if !ref.there() {
			t.refuse("the step %q names no template", syntax.Short(t.name))
			return nil
		}
		step = a.call(ref, name, ref.str(), &inner, args)
	}
	if step == nil {
		return nil
	}
	if items {
		if cond != "" && mentions(when.n, "item") {
			step.When, cond = cond, ""
		}
		step = &recipe.Step{ID: id, Loop: &recipe.Loop{Over: over, As: as.src, MaxConcurrency: 100, Steps: []*recipe.Step{step}}}
		s.loops[t.name] = true
	}
	t.when, t.step = cond, step
	s.steps[t.name] = step.ID
	return step
}

// over returns the list that a task runs for.
func (a *argo) over(t *dagTask, s *argoScope) (is bool, list string, as cel) {
	var c cel
	item := unknown
	switch {
	case t.has("withItems"):
		v := t.get("withItems")
		if !v.list("withItems") {
			return false, "", cel{}
		}
		item = isText
		for _, i := range v.n.Children {
			switch i.Kind {
			case jsonx.String:
			case jsonx.Object:
				item = isMap
			default:
				if item == isText {
					item = unknown
				}
			}
		}
		c = a.value(v, s)
	case t.has("withParam"):
		v := t.get("withParam")
		c = call(isList, "fromJson(%s)", a.text(v, v.str(), s).cel.src)
	case t.has("withSequence"):
		v := t.get("withSequence")
		n := func(name string, other int64) int64 {
			text, ok := v.get(name).scalar()
			if !ok {
				return other
			}
			i, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				v.get(name).refuse("%s of a sequence must be a fixed number", name)
			}
			return i
		}
		start, count := n("start", 0), n("count", -1)
		last := n("end", start+count-1)
		v.get("format").refuse("format of a sequence is not supported")
		v.rest("withSequence")
		c = call(isList, "range(%d, %d)", start, last+1)
		if last < start && count < 0 {
			c = call(isList, "range(%d, %d, -1)", start, last-1)
		}
	default:
		return false, "", cel{}
	}
	name, _ := s.w.item()
	return true, c.src, cel{name, item, true}
}

// dag writes the tasks of a DAG.
func (a *argo) dag(d value, s *argoScope, r *recipe.Recipe) {
	list := d.get("tasks")
	d.get("failFast").drop("what happens to other steps when one fails is failure_policy of the recipe")
	d.get("target").refuse("target of a DAG is not supported: all tasks run")
	if !list.list("tasks") {
		d.refuse("a DAG needs tasks")
		return
	}
	defer d.rest("dag")
	var tasks []*dagTask
	byName := map[string]*dagTask{}
	status := false
	for _, v := range list.items() {
		if !v.object("a task") {
			continue
		}
		t := &dagTask{value: v, name: v.peek("name").strOr("")}
		complex := a.depends(t)
		if on := v.get("continueOn"); on.there() && a.continues(on) {
			complex = true
			t.mapped("continueOn: what depends on %q looks at how it ended", syntax.Short(t.name))
		}
		status = status || complex
		tasks = append(tasks, t)
		byName[t.name] = t
	}
	if tasks = a.ordered(tasks, byName); tasks == nil {
		return
	}
	for _, t := range tasks {
		step := a.task(t, s)
		t.rest("a task")
		if step == nil {
			return
		}
		deps := []string{}
		for _, p := range t.parents {
			deps = append(deps, byName[p].step.ID)
		}
		step.DependsOn, step.When = &deps, t.when
		r.Steps = append(r.Steps, step)
	}
	if status {
		a.statuses(d, tasks, byName, s, r)
	}
}

// ordered returns tasks such that each stands behind those that it depends on.
func (a *argo) ordered(tasks []*dagTask, byName map[string]*dagTask) (list []*dagTask) {
	state := map[string]int{}
	var visit func(t *dagTask) bool
	visit = func(t *dagTask) bool {
		switch state[t.name] {
		case 1:
			t.refuse("the task %q waits for itself", syntax.Short(t.name))
			return false
		case 2:
			return true
		}
		state[t.name] = 1
		for _, p := range t.parents {
			if byName[p] == nil {
				t.get("depends").refuse("no task has the name %q", syntax.Short(p))
				t.get("dependencies").refuse("no task has the name %q", syntax.Short(p))
				return false
			}
			if !visit(byName[p]) {
				return false
			}
		}
		state[t.name] = 2
		list = append(list, t)
		return true
	}
	for _, t := range tasks {
		if !visit(t) {
			return nil
		}
	}
	return list
}

// depends reads what a task depends on, and reports whether that is more than the success of others.
func (a *argo) depends(t *dagTask) (complex bool) {
	if v := t.get("dependencies"); v.there() && v.list("dependencies") {
		for _, n := range v.items() {
			t.parents = append(t.parents, n.str())
			t.depends = t.depends.And(&syntax.Condition{Op: "atom", Text: n.str()})
		}
	}
	v := t.get("depends")
	src, ok := v.text()
	if !ok {
		return false
	}
	e, err := syntax.ParseCondition(src, syntax.DependsAtom)
	if err != nil {
		v.refuse("%v", err)
		return false
	}
	t.depends = t.depends.And(e)
	e.Walk(func(x *syntax.Condition) {
		if x.Op != "atom" {
			complex = complex || x.Op != "&&"
			return
		}
		name, status, _ := strings.Cut(x.Text, ".")
		complex = complex || status != "" && status != "Succeeded"
		if !slices.Contains(t.parents, name) {
			t.parents = append(t.parents, name)
		}
	})
	return complex
}

// statuses has all tasks of a DAG go on when others fail, look at how those ended, and the DAG fail in the end if one
// of its last tasks has.
func (a *argo) statuses(d value, tasks []*dagTask, byName map[string]*dagTask, s *argoScope, r *recipe.Recipe) {
	ready, failed := map[string]string{}, map[string]string{} // by task: its depends, and whether it counts as failed
	inner := map[string]bool{}
	for _, t := range tasks {
		at := stepOf(t.step.ID) + ".status"
		own := t.step.When
		cond := "true"
		if t.depends != nil {
			cond = t.depends.Write(func(atom string) string { return statusOf(atom, byName, ready) })
			t.step.When = cond
			if own != "" {
				t.step.When = "(" + cond + ") && (" + own + ")"
			}
		}
		ready[t.name] = ""
		if own != "" {
			ready[t.name] = cond
		}
		t.step.ContinueOnError = true
		worst := []string{at + " == 'failed'"}
		for _, p := range t.parents {
			inner[p] = true
			omitted := at + " == 'skipped'"
			if own != "" {
				omitted += " && !(" + cond + ")"
			}
			worst = append(worst, omitted+" && ("+failed[p]+")")
		}
		failed[t.name] = strings.Join(worst, " || ")
		if len(failed[t.name])+len(t.step.When) > syntax.MaxExpression {
			d.refuse("what the tasks of this DAG depend on would be an expression of more than %d characters", syntax.MaxExpression)
			return
		}
	}
	var ids, any []string
	for _, t := range tasks {
		if !inner[t.name] {
			ids, any = append(ids, t.step.ID), append(any, "("+failed[t.name]+")")
		}
	}
	r.Steps = append(r.Steps, &recipe.Step{
		ID: s.w.id("failed"), DependsOn: &ids, Common: recipe.Common{When: strings.Join(any, " || ")},
		Fail: &recipe.Fail{Message: "a last task has failed"},
	})
}

// statusOf returns the condition that a task has ended as an atom of depends says.
func statusOf(atom string, byName map[string]*dagTask, ready map[string]string) string {
	name, status, _ := strings.Cut(atom, ".")
	at := stepOf(byName[name].step.ID) + ".status"
	skipped, omitted := "false", at+" == 'skipped'"
	if cond := ready[name]; cond != "" {
		skipped, omitted = "("+at+" == 'skipped' && ("+cond+"))", "("+at+" == 'skipped' && !("+cond+"))"
	}
	switch status {
	case "":
		if skipped == "false" {
			return at + " == 'completed'"
		}
		return "(" + at + " == 'completed' || " + skipped + ")"
	case "Succeeded", "AnySucceeded", "Daemoned":
		return at + " == 'completed'"
	case "Failed", "Errored", "AllFailed":
		return at + " == 'failed'"
	case "Skipped":
		return skipped
	}
	return omitted
}

// when translates the condition of a step.
func (a *argo) when(v value, s *argoScope) string {
	src, ok := v.text()
	if !ok {
		return "true"
	}
	e, err := syntax.ParseCondition(src, syntax.WhenAtom)
	if err != nil {
		v.refuse("%v", err)
		return "true"
	}
	return e.Write(func(atom string) string { return a.comparison(v, atom, s) })
}

// comparison translates one comparison of a when.
func (a *argo) comparison(v value, atom string, s *argoScope) string {
	left, op, right := syntax.CutComparison(atom)
	l := a.operand(v, left, s)
	if op == "" {
		return "(" + l.src + ") == 'true'"
	}
	r := a.operand(v, right, s)
	switch op {
	case "==", "!=":
		return l.in() + " " + op + " " + r.in()
	case "=~":
		return l.in() + ".matches(" + r.src + ")"
	case "!~":
		return "!" + l.in() + ".matches(" + r.src + ")"
	}
	return fmt.Sprintf("double(%s) %s double(%s)", l.src, op, r.src)
}

// operand translates an operand of a comparison, which is always a text.
func (a *argo) operand(v value, src string, s *argoScope) cel {
	src = strings.TrimSpace(src)
	if n := len(src); n >= 2 && (src[0] == '\'' || src[0] == '"') && src[n-1] == src[0] {
		src = src[1 : n-1]
	}
	return a.text(v, src, s).cel
}
