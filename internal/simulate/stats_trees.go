// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// numDialects is how many dialects there are.
const numDialects = 4

// Trees are counts of how runs were written, and of what trees of runs did.
type Trees struct {
	// Roots are root runs by the dialect of their recipe, and Below child runs by the way in which their
	// step names it, by the dialect of its text, and by that of their own.
	Roots [numDialects]int64
	Below [numWays][numDialects][numDialects]int64
	// Inherited are values that child runs inherited, by their context.
	Inherited [len(contextNames)]int64
	// Revisions are times at which newer versions of recipes and lenses were registered. Pinned are child runs of
	// roots from before that have started after it, where a newer version would be found by then, and PinnedLate
	// those of them before which the process has restarted. OldPrompts are prompts that were made after it, for
	// roots from before.
	Revisions, Pinned, PinnedLate, OldPrompts int64
	// Named are child runs whose recipe an expression names, and Texts those whose text a step has made. NamedLate
	// are those of both that were pinned before the process restarted. Found is how often a recipe was looked up
	// for an expression.
	Named, Texts, NamedLate, Found int64
	// Parents are attempts of runs that have had child runs.
	Parents int64
}

// A treeCount is one of the counts. Its name is made of a format and numbers of dialects, ways or contexts.
type treeCount struct {
	n    *int64
	name func() string
}

func (s *Trees) counts() (list []treeCount) {
	add := func(n *int64, name func() string) { list = append(list, treeCount{n: n, name: name}) }
	for d := range s.Roots {
		add(&s.Roots[d], func() string { return "root runs in " + dialectName(d) })
	}
	for of := range s.Inherited {
		add(&s.Inherited[of], func() string { return "values inherited of " + contextNames[of] })
	}
	for _, c := range []struct {
		n    *int64
		name string
	}{
		{&s.Revisions, "newer versions registered"}, {&s.Pinned, "child runs of an older version"},
		{&s.PinnedLate, "child runs of an older version after a restart"}, {&s.OldPrompts, "prompts of an older lens"},
		{&s.Named, "child runs that an expression names"}, {&s.Texts, "child runs whose text a step has made"},
		{&s.NamedLate, "child runs that were named before a restart"}, {&s.Found, "recipes found for expressions"},
		{&s.Parents, "attempts of runs with child runs"},
	} {
		add(c.n, func() string { return c.name })
	}
	for w := range s.Below {
		for up := range s.Below[w] {
			for d := range s.Below[w][up] {
				add(&s.Below[w][up][d], func() string {
					return fmt.Sprintf("child runs (%s) in %s below %s", Way(w), dialectName(d), dialectName(up))
				})
			}
		}
	}
	return list
}

func dialectName(d int) string {
	if d < len(dialects) {
		return dialects[d].Name
	}
	return "?"
}

// Add adds the counts of o.
func (s *Trees) Add(o *Trees) {
	to := s.counts()
	for i, from := range o.counts() {
		*to[i].n += *from.n
	}
}

// Missing are the names of the counts that are 0.
func (s *Trees) Missing() (names []string) {
	for _, c := range s.counts() {
		if *c.n == 0 {
			names = append(names, c.name())
		}
	}
	return names
}

// String lists the counts, those of child runs by dialects only as a sum and by their smallest.
func (s *Trees) String() string {
	var parts []string
	least, below := int64(-1), [numWays]int64{}
	for w := range s.Below {
		for up := range s.Below[w] {
			for _, n := range s.Below[w][up] {
				below[w] += n
				if least < 0 || n < least {
					least = n
				}
			}
		}
	}
	for _, c := range s.counts() {
		if name := c.name(); !strings.Contains(name, " below ") {
			parts = append(parts, fmt.Sprintf("%s %d", name, *c.n))
		}
	}
	for w, n := range below {
		parts = append(parts, fmt.Sprintf("child runs %s %d", Way(w), n))
	}
	return strings.Join(parts, ", ") + fmt.Sprintf("; of each pair of dialects at least %d", least)
}

// countRoot counts a root run.
func (c *checker) countRoot(t *runRecord) {
	sources := c.w.c.sources
	if t.tree.dialect = -1; sources == nil {
		return
	}
	if d, ok := sources.roots[t.prog.Plan().Key()]; ok {
		t.tree.dialect = d
		c.w.stats.Trees.Roots[d]++
	}
}

// countChild counts a child run. want is the key of the plan that it should execute; "" = it is not known.
func (c *checker) countChild(t, parent, root *runRecord, ref *plan.ChildRef, want string) {
	w := c.w
	if t.tree.dialect = -1; w.c.sources == nil {
		return
	}
	st := t.replica.Start()
	name := st.Recipe
	if ref.Registered() || ref.By == plan.ByName {
		name += "@" + st.Version
	}
	if from, ok := w.c.sources.origins[name]; ok {
		if t.tree.dialect = from.dialect; parent.tree.dialect >= 0 {
			w.stats.Trees.Below[from.way][parent.tree.dialect][from.dialect]++
		}
	}
	if w.registry.revised && !root.tree.asked.revised && want != "" && ref.Registered() {
		if now := w.c.Later.keyOf(root.tree.asked.plan, w.c, ref); now != "" && now != want {
			w.stats.Trees.Pinned++
			if root.bootEvent > 0 {
				w.stats.Trees.PinnedLate++
			}
		}
	}
}

// countNamed counts a child run whose recipe an expression has named or given. The start of the root has pinned r, or
// a later event.
func (c *checker) countNamed(root *runRecord, r *journal.TreeRecipe) {
	s := &c.w.stats.Trees
	if r.By == plan.ByText {
		s.Texts++
	} else {
		s.Named++
	}
	if root.bootEvent > 0 && root.tree.pinnedAt[r.Ref] <= root.bootEvent {
		s.NamedLate++
	}
}
