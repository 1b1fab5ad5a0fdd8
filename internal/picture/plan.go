// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

// FromPlan returns the picture of a plan. With bindings there is also an edge
// from every step to those that read its output.
func FromPlan(p *plan.Plan, name string, bindings bool) *Picture {
	b := &builder{p: p, pic: &Picture{Name: name}, path: make([]string, len(p.Steps))}
	b.graph(0, "", "", false)
	b.orderEdges()
	if bindings {
		b.dataEdges()
	}
	return b.pic
}

type builder struct {
	p    *plan.Plan
	pic  *Picture
	path []string // of each step
}

// frameOf is the ID of the group that holds a step and the graphs it owns.
func frameOf(path string) string { return path + "/" }

// scopeOf is the ID of the group of a graph.
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

// graph adds the steps of a graph to its group.
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
			ID: path, Step: i, Kind: s.Kind.String(), Label: oneLine(b.p.Label(i)), Lines: facts(b.p, s),
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
			return "each " + oneLine(s.As)
		}
		if s.Conditional() {
			return "each iteration"
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

// edgeSource is where the edges of a step start: at the frame of a step that
// has sides, branches or a body, because its successors wait for all of them. A
// fallback or compensation is not on the normal path.
func (b *builder) edgeSource(step int32) string {
	switch b.p.Steps[step].Kind {
	case plan.Condition, plan.Parallel, plan.Loop:
		return frameOf(b.path[step])
	}
	return b.path[step]
}

// maxWalk limits the search for paths that make an edge redundant.
const maxWalk = 4_096

// directPreds returns the predecessors that are not implied by others
// (transitive reduction): a step after b, which is after a, needs no edge from
// a.
func directPreds(p *plan.Plan, step int32) []int32 {
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

func (b *builder) orderEdges() {
	for i := range b.p.Steps {
		for _, pred := range directPreds(b.p, int32(i)) {
			b.pic.Edges = append(b.pic.Edges, Edge{
				ID: b.path[pred] + " > " + b.path[i], From: b.edgeSource(pred), To: b.path[i], Kind: Follows,
			})
			b.alternativeEdges(pred, int32(i))
		}
	}
}

// alternativeEdges adds the edges for the cases in which a predecessor does not
// take its normal path: a condition that is false and has no else, or a step
// that was replaced by its fallback.
func (b *builder) alternativeEdges(pred, step int32) {
	s := &b.p.Steps[pred]
	if s.Kind == plan.Condition && s.Else == plan.None {
		b.pic.Edges = append(b.pic.Edges, Edge{
			ID: b.path[pred] + " else > " + b.path[step], From: b.path[pred], To: b.path[step], Kind: Passes, Label: "else",
		})
	}
	if s.Fallback != plan.None && b.edgeSource(pred) == b.path[pred] {
		from := scopeOf(b.p, b.path[pred], s.Fallback)
		b.pic.Edges = append(b.pic.Edges, Edge{ID: from + " > " + b.path[step], From: from, To: b.path[step], Kind: Rejoins})
	}
}

// dataEdges adds the edges of data. Where an edge of order exists already, that
// gets the label instead.
func (b *builder) dataEdges() {
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
				b.dataEdge(src, int32(i), v, seen)
			}
		}
	}
}

func (b *builder) dataEdge(src, reader int32, v plan.Var, seen map[string]int) {
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
			e.Label = oneLine(name)
		}
		return
	}
	seen[id] = len(b.pic.Edges)
	b.pic.Edges = append(b.pic.Edges, Edge{ID: id, From: b.edgeSource(src), To: b.path[reader], Kind: Reads, Label: oneLine(name)})
}

// owns reports whether inner is in a graph of outer.
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

// variables returns all names that a step's expressions use.
func variables(s *plan.Step) []plan.Var {
	vars := s.InputVars()
	if s.Rounds != nil {
		vars = append(vars, s.Rounds.InitialRef...)
	}
	for _, e := range append([]*plan.Expr{s.When, s.Expr}, s.Rounds.Exprs()...) {
		if e != nil {
			vars = append(vars, e.Vars...)
		}
	}
	if s.Cache != nil && s.Cache.Key != nil {
		vars = append(vars, s.Cache.Key.Vars...)
	}
	return vars
}

// facts describes in a few lines what a step does, the most important first.
func facts(p *plan.Plan, s *plan.Step) []string {
	lines := []string{mainFact(p, s)}
	switch s.Kind {
	case plan.Condition:
		if s.Else == plan.None && len(s.Succs) == 0 {
			lines = append(lines, "else: goes on") // there is no next step for an edge to lead to
		}
	case plan.Parallel:
		lines = append(lines, strategy[s.Strategy])
	case plan.Loop:
		lines = append(lines, concurrencyText(s.Concurrency)+strategy[s.Strategy])
		lines = append(lines, roundFacts(s)...)
	case plan.Recipe:
		if s.Child.Depth > 0 {
			lines = append(lines, "at most "+view.Count(int(s.Child.Depth), "level")+" below the first run")
		}
	}
	if s.When != nil {
		lines = append(lines, "when "+oneLine(s.When.Src))
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

// roundFacts describes what a loop decides between its iterations, besides its main fact.
func roundFacts(s *plan.Step) (lines []string) {
	if r := s.Rounds; r != nil {
		if r.Until != nil && (s.Expr != nil || r.While != nil) {
			lines = append(lines, "until "+source(r.Until))
		}
		if r.Accumulates() {
			lines = append(lines, "accumulates "+r.As+" = "+source(r.Next))
		}
	}
	return lines
}

func mainFact(p *plan.Plan, s *plan.Step) string {
	switch s.Kind {
	case plan.Action:
		text := p.Actions[s.Action].String()
		if s.Prompt != nil {
			text += ", lens " + s.Prompt.Lens
		}
		return oneLine(text)
	case plan.Parallel:
		return "wait for " + waitFor[s.WaitFor]
	case plan.Loop:
		switch {
		case !s.Conditional():
			return "×N over " + source(s.Expr)
		case s.Rounds.While != nil:
			return fmt.Sprintf("up to %d× while %s", s.Rounds.Max, source(s.Rounds.While))
		}
		return fmt.Sprintf("up to %d× until %s", s.Rounds.Max, source(s.Rounds.Until))
	case plan.Wait:
		return waitText(s)
	case plan.Recipe:
		return oneLine(p.Children[s.Child.Ref].String())
	case plan.Fail:
		return strings.TrimSuffix(oneLine(s.Code)+": "+source(s.Expr), ": ")
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
	return oneLine(e.Src)
}

func concurrencyText(n int32) string {
	if n <= 1 {
		return ""
	}
	return fmt.Sprintf("%d at once, ", n)
}

func waitText(s *plan.Step) string {
	switch {
	case s.Signal != "" && s.SignalMS > 0:
		return fmt.Sprintf("for signal %s, at most %s", oneLine(s.Signal), formatDuration(s.SignalMS*1000))
	case s.Signal != "":
		return "for signal " + oneLine(s.Signal)
	case s.Expr != nil:
		return "until " + source(s.Expr)
	}
	return formatDuration(s.DurationMS * 1000)
}

// formatDuration formats a duration in µs for people.
func formatDuration(micros int64) string {
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
