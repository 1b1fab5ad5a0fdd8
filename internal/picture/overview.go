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

// Overview is the picture of a large plan with less on it. What a step owns is left
// to its card; steps of which each follows only the one before are one card; and
// cards beside each other that do the same between the same neighbours are lanes, of
// which the first stands for all. In the picture of a run a card has the counts of
// all that it stands for.
func (p *Picture) Overview() *Picture {
	o := &overview{p: p, of: map[string]string{}}
	o.foldScopes()
	for n := -1; n != len(o.cards); {
		n = len(o.cards)
		o.foldChains()
		o.foldLanes()
	}
	return o.picture()
}

// overview folds the nodes of a picture. Each fold makes one card stand for others:
// of leads from a node to the card that stands for it.
type overview struct {
	p  *Picture
	of map[string]string

	cards  map[string]*card
	before map[string]map[string]bool // cards by card, as edges of order say
	after  map[string]map[string]bool
}

// A card is what is drawn for some nodes.
type card struct {
	nodes []*Node // the first gives it its name and place
	steps int     // of one lane, with what they own
	lanes int     // beside each other
	last  string  // what the last step of a chain is called
}

// card is the one that stands for a node or group now.
func (o *overview) card(id string) string {
	for id = strings.TrimSuffix(id, "/"); ; {
		next, ok := o.of[id]
		if !ok || next == id {
			return id
		}
		id = next
	}
}

// foldScopes lets the steps of the outermost graph stand for what they own.
func (o *overview) foldScopes() {
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
		o.of[n.ID] = owner
	}
	for i := range o.p.Groups {
		g := &o.p.Groups[i]
		top := g
		for groups[top.Group] != nil {
			top = groups[top.Group]
		}
		o.of[strings.TrimSuffix(g.ID, "/")] = strings.TrimSuffix(top.ID, "/")
	}
	for i := range o.p.Edges {
		from, to := o.card(o.p.Edges[i].From), o.card(o.p.Edges[i].To)
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

// ordered are the cards that are still drawn, in the order of the definition.
func (o *overview) ordered() []string {
	ids := slices.Collect(maps.Keys(o.cards))
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(o.cards[a].nodes[0].Order, o.cards[b].nodes[0].Order), cmp.Compare(a, b))
	})
	return ids
}

// foldChains joins each card with the one after it, while that follows only it.
func (o *overview) foldChains() {
	for _, first := range o.ordered() {
		c := o.cards[first]
		if c == nil || o.continues(first) {
			continue
		}
		for {
			next, ok := only(o.after[first])
			if !ok || len(o.before[next]) != 1 || next == first || c.lanes > 1 || o.cards[next].lanes > 1 {
				break // lanes stay a card of their own: they are what there is to see
			}
			d := o.cards[next]
			c.nodes, c.steps, c.last = append(c.nodes, d.nodes...), c.steps+d.steps, cmp.Or(d.last, d.nodes[0].Label)
			o.of[next] = first
			delete(o.cards, next)
			o.after[first] = o.after[next]
			for to := range o.after[first] {
				delete(o.before[to], next)
				link(o.before, to, first)
			}
		}
	}
}

// continues says that a card is the next of another one, which takes it up.
func (o *overview) continues(id string) bool {
	before, ok := only(o.before[id])
	return ok && len(o.after[before]) == 1 && o.cards[before].lanes == 1 && o.cards[id].lanes == 1
}

func only(set map[string]bool) (id string, ok bool) {
	for id = range set {
	}
	return id, len(set) == 1
}

// foldLanes lets one card stand for those that do the same between the same others.
func (o *overview) foldLanes() {
	first := map[string]string{}
	for _, id := range o.ordered() {
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
		o.of[id] = lane
		delete(o.cards, id)
		for from := range o.before[id] {
			delete(o.after[from], id)
		}
		for to := range o.after[id] {
			delete(o.before[to], id)
		}
	}
}

// picture draws what is left.
func (o *overview) picture() *Picture {
	out := &Picture{Name: o.p.Name, Run: o.p.Run, Imported: o.p.Imported}
	for _, id := range o.ordered() {
		out.Nodes = append(out.Nodes, o.cards[id].node(id, o.p.Run))
	}
	seen := map[string]int{}
	for i := range o.p.Edges {
		e := o.p.Edges[i]
		e.From, e.To = o.card(e.From), o.card(e.To)
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

// node is the card as a node.
func (c *card) node(id string, run bool) Node {
	n := *c.nodes[0]
	n.ID, n.Group = id, ""
	if len(c.nodes) == 1 {
		return n
	}
	if c.last != "" {
		n.Label = line(n.Label + " … " + c.last)
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
			s.Cost += n.State.Cost
			if s.Code == "" && (status == "failed" || status == "timed_out") {
				s.Code, s.Message = n.State.Code, n.State.Message
			}
		case !n.Untaken:
			s.Counts["pending"]++
		}
	}
	return s
}
