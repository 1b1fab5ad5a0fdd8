// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/plan"
)

// An edge means that a step waits for another one of the same graph. It has the place
// in the recipe that it comes from.
type edge struct {
	from, to int32
	at       location
	why      string // "" = its dependencies name it
}

// waitFor adds an edge: step `to` waits for `from` because an expression names it.
func (c *compiler) waitFor(from, to int32, at location) {
	c.addEdge(edge{from, to, at, "its expression names it"})
}

func (c *compiler) addEdge(e edge) {
	key := [2]int32{e.from, e.to}
	if _, ok := c.edgeIndex[key]; !ok {
		c.edgeIndex[key] = len(c.edges)
		c.edges = append(c.edges, e)
	}
}

// ordered reports whether the steps of a graph run one after the other by default. A
// parallel branch is always a sequence (X46).
func (c *compiler) ordered(g int32) bool {
	return c.r.Order != "none" || c.p.Graphs[g].Role == plan.Branch
}

// follows reports whether b, which is below a, runs after it just because of the order
// of the definition.
func (c *compiler) follows(b, a int32) bool {
	if !c.ordered(c.p.Steps[b].Graph) {
		return false
	}
	for i := b; i > a; i-- {
		if c.nodes[i].src.DependsOn != nil {
			return false
		}
	}
	return true
}

// order links the steps of every graph, refuses cycles (X70) and counts waves.
func (c *compiler) order() {
	for i := range c.nodes {
		c.addWrittenEdges(int32(i))
	}
	for _, e := range c.edges {
		st := &c.p.Steps[e.to]
		st.Preds = append(st.Preds, e.from)
	}
	for i := range c.p.Steps {
		st := &c.p.Steps[i]
		slices.Sort(st.Preds)
		for _, p := range st.Preds {
			c.p.Steps[p].Succs = append(c.p.Steps[p].Succs, int32(i))
		}
	}
	left := make([]int32, len(c.p.Steps))
	for g := range c.p.Graphs {
		c.topologicalSort(int32(g), left)
	}
}

// addWrittenEdges adds the edges that the definition states: dependsOn, else the order
// of the steps.
func (c *compiler) addWrittenEdges(i int32) {
	n, g := &c.nodes[i], c.p.Steps[i].Graph
	if n.src.DependsOn == nil {
		if i > c.p.Graphs[g].First && c.ordered(g) {
			c.addEdge(edge{i - 1, i, c.valueAt(n.ptr), "it comes next in the list"})
		}
		return
	}
	for k, id := range *n.src.DependsOn {
		at := c.valueAt(n.ptr + "/dependsOn/" + strconv.Itoa(k))
		on, ok := c.byID[id]
		switch {
		case !ok:
			if c.full(fault.SeverityError) {
				return
			}
			siblings := c.siblings(i)
			hint := didYouMean(id, siblings)
			switch {
			case hint != "":
			case len(siblings) == 0:
				hint = "no other step is in this scope"
			default:
				hint = available(siblings)
			}
			c.fail(fault.RecipeInvalid, "unknown-step", at, fmt.Sprintf("no step has the id %q", id), hint)
		case c.p.Steps[on].Graph != g:
			c.fail(fault.RecipeInvalid, "other-scope", at,
				fmt.Sprintf("%q is in %s; %s may have only steps beside this one, in %s", id, c.scopeName(c.p.Steps[on].Graph), c.depends(i), c.scopeName(g)),
				"put "+c.depends(i)+" on the step that contains this one", c.place(c.valueAt(c.nodes[on].ptr), "the step"))
		default:
			c.addEdge(edge{on, i, at, ""})
		}
	}
}

func (c *compiler) siblings(i int32) []string {
	gr := &c.p.Graphs[c.p.Steps[i].Graph]
	var ids []string
	for k := gr.First; k < gr.First+gr.N; k++ {
		if k != i {
			ids = append(ids, c.p.Steps[k].ID)
		}
	}
	return ids
}

