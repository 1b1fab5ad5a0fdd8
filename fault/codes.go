// SPDX-License-Identifier: Apache-2.0

package fault

import "errors"

// A Cause groups codes for retry policies (R19): `retry_on` and
// `retryableErrors` accept a cause or a literal code.
type Cause string

// The causes. The first four are from the source documents (X110). The others exist so
// that every code has a cause; they are retried only if a policy names them.
const (
	CauseTimeout    Cause = "timeout"
	CauseProvider   Cause = "provider_error"
	CauseRateLimit  Cause = "rate_limit"
	CauseContract   Cause = "contract_violated"
	CauseLost       Cause = "lost"
	CauseInput      Cause = "input"
	CauseExpression Cause = "expression"
	CauseUpstream   Cause = "upstream"
	CauseCancelled  Cause = "cancelled"
	CauseLimit      Cause = "limit"
	CauseDefinition Cause = "definition"
	CauseModeration Cause = "moderation" // never retried (R19)
	CauseRequest    Cause = "request"
	CauseStorage    Cause = "storage"
	CauseInternal   Cause = "internal"
)

// The published codes. An action may also return a code that is not listed here: it is
// a provider's own code, with the cause provider_error.
const (
	RecipeNotFound          Code = "RECIPE_NOT_FOUND"
	LensNotFound            Code = "LENS_NOT_FOUND"
	RecipeInvalid           Code = "RECIPE_INVALID"
	CircularDependency      Code = "CIRCULAR_DEPENDENCY"
	DepthExceeded           Code = "DEPTH_EXCEEDED"
	MemoryLimit             Code = "MEMORY_LIMIT"
	StepLimit               Code = "STEP_LIMIT"
	ItemLimit               Code = "ITEM_LIMIT"
	IterationLimit          Code = "ITERATION_LIMIT"
	NotAvailable            Code = "NOT_AVAILABLE"
	InsufficientCredits     Code = "INSUFFICIENT_CREDITS"
	PriceUnknown            Code = "PRICE_UNKNOWN"
	QuotaExceeded           Code = "QUOTA_EXCEEDED"
	StepFailed              Code = "STEP_FAILED"
	StepTimeout             Code = "STEP_TIMEOUT"
	ConditionError          Code = "CONDITION_ERROR"
	TemplateError           Code = "TEMPLATE_ERROR"
	ExpressionLimit         Code = "EXPRESSION_LIMIT"
	ActionNotFound          Code = "ACTION_NOT_FOUND"
	ExecutionCancelled      Code = "EXECUTION_CANCELLED"
	ExecutionExpired        Code = "EXECUTION_EXPIRED"
	InternalError           Code = "INTERNAL_ERROR"
	InputMissing            Code = "INPUT_MISSING"
	InputInvalid            Code = "INPUT_INVALID"
	InputContractViolation  Code = "INPUT_CONTRACT_VIOLATION"
	OutputContractViolation Code = "OUTPUT_CONTRACT_VIOLATION"
	UpstreamFailure         Code = "UPSTREAM_FAILURE"
	Interrupted             Code = "INTERRUPTED"
	ValueTooLarge           Code = "VALUE_TOO_LARGE"
	OutputTooLarge          Code = "OUTPUT_TOO_LARGE"
	ServiceUnavailable      Code = "SERVICE_UNAVAILABLE"
	ProviderError           Code = "PROVIDER_ERROR"
	ProviderNotConfigured   Code = "PROVIDER_NOT_CONFIGURED"
	SecretNotFound          Code = "SECRET_NOT_FOUND"
	SecretInvalid           Code = "SECRET_INVALID"
	RateLimited             Code = "RATE_LIMITED"
	FileNotFound            Code = "FILE_NOT_FOUND"
	FileInvalid             Code = "FILE_INVALID"
	FileEncrypted           Code = "FILE_ENCRYPTED"
	FileUnsupported         Code = "FILE_UNSUPPORTED"
	FileTooLarge            Code = "FILE_TOO_LARGE"
	RunNotFound             Code = "RUN_NOT_FOUND"
	AccountNotFound         Code = "ACCOUNT_NOT_FOUND"
	StepNotFound            Code = "STEP_NOT_FOUND"
	Conflict                Code = "CONFLICT"
	TooLate                 Code = "TOO_LATE"
	CursorExpired           Code = "CURSOR_EXPIRED"
	IdempotencyMismatch     Code = "IDEMPOTENCY_MISMATCH"
	Quarantined             Code = "QUARANTINED"
	StoreLocked             Code = "STORE_LOCKED"
	StoreFull               Code = "STORE_FULL"
	StoreReadOnly           Code = "STORE_READ_ONLY"
	StoreNewer              Code = "STORE_NEWER"
	StoreUnsafe             Code = "STORE_UNSAFE"
	StoreCorrupt            Code = "STORE_CORRUPT"
	StoreFailed             Code = "STORE_FAILED"
	StaleEpoch              Code = "STALE_EPOCH"
	Stopping                Code = "STOPPING"
	Usage                   Code = "USAGE"
	Unauthorized            Code = "UNAUTHORIZED"
	WaitTimeout             Code = "WAIT_TIMEOUT"
	JobExpired              Code = "JOB_EXPIRED"
	ApprovalRejected        Code = "APPROVAL_REJECTED"
	AssertionFailed         Code = "ASSERTION_FAILED"
	ServerUnreachable       Code = "SERVER_UNREACHABLE"
	EgressRefused           Code = "EGRESS_REFUSED"
	ModerationFlagged       Code = "MODERATION_FLAGGED"
	ModerationMissing       Code = "MODERATION_MISSING"
	ModerationRejected      Code = "MODERATION_REJECTED"
	ModerationUnavailable   Code = "MODERATION_UNAVAILABLE"
	CommandFailed           Code = "COMMAND_FAILED"
	CommandTemporary        Code = "COMMAND_TEMPORARY"
	CommandLimit            Code = "COMMAND_LIMIT"
	ConfineUnavailable      Code = "CONFINE_UNAVAILABLE"
	CommandTimeout          Code = "COMMAND_TIMEOUT"
	ConfigInvalid           Code = "CONFIG_INVALID"
	HTTPStatus              Code = "HTTP_STATUS"
	Forbidden               Code = "FORBIDDEN"
	AccountDisabled         Code = "ACCOUNT_DISABLED"
	KeyNotFound             Code = "KEY_NOT_FOUND"
	RecordNotFound          Code = "RECORD_NOT_FOUND"
	NotFound                Code = "NOT_FOUND"
	MethodNotAllowed        Code = "METHOD_NOT_ALLOWED"
	RequestMalformed        Code = "REQUEST_MALFORMED"
	RequestInvalid          Code = "REQUEST_INVALID"
	RequestTooLarge         Code = "REQUEST_TOO_LARGE"
	MediaTypeUnsupported    Code = "MEDIA_TYPE_UNSUPPORTED"
	PreconditionFailed      Code = "PRECONDITION_FAILED"
	RangeInvalid            Code = "RANGE_INVALID"
	RequestRateExceeded     Code = "REQUEST_RATE_EXCEEDED"
	RequestInFlight         Code = "REQUEST_IN_FLIGHT"
	Overloaded              Code = "OVERLOADED"
)

