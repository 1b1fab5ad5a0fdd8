// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/estimate"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// The severities of a Change.
const (
	Breaking = "breaking" // what used the old recipe may fail with the new one
	Note     = "note"     // something is different, and nobody has to do anything
)

// A Change is a difference between two revisions of a recipe that those who use it may see.
type Change struct {
	Severity string    `json:"severity"`
	Rule     string    `json:"rule"`
	Msg      string    `json:"message"`
	Pos      fault.Pos `json:"pos"` // in the new text, or in the old one if the new one has it no more
}

func (c Change) String() string {
	return fmt.Sprintf("%s: %s %s: %s", c.Pos, c.Severity, c.Rule, c.Msg)
}

// Compatible compares a recipe with the one that it is to replace. Both have a plan. The changes are in the order
// of their severity and then of the text.
func Compatible(old, now Text, actions catalogue.Actions) []Change {
	k := &comparer{old: old, now: now}
	k.head()
	k.input()
	k.output()
	k.limits()
	k.steps()
	k.credits(actions)
	k.version()
	slices.SortStableFunc(k.changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Pos.File, b.Pos.File), cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Col, b.Pos.Col))
	})
	return k.changes
}

type comparer struct {
	old, now Text
	changes  []Change
}

// inNew adds a change at a place of the new text, and inOld at one of the old text.
func (k *comparer) inNew(severity, rule, pointer, format string, args ...any) {
	k.changes = append(k.changes, Change{severity, rule, fmt.Sprintf(format, args...), k.now.Source.Pos(pointer)})
}

func (k *comparer) inOld(severity, rule, pointer, format string, args ...any) {
	k.changes = append(k.changes, Change{severity, rule, fmt.Sprintf(format, args...), k.old.Source.Pos(pointer)})
}

func (k *comparer) head() {
	was, is := k.old.Recipe, k.now.Recipe
	if was.Name != is.Name {
		k.inNew(Breaking, "name-changed", "/name", "the recipe was called %q and is called %q: nobody finds it by its old name", was.Name, is.Name)
	}
	if was.Status != is.Status {
		switch is.Status {
		case "draft":
			k.inNew(Breaking, "now-a-draft", "/status", "it is a draft, which is not run")
		case "deprecated":
			k.inNew(Note, "now-deprecated", "/status", "it is deprecated")
		}
	}
}

// version says when a recipe breaks those who use it, and its version does not tell.
func (k *comparer) version() {
	major := func(r *recipe.Recipe) string { m, _, _ := strings.Cut(cmp.Or(r.Version, "0.0.0"), "."); return m }
	breaks := slices.ContainsFunc(k.changes, func(c Change) bool { return c.Severity == Breaking })
	if m := major(k.now.Recipe); breaks && m != "0" && m == major(k.old.Recipe) {
		k.inNew(Note, "version-not-raised", "/version", "this breaks users of the recipe, and the major version is still %s: those that name %s@%s get it", m, k.now.Recipe.Name, m)
	}
}

// output compares the fields of the result.
func (k *comparer) output() {
	was, wasAt, _ := fields(k.old.Recipe)
	is, _, closed := fields(k.now.Recipe)
	for _, name := range was {
		switch {
		case slices.Contains(is, name):
		case closed:
			k.inOld(Breaking, "output-removed", wasAt(name), "the result has no %q any more", name)
		default:
			k.inOld(Note, "output-removed", wasAt(name), "the result names no %q any more", name)
		}
	}
	for _, name := range is {
		if !slices.Contains(was, name) {
			_, at, _ := fields(k.now.Recipe)
			k.inNew(Note, "output-added", at(name), "the result has %q, too", name)
		}
	}
	before, after := decoded(k.old.Recipe.OutputSchema), decoded(k.now.Recipe.OutputSchema)
	if before != nil {
		// A reader of the result is to the schema of the result what a start is to that of the input, the other way around.
		k.narrower(after, before, "/outputSchema", "output", "the result", k.inNew)
	}
}

// fields returns the fields of the result of a recipe, where each of them comes from, and whether there are no
// others.
func fields(r *recipe.Recipe) (names []string, at func(string) string, closed bool) {
	places := map[string]string{}
	at = func(name string) string { return places[name] }
	switch {
	case len(r.Outputs) > 0:
		for name := range r.Outputs {
			places[name] = "/outputs/" + jsonx.EscapeToken(name)
		}
		closed = true
	case len(r.OutputSchema) > 0:
		schema := decoded(r.OutputSchema)
		for name := range properties(r.OutputSchema) {
			places[name] = "/outputSchema/properties/" + jsonx.EscapeToken(name)
		}
		closed = schema["additionalProperties"] == false
	case r.Result == "steps":
		for _, s := range r.Steps {
			if s != nil && s.ID != "" {
				places[s.ID] = s.Ptr
			}
		}
		closed = true
	default:
		bound(r.Steps, places)
		closed = true
	}
	return slices.Sorted(maps.Keys(places)), at, closed
}

