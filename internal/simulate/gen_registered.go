// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
)

// registers reports whether steps of recipe n run registered recipes. No kept seed is older
// than these.
func registers(n uint64) bool { return n%14 == 6 || n%14 == 8 }

// A library is a directory of registered recipes, by name and version. It implements
// compile.Recipes.
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
	g := &nester{dice, l[:3]}
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

// Find implements compile.Recipes.
func (l library) Find(name, version string) (*compile.Text, error) {
	var found *recipe.Recipe
	for _, r := range l {
		if r.Name == name && catalogue.Admits(version, r.Version) && (found == nil || catalogue.CompareVersions(found.Version, r.Version) < 0) {
			found = r
		}
	}
	if found == nil {
		return nil, fault.New(fault.RecipeNotFound, "no recipe %s %s", name, version)
	}
	text, err := json.Marshal(found)
	return &compile.Text{File: found.Name + "-" + found.Version + ".json", Data: text}, err
}

// File implements compile.Recipes.
func (library) File(_, path string) (*compile.Text, error) {
	return nil, fault.New(fault.RecipeNotFound, "no file %s", path)
}

// Names implements compile.Recipes.
func (l library) Names() (names []string) {
	for _, r := range l {
		names = append(names, r.Name)
	}
	slices.SortFunc(names, cmp.Compare)
	return slices.Compact(names)
}

// options are those with which a drawn recipe is compiled.
func (l library) options() compile.Options {
	opt := compile.Options{Actions: drawnActions, Limits: drawnLimits, Lenses: drawnLenses}
	if l != nil {
		opt.Recipes = l
	}
	return opt
}

// plans compiles the registered recipes that users start themselves.
func (l library) plans() (list []*plan.Plan, err error) {
	for _, ref := range [][2]string{{"part", "1"}, {"part", ""}, {"outer", ""}} {
		if l == nil {
			break
		}
		text, err := l.Find(ref[0], ref[1])
		if err != nil {
			return nil, err
		}
		p, _, _, diags := compile.Source(text.File, text.Data, l.options())
		if p == nil {
			return nil, fmt.Errorf("a registered recipe does not compile: %v\n%s", diags, text.Data)
		}
		list = append(list, p)
	}
	return list, nil
}
