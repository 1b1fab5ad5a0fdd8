// SPDX-License-Identifier: Apache-2.0

// Package plan is the compiled form of a recipe: an immutable graph of steps in
// flat arrays, identified by the hash of its canonical form.
//
// It decides what a plan is and when two plans are the same. It never decides what runs
// next (package machine does), evaluates nothing (package expr does) and does no I/O. A
// plan is never changed after Freeze; every run keeps the plan it started with (X27).
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Version is the version of the canonical form; it is part of the hash.
const Version = 1

// None is the index of an absent graph or step.
const None int32 = -1

// A Kind is what a step does.
type Kind uint8

// The kinds of step. The numbers are part of the canonical form: append only.
const (
	Action Kind = iota
	Condition
	Parallel
	Loop
	Transform
	Wait
	Fail
	Recipe
)

var kindNames = [...]string{"action", "condition", "parallel", "loop", "transform", "wait", "fail", "recipe"}

func (k Kind) String() string { return kindNames[k] }

// Kinds is the number of kinds.
const Kinds = len(kindNames)

// A Role is why a graph exists.
type Role uint8

// The roles. The numbers are part of the canonical form: append only.
const (
	Root Role = iota
	Then
	Else
	Branch
	Body
	Fallback
	Compensation
)

var roleNames = [...]string{"root", "then", "else", "branch", "body", "fallback", "compensation"}

func (r Role) String() string { return roleNames[r] }

