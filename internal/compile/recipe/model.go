// SPDX-License-Identifier: Apache-2.0

// Package recipe is the one model that every dialect parses to, and the parser
// of the dialect of the same name.
//
// It decides whether a text has the form of a recipe: known fields only, right
// types, limits on size and depth, every problem at its place. It never decides
// whether the parts fit together (that is compile) and reads no file.
package recipe

import "encoding/json"

// A Recipe is a definition as written (X2), with the defaults of its dialect
// filled in. Ptr fields are JSON pointers into the Source, for diagnostics.
type Recipe struct {
	ID          string `json:"id,omitempty"`
	Name        string `json:"name"`
	Version     string `json:"version,omitempty"` // semver; "" = 0.0.0
	Description string `json:"description,omitempty"`
	Category    string `json:"category,omitempty"`
	Status      string `json:"status,omitempty"` // draft, active (default), deprecated (X3, R36)
	CreatedAt   string `json:"createdAt,omitempty"`
	UpdatedAt   string `json:"updatedAt,omitempty"`
	CreatedBy   string `json:"createdBy,omitempty"`
	Dialect     string `json:"dialect,omitempty"` // "" or "recipe"

	Steps []*Step `json:"steps"`

	InputSchema      json.RawMessage   `json:"inputSchema,omitempty"`
	OutputSchema     json.RawMessage   `json:"outputSchema,omitempty"`
	Outputs          map[string]string `json:"outputs,omitempty"` // CEL per field (R41)
	CreditEstimation *CreditEstimation `json:"creditEstimation,omitempty"`

	Order             string   `json:"order,omitempty"`               // sequence (default) | none
	Scheduling        string   `json:"scheduling,omitempty"`          // eager (default) | waves
	FailurePolicy     string   `json:"failure_policy,omitempty"`      // fail_fast (default) | drain (R7)
	OnUpstreamFailure string   `json:"on_upstream_failure,omitempty"` // skip (default) | fail (R7)
	ResultRule        string   `json:"result_rule,omitempty"`         // strict (default) | leaves (R9)
	CreditPolicy      string   `json:"credit_policy,omitempty"`       // refund_unused (default) | refund_all | no_refund (R16)
	TTL               Duration `json:"ttl,omitempty"`                 // of a run; default 48 h
	Limits            *Limits  `json:"limits,omitempty"`
}

// Limits may lower the server's defaults and raise them up to its maxima
// (design.md section 14). 0 = default.
type Limits struct {
	MaxTotalSteps int64 `json:"max_total_steps,omitempty"` // X231, default 100,000
	MaxLoopItems  int64 `json:"max_loop_items,omitempty"`  // default 100,000
	MaxScopeDepth int64 `json:"max_scope_depth,omitempty"` // default 32
	MemoryLimitMB int64 `json:"memory_limit_mb,omitempty"` // default 256
	// MaxExpressionCost bounds each evaluation. Default 100,000.
	MaxExpressionCost int64 `json:"max_expression_cost,omitempty"`
}

// A Step is a vertex of the definition (X4). Which of the kind fields must be
// present follows from Type; without Type it follows from the one present.
type Step struct {
	ID   string `json:"id,omitempty"` // generated where missing (X53): see compile
	Name string `json:"name,omitempty"`
	Type string `json:"type,omitempty"` // action, condition, parallel, transform, loop, wait, fail, recipe

	Action    *Action    `json:"action,omitempty"`
	Condition *Condition `json:"condition,omitempty"`
	Parallel  *Parallel  `json:"parallel,omitempty"`
	Transform *Transform `json:"transform,omitempty"`
	Loop      *Loop      `json:"loop,omitempty"`
	Wait      *Wait      `json:"wait,omitempty"`
	Fail      *Fail      `json:"fail,omitempty"`
	// Recipe is parsed so that compile can refuse it with NOT_AVAILABLE.
	Recipe json.RawMessage `json:"recipe,omitempty"`

	When          string            `json:"when,omitempty"`          // CEL; false = skipped(condition)
	DependsOn     *[]string         `json:"dependsOn,omitempty"`     // nil = by order; empty = none
	InputBindings map[string]string `json:"inputBindings,omitempty"` // CEL per input (X7)
	OutputBinding string            `json:"outputBinding,omitempty"`

	OnError         *OnError     `json:"onError,omitempty"`
	RetryPolicy     *RetryPolicy `json:"retryPolicy,omitempty"`
	Timeout         Duration     `json:"timeout,omitempty"`       // per attempt (R20)
	TotalTimeout    Duration     `json:"total_timeout,omitempty"` // over all attempts and waits (R20)
	ContinueOnError bool         `json:"continue_on_error,omitempty"`
	OnParentFailure string       `json:"on_parent_failure,omitempty"` // propagate (default) | skip | substitute_default (X120)
	Compensate      *Compensate  `json:"compensate,omitempty"`
	Contracts       *Contracts   `json:"contracts,omitempty"`

	Ptr string `json:"-"` // JSON pointer of the step in its Source
}

