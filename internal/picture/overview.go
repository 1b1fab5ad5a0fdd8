// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/view"
)

// Overview is a simplified picture of a large plan. The graphs that a step owns
// are collapsed into its card. A chain of steps that each follow only the one
// before is one card. Cards that do the same between the same neighbours are
// lanes, and one card stands for all of them. In the picture of a run, a card
// has the counts of all steps it stands for.
func (p *Picture) Overview() *Picture {
	o := &overview{p: p, cardFor: map[string]string{}}
	o.collapseScopes()
	for n := -1; n != len(o.cards); {
		n = len(o.cards)
		o.collapseChains()
		o.collapseLanes()
	}
	return o.picture()
}

// overview collapses the nodes of a picture into cards. cardFor leads from a
// node to the card that stands for it.
type overview struct {
	p       *Picture
	cardFor map[string]string

	cards  map[string]*card
	before map[string]map[string]bool // cards by card, from the edges of order
	after  map[string]map[string]bool
}

// A card stands for one or more nodes.
type card struct {
	nodes []*Node // the first gives the card its name and position
	steps int     // steps of one lane, including those they own
	lanes int     // number of lanes
	last  string  // label of the last step of a chain
}

// cardOf returns the card that stands for a node or group now.
func (o *overview) cardOf(id string) string {
	for id = strings.TrimSuffix(id, "/"); ; {
		next, ok := o.cardFor[id]
		if !ok || next == id {
			return id
		}
		id = next
	}
}

// collapseScopes collapses the graphs that the steps of the outermost graph
// own.
func (o *overview) collapseScopes() {
	o.cards, o.before, o.after = map[string]*card{}, map[string]map[string]bool{}, map[string]map[string]bool{}
	groups := map[string]*Group{}
	for i := range o.p.Groups {
		groups[o.p.Groups[i].ID] = &o.p.Groups[i]
	}
	for i := range o.p.Nodes {
		n := &o.p.Nodes[i]
		owner := n.ID
		for g := groups[n.Group]; g != nil; g = groups[g.Group] {
			owner = strings.TrimSuffix(g.ID, "/")
		}
		if c := o.cards[owner]; c != nil {
			c.nodes = append(c.nodes, n)
			c.steps++
		} else {
			o.cards[owner] = &card{nodes: []*Node{n}, steps: 1, lanes: 1}
		}
		o.cardFor[n.ID] = owner
	}
	for i := range o.p.Groups {
		g := &o.p.Groups[i]
		top := g
		for groups[top.Group] != nil {
			top = groups[top.Group]
		}
		o.cardFor[strings.TrimSuffix(g.ID, "/")] = strings.TrimSuffix(top.ID, "/")
	}
	for i := range o.p.Edges {
		from, to := o.cardOf(o.p.Edges[i].From), o.cardOf(o.p.Edges[i].To)
		if from != to && o.p.Edges[i].Kind != Reads {
			link(o.after, from, to)
			link(o.before, to, from)
		}
	}
}

func link(m map[string]map[string]bool, from, to string) {
	if m[from] == nil {
		m[from] = map[string]bool{}
	}
	m[from][to] = true
}

// sortedCards returns the remaining cards in the order of the definition.
func (o *overview) sortedCards() []string {
	ids := slices.Collect(maps.Keys(o.cards))
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(o.cards[a].nodes[0].Order, o.cards[b].nodes[0].Order), cmp.Compare(a, b))
	})
	return ids
}

// collapseChains joins each card with the next one while that follows only this
// card.
func (o *overview) collapseChains() {
	for _, first := range o.sortedCards() {
		c := o.cards[first]
		if c == nil || o.isContinuation(first) {
			continue
		}
		for {
			next, ok := single(o.after[first])
			if !ok || len(o.before[next]) != 1 || next == first || c.lanes > 1 || o.cards[next].lanes > 1 {
				break // lanes stay a card of their own, because they are the shape of the plan
			}
			d := o.cards[next]
			c.nodes, c.steps, c.last = append(c.nodes, d.nodes...), c.steps+d.steps, cmp.Or(d.last, d.nodes[0].Label)
			o.cardFor[next] = first
			delete(o.cards, next)
			o.after[first] = o.after[next]
			for to := range o.after[first] {
				delete(o.before[to], next)
				link(o.before, to, first)
			}
		}
	}
}

