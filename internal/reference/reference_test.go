// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/reference"
)

// TestExamples evaluates every expression of the reference.
func TestExamples(t *testing.T) {
	n := 0
	for _, group := range reference.Examples {
		for _, e := range group.List {
			n++
			p, err := expr.Compile(e.Source)
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
	if n < 70 {
		t.Errorf("%d examples", n)
	}
}

var snippet = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// TestRecipes: every recipe of the reference compiles without a warning, and those
// that wait for nobody complete.
func TestRecipes(t *testing.T) {
	var decls []*action.Action
	for _, a := range builtin.Actions(builtin.Config{}) {
		decls = append(decls, &a)
	}
	catalogue := compile.NewCatalogue(decls...)
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
			if r == nil || strings.Contains(text, "signal:") {
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

// TestTopics: each topic has a title and text, its tables are filled, and every object
// and field of the format stands in one of them.
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
	if _, ok := reference.Find("../reference"); ok {
		t.Error("a path is a topic")
	}
	for _, object := range []string{"Recipe", "Limits", "Step", "Action", "Condition", "Parallel", "Transform", "Loop", "Wait", "Fail", "OnError", "RetryPolicy", "Compensate", "Contracts"} {
		fields := recipe.Fields(object)
		if len(fields) == 0 {
			t.Errorf("%s has no fields", object)
		}
		for _, f := range fields {
			if f.Doc == "" || f.Takes == "" || !strings.Contains(page, "| `"+f.Name+"`") {
				t.Errorf("%s.%s: %q, takes %q", object, f.Name, f.Doc, f.Takes)
			}
		}
	}
	if recipe.Fields("Nothing") != nil {
		t.Error("an object that does not exist has fields")
	}
}
