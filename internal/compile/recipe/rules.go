// SPDX-License-Identifier: Apache-2.0

package recipe

// A rule is what the model's types do not express about a field. The decoder and the
// published schema are both derived from it, so that they agree; a test compares them.
type rule struct {
	doc      string
	def      string // the default of the field, for people; "none" = no default
	example  any
	required bool
	enum     []string
	pattern  *pattern
	positive bool // of a duration: longer than zero
	min, max *float64
	minItems int
	shape    rawShape // of a json.RawMessage
	short    string   // of an object: a text stands for an object with only this field
	toggle   bool     // of an object: true stands for an object without fields, false for none
	item     *rule    // of each entry of a list or map
}

// A pattern is a regular expression and its meaning in words.
type pattern struct{ expr, want string }

// A rawShape says what a value may be that the model keeps as JSON.
type rawShape uint8

const (
	anyValue rawShape = iota
	jsonSchema
	amount // of credits: a whole number, or decimal text
)

var (
	idPattern      = &pattern{`^[A-Za-z0-9_-]{1,64}$`, "1 to 64 letters, digits, _ or -"}
	bindingPattern = &pattern{`^[A-Za-z_][A-Za-z0-9_]{0,63}$`, "a name of up to 64 letters, digits or _, beginning with a letter or _"}
	semverPattern  = &pattern{
		`^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`,
		`a version such as "1.0.0"`,
	}
	versionPattern = &pattern{
		`^[0-9]+(\.[0-9]+){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`,
		`a version such as "1.0.0" or a range such as "1" or "1.2"`,
	}
	textPattern = &pattern{`[^\s]`, "text that is not blank"}
	refPattern  = &pattern{
		`^[^@]*[^@\s][^@]*(@[0-9]+(\.[0-9]+){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?)?$`,
		`the name of a recipe such as "digest", or with a version or range such as "digest@1.2"`,
	}
	pathPattern   = &pattern{`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,31}$`, `names with dots between them, such as "report.summary"`}
	amountPattern = &pattern{`^[0-9]{1,12}(\.[0-9]{1,6})?$`, `an amount of credits such as "0.25"`}
	codePattern   = &pattern{`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`, `a code such as "DOCUMENT_TOO_LARGE"`}
)

func bounds(low, high float64) (minimum, maximum *float64) { return &low, &high }

// numberRule returns the rule of a number between two limits.
func numberRule(doc, def string, low, high, example float64) rule {
	r := rule{doc: doc, def: def, example: example}
	r.min, r.max = bounds(low, high)
	return r
}

type m = map[string]any

// step returns a step for an example.
func step(id, kind string, v any) m { return m{"id": id, kind: v} }

// maxInteger is the largest integer that every JSON reader represents exactly.
const maxInteger = 1<<53 - 1

