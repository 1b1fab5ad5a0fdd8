// SPDX-License-Identifier: Apache-2.0

package refactor_test

import (
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/refactor"
	"github.com/roux-engine/roux/internal/fuzztest"
)

// FuzzExtract: steps of a text in any dialect are moved, within the text and into a file, or this is refused, at
// a bounded cost; what is written compiles, which Extract makes sure of. Everything that is suggested can be done.
func FuzzExtract(f *testing.F) {
	for i, text := range fuzztest.Recipes(f) {
		f.Add(text, uint8(0), uint8(i%4), i%3 == 0)
		f.Add(text, uint8(1), uint8(2), i%3 != 0)
	}
	var list []*action.Action
	for _, a := range builtin.Actions(builtin.Config{}) {
		list = append(list, &a)
	}
	opt := compile.Options{
		Actions: catalogue.New(append(list, &action.Action{Name: "echo", Version: "1.0.0"})...),
		Lenses:  catalogue.NewLenses(&catalogue.Lens{ID: "summarize", Version: "1", Template: "{{ text }}"}, &catalogue.Lens{ID: "combine", Version: "1", Template: "{{ parts }} {{ language }}"}),
	}
	moved := map[string]int{} // of the texts to begin with, by their dialects
	for _, text := range fuzztest.Recipes(f) {
		if main, err := refactor.Load("main.yaml", text, opt); err == nil {
			for _, id := range stepsOf(text, opt) {
				if _, err := main.Extract(refactor.Extraction{First: id, Last: id, Name: "part"}); err == nil {
					moved[dialect.Of("main.yaml", text).Name]++
				}
			}
		}
	}
	for _, l := range dialect.All() {
		if moved[l.Name] < 3 {
			f.Errorf("of the dialect %s %d steps can be moved: there is too little to begin with", l.Name, moved[l.Name])
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, first, last uint8, file bool) {
		if len(text) > 16<<10 {
			return
		}
		main, err := refactor.Load("main.yaml", text, opt)
		if err != nil {
			return
		}
		ids := stepsOf(text, opt)
		x := refactor.Extraction{First: ids[int(first)%len(ids)], Last: ids[int(last)%len(ids)], Name: "part"}
		if file {
			x.Path = "part.yaml"
		}
		fuzztest.Bounded(t, "Extract", func() { _, _ = main.Extract(x) })
		for _, s := range main.Suggest() { // which tries several, each within the bounds
			if _, err := main.Extract(refactor.Extraction{First: s.First, Last: s.Last, Name: s.Name}); err != nil {
				t.Errorf("what is suggested, %s to %s, cannot be done: %v\n%s", s.First, s.Last, err, text)
			}
		}
	})
}

func stepsOf(text []byte, opt compile.Options) (ids []string) {
	_, r, _, _ := compile.Source("main.yaml", text, opt)
	r.Each(func(s *recipe.Step) { ids = append(ids, s.ID) })
	return ids
}
