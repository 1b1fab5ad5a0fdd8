// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/plan"
)

// A linker compiles the registered recipes that a recipe runs, directly or through others.
//
// Recipes may run each other in a circle only if a step in it limits the depth: then the
// recursion ends (X61). So the recipes with the uses that set no such limit must be
// without a cycle (X71).
type linker struct {
	in      *includer
	diags   []fault.Diagnostic
	path    []*unit
	trail   []*use         // trail[k] leads from path[k] to path[k+1]
	onPath  map[*unit]bool // of visited units
	visited []*unit        // in the order of their visits
	later   []*unit        // used with a limit
	cyclic  bool           // some recipes run each other without end
	refs    map[plan.ChildRef]*unit
}

// link compiles the registered recipes and returns the problems. It fills in
// Plan.Registered of the root.
func (in *includer) link(root *unit) []fault.Diagnostic {
	l := &linker{in: in, onPath: map[*unit]bool{}, refs: map[plan.ChildRef]*unit{}, later: []*unit{root}}
	for len(l.later) > 0 {
		u := l.later[0]
		l.later = l.later[1:]
		if _, visited := l.onPath[u]; !visited {
			l.visit(u)
		}
	}
	if !l.cyclic {
		l.checkDepth(root)
	}
	for ref, u := range l.refs { // without Options.Recipes only the text itself
		root.p.Registered = append(root.p.Registered, plan.Registered{Ref: ref, Name: u.r.Name, Version: u.r.Version, Plan: u.p})
	}
	list := root.p.Registered
	sort.Slice(list, func(i, k int) bool { // an instance of slices.SortFunc takes 15 KB of a small binary
		return cmp.Or(strings.Compare(list[i].Ref.Name, list[k].Ref.Name), strings.Compare(list[i].Ref.Version, list[k].Ref.Version)) < 0
	})
	return l.diags
}

func (l *linker) visit(u *unit) {
	l.onPath[u] = true
	l.visited = append(l.visited, u)
	l.path = append(l.path, u)
	for k := range u.uses {
		s := &u.uses[k]
		if s.unit == nil || s.unit.r == nil {
			continue // not known, or reported where the text was read
		}
		if s.unit.state == parsed {
			l.in.compile(s.unit)
		}
		if s.unit.p == nil {
			l.invalid(s)
			continue
		}
		if s.ref.Registered() {
			l.refs[s.ref] = s.unit
		}
		onPath, visited := l.onPath[s.unit]
		switch {
		case s.depth > 0:
			l.later = append(l.later, s.unit)
		case onPath:
			l.cyclic = true
			l.report(s, fault.CircularDependency, "recipe-cycle",
				"recipes run each other in a circle: "+formatCycle(l.path[slices.Index(l.path, s.unit):]),
				`limit the recursion with "limits: {max_depth: 3}" on one of these steps, and end it with a condition`)
		case !visited:
			l.trail = append(l.trail, s)
			l.visit(s.unit)
			l.trail = l.trail[:len(l.trail)-1]
		}
	}
	l.path = l.path[:len(l.path)-1]
	l.onPath[u] = false
}

// A position is a recipe in the tree of runs below the root run. limited says that a step
// on the way there limits the depth. Registered recipes below such a step may be the
// recursion that it ends, so they are not followed.
type position struct {
	unit    *unit
	limited bool
}

// below returns where a step of the recipe leads, if it is followed.
func (p position) below(s *use) (position, bool) {
	switch {
	case s.unit == nil || s.unit.p == nil:
		return position{}, false
	case s.ref.Registered():
		return position{unit: s.unit}, !p.limited && s.depth == 0
	}
	return position{s.unit, p.limited || s.depth > 0}, true
}

// depths are what the limits of the depth are compared with. The longest ways decide: a
// limit that they respect is respected on every way, so the cost is linear in the number
// of steps, however many ways there are.
type depths struct {
	levels map[position]int64 // how deep child runs nest below it
	order  []position         // each after those that it leads to
	at     map[position]int64 // how deep it stands at most
	by     map[position]*use  // the last step of the way on which it stands so deep
	from   map[position]position
}

