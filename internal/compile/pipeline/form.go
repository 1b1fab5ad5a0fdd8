// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"regexp"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/texts"
)

type m = map[string]any

const promptInput = "prompt"

// kinds are the types that are not names of actions, with the fields that only they have.
var kinds = []struct {
	name   string
	fields []string
}{
	{"pipeline", []string{"pipeline_file", "pipeline_ref", "pipeline", "inline", "pipeline_definition", "inputs", "outputs", "config", "files", "maxCredits", "result"}},
	{"for_loop", []string{"over", "as", "index", "while", "until", "maxIterations", "accumulate", "steps", "maxConcurrency", "failureStrategy"}},
	{"set_variable", []string{"value"}},
	{"transform", []string{"expression"}},
	{"condition", []string{"expression", "then", "else"}},
	{"parallel", []string{"branches", "waitFor", "failureStrategy"}},
	{"wait", []string{"wait"}},
	{"fail", []string{"fail"}},
}

// actionFields are the fields that only steps have that call an action.
var actionFields = []string{"inputs", "prompt", "lens"}

const anAction = "that names an action"

// fieldsOf returns the fields that steps of a type have and not all others.
func fieldsOf(kind string) []string {
	for _, k := range kinds {
		if k.name == kind {
			return k.fields
		}
	}
	return actionFields
}

// ownersOf returns the types that have a field, or nil if all have it.
func ownersOf(field string) (owners []string) {
	for _, k := range kinds {
		if slices.Contains(k.fields, field) {
			owners = append(owners, k.name)
		}
	}
	if slices.Contains(actionFields, field) {
		owners = append(owners, anAction)
	}
	return owners
}

func isKind(name string) bool {
	for _, k := range kinds {
		if k.name == name {
			return true
		}
	}
	return false
}

// aliases notes where the fields of a step are in its stage.
func (n *Stage) aliases(src *form.Source, at, text string) {
	if at != text {
		src.Alias(at, text)
	}
	to := func(model, field string) { src.Alias(at+model, text+field) }
	to("/id", "/name")
	to("/name", "/label")
	to("/timeout", "/timeout_seconds")
	if n.When == "" {
		to("/when", "/condition")
	}
	switch n.Type {
	case "pipeline":
		n.childAliases(src, at, text)
	case "for_loop":
		for _, f := range []string{"/over", "/as", "/index", "/while", "/until", "/maxIterations", "/accumulate", "/steps", "/maxConcurrency", "/failureStrategy"} {
			to("/loop"+f, f)
		}
	case "set_variable", "transform":
		to("/transform/value", "/value")
		to("/transform/expression", "/expression")
	case "condition":
		for _, f := range []string{"/expression", "/then", "/else"} {
			to("/condition"+f, f)
		}
	case "parallel":
		for _, f := range []string{"/branches", "/waitFor", "/failureStrategy"} {
			to("/parallel"+f, f)
		}
	case "wait", "fail":
	default:
		to("/action/name", "/type")
		to("/action/version", "/type")
		to("/action/lens", "/lens")
		to("/action/parameters", "/inputs")
		to("/action/parameters/"+promptInput, "/prompt")
		to("/action", "/type")
	}
}

func (n *Stage) childAliases(src *form.Source, at, text string) {
	to := func(model, field string) { src.Alias(at+"/recipe"+model, text+field) }
	for _, f := range []string{"/inline", "/inputs", "/outputs", "/files", "/maxCredits", "/result"} {
		to(f, f)
	}
	to("/ref", "/pipeline_ref")
	to("/definition", "/pipeline_definition")
	to("/file", "/pipeline_file")
	if n.Inline == nil {
		to("/inline", "/pipeline")
	}
	if f := n.Config; f != nil {
		to("/limits", "/config")
		to("/workspace", "/config/workspace_dir")
		to("/inherit", "/config")
		to("/inputPolicy", "/config/input_policy")
		if f.TimeoutSeconds > 0 {
			src.Alias(at+"/timeout", text+"/config/timeout_seconds")
		}
		if f.MaxRetries > 0 {
			src.Alias(at+"/retryPolicy", text+"/config/max_retries")
		}
		if f.ContinueOnError {
			src.Alias(at+"/continue_on_error", text+"/config/continue_on_error")
		}
	}
}

// stepFields are what a reference to a step selects first in the model.
var stepFields = []string{"output", "result", "status", "error"}

