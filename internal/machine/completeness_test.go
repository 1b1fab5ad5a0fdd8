// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// The completeness tests check that for every field of a recipe and of a plan a
// scenario fails when the field is ignored. They clear the field and replay the
// scenarios. Fields that no scenario can show are listed with a reason.

// planFieldsUnseen are the fields of a plan that no scenario needs.
var planFieldsUnseen = map[string]string{
	"Prompt.Lens":        "for people",
	"Plan.Version":       "the version of the canonical form: plan's own tests",
	"Plan.Labels":        "names for people: shown in payloads, which scenarios leave out; TestEnvelope",
	"Plan.InputSchema":   "checked where a run is started: the engine's tests",
	"Plan.InputPolicy":   "applied where a run is started: program's tests",
	"Child.InputPolicy":  "applied where a run is started: program's tests",
	"ChildRef.File":      "for people: telemetry's tests",
	"Estimate.Strategy":  "kept for the runChecker to come",
	"Estimate.Fixed":     "kept for the runChecker to come",
	"Estimate.PerFile":   "kept for the runChecker to come",
	"Estimate.Max":       "kept for the runChecker to come",
	"Estimate.Policy":    "kept for the runChecker to come",
	"Graph.Depth":        "checked by compile",
	"Step.As":            "the loop variable's name: expressions carry it (Var.Name); kept for people",
	"Step.Index":         "as Step.As",
	"Step.OutputMarks":   "what is not shown of an output: the tests of view and cli",
	"Plan.Embedded":      "the engine finds the plan of a child run: its tests",
	"Plan.Registered":    "as Plan.Embedded",
	"ChildRef.Key":       "as Plan.Embedded",
	"ChildRef.Version":   "as Plan.Embedded",
	"Registered.Ref":     "as Plan.Embedded",
	"Registered.Name":    "as Plan.Embedded",
	"Registered.Plan":    "as Plan.Embedded",
	"Registered.Version": "as Plan.Embedded",
	"Child.TotalSteps":   "the engine fixes the terms of a child run: its tests",
	"Child.MemoryBytes":  "as Child.TotalSteps",
	"Child.MaxCredits":   "as Child.TotalSteps",
	"Child.Workspace":    "package program puts it into the start of a child run, and the worker opens it: TestX162_WorkspaceOfARun",
	"ActionRef.Version":  "what a reference resolves to is pinned by the engine when a run starts",
}

// recipeFieldsUnseen are the fields of a recipe that no scenario needs.
var recipeFieldsUnseen = map[string]string{
	"Head.ID":                         "for the registry to come; compile's goldens accept it",
	"Head.Version":                    "for people and the registry to come",
	"Head.Description":                "for people",
	"Head.Category":                   "for people",
	"Head.Status":                     "for the registry to come; compile warns",
	"Head.CreatedAt":                  "for the registry to come",
	"Head.UpdatedAt":                  "for the registry to come",
	"Head.CreatedBy":                  "for the registry to come",
	"Head.Dialect":                    "the compiler does not know it: dialect's tests",
	"Settings.InputSchema":            "checked where a run is started: the engine's tests",
	"Settings.InputPolicy":            "applied where a run is started: program's tests",
	"Child.InputPolicy":               "applied where a run is started: program's tests",
	"Base.File":                       "put together before the recipe is compiled: compile/extend's tests",
	"Base.Ref":                        "as Base.File",
	"Base.With":                       "as Base.File",
	"Head.Extends":                    "as Base.File",
	"Head.Override":                   "as Base.File",
	"Head.TemplateParameters":         "as Base.File",
	"Settings.CreditPolicy":           "compile's goldens; the runChecker is to come",
	"CreditEstimation.FixedCredits":   "compile's goldens; the runChecker is to come",
	"CreditEstimation.PerFileCredits": "compile's goldens; the runChecker is to come",
	"CreditEstimation.MaxCredits":     "compile's goldens; the runChecker is to come",
	"Limits.MaxScopeDepth":            "checked by compile: its goldens",
	"Child.File":                      "resolved by compile: its tests",
	"Child.MaxCredits":                "the engine fixes the terms of a child run: its tests",
	"Child.Workspace":                 "package program puts it into the start of a child run, and the worker opens it: TestX162_WorkspaceOfARun",
	"ChildLimits.MaxTotalSteps":       "as Child.MaxCredits",
	"ChildLimits.MemoryLimitMB":       "as Child.MaxCredits",
	"Step.Type":                       "follows from the kind's field; compile's goldens refuse another one",
	"Step.Name":                       "for people; TestEnvelope",
	"Recipe.Ptr":                      "a place in the source, no field of the format",
	"Recipe.Read":                     "decides how names are spelled: pipeline's and dialect's tests",
	"Settings.ServiceRetry":           "compiled as a retry policy: compile/dag's tests",
	"Settings.Functions":              "replaced by the parser: the tests of dialect",
	"Step.Ptr":                        "a place in the source, no field of the format",
	"Action.Version":                  "resolved by compile's catalogue: its goldens",
	"Wait.Approval":                   "compiled to the call of an action: compile's goldens",
	"Wait.Default":                    "as Wait.Approval",
	"Approval.Approvers":              "as Wait.Approval",
	"Approval.Form":                   "as Wait.Approval",
	"Approval.Reject":                 "as Wait.Approval",
	"Approval.Remind":                 "as Wait.Approval",
	"Approval.Text":                   "as Wait.Approval",
	"Approval.Title":                  "as Wait.Approval",
	"Approval.Value":                  "as Wait.Approval",
}

