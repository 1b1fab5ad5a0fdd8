// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/importer/syntax"
	"github.com/roux-engine/roux/internal/jsonx"
)

// An argo imports a definition of Argo Workflows.
type argo struct {
	*importing
	templates map[string]value
	used      map[string]bool
	calls     []string // the templates that are being written, the outermost first
	deepest   int
	global    bool // some text names a value of the workflow
}

// An argument is the value of a parameter. fixed is its text if that is known now.
type argument struct {
	cel   cel
	fixed *string
}

// An argoScope is what {{ }} may name at a place.
type argoScope struct {
	w       *writer
	params  map[string]argument // inputs.parameters
	globals map[string]cel      // workflow.…
	steps   map[string]string   // ids of steps, by names of steps or tasks
	loops   map[string]bool     // the steps that are loops
	item    cel                 // of the loop; without a text there is none
}

// pods are fields that say how Kubernetes runs pods.
var pods = func() map[string]string {
	m := map[string]string{}
	for _, name := range []string{
		"serviceAccountName", "automountServiceAccountToken", "executor", "volumes", "volumeClaimTemplates", "volumeClaimGC", "nodeSelector", "affinity",
		"tolerations", "imagePullSecrets", "imagePullPolicy", "hostNetwork", "hostAliases", "dnsPolicy", "dnsConfig", "podGC", "podPriorityClassName", "podSpecPatch", "podMetadata", "podDisruptionBudget",
		"schedulerName", "securityContext", "initContainers", "sidecars", "priority", "priorityClassName", "resources", "volumeMounts", "ports", "livenessProbe", "readinessProbe",
		"lifecycle", "terminationMessagePath", "terminationMessagePolicy", "tty", "stdin", "daemon", "archiveLocation", "artifactRepositoryRef", "artifactGC", "ttlStrategy", "archiveLogs",
		"metrics", "memoize", "synchronization", "metadata", "workflowMetadata", "annotations", "suspendReason",
	} {
		m[name] = "how Kubernetes runs pods is not for recipes"
	}
	return m
}()

func (im *importing) argo(top value) *recipe.Recipe {
	a := &argo{importing: im, templates: map[string]value{}, used: map[string]bool{}}
	r := &recipe.Recipe{}
	top.get("apiVersion").drop("the version of the language")
	kind := top.get("kind")
	spec := top.get("spec")
	meta := top.get("metadata")
	r.Name = strings.Trim(meta.get("name").strOr(meta.get("generateName").strOr(im.name)), "-")
	for _, name := range []string{"labels", "annotations", "namespace"} {
		meta.get(name).drop("recipes have no %s", name)
	}
	meta.rest("metadata")
	switch kind.str() {
	case "Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate":
	case "CronWorkflow":
		for _, name := range []string{"schedule", "schedules", "timezone", "concurrencyPolicy", "startingDeadlineSeconds", "suspend", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"} {
			spec.get(name).drop("a recipe has no schedule: `roux schedules` makes one")
		}
		inner := spec.get("workflowSpec")
		spec.rest("a CronWorkflow")
		spec = inner
	default:
		kind.refuse("the kind %q is not supported: want Workflow, WorkflowTemplate or CronWorkflow", syntax.Short(kind.str()))
		return nil
	}
	top.get("status").drop("the state of an execution")
	top.rest("a workflow")
	if !spec.object("spec") {
		return nil
	}
	spec.dropEach(pods)
	a.spec(spec, r)
	for name, t := range a.templates {
		if !a.used[name] {
			t.drop("nothing calls the template %q", syntax.Short(name))
		}
	}
	if a.deepest > 10 {
		r.Limits = &recipe.Limits{MaxDepth: int64(a.deepest)}
	}
	return r
}