// rules has one entry for every field of the model, by type and JSON name.
var rules = map[string]rule{
	"Recipe.id":                  {doc: "Identifier given by the server or the author.", def: "none", pattern: idPattern, example: "recipe_pdf_digest"},
	"Recipe.name":                {doc: "Name under which the recipe is registered and started.", required: true, pattern: textPattern, example: "document-digest"},
	"Recipe.version":             {doc: "Semantic version of the definition.", def: "0.0.0", pattern: semverPattern, example: "1.0.0"},
	"Recipe.description":         {doc: "What the recipe does, for people.", def: "none", example: "Reads a document and lists its pages."},
	"Recipe.category":            {doc: "A word to group recipes by.", def: "none", example: "document-processing"},
	"Recipe.status":              {doc: "Only active and deprecated recipes run; a draft does with --draft.", def: "active", enum: []string{"draft", "active", "deprecated"}, example: "draft"},
	"Recipe.createdAt":           {doc: "When it was created, RFC 3339. Kept, not used.", def: "none", example: "2026-11-24T09:30:00Z"},
	"Recipe.updatedAt":           {doc: "When it was last changed, RFC 3339. Kept, not used.", def: "none", example: "2026-11-25T10:00:00Z"},
	"Recipe.createdBy":           {doc: "Account that created it. Kept, not used.", def: "none", example: "acc_1"},
	"Recipe.dialect":             {doc: "Dialect of the definition; without it, the keys determine the dialect.", def: "determined by the keys", enum: []string{"recipe"}, example: "recipe"},
	"Recipe.steps":               {doc: "The steps, run in this order unless `order` or `dependsOn` say otherwise.", required: true, minItems: 1, example: []any{step("one", "transform", m{"expression": "1"})}},
	"Recipe.inputSchema":         {doc: "JSON Schema 2020-12 of the run's input.", def: "any input", shape: jsonSchema, example: m{"properties": m{"url": m{"type": "string"}}, "required": []any{"url"}}},
	"Recipe.outputSchema":        {doc: "JSON Schema 2020-12 of the run's result.", def: "any result", shape: jsonSchema, example: m{"properties": m{"pages": m{"type": "integer"}}}},
	"Recipe.outputs":             {doc: "The result's fields, each a CEL expression over the steps.", def: "an empty result", example: map[string]any{"pages": "inspection.pages"}},
	"Recipe.creditEstimation":    {doc: "Estimate of what a run may cost, reserved before it starts.", def: "the costs of the actions", example: m{"strategy": "fixed", "fixedCredits": 50}},
	"Recipe.order":               {doc: "Whether a step without dependsOn waits for the step before it.", def: "sequence", enum: []string{"sequence", "none"}, example: "none"},
	"Recipe.scheduling":          {doc: "eager starts a step as soon as it can; waves waits until the whole wave before has settled.", def: "eager", enum: []string{"eager", "waves"}, example: "waves"},
	"Recipe.failure_policy":      {doc: "After a step has failed: fail_fast cancels the other steps, drain lets those finish that do not depend on it.", def: "fail_fast", enum: []string{"fail_fast", "drain"}, example: "drain"},
	"Recipe.on_upstream_failure": {doc: "What happens to steps that depend on a failed one.", def: "skip", enum: []string{"skip", "fail"}, example: "fail"},
	"Recipe.result_rule":         {doc: "strict: any failed step fails the run; leaves: only failed last steps do.", def: "strict", enum: []string{"strict", "leaves"}, example: "leaves"},
	"Recipe.credit_policy":       {doc: "What a failed run is charged.", def: "refund_unused", enum: []string{"refund_unused", "refund_all", "no_refund"}, example: "refund_all"},
	"Recipe.ttl":                 {doc: "How long a run may take before it expires.", def: "48h", positive: true, example: "2h"},
	"Recipe.limits":              {doc: "Limits of a run, up to the operator's maxima.", def: "those of the operator of Roux", example: m{"max_loop_items": 500}},

	"Limits.max_total_steps":     numberRule("Steps a run and its child runs may start.", "100000", 1, 1_000_000, 2000),
	"Limits.max_loop_items":      numberRule("Items one loop may have.", "100000", 1, 1_000_000, 500),
	"Limits.max_scope_depth":     numberRule("How deep scopes may nest.", "32", 1, 64, 8),
	"Limits.max_depth":           numberRule("Levels of child runs below a run of this recipe.", "10", 1, 32, 3),
	"Limits.memory_limit_mb":     numberRule("Counted memory of a run in MiB.", "256", 1, 4096, 64),
	"Limits.max_expression_cost": numberRule("What evaluating one expression or template may cost: one for each operation, each 64 bytes read and each 16 bytes written.", "100000", 1, 1_000_000, 500000),

	"Step.id":                {doc: "Name of the step for references, unique in the recipe.", def: "generated", pattern: idPattern, example: "fetch"},
	"Step.name":              {doc: "Name of the step for people.", def: "the id", example: "Fetch the page"},
	"Step.type":              {doc: "What the step does.", def: "follows from the field that is present", enum: stepKinds, example: "action"},
	"Step.action":            {doc: "Calls an action.", def: "none", example: m{"name": "word-count", "parameters": m{"text": "one two"}}},
	"Step.condition":         {doc: "Runs one of two lists of steps.", def: "none", example: m{"expression": "input.n > 10", "then": []any{step("one", "transform", m{"expression": "1"})}}},
	"Step.parallel":          {doc: "Runs branches at the same time.", def: "none", example: m{"branches": []any{[]any{step("one", "transform", m{"expression": "1"})}, []any{step("two", "transform", m{"expression": "2"})}}}},
	"Step.transform":         {doc: "Computes a value without an action.", def: "none", example: m{"expression": "size(input.urls)"}},
	"Step.loop":              {doc: "Runs its steps once per item of a list.", def: "none", example: m{"over": "input.urls", "as": "url", "steps": []any{step("one", "transform", m{"expression": "size(url)"})}}},
	"Step.wait":              {doc: "Waits for a time, a signal or a person.", def: "none", example: m{"duration": "30s"}},
	"Step.fail":              {doc: "Ends the scope with a failure.", def: "none", example: m{"code": "TOO_LARGE", "message": "it has too many pages"}},
	"Step.recipe":            {doc: "Runs another recipe as a run of its own.", def: "none", example: m{"ref": "document-digest@1", "inputs": m{"language": "en"}}},
	"Step.when":              {doc: "CEL expression; the step is skipped when it is false.", def: "always", pattern: textPattern, example: "inspection.pages > 1"},
	"Step.dependsOn":         {doc: "Ids of the steps this one waits for; an empty list for none.", def: "the step before it", item: &rule{pattern: idPattern}, example: []any{"fetch", "count"}},
	"Step.inputBindings":     {doc: "Inputs of the action or recipe, each a CEL expression over what came before.", def: "none", example: map[string]any{"text": "markdown.content"}},
	"Step.outputBinding":     {doc: "Name under which later steps see this step's output.", def: "none", pattern: bindingPattern, example: "markdown"},
	"Step.onError":           {doc: "What to do when the last attempt has failed.", def: "the scope fails", example: m{"strategy": "skip"}},
	"Step.retryPolicy":       {doc: "When and how often to try again.", def: "one attempt", example: m{"maxAttempts": 3, "initialDelay": "1s"}},
	"Step.timeout":           {doc: "How long one attempt may take.", def: "10m of an action; none of another step", positive: true, example: "5m"},
	"Step.total_timeout":     {doc: "How long the step may take over all attempts and waits.", def: "none", positive: true, example: "1h"},
	"Step.continue_on_error": {doc: "A failure of this step does not fail its scope.", def: "false", example: true},
	"Step.on_parent_failure": {doc: "What to do when a step this one depends on did not succeed.", def: "propagate", enum: []string{"propagate", "skip", "substitute_default"}, example: "skip"},
	"Step.compensate":        {doc: "Undoes the completed step when the run fails, is cancelled or expires.", def: "none", example: m{"action": m{"name": "http"}, "inputBindings": m{"url": "input.undo"}}},
	"Step.contracts":         {doc: "JSON Schemas that the step's input and output must fit.", def: "none", example: m{"output": m{"required": []any{"words"}}}},
	"Step.moderation":        {doc: "Has moderators look at the action's input, its output or both before anything of it is shown or used.", def: "none", short: "phase", example: "output"},

	"Step.cache": {doc: "Uses an earlier result of the same action for the same input, instead of calling the action; true stands for the defaults.", def: "the action is called", toggle: true, example: m{"ttl": "24h"}},

	"Action.name":       {doc: "Name of the action.", required: true, pattern: textPattern, example: "file-inspect"},
	"Action.version":    {doc: "Version or range of versions.", def: "the active version", pattern: versionPattern, example: "1.0.0"},
	"Action.parameters": {doc: "Fixed inputs; text in them may contain {{ templates }}.", def: "none", example: m{"text": "Hello {{ input.who }}"}},

	"Condition.expression": {doc: "CEL expression that is true or false.", required: true, pattern: textPattern, example: "inspection.pages <= 100"},
	"Condition.then":       {doc: "Steps to run when it is true.", required: true, example: []any{step("large", "transform", m{"expression": "'large'"})}},
	"Condition.else":       {doc: "Steps to run when it is false.", def: "none", example: []any{step("small", "transform", m{"expression": "'small'"})}},

	"Parallel.branches":        {doc: "Lists of steps; each list is a sequence, the lists run at the same time.", required: true, minItems: 1, example: []any{[]any{step("one", "transform", m{"expression": "1"})}, []any{step("two", "transform", m{"expression": "2"})}}},
	"Parallel.waitFor":         {doc: "Which branches decide the step.", def: "all", enum: []string{"all", "any", "first_success"}, example: "any"},
	"Parallel.failureStrategy": {doc: "The effect of a failed branch on the others.", def: "fail_fast", enum: []string{"fail_fast", "continue", "ignore"}, example: "continue"},

	"Transform.expression":    {doc: "CEL expression for the value.", required: true, pattern: textPattern, example: "inspection.pages * 2"},
	"Transform.outputBinding": {doc: "Name under which later steps see the value.", def: "none", pattern: bindingPattern, example: "pages"},

	"Loop.over":            {doc: "CEL expression for a list, or for a file that contains one (JSON array, JSONL, CSV).", required: true, pattern: textPattern, example: "input.urls"},
	"Loop.as":              {doc: "Name of the current item.", def: "item", pattern: bindingPattern, example: "url"},
	"Loop.index":           {doc: "Name of the current position, counted from 0.", def: "index", pattern: bindingPattern, example: "n"},
	"Loop.steps":           {doc: "Steps to run for each item.", required: true, minItems: 1, example: []any{step("one", "transform", m{"expression": "item"})}},
	"Loop.maxConcurrency":  numberRule("How many items may run at once.", "1", 1, 10_000, 4),
	"Loop.failureStrategy": {doc: "The effect of a failed item on the others.", def: "fail_fast", enum: []string{"fail_fast", "continue", "ignore"}, example: "ignore"},

	"Wait.duration": {doc: "How long to wait.", def: "none", positive: true, example: "30s"},
	"Wait.until":    {doc: "CEL expression for the time to wait for.", def: "none", pattern: textPattern, example: "now() + duration('1h')"},
	"Wait.signal":   {doc: "Name of the signal to wait for.", def: "none", pattern: idPattern, example: "approved"},
	"Wait.approval": {doc: "Asks a person.", def: "none", example: m{"title": "Publish {{ input.name }}?"}},
	"Wait.timeout":  {doc: "How long to wait for the signal or the person.", def: "the run's ttl", positive: true, example: "24h"},
	"Wait.default":  {doc: "Answer to the approval that applies at the time-out, with decision, comment and values.", def: "none, and the step fails", example: m{"decision": "rejected", "comment": "nobody answered"}},

	"Approval.title":     {doc: "What is asked, in a line; may contain {{ templates }}.", required: true, pattern: textPattern, example: "Publish {{ input.name }}?"},
	"Approval.text":      {doc: "More about it; may contain {{ templates }}.", def: "none", example: "The report has {{ input.pages }} pages."},
	"Approval.form":      {doc: "JSON Schema 2020-12 of an object: what who approves fills in.", def: "nothing is filled in", shape: jsonSchema, example: m{"properties": m{"budget": m{"type": "number"}}, "required": []any{"budget"}}},
	"Approval.value":     {doc: "A value that is shown; text in it may contain {{ templates }}.", def: "none", example: "{{ input.report }}"},
	"Approval.approvers": {doc: "Names of keys that may answer, and role:NAME for all keys with a role.", def: "every key that may answer approvals", item: &rule{pattern: textPattern}, minItems: 1, example: []any{"ana", "role:owner"}},
	"Approval.remind":    {doc: "How often those who watch the run are told again, from 1m on.", def: "never", positive: true, example: "4h"},
	"Approval.reject":    {doc: "The effect of a rejection: the run continues with it as output, or the step fails.", def: "continue", enum: []string{"continue", "fail"}, example: "fail"},

	"Fail.code":    {doc: "Code of the failure.", def: "STEP_FAILED", pattern: codePattern, example: "DOCUMENT_TOO_LARGE"},
	"Fail.message": {doc: "Why, for people; may contain {{ templates }}.", def: "none", example: "{{ size(input.list) }} entries, 100 are allowed"},

	"OnError.strategy":     {doc: "fail ends the scope; skip continues without the step; fallback runs another step; retry tries again.", required: true, enum: []string{"fail", "skip", "fallback", "retry"}, example: "fallback"},
	"OnError.fallbackStep": {doc: "Step to run in place of the failed one.", def: "none", example: step("instead", "transform", m{"expression": "0"})},
	"OnError.maxRetries":   numberRule("How often to try again before the strategy applies.", "2 for the strategy retry, so three attempts in total; else 0", 1, 1000, 1),
	"OnError.retryDelay":   {doc: "Pause before the first retry.", def: "500ms", example: "2s"},

	"Child.ref":        {doc: "Name of a registered recipe, with a version or a range; the newest that fits is found when the run starts.", def: "none", pattern: refPattern, example: "document-digest@1.2"},
	"Child.file":       {doc: "Path of a recipe, relative to the file that names it and in its directory or below.", def: "none", pattern: textPattern, example: "./digest.yaml"},
	"Child.inline":     {doc: "The recipe itself.", def: "none", example: m{"name": "double", "steps": []any{step("one", "transform", m{"expression": "input.n * 2"})}, "outputs": m{"n": "steps.one.output"}}},
	"Child.inputs":     {doc: "Fixed inputs of the child run; text in them may contain {{ templates }}.", def: "none", example: m{"language": "en", "text": "{{ input.text }}"}},
	"Child.files":      {doc: "CEL expression for the list of the child run's files.", def: "no files", pattern: textPattern, example: "fileHashes"},
	"Child.outputs":    {doc: "Parts of the child's result that become the step's output.", def: "the whole result", item: &rule{short: "path"}, minItems: 1, example: []any{"summary", m{"path": "report.pages", "as": "pages"}}},
	"Child.limits":     {doc: "Limits of the child run and of those below it.", def: "those of the run", example: m{"max_depth": 3}},
	"Child.maxCredits": numberRule("Credits that the child run and those below it may use.", "what the run may use", 1, maxInteger, 100),

	"Output.path":    {doc: "Field of the child's result, or a path into it with dots between the names.", required: true, pattern: pathPattern, example: "analysis.accuracy"},
	"Output.as":      {doc: "Name of the field in the step's output.", def: "the last name of the path", pattern: bindingPattern, example: "accuracy"},
	"Output.extract": {doc: "Fields of the value at the path; each becomes a field of the step's output.", def: "none", item: &rule{pattern: idPattern}, minItems: 1, example: []any{"summary", "recommendations"}},

	"ChildLimits.max_depth":       numberRule("How deep the run, and those that it starts, may stand in the tree of runs; the first run has depth 0. A recipe may run itself only with this limit.", "that of the run", 1, 32, 3),
	"ChildLimits.max_total_steps": numberRule("Steps the child run and those below it may start.", "what is left to the run", 1, 1_000_000, 500),
	"ChildLimits.memory_limit_mb": numberRule("Counted memory of the child run and of those below it in MiB.", "what is left to the run", 1, 4096, 64),

	"RetryPolicy.maxAttempts":       numberRule("Attempts in total, the first included.", "1", 1, 1000, 3),
	"RetryPolicy.initialDelay":      {doc: "Pause after the first failure.", def: "500ms", example: "1s"},
	"RetryPolicy.maxDelay":          {doc: "Longest pause.", def: "8s", example: "30s"},
	"RetryPolicy.backoffMultiplier": numberRule("Factor from one pause to the next.", "2", 1, 100, 1.5),
	"RetryPolicy.jitter":            numberRule("Part of the pause that is random.", "0.5", 0, 1, 0),
	"RetryPolicy.retryableErrors":   {doc: "Codes or causes to retry.", def: "those for which another attempt can succeed", item: &rule{pattern: textPattern}, example: []any{"TIMEOUT", "SERVICE_UNAVAILABLE"}},

	"Compensate.action":        {doc: "Action that undoes the step.", required: true, example: m{"name": "http", "parameters": m{"method": "DELETE"}}},
	"Compensate.inputBindings": {doc: "The action's inputs, each a CEL expression; the step's own output is visible.", def: "none", example: m{"url": "input.service + '/' + book.output.id"}},
	"Compensate.retryPolicy":   {doc: "When and how often to try again.", def: "one attempt", example: m{"maxAttempts": 3}},
	"Compensate.timeout":       {doc: "How long one attempt may take.", def: "10m", positive: true, example: "1m"},

	"Contracts.input":  {doc: "JSON Schema 2020-12 of the step's input.", def: "any input", shape: jsonSchema, example: m{"required": []any{"text"}}},
	"Contracts.output": {doc: "JSON Schema 2020-12 of the step's output.", def: "any output", shape: jsonSchema, example: m{"required": []any{"words"}}},

	"Moderation.phase":  {doc: "What moderators look at.", required: true, enum: []string{"input", "output", "both", "none"}, example: "both"},
	"Moderation.by":     {doc: "Names of moderators of the configuration; all of them must pass it.", def: "all that are configured", item: &rule{pattern: idPattern}, minItems: 1, example: []any{"words"}},
	"Moderation.stream": {doc: "When streamed text is shown: sentence by sentence once each has passed, or held until the whole output has.", def: "sentence", enum: []string{"sentence", "hold"}, example: "hold"},
	"Moderation.review": {doc: "Has people decide on what is flagged: they approve, edit or reject it. Without it what is flagged fails the step.", def: "none", example: m{"timeout": "8h"}},

	"Review.by":      {doc: "Who may decide: names of keys, or role:NAME for every key with that role.", def: "every key that may answer requests", item: &rule{pattern: textPattern}, minItems: 1, example: []any{"role:approver"}},
	"Review.timeout": {doc: "How long they have; then the step fails.", def: "24h", positive: true, example: "8h"},
	"Review.remind":  {doc: "How often they are reminded.", def: "never", positive: true, example: "1h"},

	"Cache.ttl":   {doc: "How old a result may be, at most 30 days.", def: "24h", positive: true, example: "1h"},
	"Cache.key":   {doc: "CEL expression for what must be the same besides the input.", def: "none", pattern: textPattern, example: "input.edition"},
	"Cache.price": {doc: "Credits that an earlier result costs, at most what the action costs.", def: "0", shape: amount, pattern: amountPattern, example: "0.1"},

	"CreditEstimation.strategy":       {doc: "How the estimate is made.", required: true, enum: []string{"fixed", "per_file", "calculated"}, example: "fixed"},
	"CreditEstimation.fixedCredits":   numberRule("Credits per run, for the strategy fixed.", "none", 0, maxInteger, 50),
	"CreditEstimation.perFileCredits": numberRule("Credits per input file, for the strategy per_file.", "none", 0, maxInteger, 25),
	"CreditEstimation.formula":        {doc: "CEL expression for the credits, for the strategy calculated.", def: "none", pattern: textPattern, example: "10 + inspection.pages * 5"},
	"CreditEstimation.maxCredits":     numberRule("Maximum that is reserved.", "the estimate, and a quarter more for the strategy calculated", 1, maxInteger, 1000),
}

