// SPDX-License-Identifier: Apache-2.0

package program

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// Pin finds what the references of a root run stand for: pins are those of its own actions;
// tree has the recipes and actions of the runs below it, and is nil for a plan that starts
// no child runs.
func (p *Program) Pin(actions catalogue.Finder) (pins []journal.Pin, tree *journal.Tree, err error) {
	if pins, err = pinsOf(actions, p.Plan()); err != nil {
		return nil, nil, err
	}
	tree, err = treeOf(actions, p.Plan())
	return pins, tree, err
}

func pinsOf(actions catalogue.Finder, p *plan.Plan) ([]journal.Pin, error) {
	pins := make([]journal.Pin, len(p.Actions))
	for i, ref := range p.Actions {
		a := actions.Find(ref.Name, ref.Version)
		if a == nil {
			name := ref.Name
			if ref.Version != "" {
				name += "@" + ref.Version
			}
			return nil, fault.New(fault.ActionNotFound, "no action %s is registered here", name)
		}
		price, err := catalogue.Price(a)
		if err != nil {
			return nil, err
		}
		pins[i] = journal.Pin{Name: a.Name, Version: a.Version, Cost: a.Cost, Provider: a.Provider, Once: a.Delivery == "at_most_once", Price: price}
	}
	return pins, nil
}

func treeOf(actions catalogue.Finder, p *plan.Plan) (*journal.Tree, error) {
	if len(p.Children) == 0 {
		return nil, nil
	}
	t := new(journal.Tree)
	for i := range p.Registered {
		if r := &p.Registered[i]; r.Plan != nil {
			t.Recipes = append(t.Recipes, journal.TreeRecipe{Ref: r.Ref.String(), Name: r.Name, Version: r.Version, Key: r.Plan.Key()})
		}
	}
	family := familyOf(p)
	for _, q := range append([]*plan.Plan{p}, family...) {
		for k := range q.Children {
			if ref := &q.Children[k]; ref.Registered() && t.Recipe(ref.String()) == nil {
				return nil, fault.New(fault.RecipeNotFound, "no recipe %s is registered here", ref)
			}
		}
	}
	for _, q := range family {
		pins, err := pinsOf(actions, q)
		if err != nil {
			return nil, err
		}
		for k, a := range q.Actions {
			if t.Action(a.String()) == nil {
				t.Actions = append(t.Actions, journal.TreeAction{Ref: a.String(), Pin: pins[k]})
			}
		}
	}
	return t, nil
}
