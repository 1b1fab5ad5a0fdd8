// SPDX-License-Identifier: Apache-2.0

package refactor

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/compile/flow"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
)

// Edges of the dialect flow are at another place of the text than the nodes: those between nodes that move go with
// them, and those that cross the border lead to the new node, or from it, with the names of what is passed on.

// edges are what an extraction does to the edges of a flow.
type edges struct {
	list  []*edge
	moves []int           // those between nodes that move
	from  map[string]bool // ids of nodes that edges to the new node lead from
	bound []bound         // bindings that nodes get in place of edges
}

// An edge is one of the text.
type edge struct {
	at             string // its pointer
	from, to       *recipe.Step
	in, out        bool // whether it leads from a node that moves, and to one
	label, key     string
	strategy, lens string // lens is that of from; "" = it has none
}

// bound is a binding that a node gets.
type bound struct {
	step              *recipe.Step
	label, expression string
}

// flow reports whether the steps that move are nodes of a flow.
func (m *move) flow() bool { return m.d.Name == "flow" && m.list.owner == nil }

// edgesOf returns the edges of a flow, and the pointers of the bindings that they carry.
func (t *Text) edgesOf() (list []*edge, carried map[string]bool) {
	carried = map[string]bool{}
	if t.d.Name != "flow" || t.recipe.Ptr != "" {
		return nil, carried
	}
	byID := map[string]*recipe.Step{}
	for _, s := range t.recipe.Steps {
		byID[s.ID] = s
	}
	for i, n := range t.source.Tree().Child("edges").Children {
		text := func(field string) string {
			if c := n.Child(field); c != nil {
				return c.Text
			}
			return ""
		}
		e := &edge{at: "/edges/" + strconv.Itoa(i), from: byID[text("source_node_id")], to: byID[text("target_node_id")], label: text("target_param_label"), key: text("source_output_key"), strategy: text("merge_strategy")}
		e.lens = t.textOfField(e.from, "lens_id")
		if list = append(list, e); e.label != "" {
			carried[e.to.Ptr+"/inputBindings/"+jsonx.EscapeToken(e.label)+"/"] = true
		}
	}
	return list, carried
}

// readEdges finds what crosses the border along edges, before the expressions do.
func (m *move) readEdges() error {
	m.edges.from = map[string]bool{}
	if !m.flow() {
		return nil
	}
	m.edges.list = m.flowEdges
	groups, order := map[[2]string][]*edge{}, [][2]string{}
	for _, e := range m.edges.list {
		key := [2]string{e.to.ID, e.label}
		if e.in, e.out = m.inside[e.from], m.inside[e.to]; e.label != "" && e.in != e.out && groups[key] == nil {
			groups[key], order = []*edge{}, append(order, key)
		}
	}
	for _, e := range m.edges.list {
		if key := [2]string{e.to.ID, e.label}; groups[key] != nil {
			groups[key] = append(groups[key], e)
		}
	}
	for _, key := range order {
		if err := m.readGroup(groups[key]); err != nil {
			return err
		}
	}
	return m.readWaits()
}

// textOfField returns the text of a field of a node, or "".
func (t *Text) textOfField(s *recipe.Step, field string) string {
	if c := t.source.Tree().Find(t.source.Pointer(s.Ptr)).Child(field); c != nil {
		return c.Text
	}
	return ""
}

// byEdges begins the source of a crossing that edges carry, and no binding of the new node.
const byEdges = "edges to "

// readGroup looks at the edges that carry values to one label of a node.
func (m *move) readGroup(group []*edge) error {
	across := group[slices.IndexFunc(group, func(e *edge) bool { return e.in != e.out })]
	for _, e := range group {
		if across.out && e.in {
			return refuse("edges from nodes that move and from nodes that stay are merged into %q of %s", e.label, named(e.to)).in(across.at).
				advising("Move all nodes that these edges lead from, or merge what stays in a node of its own.")
		}
		if err := m.checkCarried(e, across); err != nil {
			return err
		}
	}
	if across.out {
		return m.carryIn(group)
	}
	return m.carryOut(group)
}

// checkCarried refuses a value whose selection may fail where it did not.
func (m *move) checkCarried(e, across *edge) error {
	if e.in == e.out {
		return nil
	}
	if !definite(e.from) {
		return refuse("the edge carries the output of %s, which may not complete, across the border", named(e.from)).in(e.at)
	}
	if cmp.Or(e.key, "output") == "output" {
		return nil
	}
	for _, s := range m.list.steps {
		if !definite(s) {
			return refuse("the edge carries the field %q of %s, which would be selected although %s may not run", e.key, named(e.from), named(across.to)).in(e.at).
				advising("Let it carry the whole output, and select the field in the node that it leads to.")
		}
	}
	return nil
}

