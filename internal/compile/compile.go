// SPDX-License-Identifier: Apache-2.0

// Package compile turns a recipe into a plan, or reports its problems.
//
// It decides everything about a recipe that can be known before it runs: the
// graphs and the order of their steps, what every name in every expression
// means, which actions are called and whether their inputs fit, the one retry
// record that retryPolicy and onError both become, the limits in force, and which
// outputs a run must keep. What is surely wrong is an error, and there is no plan; what is
// probably wrong is a warning. All problems are reported at once.
//
// Order. In an ordered scope, a step with dependsOn waits for exactly the steps
// it lists and those its expressions name; a step without dependsOn also waits for
// the step above it. `order: none` drops that last rule everywhere but in the
// branches of a parallel step, which are sequences (X46). When a step inside a scope
// names a step outside it, the step that owns the scope waits for that step.
//
// Names. The name of a binding refers to the nearest step above that binds it, in the
// innermost scope that has one; in a scope without order, when there is none above, it
// refers to the nearest step below. Steps that bind the same name in one scope must run
// one after the other, and no step may read it while another step may set it, so that no
// result depends on which of two steps is faster. If some paths leave a name unset, that
// is a warning; if every path does, an error. The id of a step is visible in its scope
// and in the scopes inside it. Compensations see everything that was bound and wait for
// nothing.
//
// Retries and times. retryPolicy takes precedence over onError. onError.maxRetries
// applies with every strategy: the strategy follows when the last retry has failed. An
// initial delay above the default maximum raises the maximum. A step that no worker executes has one attempt, so its timeout is its total
// timeout.
//
// Child runs. A recipe in a file or within another one is compiled with it: its plan is a
// plan of its own, whose hash is part of the one that embeds it. A registered recipe is
// found when a run starts. If the caller can look it up, the inputs and outputs of its
// steps are checked at once. How deep child runs may nest is a number of levels below the
// root run, so a limit that a step sets holds at every level of a recursion.
//
// Recipes with the same meaning compile to plans with the same hash: dialect, positions
// in the text, names and descriptions are not part of it.
//
// Estimate returns what a run of a plan may cost, before there is one.
//
// The package evaluates only constants and the credit formula and reads no file. It never
// decides whether a text has the form of a recipe (package recipe) or what runs next
// (package machine).
package compile

