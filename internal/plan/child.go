// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// DefaultChildDepth is how deep child runs may nest where nothing else is said, counted
// from the root run, which has depth 0.
const DefaultChildDepth = 10

// A ChildRef is a recipe that steps of a plan run as child runs. It is registered, and found when a
// run starts, or embedded: its plan was compiled with this one. Or an expression of the step says
// which one it is, and it is found when a run of the tree first asks for it (X251, R28).
type ChildRef struct {
	// Name is that of the recipe. Of an embedded one it is for people only; of one by an expression
	// it is the expression.
	Name string `json:"name,omitempty"`
	// Version of a registered recipe is as in the recipe: "" for the newest, a range such as
	// "1" or "1.2", or a version. Of an embedded recipe it is the version that it states.
	Version string `json:"version,omitempty"`
	// Key is the key of an embedded plan; "" of another recipe.
	Key string `json:"key,omitempty"`
	// By says what the expression of the step gives; "" = the step has none.
	By By `json:"by,omitempty"`
	// File is the file of an embedded recipe as the step names it, for people; "" = it is in the text of the
	// step's recipe, or an earlier release has stored the plan.
	File string `json:"file,omitempty"`
}

// SplitRef returns the name and the version of a reference to a registered recipe. "" = any version.
func SplitRef(ref string) (name, version string) {
	name, version, _ = strings.Cut(ref, "@")
	return strings.TrimSpace(name), version
}

// By is what an expression gives that says which recipe a step runs.
type By string

// What it may give.
const (
	ByName By = "name" // that of a registered recipe, perhaps with a version
	ByText By = "text" // the text of a recipe, or its value
)

// Source says where the recipe is: its file, the name of a registered one, or "inline" (X227).
func (r *ChildRef) Source() string {
	if r.Key == "" {
		return r.String()
	}
	return cmp.Or(r.File, "inline")
}

// Registered reports whether the recipe is found by its name when a run starts.
func (r *ChildRef) Registered() bool { return r.Key == "" && r.By == "" }

func (r *ChildRef) String() string {
	if r.Version == "" {
		return r.Name
	}
	return r.Name + "@" + r.Version
}

// A Child is what a step of kind recipe says of the run that it starts. The input of
// that run is made of the step's Params and Bindings, as that of an action; its files are
// the list that the step's Expr gives, and none without Expr.
//
// Of the limits 0 means that the step sets none. A limit only ever lowers what the parent
// run passes on.
type Child struct {
	Ref int32 `json:"ref"` // index into Plan.Children
	// RefExpr says which recipe it is, if that is by an expression; nil otherwise.
	RefExpr *Expr `json:"refExpr,omitempty"`
	// Outputs are the fields of the step's output, sorted by name. Without them the output
	// is the result of the child run.
	Outputs []ChildOutput `json:"outputs,omitempty"`
	// Last is set if the output without Outputs is that of the child's last step, where the result of the
	// child run is the outputs of its steps.
	Last bool `json:"last,omitempty"`
	// Resume is set if another try after a failure goes on in the same child run.
	Resume bool `json:"resume,omitempty"`
	// Captures is what the child run has of the context of this one, in the order of the child's
	// Inherits, without what it has as input.
	Captures []Capture `json:"captures,omitempty"`
	// Depth is how deep the run, and those below it, may stand in the tree of runs: the
	// root run has depth 0, so the run of a step of the root has depth 1.
	Depth       int64 `json:"depth,omitempty"`
	TotalSteps  int64 `json:"steps,omitempty"`   // of the run and those below it
	MemoryBytes int64 `json:"memory,omitempty"`  // of the run and those below it
	MaxCredits  int64 `json:"credits,omitempty"` // whole credits, of the run and those below it
	// InputPolicy is that of [Plan], for the input of the child run.
	InputPolicy string `json:"inputPolicy,omitempty"`
	// Workspace is the path of the run's workspace within what is the run's alone, as [ChildWorkspace]
	// returns it. "" = what the parent's step says, or none.
	Workspace string `json:"workspace,omitempty"`
}

// An Inherited is a value of the context of a parent run (X38): a field of its input or of `workflow`, a
// step, or a binding or loop variable.
type Inherited struct {
	Of   Context `json:"of"`
	Name string  `json:"name"`
}

