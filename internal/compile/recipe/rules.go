// SPDX-License-Identifier: Apache-2.0

package recipe

// A rule is what the model's types do not say about a field. The strict reader
// and the published schema both follow from it, so they cannot disagree about
// a rule; that they read it alike is tested.
type rule struct {
	doc      string
	example  any
	required bool
	enum     []string
	pattern  *pattern
	positive bool // of a duration: longer than zero
	min, max *float64
	minItems int
	shape    rawShape // of a json.RawMessage
	item     *rule    // of each entry of a list or map
}

// A pattern is a regular expression and what it asks for in words.
type pattern struct{ expr, want string }

// A rawShape is what a value that the model keeps as JSON may be.
type rawShape uint8

const (
	anyValue rawShape = iota
	jsonSchema
	recipeRef
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
	codePattern = &pattern{`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`, `a code such as "DOCUMENT_TOO_LARGE"`}
)

func bounds(low, high float64) (minimum, maximum *float64) { return &low, &high }

// counted is a rule for a whole number between two limits.
func counted(doc string, low, high float64) rule {
	r := rule{doc: doc}
	r.min, r.max = bounds(low, high)
	return r
}

// maxInteger is the largest whole number that every JSON reader keeps exactly.
const maxInteger = 1<<53 - 1

// rules has one entry for every field of the model, by type and JSON name.
var rules = map[string]rule{
	"Recipe.id":                  {doc: "Identifier given by the server or the author.", pattern: idPattern, example: "recipe_pdf_digest"},
	"Recipe.name":                {doc: "Name under which the recipe is registered and started.", required: true, pattern: textPattern, example: "document-digest"},
	"Recipe.version":             {doc: "Semantic version of the definition. Default 0.0.0.", pattern: semverPattern, example: "1.0.0"},
	"Recipe.description":         {doc: "What the recipe does, for people."},
	"Recipe.category":            {doc: "A word to group recipes by.", example: "document-processing"},
	"Recipe.status":              {doc: "Only active and deprecated recipes run; a draft does with --draft. Default active.", enum: []string{"draft", "active", "deprecated"}},
	"Recipe.createdAt":           {doc: "When it was created, RFC 3339. Kept, not used."},
	"Recipe.updatedAt":           {doc: "When it was last changed, RFC 3339. Kept, not used."},
	"Recipe.createdBy":           {doc: "Account that created it. Kept, not used."},
	"Recipe.dialect":             {doc: "Dialect of the definition; the keys tell it where this is missing.", enum: []string{"recipe"}},
	"Recipe.steps":               {doc: "The steps, run in this order unless `order` or `dependsOn` say otherwise.", required: true, minItems: 1},
	"Recipe.inputSchema":         {doc: "JSON Schema 2020-12 of the run's input.", shape: jsonSchema},
	"Recipe.outputSchema":        {doc: "JSON Schema 2020-12 of the run's result.", shape: jsonSchema},
	"Recipe.outputs":             {doc: "The result's fields, each a CEL expression over the steps.", example: map[string]any{"pages": "inspection.pages"}},
	"Recipe.creditEstimation":    {doc: "What a run may cost, reserved before it starts."},
	"Recipe.order":               {doc: "Whether a step without dependsOn waits for the step before it. Default sequence.", enum: []string{"sequence", "none"}},
	"Recipe.scheduling":          {doc: "eager starts a step as soon as it can; waves waits until the whole wave before has settled. Default eager.", enum: []string{"eager", "waves"}},
	"Recipe.failure_policy":      {doc: "After a step has failed: cancel the rest, or drain what does not depend on it. Default fail_fast.", enum: []string{"fail_fast", "drain"}},
	"Recipe.on_upstream_failure": {doc: "What becomes of steps after a failed one. Default skip.", enum: []string{"skip", "fail"}},
	"Recipe.result_rule":         {doc: "strict: any failed step fails the run; leaves: only failed last steps do. Default strict.", enum: []string{"strict", "leaves"}},
	"Recipe.credit_policy":       {doc: "What a failed run is charged. Default refund_unused.", enum: []string{"refund_unused", "refund_all", "no_refund"}},
	"Recipe.ttl":                 {doc: "How long a run may take before it expires. Default 48h.", positive: true, example: "2h"},
	"Recipe.limits":              {doc: "Limits of a run, up to the server's maxima."},

	"Limits.max_total_steps":     counted("Steps a run and its child runs may start. Default 100000.", 1, 1_000_000),
	"Limits.max_loop_items":      counted("Items one loop may have. Default 100000.", 1, 1_000_000),
	"Limits.max_scope_depth":     counted("How deep scopes may nest. Default 32.", 1, 64),
	"Limits.memory_limit_mb":     counted("Counted memory of a run in MiB. Default 256.", 1, 4096),
	"Limits.max_expression_cost": counted("What evaluating one expression or template may cost: one for each operation, each 64 bytes read and each 16 bytes written. Default 100000.", 1, 1_000_000),

	"Step.id":                {doc: "Name of the step for references, unique in the recipe. Generated where missing.", pattern: idPattern, example: "fetch"},
	"Step.name":              {doc: "Name of the step for people."},
	"Step.type":              {doc: "What the step does. Follows from the field that is present.", enum: stepKinds},
	"Step.action":            {doc: "Calls an action."},
	"Step.condition":         {doc: "Runs one of two lists of steps."},
	"Step.parallel":          {doc: "Runs branches at the same time."},
	"Step.transform":         {doc: "Computes a value without an action."},
	"Step.loop":              {doc: "Runs its steps once per item of a list."},
	"Step.wait":              {doc: "Waits for a time or a signal."},
	"Step.fail":              {doc: "Ends the scope with a failure."},
	"Step.recipe":            {doc: "Runs another recipe: its name, or the recipe itself. Not available in this release.", shape: recipeRef},
	"Step.when":              {doc: "CEL; the step is skipped when it is false.", pattern: textPattern, example: "inspection.pages > 1"},
	"Step.dependsOn":         {doc: "Ids of the steps this one waits for; an empty list for none. Default: the step before it.", item: &rule{pattern: idPattern}},
	"Step.inputBindings":     {doc: "The action's inputs, each a CEL expression over what came before.", example: map[string]any{"text": "markdown.content"}},
	"Step.outputBinding":     {doc: "Name under which later steps see this step's output.", pattern: bindingPattern, example: "markdown"},
	"Step.onError":           {doc: "What to do once the step has failed for good."},
	"Step.retryPolicy":       {doc: "When and how often to try again."},
	"Step.timeout":           {doc: "How long one attempt may take. Default 10m.", positive: true, example: "5m"},
	"Step.total_timeout":     {doc: "How long the step may take over all attempts and waits.", positive: true, example: "1h"},
	"Step.continue_on_error": {doc: "A failure of this step does not fail its scope."},
	"Step.on_parent_failure": {doc: "What to do when a step this one depends on did not succeed. Default propagate.", enum: []string{"propagate", "skip", "substitute_default"}},
	"Step.compensate":        {doc: "Undoes the completed step when the run fails, is cancelled or expires."},
	"Step.contracts":         {doc: "JSON Schemas that the step's input and output must fit."},

	"Action.name":       {doc: "Name of the action.", required: true, pattern: textPattern, example: "file-inspect"},
	"Action.version":    {doc: "Version or range of versions. Default: the active version.", pattern: versionPattern, example: "1.0.0"},
	"Action.parameters": {doc: "Fixed inputs; text in them may hold {{ templates }}."},

	"Condition.expression": {doc: "CEL that gives true or false.", required: true, pattern: textPattern, example: "inspection.pages <= 100"},
	"Condition.then":       {doc: "Steps to run when it is true.", required: true},
	"Condition.else":       {doc: "Steps to run when it is false."},

	"Parallel.branches":        {doc: "Lists of steps; each list is a sequence, the lists run at the same time.", required: true, minItems: 1},
	"Parallel.waitFor":         {doc: "When the step is decided. Default all.", enum: []string{"all", "any", "first_success"}},
	"Parallel.failureStrategy": {doc: "What a failed branch does to the others. Default fail_fast.", enum: []string{"fail_fast", "continue", "ignore"}},

	"Transform.expression":    {doc: "CEL that gives the value.", required: true, pattern: textPattern, example: "inspection.pages * 2"},
	"Transform.outputBinding": {doc: "Name under which later steps see the value.", pattern: bindingPattern},

	"Loop.over":            {doc: "CEL that gives a list, or a file that holds one (JSON array, JSONL, CSV).", required: true, pattern: textPattern, example: "input.urls"},
	"Loop.as":              {doc: "Name of the current item. Default item.", pattern: bindingPattern},
	"Loop.index":           {doc: "Name of the current position, counted from 0. Default index.", pattern: bindingPattern},
	"Loop.steps":           {doc: "Steps to run for each item.", required: true, minItems: 1},
	"Loop.maxConcurrency":  counted("How many items may be worked on at once. Default 1.", 1, 10_000),
	"Loop.failureStrategy": {doc: "What a failed item does to the others. Default fail_fast.", enum: []string{"fail_fast", "continue", "ignore"}},

	"Wait.duration": {doc: "How long to wait.", positive: true, example: "30s"},
	"Wait.until":    {doc: "CEL that gives the time to wait for.", pattern: textPattern},
	"Wait.signal":   {doc: "Name of the signal to wait for.", pattern: idPattern, example: "approved"},
	"Wait.timeout":  {doc: "How long to wait for the signal. Default: the run's ttl.", positive: true, example: "24h"},

	"Fail.code":    {doc: "Code of the failure. Default STEP_FAILED.", pattern: codePattern, example: "DOCUMENT_TOO_LARGE"},
	"Fail.message": {doc: "Why, for people; may hold {{ templates }}."},

	"OnError.strategy":     {doc: "fail ends the scope; skip goes on without the step; fallback runs another step; retry tries again.", required: true, enum: []string{"fail", "skip", "fallback", "retry"}},
	"OnError.fallbackStep": {doc: "Step to run in place of the failed one."},
	"OnError.maxRetries":   counted("How often to try again before the strategy acts. Default 2 for the strategy retry, so three tries in all; else 0.", 1, 1000),
	"OnError.retryDelay":   {doc: "Pause before the first retry. Default 500ms.", example: "2s"},

	"RetryPolicy.maxAttempts":       counted("Attempts in total, the first included. Default 1.", 1, 1000),
	"RetryPolicy.initialDelay":      {doc: "Pause after the first failure. Default 500ms.", example: "1s"},
	"RetryPolicy.maxDelay":          {doc: "Longest pause. Default 8s.", example: "30s"},
	"RetryPolicy.backoffMultiplier": counted("Factor from one pause to the next. Default 2.", 1, 100),
	"RetryPolicy.jitter":            counted("Part of the pause that is random. Default 0.5.", 0, 1),
	"RetryPolicy.retryableErrors":   {doc: "Codes or causes to retry. Default: those that another try can mend.", item: &rule{pattern: textPattern}, example: []any{"TIMEOUT", "SERVICE_UNAVAILABLE"}},

	"Compensate.action":        {doc: "Action that undoes the step.", required: true},
	"Compensate.inputBindings": {doc: "The action's inputs, each a CEL expression; the step's own output is visible."},
	"Compensate.retryPolicy":   {doc: "When and how often to try again."},
	"Compensate.timeout":       {doc: "How long one attempt may take. Default 10m.", positive: true},

	"Contracts.input":  {doc: "JSON Schema 2020-12 of the step's input.", shape: jsonSchema},
	"Contracts.output": {doc: "JSON Schema 2020-12 of the step's output.", shape: jsonSchema},

	"CreditEstimation.strategy":       {doc: "How the estimate is made.", required: true, enum: []string{"fixed", "per_file", "calculated"}},
	"CreditEstimation.fixedCredits":   counted("Credits per run, for the strategy fixed.", 0, maxInteger),
	"CreditEstimation.perFileCredits": counted("Credits per input file, for the strategy per_file.", 0, maxInteger),
	"CreditEstimation.formula":        {doc: "CEL that gives credits, for the strategy calculated.", pattern: textPattern, example: "10 + inspection.pages * 5"},
	"CreditEstimation.maxCredits":     counted("Most that is reserved.", 1, maxInteger),
}

