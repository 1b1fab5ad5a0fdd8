// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/plan"
)

// fileOf matches an expression that only selects the file of a binding or a step:
// page.file, steps.resize.output.file, resize.result.file.
var fileOf = regexp.MustCompile(`^[A-Za-z_]\w*(\.\w+|\['[\w-]+'\])*\.file$`)

// lintFileTypes warns when a file is passed to an action that does not accept its type
// (X11). It compares only what both actions declare: the output types of the one and the
// input types of the other.
func (c *compiler) lintFileTypes(i int32) {
	st, n := &c.p.Steps[i], &c.nodes[i]
	if st.Kind != plan.Action || n.decl == nil {
		return
	}
	takes := catalogue.MimeTypes(n.decl.Metadata.InputTypes)
	for k := range st.Bindings {
		b := &st.Bindings[k]
		if !slices.Contains(n.decl.files, b.Name) || len(b.Expr.Vars) != 1 || !fileOf.MatchString(b.Expr.Src) {
			continue
		}
		from := c.producer(&b.Expr.Vars[0])
		if from == nil || !slices.Contains(jsonschema.FileFields(from.Output), "file") {
			continue
		}
		// JSON is the type of the value that contains the file, not of the file.
		gives := slices.DeleteFunc(catalogue.MimeTypes(from.Metadata.OutputTypes), func(t string) bool { return t == "application/json" })
		if len(gives) == 0 || len(takes) == 0 || catalogue.MimesOverlap(gives, takes) {
			continue
		}
		c.warn("file-type", c.valueAt(n.ptr+"/inputBindings/"+b.Name),
			fmt.Sprintf("%s gives %s, and %s takes %s", from.Name, list(gives), n.decl.Name, list(takes)),
			"put an action between them that converts one into the other")
	}
}

// producer returns the action whose output a variable is, or nil.
func (c *compiler) producer(v *plan.Var) *action.Action {
	step := plan.None
	switch v.Kind {
	case plan.VarStep:
		step = v.Index
	case plan.VarBinding:
		if steps := c.binders[graphSlot{v.Graph, v.Index}]; len(steps) == 1 && c.p.Steps[steps[0]].Slot == v.Index {
			step = steps[0]
		}
	}
	if step == plan.None || c.p.Steps[step].Kind != plan.Action || c.nodes[step].decl == nil {
		return nil
	}
	return c.nodes[step].decl.Action
}
