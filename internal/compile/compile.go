// SPDX-License-Identifier: Apache-2.0

// Package compile turns a recipe into a plan, or says at which places it does
// not hold together.
//
// It decides everything about a recipe that can be known before it runs: the
// graphs and the order of their steps, what every name in every expression
// means, which actions are called and whether their inputs fit, the one retry
// record behind all spellings, the limits in force, and which outputs a run
// must keep. What is provably wrong is an error and leaves no plan; what is
// probably a mistake is a warning. All problems are reported at once.
//
// Order. In an ordered scope a step with dependsOn waits for exactly the steps
// it lists and those its expressions name; one without waits for the step above
// it too. `order: none` drops that last rule everywhere but in the branches of
// a parallel step, which are sequences (X46). What a step inside a scope names
// outside of it, the step that owns the scope waits for.
//
// Names. A binding's name means the nearest step above that binds it, in the
// innermost scope that has one; in a scope without order, where none is above,
// the nearest below. Steps that bind one name in one scope must run one after
// the other, and nobody may read it while another step may set it, so that no
// result depends on which of two steps is faster. Where some path leaves a name
// unset there is a warning, where every path does an error. A step's own name
// is seen in its scope and those inside it. Compensations see everything that
// was bound and wait for nothing.
//
// Retries and times. retryPolicy wins over onError; onError.maxRetries retries
// before any strategy; an initial delay above the default maximum raises it. A
// step that no worker holds has one try, so its timeout is its total timeout.
//
// Two recipes that mean the same compile to plans of the same hash: dialect,
// places, names and descriptions leave no trace in it.
//
// Estimate says what a run of a plan may cost before there is one.
//
// It evaluates nothing but constants and the credit formula, reads no file, and never decides
// whether a text has the form of a recipe (package recipe) or what runs next
// (package machine).
package compile

import (
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
)

// Options is what a recipe is compiled against. Zero fields take the default
// their comment names.
type Options struct {
	// Actions are the declared actions. Default: none.
	Actions Actions
	// Limits are the server's defaults and maxima. Default: DefaultLimits().
	Limits Limits
	// MaxSource is the largest source text in bytes. Default 1 MiB; a flag of
	// the command line raises it, never the recipe itself.
	MaxSource int64
}

// Compile turns a recipe into a sealed plan. The plan is nil when one of the
// diagnostics is an error. src gives the diagnostics their places; without it
// they carry only JSON pointers.
func Compile(r *recipe.Recipe, src *recipe.Source, opt Options) (*plan.Plan, []fault.Diagnostic) {
	c := newCompiler(r, src, opt)
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
		c.lint() // what an error keeps from being read is not unused
	}
	diags := c.diagnostics()
	if HasErrors(diags) {
		return nil, diags
	}
	if err := c.p.Seal(); err != nil {
		c.fail(fault.InternalError, "internal", location{}, err.Error(), "")
		return nil, c.diagnostics()
	}
	return c.p, diags
}

// HasErrors says whether any of the diagnostics is an error.
func HasErrors(diags []fault.Diagnostic) bool {
	for _, d := range diags {
		if d.Severity == fault.SeverityError {
			return true
		}
	}
	return false
}

// compiler is one compilation. Its phases run once each, in the order Compile
// lists them; each reads what those before it found.
type compiler struct {
	r      *recipe.Recipe
	src    *recipe.Source
	opt    Options
	limits Limits
	base   string // JSON pointer of the recipe in its source
	p      *plan.Plan
	nodes  []node // beside p.Steps
	byID   map[string]int32

	actions  map[plan.ActionRef]int32
	decls    map[*action.Action]*declared
	names    []string // of all actions, for near matches
	gotNames bool

	frames        map[int32]*frame           // by graph
	binders       map[graphSlot][]int32      // steps of a graph that bind a slot, themselves or in an inner scope
	firstDefinite map[graphSlot]int          // index of the first binder that surely binds
	branchOf      map[graphSlot]int32        // parallel step and slot: the branch that binds it
	neverEnds     map[int32]bool             // graphs that never complete
	readers       map[graphSlot][]slotReader // whoever reads a slot, lifted into that graph
	edges         []edge                     // edges from references
	edgeIndex     map[[2]int32]int           // index into waits
	outputRead    map[int32]bool             // steps whose output an expression reads
	slotRead      map[graphSlot]bool         // bindings an expression reads (graph = frame)
	programs      map[exprKey]*program       // one per distinct text
	checks        map[string][]problem       // typed checks by text, wish and types
	typeIDs       map[string]int             // interned schemas
	items         map[int32]schemaType       // of the items of a loop, by its body
	wrapped       map[*declared]schemaType
	slotTypes     map[graphSlot]schemaType
	input         *schemaType
	params        *schemaType // of `parameters`; input is that of `input`
	diags         []fault.Diagnostic
	count         [2]int // of diagnostics, by severity
	seen          map[string]bool
	cyclic        map[int32]bool // graphs with a circle: nothing follows from their order
}

// node is what compile knows of a step beside the plan.
type node struct {
	src     *recipe.Step
	ptr     string
	invalid bool // its kind is unclear: nothing more is said about it
	decl    *declared
	// bindPtr is where its outputBinding stands.
	bindPtr    string
	bind       string
	explicitID bool // its id is written, not generated
}

type graphSlot struct{ graph, slot int32 }

// frame is a graph that holds bindings.
type frame struct {
	slots map[string]int32
	names []string  // by slot
	by    [][]int32 // by slot: the steps that bind it themselves
}

func newCompiler(r *recipe.Recipe, src *recipe.Source, opt Options) *compiler {
	c := &compiler{
		r: r, src: src, opt: opt, limits: opt.Limits.orDefault(),
		p:             &plan.Plan{},
		byID:          map[string]int32{},
		actions:       map[plan.ActionRef]int32{},
		decls:         map[*action.Action]*declared{},
		frames:        map[int32]*frame{},
		binders:       map[graphSlot][]int32{},
		firstDefinite: map[graphSlot]int{},
		branchOf:      map[graphSlot]int32{},
		neverEnds:     map[int32]bool{},
		readers:       map[graphSlot][]slotReader{},
		edgeIndex:     map[[2]int32]int{},
		outputRead:    map[int32]bool{},
		slotRead:      map[graphSlot]bool{},
		programs:      map[exprKey]*program{},
		checks:        map[string][]problem{},
		typeIDs:       map[string]int{},
		items:         map[int32]schemaType{},
		wrapped:       map[*declared]schemaType{},
		slotTypes:     map[graphSlot]schemaType{},
		seen:          map[string]bool{},
		cyclic:        map[int32]bool{},
	}
	if len(r.Steps) > 0 {
		// A recipe may stand inside a wrapper such as plan_definition.
		c.base = strings.TrimSuffix(r.Steps[0].Ptr, "/steps/0")
	}
	return c
}