// Action refers to an action (X6). Parameters may hold templates (X9).
type Action struct {
	Name       string                     `json:"name"`
	Version    string                     `json:"version,omitempty"` // "" = active version
	Parameters map[string]json.RawMessage `json:"parameters,omitempty"`
}

// Condition runs exactly one side (X44).
type Condition struct {
	Expression string  `json:"expression"` // CEL, bool
	Then       []*Step `json:"then"`
	Else       []*Step `json:"else,omitempty"`
}

// Parallel runs branches at once, each a sequence (X46).
type Parallel struct {
	Branches        [][]*Step `json:"branches"`
	WaitFor         string    `json:"waitFor,omitempty"`         // all (default) | any | first_success
	FailureStrategy string    `json:"failureStrategy,omitempty"` // fail_fast (default) | continue | ignore
}

// Transform shapes data without an action (X34).
type Transform struct {
	Expression    string `json:"expression"` // CEL
	OutputBinding string `json:"outputBinding,omitempty"`
}

// Loop runs its steps once per item (X59).
type Loop struct {
	Over            string  `json:"over"`            // CEL: a list, or a file of JSON array, JSONL or CSV
	As              string  `json:"as,omitempty"`    // default "item"
	Index           string  `json:"index,omitempty"` // default "index", counts from 0
	Steps           []*Step `json:"steps"`
	MaxConcurrency  int64   `json:"maxConcurrency,omitempty"`  // default 1
	FailureStrategy string  `json:"failureStrategy,omitempty"` // fail_fast (default) | continue | ignore
}

// Wait holds the scope for exactly one of: a duration, a time, a signal.
type Wait struct {
	Duration Duration `json:"duration,omitempty"`
	Until    string   `json:"until,omitempty"`   // CEL: a timestamp or an RFC 3339 string
	Signal   string   `json:"signal,omitempty"`  // name
	Timeout  Duration `json:"timeout,omitempty"` // of a signal; default the run's ttl
}

// Fail ends the scope with a code and a message.
type Fail struct {
	Code    string `json:"code,omitempty"`    // default STEP_FAILED
	Message string `json:"message,omitempty"` // template
}

// OnError acts after retries are used up (X106, X107).
type OnError struct {
	Strategy     string   `json:"strategy"` // fail | skip | fallback | retry
	FallbackStep *Step    `json:"fallbackStep,omitempty"`
	MaxRetries   int64    `json:"maxRetries,omitempty"`
	RetryDelay   Duration `json:"retryDelay,omitempty"`
}

// RetryPolicy is the recipe dialect's spelling of the one retry record (R18).
type RetryPolicy struct {
	MaxAttempts       int64    `json:"maxAttempts,omitempty"` // total, including the first
	InitialDelay      Duration `json:"initialDelay,omitempty"`
	MaxDelay          Duration `json:"maxDelay,omitempty"`
	BackoffMultiplier float64  `json:"backoffMultiplier,omitempty"`
	Jitter            *float64 `json:"jitter,omitempty"` // 0..1, default 0.5
	RetryableErrors   []string `json:"retryableErrors,omitempty"`
}

// Compensate is the action that undoes a completed step (R44).
type Compensate struct {
	Action        *Action           `json:"action"`
	InputBindings map[string]string `json:"inputBindings,omitempty"`
	RetryPolicy   *RetryPolicy      `json:"retryPolicy,omitempty"`
	Timeout       Duration          `json:"timeout,omitempty"`
}

// Contracts are JSON Schemas a step's input and output must fit (X166, X167).
type Contracts struct {
	Input  json.RawMessage `json:"input,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
}

// CreditEstimation says what a run may cost (X147).
type CreditEstimation struct {
	Strategy       string `json:"strategy"` // fixed | per_file | calculated
	FixedCredits   int64  `json:"fixedCredits,omitempty"`
	PerFileCredits int64  `json:"perFileCredits,omitempty"`
	Formula        string `json:"formula,omitempty"` // CEL
	MaxCredits     int64  `json:"maxCredits,omitempty"`
}

// A Duration is written as Go ("1m30s") or ISO 8601 ("PT1M30S") text; kept as
// written here and parsed by [ParseDuration] (F47). "" = not given.
type Duration string
