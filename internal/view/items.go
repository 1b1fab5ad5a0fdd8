// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// Of a loop with many items, people are shown the first ones, and some of the others
// that did not complete. Programs get all.
const (
	firstItems = 20
	otherItems = 20
)

// ranks orders statuses by how important it is to show an item of that status.
var ranks = []string{"failed", "timed_out", "waiting", "blocked", "retrying", "running", "queued", "pending", "cancelled", "completed"}

func rank(status string) int {
	if i := slices.Index(ranks, status); i >= 0 {
		return i
	}
	return len(ranks) // skipped, invalidated: no information about the item
}

// An itemCount collects the items of a loop for a list of its steps. The status of an
// item is that of its most important step.
type itemCount struct {
	statuses map[int64]string
	total    int64 // items of the loop; 0 = not known
}

func (c *itemCount) add(n int64, status string) {
	if c.statuses == nil {
		c.statuses = map[int64]string{}
	}
	if old, known := c.statuses[n]; !known || rank(status) < rank(old) {
		c.statuses[n] = status
	}
}

// shown returns the items that are listed; nil = all. rest describes the others.
func (c *itemCount) shown() (items map[int64]bool, rest string) {
	if len(c.statuses) <= firstItems {
		return nil, ""
	}
	all := make([]int64, 0, len(c.statuses))
	for n := range c.statuses {
		all = append(all, n)
	}
	slices.Sort(all)
	items = map[int64]bool{}
	counts := map[string]int64{}
	others := 0
	for i, n := range all {
		status := c.statuses[n]
		usual := status == "completed" || rank(status) == len(ranks)
		switch {
		case i < firstItems:
			items[n] = true
		case !usual && others < otherItems:
			items[n] = true
			others++
		default:
			counts[status]++
		}
	}
	var parts []string
	for _, status := range append(slices.Clone(ranks), "skipped", "invalidated") {
		if counts[status] > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", grouped(counts[status]), status))
		}
	}
	more := max(c.total, int64(len(all))) - int64(len(items))
	if unknown := more - int64(len(all)-len(items)); unknown > 0 {
		parts = append(parts, grouped(unknown)+" not read")
	}
	if more == 0 {
		return nil, ""
	}
	what := "items"
	if more == 1 {
		what = "item"
	}
	return items, fmt.Sprintf("%s more %s: %s", grouped(more), what, strings.Join(parts, ", "))
}

// grouped formats a number with commas: 12,345.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Listed returns the steps that a list for people shows, in the order of the
// definition and of the items. Some items of a loop with many are left out; a step
// with only Path, Ref and Others then stands for them.
func (v *Run) Listed() []*Step {
	loops := map[journal.Ref]*itemCount{}
	var list []*Step
	for _, s := range v.Order {
		if v.ByPath[s.Path] != s || !s.keep {
			continue
		}
		list = append(list, s)
		for _, it := range journal.Iterations(v.Plan, s.Ref.Path) {
			c := loops[it.Loop]
			if c == nil {
				c = &itemCount{}
				if l := v.ByPath[journal.StepPath(v.Plan, it.Loop)]; l != nil {
					c.total = l.Items
				}
				loops[it.Loop] = c
			}
			c.add(it.N, s.Status)
		}
	}
	shown := map[journal.Ref]map[int64]bool{}
	for loop, c := range loops {
		items, rest := c.shown()
		if items == nil {
			continue
		}
		shown[loop] = items
		last := journal.Iteration{Loop: loop, N: 1 << 40} // sorts after every item
		list = append(list, &Step{
			Path:   journal.StepPath(v.Plan, loop) + "[…]",
			Ref:    journal.Ref{Path: last.Scope(v.Plan), Step: v.Plan.Graphs[v.Plan.Steps[loop.Step].Body].First},
			Others: rest,
		})
	}
	list = slices.DeleteFunc(list, func(s *Step) bool {
		return slices.ContainsFunc(journal.Iterations(v.Plan, s.Ref.Path), func(it journal.Iteration) bool {
			items := shown[it.Loop]
			return items != nil && !items[it.N] && it.N < 1<<40
		})
	})
	slices.SortStableFunc(list, func(a, b *Step) int { return journal.Compare(v.Plan, a.Ref, b.Ref) })
	return list
}

// Ordered returns the children of a span as people are shown them: in the order of the
// definition and of the items, and only some of many items. rest describes the others.
func (s *Span) Ordered(p *plan.Plan) (list []*Span, rest string) {
	list = slices.Clone(s.Children)
	slices.SortStableFunc(list, func(a, b *Span) int { return journal.Compare(p, a.Ref, b.Ref) })
	if p.Steps[s.Ref.Step].Kind != plan.Loop {
		return list, ""
	}
	c := itemCount{total: s.items}
	item := func(in *Span) (int64, bool) {
		all := journal.Iterations(p, in.Ref.Path)
		if len(all) == 0 || all[len(all)-1].Loop != s.Ref {
			return 0, false // it belongs to the loop's fallback or compensation
		}
		return all[len(all)-1].N, true
	}
	for _, in := range list {
		if n, ok := item(in); ok {
			c.add(n, in.Status)
		}
	}
	items, rest := c.shown()
	if items == nil {
		return list, ""
	}
	return slices.DeleteFunc(list, func(in *Span) bool {
		n, ok := item(in)
		return ok && !items[n]
	}), rest
}
