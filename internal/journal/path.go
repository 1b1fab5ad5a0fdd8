// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"cmp"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/plan"
)

// A Path is the binary name of a scope, a running instance of a graph: for each level
// below the root, uvarint(graph) uvarint(ordinal), outermost first. The root's path is
// empty. Ordinal is the item index of a loop body, 0 elsewhere.
type Path string

// A Ref names a step instance: a step of the plan in a scope.
type Ref struct {
	Path Path
	Step int32 // plan-wide index; -1 = the run itself
}

// Compare orders references by path, then by step.
func (r Ref) Compare(other Ref) int {
	return cmp.Or(cmp.Compare(r.Path, other.Path), cmp.Compare(r.Step, other.Step))
}

// A Fence names an attempt of a step instance. Only a result with the current fence is
// admitted.
type Fence struct {
	Gen     uint32 // generation of the run, from 1
	Attempt uint32 // dispatches of this step instance in all generations, from 1
}

// Child is the path of a scope below p: of that graph, for the item of that ordinal.
func (p Path) Child(graph int32, ordinal int64) Path {
	var buf [64]byte
	b := append(buf[:0], p...)
	b = binary.AppendUvarint(b, uint64(graph))
	b = binary.AppendUvarint(b, uint64(ordinal))
	return Path(b)
}

// A Level is one element of a Path.
type Level struct {
	Graph   int32
	Ordinal int64
}

// Levels decodes p for a plan and appends the levels to buf; ok is false when p names
// no scope of the plan.
func (p Path) Levels(pl *plan.Plan, buf []Level) (_ []Level, ok bool) {
	b := []byte(p)
	for len(b) > 0 {
		g, n := binary.Uvarint(b)
		if n <= 0 || g == 0 || g >= uint64(len(pl.Graphs)) {
			return nil, false
		}
		o, m := binary.Uvarint(b[n:])
		if m <= 0 || o > 1<<40 {
			return nil, false
		}
		b = b[n+m:]
		buf = append(buf, Level{int32(g), int64(o)})
	}
	return buf, true
}

// Owner is the step instance that owns the scope of path: the loop of an iteration,
// the condition of a side. ok is false for the root scope and for a path that names no
// scope of the plan.
func Owner(p *plan.Plan, path Path) (owner Ref, ok bool) {
	var buf [8]Level
	levels, ok := path.Levels(p, buf[:0])
	if !ok || len(levels) == 0 {
		return Ref{Step: -1}, false
	}
	above := Path("")
	for _, l := range levels[:len(levels)-1] {
		above = above.Child(l.Graph, l.Ordinal)
	}
	return Ref{Path: above, Step: p.Graphs[levels[len(levels)-1].Graph].Owner}, true
}

// StepPath formats a step instance for people: a step of the root scope as its id, an
// iteration as loop[3].resize, a branch as par[0].resize, a side of a condition as
// check.then.convert, a fallback as charge.fallback.backup. It is "" for the run
// itself.
func StepPath(p *plan.Plan, ref Ref) string {
	if ref.Step < 0 || int(ref.Step) >= len(p.Steps) {
		return ""
	}
	if ref.Path == "" {
		return p.Steps[ref.Step].ID
	}
	return ScopePath(p, ref.Path) + "." + p.Steps[ref.Step].ID
}

// ScopePath formats a scope for people; "" is the root.
func ScopePath(p *plan.Plan, path Path) string {
	var buf [8]Level
	levels, ok := path.Levels(p, buf[:0])
	if !ok {
		return "?"
	}
	var b strings.Builder
	for i, l := range levels {
		g := &p.Graphs[l.Graph]
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(p.Steps[g.Owner].ID)
		switch g.Role {
		case plan.Body:
			b.WriteString("[" + strconv.FormatInt(l.Ordinal, 10) + "]")
		case plan.Branch:
			b.WriteString("[" + strconv.Itoa(int(g.Ordinal)) + "]")
		default:
			b.WriteString("." + g.Role.String())
		}
	}
	return b.String()
}