// isContinuation reports whether collapseChains will join a card to the one
// before it.
func (o *overview) isContinuation(id string) bool {
	before, ok := single(o.before[id])
	return ok && len(o.after[before]) == 1 && o.cards[before].lanes == 1 && o.cards[id].lanes == 1
}

func single(set map[string]bool) (id string, ok bool) {
	for id = range set {
	}
	return id, len(set) == 1
}

// collapseLanes joins cards that do the same between the same neighbours.
func (o *overview) collapseLanes() {
	first := map[string]string{}
	for _, id := range o.sortedCards() {
		c := o.cards[id]
		var does []string
		for _, n := range c.nodes {
			does = append(does, n.Kind, strings.Join(n.Lines[:min(1, len(n.Lines))], ""))
		}
		sign := fmt.Sprintf("%q %q %q", slices.Sorted(maps.Keys(o.before[id])), slices.Sorted(maps.Keys(o.after[id])), does)
		lane, ok := first[sign]
		if !ok {
			first[sign] = id
			continue
		}
		o.cards[lane].lanes++
		o.cards[lane].nodes = append(o.cards[lane].nodes, c.nodes...)
		o.cardFor[id] = lane
		delete(o.cards, id)
		for from := range o.before[id] {
			delete(o.after[from], id)
		}
		for to := range o.after[id] {
			delete(o.before[to], id)
		}
	}
}

// picture returns the picture of the remaining cards.
func (o *overview) picture() *Picture {
	out := &Picture{Name: o.p.Name, Run: o.p.Run, Imported: o.p.Imported}
	for _, id := range o.sortedCards() {
		out.Nodes = append(out.Nodes, o.cards[id].node(id, o.p.Run))
	}
	seen := map[string]int{}
	for i := range o.p.Edges {
		e := o.p.Edges[i]
		e.From, e.To = o.cardOf(e.From), o.cardOf(e.To)
		if e.From == e.To || e.Kind == Reads {
			continue
		}
		e.ID, e.Kind, e.Label = e.From+" > "+e.To, Follows, ""
		if at, ok := seen[e.ID]; ok {
			f := &out.Edges[at]
			f.Taken, f.Untaken, f.Critical = f.Taken || e.Taken, f.Untaken && e.Untaken, f.Critical || e.Critical
			continue
		}
		seen[e.ID] = len(out.Edges)
		out.Edges = append(out.Edges, e)
	}
	out.Note = strings.TrimPrefix(fmt.Sprintf("%s, overview: %d steps on %d cards", o.p.Note, len(o.p.Nodes), len(out.Nodes)), ", ")
	return out
}

// node returns the card as a node.
func (c *card) node(id string, run bool) Node {
	n := *c.nodes[0]
	n.ID, n.Group = id, ""
	if len(c.nodes) == 1 {
		return n
	}
	if c.last != "" {
		n.Label = oneLine(n.Label + " … " + c.last)
	}
	what := fmt.Sprint(c.steps * c.lanes)
	if c.lanes > 1 {
		n.Label = fmt.Sprintf("%s ×%d", n.Label, c.lanes)
		what = fmt.Sprintf("%d, in %d lanes", c.steps*c.lanes, c.lanes)
	}
	n.Kind, n.Lines = "steps", append([]string{what}, n.Lines...)
	if run {
		n.Repeated, n.State, n.Untaken, n.Critical = true, c.state(), c.all(func(n *Node) bool { return n.Untaken }), !c.all(func(n *Node) bool { return !n.Critical })
	}
	return n
}

func (c *card) all(is func(*Node) bool) bool {
	return !slices.ContainsFunc(c.nodes, func(n *Node) bool { return !is(n) })
}

// state counts the steps of the card by status.
func (c *card) state() *State {
	s := &State{view.StepTally{Counts: map[string]int{}, Items: -1}}
	for _, n := range c.nodes {
		switch {
		case n.State != nil:
			status := n.State.Status()
			s.Counts[status]++
			s.Cost = s.Cost.Plus(n.State.Cost)
			if s.Code == "" && (status == "failed" || status == "timed_out") {
				s.Code, s.Message = n.State.Code, n.State.Message
			}
		case !n.Untaken:
			s.Counts["pending"]++
		}
	}
	return s
}
