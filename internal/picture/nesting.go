// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"cmp"
	"fmt"
	"slices"
)

// A member is a node or group in its enclosing group.
type member struct {
	order int
	node  *Node
	group *Group
}

// members returns the nodes and groups by their enclosing group, in the order
// of the definition. A step comes before the graphs it owns.
func (p *Picture) members() map[string][]member {
	inner := map[string][]member{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		inner[n.Group] = append(inner[n.Group], member{order: n.Order, node: n})
	}
	for i := range p.Groups {
		g := &p.Groups[i]
		inner[g.Group] = append(inner[g.Group], member{order: g.Order, group: g})
	}
	for _, list := range inner {
		slices.SortStableFunc(list, func(a, b member) int { return cmp.Compare(a.order, b.order) })
	}
	return inner
}

// eachMember visits nodes and groups by nesting. open and closing are called
// before and after the contents of a group.
func (p *Picture) eachMember(node func(*Node, string), open func(*Group, string), closing func(*Group, string)) {
	inner := p.members()
	var walk func(group, indent string)
	walk = func(group, indent string) {
		for _, m := range inner[group] {
			if m.node != nil {
				node(m.node, indent)
				continue
			}
			open(m.group, indent)
			walk(m.group.ID, indent+"  ")
			closing(m.group, indent)
		}
	}
	walk("", "  ")
}

// names returns short names for nodes and groups that other notations allow.
func (p *Picture) names() map[string]string {
	names := map[string]string{}
	for i := range p.Nodes {
		names[p.Nodes[i].ID] = fmt.Sprintf("n%d", i)
	}
	for i := range p.Groups {
		names[p.Groups[i].ID] = fmt.Sprintf("g%d", i)
	}
	return names
}