// stepKinds are the kind fields of a step, which are also the values of its type.
var stepKinds = []string{"action", "condition", "parallel", "transform", "loop", "wait", "fail", "recipe"}

// A constraint is a rule over several fields of one object.
type constraint struct {
	// oneOf: exactly one of these fields is present; kindField, if present, names it.
	oneOf     []string
	kindField string
	// If field has the value, the field needs must be present.
	field, value, needs string
}

var constraints = map[string][]constraint{
	"Step":    {{oneOf: stepKinds, kindField: "type"}},
	"Child":   {{oneOf: []string{"ref", "file", "inline"}}},
	"Wait":    {{oneOf: []string{"duration", "until", "signal", "approval"}}},
	"OnError": {{field: "strategy", value: "fallback", needs: "fallbackStep"}},
	"CreditEstimation": {
		{field: "strategy", value: "fixed", needs: "fixedCredits"},
		{field: "strategy", value: "per_file", needs: "perFileCredits"},
		{field: "strategy", value: "calculated", needs: "formula"},
	},
}

// objectNouns are the names of the types in messages and in the published schema.
var objectNouns = map[string]string{
	"Recipe":           "a recipe",
	"Limits":           "limits",
	"Step":             "a step",
	"Action":           "an action reference",
	"Condition":        "a condition",
	"Parallel":         "a parallel block",
	"Transform":        "a transform",
	"Loop":             "a loop",
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
}
