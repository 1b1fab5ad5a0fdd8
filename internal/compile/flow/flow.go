// SPDX-License-Identifier: Apache-2.0

// Package flow is the dialect of nodes and the edges between them (X22, X23).
//
// It decides which fields such a text has and what they mean in the one model: a node asks a model with the
// prompt of a lens, or is any step of a recipe; an edge carries a value of one node to a parameter of
// another, and the order of the edges is that of merged values. It never decides whether the parts fit
// together (package compile does).
package flow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/spell"
)

// A Workflow is a text.
type Workflow struct {
	recipe.Head
	Nodes []*Node `json:"nodes"`
	Edges []*Edge `json:"edges"`
	recipe.Settings
}

// A Node is a step (X22).
type Node struct {
	ID        string  `json:"id"`
	LensID    string  `json:"lens_id,omitempty"`
	VersionID string  `json:"version_id,omitempty"` // "" = the current one
	Label     string  `json:"label,omitempty"`
	Ordinal   int64   `json:"ordinal,omitempty"` // the place in a list for people
	Config    *Config `json:"config,omitempty"`

	// A node without a lens is one of these, as in a recipe.
	Action    *recipe.Action    `json:"action,omitempty"`
	Condition *recipe.Condition `json:"condition,omitempty"`
	Parallel  *recipe.Parallel  `json:"parallel,omitempty"`
	Transform *recipe.Transform `json:"transform,omitempty"`
	Loop      *recipe.Loop      `json:"loop,omitempty"`
	Wait      *recipe.Wait      `json:"wait,omitempty"`
	Fail      *recipe.Fail      `json:"fail,omitempty"`
	Recipe    *recipe.Child     `json:"recipe,omitempty"`
	recipe.Common
	DependsOn *[]string `json:"dependsOn,omitempty"`
}

// A Config is how a node is carried out (X24).
type Config struct {
	Model           string                     `json:"model,omitempty"`
	Parameters      map[string]json.RawMessage `json:"parameters,omitempty"`
	Merge           string                     `json:"merge,omitempty"`
	Moderation      *recipe.Moderation         `json:"moderation,omitempty"`
	TimeoutMS       int64                      `json:"timeout_ms,omitempty"`
	OnParentFailure string                     `json:"on_parent_failure,omitempty"`
	Retry           *Retry                     `json:"retry,omitempty"`
}

// Retry is the retry policy of a node (X109). A field that is zero or nil has its default.
type Retry struct {
	Attempts          int64    `json:"attempts,omitempty"`
	BackoffMS         *int64   `json:"backoff_ms,omitempty"`
	MaxBackoffMS      *int64   `json:"max_backoff_ms,omitempty"`
	BackoffMultiplier float64  `json:"backoff_multiplier,omitempty"`
	Jitter            *float64 `json:"jitter,omitempty"`
	RetryOn           []string `json:"retry_on,omitempty"`
}

// An Edge carries a value from one node to another (X23), or only has the one wait for the other.
type Edge struct {
	ID               string `json:"id,omitempty"`
	SourceNodeID     string `json:"source_node_id"`
	TargetNodeID     string `json:"target_node_id"`
	SourceOutputKey  string `json:"source_output_key,omitempty"`  // "" = output
	TargetParamLabel string `json:"target_param_label,omitempty"` // "" = it carries no value
	MergeStrategy    string `json:"merge_strategy,omitempty"`
}

const (
	// wholeOutput is the key of the answer of a lens, and of the whole output of another node.
	wholeOutput = "output"
	// lensAction is what a node with a lens calls, and answer the field of its output with the text.
	lensAction, answer = "llm", "text"
	modelInput         = "model"
)

// Decode decodes a document into the model, and reports what does not fit to d.
func Decode(d *form.Decoder, n *jsonx.Node) *recipe.Recipe {
	w, at := &Workflow{}, d.Pointer()
	d.Decode(n, Form, w)
	r := &recipe.Recipe{Head: w.Head, Settings: w.Settings, Ptr: at}
	r.Order = cmp.Or(r.Order, "none")
	r.FailurePolicy = cmp.Or(r.FailurePolicy, "drain")
	r.OnUpstreamFailure = cmp.Or(r.OnUpstreamFailure, "fail")
	r.ResultRule = cmp.Or(r.ResultRule, "leaves")
	r.Result = cmp.Or(r.Result, "steps")
	d.Source().Alias(at+"/steps", at+"/nodes")
	f := &reader{d: d, doc: n, at: at, byID: map[string]*Node{}, into: map[string][]int{}, w: w}
	f.edges()
	f.drop()
	r.Steps = slices.Grow(r.Steps, len(w.Nodes))
	for i, node := range w.Nodes {
		var st *recipe.Step // nil where there is no node, so that places stay
		if node != nil {
			st = f.step(node, i)
		}
		r.Steps = append(r.Steps, st)
	}
	return r
}

