// SPDX-License-Identifier: Apache-2.0

// Package recipe is the model that every dialect parses to, and the parser of the recipe
// dialect.
//
// It decides whether a text has the form of a recipe: known fields only, right types,
// limits on size and depth, every problem with its position. It never decides whether
// the parts fit together (package compile does) and reads no file.
package recipe

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A Recipe is a definition as its author wrote it (X2), with the defaults of its dialect
// filled in. Ptr fields are JSON pointers into the Source, for diagnostics.
type Recipe struct {
	Head
	Steps []*Step `json:"steps"`
	Settings

	Ptr  string `json:"-"` // JSON pointer of the recipe in its Source
	Read string `json:"-"` // the dialect that it was read in, if that has names that are not those of recipes
}

// A Head says what a recipe is, for people and for those who look for it.
type Head struct {
	ID          string `json:"id,omitempty"`
	Name        string `json:"name"`
	Version     string `json:"version,omitempty"` // semver; "" = 0.0.0
	Description string `json:"description,omitempty"`
	Category    string `json:"category,omitempty"`
	Status      string `json:"status,omitempty"` // draft, active (default), deprecated (X3, R36)
	CreatedAt   string `json:"createdAt,omitempty"`
	UpdatedAt   string `json:"updatedAt,omitempty"`
	CreatedBy   string `json:"createdBy,omitempty"`
	Dialect     string `json:"dialect,omitempty"` // "" = by the keys of the text

	// Extends are texts whose parts are parts of this one (X242), and Override names the parts that this text has in place
	// of theirs. Package extend puts them together; after it nothing reads these fields but those who list what a text uses.
	Extends  []*Base  `json:"extends,omitempty"`
	Override []string `json:"override,omitempty"`
	// TemplateParameters are the schemas of values that those who extend this text give it.
	TemplateParameters map[string]json.RawMessage `json:"templateParameters,omitempty"`
}

// A Base is a text that another one extends: one of File and Ref. In a text, a path alone is short for File.
type Base struct {
	File string                     `json:"file,omitempty"` // path, relative to the text that names it
	Ref  string                     `json:"ref,omitempty"`  // a registered recipe, as in Child
	With map[string]json.RawMessage `json:"with,omitempty"` // values of its template parameters
}

// Settings are what applies to a recipe as a whole.
type Settings struct {
	InputSchema json.RawMessage `json:"inputSchema,omitempty"`
	// InputPolicy says what happens to an input with texts that a shell would expand (X171, R26): keep (default) | reject | strip.
	InputPolicy      string            `json:"inputPolicy,omitempty"`
	OutputSchema     json.RawMessage   `json:"outputSchema,omitempty"`
	Outputs          map[string]string `json:"outputs,omitempty"` // CEL per field (R41)
	Result           string            `json:"result,omitempty"`  // without Outputs: bindings (default) | steps
	CreditEstimation *CreditEstimation `json:"creditEstimation,omitempty"`
	// Values are fields of `workflow`.
	Values map[string]json.RawMessage `json:"values,omitempty"`
	// Functions may be called in expressions. The parser has replaced the calls of the recipe's own ones.
	Functions map[string]*Function `json:"functions,omitempty"`
	// Providers are, by action, parameters of steps that call it and do not give them.
	Providers map[string]map[string]json.RawMessage `json:"providers,omitempty"`

	Order             string `json:"order,omitempty"`               // sequence (default) | none
	Scheduling        string `json:"scheduling,omitempty"`          // eager (default) | waves
	FailurePolicy     string `json:"failure_policy,omitempty"`      // fail_fast (default) | drain (R7)
	OnUpstreamFailure string `json:"on_upstream_failure,omitempty"` // skip (default) | fail (R7)
	ResultRule        string `json:"result_rule,omitempty"`         // strict (default) | leaves (R9)
	CreditPolicy      string `json:"credit_policy,omitempty"`       // refund_unused (default) | refund_all | no_refund (R16)
	// ServiceRetry is the retry policy of steps that have none and whose actions call a service.
	ServiceRetry *RetryPolicy `json:"service_retry,omitempty"`
	TTL          Duration     `json:"ttl,omitempty"` // of a run; default 48 h
	Limits       *Limits      `json:"limits,omitempty"`
}

