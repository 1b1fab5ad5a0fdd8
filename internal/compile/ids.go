// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"strconv"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
)

const maxID = 64

// assignIDs gives every step its id: the one in the recipe, else one generated from its
// position (X53). Positions are part of a recipe's meaning, so the same recipe gets the
// same ids everywhere.
func (c *compiler) assignIDs() {
	for i := range c.nodes {
		n := &c.nodes[i]
		id := n.src.ID
		if id == "" {
			continue
		}
		n.explicitID = true
		c.p.Steps[i].ID = id
		at := c.valueAt(n.ptr + "/id")
		if !validID(id) {
			c.fail(fault.RecipeInvalid, "bad-id", at, fmt.Sprintf("%q is not a valid step id", id),
				"want 1 to 64 letters, digits, underscores and dashes")
		}
		if first, ok := c.byID[id]; ok {
			c.fail(fault.RecipeInvalid, "duplicate-id", at, fmt.Sprintf("two steps have the id %q", id),
				"ids are unique in the whole recipe, inner scopes included",
				c.place(c.valueAt(c.nodes[first].ptr+"/id"), "the first one"))
			continue
		}
		c.byID[id] = int32(i)
	}
	for i := range c.nodes {
		n := &c.nodes[i]
		if c.p.Steps[i].ID == "" {
			id := recipe.UniqueID(c.generatedID(int32(i)), func(id string) bool { _, taken := c.byID[id]; return taken })
			c.p.Steps[i].ID = id
			c.byID[id] = int32(i)
		}
		if n.src.Name != "" && n.src.Name != c.p.Steps[i].ID {
			if c.p.Labels == nil {
				c.p.Labels = map[string]string{}
			}
			c.p.Labels[c.p.Steps[i].ID] = n.src.Name
		}
	}
}

// generatedID names a step by its position: s2, sizes-b0-s1, pages-s0, charge-undo.
func (c *compiler) generatedID(i int32) string {
	g := &c.p.Graphs[c.p.Steps[i].Graph]
	at := "s" + strconv.Itoa(int(i-g.First))
	if g.Owner == plan.None {
		return at
	}
	owner := c.p.Steps[g.Owner].ID // its index is smaller, so it already has its id
	switch g.Role {
	case plan.Then, plan.Else:
		at = g.Role.String() + "-" + at
	case plan.Branch:
		at = "b" + strconv.Itoa(int(g.Ordinal)) + "-" + at
	case plan.Fallback:
		at = "fallback"
	case plan.Compensation:
		at = "undo"
	}
	return owner + "-" + at
}

func validID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for _, r := range []byte(id) {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
		default:
			return false
		}
	}
	return true
}
