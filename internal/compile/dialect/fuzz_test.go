// SPDX-License-Identifier: Apache-2.0

package dialect_test

import (
	"bytes"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/fuzztest"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/yamlx"
)

// FuzzConvert: a text in any dialect is compiled, formatted, and written in each dialect, at a bounded cost.
// A text that is formatted twice is as if it was formatted once; a text that compiles has the same plan when it
// is formatted, and in each dialect in which it compiles.
func FuzzConvert(f *testing.F) {
	for _, text := range fuzztest.Recipes(f) {
		f.Add(text)
	}
	list := []*action.Action{{Name: "echo", Version: "1.0.0"}, {Name: "work", Version: "1.0.0"}}
	for _, a := range builtin.Actions(builtin.Config{}) {
		list = append(list, &a)
	}
	opt := compile.Options{
		Actions: catalogue.New(list...),
		Lenses:  catalogue.NewLenses(&catalogue.Lens{ID: "summarize", Version: "3", Template: "Summarize: {{ text }}"}),
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 32<<10 {
			return
		}
		p, _ := source(t, text, opt)
		formatted(t, text, p, opt)
		if p == nil {
			return
		}
		from := dialect.Of("x.yaml", text)
		for _, to := range dialect.All() {
			var tree *jsonx.Node
			var err error
			_, r := source(t, text, opt) // which Encode changes
			began := *r
			fuzztest.Bounded(t, "Encode", func() {
				again := began
				tree, err = to.Encode(&again, from)
			})
			if err != nil {
				continue // what the dialect cannot say
			}
			written := yamlx.Encode(tree)
			if q, _ := source(t, written, opt); q != nil && q.Hash() != p.Hash() {
				t.Errorf("in %s another plan has\n%s\nthan\n%s", to.Name, written, text)
			}
		}
	})
}

// source compiles a text.
func source(t *testing.T, text []byte, opt compile.Options) (p *plan.Plan, r *recipe.Recipe) {
	fuzztest.Bounded(t, "Source", func() { p, r, _, _ = compile.Source("x.yaml", text, opt) })
	return p, r
}

// formatted checks the standard form of a text that has the plan p, or none.
func formatted(t *testing.T, text []byte, p *plan.Plan, opt compile.Options) {
	var out []byte
	fuzztest.Bounded(t, "Format", func() { out, _ = dialect.Format("x.yaml", text, 1<<16) })
	if out == nil {
		if p != nil {
			t.Errorf("this compiles, and cannot be formatted:\n%s", text)
		}
		return
	}
	if again, diags := dialect.Format("x.yaml", out, 1<<18); !bytes.Equal(again, out) {
		t.Errorf("%v\n%s\nbecomes\n%s", diags, out, again)
	}
	if q, _ := source(t, out, opt); p != nil && (q == nil || q.Hash() != p.Hash()) {
		t.Errorf("another plan has\n%s\nthan\n%s", out, text)
	}
}