// spec reads what a workflow does.
func (a *argo) spec(spec value, r *recipe.Recipe) {
	list := spec.get("templates")
	if list.list("templates") {
		for _, t := range list.items() {
			if !t.object("a template") {
				continue
			}
			name := t.get("name").str()
			if _, twice := a.templates[name]; twice || name == "" {
				t.refuse("a template needs a name of its own")
				continue
			}
			a.templates[name] = t
		}
	}
	a.global = mentions(list.n, "workflow.")
	if n, ok := spec.get("activeDeadlineSeconds").whole(); ok && n > 0 {
		r.TTL = seconds(n)
	}
	spec.get("parallelism").drop("how many attempts run at once is a setting of Roux, or maxConcurrency of a loop")
	for name, why := range map[string]string{
		"workflowTemplateRef": "a template elsewhere is not supported: import that template", "hooks": "hooks are not supported: use onExit",
		"templateDefaults": "defaults of templates are not supported", "retryStrategy": "the retry of a whole workflow is not supported: put it on a template",
	} {
		spec.get(name).refuse("%s", why)
	}
	s := &argoScope{w: a.w, params: map[string]argument{}, globals: map[string]cel{"name": atom("workflow.name", isText), "uid": atom("_context.runId", isText)}}
	args := spec.get("arguments")
	args.get("artifacts").refuse("artifacts are not supported: the files of a run are in fileHashes")
	for _, p := range args.get("parameters").items() {
		name := p.get("name").str()
		c := atom("parameters", isMap).strict(name)
		if v := p.get("value"); v.there() {
			t, _ := v.scalar()
			c = atom(atom("parameters", isMap).optional([]syntax.Hop{{Name: name}})+".orValue("+quote(t)+")", unknown)
		}
		for _, n := range []string{"description", "enum"} {
			p.get(n).drop("the description of a parameter")
		}
		p.rest("a parameter")
		s.globals["parameters."+name] = c
		s.params[name] = argument{cel: cel{argoText(c).src, isText, true}}
	}
	args.rest("arguments")
	entry := spec.get("entrypoint")
	name, ok := entry.text()
	if !ok {
		spec.refuse("a workflow needs entrypoint, the name of a template")
		return
	}
	exit := spec.get("onExit")
	spec.rest("spec")
	if exit.there() {
		a.withExit(r, entry, name, exit, s)
		return
	}
	t := a.template(entry, name)
	if a.composite(t) {
		a.body(t, name, s, r)
		return
	}
	if t.there() {
		step := a.leaf(t, name, s)
		r.Steps = []*recipe.Step{step}
	}
}

// withExit runs a template, and another one when it has ended in any way.
func (a *argo) withExit(r *recipe.Recipe, entry value, name string, exit value, s *argoScope) {
	main := a.call(entry, name, name, s, nil)
	if main == nil {
		return
	}
	main.OnError = &recipe.OnError{Strategy: "skip"}
	started := &recipe.Step{ID: a.w.id("started"), Transform: &recipe.Transform{Expression: "string(now())"}}
	at := stepOf(main.ID)
	s.globals["status"] = atom("("+at+".status == 'completed' ? 'Succeeded' : 'Failed')", isText)
	s.globals["failures"] = atom(fmt.Sprintf("(%[1]s.status == 'completed' ? '[]' : toJson([{'displayName': %[2]s, 'message': %[1]s.error.message, 'phase': 'Failed'}]))", at, quote(name)), isText)
	s.globals["duration"] = atom("string((now() - timestamp("+output(started.ID).src+")).getSeconds())", isText)
	exit.mapped("onExit: a step behind the others, which go on when one of them fails")
	handler := a.call(exit, exit.str(), exit.str(), s, nil)
	if handler == nil {
		return
	}
	again := &recipe.Step{ID: a.w.id("failed"), Common: recipe.Common{When: at + ".status != 'completed'"}, Fail: &recipe.Fail{
		Message: fmt.Sprintf("{{ %[1]s.error.code }}: {{ %[1]s.error.message }}", at),
	}}
	r.Steps = []*recipe.Step{started, main, handler, again}
}

// mentions reports whether a text in a tree has a part.
func mentions(n *jsonx.Node, part string) bool {
	if n == nil {
		return false
	}
	if n.Kind == jsonx.String && strings.Contains(n.Text, part) {
		return true
	}
	return slices.ContainsFunc(n.Children, func(c *jsonx.Node) bool { return mentions(c, part) })
}

// template returns the template of a name.
func (a *argo) template(at value, name string) value {
	t, ok := a.templates[name]
	if !ok {
		at.refuse("no template has the name %q", syntax.Short(name))
		return value{s: at.s}
	}
	a.used[name] = true
	return t
}

func (a *argo) composite(t value) bool { return t.n != nil && (t.has("steps") || t.has("dag")) }

// maxCalls is how deep runs may nest (design.md section 14).
const maxCalls = 32

// call returns the step that runs a template.
func (a *argo) call(at value, id, name string, s *argoScope, args map[string]argument) *recipe.Step {
	t := a.template(at, name)
	if !t.there() {
		return nil
	}
	return a.callTemplate(at, id, t, name, s, args)
}

