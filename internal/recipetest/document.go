// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"encoding/json"

	"github.com/roux-engine/roux/internal/compile/form"
)

// A Suite is the text of a test file: the tests of one recipe.
type Suite struct {
	Recipe  string                     `json:"recipe"`
	Recipes string                     `json:"recipes,omitempty"`
	Now     string                     `json:"now,omitempty"`
	Input   map[string]json.RawMessage `json:"input,omitempty"`
	Files   []string                   `json:"files,omitempty"`
	Mocks   Mocks                      `json:"mocks,omitzero"`
	Allow   []string                   `json:"allow,omitempty"`
	Tests   []Test                     `json:"tests"`
}

// A Test is one run of the recipe, and what is expected of it.
type Test struct {
	Name       string                     `json:"name"`
	Skip       string                     `json:"skip,omitempty"`
	Now        string                     `json:"now,omitempty"`
	Input      map[string]json.RawMessage `json:"input,omitempty"`
	Files      []string                   `json:"files,omitempty"`
	Mocks      Mocks                      `json:"mocks,omitzero"`
	Allow      []string                   `json:"allow,omitempty"`
	Cancel     form.Duration              `json:"cancel,omitempty"`
	Balance    int64                      `json:"balance,omitempty"`
	MaxCredits int64                      `json:"maxCredits,omitempty"`
	Expect     *Expect                    `json:"expect,omitempty"`

	pointer string `json:"-"`
}

// SetPlace implements form.Placed.
func (t *Test) SetPlace(pointer string) { t.pointer = pointer }

// Mocks answer what a run asks of the outside.
type Mocks struct {
	Steps      map[string][]Answer   `json:"steps,omitempty"`
	Actions    map[string][]Answer   `json:"actions,omitempty"`
	Recipes    map[string][]Answer   `json:"recipes,omitempty"`
	Approvals  map[string][]Decision `json:"approvals,omitempty"`
	Signals    map[string][]Signal   `json:"signals,omitempty"`
	Secrets    map[string]string     `json:"secrets,omitempty"`
	Moderators map[string][]string   `json:"moderators,omitempty"`
}

// An Answer is what one call gets.
type Answer struct {
	When   string          `json:"when,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
	Error  *Failure        `json:"error,omitempty"`
	Delay  form.Duration   `json:"delay,omitempty"`
	Job    form.Duration   `json:"job,omitempty"`
	Price  string          `json:"price,omitempty"`

	pointer string `json:"-"`
}

// SetPlace implements form.Placed.
func (a *Answer) SetPlace(pointer string) { a.pointer = pointer }

// A Failure is the error of a call.
type Failure struct {
	Code       string        `json:"code,omitempty"`
	Cause      string        `json:"cause,omitempty"`
	Message    string        `json:"message,omitempty"`
	RetryAfter form.Duration `json:"retryAfter,omitempty"`
	Unknown    bool          `json:"unknown,omitempty"`
}

// A Decision is what a person answers.
type Decision struct {
	Decision string          `json:"decision"`
	By       string          `json:"by,omitempty"`
	Comment  string          `json:"comment,omitempty"`
	Values   json.RawMessage `json:"values,omitempty"`
	After    form.Duration   `json:"after,omitempty"`
}

// A Signal is sent to a step that waits for it.
type Signal struct {
	Data  json.RawMessage `json:"data,omitempty"`
	After form.Duration   `json:"after,omitempty"`
}

// Expect is what is expected of a run.
type Expect struct {
	Status   string                `json:"status,omitempty"`
	Error    *ExpectError          `json:"error,omitempty"`
	Output   json.RawMessage       `json:"output,omitempty"`
	Exactly  json.RawMessage       `json:"exactly,omitempty"`
	Path     []string              `json:"path,omitempty"`
	Order    []string              `json:"order,omitempty"`
	Steps    map[string]ExpectStep `json:"steps,omitempty"`
	Calls    map[string]int64      `json:"calls,omitempty"`
	Credits  *ExpectCredits        `json:"credits,omitempty"`
	Duration form.Duration         `json:"duration,omitempty"`
	Assert   []string              `json:"assert,omitempty"`
}

// ExpectError is what is expected of an error.
type ExpectError struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// ExpectStep is what is expected of a step.
type ExpectStep struct {
	Status   string          `json:"status,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Attempts *int64          `json:"attempts,omitempty"`
	Output   json.RawMessage `json:"output,omitempty"`
	Error    *ExpectError    `json:"error,omitempty"`
}

// ExpectCredits is what a run costs.
type ExpectCredits struct {
	Estimated *int64 `json:"estimated,omitempty"`
	Reserved  *int64 `json:"reserved,omitempty"`
	Charged   *int64 `json:"charged,omitempty"`
}

const wantStamp = `a point in time such as "2026-03-01T09:00:00Z"`

