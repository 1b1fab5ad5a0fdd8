// SPDX-License-Identifier: Apache-2.0

// Package dag is the dialect of nodes and the nodes that they depend on (X20).
//
// It decides which fields such a text has and what they mean in the one model: a handler is an
// action or a kind of step, its config what that takes, and nothing waits for what it does not
// depend on. It never decides whether the parts fit together (package compile does).
package dag

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/texts"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A Workflow is a text.
type Workflow struct {
	recipe.Head
	Nodes []*Node `json:"nodes"`
	recipe.Settings
}

// A Node is a step.
type Node struct {
	ID             string              `json:"id"`
	Name           string              `json:"name,omitempty"`
	Handler        string              `json:"handler"`
	Config         form.Variant        `json:"config,omitempty"`
	Lens           *recipe.Lens        `json:"lens,omitempty"`
	Dependencies   *[]string           `json:"dependencies,omitempty"`
	TimeoutSeconds float64             `json:"timeout_seconds,omitempty"`
	Retry          *recipe.RetryPolicy `json:"retry,omitempty"`
	recipe.Common
}

// Decode decodes a document into the model, and reports what does not fit to d.
func Decode(d *form.Decoder, n *jsonx.Node) *recipe.Recipe {
	w, at := &Workflow{}, d.Pointer()
	d.Decode(n, Form, w, step)
	r := &recipe.Recipe{Head: w.Head, Settings: w.Settings, Ptr: at, Read: "dag"}
	r.Order = cmp.Or(r.Order, "none")
	r.OnUpstreamFailure = cmp.Or(r.OnUpstreamFailure, "fail")
	r.Result = cmp.Or(r.Result, "steps")
	if r.ServiceRetry == nil {
		r.ServiceRetry = &recipe.RetryPolicy{MaxAttempts: 3, InitialDelay: "1s", MaxDelay: "60s", BackoffMultiplier: 2}
	}
	d.Source().Alias(at+"/steps", at+"/nodes")
	for i, node := range w.Nodes {
		var st *recipe.Step // nil where there is no node, so that places stay
		if node != nil {
			st = node.step(d.Source(), at+"/steps/"+strconv.Itoa(i), at+"/nodes/"+strconv.Itoa(i))
		}
		r.Steps = append(r.Steps, st)
	}
	texts.NameDashedIDs(r, d.Source(), false)
	return r
}

// NameOuter has a recipe of this dialect name steps of an outer one whose context it inherits as recipes do.
func NameOuter(r *recipe.Recipe, src *form.Source, ids map[string]bool) {
	texts.NameOuterIDs(r, src, ids, false)
}

// step decodes a step within a node: in a scope, or as a fallback. It may be written as a node, or
// as in a recipe.
func step(d *form.Decoder, n *jsonx.Node, v any) bool {
	st, ok := v.(*recipe.Step)
	if !ok || n.Child("handler") == nil {
		return false
	}
	var node Node
	d.Object(n, Form, &node)
	*st = *node.step(d.Source(), d.Pointer(), d.Pointer())
	return true
}

// step returns the step that a node is. at is its pointer in the model, and text that in the text.
func (n *Node) step(src *form.Source, at, text string) *recipe.Step {
	st := &recipe.Step{ID: n.ID, Name: n.Name, DependsOn: n.Dependencies, RetryPolicy: n.Retry, Common: n.Common, Ptr: at}
	if n.TimeoutSeconds > 0 {
		st.Timeout = recipe.Duration(strconv.FormatFloat(n.TimeoutSeconds, 'f', -1, 64) + "s")
	}
	src.AliasBelow(at, text, func(src *form.Source) { n.aliases(src, at, text) })
	switch c := n.Config.(type) {
	case *recipe.Condition:
		st.Condition = c
	case *recipe.Parallel:
		st.Parallel = c
	case *recipe.Transform:
		st.Transform = c
	case *recipe.Loop:
		st.Loop = c
	case *recipe.Wait:
		st.Wait = c
	case *recipe.Fail:
		st.Fail = c
	case *recipe.Child:
		st.Recipe = c
	default:
		if isKind(n.Handler) {
			st.Type = n.Handler // its config is missing, or no object
			break
		}
		name, version, _ := strings.Cut(n.Handler, "@")
		st.Action = &recipe.Action{Name: name, Version: version, Lens: n.Lens}
		if c, ok := c.(*map[string]json.RawMessage); ok {
			st.Action.Parameters = *c
		}
		return st
	}
	if n.Lens != nil { // compile says that a step is only one thing
		st.Action = &recipe.Action{Lens: n.Lens}
	}
	return st
}

// aliases notes where the fields of a step are in its node.
func (n *Node) aliases(src *form.Source, at, text string) {
	if at != text {
		src.Alias(at, text)
	}
	src.Alias(at+"/dependsOn", text+"/dependencies")
	src.Alias(at+"/retryPolicy", text+"/retry")
	src.Alias(at+"/timeout", text+"/timeout_seconds")
	if isKind(n.Handler) {
		src.Alias(at+"/"+n.Handler, text+"/config")
		src.Alias(at+"/action", text+"/lens")
		return
	}
	src.Alias(at+"/action/name", text+"/handler")
	src.Alias(at+"/action/version", text+"/handler")
	src.Alias(at+"/action/parameters", text+"/config")
	src.Alias(at+"/action/lens", text+"/lens")
}