// Limits are the limits of a run: they can lower the server's defaults or raise them up
// to its maxima (design.md section 14). 0 = default.
type Limits struct {
	MaxTotalSteps int64 `json:"max_total_steps,omitempty"` // X231, default 100,000
	MaxLoopItems  int64 `json:"max_loop_items,omitempty"`  // default 100,000
	MaxScopeDepth int64 `json:"max_scope_depth,omitempty"` // default 32
	MaxDepth      int64 `json:"max_depth,omitempty"`       // of child runs; default 10
	MemoryLimitMB int64 `json:"memory_limit_mb,omitempty"` // default 256
	// MaxExpressionCost bounds each evaluation. Default 100,000.
	MaxExpressionCost int64 `json:"max_expression_cost,omitempty"`
}

// A Function is an expression with parameters.
type Function struct {
	Params     []string `json:"params,omitempty"`
	Expression string   `json:"expression"` // CEL; it reads nothing but the parameters
}

// A Step is a vertex of the definition (X4). Type determines which kind field must be
// present; without Type, the kind field that is present determines the type.
type Step struct {
	ID   string `json:"id,omitempty"` // generated by compile when missing (X53)
	Name string `json:"name,omitempty"`
	Type string `json:"type,omitempty"` // action, condition, parallel, transform, loop, wait, fail, recipe

	Action    *Action    `json:"action,omitempty"`
	Condition *Condition `json:"condition,omitempty"`
	Parallel  *Parallel  `json:"parallel,omitempty"`
	Transform *Transform `json:"transform,omitempty"`
	Loop      *Loop      `json:"loop,omitempty"`
	Wait      *Wait      `json:"wait,omitempty"`
	Fail      *Fail      `json:"fail,omitempty"`
	Recipe    *Child     `json:"recipe,omitempty"`

	DependsOn   *[]string    `json:"dependsOn,omitempty"` // nil = by order; empty = none
	RetryPolicy *RetryPolicy `json:"retryPolicy,omitempty"`
	Timeout     Duration     `json:"timeout,omitempty"` // per attempt (R20)
	Common

	Ptr string `json:"-"` // JSON pointer of the step in its Source
}

// Common is what steps of all kinds may have, in every dialect.
type Common struct {
	When          string             `json:"when,omitempty"`          // CEL; false = skipped(condition)
	InputBindings map[string]Binding `json:"inputBindings,omitempty"` // by input (X7)
	OutputBinding string             `json:"outputBinding,omitempty"`

	OnError         *OnError    `json:"onError,omitempty"`
	TotalTimeout    Duration    `json:"total_timeout,omitempty"` // over all attempts and waits (R20)
	ContinueOnError bool        `json:"continue_on_error,omitempty"`
	OnParentFailure string      `json:"on_parent_failure,omitempty"` // propagate (default) | skip | substitute_default (X120)
	Compensate      *Compensate `json:"compensate,omitempty"`
	Contracts       *Contracts  `json:"contracts,omitempty"`
	Moderation      *Moderation `json:"moderation,omitempty"`
	Cache           *Cache      `json:"cache,omitempty"`
}

// A Binding gives an input its value: that of an expression, or those of several as one (X65). In a text,
// an expression alone is short for Expression.
type Binding struct {
	Expression string  `json:"expression,omitempty"` // CEL
	From       []*Part `json:"from,omitempty"`
	Merge      string  `json:"merge,omitempty"` // of From: last_write_wins (default) | concat | array | json_object
}

// MarshalJSON writes the short form where there is one.
func (b Binding) MarshalJSON() ([]byte, error) {
	if len(b.From) == 0 {
		return jsonx.Marshal(b.Expression)
	}
	type binding Binding
	return jsonx.Marshal(binding(b))
}

// UnmarshalJSON reads both forms.
func (b *Binding) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*b = Binding{}
		return json.Unmarshal(data, &b.Expression)
	}
	type binding Binding
	return json.Unmarshal(data, (*binding)(b))
}

// A Part is one of the values of a Binding. In a text, an expression alone is short for Expression.
type Part struct {
	Expression string `json:"expression"`      // CEL
	Label      string `json:"label,omitempty"` // its name in a json_object (X69); default the first step that it names
}