// silent is a testing.TB that panics when a test fails and logs nothing. It is for runs
// that are broken on purpose: only that they differ matters, not how.
type silent struct{ testing.TB }

func (silent) Helper()                           {}
func (silent) Log(...any)                        {}
func (silent) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// replay plays a scenario's blocks on another plan and reports whether the output is
// as written.
func replay(p *plan.Plan, blocks []block) (same bool) {
	defer func() {
		if recover() != nil {
			same = false
		}
	}()
	w := &fakeEngine{t: silent{}, now: t0, auto: true}
	w.begin(p)
	for _, b := range blocks[1:] {
		if w.play(b.does()) != b.want {
			return false
		}
	}
	return true
}

type scenario struct {
	name   string
	blocks []block
}

func allScenarios(t *testing.T) (all []scenario) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d scenarios found", len(files))
	}
	for _, f := range files {
		all = append(all, scenario{strings.TrimSuffix(filepath.Base(f), ".txt"), readScenario(t, f)})
	}
	return all
}

// zero clears a field wherever it occurs in v; changed is false when it was zero
// everywhere.
func zero(v reflect.Value, field string) (changed bool) {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && zero(v.Elem(), field)
	case reflect.Slice:
		for i := range v.Len() {
			changed = zero(v.Index(i), field) || changed
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			if v.Type().Name()+"."+f.Name != field {
				changed = zero(v.Field(i), field) || changed
			} else if !v.Field(i).IsZero() {
				v.Field(i).SetZero()
				changed = true
			}
		}
	}
	return changed
}

// fields lists Type.Field of a struct and of the structs it contains.
func fields(t reflect.Type, into map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		fields(t.Elem(), into)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && !into[t.Name()+"."+f.Name] {
				into[t.Name()+"."+f.Name] = true
				fields(f.Type, into)
			}
		}
	}
}

// missed reports the fields that no scenario needs and no exception explains.
func missed(t *testing.T, what string, all map[string]bool, unseen map[string]string, needed func(field string) (by string)) {
	t.Helper()
	for _, field := range slices.Sorted(maps.Keys(all)) {
		by := needed(field)
		switch reason, ok := unseen[field]; {
		case by != "" && ok:
			t.Errorf("%s %s is needed by scenario %s: it is no exception any more", what, field, by)
		case by == "" && ok:
			t.Logf("exception: %s %s: %s", what, field, reason)
		case by == "":
			t.Errorf("%s %s: no scenario fails when it is ignored", what, field)
		}
	}
	for field := range unseen {
		if !all[field] {
			t.Errorf("the exception %s %s names nothing", what, field)
		}
	}
}