// bound notes the names that steps bind in the frame of the root.
func bound(steps []*recipe.Step, places map[string]string) {
	for _, s := range steps {
		if s == nil {
			continue
		}
		if s.OutputBinding != "" {
			places[s.OutputBinding] = s.Ptr + "/outputBinding"
		}
		if name := transformBinding(s); name != "" {
			places[name] = s.Ptr + "/transform/outputBinding"
		}
		for _, inner := range s.Scopes() {
			bound(inner, places)
		}
	}
}

// limits compares what a run may use.
func (k *comparer) limits() {
	was, is := k.old.Plan.Limits, k.now.Plan.Limits
	for _, l := range []struct {
		field   string
		was, is int64
	}{
		{"max_total_steps", was.TotalSteps, is.TotalSteps}, {"max_loop_items", was.LoopItems, is.LoopItems},
		{"max_scope_depth", was.ScopeDepth, is.ScopeDepth}, {"memory_limit_mb", was.MemoryBytes >> 20, is.MemoryBytes >> 20},
	} {
		if l.is < l.was {
			k.inNew(Breaking, "limit-lowered", "/limits/"+l.field, "%s was %d and is %d: runs that needed more fail", l.field, l.was, l.is)
		}
	}
	if k.now.Plan.TTLMS < k.old.Plan.TTLMS {
		k.inNew(Breaking, "limit-lowered", "/ttl", "a run expired after %s and expires after %s", plan.FormatMS(k.old.Plan.TTLMS), plan.FormatMS(k.now.Plan.TTLMS))
	}
}

// steps compares what people and systems outside name of a run: signals, ids of steps; and what the steps call.
func (k *comparer) steps() {
	signals, ids := map[string]bool{}, map[string]bool{}
	for i := range k.now.Plan.Steps {
		st := &k.now.Plan.Steps[i]
		ids[st.ID] = true
		signals[st.Signal] = true
	}
	k.old.Recipe.Each(func(s *recipe.Step) {
		if s.Wait != nil && s.Wait.Signal != "" && !signals[s.Wait.Signal] {
			k.inOld(Breaking, "signal-removed", s.Ptr+"/wait/signal", "no step waits for the signal %q any more: those who send it are refused", s.Wait.Signal)
		}
		if s.ID != "" && !ids[s.ID] {
			k.inOld(Note, "step-removed", s.Ptr, "there is no step %q any more, which `roux runs retry --from`, webhooks and readers of events may name", s.ID)
		}
	})
	was := versions(k.old.Plan)
	k.now.Recipe.Each(func(s *recipe.Step) {
		st := step(k.now.Plan, s.ID)
		if s.Action == nil || st == nil || st.Action == plan.None {
			return
		}
		ref := k.now.Plan.Actions[st.Action]
		if before, ok := was[ref.Name]; ok && ref.Version != "" && !slices.Contains(before, major(ref.Version)) {
			k.inNew(Note, "action-major", s.Ptr+"/action", "%s is called in version %s, and was in %s: its inputs and output may be others", ref.Name, ref.Version, strings.Join(before, ", "))
		}
	})
}

func step(p *plan.Plan, id string) *plan.Step {
	for i := range p.Steps {
		if p.Steps[i].ID == id {
			return &p.Steps[i]
		}
	}
	return nil
}

// versions returns the major versions in which a plan calls actions.
func versions(p *plan.Plan) map[string][]string {
	all := map[string][]string{}
	for _, a := range p.Actions {
		if m := major(a.Version); m != "" && !slices.Contains(all[a.Name], m) {
			all[a.Name] = append(all[a.Name], m)
		}
	}
	return all
}

func major(version string) string { m, _, _ := strings.Cut(version, "."); return m }

// credits compares what a run may cost.
func (k *comparer) credits(actions catalogue.Actions) {
	was, is := k.old.Recipe.CreditEstimation, k.now.Recipe.CreditEstimation
	most := func(e *recipe.CreditEstimation) int64 {
		if e == nil {
			return 0
		}
		return e.MaxCredits
	}
	switch {
	case most(is) > most(was) && most(was) > 0:
		k.inNew(Breaking, "credits-raised", "/creditEstimation/maxCredits", "a run cost at most %d credits, and may cost %d: budgets of accounts, keys and recipes around it may refuse it", most(was), most(is))
	case most(was) > 0 && most(is) == 0:
		k.inOld(Breaking, "credits-raised", "/creditEstimation/maxCredits", "a run cost at most %d credits, and now nothing bounds it", most(was))
	}
	if actions == nil {
		return
	}
	before, after := estimate.Of(k.old.Plan, actions, estimate.Known{}), estimate.Of(k.now.Plan, actions, estimate.Known{})
	if after.Most > before.Most {
		k.inNew(Note, "costs-more", "/steps", "the calls of actions cost up to %d credits, and cost %d before; what is in loops counts once", after.Most, before.Most)
	}
}
