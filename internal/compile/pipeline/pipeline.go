// SPDX-License-Identifier: Apache-2.0

// Package pipeline is the dialect of workflows whose steps have a name and a type (X13).
//
// It decides which fields such a text has and what they mean in the one model: a step runs a pipeline of its
// own, repeats steps, sets a variable, asks a model or calls any action, and reads the results of others as
// steps.name.field. It never decides whether the parts fit together (package compile does).
package pipeline

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/texts"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// A Document is a text.
type Document struct {
	Dialect  string    `json:"dialect,omitempty"`
	Workflow *Workflow `json:"workflow"`
}

// A Workflow is a pipeline. Its fields that have no other name are values of `workflow`.
type Workflow struct {
	recipe.Head
	Steps []*Stage `json:"steps"`
	recipe.Settings
}

// A Stage is a step (X14). Which of its fields it may have depends on its type.
type Stage struct {
	Name      string `json:"name"`
	Type      string `json:"type"`
	Label     string `json:"label,omitempty"`
	Condition string `json:"condition,omitempty"` // an expression, also in braces (X19)

	// Type pipeline (X15–X18).
	PipelineFile string           `json:"pipeline_file,omitempty"`
	PipelineRef  string           `json:"pipeline_ref,omitempty"`
	Pipeline     *Workflow        `json:"pipeline,omitempty"`
	Definition   string           `json:"pipeline_definition,omitempty"`
	Inline       *recipe.Recipe   `json:"inline,omitempty"`
	Outputs      []*recipe.Output `json:"outputs,omitempty"`
	Config       *Config          `json:"config,omitempty"`
	Files        string           `json:"files,omitempty"`
	MaxCredits   int64            `json:"maxCredits,omitempty"`
	Result       string           `json:"result,omitempty"`

	// Inputs are those of the pipeline, or of the action that the type names.
	Inputs map[string]json.RawMessage `json:"inputs,omitempty"`
	Prompt json.RawMessage            `json:"prompt,omitempty"` // the input of that name
	Lens   *recipe.Lens               `json:"lens,omitempty"`

	// Type for_loop (X59).
	Over            string             `json:"over,omitempty"`
	As              string             `json:"as,omitempty"`
	Index           string             `json:"index,omitempty"`
	While           string             `json:"while,omitempty"`
	Until           string             `json:"until,omitempty"`
	MaxIterations   int64              `json:"maxIterations,omitempty"`
	Accumulate      *recipe.Accumulate `json:"accumulate,omitempty"`
	Steps           []*Stage           `json:"steps,omitempty"`
	MaxConcurrency  int64              `json:"maxConcurrency,omitempty"`
	FailureStrategy string             `json:"failureStrategy,omitempty"` // also of type parallel

	Value      json.RawMessage `json:"value,omitempty"`      // type set_variable
	Expression string          `json:"expression,omitempty"` // types transform and condition
	Then       []*Stage        `json:"then,omitempty"`       // type condition
	Else       []*Stage        `json:"else,omitempty"`
	Branches   [][]*Stage      `json:"branches,omitempty"` // type parallel
	WaitFor    string          `json:"waitFor,omitempty"`
	Wait       *recipe.Wait    `json:"wait,omitempty"`
	Fail       *recipe.Fail    `json:"fail,omitempty"`

	DependsOn      *[]string           `json:"dependsOn,omitempty"`
	RetryPolicy    *recipe.RetryPolicy `json:"retryPolicy,omitempty"`
	TimeoutSeconds float64             `json:"timeout_seconds,omitempty"`
	recipe.Common
}

// A Config is how a pipeline within a pipeline is run (X18).
type Config struct {
	InheritContext   bool    `json:"inherit_context,omitempty"`
	InheritProviders bool    `json:"inherit_providers,omitempty"`
	InheritFunctions bool    `json:"inherit_functions,omitempty"`
	InputPolicy      string  `json:"input_policy,omitempty"`
	WorkspaceDir     string  `json:"workspace_dir,omitempty"`
	Checkpoint       bool    `json:"checkpoint_enabled,omitempty"`
	TimeoutSeconds   float64 `json:"timeout_seconds,omitempty"`
	MaxRetries       int64   `json:"max_retries,omitempty"`
	ContinueOnError  bool    `json:"continue_on_error,omitempty"`
	MaxDepth         int64   `json:"max_depth,omitempty"`
	MaxTotalSteps    int64   `json:"max_total_steps,omitempty"`
	MemoryLimitMB    int64   `json:"memory_limit_mb,omitempty"`
}

