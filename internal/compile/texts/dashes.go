// SPDX-License-Identifier: Apache-2.0

package texts

import (
	"maps"
	"regexp"
	"strings"

	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// NameDashedIDs has the templates of a recipe name steps as the dialect of recipes does: in others an id with
// dashes is a name, so {{ fetch-page.output }} and {{ steps.fetch-page.output }} become
// {{ steps['fetch-page'].output }}, and the same in expressions that are no templates if expressions is set. The
// ids of the recipe come before a subtraction. src learns where the texts differ.
func NameDashedIDs(r *recipe.Recipe, src *form.Source, expressions bool) {
	rename(r, DashedIDs(r, nil), &dashes{src: src, is: indexed, expressions: expressions})
}

// NameOuterIDs is [NameDashedIDs] for ids of a recipe whose context this one inherits. One that begins with a name
// of this recipe and a dash is a subtraction.
func NameOuterIDs(r *recipe.Recipe, src *form.Source, ids map[string]bool, expressions bool) {
	own := map[string]bool{}
	r.Each(func(s *recipe.Step) {
		own[s.ID], own[s.OutputBinding] = true, true
		if l := s.Loop; l != nil {
			own[l.As], own[l.Index] = true, true
			if l.Accumulate != nil {
				own[l.Accumulate.As] = true
			}
		}
	})
	others := map[string]bool{}
	for id := range ids {
		if first, _, _ := strings.Cut(id, "-"); !own[first] {
			others[id] = true
		}
	}
	rename(r, others, &dashes{src: src, is: indexed, expressions: expressions})
}

// DashedIDs returns the ids with dashes of the steps of a recipe, and of those that it inherits.
func DashedIDs(r *recipe.Recipe, inherited map[string]bool) map[string]bool {
	ids := maps.Clone(inherited)
	r.Each(func(s *recipe.Step) {
		if strings.Contains(s.ID, "-") {
			if ids == nil {
				ids = map[string]bool{}
			}
			ids[s.ID] = true
		}
	})
	return ids
}

// indexed is how other dialects name a step.
func indexed(was string) string { return "steps['" + strings.TrimPrefix(was, "steps.") + "']" }

// Subtraction returns one in a template of a recipe that would be the id of a step in a dialect with
// NameDashedIDs, or "": {{ a-b }} with a step a-b.
func Subtraction(r *recipe.Recipe, expressions bool) (found string) {
	rename(r, DashedIDs(r, nil), &dashes{expressions: expressions, is: func(was string) string {
		found = was
		return was
	}})
	return found
}

// rename replaces ids in the templates of a recipe.
func rename(r *recipe.Recipe, ids map[string]bool, d *dashes) {
	if d.ids = ids; len(ids) > 0 {
		(&Rewriter{Code: d.code, Templates: !d.expressions, Source: d.src}).Recipe(r)
	}
}

// dashes replaces the ids of steps in templates.
type dashes struct {
	ids map[string]bool // with dashes
	src *form.Source    // nil = nobody has to know
	is  func(was string) string

	expressions bool // also in expressions
}

// chains matches literals, which are left alone, and names with dots between them.
var chains = regexp.MustCompile(`'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?`)

// code replaces ids in what is between two braces.
func (d *dashes) code(_ Place, code string) (list []Replacement) {
	for _, m := range chains.FindAllStringIndex(code, -1) {
		if was := d.id(code[m[0]:m[1]]); was != "" {
			list = append(list, Replacement{From: m[0], To: m[0] + len(was), With: d.is(was)})
		}
	}
	return list
}

// id returns the beginning of a chain of names that is the id of a step, perhaps with steps. before
// it, or "".
func (d *dashes) id(chain string) string {
	first, rest, _ := strings.Cut(chain, ".")
	if d.ids[first] {
		return first
	}
	second, _, _ := strings.Cut(rest, ".")
	if first == "steps" && d.ids[second] {
		return first + "." + second
	}
	return ""
}