// references matches comments, texts, fields of other things, has() of a part of a step, and selections of one.
var references = regexp.MustCompile(`//[^\n]*|` + text + `|\.\s*\w+|` +
	`\bhas\(\s*(` + aStep + `)(\.\w+)((?:\.\w+)*)\s*\)|` +
	aStep + `(\s*\.\s*\??\s*(\w+)|\[\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*\])?|\w+`)

const (
	text  = `[rR]"[^"]*"|[rR]'[^']*'|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'`
	aStep = `\bsteps(?:\s*\.\s*\w+|\[\s*(?:'[^'\\]*'|"[^"\\]*")\s*\])`
)

// nameResults has the recipe read the parts of results as others do: steps.name.field, which is
// steps.name.output.field (X37, X43). A step without output has no such part.
func nameResults(r *recipe.Recipe, src *form.Source) {
	(&texts.Rewriter{Source: src, Code: func(_ texts.Place, code string) (list []texts.Replacement) {
		if named(code) {
			return nil
		}
		for _, m := range references.FindAllStringSubmatchIndex(code, -1) {
			part := func(k int) string {
				if m[2*k] < 0 {
					return ""
				}
				return code[m[2*k]:m[2*k+1]]
			}
			switch field := part(5) + part(6) + part(7); {
			case part(1) != "" && !slices.Contains(stepFields, part(2)[1:]):
				end := m[5] // of what is selected, whose names keep their places
				if m[7] > end {
					end = m[7]
				}
				list = append(list, texts.Replacement{From: m[0], To: m[2], With: "(has(" + part(1) + ".output) && has("},
					texts.Replacement{From: m[3], To: m[3], With: ".output"}, texts.Replacement{From: end, To: m[1], With: "))"})
			case part(4) != "" && !slices.Contains(stepFields, field):
				output := ".output"
				if strings.Contains(part(4), "?") {
					output = ".?output"
				}
				list = append(list, texts.Replacement{From: m[8], To: m[8], With: output})
			}
		}
		return list
	}}).Recipe(r)
}