// A Plan is one compiled recipe. Graph 0 is the root. The steps of a graph are
// contiguous in Steps, in the order of the definition.
type Plan struct {
	Version int     `json:"v"`
	Graphs  []Graph `json:"graphs"`
	Steps   []Step  `json:"steps"`
	// Actions are the distinct action references; Step.Action indexes them.
	Actions []ActionRef `json:"actions,omitempty"`
	// Children are the distinct recipes that steps run as child runs; Child.Ref indexes them.
	Children []ChildRef `json:"children,omitempty"`

	InputSchema  json.RawMessage `json:"inputSchema,omitempty"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	// InputPolicy says what happens to an input with texts that a shell would expand: reject or strip;
	// "" = nothing. See package sanitize.
	InputPolicy string `json:"inputPolicy,omitempty"`
	// Outputs are the fields of the run's result (R41), sorted by name. Without them the
	// result has the fields of OutputSchema from the last step's output; without an
	// OutputSchema it is {binding: output}.
	Outputs []Binding `json:"outputs,omitempty"`
	// OfSteps is set if the result without Outputs and OutputSchema is {step: output}, of the steps
	// of the root that have completed. (result: steps)
	OfSteps bool `json:"ofSteps,omitempty"`

	// Values are the fields that `workflow` has besides name and version, an object.
	Values json.RawMessage `json:"values,omitempty"`
	// Inherits is what expressions read of the context of the parent run. Only a plan that is
	// embedded for a step that hands its context on has any.
	Inherits []Inherited `json:"inherits,omitempty"`

	Drain        bool `json:"drain,omitempty"`        // failure_policy: drain
	UpstreamFail bool `json:"upstreamFail,omitempty"` // on_upstream_failure: fail
	Leaves       bool `json:"leaves,omitempty"`       // result_rule: leaves
	Waves        bool `json:"waves,omitempty"`        // scheduling: waves

	TTLMS    int64     `json:"ttlMs"`
	Limits   Limits    `json:"limits"`
	Estimate *Estimate `json:"estimate,omitempty"`

	// Labels are the names of steps, by id, where they differ from the id. They are for
	// people and not part of the hash, but of the key: recipes with the same meaning but
	// different names of steps are stored separately.
	Labels map[string]string `json:"labels,omitempty"`

	// Embedded are the plans of the embedded children and of theirs, each once, sorted by
	// key. They are stored as plans of their own, so Encode leaves them out, and a decoded
	// plan has none.
	Embedded []*Plan `json:"-"`
	// Registered are the recipes that the references in this plan, in Embedded and in the
	// plans of Registered found when this one was compiled, sorted by reference. Like
	// Embedded it is not stored; the plans in it have none.
	Registered []Registered `json:"-"`

	hash Hash
	key  string
}

// Limits are the effective limits of a run, within the server's maxima.
type Limits struct {
	TotalSteps  int64 `json:"steps"`
	LoopItems   int64 `json:"items"`
	ScopeDepth  int64 `json:"depth"`
	MemoryBytes int64 `json:"memory"`
	// ExpressionCost is what one evaluation of an expression or template may cost. 0 is
	// the default of package expr, also in plans that are older than this field.
	ExpressionCost int64 `json:"cost,omitempty"`
	// ChildDepth is how many levels of child runs may be below a run of the plan. 0 is
	// DefaultChildDepth for a root run and what its parent passes on for a child run, also
	// in plans that are older than this field.
	ChildDepth int64 `json:"childDepth,omitempty"`
}

// Estimate is the credit estimation (X147), from which a run reserves credits.
type Estimate struct {
	Strategy string `json:"strategy"`
	Fixed    int64  `json:"fixed,omitempty"`
	PerFile  int64  `json:"perFile,omitempty"`
	Formula  string `json:"formula,omitempty"`
	Reads    []Var  `json:"reads,omitempty"` // the steps of the root graph that the formula names
	Max      int64  `json:"max,omitempty"`
	Policy   string `json:"policy"` // refund_unused | refund_all | no_refund
}

// An ActionRef is a reference as written in the recipe; the event run.started records the
// version that it resolved to.
type ActionRef struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

func (r ActionRef) String() string {
	if r.Version == "" {
		return r.Name
	}
	return r.Name + "@" + r.Version
}

// A Graph is the static form of a scope.
type Graph struct {
	First   int32 `json:"first"` // its steps are Steps[First : First+N]
	N       int32 `json:"n"`     // may be 0
	Owner   int32 `json:"owner"` // step that owns it; None for the root
	Role    Role  `json:"role"`
	Ordinal int32 `json:"ordinal"` // index of a branch, else 0
	// Frame is the graph that holds the bindings of this one: itself for the root and
	// for a loop body, else the nearest such graph outward.
	Frame int32 `json:"frame"`
	Slots int32 `json:"slots"` // how many bindings live here, when it is a frame
	Depth int32 `json:"depth"` // 0 for the root
	Waves int32 `json:"waves"` // longest path + 1; 0 when empty
	// Out is the step whose output is the scope's output: the last one in the
	// definition, or None when the graph is empty.
	Out int32 `json:"out"`
	// Compensates is set when a step in the graph or below has a compensation, so that
	// its scopes stay in memory until the run ends.
	Compensates bool `json:"compensates,omitempty"`
}

// A Step is a vertex.
type Step struct {
	ID    string  `json:"id"`
	Kind  Kind    `json:"kind"`
	Graph int32   `json:"graph"`
	Preds []int32 `json:"preds,omitempty"` // plan-wide step indices, same graph, sorted, distinct
	Succs []int32 `json:"succs,omitempty"` // the inverse of Preds
	Wave  int32   `json:"wave"`            // longest path from a root of its graph

	When *Expr `json:"when,omitempty"`

	// Kind action.
	Action   int32           `json:"action"`             // index into Actions; None otherwise
	Params   json.RawMessage `json:"params,omitempty"`   // object; strings in it may be templates
	ParamRef []Var           `json:"paramRef,omitempty"` // the variables of those templates
	Bindings []Binding       `json:"bindings,omitempty"` // sorted by name
	Prompt   *Prompt         `json:"prompt,omitempty"`   // of a lens; it is the action's input "prompt"
	// FileInput is the one input of format file that is not bound; it gets the run's
	// only file. "" = none.
	FileInput string          `json:"fileInput,omitempty"`
	Required  []string        `json:"required,omitempty"` // inputs whose absence is INPUT_MISSING
	InputC    json.RawMessage `json:"inputContract,omitempty"`
	OutputC   json.RawMessage `json:"outputContract,omitempty"`
	Gate      *Gate           `json:"gate,omitempty"` // nil = nothing is moderated
	// OutputMarks is the action's output schema, if it marks values that are not to be shown.
	OutputMarks json.RawMessage `json:"outputMarks,omitempty"`
	Cache       *Cache          `json:"cache,omitempty"` // nil = the action is always called

	// Kind condition and transform, which has Params instead if it makes its value of templates; Expr of a loop is `over` (nil = it has Rounds), of a wait `until`,
	// of a fail its message (a template), of a recipe the list of its files.
	Expr *Expr `json:"expr,omitempty"`
	Then int32 `json:"then"` // graph, None when absent
	Else int32 `json:"else"`

	// Kind parallel.
	Branches []int32  `json:"branches,omitempty"` // graphs
	WaitFor  WaitFor  `json:"waitFor,omitempty"`
	Strategy Strategy `json:"strategy,omitempty"` // parallel and loop

	// Kind loop.
	Body        int32  `json:"body"`
	As          string `json:"as,omitempty"`
	Index       string `json:"index,omitempty"`
	Concurrency int32  `json:"concurrency,omitempty"`
	// Rounds is what a loop decides between its iterations, which then run one at a time; nil = nothing.
	Rounds *Rounds `json:"rounds,omitempty"`

	// Kind wait.
	DurationMS int64  `json:"durationMs,omitempty"`
	Signal     string `json:"signal,omitempty"`
	SignalMS   int64  `json:"signalMs,omitempty"` // timeout of a signal; 0 = the run's ttl bounds it

	// Kind fail.
	Code string `json:"code,omitempty"`

	// Kind recipe; nil otherwise. Params and Bindings are the input of the child run.
	Child *Child `json:"child,omitempty"`

	Bind string `json:"bind,omitempty"` // outputBinding
	Slot int32  `json:"slot"`           // its slot in the frame; None without

	Retry           Retry        `json:"retry"`
	OnError         OnError      `json:"onError,omitempty"`
	Fallback        int32        `json:"fallback"`
	ContinueOnError bool         `json:"continueOnError,omitempty"`
	ParentFailure   ParentPolicy `json:"parentFailure,omitempty"`
	Compensate      int32        `json:"compensate"` // graph of one action step, None when absent
	TimeoutMS       int64        `json:"timeoutMs,omitempty"`
	TotalTimeoutMS  int64        `json:"totalTimeoutMs,omitempty"`

	// Keep is set when an expression, the run's result or a compensation may read the
	// output after the step has settled, so that the run keeps it in memory.
	Keep bool `json:"keep,omitempty"`
}

// Rounds are what a loop decides between its iterations: whether another one runs, and what that gets of the
// ones before it.
type Rounds struct {
	While *Expr `json:"while,omitempty"` // checked before each iteration of a loop without Expr
	Until *Expr `json:"until,omitempty"` // checked after each iteration that has completed
	// Max is how many iterations a loop without Expr may run; 0 with Expr.
	Max int64 `json:"max,omitempty"`

	// As is the name of the value that is accumulated; "" = there is none, nor the fields below.
	As         string          `json:"as,omitempty"`
	Initial    json.RawMessage `json:"initial,omitempty"` // strings in it may be templates
	InitialRef []Var           `json:"initialRef,omitempty"`
	Next       *Expr           `json:"next,omitempty"` // the value after an iteration that has completed
}

// Exprs returns the expressions of the rounds; some may be nil. r may be nil.
func (r *Rounds) Exprs() []*Expr {
	if r == nil {
		return nil
	}
	return []*Expr{r.While, r.Until, r.Next}
}

// Accumulates reports whether the loop accumulates a value. r may be nil.
func (r *Rounds) Accumulates() bool { return r != nil && r.As != "" }

// A Cache says when an earlier result of the step's action, for the same input, is used in place
// of a call.
type Cache struct {
	TTLMS int64 `json:"ttlMs"`           // how old the result may be
	Price int64 `json:"price,omitempty"` // what it costs at most, in millionths of a credit
	Key   *Expr `json:"key,omitempty"`   // what must be the same besides the input; nil = nothing
}

// WaitFor is a parallel step's join rule.
type WaitFor uint8

// The join rules (X47–X49).
const (
	WaitAll WaitFor = iota
	WaitAny
	WaitFirstSuccess
)

// Strategy is what happens when a branch or iteration fails.
type Strategy uint8

// The failure strategies (X50–X52).
const (
	FailFast Strategy = iota
	Continue
	Ignore
)

// OnError is what happens after the last retry has failed.
type OnError uint8

// The strategies of onError; retry is compiled into Retry.
const (
	OnErrorFail OnError = iota
	OnErrorSkip
	OnErrorFallback
)

// ParentPolicy is on_parent_failure (X120).
type ParentPolicy uint8

// The policies.
const (
	Propagate ParentPolicy = iota
	SkipOnParent
	SubstituteDefault
)

// A Gate has moderators look at what a step gets and gives (X168). What they have not passed is
// not recorded.
type Gate struct {
	Input  bool     `json:"input,omitempty"`
	Output bool     `json:"output,omitempty"`
	By     []string `json:"by,omitempty"`   // names of moderators, sorted; empty = all that are configured
	Hold   bool     `json:"hold,omitempty"` // streamed text waits for the verdict on the whole output
	// Review says that people decide on what is flagged; nil = it fails the step.
	Review *Review `json:"review,omitempty"`
}

// Review is how people decide on what moderators have flagged.
type Review struct {
	By        []string `json:"by,omitempty"` // who may decide; empty = everyone with the scope
	TimeoutMS int64    `json:"timeoutMs"`
	RemindMS  int64    `json:"remindMs,omitempty"`
}

// Retry is the one retry record of all spellings (R18, X105–X116).
type Retry struct {
	Attempts   int64    `json:"attempts"` // total, at least 1
	InitialMS  int64    `json:"initialMs"`
	MaxMS      int64    `json:"maxMs"`
	Multiplier float64  `json:"multiplier"`
	Jitter     float64  `json:"jitter"`       // 0..1
	On         []string `json:"on,omitempty"` // causes or codes; empty = every retryable code
}

// A Binding is a named value: that of an expression, or those of several as one.
type Binding struct {
	Name  string `json:"name"`
	Expr  Expr   `json:"expr,omitzero"`
	Merge Merge  `json:"merge,omitempty"` // of From; 0 = it has Expr
	From  []Part `json:"from,omitempty"`  // in the order of the definition
}

// A Part is one of the values of a binding.
type Part struct {
	Expr  Expr   `json:"expr"`
	Label string `json:"label,omitempty"` // of a MergeObject, distinct in the binding
}

// Merge is how several values become one (X65). Where the last one counts (X66), compile has dropped the others.
type Merge uint8

// The merges (X67–X69). The numbers are part of the canonical form: append only.
const (
	MergeConcat Merge = iota + 1
	MergeArray
	MergeObject
)

// Exprs returns the expressions of the binding.
func (b *Binding) Exprs() []*Expr {
	if b.Merge == 0 {
		return []*Expr{&b.Expr}
	}
	list := make([]*Expr, len(b.From))
	for i := range b.From {
		list[i] = &b.From[i].Expr
	}
	return list
}

// InputVars returns the variables of everything that the step's input is made of.
func (s *Step) InputVars() []Var {
	vars, bindings := slices.Clone(s.ParamRef), s.inputBindings()
	for i := range bindings {
		for _, e := range bindings[i].Exprs() {
			vars = append(vars, e.Vars...)
		}
	}
	if s.Child != nil {
		vars = append(vars, s.Child.vars()...)
	}
	return vars
}

func (s *Step) inputBindings() []Binding {
	if s.Prompt == nil {
		return s.Bindings
	}
	return slices.Concat(s.Bindings, s.Prompt.Values)
}

// A Prompt is a text that is made of the template of a lens (X41).
type Prompt struct {
	Lens     string `json:"lens"`     // id@version, which graphs show
	Template string `json:"template"` // it reads Values alone
	// Values are what its placeholders stand for, sorted by name. The step's InputC is about the object of
	// them, and not about the action's input.
	Values []Binding `json:"values,omitempty"`
}

// An Expr is an expression or template with its resolved variables.
type Expr struct {
	Src      string `json:"src"`
	Template bool   `json:"template,omitempty"` // {{ … }} text instead of CEL
	Vars     []Var  `json:"vars,omitempty"`
}

// VarKind is where the value of a variable comes from.
type VarKind uint8

// The kinds of variable.
const (
	VarInput       VarKind = iota // input, inputs, parameters, fileHashes, files, workflow, _context
	VarBinding                    // an outputBinding: frame Graph, slot Index
	VarStep                       // a step's result object: step Index, in the scope of graph Graph
	VarItem                       // the loop variable of body Graph
	VarIndex                      // the loop index of body Graph
	VarNow                        // when the step of the expression became ready in its generation
	VarSeed                       // a text that is unique to the step instance and its generation
	VarBudget                     // what the run has used, and may still spend
	VarInherited                  // what the parent run has handed over: Plan.Inherits[Index]
	VarAccumulated                // what the loop of body Graph has accumulated
)

// A Var is one resolved name of an expression. For `steps.x` Name is "steps" and Member
// is "x"; for others Member is "".
type Var struct {
	Name   string  `json:"name"`
	Member string  `json:"member,omitempty"`
	Kind   VarKind `json:"kind"`
	Graph  int32   `json:"graph"`
	Index  int32   `json:"index"`
}

// A Hash identifies a plan: SHA-256 of its canonical form.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Hash returns the plan's hash, which is equal for recipes with the same meaning. Freeze or
// Decode must have been called.
func (p *Plan) Hash() Hash { return p.hash }

// Freeze computes the hash; the plan must not be changed afterwards.
func (p *Plan) Freeze() error {
	p.Version = Version
	data, err := p.canonical()
	if err != nil {
		return fmt.Errorf("seal plan: %w", err)
	}
	p.hash = sha256.Sum256(data)
	p.key = p.hash.String()
	names, err := p.names()
	if err != nil {
		return fmt.Errorf("seal plan: %w", err)
	}
	if len(names) > 0 {
		sum := sha256.Sum256(names)
		p.key += "." + hex.EncodeToString(sum[:16])
	}
	return nil
}

// Key identifies the stored plan, including what is for people: its hash and, when it has
// labels or embedded children, a dot and the first 16 bytes of the SHA-256 of their names.
// Runs of two recipes with the same meaning share a plan only when these names are also
// equal, so that no account sees names from another one. Freeze or Decode must have been
// called.
func (p *Plan) Key() string { return p.key }

// HashOf returns the hash in a key.
func HashOf(key string) string {
	hash, _, _ := strings.Cut(key, ".")
	return hash
}

// canonical returns the JSON of everything that has a meaning. Fields are in the order of
// the structs and there are no maps, so equal plans give equal bytes.
func (p *Plan) canonical() ([]byte, error) {
	bare := *p
	bare.Labels = nil
	bare.Children = p.canonicalChildren()
	return json.Marshal(&bare)
}

// Encode returns the stored form: the canonical form and the names for people.
func (p *Plan) Encode() ([]byte, error) { return json.Marshal(p) }

// Decode decodes the result of Encode and computes the hash.
func Decode(data []byte) (*Plan, error) {
	p := new(Plan)
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("decode plan: %w", err)
	}
	if p.Version != Version {
		return nil, fmt.Errorf("decode plan: version %d, this release reads %d", p.Version, Version)
	}
	if err := p.Freeze(); err != nil {
		return nil, err
	}
	return p, nil
}

// Label returns the step's name for people: its label, else its id.
func (p *Plan) Label(step int32) string {
	if l, ok := p.Labels[p.Steps[step].ID]; ok {
		return l
	}
	return p.Steps[step].ID
}

// Conditional reports whether the step is a loop that has no items, and runs as its conditions ask for.
func (s *Step) Conditional() bool { return s.Kind == Loop && s.Expr == nil && s.Rounds != nil }

// LoopNames returns the names of the variables that a loop has inside.
func (s *Step) LoopNames() (names []string) {
	if s.As != "" {
		names = append(names, s.As)
	}
	if names = append(names, s.Index); s.Rounds.Accumulates() {
		names = append(names, s.Rounds.As)
	}
	return names
}

// Graphs returns the graphs that a step owns.
func (s *Step) Graphs() []int32 {
	var graphs []int32
	for _, g := range [...]int32{s.Then, s.Else, s.Body, s.Fallback, s.Compensate} {
		if g != None {
			graphs = append(graphs, g)
		}
	}
	return append(graphs, s.Branches...)
}