// Action refers to an action (X6). Parameters may hold templates (X9).
type Action struct {
	Name       string                     `json:"name"`
	Version    string                     `json:"version,omitempty"` // "" = active version
	Lens       *Lens                      `json:"lens,omitempty"`    // its prompt; the bindings are the values of its placeholders
	Parameters map[string]json.RawMessage `json:"parameters,omitempty"`
}

// A Lens names a version of a registered prompt template (X22). In a text, an id alone is short for ID.
type Lens struct {
	ID      string `json:"id"`
	Version string `json:"version,omitempty"` // "" = the current one when the run starts
}

// Condition runs exactly one of its sides (X44).
type Condition struct {
	Expression string  `json:"expression"` // CEL, bool
	Then       []*Step `json:"then"`
	Else       []*Step `json:"else,omitempty"`
}

// Parallel runs its branches concurrently; each branch is a sequence (X46).
type Parallel struct {
	Branches        [][]*Step `json:"branches"`
	WaitFor         string    `json:"waitFor,omitempty"`         // all (default) | any | first_success
	FailureStrategy string    `json:"failureStrategy,omitempty"` // fail_fast (default) | continue | ignore
}

// Transform computes a value without an action (X34): that of Expression or of Value.
type Transform struct {
	Expression    string          `json:"expression,omitempty"` // CEL
	Value         json.RawMessage `json:"value,omitempty"`      // may hold templates
	OutputBinding string          `json:"outputBinding,omitempty"`
}

// Loop runs its steps once per item (X59), or as long as a condition asks for it. With a condition or
// Accumulate, one iteration runs at a time.
type Loop struct {
	Over            string      `json:"over,omitempty"`  // CEL: a list, or a file of JSON array, JSONL or CSV
	As              string      `json:"as,omitempty"`    // default "item"; only with Over
	Index           string      `json:"index,omitempty"` // default "index", counts from 0
	While           string      `json:"while,omitempty"` // CEL, bool: checked before each iteration; not with Over
	Until           string      `json:"until,omitempty"` // CEL, bool: checked after each iteration
	MaxIterations   int64       `json:"maxIterations,omitempty"`
	Accumulate      *Accumulate `json:"accumulate,omitempty"`
	Steps           []*Step     `json:"steps"`
	MaxConcurrency  int64       `json:"maxConcurrency,omitempty"`  // default 1
	FailureStrategy string      `json:"failureStrategy,omitempty"` // fail_fast (default) | continue | ignore
}

// Names returns the names of the variables that the loop has inside.
func (l *Loop) Names() (names []string) {
	if l.Over != "" {
		names = append(names, cmp.Or(l.As, "item"))
	}
	if names = append(names, cmp.Or(l.Index, "index")); l.Accumulate != nil {
		names = append(names, l.Accumulate.As)
	}
	return names
}

// Accumulate gives each iteration of a loop a value that those before it have made.
type Accumulate struct {
	As         string          `json:"as"`
	Initial    json.RawMessage `json:"initial,omitempty"` // may hold templates; default null
	Expression string          `json:"expression"`        // CEL: the next value, after an iteration has completed
}

// Wait waits for exactly one of: a duration, a time, a signal, the decision of a person.
type Wait struct {
	Duration Duration        `json:"duration,omitempty"`
	Until    string          `json:"until,omitempty"`  // CEL: a timestamp or an RFC 3339 string
	Signal   string          `json:"signal,omitempty"` // name
	Approval *Approval       `json:"approval,omitempty"`
	Timeout  Duration        `json:"timeout,omitempty"` // of a signal or an approval; default the run's ttl
	Default  json.RawMessage `json:"default,omitempty"` // the answer to an approval at its time-out: decision, comment, values
}

// Approval asks a person. Title, Text, Form and Value may hold templates.
type Approval struct {
	Title     string          `json:"title"`
	Text      string          `json:"text,omitempty"`
	Form      json.RawMessage `json:"form,omitempty"`      // JSON Schema of an object
	Value     json.RawMessage `json:"value,omitempty"`     // shown with the text
	Approvers []string        `json:"approvers,omitempty"` // names of keys, role:NAME; default everybody with the scope
	Remind    Duration        `json:"remind,omitempty"`
	Reject    string          `json:"reject,omitempty"` // continue (default) | fail
}