// topologicalSort is Kahn's algorithm. Steps that it cannot reach are in a cycle or wait
// for one: it reports the cycle, removes it and continues until no cycle is left.
func (c *compiler) topologicalSort(g int32, left []int32) {
	gr := &c.p.Graphs[g]
	done, waves := int32(0), int32(0)
	queue := make([]int32, 0, gr.N)
	for i := gr.First; i < gr.First+gr.N; i++ {
		if left[i] = int32(len(c.p.Steps[i].Preds)); left[i] == 0 {
			queue = append(queue, i)
		}
	}
	next := gr.First
	for done < gr.N {
		for len(queue) > 0 {
			i := queue[0]
			queue = queue[1:]
			done++
			left[i] = -1
			st := &c.p.Steps[i]
			waves = max(waves, st.Wave+1)
			for _, s := range st.Succs {
				if left[s] < 0 {
					continue // removed with its cycle
				}
				c.p.Steps[s].Wave = max(c.p.Steps[s].Wave, st.Wave+1)
				if left[s]--; left[s] == 0 {
					queue = append(queue, s)
				}
			}
		}
		if done == gr.N {
			break
		}
		c.cyclic[g] = true
		for left[next] < 0 {
			next++
		}
		for _, i := range c.reportCycle(next, left) {
			left[i] = 0
			queue = append(queue, i)
		}
	}
	gr.Waves = waves
}

// reportCycle finds, reports and returns a short cycle, starting from step i, which is in
// one or waits for one.
func (c *compiler) reportCycle(i int32, left []int32) []int32 {
	path := c.shortestCycle(c.anyCycle(i, left), left)
	// The message begins with the first step of the cycle, however it was found.
	k := slices.Index(path, slices.Min(path))
	path = slices.Concat(path[k:], path[:k])
	var msg strings.Builder
	var related []fault.Place
	fmt.Fprintf(&msg, "step %q waits for ", c.p.Steps[path[0]].ID)
	for k, step := range path {
		on := path[(k+1)%len(path)]
		e := c.edges[c.edgeIndex[[2]int32{on, step}]]
		switch {
		case k == maxNamed && len(path) > maxNamed+2:
			fmt.Fprintf(&msg, "%d more steps, the last of which waits for ", len(path)-maxNamed)
		case k > maxNamed && len(path) > maxNamed+2:
		case k > 0:
			fmt.Fprintf(&msg, "%q, which waits for ", c.p.Steps[step].ID)
			related = append(related, c.place(e.at, fmt.Sprintf("%q waits for %q: %s", c.p.Steps[step].ID, c.p.Steps[on].ID, cmp.Or(e.why, "named in its "+c.depends(step)))))
		}
	}
	fmt.Fprintf(&msg, "%q", c.p.Steps[path[0]].ID)
	text := msg.String()
	if len(path) == 1 {
		text = fmt.Sprintf("step %q waits for itself", c.p.Steps[path[0]].ID)
	}
	first := c.edges[c.edgeIndex[[2]int32{path[(1)%len(path)], path[0]}]]
	c.fail(fault.CircularDependency, "cycle", first.at, text, "remove one of these dependencies", related...)
	return path
}

// maxNamed is how many steps of a cycle a message names.
const maxNamed = 8

// anyCycle walks from step i to steps it waits for until it meets a step again.
func (c *compiler) anyCycle(i int32, left []int32) []int32 {
	at := map[int32]int{}
	var path []int32
	for {
		if first, ok := at[i]; ok {
			return path[first:]
		}
		at[i] = len(path)
		path = append(path, i)
		for _, p := range c.p.Steps[i].Preds {
			if left[p] > 0 {
				i = p
				break
			}
		}
	}
}

// shortestCycle returns the shortest cycle through a step of path, which is itself a
// cycle. The search is bounded, because in a large graph any short cycle is good enough.
func (c *compiler) shortestCycle(path, left []int32) []int32 {
	const maxSearched = 100_000
	searched := 0
	for _, from := range path {
		before := map[int32]int32{}
		queue := []int32{from}
		for len(queue) > 0 && searched < maxSearched {
			step := queue[0]
			queue = queue[1:]
			for _, p := range c.p.Steps[step].Preds {
				searched++
				if p == from {
					found := []int32{step}
					for step != from {
						step = before[step]
						found = append(found, step)
					}
					slices.Reverse(found)
					if len(found) < len(path) {
						path = found
					}
					queue = nil
					break
				}
				if _, seen := before[p]; !seen && left[p] > 0 {
					before[p] = step
					queue = append(queue, p)
				}
			}
		}
	}
	return path
}