import (
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// Options are what a recipe is compiled against. A zero field has the default that
// its comment names.
type Options struct {
	// Actions are the declared actions. Default: none.
	Actions catalogue.Actions
	// Limits are the server's defaults and maxima. Default: DefaultLimits().
	Limits Limits
	// MaxSource is the largest source text in bytes. Default 1 MiB. A flag of the
	// command line can raise it; the recipe itself cannot.
	MaxSource int64
	// Name is that of a text that has none; see form.Options.
	Name string
	// Recipes finds the recipes that steps name. Without it a recipe in a file is an error,
	// and what a registered recipe takes and gives is checked when a run starts.
	Recipes Recipes
	// Lenses finds the lenses that steps name. Without it every lens is an error.
	Lenses catalogue.Lenses
	// Secret returns why a secret of that name cannot be used, which is a warning. Without
	// it nothing is said about secrets.
	Secret func(name string) error
	// NoSecrets refuses references to secrets, in a text that nobody has looked at.
	NoSecrets bool
	// Expressions keeps what is found out about expressions for later compilations, if it is
	// one of [expressions.NewLasting]. Default: nothing is kept.
	Expressions *expressions.Cache
	// YAML parses the text itself, not those that it names; see form.Options.
	YAML func([]byte, jsonx.Limits) (*jsonx.Node, []*jsonx.Error)
}

// Compile turns a recipe into a plan with its hash. The plan is nil when one of the
// diagnostics is an error. src provides the positions of diagnostics; without it
// they have only JSON pointers.
//
// The plan has the plans of the recipes that it embeds, and those of the registered
// recipes that opt.Recipes found. Errors in these recipes are reported at their own places
// and, with the reason, where a step names them.
func Compile(r *recipe.Recipe, src *recipe.Source, opt Options) (*plan.Plan, []fault.Diagnostic) {
	in := newIncluder(opt)
	root := in.root(r, src)
	in.compile(root)
	diags := root.diags
	if root.p != nil {
		diags = append(diags, in.link(root)...)
		sortDiagnostics(diags, root.file)
	}
	if HasErrors(diags) {
		return nil, diags
	}
	return root.p, diags
}

// run compiles the recipe and returns its plan, or nil when there are errors.
func (c *compiler) run() *plan.Plan {
	if c.src != nil && !c.unit.inline { // else the recipe that this one is in has them
		c.diags = append(c.diags, c.src.SemanticErrors()...)
	}
	c.flatten()
	c.assignIDs()
	c.settings()
	c.compileSteps()
	c.bind()
	c.resolve()
	c.order()
	c.checkAmbiguity()
	c.markLive()
	if !HasErrors(c.diags) {
		c.lint() // only without errors, because an error can hide the use of a name
	}
	if HasErrors(c.diags) || HasErrors(c.foreign) {
		return nil
	}
	if err := c.p.Freeze(); err != nil {
		c.fail(fault.InternalError, "internal", location{}, err.Error(), "")
		return nil
	}
	return c.p
}

// HasErrors reports whether any of the diagnostics is an error.
func HasErrors(diags []fault.Diagnostic) bool {
	for _, d := range diags {
		if d.Severity == fault.SeverityError {
			return true
		}
	}
	return false
}

// A compiler is one compilation. Its phases run once each, in the order in which
// Compile lists them; each reads the results of those before it.
type compiler struct {
	r      *recipe.Recipe
	src    *recipe.Source
	opt    Options
	limits Limits
	base   string // JSON pointer of the recipe in its source
	in     *includer
	unit   *unit // the recipe
	p      *plan.Plan
	nodes  []node // parallel to p.Steps
	byID   map[string]int32

	actions  map[plan.ActionRef]int32
	decls    map[*action.Action]*declared
	names    []string // of all actions, for near matches
	gotNames bool

	children map[plan.ChildRef]int32

	bindings
	typing
	findings
}

// bindings record which steps bind names and which read them.
type bindings struct {
	frames        map[int32]*frame           // by graph
	binders       map[graphSlot][]int32      // steps of a graph that bind a slot, themselves or in an inner scope
	firstDefinite map[graphSlot]int          // index of the first binder that definitely binds
	branchOf      map[graphSlot]int32        // by parallel step and slot: the number of the branch that binds the slot
	neverEnds     map[int32]bool             // graphs that never complete
	readers       map[graphSlot][]slotReader // steps that read a slot, or their ancestors in that graph
	edges         []edge                     // edges from references
	edgeIndex     map[[2]int32]int           // index into edges
	outputRead    map[int32]bool             // steps whose output an expression reads
	slotRead      map[graphSlot]bool         // bindings that an expression reads, by frame and slot
	cyclic        map[int32]bool             // graphs with a cycle: their order is undefined
}

// typing records the programs of expressions and the types of values.
type typing struct {
	programs  *expressions.Cache
	checks    map[string][]problem // type checks by text, wanted type and types of the variables
	typeIDs   map[string]int       // interned schemas
	schemas   map[int]any          // of them, those that were read
	items     map[int32]schemaType // types of loop items, by the body of the loop
	wrapped   map[*declared]schemaType
	slotTypes map[graphSlot]schemaType
	input     *schemaType
	params    *schemaType // type of `parameters`; input is the type of `input`
}

// findings are the diagnostics so far.
type findings struct {
	diags   []fault.Diagnostic
	foreign []fault.Diagnostic // in the files of included recipes
	count   [2]int             // by severity
	seen    map[string]bool
}

// A node is what compile knows of a step and the plan does not hold.
type node struct {
	src     *recipe.Step
	ptr     string
	invalid bool // its kind is unclear, so no more problems are reported for it
	decl    *declared
	lens    *lensUse  // nil = its action has no lens
	result  *declared // of a recipe step: what its output is like
	child   *unit     // of a recipe step; nil = it is not known
	// bindPtr is the pointer to its outputBinding.
	bindPtr    string
	bind       string
	explicitID bool // its id is in the recipe, not generated
}

type graphSlot struct{ graph, slot int32 }

// A frame is a graph that holds bindings.
type frame struct {
	slots map[string]int32
	names []string  // by slot
	by    [][]int32 // by slot: the steps that bind it themselves
}

func newCompiler(r *recipe.Recipe, src *recipe.Source, opt Options) *compiler {
	c := &compiler{
		r: r, src: src, opt: opt, limits: opt.Limits.orDefault(),
		p:       &plan.Plan{},
		byID:    map[string]int32{},
		actions: map[plan.ActionRef]int32{}, children: map[plan.ChildRef]int32{},
		bindings: bindings{
			frames:        map[int32]*frame{},
			binders:       map[graphSlot][]int32{},
			firstDefinite: map[graphSlot]int{},
			branchOf:      map[graphSlot]int32{},
			neverEnds:     map[int32]bool{},
			readers:       map[graphSlot][]slotReader{},
			edgeIndex:     map[[2]int32]int{},
			outputRead:    map[int32]bool{},
			slotRead:      map[graphSlot]bool{},
			cyclic:        map[int32]bool{},
		},
		typing: typing{
			checks:    map[string][]problem{},
			typeIDs:   map[string]int{},
			schemas:   map[int]any{},
			items:     map[int32]schemaType{},
			wrapped:   map[*declared]schemaType{},
			slotTypes: map[graphSlot]schemaType{},
		},
		findings: findings{seen: map[string]bool{}},
	}
	c.base = r.Ptr
	return c
}