// stepKinds are the fields of a step that say what it does, which are also the
// values of its type.
var stepKinds = []string{"action", "condition", "parallel", "transform", "loop", "wait", "fail", "recipe"}

// A bond is a rule over several fields of one object.
type bond struct {
	// oneOf: exactly one of these fields is present; kindField, where present,
	// names it.
	oneOf     []string
	kindField string
	// When field has the value, needs must be present.
	field, value, needs string
}

var bonds = map[string][]bond{
	"Step":    {{oneOf: stepKinds, kindField: "type"}},
	"Wait":    {{oneOf: []string{"duration", "until", "signal"}}},
	"OnError": {{field: "strategy", value: "fallback", needs: "fallbackStep"}},
	"CreditEstimation": {
		{field: "strategy", value: "fixed", needs: "fixedCredits"},
		{field: "strategy", value: "per_file", needs: "perFileCredits"},
		{field: "strategy", value: "calculated", needs: "formula"},
	},
}

// nouns name each type in messages and in the published schema.
var nouns = map[string]string{
	"Recipe":           "a recipe",
	"Limits":           "limits",
	"Step":             "a step",
	"Action":           "an action reference",
	"Condition":        "a condition",
	"Parallel":         "a parallel block",
	"Transform":        "a transform",
	"Loop":             "a loop",
	"Wait":             "a wait",
	"Fail":             "a fail block",
	"OnError":          "an error handler",
	"RetryPolicy":      "a retry policy",
	"Compensate":       "a compensation",
	"Contracts":        "contracts",
	"CreditEstimation": "a credit estimation",
}