// The exit codes of the command line (ux.md section 4). Documented and stable.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitDefinition  = 3
	ExitNotFound    = 4
	ExitForbidden   = 5
	ExitCredits     = 6
	ExitConflict    = 7
	ExitTimeout     = 8
	ExitUnreachable = 9
	ExitCancelled   = 10
	ExitAssertion   = 11
	ExitInternal    = 70
	ExitInterrupted = 130
)

// Info is one row of the table of codes.
type Info struct {
	Code      Code
	HTTP      int
	Cause     Cause
	Retryable bool // whether another try of the same thing can succeed
	Exit      int
	Legacy    string   // E001–E005 of the recursive-pipelines source (R34)
	Aliases   []string // other spellings that retry policies and clients use
	Meaning   string
	Remedy    string
}

// table is in the order of the documentation.
var table = []Info{
	{RecipeInvalid, 422, CauseDefinition, false, ExitDefinition, "E004", nil, "The definition does not follow the format or its parts do not fit together.", "Correct the places that the diagnostics name; `roux validate FILE` and `POST /v1/recipes/validate` show all of them."},
	{CircularDependency, 422, CauseDefinition, false, ExitDefinition, "E001", nil, "Steps wait for each other, or recipes run each other, in a circle.", "Remove one of the dependencies that the message names; a registered recipe may run itself with `limits: {max_depth: …}`."},
	{DepthExceeded, 422, CauseLimit, false, ExitDefinition, "E002", nil, "Scopes or child runs nest deeper than the limit.", "Flatten the definition, or raise `limits` up to the server's maximum."},
	{LensNotFound, 404, CauseRequest, false, ExitNotFound, "", nil, "No prompt template has that id or version.", "Check the id and the version; `GET /v1/lenses` lists what is registered."},
	{RecipeNotFound, 404, CauseRequest, false, ExitNotFound, "E003", nil, "No definition has that name, id or path.", "Check the path or the name; `GET /v1/recipes` lists what is registered."},
	{MemoryLimit, 422, CauseLimit, false, ExitFailed, "E005", nil, "The values and open iterations that a run holds exceed its memory limit.", "Lower `maxConcurrency`, pass files instead of values, or raise `limits.memory_limit_mb`."},
	{StepLimit, 422, CauseLimit, false, ExitFailed, "", nil, "The run would start more steps than its limit.", "Raise `limits.max_total_steps` in the recipe, or in a retry of the run, up to the server's maximum."},
	{IterationLimit, 422, CauseLimit, false, ExitFailed, "", nil, "A loop with a condition has run as many iterations as it may, and the condition asks for another one.", "Raise `maxIterations` of the loop, or make sure that an iteration can meet the condition."},
	{ItemLimit, 422, CauseLimit, false, ExitFailed, "", nil, "A loop has more items than its limit.", "Raise `limits.max_loop_items` in the recipe, or in a retry of the run, up to the server's maximum."},
	{NotAvailable, 501, CauseDefinition, false, ExitDefinition, "", nil, "This release does not have that feature yet.", "Use what the message offers instead, or a newer release."},
	{ActionNotFound, 422, CauseDefinition, false, ExitDefinition, "", nil, "No action of that name and version is registered.", "Check the spelling; `roux actions list` and `GET /v1/actions` show those there are."},
	{InputInvalid, 422, CauseInput, false, ExitUsage, "", nil, "An input is invalid: the run's input does not match the recipe's inputSchema, or a step's input does not match its action's.", "Correct the input the message names; `--input name=value`, or `parameters` in the body of a request, sets a field of a run's input."},
	{InsufficientCredits, 402, CauseRequest, false, ExitCredits, "", nil, "The balance does not cover the reservation.", "Let the operator add credits (`roux credits grant N --account NAME`, `POST /v1/accounts/NAME/grants`), or let the run pay less (`--max-credits`, `maxCredits`)."},
	{PriceUnknown, 422, CauseDefinition, false, ExitCredits, "", nil, "The price of an action is not known, so a run that calls it does not start.", "Set the action's price, or call another action."},
	{QuotaExceeded, 429, CauseRateLimit, true, ExitCredits, "", nil, "A quota of the account is reached, such as that of its live runs or of its storage.", "Wait for a run to end, delete what is not needed, or let the operator raise the quota that the message names."},
	{StepFailed, 500, CauseProvider, false, ExitFailed, "", nil, "A step's action reported a failure.", "Read the step's error; `roux explain RUN STEP` and `GET /v1/recipe-executions/RUN/explain?step=STEP` show what led to it."},
	{StepTimeout, 504, CauseTimeout, true, ExitFailed, "", []string{"TIMEOUT", "timeout"}, "A step ran longer than its timeout.", "Raise `timeout`, or add a retryPolicy that names TIMEOUT."},
	{JobExpired, 504, CauseTimeout, true, ExitFailed, "", nil, "An external job did not end in time.", "Ask the provider what became of the job, whose id the event node.waiting has; retry the run, or raise the job's time to live."},
	{WaitTimeout, 504, CauseTimeout, false, ExitFailed, "", nil, "A wait ended without its signal.", "Send the signal in time, or raise the wait's timeout."},
	{ApprovalRejected, 409, CauseRequest, false, ExitFailed, "", nil, "A person has rejected what a step asked for.", "Read who has rejected it, and why, in the message; retry the run to ask again: `roux runs retry RUN` or `POST /v1/recipe-executions/RUN/retry`."},
	{ConditionError, 422, CauseExpression, false, ExitFailed, "", nil, "A condition could not be evaluated.", "Guard absent values with has(), and check the types."},
	{TemplateError, 422, CauseExpression, false, ExitFailed, "", nil, "An expression or template could not be evaluated.", "Guard absent values with has() or the default filter."},
	{ExpressionLimit, 422, CauseLimit, false, ExitFailed, "", nil, "Evaluating an expression or template would cost more than its limit.", "Raise `limits.max_expression_cost` in the recipe, or in a retry of the run, up to the server's maximum, or do a part of the work in a step or loop of its own."},
	{InputMissing, 422, CauseInput, false, ExitFailed, "", nil, "A step's required input has no value, for example because its branch was not taken.", "Bind the value on every path, or end the other path with a fail step."},
	{InputContractViolation, 422, CauseContract, false, ExitFailed, "", []string{"input_contract_violation"}, "A step's input does not fit its contract.", "Correct the value at the pointer the error names."},
	{OutputContractViolation, 422, CauseContract, true, ExitFailed, "", []string{"output_contract_violation", "contract_violated"}, "A step's output does not fit its contract.", "Correct the action or the schema; `contract_violated` in a retryPolicy tries again."},
	{UpstreamFailure, 424, CauseUpstream, false, ExitFailed, "", []string{"upstream_failure"}, "A step did not run because one it depends on failed.", "Correct the step that failed first; `on_parent_failure` changes the rule."},
	{Interrupted, 500, CauseLost, false, ExitFailed, "", nil, "The attempt was lost to crashes too often, or may be attempted only once.", "Check what the action did, then retry the run: `roux runs retry RUN` or `POST /v1/recipe-executions/RUN/retry`."},
	{ServiceUnavailable, 503, CauseProvider, true, ExitFailed, "", nil, "An outside service did not answer.", "Add a retryPolicy, or try again later."},
	{ProviderError, 502, CauseProvider, true, ExitFailed, "", []string{"provider_error"}, "An outside service reported an error.", "Read the provider's message."},
	{ProviderNotConfigured, 422, CauseDefinition, false, ExitFailed, "", nil, "The action needs a provider that is not configured.", "Configure the provider the message names."},
	{ModerationFlagged, 422, CauseModeration, false, ExitFailed, "", []string{"moderation_flagged"}, "A moderator has flagged the input or the output of a step.", "Read the categories in the event moderation.flagged; change the input, or the terms of the moderator if they are wrong."},
	{ModerationMissing, 500, CauseModeration, false, ExitFailed, "", nil, "A result came without the verdict that its step demands.", "Nothing of it is kept. Report it with the run's id: the engine asks the moderators before it takes a result."},
	{ModerationRejected, 422, CauseModeration, false, ExitFailed, "", nil, "A reviewer has rejected what a moderator had flagged.", "Read the reviewer's comment in the message; change the input, or retry the run to have it reviewed again."},
	{ModerationUnavailable, 503, CauseProvider, true, ExitFailed, "", nil, "A moderator gave no verdict, so nothing has passed.", "Add a retryPolicy, or try again later; the log of the server says which moderator failed and why."},
	{SecretNotFound, 422, CauseDefinition, false, ExitFailed, "", nil, "A step uses a secret that is not set.", "Set it with `roux secrets set NAME` or `PUT /v1/secrets/NAME`, or in a variable such as ROUX_SECRET_NAME of the server, then retry the run: `roux runs retry RUN` or `POST /v1/recipe-executions/RUN/retry`."},
	{SecretInvalid, 422, CauseDefinition, false, ExitFailed, "", nil, "The value of a secret cannot be used or read.", "Set the secret again, as the message says, then retry the run: `roux runs retry RUN` or `POST /v1/recipe-executions/RUN/retry`."},
	{RateLimited, 429, CauseRateLimit, true, ExitFailed, "", []string{"rate_limit"}, "An outside service asked to slow down.", "Add a retryPolicy; Retry-After is honoured."},
	{HTTPStatus, 502, CauseRequest, false, ExitFailed, "", nil, "A service answered with a status that the step does not accept.", "Read the status in the message and correct the request; `expectStatus` accepts it, a retryPolicy that names HTTP_STATUS tries again."},
	{EgressRefused, 403, CauseRequest, false, ExitFailed, "", nil, "A request was for an address, port or scheme that is not allowed.", "Use a public http or https address, or let the operator allow the range with `ROUX_EGRESS_ALLOW`."},
	{CommandFailed, 502, CauseProvider, false, ExitFailed, "", nil, "A command of the operator ended with an exit code other than 0, or with a signal, or its output is not what its configuration says.", "Read the end of its standard error in the message; `roux logs RUN` and `GET /v1/recipe-executions/RUN/events` have the rest."},
	{CommandTemporary, 503, CauseProvider, true, ExitFailed, "", nil, "A command of the operator ended with an exit code that its configuration says is temporary.", "Add a retryPolicy, or try again later."},
	{CommandLimit, 413, CauseLimit, false, ExitFailed, "", nil, "A command of the operator was killed because it used more memory, space or output than its configuration permits.", "Give it less to do, or let the operator raise the limit that the message names."},
	{ConfineUnavailable, 501, CauseDefinition, false, ExitDefinition, "", nil, "This system does not let Roux confine the commands that are configured.", "Do what the message names, or say `confine: none` of a command that you trust, and start again."},
	{ValueTooLarge, 413, CauseLimit, false, ExitFailed, "", nil, "A value is too large for an expression or an inline field, or is stored in a file because of its size.", "Pass it on as a whole, or read a part of it with the action that the message names."},
	{OutputTooLarge, 413, CauseLimit, false, ExitFailed, "", nil, "An output is larger than 64 MiB, or too little of it consists of texts and lists that can be stored in files.", "Return a file instead of a value."},
	{FileNotFound, 404, CauseRequest, false, ExitNotFound, "", nil, "No such file.", "Check the path or the hash; `GET /v1/files` lists the files of the account, and `POST /v1/files` uploads one again that was removed."},
	{FileInvalid, 422, CauseInput, false, ExitFailed, "", nil, "The file is damaged or not of the type that it claims.", "Download or save the file again, or repair it in another program."},
	{FileEncrypted, 422, CauseInput, false, ExitFailed, "", nil, "The file is protected by a password.", "Remove the password and try again."},
	{FileUnsupported, 415, CauseInput, false, ExitFailed, "", nil, "The action does not read files of that type.", "Convert the file, or branch on its type with file-inspect."},
	{FileTooLarge, 413, CauseLimit, false, ExitFailed, "", nil, "The file exceeds a limit.", "Split the file, or raise the limit the message names."},
	{ExecutionCancelled, 409, CauseCancelled, false, ExitCancelled, "", nil, "The run was cancelled.", "Retry it to go on from what is recorded: `roux runs retry RUN` or `POST /v1/recipe-executions/RUN/retry`."},
	{ExecutionExpired, 504, CauseTimeout, false, ExitFailed, "", nil, "The run did not end within its ttl.", "Raise `ttl`, or retry the run: `roux runs retry RUN` or `POST /v1/recipe-executions/RUN/retry`."},
	{RunNotFound, 404, CauseRequest, false, ExitNotFound, "", nil, "No run has that id.", "Check the id; `roux runs list` and `GET /v1/recipe-executions` list the runs of the account. One that is no longer kept is gone."},
	{AccountNotFound, 404, CauseRequest, false, ExitNotFound, "", nil, "No account has that name.", "`roux accounts` and `GET /v1/accounts` list the accounts; `roux credits grant N --account NAME` or `PUT /v1/accounts/NAME` makes one, and so does a line in `accounts` of the configuration."},
	{RecordNotFound, 404, CauseRequest, false, ExitNotFound, "", nil, "There is nothing stored under that name.", "Check the id or the name, and the account; the list of its kind, such as `GET /v1/webhooks`, shows those there are."},
	{StepNotFound, 404, CauseRequest, false, ExitNotFound, "", nil, "The run has no such step.", "`roux runs get RUN` and `GET /v1/recipe-executions/RUN/explain` list its steps."},
	{Conflict, 409, CauseRequest, false, ExitConflict, "", nil, "The request conflicts with the current state.", "Read the current state, as the message says what conflicts, and decide again."},
	{TooLate, 409, CauseRequest, false, ExitConflict, "", []string{"too_late"}, "The run's final status was already decided.", "Nothing to do; the message names the status."},
	{CursorExpired, 410, CauseRequest, false, ExitConflict, "", nil, "Changes after that number are no longer kept.", "Read the current state, for example with `roux runs list` or `GET /v1/recipe-executions`, and continue after the number that the message names."},
	{IdempotencyMismatch, 422, CauseRequest, false, ExitConflict, "", nil, "The idempotency key was used with another request.", "Use a new key for a new request."},
	{Quarantined, 409, CauseInternal, false, ExitConflict, "", nil, "The run is quarantined because it stopped the process or its journal is damaged.", "Find out the reason, then let the operator release it: `roux runs release RUN` or `POST /v1/recipe-executions/RUN/release`."},
	{StoreLocked, 409, CauseStorage, true, ExitConflict, "", nil, "Another process uses the data directory.", "Stop the process the message names, or use another --data directory."},
	{StoreFull, 507, CauseStorage, true, ExitInternal, "", nil, "The disk is full; nothing acknowledged was lost.", "Free some space on the disk of the server or of the data directory; then the same request, or `roux resume`, goes on."},
	{StoreReadOnly, 503, CauseStorage, false, ExitForbidden, "", nil, "The data directory cannot be written.", "Correct its permissions, or use another --data directory."},
	{StoreNewer, 409, CauseStorage, false, ExitConflict, "", nil, "A newer release wrote the data directory.", "Use that release, or another --data directory."},
	{StoreUnsafe, 500, CauseStorage, false, ExitInternal, "", nil, "The SQLite library in this build can corrupt data.", "Use an official build."},
	{StoreCorrupt, 500, CauseStorage, false, ExitInternal, "", nil, "Stored data fails its checksum.", "The message names run and offset; restore from a backup. Other runs go on."},
	{StoreFailed, 503, CauseStorage, true, ExitInternal, "", nil, "The disk refused a write; nothing more is acknowledged.", "Check the disk of the server, then start it again: what was acknowledged is safe."},
	{StaleEpoch, 409, CauseStorage, true, ExitConflict, "", nil, "Another engine owns these runs now.", "Nothing to do: the new owner continues them."},
	{Stopping, 503, CauseRequest, true, ExitInterrupted, "", nil, "The engine is stopping and accepts no new work.", "Send it again once the server, or the process that holds the data directory, has started again."},
	{Unauthorized, 401, CauseRequest, false, ExitForbidden, "", nil, "Not allowed.", "Send a valid key as `Authorization: Bearer KEY`; `roux keys create` or `POST /v1/keys` makes one, with a key that may; the operator has the one of `ROUX_ADMIN_KEY`."},
	{Forbidden, 403, CauseRequest, false, ExitForbidden, "", nil, "The key does not allow that operation.", "Use a key with the scope that the message names; `roux keys create` or `POST /v1/keys` makes one."},
	{AccountDisabled, 403, CauseRequest, false, ExitForbidden, "", nil, "The operator has disabled the account.", "Ask the operator of the server; runs that were in progress go on."},
	{KeyNotFound, 404, CauseRequest, false, ExitNotFound, "", nil, "The account has no key of that id.", "`roux keys list` or `GET /v1/keys` lists the keys of the account."},
	{NotFound, 404, CauseRequest, false, ExitNotFound, "", nil, "The server has no such path.", "`/openapi.json` lists the paths."},
	{MethodNotAllowed, 405, CauseRequest, false, ExitUsage, "", nil, "The path does not take that method.", "Use a method that the header Allow lists."},
	{RequestMalformed, 400, CauseRequest, false, ExitUsage, "", nil, "The request is no valid HTTP request of this interface: its body is not JSON, or it names an unknown query parameter.", "Correct what the message names; `/openapi.json` describes the request."},
	{RequestInvalid, 422, CauseRequest, false, ExitUsage, "", nil, "A field of the request is unknown, missing, read-only or has an invalid value.", "Correct the fields that `errors` names; `/openapi.json` describes the request."},
	{RequestTooLarge, 413, CauseLimit, false, ExitUsage, "", nil, "The body of the request is larger than its limit.", "Send less, or upload what is large as a file with `POST /v1/files`."},
	{MediaTypeUnsupported, 415, CauseRequest, false, ExitUsage, "", nil, "The operation does not take a body of that type or encoding.", "Send the body with one of the types that the message names, without a Content-Encoding."},
	{PreconditionFailed, 412, CauseRequest, false, ExitConflict, "", nil, "The resource has changed since it was read.", "Read it again, and repeat the request with the new ETag in If-Match."},
	{RangeInvalid, 416, CauseRequest, false, ExitUsage, "", nil, "The file has no bytes in that range.", "Ask for a range within the size that the header Content-Range names."},
	{RequestRateExceeded, 429, CauseRateLimit, true, ExitCredits, "", nil, "The account sends more requests than its limit.", "Send the request again after the seconds that Retry-After names."},
	{Overloaded, 503, CauseRateLimit, true, ExitCredits, "", nil, "More requests wait than the server can carry out soon.", "Send the request again after the seconds that Retry-After names: nothing was changed."},
	{RequestInFlight, 409, CauseRequest, true, ExitConflict, "", nil, "A request with the same idempotency key is being carried out.", "Send the request again in a moment: it gets the answer of the first."},
	{AssertionFailed, 422, CauseRequest, false, ExitAssertion, "", nil, "A run did not end as its test expects.", "Compare the result with the expectation, and change the recipe or the test."},
	{ServerUnreachable, 503, CauseRequest, true, ExitUnreachable, "", nil, "The process that holds the data directory does not answer.", "Check that it runs; its pid is in the message."},
	{ConfigInvalid, 422, CauseDefinition, false, ExitUsage, "", nil, "The configuration is invalid.", "Correct the places that the message names; `roux config list` shows all settings."},
	{CommandTimeout, 504, CauseRequest, true, ExitTimeout, "", nil, "The command waited as long as --timeout allows; nothing recorded is lost.", "`roux resume RUN` continues the run, with a longer --timeout or with none."},
	{Usage, 400, CauseRequest, false, ExitUsage, "", nil, "The command was not understood.", "`roux help` and `roux COMMAND --help` show what is."},
	{InternalError, 500, CauseInternal, true, ExitInternal, "", nil, "Something is wrong in Roux itself.", "Report it with the run's id; the run can be resumed."},
}

