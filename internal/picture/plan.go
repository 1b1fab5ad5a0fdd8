// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/plan"
)

// Of draws a plan. With bindings there is also an edge from every step to those
// that read what it made.
func Of(p *plan.Plan, name string, bindings bool) *Picture {
	b := &builder{p: p, pic: &Picture{Name: name}, path: make([]string, len(p.Steps))}
	b.graph(0, "", "", false)
	b.follows()
	if bindings {
		b.reads()
	}
	return b.pic
}

type builder struct {
	p    *plan.Plan
	pic  *Picture
	path []string // of each step
}

// frameOf is the id of the group that holds a step with the graphs it owns.
func frameOf(path string) string { return path + "/" }

// scopeOf is the id of a graph's group.
func scopeOf(p *plan.Plan, path string, g int32) string {
	switch gr := &p.Graphs[g]; gr.Role {
	case plan.Body:
		return path + "[]"
	case plan.Branch:
		return path + "[" + strconv.Itoa(int(gr.Ordinal)) + "]"
	default:
		return path + "." + gr.Role.String()
	}
}

// graph adds the steps of a graph to the group that stands for it.
func (b *builder) graph(g int32, group, prefix string, repeated bool) {
	gr := &b.p.Graphs[g]
	for i := gr.First; i < gr.First+gr.N; i++ {
		s := &b.p.Steps[i]
		path := prefix + s.ID
		b.path[i] = path
		inner := group
		owned := s.Graphs()
		if len(owned) > 0 {
			inner = frameOf(path)
			b.pic.Groups = append(b.pic.Groups, Group{ID: inner, Role: "step", Group: group, Order: int(i)})
		}
		b.pic.Nodes = append(b.pic.Nodes, Node{
			ID: path, Step: i, Kind: s.Kind.String(), Label: line(b.p.Label(i)), Lines: facts(b.p, s),
			Group: inner, Order: int(i), Repeated: repeated,
		})
		for n, g := range owned {
			id := scopeOf(b.p, path, g)
			role := b.p.Graphs[g].Role
			b.pic.Groups = append(b.pic.Groups, Group{ID: id, Title: scopeTitle(b.p, s, g), Role: role.String(), Group: inner, Order: int(i) + n + 1})
			b.pic.Edges = append(b.pic.Edges, Edge{ID: path + " > " + id, From: path, To: id, Kind: Opens, Label: role.String()})
			b.graph(g, id, id+".", repeated || role == plan.Body)
		}
	}
}

func scopeTitle(p *plan.Plan, s *plan.Step, g int32) string {
	switch gr := &p.Graphs[g]; gr.Role {
	case plan.Branch:
		return "branch " + strconv.Itoa(int(gr.Ordinal)+1)
	case plan.Body:
		if s.As != "" {
			return "each " + line(s.As)
		}
		return "each item"
	case plan.Fallback:
		return "fallback, when it fails"
	case plan.Compensation:
		return "compensation, undoes it"
	default:
		return gr.Role.String()
	}
}

// from is where edges of a step leave: the frame of one that has sides, branches or
// a body, since what comes after it waits for all of them. A fallback or compensation
// is no part of the usual way.
func (b *builder) from(step int32) string {
	switch b.p.Steps[step].Kind {
	case plan.Condition, plan.Parallel, plan.Loop:
		return frameOf(b.path[step])
	}
	return b.path[step]
}

// maxWalk bounds the search for paths that make an edge redundant.
const maxWalk = 4_096