func (a *argo) callTemplate(at value, id string, t value, name string, s *argoScope, args map[string]argument) *recipe.Step {
	if slices.Contains(a.calls, name) {
		at.refuse("the template %q calls itself: a recipe that runs itself must be registered (roux help children)", syntax.Short(name))
		return nil
	}
	if len(a.calls) >= maxCalls {
		at.refuse("templates call each other more than %d deep", maxCalls)
		return nil
	}
	if !s.w.fits(at, 1) {
		return nil
	}
	a.calls = append(a.calls, name)
	a.deepest = max(a.deepest, len(a.calls))
	defer func() { a.calls = a.calls[:len(a.calls)-1] }()
	inner := *s
	inner.params = a.inputs(t, args)
	if !a.composite(t) {
		step := a.leaf(t, name, &inner)
		if step != nil {
			delete(s.w.taken, step.ID)
			step.ID = s.w.id(id)
		}
		return step
	}
	step := &recipe.Step{ID: s.w.id(id), Recipe: &recipe.Child{Inline: &recipe.Recipe{}}}
	r := step.Recipe.Inline
	r.Name = name
	below := &argoScope{w: s.w.inner(), params: map[string]argument{}, globals: map[string]cel{}}
	for _, p := range sortedKeys(inner.params) {
		arg := inner.params[p]
		if arg.fixed != nil {
			fixed(step, p, *arg.fixed)
		} else {
			bind(step, p, arg.cel)
		}
		below.params[p] = argument{cel: cel{atom("parameters", isMap).strict(p).src, isText, true}}
	}
	if a.global {
		var fields []field
		for _, g := range sortedKeys(s.globals) {
			fields = append(fields, field{g, argoText(s.globals[g])})
			below.globals[g] = cel{"parameters.workflow[" + quote(g) + "]", isText, true}
		}
		bind(step, "workflow", mapOf(fields))
	}
	step.RetryPolicy, step.TotalTimeout = a.retry(t.get("retryStrategy"))
	a.body(t, name, below, r)
	return step
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// inputs returns the parameters of a template: what it is called with, or its defaults.
func (a *argo) inputs(t value, args map[string]argument) map[string]argument {
	in := t.get("inputs")
	in.get("artifacts").refuse("artifacts are not supported: pass a file by its hash")
	params := map[string]argument{}
	for _, p := range in.get("parameters").items() {
		name := p.get("name").str()
		v := p.get("value")
		if !v.there() {
			v = p.get("default")
		}
		p.get("valueFrom").refuse("valueFrom of an input is not supported")
		for _, n := range []string{"description", "enum"} {
			p.get(n).drop("the description of a parameter")
		}
		p.rest("a parameter")
		if arg, ok := args[name]; ok {
			params[name] = arg
		} else if text, ok := v.scalar(); ok {
			params[name] = argument{cel: literal(text), fixed: &text}
		} else {
			p.refuse("the parameter %q has no value where the template is called", syntax.Short(name))
		}
	}
	in.rest("inputs")
	return params
}

// retry reads a retry strategy.
func (a *argo) retry(v value) (pol *recipe.RetryPolicy, total recipe.Duration) {
	if !v.there() || !v.object("retryStrategy") {
		return nil, ""
	}
	none := 0.0
	pol = &recipe.RetryPolicy{MaxAttempts: 1000, InitialDelay: "0ms", MaxDelay: "24h", BackoffMultiplier: 1, Jitter: &none}
	if limit, ok := v.get("limit").scalar(); ok {
		n, err := strconv.ParseInt(limit, 10, 32)
		if err != nil || n < 0 {
			v.get("limit").refuse("limit must be a whole number")
		}
		pol.MaxAttempts = min(n+1, 1000)
	} else {
		v.changed("at most 1000 attempts")
	}
	switch p := v.get("retryPolicy"); p.str() {
	case "", "Always", "OnFailure":
	default:
		p.changed("errors for which another attempt can succeed are retried")
	}
	v.get("expression").refuse("a condition of a retry is not supported: what is retried is decided by the codes of the errors")
	v.get("affinity").drop("how Kubernetes runs pods is not for recipes")
	b := v.get("backoff")
	if d := b.get("duration"); d.there() {
		pol.InitialDelay = a.duration(d, nil)
	}
	if f, ok := b.get("factor").scalar(); ok {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil || n < 1 || n > 100 {
			b.get("factor").refuse("factor must be a number from 1 to 100")
			n = 1
		}
		pol.BackoffMultiplier = n
	}
	if c := b.get("cap"); c.there() {
		pol.MaxDelay = a.duration(c, nil)
	}
	if m := b.get("maxDuration"); m.there() {
		total = a.duration(m, nil)
	}
	b.rest("backoff")
	v.rest("retryStrategy")
	if pol.MaxAttempts <= 1 {
		return nil, total
	}
	return pol, total
}

var (
	goDuration = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`)
	digits     = regexp.MustCompile(`^[0-9]{1,9}$`)
)

// duration reads a duration, which is a number of seconds or has units.
func (a *argo) duration(v value, s *argoScope) recipe.Duration {
	t, ok := v.scalar()
	if !ok {
		return ""
	}
	if ref, is := whole(t); is && s != nil {
		arg, ok := s.params[strings.TrimPrefix(ref, "inputs.parameters.")]
		if !ok || arg.fixed == nil {
			v.refuse("a duration must be fixed: the timeout of a step is no expression")
			return ""
		}
		t = *arg.fixed
	}
	switch {
	case digits.MatchString(t):
		return recipe.Duration(t + "s")
	case goDuration.MatchString(t):
		return recipe.Duration(t)
	}
	v.refuse("%q is no duration", syntax.Short(t))
	return ""
}

// whole returns what a text names that is one placeholder.
func whole(t string) (ref string, is bool) {
	t = strings.TrimSpace(t)
	if !strings.HasPrefix(t, "{{") || strings.Index(t, "}}") != len(t)-2 {
		return "", false
	}
	return strings.TrimSpace(t[2 : len(t)-2]), true
}
