// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
)

// registers reports whether steps of recipe n run registered recipes. No kept seed is older
// than these.
func registers(n uint64) bool { return n%14 == 6 || n%14 == 8 || inherits(n) || names(n) }

// A library is the registered recipes of a case.
type library []*recipe.Recipe

// drawLibrary draws the registered recipes of case n: one in three versions, and one whose
// steps run others, itself included.
func drawLibrary(n uint64) library {
	if !registers(n) {
		return nil
	}
	dice := rand.New(rand.NewPCG(n, 0x6c696272))
	var l library
	add := func(name, version string) *recipe.Recipe {
		r := smallRecipe(dice)
		r.Name, r.Version = name, version
		l = append(l, r)
		return r
	}
	for _, version := range []string{"1.0.0", "1.2.0", "2.0.0"} {
		add("part", version)
	}
	outer := add("outer", "1.0.0")
	g := &childGenerator{dice: dice, registered: l[:3]}
	g.steps(outer.Steps, 1)
	again := &recipe.Step{ID: "again", Common: recipe.Common{When: "false"}, Recipe: &recipe.Child{Ref: "outer@1", Limits: &recipe.ChildLimits{MaxDepth: 2}}}
	if dice.IntN(2) == 0 {
		again.When = "" // until the limit, where it fails
	}
	outer.Steps = append(outer.Steps, again)
	return l
}

// references returns what steps may name.
func (l library) references() (refs []string) {
	for _, r := range l {
		refs = append(refs, r.Name, r.Name+"@"+r.Version, r.Name+"@1")
	}
	slices.Sort(refs)
	return slices.Compact(refs)
}

// plans compiles the registered recipes that users start themselves.
func (s *sources) plans() (list []*plan.Plan, err error) {
	for _, ref := range [][2]string{{"part", "1"}, {"part", ""}, {"outer", ""}} {
		if len(s.registered) == 0 {
			break
		}
		found, err := s.find(ref[0], ref[1])
		if err != nil {
			return nil, err
		}
		text := found.text
		p, _, _, diags := compile.Source(text.File, text.Data, s.options())
		if p == nil {
			return nil, fmt.Errorf("a registered recipe does not compile: %v\n%s", diags, text.Data)
		}
		s.roots[p.Key()] = s.origins[found.name+"@"+found.version].dialect
		list = append(list, p)
	}
	return list, nil
}