// Decode decodes a document into the model, and reports what does not fit to d.
func Decode(d *form.Decoder, n *jsonx.Node) *recipe.Recipe {
	doc, at := &Document{}, d.Pointer()
	d.Decode(n, Form, doc, stage)
	c := &reader{d: d, doc: n, root: at}
	if doc.Workflow == nil {
		return &recipe.Recipe{Ptr: at + "/workflow"}
	}
	r := c.recipe(doc.Workflow, at+"/workflow")
	r.Dialect = cmp.Or(r.Dialect, doc.Dialect)
	return r
}

// A reader makes a recipe of a document.
type reader struct {
	d    *form.Decoder
	doc  *jsonx.Node
	root string // pointer of the document
}

// problem reports a problem at a pointer of the text.
func (c *reader) problem(pointer, rule, msg, hint string) {
	c.d.AddSemantic(fault.RecipeInvalid, c.doc, strings.TrimPrefix(pointer, c.root), rule, msg, hint)
}

// recipe returns the recipe that a workflow is. at is its pointer.
func (c *reader) recipe(w *Workflow, at string) *recipe.Recipe {
	r := &recipe.Recipe{Head: w.Head, Settings: w.Settings, Ptr: at, Read: "pipeline"}
	r.Result = cmp.Or(r.Result, "steps")
	src := c.d.Source()
	c.misspelt(w, at)
	for name := range w.Values {
		src.AliasLater(func(src *form.Source) {
			token := jsonx.EscapeToken(name)
			src.Alias(at+"/values/"+token, at+"/"+token)
		})
	}
	r.Steps = c.steps(w.Steps, at+"/steps", at+"/steps")
	texts.NameDashedIDs(r, src, true)
	nameResults(r, src)
	return r
}

// NameOuter has a recipe of this dialect name steps of an outer one whose context it inherits as recipes do.
func NameOuter(r *recipe.Recipe, src *form.Source, ids map[string]bool) {
	texts.NameOuterIDs(r, src, ids, true)
	nameResults(r, src)
}

// misspelt reports values that are probably meant to be another field, and that nothing in the text reads.
func (c *reader) misspelt(w *Workflow, at string) {
	var known []string
	for _, f := range Form.Fields("Workflow") {
		known = append(known, f.Name)
	}
	var read map[string]bool
	asked := false
	for _, name := range slices.Sorted(maps.Keys(w.Values)) {
		near := form.Nearest(name, known)
		if near == "" {
			continue
		}
		if !asked { // most texts have no such value
			read, asked = c.fieldsRead(), true
		}
		if read == nil || read[name] {
			continue
		}
		c.problem(at+"/"+jsonx.EscapeToken(name), "unknown-field", "a workflow has no field "+strconv.Quote(name)+", and nothing reads it as workflow."+name,
			"did you mean "+strconv.Quote(near)+"?")
	}
}

// fieldOfWorkflow matches a field of `workflow` in code.
var fieldOfWorkflow = regexp.MustCompile(`\bworkflow(?:\s*\.\??\s*(\w+)|\[\s*['"]([^'"]*)['"]\s*\])`)

// fieldsRead returns the fields of `workflow` that texts of the document name, or nil if a pipeline in a file may read
// others.
func (c *reader) fieldsRead() map[string]bool {
	read := map[string]bool{}
	var within func(n *jsonx.Node) bool
	within = func(n *jsonx.Node) bool {
		if n.Kind == jsonx.String {
			for _, m := range fieldOfWorkflow.FindAllStringSubmatch(n.Text, -1) {
				read[m[1]+m[2]] = true
			}
		}
		if f := n.Child("pipeline_file"); f != nil {
			if config := n.Child("config"); config != nil && config.Child("inherit_context") != nil {
				return false
			}
		}
		for _, child := range n.Children {
			if !within(child) {
				return false
			}
		}
		return true
	}
	if !within(c.doc) {
		return nil
	}
	return read
}

func (c *reader) steps(list []*Stage, at, text string) (steps []*recipe.Step) {
	for i, s := range list {
		var st *recipe.Step // nil where there is none, so that places stay
		if s != nil {
			k := "/" + strconv.Itoa(i)
			st = c.step(s, at+k, text+k)
		}
		steps = append(steps, st)
	}
	return steps
}