// A reader makes steps of the nodes of a text.
type reader struct {
	d    *form.Decoder
	doc  *jsonx.Node
	at   string // pointer of the text
	w    *Workflow
	byID map[string]*Node
	into map[string][]int // edges by the node that they lead to
}

// edges finds out where the edges lead, and reports those that lead nowhere.
func (f *reader) edges() {
	var ids []string
	for _, n := range f.w.Nodes {
		if n != nil && n.ID != "" {
			f.byID[n.ID], ids = n, append(ids, n.ID)
		}
	}
	for i, e := range f.w.Edges {
		if e == nil || e.TargetNodeID == "" || e.SourceNodeID == "" {
			continue // reported as it was decoded
		}
		ok := true
		for _, end := range []struct{ field, id string }{{"source_node_id", e.SourceNodeID}, {"target_node_id", e.TargetNodeID}} {
			if f.byID[end.id] == nil {
				hint := ""
				if near := spell.Nearest(end.id, ids); near != "" {
					hint = "did you mean " + strconv.Quote(near) + "?"
				}
				f.problem(edgeAt(i)+"/"+end.field, "unknown-step", fmt.Sprintf("no node has the id %q", end.id), hint)
				ok = false
			}
		}
		if ok {
			f.into[e.TargetNodeID] = append(f.into[e.TargetNodeID], i)
		}
	}
}

// drop notes what is for people only.
func (f *reader) drop() {
	for _, of := range [...][2]string{{"nodes", "ordinal"}, {"edges", "id"}} {
		if list := f.doc.Child(of[0]); list != nil {
			for _, n := range list.Children {
				f.d.Source().Drop(n.Child(of[1]))
			}
		}
	}
}

// problem reports a problem at a JSON pointer of the text.
func (f *reader) problem(pointer, rule, msg, hint string) {
	f.d.AddSemantic(fault.RecipeInvalid, f.doc, pointer, rule, msg, hint)
}

func nodeAt(i int) string { return "/nodes/" + strconv.Itoa(i) }
func edgeAt(i int) string { return "/edges/" + strconv.Itoa(i) }

// step returns the step that node i is.
func (f *reader) step(n *Node, i int) *recipe.Step {
	at := f.at + "/steps/" + strconv.Itoa(i)
	st := &recipe.Step{
		ID: n.ID, Name: n.Label, Action: n.Action, Condition: n.Condition, Parallel: n.Parallel, Transform: n.Transform, Loop: n.Loop,
		Wait: n.Wait, Fail: n.Fail, Recipe: n.Recipe, Common: n.Common, DependsOn: n.DependsOn, Ptr: at,
	}
	if n.LensID != "" {
		st.Action = &recipe.Action{Name: lensAction, Lens: &recipe.Lens{ID: n.LensID, Version: n.VersionID}}
	}
	if n.VersionID != "" && n.LensID == "" {
		f.problem(nodeAt(i)+"/version_id", "missing-field", `version_id needs the field "lens_id"`, "")
	}
	f.config(st, n, i)
	f.inputs(st, n)
	f.d.Source().AliasBelow(at, f.at+nodeAt(i), func(src *form.Source) { aliases(src, at, f.at+nodeAt(i), n) })
	return st
}

