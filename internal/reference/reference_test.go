// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/approval"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/reference"
)

// TestExamples evaluates every expression and template of the reference.
func TestExamples(t *testing.T) {
	for _, kind := range []struct {
		groups  []reference.Group
		compile func(string) (*expr.Program, error)
	}{{reference.Examples, expr.Compile}, {reference.Templates, expr.CompileTemplate}} {
		for _, group := range kind.groups {
			for _, e := range group.List {
				p, err := kind.compile(e.Source)
				if err != nil {
					t.Errorf("%s: %v", e.Source, err)
					continue
				}
				v, err := p.Eval(expr.MapVars{})
				if err != nil {
					t.Errorf("%s: %v", e.Source, err)
					continue
				}
				if got, err := jsonx.Canonical(v); err != nil || string(got) != e.Result {
					t.Errorf("%s gives %s (%v), the reference says %s", e.Source, got, err, e.Result)
				}
			}
		}
	}
}

var snippet = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// TestRecipes: every recipe of the reference compiles without a warning, and those that do
// not wait for a signal complete.
func TestRecipes(t *testing.T) {
	var decls []*action.Action
	for _, a := range append(builtin.Actions(builtin.Config{}), approval.Action()) {
		decls = append(decls, &a)
	}
	catalogue := catalogue.New(decls...)
	e, err := roux.Open(t.Context(), roux.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ran := 0
	for _, topic := range reference.Topics() {
		for _, found := range snippet.FindAllStringSubmatch(topic.Text, -1) {
			text := found[1]
			_, r, _, diags := compile.Source(topic.Name+".yaml", []byte(text), compile.Options{Actions: catalogue})
			for _, d := range diags {
				t.Errorf("%v\n%s", d, text)
			}
			if r == nil || strings.Contains(text, "signal:") || strings.Contains(text, "approval:") { // they wait for somebody
				continue
			}
			var input map[string]any
			if said, ok := strings.CutPrefix(text, "# With the input "); ok {
				said, _, _ = strings.Cut(said, "\n")
				if err := json.Unmarshal([]byte(said), &input); err != nil {
					t.Fatalf("%s: %v", topic.Name, err)
				}
			}
			id, err := e.Start(t.Context(), roux.Request{Recipe: []byte(text), Source: topic.Name + ".yaml", Input: input})
			if fault.CodeOf(err) == fault.RecipeNotFound && strings.Contains(text, "ref: walk") {
				continue // no recipe is registered here
			}
			if err != nil {
				t.Errorf("%s: %v", topic.Name, err)
				continue
			}
			if res, err := e.Wait(t.Context(), id); err != nil || res.Status != "completed" {
				t.Errorf("%s: %s, %v, %v", topic.Name, res.Status, res.Err, err)
			}
			ran++
		}
	}
	if ran < 10 {
		t.Errorf("only %d recipes ran", ran)
	}
}

// TestTopics: each topic has a title and text, its tables are filled, and every object and
// field of the format is in one of them.
func TestTopics(t *testing.T) {
	page := reference.Page()
	for _, topic := range reference.Topics() {
		if topic.Title == "" || topic.What == "" || len(topic.Text) < 100 || strings.Contains(topic.Text, "<!--") {
			t.Errorf("topic %s: title %q, %d bytes", topic.Name, topic.Title, len(topic.Text))
		}
		if found, ok := reference.Find(strings.ToUpper(topic.Name)); !ok || found.Title != topic.Title {
			t.Errorf("topic %s is not found", topic.Name)
		}
	}
	for word, want := range map[string]string{
		"expressions": "cel", "filters": "templates", "maxConcurrency": "loop", "retryPolicy": "steps", "jitter": "failures", "perFileCredits": "recipe",
		"groupBy": "cel", "math.sqrt": "cel", "sqrt": "cel", "uuid": "cel", "tojson": "cel", "round": "cel", "max_loop_items": "limits", "extract": "children",
		"../reference": "", "roupBy": "", "(": "", "": "", "colour": "", "field": "",
	} {
		if found, _ := reference.Find(word); found.Name != want {
			t.Errorf("%q leads to %q, want %q", word, found.Name, want)
		}
	}
	objects := recipe.Form.Objects()
	if len(objects) < 15 {
		t.Errorf("objects %v", objects)
	}
	for _, object := range objects {
		fields := recipe.Form.Fields(object)
		if len(fields) == 0 {
			t.Errorf("%s has no fields", object)
		}
		for _, f := range fields {
			if f.Doc == "" || f.Takes == "" || !strings.Contains(page, "| `"+f.Name+"` | "+f.Takes+" | ") {
				t.Errorf("%s.%s: %q, takes %q", object, f.Name, f.Doc, f.Takes)
			}
		}
	}
	limits := compile.DefaultLimits().Default
	for name, n := range map[string]int64{"max_total_steps": limits.TotalSteps, "max_loop_items": limits.LoopItems, "max_scope_depth": limits.ScopeDepth,
		"memory_limit_mb": limits.MemoryBytes >> 20, "max_expression_cost": expr.CostLimit, "max_depth": plan.DefaultChildDepth} {
		if !slices.ContainsFunc(recipe.Form.Fields("Limits"), func(f form.Field) bool { return f.Name == name && f.Default == strconv.FormatInt(n, 10) }) {
			t.Errorf("the default of %s is not %d", name, n)
		}
	}
	if recipe.Form.Fields("Nothing") != nil {
		t.Error("an object that does not exist has fields")
	}
}