// stage decodes a step within a field of the model, which is written as one of a workflow or as in a recipe.
func stage(d *form.Decoder, n *jsonx.Node, v any) bool {
	st, ok := v.(*recipe.Step)
	if !ok || n.Child("type") == nil {
		return false
	}
	var s Stage
	d.Object(n, Form, &s)
	c := &reader{d: d, doc: n, root: d.Pointer()}
	*st = *c.step(&s, d.Pointer(), d.Pointer())
	return true
}

// step returns the step that a stage is. at is its pointer in the model, and text that in the text.
func (c *reader) step(s *Stage, at, text string) *recipe.Step {
	st := &recipe.Step{ID: s.Name, Name: s.Label, DependsOn: s.DependsOn, RetryPolicy: s.RetryPolicy, Common: s.Common, Timeout: seconds(s.TimeoutSeconds), Ptr: at}
	c.d.Source().AliasBelow(at, text, func(src *form.Source) { s.aliases(src, at, text) })
	c.fields(s, text)
	if s.Condition != "" {
		if s.When != "" {
			c.problem(text+"/condition", "given-twice", `the condition is given twice, here and as "when"`, "remove one of them")
		}
		st.When = c.expression(s.Condition, text+"/condition", at+"/when", "true")
	}
	switch s.Type {
	case "pipeline":
		c.child(st, s, text)
	case "for_loop":
		st.Loop = c.loop(s, at+"/loop", text)
	case "set_variable":
		st.Transform = &recipe.Transform{Value: s.Value}
	case "transform":
		st.Transform = &recipe.Transform{Expression: c.expression(s.Expression, text+"/expression", at+"/transform/expression", "null")}
	case "condition":
		st.Condition = &recipe.Condition{
			Expression: c.expression(s.Expression, text+"/expression", at+"/condition/expression", "true"),
			Then:       c.steps(s.Then, at+"/condition/then", text+"/then"), Else: c.steps(s.Else, at+"/condition/else", text+"/else"),
		}
	case "parallel":
		st.Parallel = &recipe.Parallel{WaitFor: s.WaitFor, FailureStrategy: s.FailureStrategy}
		for i, branch := range s.Branches {
			k := "/" + strconv.Itoa(i)
			st.Parallel.Branches = append(st.Parallel.Branches, c.steps(branch, at+"/parallel/branches"+k, text+"/branches"+k))
		}
	case "wait":
		st.Wait = s.Wait
	case "fail":
		if st.Fail = s.Fail; st.Fail == nil {
			st.Fail = &recipe.Fail{}
		}
	default:
		c.call(st, s, text)
	}
	return st
}

// call makes a step that calls an action.
func (c *reader) call(st *recipe.Step, s *Stage, text string) {
	name, version, _ := strings.Cut(s.Type, "@")
	st.Action = &recipe.Action{Name: name, Version: version, Lens: s.Lens, Parameters: s.Inputs}
	if len(s.Prompt) == 0 {
		return
	}
	if _, twice := s.Inputs[promptInput]; twice {
		c.problem(text+"/prompt", "given-twice", `the prompt is given twice, here and under "inputs"`, "remove one of them")
	}
	if st.Action.Parameters = map[string]json.RawMessage{promptInput: s.Prompt}; len(s.Inputs) > 0 {
		for name, v := range s.Inputs {
			st.Action.Parameters[name] = v
		}
	}
}