// aliases notes where the fields of a step are in its node.
func aliases(src *form.Source, at, text string, n *Node) {
	src.Alias(at, text)
	src.Alias(at+"/name", text+"/label")
	for model, field := range map[string]string{
		"/timeout": "/timeout_ms", "/retryPolicy": "/retry", "/retryPolicy/maxAttempts": "/retry/attempts", "/retryPolicy/initialDelay": "/retry/backoff_ms",
		"/retryPolicy/maxDelay": "/retry/max_backoff_ms", "/retryPolicy/backoffMultiplier": "/retry/backoff_multiplier", "/retryPolicy/retryableErrors": "/retry/retry_on",
	} {
		src.Alias(at+model, text+"/config"+field)
	}
	if n.Config != nil && n.Config.Moderation != nil {
		src.Alias(at+"/moderation", text+"/config/moderation")
	}
	if n.Config != nil && n.Config.OnParentFailure != "" {
		src.Alias(at+"/on_parent_failure", text+"/config/on_parent_failure")
	}
	if n.LensID == "" {
		return
	}
	src.Alias(at+"/action", text)
	src.Alias(at+"/action/name", text+"/lens_id")
	src.Alias(at+"/action/lens", text+"/lens_id")
	src.Alias(at+"/action/lens/id", text+"/lens_id")
	src.Alias(at+"/action/lens/version", text+"/version_id")
	src.Alias(at+"/action/parameters", text+"/config/parameters")
	src.Alias(at+"/action/parameters/"+modelInput, text+"/config/model")
}

// config gives a step what the config of its node says.
func (f *reader) config(st *recipe.Step, n *Node, i int) {
	c := n.Config
	if c == nil {
		return
	}
	if c.Model != "" || len(c.Parameters) > 0 {
		if n.LensID == "" {
			f.problem(nodeAt(i)+"/config", "not-for-kind", "only a node with a lens has a model or parameters in its config", "write them where the node calls its action")
		} else {
			st.Action.Parameters = f.parameters(c, i)
		}
	}
	twice := func(field string) {
		f.problem(nodeAt(i)+"/config/"+field, "given-twice", fmt.Sprintf("%q is given twice, here and by the node", field), "remove one of them")
	}
	if c.Moderation != nil {
		if st.Moderation != nil {
			twice("moderation")
		}
		st.Moderation = c.Moderation
	}
	if c.OnParentFailure != "" {
		if st.OnParentFailure != "" {
			twice("on_parent_failure")
		}
		st.OnParentFailure = c.OnParentFailure
	}
	if c.TimeoutMS > 0 {
		st.Timeout = milliseconds(&c.TimeoutMS)
	}
	if k := c.Retry; k != nil {
		st.RetryPolicy = &recipe.RetryPolicy{
			MaxAttempts: k.Attempts, InitialDelay: milliseconds(k.BackoffMS), MaxDelay: milliseconds(k.MaxBackoffMS),
			BackoffMultiplier: k.BackoffMultiplier, Jitter: k.Jitter, RetryableErrors: k.RetryOn,
		}
	}
}

// parameters returns the parameters of a node with a lens.
func (f *reader) parameters(c *Config, i int) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for name, v := range c.Parameters {
		all[name] = v
	}
	if c.Model != "" {
		if _, twice := all[modelInput]; twice {
			f.problem(nodeAt(i)+"/config/parameters/"+modelInput, "given-twice", fmt.Sprintf("%q is given twice, here and as the model", modelInput), "remove one of them")
		}
		all[modelInput], _ = jsonx.Canonical(c.Model)
	}
	return all
}

func milliseconds(n *int64) recipe.Duration {
	if n == nil {
		return ""
	}
	return recipe.Duration(plan.FormatMS(*n))
}

// carried are the edges to one label of a node.
type carried struct {
	label string
	edges []int
}