// named reports whether code surely names what steps have as others do: steps.name.output wherever it says steps.
func named(code string) bool {
	word := func(r rune) bool {
		return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	for {
		_, rest, more := strings.Cut(code, "steps")
		if !more {
			return true
		}
		behind := strings.TrimLeftFunc(strings.TrimPrefix(rest, "."), word) // the name
		code = strings.TrimLeftFunc(strings.TrimPrefix(behind, "."), word)
		field, ok := strings.CutPrefix(strings.TrimSuffix(behind, code), ".")
		if !ok || rest[0] != '.' || len(rest)-len(behind) < 2 || !slices.Contains(stepFields, field) {
			return false
		}
	}
}

// filtered reports whether what is between two braces has a filter.
func filtered(code string) bool {
	bars := strings.ReplaceAll(literal.ReplaceAllString(code, ""), "||", "")
	return strings.Contains(bars, "|")
}

var literal = regexp.MustCompile(text)

// typePattern is the pattern of types.
var typePattern = form.Match(`^[^@\s]+(@[0-9]+(\.[0-9]+){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?)?$`, `a type such as "pipeline", or the name of an action such as "claude" or "word-count@1"`)

var one = []any{m{"name": "one", "type": "set_variable", "value": 1}}

var rules = map[string]form.Rule{
	"Document.dialect":  {Doc: "Dialect of the text; without it, the keys determine the dialect.", Def: "determined by the keys", Enum: []string{"pipeline"}, Example: "pipeline"},
	"Document.workflow": {Doc: "The pipeline.", Required: true, Example: m{"name": "greet", "steps": one}},

	"Head.name":          {Doc: "Name under which the pipeline is registered and started.", Def: "that of the file without its extensions", Pattern: form.Text, Example: "analysis"},
	"Head.dialect":       {Doc: "The same as beside workflow.", Def: "determined by the keys", Enum: []string{"pipeline"}, Example: "pipeline"},
	"Settings.result":    {Doc: "What the result is without outputs and outputSchema: what outputBinding names, or the outputs of the steps by their names.", Def: "steps", Enum: []string{"bindings", "steps"}, Example: "bindings"},
	"Settings.values":    {Doc: "Any other field is a value that expressions read as workflow.<field>.", Def: "none"},
	"Settings.providers": {Doc: "Inputs of steps that call an action and do not give them, by action.", Def: "none", Example: m{"claude": m{"model": "small"}}},
	"Workflow.steps":     {Doc: "The steps, run in this order unless `order` or `dependsOn` say otherwise.", Required: true, Unless: "extends", MinItems: 1, Example: one},

	"Stage.name":      {Doc: "Name of the step for references, unique in the pipeline.", Required: true, Pattern: recipe.ID, Example: "analyze"},
	"Stage.type":      {Doc: "What the step does: pipeline, for_loop, set_variable, transform, condition, parallel, wait or fail; or the name of the action that it calls, or name@version.", Required: true, Pattern: typePattern, Example: "claude"},
	"Stage.label":     {Doc: "Name of the step for people.", Def: "the name", Example: "Analyze the data"},
	"Stage.condition": {Doc: "Expression, alone or in {{ }}; the step is skipped when it is false.", Def: "always", Pattern: form.Text, Example: "{{ steps.detect.result.type == 'text' }}"},

	"Stage.pipeline_file":       {Doc: "Path of the pipeline or recipe that it runs, relative to the file that names it and in its directory or below.", Def: "none", Pattern: form.Text, Example: "./pipelines/analysis.yaml"},
	"Stage.pipeline_ref":        {Doc: "Name of the registered pipeline or recipe that it runs, with a version or a range; also the name of this text. With a template the name is found when the step runs.", Def: "none", Pattern: recipe.RefTemplate, Example: "analysis@1"},
	"Stage.pipeline_definition": {Doc: "Expression for the pipeline or recipe that it runs, which a step has made: its text in any dialect, or its value. It inherits nothing.", Def: "none", Pattern: form.Text, Example: "steps.write.result"},
	"Stage.pipeline":            {Doc: "The pipeline that it runs.", Def: "none", Example: m{"steps": one}},
	"Stage.inline":              {Doc: "The recipe that it runs, in any dialect.", Document: true, Def: "none", Example: m{"name": "double", "steps": []any{m{"id": "one", "transform": m{"expression": "input.n * 2"}}}}},
	"Stage.inputs":              {Doc: "Inputs of the pipeline or of the action; text in them may contain {{ templates }}.", Def: "none", Example: m{"data": "{{ steps.load.result }}"}},
	"Stage.outputs":             {Doc: "Parts of the pipeline's result that become the step's output: names of its steps, or paths into what they gave.", Def: "the output of its last step", Item: &form.Rule{Short: "path"}, MinItems: 1, Example: []any{"final", m{"path": "analysis.metrics.accuracy", "as": "accuracy_score"}}},
	"Stage.config":              {Doc: "How the pipeline is run.", Def: "the defaults of its fields", Example: m{"timeout_seconds": 300, "max_retries": 2}},
	"Stage.files":               recipe.Table.Rules["Child.files"],
	"Stage.maxCredits":          recipe.Table.Rules["Child.maxCredits"],
	"Stage.result":              {Doc: "What the step gives without outputs: the pipeline's result, or, where that is the outputs of its steps, the last one alone.", Def: "last", Enum: []string{"result", "last"}, Example: "result"},
	"Stage.prompt":              {Doc: "The input prompt of an action such as claude or llm; may contain {{ templates }}.", Def: "none", Example: "Summarize: {{ inputs.text }}"},
	"Stage.lens":                recipe.Table.Rules["Action.lens"],

	"Stage.over":            {Doc: "Expression, alone or in {{ }}, for a list, or for a file that contains one (JSON array, JSONL, CSV).", Def: "none", Pattern: form.Text, Example: "{{ steps.split.result.parts }}"},
	"Stage.as":              recipe.Table.Rules["Loop.as"],
	"Stage.index":           recipe.Table.Rules["Loop.index"],
	"Stage.while":           {Doc: "Expression, alone or in {{ }}, that is checked before each iteration; the loop ends when it is false. It sees the index and what is accumulated.", Def: "none", Pattern: form.Text, Example: "{{ index < 3 }}"},
	"Stage.until":           {Doc: "Expression, alone or in {{ }}, that is checked after each iteration that has completed; the loop ends when it is true. It sees the steps of the iteration. With over it ends the loop before the last item.", Def: "none", Pattern: form.Text, Example: "{{ poll.result.done }}"},
	"Stage.maxIterations":   recipe.Table.Rules["Loop.maxIterations"],
	"Stage.accumulate":      recipe.Table.Rules["Loop.accumulate"],
	"Stage.steps":           {Doc: "Steps to run for each item or iteration.", Def: "none", MinItems: 1, Example: one},
	"Stage.maxConcurrency":  recipe.Table.Rules["Loop.maxConcurrency"],
	"Stage.failureStrategy": {Doc: "The effect of a failed item or branch on the others.", Def: "fail_fast", Enum: []string{"fail_fast", "continue", "ignore"}, Example: "ignore"},

	"Stage.value":      {Doc: "The value that the variable has; text in it may contain {{ templates }}.", Def: "none", Example: "Hello {{ inputs.who }}"},
	"Stage.expression": {Doc: "Expression for the value of a transform, or for whether a condition runs then or else.", Def: "none", Pattern: form.Text, Example: "steps.load.result.pages > 1"},
	"Stage.then":       {Doc: "Steps to run when the expression is true.", Def: "none", Example: one},
	"Stage.else":       {Doc: "Steps to run when the expression is false.", Def: "none", Example: one},
	"Stage.branches":   {Doc: "Lists of steps; each list is a sequence, the lists run at the same time.", Def: "none", MinItems: 1, Example: []any{one}},
	"Stage.waitFor":    {Doc: "Which branches decide the step.", Def: "all", Enum: []string{"all", "any", "first_success"}, Example: "any"},
	"Stage.wait":       recipe.Table.Rules["Step.wait"],
	"Stage.fail":       recipe.Table.Rules["Step.fail"],

	"Stage.dependsOn":       {Doc: "Names of the steps this one waits for; an empty list for none.", Def: "the step before it", Item: &form.Rule{Pattern: recipe.ID}, Example: []any{"load"}},
	"Stage.retryPolicy":     recipe.Table.Rules["Step.retryPolicy"],
	"Stage.timeout_seconds": form.Number("How long one attempt may take.", "600 of an action; none of another step", 0.001, 31_536_000, 300),

	"Config.inherit_context":    {Doc: "Whether the pipeline may name what this one has and it has not: inputs, steps, bindings, values of workflow. It gets their values when it starts, and cannot change them.", Def: "false", Example: true},
	"Config.inherit_providers":  {Doc: "Whether the providers of this pipeline are those of the other one, where it has none itself.", Def: "false", Example: true},
	"Config.inherit_functions":  {Doc: "Whether the pipeline may call the functions of this one.", Def: "false", Example: true},
	"Config.input_policy":       recipe.Table.Rules["Child.inputPolicy"],
	"Config.workspace_dir":      recipe.Table.Rules["Child.workspace"],
	"Config.checkpoint_enabled": {Doc: "Whether a pipeline that has failed goes on where it failed when the step is tried again, instead of beginning anew.", Def: "false", Example: true},
	"Config.timeout_seconds":    form.Number("How long one run of the pipeline may take.", "the run's ttl", 0.001, 31_536_000, 300),
	"Config.max_retries":        form.Number("How often a pipeline that has failed is run again.", "0", 0, 999, 2),
	"Config.continue_on_error":  {Doc: "Whether this pipeline goes on when the other one has failed.", Def: "false", Example: true},
	"Config.max_depth":          recipe.Table.Rules["ChildLimits.max_depth"],
	"Config.max_total_steps":    recipe.Table.Rules["ChildLimits.max_total_steps"],
	"Config.memory_limit_mb":    recipe.Table.Rules["ChildLimits.memory_limit_mb"],
}

// needs are the constraints that types have the fields without which they mean nothing.
func needs() (list []form.Constraint) {
	for _, f := range [][2]string{{"for_loop", "steps"}, {"set_variable", "value"}, {"transform", "expression"}, {"condition", "expression"}, {"condition", "then"}, {"parallel", "branches"}, {"wait", "wait"}} {
		list = append(list, form.Constraint{Field: "type", Value: f[0], Needs: f[1]})
	}
	return append(list, form.Constraint{Field: "type", Value: "for_loop", AnyOf: recipe.LoopKinds})
}

// Form is how a pipeline is written.
var Form = form.New[Document](recipe.Table.With(&form.Table{
	Rules:       rules,
	Constraints: map[string][]form.Constraint{"Stage": needs()},
	Nouns:       map[string]string{"Document": "a pipeline", "Workflow": "a workflow", "Stage": "a step", "Config": "the config of a step"},
	Before:      map[string][][2]string{"Document": {{"dialect", "workflow"}}, "Workflow": {{"dialect", "name"}, {"inputSchema", "steps"}, {"inputPolicy", "steps"}, {"functions", "steps"}, {"providers", "steps"}, {"values", "steps"}}, "Stage": {{"when", "pipeline_file"}}},
	Also:        map[string]form.Also{"Step": {Key: "type", Type: stageType}},
	Rest:        map[string]string{"Workflow": "values"},
}))