// carryIn has edges from nodes that stay lead to the new node, which passes on what they carry.
func (m *move) carryIn(group []*edge) error {
	to, label := group[0].to, group[0].label
	key := m.input(byEdges+to.ID+" "+label, identifier(label))
	m.edges.bound = append(m.edges.bound, bound{to, label, "input." + key})
	strategy := ""
	for _, e := range group {
		strategy = cmp.Or(strategy, e.strategy)
	}
	if c := m.source.Tree().Find(m.source.Pointer(to.Ptr)).Child("config").Child("merge"); c != nil {
		strategy = cmp.Or(strategy, c.Text)
	}
	for _, e := range group {
		m.edges.from[e.from.ID] = true
		err := m.setFields(e.at, field{"target_node_id", m.Name}, field{"target_param_label", key})
		if err == nil && len(group) > 1 && strategy != "" && e.strategy == "" {
			err = m.setFields(e.at, field{"merge_strategy", strategy})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// carryOut has edges to nodes that stay lead from the new node.
func (m *move) carryOut(group []*edge) error {
	config := m.source.Tree().Find(m.source.Pointer(group[0].to.Ptr)).Child("config").Child("merge")
	for _, e := range group {
		if !e.in {
			continue
		}
		if object := "json_object"; len(group) > 1 && (e.strategy == object || e.strategy == "" && config != nil && config.Text == object) {
			return refuse("the edge carries the output of %s to a json_object, in which it has the name of its node", named(e.from)).in(e.at).
				advising("Make the object with inputBindings of " + e.to.ID + ", whose parts have labels.")
		}
		out := m.output(flow.Carried(e.from.ID, e.key, e.lens != ""), e.from.ID)
		if err := m.setFields(e.at, field{"source_node_id", m.Name}, field{"source_output_key", out}); err != nil {
			return err
		}
	}
	return nil
}

// readWaits looks at the edges between nodes that move, and at those that carry nothing.
func (m *move) readWaits() (err error) {
	for i, e := range m.edges.list {
		switch {
		case e.in && e.out:
			m.edges.moves = append(m.edges.moves, i)
		case e.label != "" || e.in == e.out:
		case e.in:
			err = m.setFields(e.at, field{"source_node_id", m.Name})
		default:
			m.edges.from[e.from.ID] = true
			err = m.setFields(e.at, field{"target_node_id", m.Name})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeEdges removes the edges between nodes that move, and returns their text with the columns of those that stay.
func (m *move) takeEdges() (string, error) {
	var out strings.Builder
	end := 0
	for _, i := range m.edges.moves {
		from, to, col, err := m.itemLines("/edges", i, i, len(m.edges.list))
		if err != nil {
			return "", err
		}
		start, stop := max(end, m.line(from)), m.line(to)
		out.WriteString(shifted(strings.ReplaceAll(string(m.Bytes[start:stop]), "\r\n", "\n"), 2-col))
		m.edits = append(m.edits, edit{start, stop, ""})
		end = stop
	}
	if n := len(m.edges.moves); n > 0 && n == len(m.edges.list) {
		key := m.offset(m.source.KeyPos("/edges"))
		at := key + strings.IndexByte(string(m.Bytes[key:]), ':') + 1
		m.edits = append(m.edits, edit{at, at, " []"})
	}
	return out.String(), nil
}

// ownDependencies returns what a step lists itself: in a flow the model has the nodes that edges lead from, too.
func (m *move) ownDependencies(s *recipe.Step) *[]string {
	if !m.flow() {
		return s.DependsOn
	}
	n := m.source.Tree().Find(m.source.Pointer(s.Ptr)).Child("dependsOn")
	if n == nil {
		return nil
	}
	ids := []string{}
	for _, item := range n.Children {
		ids = append(ids, item.Text)
	}
	return &ids
}

// isCarried reports whether an expression is one that edges stand for.
func (m *move) isCarried(pointer string) bool {
	at := strings.Index(pointer, "/inputBindings/")
	if at < 0 || !m.flow() {
		return false
	}
	rest := pointer[at+len("/inputBindings/"):]
	k := strings.IndexByte(rest, '/')
	return k >= 0 && m.carried[pointer[:at]+"/inputBindings/"+rest[:k+1]]
}

// checkLeaves refuses the rule that the last steps decide about the run, unless any failure reaches one of them.
func (m *move) checkLeaves() error {
	r := m.recipe
	if r.ResultRule != "leaves" || r.FailurePolicy != "drain" || m.list.owner != nil {
		// With fail_fast the first failure decides, and a failure within a step is one of that step.
		return nil
	}
	for _, s := range r.Steps {
		if m.tolerates(s) {
			return refuse("with result_rule: leaves the last steps decide about the run, and %s may keep a failure from them", named(s)).
				advising("Set `result_rule: strict`, if any failure is to fail the run.")
		}
	}
	return nil
}