// A Context is where an inherited value is found.
type Context uint8

// The contexts. The numbers are part of the canonical form: append only.
const (
	OfInput    Context = iota // a field of the input
	OfWorkflow                // a field of `workflow`
	OfSteps                   // the status, error and output of a step, by its id
	OfNames                   // a binding or loop variable
)

// A Capture is an inherited value and where the parent run has it: what Var stands for, or a field of that.
type Capture struct {
	Inherited
	Var   Var    `json:"var"`
	Field string `json:"field,omitempty"`
}

// vars are those of what the child run has of this one besides its input, and of which recipe it is.
func (c *Child) vars() (vars []Var) {
	if c.RefExpr != nil {
		vars = append(vars, c.RefExpr.Vars...)
	}
	for i := range c.Captures {
		vars = append(vars, c.Captures[i].Var)
	}
	return vars
}

// A ChildOutput is a field of the output of a recipe step: a part of the child's result.
type ChildOutput struct {
	Name string   `json:"name"`
	Path []string `json:"path"` // names of fields, from the result inward; at least one
}

// A Registered is what a reference to a registered recipe found at compile time.
type Registered struct {
	Ref     ChildRef
	Name    string // of the recipe, which Ref may name by its id
	Version string // the exact one; "" when the recipe states none
	Plan    *Plan
}

// EmbeddedPlan returns the embedded plan of that key, or nil. A decoded plan has none.
func (p *Plan) EmbeddedPlan(key string) *Plan {
	for _, e := range p.Embedded {
		if e.Key() == key {
			return e
		}
	}
	return nil
}

// canonicalChildren returns the references without what is for people: the canonical form
// has the hash of an embedded plan and neither its name nor the names of its steps.
func (p *Plan) canonicalChildren() []ChildRef {
	list := make([]ChildRef, len(p.Children))
	for i, r := range p.Children {
		if list[i] = r; r.Key != "" {
			list[i] = ChildRef{Key: HashOf(r.Key)}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// names returns everything in the plan that is for people, or nil when there is nothing.
func (p *Plan) names() (text []byte, err error) {
	if len(p.Labels) > 0 {
		if text, err = json.Marshal(p.Labels); err != nil { // sorted by id
			return nil, err
		}
	}
	for i := range p.Children {
		if r := &p.Children[i]; r.Key != "" {
			child, err := json.Marshal(r)
			if err != nil {
				return nil, err
			}
			text = append(text, child...)
		}
	}
	return text, nil
}

// checkChild checks what a step of kind recipe refers to.
func (p *Plan) checkChild(n int32) error {
	s := &p.Steps[n]
	if (s.Kind == Recipe) != (s.Child != nil) {
		return fmt.Errorf("plan: step %d lacks what its kind needs", n)
	}
	k := s.Child
	switch {
	case k == nil:
		return nil
	case k.Ref >= 0 && int(k.Ref) < len(p.Children) && (p.Children[k.Ref].By != "") != (k.RefExpr != nil):
		return fmt.Errorf("plan: step %d does not say which recipe it runs", n)
	case k.Ref < 0 || int(k.Ref) >= len(p.Children):
		return fmt.Errorf("plan: step %d runs a recipe that is not there", n)
	case k.Depth < 0 || k.TotalSteps < 0 || k.MemoryBytes < 0 || k.MaxCredits < 0:
		return fmt.Errorf("plan: step %d has a limit below zero", n)
	}
	if !checkWorkspace(k.Workspace) {
		return fmt.Errorf("plan: step %d has a workspace at a path that is none", n)
	}
	for i := range k.Outputs {
		if len(k.Outputs[i].Path) == 0 {
			return fmt.Errorf("plan: step %d has an output without a path", n)
		}
	}
	return nil
}

func (p *Plan) checkChildren() error {
	for i := range p.Children {
		r := &p.Children[i]
		switch {
		case r.By != "":
			if (r.By != ByName && r.By != ByText) || r.Name == "" || r.Key != "" {
				return fmt.Errorf("plan: child %d is by an expression that cannot be", i)
			}
		case r.Registered() && r.Name == "" || !r.Registered() && len(HashOf(r.Key)) != 2*len(Hash{}):
			return fmt.Errorf("plan: child %d is neither a name nor a plan", i)
		}
	}
	return nil
}