// stamp is the form of a point in time; what it means is checked by Parse.
var stamp = form.Match(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})$`, wantStamp)

// runStatuses are how a run may end, and refused for one that does not start.
var (
	runStatuses  = []string{"completed", "failed", "cancelled", "expired", "refused"}
	stepStatuses = []string{"completed", "failed", "skipped", "cancelled", "pending", "timed_out"}
	reasons      = []string{"condition", "branch_not_taken", "parent_failure", "branch_lost", "on_error", "run_ended", "cancelled"}
	causes       = []string{"timeout", "rate_limit", "provider_error", "contract_violated"}
)

const most = 1_000_000_000

// Form is how tests of recipes are written.
var Form = form.New[Suite](&form.Table{
	Rules: map[string]form.Rule{
		"Suite.recipe":  {Doc: "File of the recipe, relative to the test file.", Required: true, Pattern: form.Text, Example: "../report.yaml"},
		"Suite.recipes": {Doc: "Directory of the recipes that steps name with ref, relative to the test file.", Def: "--recipes", Pattern: form.Text, Example: "../recipes"},
		"Suite.now":     {Doc: "The time at which the runs of all tests start.", Def: "2026-01-01T00:00:00Z", Pattern: stamp, Example: "2026-03-01T09:00:00Z"},
		"Suite.input":   {Doc: "Input of all tests. A test may have other values for some of its fields. The text `fixture:PATH` stands for the hash of a file.", Example: map[string]any{"language": "en"}},
		"Suite.files":   {Doc: "Input files of tests that name none, relative to the test file.", Item: &form.Rule{Pattern: form.Text}, Example: []any{"fixtures/report.pdf"}},
		"Suite.mocks":   {Doc: "Mocks of all tests. Those of a test come before them."},
		"Suite.allow":   {Doc: "Actions with effects that tests may call for real.", Item: &form.Rule{Pattern: form.Text}, Example: []any{"http-request"}},
		"Suite.tests":   {Doc: "The tests.", Required: true, MinItems: 1},

		"Test.name":       {Doc: "What the test is about. Each has a name of its own.", Required: true, Pattern: form.Text, Example: "a long report is refused"},
		"Test.skip":       {Doc: "Why the test is not run.", Pattern: form.Text, Example: "the service has no such answer yet"},
		"Test.now":        {Doc: "The time at which the run starts.", Def: "that of the file", Pattern: stamp, Example: "2026-03-01T09:00:00Z"},
		"Test.input":      {Doc: "Input of the run, beside that of the file.", Example: map[string]any{"language": "en"}},
		"Test.files":      {Doc: "Input files of the run, relative to the test file.", Def: "those of the file", Item: &form.Rule{Pattern: form.Text}, Example: []any{"fixtures/report.pdf"}},
		"Test.mocks":      {Doc: "What the run gets from the outside."},
		"Test.allow":      {Doc: "Actions with effects that the run may call for real, beside those of the file.", Item: &form.Rule{Pattern: form.Text}, Example: []any{"http-request"}},
		"Test.cancel":     {Doc: "How long after its start the run is cancelled.", Def: "none", Example: "90s"},
		"Test.balance":    form.Number("Credits that the account has.", "as many as there can be", 1, most, 100),
		"Test.maxCredits": form.Number("The most credits that the run may pay.", "as the recipe says", 1, most, 50),
		"Test.expect":     {Doc: "What is expected of the run.", Def: "that it completes"},

		"Mocks.steps":      {Doc: "Answers to the calls of steps, by the path of a step (`pages[3].resize`) or by its id.", Item: &form.Rule{MinItems: 1}},
		"Mocks.actions":    {Doc: "Answers to the calls of actions, by their names.", Item: &form.Rule{MinItems: 1}},
		"Mocks.recipes":    {Doc: "Answers of child recipes, by the name or file that steps name. No step of such a recipe is run.", Item: &form.Rule{MinItems: 1}},
		"Mocks.approvals":  {Doc: "What people answer, by the id of the step that asks.", Item: &form.Rule{MinItems: 1}},
		"Mocks.signals":    {Doc: "Signals, by their names. The first is sent to the first step that waits for it.", Item: &form.Rule{MinItems: 1}},
		"Mocks.secrets":    {Doc: "Values of secrets, which are none that are kept anywhere.", Item: &form.Rule{Pattern: form.Text}},
		"Mocks.moderators": {Doc: "Words that a moderator flags, by the name of the moderator.", Item: &form.Rule{Item: &form.Rule{Pattern: form.Text}}},

		"Answer.when":   {Doc: "A condition in CEL over `input`, `step` and `attempt`: the answer is one for such calls only.", Pattern: form.Text, Example: "input.page == 3"},
		"Answer.output": {Doc: "The output of the call. The text `fixture:PATH` stands for the hash of a file.", Def: "null"},
		"Answer.error":  {Doc: "The error of the call."},
		"Answer.delay":  {Doc: "How long the call takes, in virtual time. One that takes as long as the timeout of its step fails with STEP_TIMEOUT.", Def: "0s", Example: "2s"},
		"Answer.job":    {Doc: "The call submits an external job, which ends after so long with the output or the error.", Def: "none", Example: "10m"},
		"Answer.price":  {Doc: "What the call costs, in credits.", Def: "the price of the action", Pattern: form.Match(`^[0-9]{1,12}(\.[0-9]{1,6})?$`, `an amount such as "2.5"`), Example: "2.5"},

		"Failure.code":       {Doc: "The code.", Pattern: form.Text, Example: "SERVICE_UNAVAILABLE"},
		"Failure.cause":      {Doc: "The cause, in place of a code.", Enum: causes, Example: "rate_limit"},
		"Failure.message":    {Doc: "The message.", Def: "\"mocked\"", Pattern: form.Text, Example: "try again later"},
		"Failure.retryAfter": {Doc: "How long the service asks to wait.", Def: "none", Example: "30s"},
		"Failure.unknown":    {Doc: "The effect may have happened.", Def: "false"},

		"Decision.decision": {Doc: "The decision.", Required: true, Enum: []string{"approved", "rejected"}},
		"Decision.by":       {Doc: "Who decides.", Def: "tester", Pattern: form.Text, Example: "ann"},
		"Decision.comment":  {Doc: "What is said.", Example: "looks good"},
		"Decision.values":   {Doc: "What is filled in, an object.", Example: map[string]any{"amount": 10}},
		"Decision.after":    {Doc: "How long after the question.", Def: "0s", Example: "2h"},

		"Signal.data":  {Doc: "The data of the signal.", Def: "null", Example: map[string]any{"paid": true}},
		"Signal.after": {Doc: "How long after a step has begun to wait for it.", Def: "0s", Example: "72h"},

		"Expect.status":   {Doc: "How the run ends; refused for one that does not start.", Def: "completed, or failed with an error", Enum: runStatuses},
		"Expect.error":    {Doc: "The error of the run."},
		"Expect.output":   {Doc: "Parts of the outputs: objects may have further fields."},
		"Expect.exactly":  {Doc: "All of the outputs."},
		"Expect.path":     {Doc: "All steps that run, in the order in which they begin. Steps that are skipped are none of them.", Item: &form.Rule{Pattern: form.Text}, Example: []any{"look", "check"}},
		"Expect.order":    {Doc: "Steps that end in this order; others may be between them.", Item: &form.Rule{Pattern: form.Text}, Example: []any{"look", "check"}},
		"Expect.steps":    {Doc: "What is expected of steps, by their paths."},
		"Expect.calls":    {Doc: "How often actions are called, by their names.", Item: ruleOf(form.Number("", "", 0, most, 2))},
		"Expect.credits":  {Doc: "What the run costs."},
		"Expect.duration": {Doc: "How long the run takes, in virtual time.", Example: "72h0m5s"},
		"Expect.assert":   {Doc: "Conditions in CEL over `status`, `output`, `error`, `steps`, `calls`, `credits`, `durationMs` and `input`, which are all true.", Item: &form.Rule{Pattern: form.Text}, Example: []any{"output.pages > 3"}},

		"ExpectError.code":    {Doc: "Its code.", Pattern: form.Text, Example: "STEP_FAILED"},
		"ExpectError.message": {Doc: "A part of its message.", Pattern: form.Text, Example: "too long"},

		"ExpectStep.status":   {Doc: "Its status.", Enum: stepStatuses},
		"ExpectStep.reason":   {Doc: "Why it is skipped or cancelled.", Enum: reasons},
		"ExpectStep.attempts": form.Number("How many attempts it takes.", "any", 0, most, 2),
		"ExpectStep.output":   {Doc: "Parts of its output: objects may have further fields."},
		"ExpectStep.error":    {Doc: "Its error."},

		"ExpectCredits.estimated": form.Number("The estimate.", "any", 0, most, 12),
		"ExpectCredits.reserved":  form.Number("What is held when the run starts.", "any", 0, most, 15),
		"ExpectCredits.charged":   form.Number("What the run pays in the end.", "any", 0, most, 10),
	},
	Nouns: map[string]string{
		"Suite": "a test file", "Test": "a test", "Mocks": "mocks", "Answer": "an answer", "Failure": "an error", "Decision": "a decision", "Signal": "a signal",
		"Expect": "an expectation", "ExpectError": "what is expected of an error", "ExpectStep": "what is expected of a step", "ExpectCredits": "what is expected of credits",
	},
})

func ruleOf(r form.Rule) *form.Rule { return &r }

// Schema returns the JSON Schema of test files.
func Schema() []byte {
	return Form.Schema("Roux test", "A text of Roux: tests of a recipe.", []form.Choice{{Name: "test", Form: Form}})
}