// inputs gives a step what the edges into its node carry, and has it wait for the nodes that they come from.
func (f *reader) inputs(st *recipe.Step, n *Node) {
	if n.ID == "" || f.byID[n.ID] != n || len(f.into[n.ID]) == 0 {
		return // of two nodes with one id the last has the edges; compile reports them
	}
	own := n.DependsOn
	if own == nil {
		own = new([]string)
	}
	waits, waited := slices.Clone(*own), map[string]bool{}
	for _, id := range waits {
		waited[id] = true
	}
	var first []int // edges, of each node that they lead from
	var groups []carried
	place := map[string]int{} // of a label in groups
	for _, k := range f.into[n.ID] {
		e := f.w.Edges[k]
		if !waited[e.SourceNodeID] {
			waited[e.SourceNodeID] = true
			waits, first = append(waits, e.SourceNodeID), append(first, k)
		}
		if e.TargetParamLabel == "" {
			if e.MergeStrategy != "" || e.SourceOutputKey != "" {
				f.problem(edgeAt(k), "missing-field", `an edge that carries a value needs the field "target_param_label"`, "")
			}
			continue
		}
		at, ok := place[e.TargetParamLabel]
		if !ok {
			at, groups = len(groups), append(groups, carried{label: e.TargetParamLabel})
			place[e.TargetParamLabel] = at
		}
		groups[at].edges = append(groups[at].edges, k)
	}
	st.DependsOn = &waits
	st.InputBindings = maps.Clone(n.InputBindings)
	if st.InputBindings == nil && len(groups) > 0 {
		st.InputBindings = map[string]recipe.Binding{}
	}
	for _, g := range groups {
		if _, twice := st.InputBindings[g.label]; twice {
			f.problem(edgeAt(g.edges[0])+"/target_param_label", "given-twice", fmt.Sprintf("%q is given twice, here and by inputBindings", g.label), "remove one of them")
		}
		st.InputBindings[g.label] = f.bind(n, g.label, g.edges)
	}
	f.d.Source().AliasLater(func(src *form.Source) {
		edge := func(k int, field string) string { return f.at + edgeAt(k) + "/" + field }
		if n.DependsOn == nil {
			src.Alias(st.Ptr+"/dependsOn", f.at+"/edges")
		}
		for i, k := range first {
			src.Alias(st.Ptr+"/dependsOn/"+strconv.Itoa(len(*own)+i), edge(k, "source_node_id"))
		}
		if n.InputBindings == nil && len(groups) > 0 {
			src.Alias(st.Ptr+"/inputBindings", edge(groups[0].edges[0], "target_param_label"))
		}
		for _, g := range groups {
			at := st.Ptr + "/inputBindings/" + jsonx.EscapeToken(g.label)
			src.Alias(at, edge(g.edges[0], "target_param_label"))
			src.Alias(at+"/expression", edge(g.edges[0], "source_node_id"))
			for i, k := range g.edges {
				src.Alias(at+"/from/"+strconv.Itoa(i)+"/expression", edge(k, "source_node_id"))
			}
		}
	})
}

// bind returns what the edges to a label carry.
func (f *reader) bind(n *Node, label string, edges []int) recipe.Binding {
	carried := func(e *Edge) string {
		return Carried(e.SourceNodeID, e.SourceOutputKey, f.byID[e.SourceNodeID].LensID != "")
	}
	if len(edges) == 1 {
		return recipe.Binding{Expression: carried(f.w.Edges[edges[0]])}
	}
	b := recipe.Binding{Merge: f.strategy(n, label, edges)}
	for _, i := range edges {
		e := f.w.Edges[i]
		part := &recipe.Part{Expression: carried(e)}
		if b.Merge == "json_object" {
			part.Label = cmp.Or(f.byID[e.SourceNodeID].Label, e.SourceNodeID)
		}
		b.From = append(b.From, part)
	}
	return b
}

// strategy returns how the values of edges to one label are merged: as the edges say, else as the config of
// the node does (X65).
func (f *reader) strategy(n *Node, label string, edges []int) string {
	chosen := ""
	for _, i := range edges {
		s := f.w.Edges[i].MergeStrategy
		if s != "" && chosen != "" && s != chosen {
			f.problem(edgeAt(i)+"/merge_strategy", "merge-disagrees", fmt.Sprintf("the edges to %q of %q disagree about the merge: %s here, and %s before", label, n.ID, s, chosen),
				"give all of them one strategy")
			continue
		}
		chosen = cmp.Or(chosen, s)
	}
	if chosen == "" && n.Config != nil {
		chosen = n.Config.Merge
	}
	return cmp.Or(chosen, recipe.Merges[0])
}

// Carried is the expression of what an edge carries from a node, which has a lens or not. key is its
// source_output_key; "" = it has none.
func Carried(source, key string, lens bool) string {
	from := outputOf(source)
	switch {
	case cmp.Or(key, wholeOutput) != wholeOutput:
		quoted, _ := jsonx.Canonical(key)
		return from + "[" + string(quoted) + "]"
	case lens:
		return from + "." + answer
	}
	return from
}

// outputOf is the expression of the output of a node.
func outputOf(id string) string {
	if isName.MatchString(id) && id != "in" && id != "true" && id != "false" && id != "null" {
		return "steps." + id + ".output"
	}
	return "steps['" + id + "'].output"
}

var isName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