// ParseRef reads what StepPath wrote.
func ParseRef(p *plan.Plan, s string) (Ref, error) {
	elems := strings.Split(s, ".")
	ref := Ref{Step: -1}
	graph := int32(0)
	for i := 0; i < len(elems); i++ {
		id, ordinal, indexed := cutIndex(elems[i])
		step := findStep(p, graph, id)
		if step < 0 {
			return ref, noSuchStep(p, s)
		}
		if i == len(elems)-1 && !indexed {
			ref.Step = step
			return ref, nil
		}
		st := &p.Steps[step]
		next := plan.None
		switch {
		case indexed && st.Kind == plan.Loop:
			next = st.Body
		case indexed && st.Kind == plan.Parallel && ordinal < int64(len(st.Branches)):
			next, ordinal = st.Branches[ordinal], 0
		case !indexed && i+1 < len(elems):
			i++
			switch elems[i] {
			case "then":
				next = st.Then
			case "else":
				next = st.Else
			case "fallback":
				next = st.Fallback
			case "compensation":
				next = st.Compensate
			}
		}
		if next == plan.None {
			return ref, noSuchStep(p, s)
		}
		ref.Path = ref.Path.Child(next, ordinal)
		graph = next
	}
	return ref, noSuchStep(p, s)
}

func noSuchStep(p *plan.Plan, s string) error {
	ids := make([]string, 0, 8)
	g := &p.Graphs[0]
	for i := g.First; i < g.First+g.N && len(ids) < 8; i++ {
		ids = append(ids, p.Steps[i].ID)
	}
	return fault.New(fault.StepNotFound, "no step %q in this run; its first steps are %s", s, strings.Join(ids, ", "))
}

// cutIndex splits "loop[3]".
func cutIndex(s string) (id string, n int64, indexed bool) {
	open := strings.IndexByte(s, '[')
	if open < 0 || !strings.HasSuffix(s, "]") {
		return s, 0, false
	}
	n, err := strconv.ParseInt(s[open+1:len(s)-1], 10, 64)
	if err != nil || n < 0 {
		return s, 0, false
	}
	return s[:open], n, true
}

func findStep(p *plan.Plan, graph int32, id string) int32 {
	g := &p.Graphs[graph]
	for i := g.First; i < g.First+g.N; i++ {
		if p.Steps[i].ID == id {
			return i
		}
	}
	return -1
}

// Compare orders step instances as in the definition: a step comes before the steps it
// owns, iterations are ordered by index, and branches by number.
func Compare(p *plan.Plan, a, b Ref) int {
	var x, y [8]Level
	one, _ := a.Path.Levels(p, x[:0])
	two, _ := b.Path.Levels(p, y[:0])
	for i := range max(len(one), len(two)) {
		s, t := ownerAt(p, a, one, i), ownerAt(p, b, two, i)
		switch {
		case s != t:
			return cmp.Compare(s, t)
		case i >= len(one) || i >= len(two): // one of them owns the other
			return cmp.Compare(len(one), len(two))
		case one[i] != two[i]:
			return cmp.Or(cmp.Compare(one[i].Graph, two[i].Graph), cmp.Compare(one[i].Ordinal, two[i].Ordinal))
		}
	}
	return cmp.Compare(a.Step, b.Step)
}

// ownerAt is the step that contains ref in the scope of level i, or ref's own step.
func ownerAt(p *plan.Plan, ref Ref, levels []Level, i int) int32 {
	if i < len(levels) {
		return p.Graphs[levels[i].Graph].Owner
	}
	return ref.Step
}

// An Iteration is one item of a loop.
type Iteration struct {
	Loop Ref
	N    int64 // from 0
}

// Iterations are the iterations that path goes through, the outermost first.
func Iterations(p *plan.Plan, path Path) (list []Iteration) {
	var buf [8]Level
	levels, ok := path.Levels(p, buf[:0])
	if !ok {
		return nil
	}
	above := Path("")
	for _, l := range levels {
		if g := &p.Graphs[l.Graph]; g.Role == plan.Body {
			list = append(list, Iteration{Ref{Path: above, Step: g.Owner}, l.Ordinal})
		}
		above = above.Child(l.Graph, l.Ordinal)
	}
	return list
}

// Scope is the scope in which the iteration's steps run.
func (i Iteration) Scope(p *plan.Plan) Path {
	return i.Loop.Path.Child(p.Steps[i.Loop.Step].Body, i.N)
}
