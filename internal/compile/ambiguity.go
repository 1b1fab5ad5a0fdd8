// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/plan"
)

// A slotReader is a step that reads a slot. by is the step of the same graph that set the
// slot before, or None when it was set in a scope further out. With None, all binders of
// this graph must run after the reader.
type slotReader struct {
	step, by int32
	at       location
}

// checkAmbiguity refuses recipes whose result would depend on which of two steps is
// faster: all steps of a graph that bind a name must run one after the other, and its
// readers must run before the next step sets it again.
func (c *compiler) checkAmbiguity() {
	keys := make([]graphSlot, 0)
	for key, steps := range c.binders {
		if (len(steps) > 1 || len(c.readers[key]) > 0) && !c.cyclic[key.graph] {
			keys = append(keys, key)
		}
	}
	heap.Sort(keys, func(a, b graphSlot) int {
		return cmp.Or(cmp.Compare(a.graph, b.graph), cmp.Compare(a.slot, b.slot))
	})
	mark := make([]int32, len(c.p.Steps))
	stamp := int32(0)
	for _, key := range keys {
		chain := slices.Clone(c.binders[key])
		slices.SortStableFunc(chain, func(a, b int32) int { return cmp.Compare(c.p.Steps[a].Wave, c.p.Steps[b].Wave) })
		place := make(map[int32]int, len(chain))
		for k, i := range chain {
			place[i] = k
		}
		readers := make([][]slotReader, len(chain)+1) // by the position of the binder in chain, from 1
		for _, r := range c.readers[key] {
			k := 0
			if r.by != plan.None {
				k = place[r.by] + 1
			}
			readers[k] = append(readers[k], r)
		}
		for k := range chain {
			from := plan.None
			if k > 0 {
				from = chain[k-1]
			} else if len(readers[0]) == 0 {
				continue
			}
			stamp++
			if !c.checkInterval(key, from, chain[k], readers[k], mark, stamp) {
				break // one diagnostic per name is enough
			}
		}
	}
}

// checkInterval checks that `from` and the readers of what it set run before `to`. It
// walks back from `to` no further than the wave of `from`, so that a whole chain costs
// no more than its graph.
func (c *compiler) checkInterval(key graphSlot, from, to int32, readers []slotReader, mark []int32, stamp int32) bool {
	floor := int32(0)
	if from != plan.None {
		floor = c.p.Steps[from].Wave
	}
	stack := []int32{to}
	mark[to] = stamp
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, p := range c.p.Steps[i].Preds {
			if mark[p] != stamp && c.p.Steps[p].Wave >= floor {
				mark[p] = stamp
				stack = append(stack, p)
			}
		}
	}
	f := c.frameOf(key.graph)
	name := c.frames[f].names[key.slot]
	second := c.binderWithin(to, f, key.slot)
	if from != plan.None && mark[from] != stamp {
		first := c.binderWithin(from, f, key.slot)
		if first > second {
			first, second = second, first
		}
		c.fail(fault.RecipeInvalid, "binding-twice", c.valueAt(c.nodes[second].bindPtr),
			fmt.Sprintf("%q is bound by %q and by %q, which may run at the same time", name, c.p.Steps[first].ID, c.p.Steps[second].ID),
			"give each a name of its own, or order them with "+c.depends(second),
			c.place(c.valueAt(c.nodes[first].bindPtr), "bound here too"))
		return false
	}
	for _, r := range readers {
		if mark[r.step] != stamp {
			c.fail(fault.RecipeInvalid, "binding-race", r.at,
				fmt.Sprintf("%q may be bound again by %q before or after this is read", name, c.p.Steps[second].ID),
				"order the two steps with "+c.depends(second), c.place(c.valueAt(c.nodes[second].bindPtr), "bound again here"))
			return false
		}
	}
	return true
}