// Fail ends the scope with a code and a message.
type Fail struct {
	Code    string `json:"code,omitempty"`    // default STEP_FAILED
	Message string `json:"message,omitempty"` // template
}

// Child runs another recipe as a run of its own (X15). Exactly one of Ref, File, Inline and Definition
// says which.
type Child struct {
	Ref    string  `json:"ref,omitempty"`    // a registered recipe: name, name@1, name@1.2 or name@1.2.3; or a template of one
	File   string  `json:"file,omitempty"`   // path, relative to the text that names it
	Inline *Recipe `json:"inline,omitempty"` // the recipe itself
	// Definition is CEL: the text of a recipe, or its value (X251).
	Definition string `json:"definition,omitempty"`

	// Inputs are the child's input beside the step's InputBindings; they may hold templates (X16).
	Inputs map[string]json.RawMessage `json:"inputs,omitempty"`
	// InputPolicy is that of Settings, for this child: the stricter of both applies.
	InputPolicy string    `json:"inputPolicy,omitempty"`
	Files       string    `json:"files,omitempty"`   // CEL: a list of files; default none
	Outputs     []*Output `json:"outputs,omitempty"` // default the child's result (X17)
	// Result is what the step gives without Outputs: result (default) is the child's result; last is the
	// output of its last step, if its result is the outputs of its steps.
	Result string `json:"result,omitempty"`
	// Inherit is what the child's text may use of this one (X18, R24): context (names that it does not have
	// itself), providers, functions. Only a child in a file or in this text can.
	Inherit    []string     `json:"inherit,omitempty"`
	Workspace  string       `json:"workspace,omitempty"` // path of the child run's directory (X162); default none
	Limits     *ChildLimits `json:"limits,omitempty"`
	MaxCredits int64        `json:"maxCredits,omitempty"`
	// Resume makes another try go on in the same child run, where it failed (X104).
	Resume bool `json:"resume,omitempty"`
}

// Sources returns the names of the fields that say which recipe it is.
func (k *Child) Sources() (given []string) {
	for _, f := range []struct {
		name string
		has  bool
	}{{"ref", k.Ref != ""}, {"file", k.File != ""}, {"inline", k.Inline != nil}, {"definition", k.Definition != ""}} {
		if f.has {
			given = append(given, f.name)
		}
	}
	return given
}

// Named returns the reference to a registered recipe, unless an expression says which one it is; "" = it has none.
func (k *Child) Named() string {
	if strings.Contains(k.Ref, "{{") || strings.Contains(k.Ref, "{%") {
		return ""
	}
	return k.Ref
}

// Inherits reports whether the child inherits something.
func (k *Child) Inherits(what string) bool { return slices.Contains(k.Inherit, what) }

// What a child may inherit.
const (
	InheritContext   = "context"
	InheritProviders = "providers"
	InheritFunctions = "functions"
)

// Output takes a part of a child's result (X17). In a text, a name alone is short for Path.
type Output struct {
	Path    string   `json:"path"`              // names of fields with dots between
	As      string   `json:"as,omitempty"`      // default the last name of Path
	Extract []string `json:"extract,omitempty"` // fields of the value at Path, each under its own name
}

// ChildLimits bound one child run and those below it. 0 = what the parent run passes on.
type ChildLimits struct {
	MaxDepth      int64 `json:"max_depth,omitempty"` // depth in the tree of runs; the root has 0 (X61)
	MaxTotalSteps int64 `json:"max_total_steps,omitempty"`
	MemoryLimitMB int64 `json:"memory_limit_mb,omitempty"`
}

// OnError is what happens after the last retry has failed (X106, X107).
type OnError struct {
	Strategy     string   `json:"strategy"` // fail | skip | fallback | retry
	FallbackStep *Step    `json:"fallbackStep,omitempty"`
	MaxRetries   int64    `json:"maxRetries,omitempty"`
	RetryDelay   Duration `json:"retryDelay,omitempty"`
}