// direct are the predecessors that no other predecessor waits for anyway: a step
// that comes after b, which comes after a, comes after a without a line for it.
func direct(p *plan.Plan, step int32) []int32 {
	preds := p.Steps[step].Preds
	if len(preds) < 2 {
		return preds
	}
	lowest := p.Steps[preds[0]].Wave
	for _, u := range preds {
		lowest = min(lowest, p.Steps[u].Wave)
	}
	implied := map[int32]bool{}
	queue := slices.Clone(preds)
	for i := 0; i < len(queue) && len(queue) < maxWalk; i++ {
		for _, u := range p.Steps[queue[i]].Preds {
			if !implied[u] && p.Steps[u].Wave >= lowest {
				implied[u] = true
				queue = append(queue, u)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(preds), func(u int32) bool { return implied[u] })
}

func (b *builder) follows() {
	for i := range b.p.Steps {
		for _, pred := range direct(b.p, int32(i)) {
			b.pic.Edges = append(b.pic.Edges, Edge{
				ID: b.path[pred] + " > " + b.path[i], From: b.from(pred), To: b.path[i], Kind: Follows,
			})
			b.others(pred, int32(i))
		}
	}
}

// others adds the ways on which a step follows another one that did not do what it
// usually does: a condition that was false and has no else, a step in whose place a
// fallback ran.
func (b *builder) others(pred, step int32) {
	s := &b.p.Steps[pred]
	if s.Kind == plan.Condition && s.Else == plan.None {
		b.pic.Edges = append(b.pic.Edges, Edge{
			ID: b.path[pred] + " else > " + b.path[step], From: b.path[pred], To: b.path[step], Kind: Passes, Label: "else",
		})
	}
	if s.Fallback != plan.None && b.from(pred) == b.path[pred] {
		from := scopeOf(b.p, b.path[pred], s.Fallback)
		b.pic.Edges = append(b.pic.Edges, Edge{ID: from + " > " + b.path[step], From: from, To: b.path[step], Kind: Rejoins})
	}
}

// reads adds the edges of data, except where an edge of order says it already.
func (b *builder) reads() {
	binders := map[[2]int32][]int32{}
	for i := range b.p.Steps {
		if s := &b.p.Steps[i]; s.Slot != plan.None {
			at := [2]int32{b.p.Graphs[s.Graph].Frame, s.Slot}
			binders[at] = append(binders[at], int32(i))
		}
	}
	seen := map[string]int{}
	for i := range b.pic.Edges {
		seen[b.pic.Edges[i].ID] = i
	}
	for i := range b.p.Steps {
		for _, v := range variables(&b.p.Steps[i]) {
			var sources []int32
			switch v.Kind {
			case plan.VarBinding:
				sources = binders[[2]int32{v.Graph, v.Index}]
			case plan.VarStep:
				sources = []int32{v.Index}
			}
			for _, src := range sources {
				b.read(src, int32(i), v, seen)
			}
		}
	}
}

func (b *builder) read(src, reader int32, v plan.Var, seen map[string]int) {
	if src == reader || b.owns(src, reader) || b.owns(reader, src) {
		return
	}
	id := b.path[src] + " > " + b.path[reader]
	name := v.Name
	if v.Member != "" {
		name = v.Member
	}
	if at, ok := seen[id]; ok {
		if e := &b.pic.Edges[at]; e.Label == "" {
			e.Label = line(name)
		}
		return
	}
	seen[id] = len(b.pic.Edges)
	b.pic.Edges = append(b.pic.Edges, Edge{ID: id, From: b.from(src), To: b.path[reader], Kind: Reads, Label: line(name)})
}

// owns says that inner lies in a graph of outer.
func (b *builder) owns(outer, inner int32) bool {
	for g := b.p.Steps[inner].Graph; g != 0; {
		o := b.p.Graphs[g].Owner
		if o == outer {
			return true
		}
		g = b.p.Steps[o].Graph
	}
	return false
}

// variables are all names that a step's expressions use.
func variables(s *plan.Step) []plan.Var {
	vars := append([]plan.Var(nil), s.ParamRef...)
	for _, e := range []*plan.Expr{s.When, s.Expr} {
		if e != nil {
			vars = append(vars, e.Vars...)
		}
	}
	for _, bind := range s.Bindings {
		vars = append(vars, bind.Expr.Vars...)
	}
	return vars
}

// facts say in a few lines what a step does, the most telling first.
func facts(p *plan.Plan, s *plan.Step) []string {
	lines := []string{does(p, s)}
	switch s.Kind {
	case plan.Condition:
		if s.Else == plan.None && len(s.Succs) == 0 {
			lines = append(lines, "else: goes on") // no step comes after it that an edge could lead to
		}
	case plan.Parallel:
		lines = append(lines, strategy[s.Strategy])
	case plan.Loop:
		lines = append(lines, atOnce(s.Concurrency)+strategy[s.Strategy])
	}
	if s.When != nil {
		lines = append(lines, "when "+line(s.When.Src))
	}
	var rules []string
	if s.Retry.Attempts > 1 {
		rules = append(rules, fmt.Sprintf("up to %d tries", s.Retry.Attempts))
	}
	if s.OnError == plan.OnErrorSkip {
		rules = append(rules, "skipped when it fails")
	}
	if s.ContinueOnError {
		rules = append(rules, "the run goes on when it fails")
	}
	switch s.ParentFailure {
	case plan.SkipOnParent:
		rules = append(rules, "skipped when a parent fails")
	case plan.SubstituteDefault:
		rules = append(rules, "runs when a parent fails")
	}
	if len(rules) > 0 {
		lines = append(lines, strings.Join(rules, ", "))
	}
	return lines
}

func does(p *plan.Plan, s *plan.Step) string {
	switch s.Kind {
	case plan.Action:
		a := p.Actions[s.Action]
		if a.Version != "" {
			return line(a.Name + "@" + a.Version)
		}
		return line(a.Name)
	case plan.Parallel:
		return "wait for " + waitFor[s.WaitFor]
	case plan.Loop:
		return "×N over " + source(s.Expr)
	case plan.Wait:
		return waits(s)
	case plan.Fail:
		return strings.TrimSuffix(line(s.Code)+": "+source(s.Expr), ": ")
	}
	return source(s.Expr)
}

var (
	waitFor  = [...]string{plan.WaitAll: "all", plan.WaitAny: "any", plan.WaitFirstSuccess: "the first success"}
	strategy = [...]string{plan.FailFast: "fail fast", plan.Continue: "continue on failure", plan.Ignore: "ignore failures"}
)

func source(e *plan.Expr) string {
	if e == nil {
		return ""
	}
	return line(e.Src)
}

func atOnce(n int32) string {
	if n <= 1 {
		return ""
	}
	return fmt.Sprintf("%d at once, ", n)
}

func waits(s *plan.Step) string {
	switch {
	case s.Signal != "" && s.SignalMS > 0:
		return fmt.Sprintf("for signal %s, at most %s", line(s.Signal), took(s.SignalMS*1000))
	case s.Signal != "":
		return "for signal " + line(s.Signal)
	case s.Expr != nil:
		return "until " + source(s.Expr)
	}
	return took(s.DurationMS * 1000)
}

// took is a duration in µs as people read it.
func took(micros int64) string {
	switch d := time.Duration(micros) * time.Microsecond; {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(0, d.Milliseconds()))
	case d < time.Minute:
		return strings.Replace(fmt.Sprintf("%.1f s", d.Seconds()), ".0 s", " s", 1)
	case d < time.Hour:
		return strings.Replace(fmt.Sprintf("%d m %02d s", int(d.Minutes()), int(d.Seconds())%60), " 00 s", "", 1)
	case d < 48*time.Hour:
		return strings.Replace(fmt.Sprintf("%d h %02d m", int(d.Hours()), int(d.Minutes())%60), " 00 m", "", 1)
	default:
		return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
	}
}