// nest determines how deep child runs nest below a position.
func (d *depths) nest(p position) int64 {
	if n, done := d.levels[p]; done {
		return n
	}
	levels := int64(0)
	for k := range p.unit.uses {
		if next, ok := p.below(&p.unit.uses[k]); ok {
			levels = max(levels, d.nest(next)+1)
		}
	}
	d.levels[p] = levels
	d.order = append(d.order, p)
	return levels
}

// stand determines how deep each position stands below the root.
func (d *depths) stand(root position) {
	d.at[root] = 0
	for _, p := range slices.Backward(d.order) {
		depth, reached := d.at[p]
		for k := range p.unit.uses {
			s := &p.unit.uses[k]
			if next, ok := p.below(s); ok && reached && depth >= d.at[next] {
				d.at[next], d.by[next], d.from[next] = depth+1, s, p
			}
		}
	}
}

// chain returns the recipes from p on the longest way down that begins with the step s.
func (d *depths) chain(p position, s *use) (units []*unit) {
	units = append(units, p.unit)
	for s != nil {
		next, _ := p.below(s)
		units = append(units, next.unit)
		p, s = next, nil
		for k := range p.unit.uses {
			if next, ok := p.below(&p.unit.uses[k]); ok && d.levels[next]+1 == d.levels[p] {
				s = &p.unit.uses[k]
				break
			}
		}
	}
	return units
}

// checkDepth refuses child runs that nest deeper than a limit allows: that of the root,
// that of another recipe, which counts from its run, or that of a step. The problem is
// reported at the step that has the limit, or at each step of the recipe that has it.
func (l *linker) checkDepth(root *unit) {
	d := &depths{levels: map[position]int64{}, at: map[position]int64{}, by: map[position]*use{}, from: map[position]position{}}
	for _, u := range l.visited { // the root is the first
		d.nest(position{unit: u})
	}
	d.stand(position{unit: root})
	told := map[*use]bool{}
	for _, p := range slices.Backward(d.order) {
		own := p.unit.p.Limits.ChildDepth
		if p.unit == root {
			own = root.depth
		}
		depth, reached := d.at[p]
		for k := range p.unit.uses {
			s := &p.unit.uses[k]
			next, ok := p.below(s)
			if !ok || told[s] {
				continue
			}
			levels, most, whose := d.levels[next]+1, own, "recipe"
			if own == 0 || levels <= own {
				if s.depth == 0 || !reached || depth+levels <= s.depth {
					continue
				}
				levels, most, whose = depth+levels, s.depth, "step"
			}
			told[s] = true
			chain := d.chain(p, s)
			l.trail = l.trail[:0]
			for at := p; d.by[at] != nil; at = d.from[at] {
				l.trail = slices.Insert(l.trail, 0, d.by[at])
				if whose == "step" { // its limit counts from the root
					chain = slices.Insert(chain, 0, d.from[at].unit)
				}
			}
			l.report(s, fault.DepthExceeded, "child-too-deep",
				fmt.Sprintf("Maximum nesting depth (%d) exceeded: child runs nest %d levels deep here (%s)", most, levels, formatChain(chain)),
				fmt.Sprintf(`flatten the recipes, or raise "limits: {max_depth: …}" of the %s (at most %d)`, whose, l.in.opt.Limits.orDefault().Max.ChildDepth))
		}
	}
}

// invalid reports that a registered recipe does not compile, and why.
func (l *linker) invalid(s *use) {
	code, msg := s.unit.invalid()
	l.report(s, code, invalidRecipe, msg, "")
	l.diags = append(l.diags, s.unit.tell(append([]fault.Place{s.place()}, l.places()...)...)...)
}

func (s *use) place() fault.Place {
	return fault.Place{Pos: s.pos, Msg: fmt.Sprintf("%q runs it", s.step)}
}

// places returns the steps that led here, the innermost first.
func (l *linker) places() (list []fault.Place) {
	for _, s := range slices.Backward(l.trail) {
		list = append(list, s.place())
	}
	return list
}

func (l *linker) report(s *use, code fault.Code, rule, msg, hint string) {
	if len(l.diags) >= form.MaxDiagnostics {
		return
	}
	l.diags = append(l.diags, fault.Diagnostic{Code: code, Rule: rule, Msg: msg, Hint: hint, Pos: s.pos, Pointer: s.ptr, Related: l.places()})
}