// child makes a step that runs a pipeline.
func (c *reader) child(st *recipe.Step, s *Stage, text string) {
	k := &recipe.Child{Ref: s.PipelineRef, File: s.PipelineFile, Inline: s.Inline, Definition: s.Definition, Inputs: s.Inputs, Files: s.Files, Outputs: s.Outputs, MaxCredits: s.MaxCredits}
	if s.Pipeline != nil {
		k.Inline = c.recipe(s.Pipeline, text+"/pipeline")
		k.Inline.Name = cmp.Or(k.Inline.Name, s.Name)
	}
	if k.Result = s.Result; len(k.Outputs) == 0 {
		k.Result = cmp.Or(k.Result, "last")
	}
	st.Recipe = k
	f := s.Config
	if f == nil {
		return
	}
	for _, what := range []struct {
		is   bool
		name string
	}{{f.InheritContext, recipe.InheritContext}, {f.InheritProviders, recipe.InheritProviders}, {f.InheritFunctions, recipe.InheritFunctions}} {
		if what.is {
			k.Inherit = append(k.Inherit, what.name)
		}
	}
	k.InputPolicy = f.InputPolicy
	twice := func(field string) {
		c.problem(text+"/config/"+field, "given-twice", strconv.Quote(field)+" is given twice, here and by the step", "remove one of them")
	}
	k.Resume = f.Checkpoint
	if f.TimeoutSeconds > 0 {
		if st.Timeout != "" {
			twice("timeout_seconds")
		}
		st.Timeout = seconds(f.TimeoutSeconds)
	}
	if f.MaxRetries > 0 {
		if st.RetryPolicy != nil {
			twice("max_retries")
		}
		st.RetryPolicy = &recipe.RetryPolicy{MaxAttempts: f.MaxRetries + 1}
	}
	k.Workspace, st.ContinueOnError = f.WorkspaceDir, st.ContinueOnError || f.ContinueOnError
	if f.MaxDepth+f.MaxTotalSteps+f.MemoryLimitMB > 0 {
		k.Limits = &recipe.ChildLimits{MaxDepth: f.MaxDepth, MaxTotalSteps: f.MaxTotalSteps, MemoryLimitMB: f.MemoryLimitMB}
	}
}

// fields reports the fields that a step of this type does not have.
func (c *reader) fields(s *Stage, text string) {
	n := c.doc.Find(strings.TrimPrefix(text, c.root))
	if n == nil || s.Type == "" {
		return
	}
	own := fieldsOf(s.Type)
	for _, f := range n.Children {
		if owners := ownersOf(f.Key); owners != nil && !slices.Contains(own, f.Key) {
			c.problem(text+"/"+f.Key, "not-for-kind", "a step of type "+strconv.Quote(s.Type)+" has no field "+strconv.Quote(f.Key), "it is a field of the type "+strings.Join(owners, ", "))
		}
	}
}

// expression returns an expression that is written alone or in braces. text and at are where the text and the
// model have it; instead stands for one that is reported.
func (c *reader) expression(written, text, at, instead string) string {
	trimmed := strings.TrimSpace(written)
	parts := expr.Code(trimmed)
	if len(parts) != 1 || !strings.HasPrefix(trimmed, "{{") || !strings.HasSuffix(trimmed, "}}") {
		return written
	}
	before, after := trimmed[len("{{"):parts[0].From], trimmed[parts[0].To:len(trimmed)-len("}}")]
	if strings.Trim(before+after, "-") != "" {
		return written
	}
	inside, open := trimmed[parts[0].From:parts[0].To], strings.Index(written, "{{")+parts[0].From
	if filtered(inside) {
		c.problem(text, "filter-in-expression", "a filter makes text, and this is an expression", "write it with a function, such as size(x) for x | length")
		return instead
	}
	code := strings.TrimLeft(inside, " \t\r\n")
	c.d.Source().Edit(at, []form.Edit{{At: 0, Is: 0, Was: utf8.RuneCountInString(written[:open]) + len(inside) - len(code)}})
	return strings.TrimSpace(code)
}

// loop returns the loop that a stage is. at is its pointer in the model, and text that of the stage in the text.
func (c *reader) loop(s *Stage, at, text string) *recipe.Loop {
	l := &recipe.Loop{
		Over: c.expression(s.Over, text+"/over", at+"/over", "dyn([])"), As: s.As, Index: s.Index, Steps: c.steps(s.Steps, at+"/steps", text+"/steps"),
		While: c.expression(s.While, text+"/while", at+"/while", "false"), Until: c.expression(s.Until, text+"/until", at+"/until", "true"),
		MaxIterations: s.MaxIterations, MaxConcurrency: s.MaxConcurrency, FailureStrategy: s.FailureStrategy,
	}
	if s.Accumulate != nil {
		a := *s.Accumulate
		a.Expression = c.expression(a.Expression, text+"/accumulate/expression", at+"/accumulate/expression", "null")
		l.Accumulate = &a
	}
	return l
}

func seconds(n float64) recipe.Duration {
	if n <= 0 {
		return ""
	}
	return recipe.Duration(plan.FormatMS(int64(n*1000 + 0.5)))
}