// Retries reports whether it has the step retried. e may be nil.
func (e *OnError) Retries() bool {
	return e != nil && (e.Strategy == "retry" || e.MaxRetries > 0 || e.RetryDelay != "")
}

// RetryPolicy is how the recipe dialect writes the retry record (R18).
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
	Action        *Action            `json:"action"`
	InputBindings map[string]Binding `json:"inputBindings,omitempty"`
	RetryPolicy   *RetryPolicy       `json:"retryPolicy,omitempty"`
	Timeout       Duration           `json:"timeout,omitempty"`
}

// Contracts are JSON Schemas a step's input and output must fit (X166, X167).
type Contracts struct {
	Input  json.RawMessage `json:"input,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
}

// Moderation has moderators look at what an action gets and gives (X168). A text is short for
// Phase.
type Moderation struct {
	Phase  string   `json:"phase"`            // input | output | both | none
	By     []string `json:"by,omitempty"`     // names of moderators; default all that are configured
	Stream string   `json:"stream,omitempty"` // sentence (default) | hold
	Review *Review  `json:"review,omitempty"` // nil = what is flagged fails the step
}

// Review has people decide on what moderators have flagged.
type Review struct {
	By      []string `json:"by,omitempty"`      // names of keys, or role:NAME; default every key with the scope
	Timeout Duration `json:"timeout,omitempty"` // default 24h
	Remind  Duration `json:"remind,omitempty"`  // default never
}

// Cache lets a step use an earlier result of its action. In a text, true is short for the
// defaults, and false for none.
type Cache struct {
	TTL   Duration        `json:"ttl,omitempty"`   // how old a result may be; default 24 h
	Key   string          `json:"key,omitempty"`   // CEL: what must be the same besides the input
	Price json.RawMessage `json:"price,omitempty"` // credits that such a result costs; default 0
}

// CreditEstimation estimates what a run may cost (X147).
type CreditEstimation struct {
	Strategy       string `json:"strategy"` // fixed | per_file | calculated
	FixedCredits   int64  `json:"fixedCredits,omitempty"`
	PerFileCredits int64  `json:"perFileCredits,omitempty"`
	Formula        string `json:"formula,omitempty"` // CEL
	MaxCredits     int64  `json:"maxCredits,omitempty"`
}

// A Duration is text in the syntax of definitions and flags; see [form.Duration].
type Duration = form.Duration

// Scopes returns the lists of steps in a step whose bindings are those of its scope: all but the
// body of a loop.
func (s *Step) Scopes() (lists [][]*Step) {
	if s.Condition != nil {
		lists = append(lists, s.Condition.Then, s.Condition.Else)
	}
	if s.Parallel != nil {
		lists = append(lists, s.Parallel.Branches...)
	}
	if s.OnError != nil && s.OnError.FallbackStep != nil {
		lists = append(lists, []*Step{s.OnError.FallbackStep})
	}
	return lists
}

// HasStep reports whether one of the steps of the recipe itself has an id.
func (r *Recipe) HasStep(id string) bool {
	return slices.ContainsFunc(r.Steps, func(s *Step) bool { return s.ID == id })
}

// Each calls f for each step of the recipe, also for those within steps, but not for those of recipes
// within it.
func (r *Recipe) Each(f func(*Step)) { each(r.Steps, f) }

// EachInline calls f with each recipe within the recipe, and the step that runs it, but not with those within those.
func (r *Recipe) EachInline(f func(s *Step, inner *Recipe)) {
	r.Each(func(s *Step) {
		if s.Recipe != nil && s.Recipe.Inline != nil {
			f(s, s.Recipe.Inline)
		}
	})
}

func each(steps []*Step, f func(*Step)) {
	for _, s := range steps {
		if s == nil {
			continue
		}
		f(s)
		for _, inner := range s.Scopes() {
			each(inner, f)
		}
		if s.Loop != nil {
			each(s.Loop.Steps, f)
		}
	}
}

// SetPlace implements [form.Placed].
func (r *Recipe) SetPlace(pointer string) { r.Ptr = pointer }

// SetPlace implements [form.Placed].
func (s *Step) SetPlace(pointer string) { s.Ptr = pointer }