func isKind(handler string) bool {
	return slices.ContainsFunc(kinds, func(k form.Case) bool { return k.Value == handler })
}

// kinds are the handlers that are kinds of steps, with what they take.
var kinds = []form.Case{
	{Value: "condition", Type: reflect.TypeFor[recipe.Condition]()},
	{Value: "parallel", Type: reflect.TypeFor[recipe.Parallel]()},
	{Value: "transform", Type: reflect.TypeFor[recipe.Transform]()},
	{Value: "loop", Type: reflect.TypeFor[recipe.Loop]()},
	{Value: "wait", Type: reflect.TypeFor[recipe.Wait]()},
	{Value: "fail", Type: reflect.TypeFor[recipe.Fail]()},
	{Value: "recipe", Type: reflect.TypeFor[recipe.Child]()},
}

// needConfig are the constraints that the handlers of kinds have a config.
func needConfig() (list []form.Constraint) {
	for _, k := range kinds {
		list = append(list, form.Constraint{Field: "handler", Value: k.Value, Needs: "config"})
	}
	return list
}

// handler is the pattern of handlers.
var handler = form.Match(`^[^@\s]+(@[0-9]+(\.[0-9]+){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?)?$`, `the name of an action such as "word-count", or with a version or range such as "word-count@1"`)

type m = map[string]any

// Form is how a workflow is written.
var Form = form.New[Workflow](recipe.Table.With(&form.Table{
	Rules: map[string]form.Rule{
		"Head.name":    {Doc: "Name under which the workflow is registered and started.", Def: "that of the file without its extensions", Pattern: form.Text, Example: "summarize"},
		"Head.dialect": {Doc: "Dialect of the text; without it, the keys determine the dialect.", Def: "determined by the keys", Enum: []string{"dag"}, Example: "dag"},
		"Settings.order": {
			Doc: "Whether a node without dependencies waits for the node before it.", Def: "none", Enum: []string{"sequence", "none"}, Example: "none",
		},
		"Settings.result":              {Doc: "What the result is without outputs and outputSchema: what outputBinding names, or the outputs of the nodes by their ids.", Def: "steps", Enum: []string{"bindings", "steps"}, Example: "bindings"},
		"Settings.service_retry":       {Doc: "How nodes are retried that have no retry and whose actions call a service over the network.", Def: "three attempts, with pauses from 1s to 60s", Example: m{"maxAttempts": 5}},
		"Settings.on_upstream_failure": {Doc: "What happens to nodes that depend on a failed one.", Def: "fail", Enum: []string{"skip", "fail"}, Example: "skip"},

		"Workflow.nodes": {Doc: "The nodes. Those that do not depend on each other run at the same time.", Required: true, Unless: "extends", MinItems: 1, Example: []any{m{"id": "one", "handler": "transform", "config": m{"expression": "1"}}}},

		"Node.id":      {Doc: "Name of the node for references, unique in the workflow.", Required: true, Pattern: recipe.ID, Example: "fetch"},
		"Node.name":    {Doc: "Name of the node for people.", Def: "the id", Example: "Fetch the page"},
		"Node.handler": {Doc: "What carries the node out: the name of an action, name@version, or a kind of step (condition, parallel, transform, loop, wait, fail, recipe).", Required: true, Pattern: handler, Example: "word-count"},
		"Node.config": {
			Doc: "The inputs of the action, or what the kind of step takes. Text in inputs may contain {{ templates }}.", Def: "no inputs", By: "handler", Cases: kinds, Example: m{"text": "{{ fetch.output }}"},
		},
		"Node.lens":            recipe.Table.Rules["Action.lens"],
		"Node.dependencies":    {Doc: "Ids of the nodes this one waits for, besides those that its templates name.", Def: "none", Item: &form.Rule{Pattern: recipe.ID}, Example: []any{"fetch"}},
		"Node.timeout_seconds": form.Number("How long one attempt may take: then the node is told to stop, and has five seconds to clean up.", "600 of an action", 0.001, 31_536_000, 30),
		"Node.retry":           {Doc: "When and how often to try again.", Def: "three attempts of actions that call services over the network, one of others", Example: m{"maxAttempts": 5}},
	},
	Constraints: map[string][]form.Constraint{"Node": needConfig()},
	Nouns:       map[string]string{"Workflow": "a workflow", "Node": "a node"},
	Before:      map[string][][2]string{"Workflow": {{"dialect", "name"}, {"inputSchema", "nodes"}, {"inputPolicy", "nodes"}}, "Node": {{"when", "config"}}},
	Also:        map[string]form.Also{"Step": {Key: "handler", Type: reflect.TypeFor[Node]()}},
}))
