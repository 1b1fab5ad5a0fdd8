// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
)

// A linker compiles the registered recipes that a recipe runs, directly or through others.
//
// Recipes may run each other in a circle only if a step in it limits the depth: then the
// recursion ends (X61). So the recipes with the uses that set no such limit must be
// without a cycle (X71).
type linker struct {
	in    *includer
	diags []fault.Diagnostic
	path  []*unit
	trail []*use          // trail[k] leads from path[k] to path[k+1]
	level map[*unit]int64 // of visited units: levels of uses without a limit below; -1 while on path
	later []*unit         // used with a limit
	refs  map[plan.ChildRef]*unit
}

// link compiles the registered recipes and returns the problems. It fills in
// Plan.Registered of the root.
func (in *includer) link(root *unit) []fault.Diagnostic {
	l := &linker{in: in, level: map[*unit]int64{}, refs: map[plan.ChildRef]*unit{}, later: []*unit{root}}
	for len(l.later) > 0 {
		u := l.later[0]
		l.later = l.later[1:]
		if _, visited := l.level[u]; !visited {
			l.visit(u)
		}
	}
	l.checkDepth(root)
	if in.opt.Recipes != nil {
		for ref, u := range l.refs {
			root.p.Registered = append(root.p.Registered, plan.Registered{Ref: ref, Name: u.r.Name, Version: u.r.Version, Plan: u.p})
		}
		slices.SortFunc(root.p.Registered, func(a, b plan.Registered) int {
			return cmp.Or(strings.Compare(a.Ref.Name, b.Ref.Name), strings.Compare(a.Ref.Version, b.Ref.Version))
		})
	}
	return l.diags
}

func (l *linker) visit(u *unit) {
	l.level[u] = -1
	l.path = append(l.path, u)
	levels := int64(0)
	for k := range u.uses {
		s := &u.uses[k]
		if s.unit == nil || s.unit.r == nil {
			continue // not known, or reported where the text was read
		}
		if s.unit.state == parsed {
			l.in.compile(s.unit, 0)
		}
		if s.unit.p == nil {
			l.invalid(s)
			continue
		}
		if s.ref.Registered() {
			l.refs[s.ref] = s.unit
		}
		below, visited := l.level[s.unit]
		switch {
		case s.bounded:
			l.later = append(l.later, s.unit)
			continue
		case below < 0:
			l.report(s, fault.CircularDependency, "recipe-cycle",
				"recipes run each other in a circle: "+formatCycle(l.path[slices.Index(l.path, s.unit):]),
				`limit the recursion with "limits: {max_depth: 3}" on one of these steps, and end it with a condition`)
			continue
		case !visited:
			l.trail = append(l.trail, s)
			l.visit(s.unit)
			l.trail = l.trail[:len(l.trail)-1]
			below = l.level[s.unit]
		}
		levels = max(levels, below+1)
	}
	l.path = l.path[:len(l.path)-1]
	l.level[u] = levels
}

// checkDepth refuses a recipe whose child runs nest deeper than its limit.
func (l *linker) checkDepth(root *unit) {
	for k := range root.uses {
		s := &root.uses[k]
		if below, visited := l.level[s.unit]; visited && !s.bounded && below >= s.most {
			l.report(s, fault.DepthExceeded, "child-too-deep", fmt.Sprintf("child runs nest %d levels deep here; the limit is %d", below+1, s.most),
				`flatten the recipes, or raise "limits: {max_depth: …}" of the recipe`)
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
	if len(l.diags) >= recipe.MaxDiagnostics {
		return
	}
	l.diags = append(l.diags, fault.Diagnostic{Code: code, Rule: rule, Msg: msg, Hint: hint, Pos: s.pos, Pointer: s.ptr, Related: l.places()})
}