// All returns the table of codes in documentation order. Do not modify it.
func All() []Info { return table }

// Lookup finds the row of a code or of one of its aliases or legacy codes.
func Lookup(code Code) (Info, bool) {
	if i, ok := index[code]; ok {
		return table[i], true
	}
	return Info{}, false
}

// index is built once, at program start, from constants.
var index = func() map[Code]int {
	m := make(map[Code]int, 2*len(table))
	for i, row := range table {
		m[row.Code] = i
		if row.Legacy != "" {
			m[Code(row.Legacy)] = i
		}
		for _, a := range row.Aliases {
			m[Code(a)] = i
		}
	}
	return m
}()

// CauseOf returns the cause of a code (R19). A code that is not in the table is a
// provider's own and has the cause CauseProvider.
func CauseOf(code Code) Cause {
	if row, ok := Lookup(code); ok {
		return row.Cause
	}
	return CauseProvider
}

// ExitCode returns the command line's exit code for err; 0 for nil. An error with
// diagnostics refuses a definition: its exit code is that of [ExitBeforeRun].
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	var e *Error
	if errors.As(err, &e) && len(e.Diags) > 0 {
		return ExitBeforeRun(CodeOf(err))
	}
	return exitOf(CodeOf(err))
}

// ExitBeforeRun returns the exit code for a failure that ended a run before anything
// ran. It is that of the code, but ExitDefinition where that would be ExitFailed,
// because no step has failed.
func ExitBeforeRun(code Code) int {
	if exit := exitOf(code); exit != ExitFailed {
		return exit
	}
	return ExitDefinition
}

func exitOf(code Code) int {
	if row, ok := Lookup(code); ok {
		return row.Exit
	}
	return ExitFailed
}