func TestEveryPlanFieldMatters(t *testing.T) {
	scenarios := allScenarios(t)
	stored := make([][]byte, len(scenarios))
	for k := range scenarios {
		var err error
		if stored[k], err = compilePlan(t, scenarios[k].blocks[0].does()).Encode(); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]bool{}
	fields(reflect.TypeFor[plan.Plan](), all)
	missed(t, "plan field", all, planFieldsUnseen, func(field string) string {
		for k := range scenarios {
			p, err := plan.Decode(stored[k])
			if err != nil {
				t.Fatal(err)
			}
			if zero(reflect.ValueOf(p), field) && !replay(p, scenarios[k].blocks) {
				return scenarios[k].name
			}
		}
		return ""
	})
}

func TestEveryRecipeFieldMatters(t *testing.T) {
	scenarios := allScenarios(t)
	models := make([]*recipe.Recipe, len(scenarios))
	for k := range scenarios {
		_, m, _, diags := compile.Source("recipe.yaml", []byte(scenarios[k].blocks[0].does()), testOptions())
		if m == nil {
			t.Fatal(diags)
		}
		models[k] = m
	}
	all := map[string]bool{}
	fields(reflect.TypeFor[recipe.Recipe](), all)
	missed(t, "recipe field", all, recipeFieldsUnseen, func(field string) string {
		for k := range scenarios {
			written, err := json.Marshal(models[k])
			if err != nil {
				t.Fatal(err)
			}
			m := new(recipe.Recipe)
			if err := json.Unmarshal(written, m); err != nil {
				t.Fatal(err)
			}
			if !zero(reflect.ValueOf(m), field) {
				continue
			}
			ignored, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			p, _, _, _ := compile.Source("recipe.json", ignored, testOptions())
			if p == nil || !replay(played(p, string(ignored)), scenarios[k].blocks) {
				return scenarios[k].name
			}
		}
		return ""
	})
}

// kindsUnseen are the inputs, outcomes and other kinds that no scenario shows.
var kindsUnseen = map[string]string{}

// TestEveryKindIsPlayed: every kind of input, outcome, source, event, command,
// reason and status appears in a scenario.
func TestEveryKindIsPlayed(t *testing.T) {
	seen := map[string]bool{}
	for _, sc := range allScenarios(t) {
		w := &fakeEngine{t: t, now: t0, auto: true, seen: seen}
		for _, b := range sc.blocks {
			w.play(b.does())
		}
	}
	var want []string
	for k := InStart; k <= InResume; k++ {
		want = append(want, fmt.Sprint("input ", k))
	}
	for k := CmdAcquire; k <= CmdAdmit; k++ {
		want = append(want, fmt.Sprint("command ", k))
	}
	for k := Success; k <= Submitted; k++ {
		want = append(want, fmt.Sprint("outcome ", k))
	}
	for k := journal.FromWorker; k <= journal.FromPoll; k++ {
		want = append(want, fmt.Sprint("source ", k))
	}
	for _, k := range journal.Kinds() {
		want = append(want, fmt.Sprint("event ", k))
	}
	for k := journal.ByCondition; k <= journal.ByCancel; k++ {
		want = append(want, "reason "+k.String())
	}
	for st := journal.Status(0); st.Known(); st++ {
		want = append(want, "step "+st.String())
	}
	for st := journal.RunStatus(0); st.Known(); st++ {
		want = append(want, "run "+st.String())
	}
	for _, name := range []string{"none", "waiting_single", "waiting_parallel", "ready_to_resume"} {
		want = append(want, "wait "+name)
	}
	for _, w := range want {
		reason, ok := kindsUnseen[w]
		switch {
		case seen[w] && ok:
			t.Errorf("%s is played: it is no exception any more", w)
		case ok:
			t.Logf("exception: %s: %s", w, reason)
		case !seen[w]:
			t.Errorf("%s: no scenario plays it", w)
		}
	}
}
