// SPDX-License-Identifier: Apache-2.0

package recipe

import "github.com/roux-engine/roux/internal/compile/form"

var (
	// ID is the pattern of ids.
	ID             = form.Match(`^[A-Za-z0-9_-]{1,64}$`, "1 to 64 letters, digits, _ or -")
	bindingPattern = form.Match(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`, "a name of up to 64 letters, digits or _, beginning with a letter or _")
	semverPattern  = form.Match(
		`^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`,
		`a version such as "1.0.0"`,
	)
	versionPattern = form.Match(
		`^[0-9]+(\.[0-9]+){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`,
		`a version such as "1.0.0" or a range such as "1" or "1.2"`,
	)
	refPattern = form.Match(
		`^[^@]*[^@\s][^@]*(@[0-9]+(\.[0-9]+){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?)?$`,
		`the name of a recipe such as "digest", or with a version or range such as "digest@1.2"`,
	)
	// RefTemplate is refPattern, or a text with a template.
	RefTemplate = form.Match(
		`^([^@]*[^@\s][^@]*(@[0-9]+(\.[0-9]+){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?)?|[\s\S]*\{[{%][\s\S]*)$`,
		`the name of a recipe such as "digest", with a version or range such as "digest@1.2", or a template that gives one`,
	)
	pathPattern   = form.Match(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,31}$`, `names with dots between them, such as "report.summary"`)
	amountPattern = form.Match(`^[0-9]{1,12}(\.[0-9]{1,6})?$`, `an amount of credits such as "0.25"`)
	codePattern   = form.Match(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`, `a code such as "DOCUMENT_TOO_LARGE"`)
)

type m = map[string]any

// step returns a step for an example.
func step(id, kind string, v any) m { return m{"id": id, kind: v} }

// maxInteger is the largest integer that every JSON reader represents exactly.
const maxInteger = 1<<53 - 1

// rules has one entry for every field of the model, by type and JSON name.
var rules = map[string]form.Rule{
	"Head.id":                      {Doc: "Identifier given by the server or the author.", Def: "none", Pattern: ID, Example: "recipe_pdf_digest"},
	"Head.name":                    {Doc: "Name under which the recipe is registered and started.", Required: true, Pattern: form.Text, Example: "document-digest"},
	"Head.version":                 {Doc: "Semantic version of the definition.", Def: "0.0.0", Pattern: semverPattern, Example: "1.0.0"},
	"Head.description":             {Doc: "What the recipe does, for people.", Def: "none", Example: "Reads a document and lists its pages."},
	"Head.category":                {Doc: "A word to group recipes by.", Def: "none", Example: "document-processing"},
	"Head.status":                  {Doc: "Only active and deprecated recipes run; a draft does with --draft.", Def: "active", Enum: []string{"draft", "active", "deprecated"}, Example: "draft"},
	"Head.createdAt":               {Doc: "When it was created, RFC 3339. Kept, not used.", Def: "none", Example: "2026-11-24T09:30:00Z"},
	"Head.updatedAt":               {Doc: "When it was last changed, RFC 3339. Kept, not used.", Def: "none", Example: "2026-11-25T10:00:00Z"},
	"Head.createdBy":               {Doc: "Account that created it. Kept, not used.", Def: "none", Example: "acc_1"},
	"Head.dialect":                 {Doc: "Dialect of the definition; without it, the keys determine the dialect.", Def: "determined by the keys", Enum: []string{"recipe"}, Example: "recipe"},
	"Head.extends":                 {Doc: "Recipes whose steps, values, functions and other parts are parts of this one, in this order and before its own.", Def: "none", Item: &form.Rule{Short: "file"}, Example: []any{"./base.yaml", m{"file": "./report.yaml", "with": m{"region": "eu"}}}},
	"Head.override":                {Doc: "What this text has in place of what it extends: ids of steps, and values.NAME, functions.NAME, outputs.NAME, providers.NAME, inputSchema.NAME.", Def: "nothing", Item: &form.Rule{Pattern: form.Text}, Example: []any{"check", "values.threshold"}},
	"Head.templateParameters":      {Doc: "JSON Schemas of values that a recipe that extends this one gives it, by name; with the keyword `default` it need not. Expressions read them as workflow.NAME.", Def: "none", Item: &form.Rule{Shape: form.JSONSchema}, Example: m{"region": m{"type": "string", "default": "us"}}},
	"Base.file":                    {Doc: "Path of the recipe, relative to the file that names it and in its directory or below.", Def: "none", Pattern: form.Text, Example: "./base.yaml"},
	"Base.ref":                     {Doc: "Name of a registered recipe, with a version or a range.", Def: "none", Pattern: refPattern, Example: "base@1.2"},
	"Base.with":                    {Doc: "Values of its template parameters.", Def: "their defaults", Example: m{"region": "eu"}},
	"Recipe.steps":                 {Doc: "The steps, run in this order unless `order` or `dependsOn` say otherwise.", Required: true, Unless: "extends", MinItems: 1, Example: []any{step("one", "transform", m{"expression": "1"})}},
	"Settings.inputSchema":         {Doc: "JSON Schema 2020-12 of the run's input.", Def: "any input", Shape: form.JSONSchema, Example: m{"properties": m{"url": m{"type": "string"}}, "required": []any{"url"}}},
	"Settings.inputPolicy":         {Doc: "What happens to an input with texts that a shell would expand, ${…}, $(…) or backticks: reject refuses it, strip removes them.", Def: "keep", Enum: policies, Example: "reject"},
	"Settings.outputSchema":        {Doc: "JSON Schema 2020-12 of the run's result.", Def: "any result", Shape: form.JSONSchema, Example: m{"properties": m{"pages": m{"type": "integer"}}}},
	"Settings.outputs":             {Doc: "The result's fields, each a CEL expression over the steps.", Def: "an empty result", Example: map[string]any{"pages": "inspection.pages"}},
	"Settings.result":              {Doc: "What the result is without outputs and outputSchema: what outputBinding names, or the outputs of the steps by their ids.", Def: "bindings", Enum: []string{"bindings", "steps"}, Example: "steps"},
	"Settings.service_retry":       {Doc: "How steps are retried that say nothing of it and whose actions call a service over the network.", Def: "one attempt", Example: m{"maxAttempts": 3, "initialDelay": "1s", "maxDelay": "60s"}},
	"Settings.creditEstimation":    {Doc: "Estimate of what a run may cost, reserved before it starts.", Def: "the costs of the actions", Example: m{"strategy": "fixed", "fixedCredits": 50}},
	"Settings.values":              {Doc: "Fields of `workflow` for expressions, besides name and version.", Def: "none", Example: m{"threshold": 0.5}},
	"Settings.functions":           {Doc: "Functions that expressions may call, by name.", Def: "none", Example: m{"half": m{"params": []any{"x"}, "expression": "x / 2"}}},
	"Settings.providers":           {Doc: "Parameters of steps that call an action and do not give them, by action.", Def: "none", Example: m{"llm": m{"model": "small", "temperature": 0.2}}},
	"Function.params":              {Doc: "Names of the parameters, in order.", Def: "none", Item: &form.Rule{Pattern: bindingPattern}, Example: []any{"x"}},
	"Function.expression":          {Doc: "CEL expression over the parameters.", Required: true, Pattern: form.Text, Example: "x / 2"},
	"Settings.order":               {Doc: "Whether a step without dependsOn waits for the step before it.", Def: "sequence", Enum: []string{"sequence", "none"}, Example: "none"},
	"Settings.scheduling":          {Doc: "eager starts a step as soon as it can; waves waits until the whole wave before has settled.", Def: "eager", Enum: []string{"eager", "waves"}, Example: "waves"},
	"Settings.failure_policy":      {Doc: "After a step has failed: fail_fast cancels the other steps, drain lets those finish that do not depend on it.", Def: "fail_fast", Enum: []string{"fail_fast", "drain"}, Example: "drain"},
	"Settings.on_upstream_failure": {Doc: "What happens to steps that depend on a failed one.", Def: "skip", Enum: []string{"skip", "fail"}, Example: "fail"},
	"Settings.result_rule":         {Doc: "strict: any failed step fails the run; leaves: only failed last steps do.", Def: "strict", Enum: []string{"strict", "leaves"}, Example: "leaves"},
	"Settings.credit_policy":       {Doc: "What a failed run is charged.", Def: "refund_unused", Enum: []string{"refund_unused", "refund_all", "no_refund"}, Example: "refund_all"},
	"Settings.ttl":                 {Doc: "How long a run may take before it expires.", Def: "48h", Positive: true, Example: "2h"},
	"Settings.limits":              {Doc: "Limits of a run, up to the operator's maxima.", Def: "those of the operator of Roux", Example: m{"max_loop_items": 500}},

	"Limits.max_total_steps":     form.Number("Steps a run and its child runs may start.", "100000", 1, 1_000_000, 2000),
	"Limits.max_loop_items":      form.Number("Items one loop may have.", "100000", 1, 1_000_000, 500),
	"Limits.max_scope_depth":     form.Number("How deep scopes may nest.", "32", 1, 64, 8),
	"Limits.max_depth":           form.Number("Levels of child runs below a run of this recipe.", "10", 1, 32, 3),
	"Limits.memory_limit_mb":     form.Number("Counted memory of a run in MiB.", "256", 1, 4096, 64),
	"Limits.max_expression_cost": form.Number("What evaluating one expression or template may cost: one for each operation, each 64 bytes read and each 16 bytes written.", "100000", 1, 1_000_000, 500000),

	"Step.id":                  {Doc: "Name of the step for references, unique in the recipe.", Def: "generated", Pattern: ID, Example: "fetch"},
	"Step.name":                {Doc: "Name of the step for people.", Def: "the id", Example: "Fetch the page"},
	"Step.type":                {Doc: "What the step does.", Def: "follows from the field that is present", Enum: stepKinds, Example: "action"},
	"Step.action":              {Doc: "Calls an action.", Def: "none", Example: m{"name": "word-count", "parameters": m{"text": "one two"}}},
	"Step.condition":           {Doc: "Runs one of two lists of steps.", Def: "none", Example: m{"expression": "input.n > 10", "then": []any{step("one", "transform", m{"expression": "1"})}}},
	"Step.parallel":            {Doc: "Runs branches at the same time.", Def: "none", Example: m{"branches": []any{[]any{step("one", "transform", m{"expression": "1"})}, []any{step("two", "transform", m{"expression": "2"})}}}},
	"Step.transform":           {Doc: "Computes a value without an action.", Def: "none", Example: m{"expression": "size(input.urls)"}},
	"Step.loop":                {Doc: "Runs its steps once per item of a list.", Def: "none", Example: m{"over": "input.urls", "as": "url", "steps": []any{step("one", "transform", m{"expression": "size(url)"})}}},
	"Step.wait":                {Doc: "Waits for a time, a signal or a person.", Def: "none", Example: m{"duration": "30s"}},
	"Step.fail":                {Doc: "Ends the scope with a failure.", Def: "none", Example: m{"code": "TOO_LARGE", "message": "it has too many pages"}},
	"Step.recipe":              {Doc: "Runs another recipe as a run of its own.", Def: "none", Example: m{"ref": "document-digest@1", "inputs": m{"language": "en"}}},
	"Common.when":              {Doc: "CEL expression; the step is skipped when it is false.", Def: "always", Pattern: form.Text, Example: "inspection.pages > 1"},
	"Step.dependsOn":           {Doc: "Ids of the steps this one waits for; an empty list for none.", Def: "the step before it", Item: &form.Rule{Pattern: ID}, Example: []any{"fetch", "count"}},
	"Common.inputBindings":     {Doc: "Inputs of the action or recipe, each a CEL expression over what came before, or several whose values are merged.", Def: "none", Item: &form.Rule{Short: "expression"}, Example: m{"text": "markdown.content"}},
	"Common.outputBinding":     {Doc: "Name under which later steps see this step's output.", Def: "none", Pattern: bindingPattern, Example: "markdown"},
	"Common.onError":           {Doc: "What to do when the last attempt has failed.", Def: "the scope fails", Example: m{"strategy": "skip"}},
	"Step.retryPolicy":         {Doc: "When and how often to try again.", Def: "one attempt", Example: m{"maxAttempts": 3, "initialDelay": "1s"}},
	"Step.timeout":             {Doc: "How long one attempt may take.", Def: "10m of an action; none of another step", Positive: true, Example: "5m"},
	"Common.total_timeout":     {Doc: "How long the step may take over all attempts and waits.", Def: "none", Positive: true, Example: "1h"},
	"Common.continue_on_error": {Doc: "A failure of this step does not fail its scope.", Def: "false", Example: true},
	"Common.on_parent_failure": {Doc: "What to do when a step this one depends on did not succeed.", Def: "propagate", Enum: []string{"propagate", "skip", "substitute_default"}, Example: "skip"},
	"Common.compensate":        {Doc: "Undoes the completed step when the run fails, is cancelled or expires.", Def: "none", Example: m{"action": m{"name": "http"}, "inputBindings": m{"url": "input.undo"}}},
	"Common.contracts":         {Doc: "JSON Schemas that the step's input and output must fit.", Def: "none", Example: m{"output": m{"required": []any{"words"}}}},
	"Common.moderation":        {Doc: "Has moderators look at the action's input, its output or both before anything of it is shown or used.", Def: "none", Short: "phase", Example: "output"},

	"Common.cache": {Doc: "Uses an earlier result of the same action for the same input, instead of calling the action; true stands for the defaults.", Def: "the action is called", Toggle: true, Example: m{"ttl": "24h"}},

	"Binding.expression": {Doc: "CEL expression for the value.", Def: "none", Pattern: form.Text, Example: "markdown.content"},
	"Binding.from":       {Doc: "The values that are merged, in this order.", Def: "none", Item: &form.Rule{Short: "expression"}, MinItems: 1, Example: []any{"draft.text", m{"expression": "review.text", "label": "review"}}},
	"Binding.merge":      {Doc: "How values become one: the last of them, their texts with an empty line between, the JSON of a list, or the JSON of an object with their labels.", Def: "last_write_wins", Enum: Merges, Example: "concat"},

	"Part.expression": {Doc: "CEL expression for the value.", Required: true, Pattern: form.Text, Example: "draft.text"},
	"Part.label":      {Doc: "Name of the value in a json_object.", Def: "the step or name that the expression begins with", Pattern: form.Text, Example: "draft"},

	"Action.name":       {Doc: "Name of the action.", Required: true, Pattern: form.Text, Example: "file-inspect"},
	"Action.version":    {Doc: "Version or range of versions.", Def: "the active version", Pattern: versionPattern, Example: "1.0.0"},
	"Action.lens":       {Doc: "Registered prompt, for actions that ask a model; inputBindings give its placeholders their values, which are else the run's inputs of these names.", Def: "none", Short: "id", Example: "summarize"},
	"Action.parameters": {Doc: "Fixed inputs; text in them may contain {{ templates }}.", Def: "none", Example: m{"text": "Hello {{ input.who }}"}},

	"Lens.id":      {Doc: "Id of the lens.", Required: true, Pattern: form.Text, Example: "summarize"},
	"Lens.version": {Doc: "Version of the lens.", Def: "the current one when the run starts", Pattern: form.Text, Example: "2"},

	"Condition.expression": {Doc: "CEL expression that is true or false.", Required: true, Pattern: form.Text, Example: "inspection.pages <= 100"},
	"Condition.then":       {Doc: "Steps to run when it is true.", Required: true, Example: []any{step("large", "transform", m{"expression": "'large'"})}},
	"Condition.else":       {Doc: "Steps to run when it is false.", Def: "none", Example: []any{step("small", "transform", m{"expression": "'small'"})}},

	"Parallel.branches":        {Doc: "Lists of steps; each list is a sequence, the lists run at the same time.", Required: true, MinItems: 1, Example: []any{[]any{step("one", "transform", m{"expression": "1"})}, []any{step("two", "transform", m{"expression": "2"})}}},
	"Parallel.waitFor":         {Doc: "Which branches decide the step.", Def: "all", Enum: []string{"all", "any", "first_success"}, Example: "any"},
	"Parallel.failureStrategy": {Doc: "The effect of a failed branch on the others.", Def: "fail_fast", Enum: []string{"fail_fast", "continue", "ignore"}, Example: "continue"},

	"Transform.expression":    {Doc: "CEL expression for the value.", Def: "none", Pattern: form.Text, Example: "inspection.pages * 2"},
	"Transform.value":         {Doc: "The value itself; text in it may contain {{ templates }}.", Def: "none", Example: m{"title": "About {{ input.topic }}"}},
	"Transform.outputBinding": {Doc: "Name under which later steps see the value.", Def: "none", Pattern: bindingPattern, Example: "pages"},

	"Loop.over":            {Doc: "CEL expression for a list, or for a file that contains one (JSON array, JSONL, CSV).", Def: "none", Pattern: form.Text, Example: "input.urls"},
	"Loop.as":              {Doc: "Name of the current item.", Def: "item", Pattern: bindingPattern, Example: "url"},
	"Loop.index":           {Doc: "Name of the current position, counted from 0.", Def: "index", Pattern: bindingPattern, Example: "n"},
	"Loop.while":           {Doc: "CEL expression that is checked before each iteration; the loop ends when it is false. It sees the index and what is accumulated.", Def: "none", Pattern: form.Text, Example: "index < 3"},
	"Loop.until":           {Doc: "CEL expression that is checked after each iteration that has completed; the loop ends when it is true. It sees the steps of the iteration. With over it ends the loop before the last item.", Def: "none", Pattern: form.Text, Example: "poll.output.done"},
	"Loop.maxIterations":   form.Number("How many iterations a loop without over may run; it fails with ITERATION_LIMIT if its condition then asks for another one. It needs this.", "none", 1, 1_000_000, 100),
	"Loop.accumulate":      {Doc: "A value that each iteration gets from those before it.", Def: "none", Example: m{"as": "total", "initial": 0, "expression": "total + item.price"}},
	"Loop.steps":           {Doc: "Steps to run for each item or iteration.", Required: true, MinItems: 1, Example: []any{step("one", "transform", m{"expression": "item"})}},
	"Loop.maxConcurrency":  form.Number("How many items may run at once.", "1", 1, 10_000, 4),
	"Loop.failureStrategy": {Doc: "The effect of a failed item on the others.", Def: "fail_fast", Enum: []string{"fail_fast", "continue", "ignore"}, Example: "ignore"},

	"Accumulate.as":         {Doc: "Name of the value in the loop.", Required: true, Pattern: bindingPattern, Example: "total"},
	"Accumulate.initial":    {Doc: "The value before the first iteration; text in it may contain {{ templates }}.", Def: "null", Example: 0},
	"Accumulate.expression": {Doc: "CEL expression for the value after an iteration that has completed; it sees the steps of the iteration and the value before.", Required: true, Pattern: form.Text, Example: "total + item.price"},

	"Wait.duration": {Doc: "How long to wait.", Def: "none", Positive: true, Example: "30s"},
	"Wait.until":    {Doc: "CEL expression for the time to wait for.", Def: "none", Pattern: form.Text, Example: "now() + duration('1h')"},
	"Wait.signal":   {Doc: "Name of the signal to wait for.", Def: "none", Pattern: ID, Example: "approved"},
	"Wait.approval": {Doc: "Asks a person.", Def: "none", Example: m{"title": "Publish {{ input.name }}?"}},
	"Wait.timeout":  {Doc: "How long to wait for the signal or the person.", Def: "the run's ttl", Positive: true, Example: "24h"},
	"Wait.default":  {Doc: "Answer to the approval that applies at the time-out, with decision, comment and values.", Def: "none, and the step fails", Example: m{"decision": "rejected", "comment": "nobody answered"}},

	"Approval.title":     {Doc: "What is asked, in a line; may contain {{ templates }}.", Required: true, Pattern: form.Text, Example: "Publish {{ input.name }}?"},
	"Approval.text":      {Doc: "More about it; may contain {{ templates }}.", Def: "none", Example: "The report has {{ input.pages }} pages."},
	"Approval.form":      {Doc: "JSON Schema 2020-12 of an object: what who approves fills in.", Def: "nothing is filled in", Shape: form.JSONSchema, Example: m{"properties": m{"budget": m{"type": "number"}}, "required": []any{"budget"}}},
	"Approval.value":     {Doc: "A value that is shown; text in it may contain {{ templates }}.", Def: "none", Example: "{{ input.report }}"},
	"Approval.approvers": {Doc: "Names of keys that may answer, and role:NAME for all keys with a role.", Def: "every key that may answer approvals", Item: &form.Rule{Pattern: form.Text}, MinItems: 1, Example: []any{"ana", "role:owner"}},
	"Approval.remind":    {Doc: "How often those who watch the run are told again, from 1m on.", Def: "never", Positive: true, Example: "4h"},
	"Approval.reject":    {Doc: "The effect of a rejection: the run continues with it as output, or the step fails.", Def: "continue", Enum: []string{"continue", "fail"}, Example: "fail"},

	"Fail.code":    {Doc: "Code of the failure.", Def: "STEP_FAILED", Pattern: codePattern, Example: "DOCUMENT_TOO_LARGE"},
	"Fail.message": {Doc: "Why, for people; may contain {{ templates }}.", Def: "none", Example: "{{ size(input.list) }} entries, 100 are allowed"},

	"OnError.strategy":     {Doc: "fail ends the scope; skip continues without the step; fallback runs another step; retry tries again.", Required: true, Enum: []string{"fail", "skip", "fallback", "retry"}, Example: "fallback"},
	"OnError.fallbackStep": {Doc: "Step to run in place of the failed one.", Def: "none", Example: step("instead", "transform", m{"expression": "0"})},
	"OnError.maxRetries":   form.Number("How often to try again before the strategy applies.", "2 for the strategy retry, so three attempts in total; else 0", 1, 1000, 1),
	"OnError.retryDelay":   {Doc: "Pause before the first retry.", Def: "500ms", Example: "2s"},

	"Child.ref":         {Doc: "Name of a registered recipe, with a version or a range; the newest that fits is found when the run starts. With a template it is found when a run of the tree first runs it.", Def: "none", Pattern: RefTemplate, Example: "document-digest@1.2"},
	"Child.file":        {Doc: "Path of a recipe, relative to the file that names it and in its directory or below.", Def: "none", Pattern: form.Text, Example: "./digest.yaml"},
	"Child.inline":      {Doc: "The recipe itself, in any dialect.", Document: true, Def: "none", Example: m{"name": "double", "steps": []any{step("one", "transform", m{"expression": "input.n * 2"})}, "outputs": m{"n": "steps.one.output"}}},
	"Child.definition":  {Doc: "CEL expression for a recipe: its text in any dialect, or its value. It is compiled when the step runs, and inherits nothing.", Def: "none", Pattern: form.Text, Example: "steps.write.output"},
	"Child.inputs":      {Doc: "Fixed inputs of the child run; text in them may contain {{ templates }}.", Def: "none", Example: m{"language": "en", "text": "{{ input.text }}"}},
	"Child.inputPolicy": {Doc: "What happens to inputs of the child with texts that a shell would expand, ${…}, $(…) or backticks: reject fails the step, strip removes them. The child's own policy applies, too.", Def: "keep", Enum: policies, Example: "strip"},
	"Child.files":       {Doc: "CEL expression for the list of the child run's files.", Def: "no files", Pattern: form.Text, Example: "fileHashes"},
	"Child.outputs":     {Doc: "Parts of the child's result that become the step's output.", Def: "the whole result", Item: &form.Rule{Short: "path"}, MinItems: 1, Example: []any{"summary", m{"path": "report.pages", "as": "pages"}}},
	"Child.result":      {Doc: "What the step gives without outputs: the child's result, or, where that is the outputs of its steps by their ids, the last one alone.", Def: "result", Enum: []string{"result", "last"}, Example: "last"},
	"Child.inherit":     {Doc: "What a child in a file or in this text may use of this one: context (names that it has not itself: inputs, bindings, steps, values of workflow), providers and functions.", Def: "nothing", Item: &form.Rule{Enum: []string{InheritContext, InheritProviders, InheritFunctions}}, Example: []any{"context"}},
	"Child.limits":      {Doc: "Limits of the child run and of those below it.", Def: "those of the run", Example: m{"max_depth": 3}},
	"Child.maxCredits":  form.Number("Credits that the child run and those below it may use.", "what the run may use", 1, maxInteger, 100),
	"Child.resume":      {Doc: "Whether another try after a failure goes on in the same child run: what has completed stays, and what failed runs again. Otherwise each try is a child run of its own, from the beginning.", Def: "false", Example: true},
	"Child.workspace":   {Doc: "Directory of the child run, and of those below it: a path in one that is the run's alone and is removed with it. ${step.name} is the id of this step.", Def: "none", Pattern: form.Text, Example: "./nested/${step.name}"},

	"Output.path":    {Doc: "Field of the child's result, or a path into it with dots between the names.", Required: true, Pattern: pathPattern, Example: "analysis.accuracy"},
	"Output.as":      {Doc: "Name of the field in the step's output.", Def: "the last name of the path", Pattern: bindingPattern, Example: "accuracy"},
	"Output.extract": {Doc: "Fields of the value at the path; each becomes a field of the step's output.", Def: "none", Item: &form.Rule{Pattern: ID}, MinItems: 1, Example: []any{"summary", "recommendations"}},

	"ChildLimits.max_depth":       form.Number("How deep the run, and those that it starts, may stand in the tree of runs; the first run has depth 0. A recipe may run itself only with this limit.", "that of the run", 1, 32, 3),
	"ChildLimits.max_total_steps": form.Number("Steps the child run and those below it may start.", "what is left to the run", 1, 1_000_000, 500),
	"ChildLimits.memory_limit_mb": form.Number("Counted memory of the child run and of those below it in MiB.", "what is left to the run", 1, 4096, 64),

	"RetryPolicy.maxAttempts":       form.Number("Attempts in total, the first included.", "1", 1, 1000, 3),
	"RetryPolicy.initialDelay":      {Doc: "Pause after the first failure.", Def: "500ms", Example: "1s"},
	"RetryPolicy.maxDelay":          {Doc: "Longest pause.", Def: "8s", Example: "30s"},
	"RetryPolicy.backoffMultiplier": form.Number("Factor from one pause to the next.", "2", 1, 100, 1.5),
	"RetryPolicy.jitter":            form.Number("Part of the pause that is random.", "0.5", 0, 1, 0),
	"RetryPolicy.retryableErrors":   {Doc: "Codes or causes to retry.", Def: "those for which another attempt can succeed", Item: &form.Rule{Pattern: form.Text}, Example: []any{"TIMEOUT", "SERVICE_UNAVAILABLE"}},

	"Compensate.action":        {Doc: "Action that undoes the step.", Required: true, Example: m{"name": "http", "parameters": m{"method": "DELETE"}}},
	"Compensate.inputBindings": {Doc: "The action's inputs, each a CEL expression; the step's own output is visible.", Def: "none", Item: &form.Rule{Short: "expression"}, Example: m{"url": "input.service + '/' + book.output.id"}},
	"Compensate.retryPolicy":   {Doc: "When and how often to try again.", Def: "one attempt", Example: m{"maxAttempts": 3}},
	"Compensate.timeout":       {Doc: "How long one attempt may take.", Def: "10m", Positive: true, Example: "1m"},

	"Contracts.input":  {Doc: "JSON Schema 2020-12 of the step's input.", Def: "any input", Shape: form.JSONSchema, Example: m{"required": []any{"text"}}},
	"Contracts.output": {Doc: "JSON Schema 2020-12 of the step's output.", Def: "any output", Shape: form.JSONSchema, Example: m{"required": []any{"words"}}},

	"Moderation.phase":  {Doc: "What moderators look at.", Required: true, Enum: []string{"input", "output", "both", "none"}, Example: "both"},
	"Moderation.by":     {Doc: "Names of moderators of the configuration; all of them must pass it.", Def: "all that are configured", Item: &form.Rule{Pattern: ID}, MinItems: 1, Example: []any{"words"}},
	"Moderation.stream": {Doc: "When streamed text is shown: sentence by sentence once each has passed, or held until the whole output has.", Def: "sentence", Enum: []string{"sentence", "hold"}, Example: "hold"},
	"Moderation.review": {Doc: "Has people decide on what is flagged: they approve, edit or reject it. Without it what is flagged fails the step.", Def: "none", Example: m{"timeout": "8h"}},

	"Review.by":      {Doc: "Who may decide: names of keys, or role:NAME for every key with that role.", Def: "every key that may answer requests", Item: &form.Rule{Pattern: form.Text}, MinItems: 1, Example: []any{"role:approver"}},
	"Review.timeout": {Doc: "How long they have; then the step fails.", Def: "24h", Positive: true, Example: "8h"},
	"Review.remind":  {Doc: "How often they are reminded.", Def: "never", Positive: true, Example: "1h"},

	"Cache.ttl":   {Doc: "How old a result may be, at most 30 days.", Def: "24h", Positive: true, Example: "1h"},
	"Cache.key":   {Doc: "CEL expression for what must be the same besides the input.", Def: "none", Pattern: form.Text, Example: "input.edition"},
	"Cache.price": {Doc: "Credits that an earlier result costs, at most what the action costs.", Def: "0", Shape: form.Amount, Pattern: amountPattern, Example: "0.1"},

	"CreditEstimation.strategy":       {Doc: "How the estimate is made.", Required: true, Enum: []string{"fixed", "per_file", "calculated"}, Example: "fixed"},
	"CreditEstimation.fixedCredits":   form.Number("Credits per run, for the strategy fixed.", "none", 0, maxInteger, 50),
	"CreditEstimation.perFileCredits": form.Number("Credits per input file, for the strategy per_file.", "none", 0, maxInteger, 25),
	"CreditEstimation.formula":        {Doc: "CEL expression for the credits, for the strategy calculated.", Def: "none", Pattern: form.Text, Example: "10 + inspection.pages * 5"},
	"CreditEstimation.maxCredits":     form.Number("Maximum that is reserved.", "the estimate, and a quarter more for the strategy calculated", 1, maxInteger, 1000),
}

// Merges are the ways to make one value of several (X66–X69), the default first.
var Merges = []string{"last_write_wins", "concat", "array", "json_object"}

// LoopKinds are the fields of which a loop has one: they say how often it runs.
var LoopKinds = []string{"over", "while", "until"}

// stepKinds are the kind fields of a step, which are also the values of its type.
var stepKinds = []string{"action", "condition", "parallel", "transform", "loop", "wait", "fail", "recipe"}

var constraints = map[string][]form.Constraint{
	"Step":      {{OneOf: stepKinds, KindField: "type"}},
	"Binding":   bindingConstraints(),
	"Child":     {{OneOf: []string{"ref", "file", "inline", "definition"}}},
	"Base":      {{OneOf: []string{"ref", "file"}}},
	"Transform": {{OneOf: []string{"expression", "value"}}},
	"Loop":      {{AnyOf: LoopKinds}},
	"Wait":      {{OneOf: []string{"duration", "until", "signal", "approval"}}},
	"OnError":   {{Field: "strategy", Value: "fallback", Needs: "fallbackStep"}},
	"CreditEstimation": {
		{Field: "strategy", Value: "fixed", Needs: "fixedCredits"},
		{Field: "strategy", Value: "per_file", Needs: "perFileCredits"},
		{Field: "strategy", Value: "calculated", Needs: "formula"},
	},
}

// bindingConstraints are those of bindings: only several values are merged.
func bindingConstraints() []form.Constraint {
	list := []form.Constraint{{OneOf: []string{"expression", "from"}}}
	for _, merge := range Merges {
		list = append(list, form.Constraint{Field: "merge", Value: merge, Needs: "from"})
	}
	return list
}

// objectNouns are the names of the types in messages and in the published schema.
var objectNouns = map[string]string{
	"Recipe":           "a recipe",
	"Limits":           "limits",
	"Step":             "a step",
	"Action":           "an action reference",
	"Binding":          "a binding",
	"Part":             "a part",
	"Lens":             "a lens reference",
	"Condition":        "a condition",
	"Parallel":         "a parallel block",
	"Transform":        "a transform",
	"Function":         "a function",
	"Loop":             "a loop",
	"Accumulate":       "an accumulated value",
	"Wait":             "a wait",
	"Approval":         "an approval",
	"Fail":             "a fail block",
	"Child":            "a child recipe",
	"Output":           "an output",
	"ChildLimits":      "limits of a child run",
	"OnError":          "an error handler",
	"RetryPolicy":      "a retry policy",
	"Compensate":       "a compensation",
	"Contracts":        "contracts",
	"Moderation":       "a moderation",
	"Cache":            "a cache",
	"Review":           "a review",
	"CreditEstimation": "a credit estimation",
	"Base":             "a recipe to extend",
}

// Table has the rules of the model's types, for forms that have them in their texts too.
var Table = &form.Table{
	Rules: rules, Constraints: constraints, Nouns: objectNouns,
	// What a reader needs first comes first: inputs before the steps that use them, the condition
	// of a step before what the step does.
	Before: map[string][][2]string{
		"Recipe": {{"dialect", "name"}, {"inputSchema", "steps"}, {"inputPolicy", "steps"}},
		"Step":   {{"when", "action"}, {"dependsOn", "action"}, {"retryPolicy", "total_timeout"}, {"timeout", "total_timeout"}},
		"Loop":   {{"maxConcurrency", "steps"}, {"failureStrategy", "steps"}},
	},
}

// policies are those of package sanitize.
var policies = []string{"keep", "reject", "strip"}

// Form is how a recipe is written.
var Form = form.New[Recipe](Table)
