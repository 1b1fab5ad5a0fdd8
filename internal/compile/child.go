// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/plan"
)

// recipeStep compiles a step that runs another recipe: which one, its input, what the
// step takes of its result, and its limits.
func (c *compiler) recipeStep(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	st.Child = &plan.Child{MaxCredits: max(n.src.Recipe.MaxCredits, 0), Resume: n.src.Recipe.Resume,
		Last: n.src.Recipe.Result == "last" && len(n.src.Recipe.Outputs) == 0}
	st.Child.InputPolicy = c.inputPolicy(n.src.Recipe.InputPolicy, n.ptr+"/recipe")
	c.checkInherit(i)
	c.childWorkspace(i)
	c.childLimits(i)
	c.childOutputs(i)
	u := c.childRecipe(i)
	c.parameters(i)
	if u == nil || u.r == nil {
		return
	}
	n.child = u
	n.decl = u.callee(c.programs)
	c.checkParameters(i)
	c.requiredInputs(i)
	c.checkOutputs(i, u)
	if st.Child.Last && u.r.Result == "steps" && len(u.r.Outputs)+len(u.r.OutputSchema) == 0 {
		return // its output is that of a step
	}
	if schema := u.r.ResultSchema(st.Child.Outputs); schema != nil {
		n.result = &declared{Action: &action.Action{Name: u.r.Name, Output: schema}}
	}
}

// childRecipe finds, and unless it is a registered one compiles, the recipe that a step
// runs. It returns nil when the recipe is not known.
func (c *compiler) childRecipe(i int32) *unit {
	n := &c.nodes[i]
	k, at := n.src.Recipe, n.ptr+"/recipe"
	given := k.Sources()
	switch {
	case len(given) == 0:
		c.fail(fault.RecipeInvalid, "no-source", c.valueAt(at), "No pipeline source specified: the step does not say which recipe it runs",
			fmt.Sprintf("give it one of %q, %q, %q or %q", c.word(at+"/ref"), c.word(at+"/file"), c.word(at+"/inline"), c.word(at+"/definition")))
		return nil
	case len(given) > 1:
		c.fail(fault.RecipeInvalid, "two-sources", c.keyAt(at+"/"+given[1]),
			fmt.Sprintf("the step names two recipes, with %q and with %q; it can run only one", c.word(at+"/"+given[0]), c.word(at+"/"+given[1])), "remove one of them")
		return nil
	}
	switch where := c.valueAt(at + "/" + given[0]); given[0] {
	case "definition":
		c.use(i, nil, plan.ChildRef{Name: trimmed(k.Definition), By: plan.ByText}, where)
		return nil
	case "ref":
		if k.Named() == "" {
			c.use(i, nil, plan.ChildRef{Name: k.Ref, By: plan.ByName}, where)
			return nil
		}
		return c.registered(i, k.Ref, where)
	case "file":
		from := c.unit.file
		if c.src != nil { // the step may come from a text that this one extends
			from = c.src.FileOf(n.ptr)
		}
		u, err := c.in.inFile(from, k.File)
		if err == nil {
			u, err = c.in.inheriting(u, c.unit, k)
		}
		if err != nil {
			c.lookupFailed(err, where, "")
			return nil
		}
		return c.embed(i, u, path.Clean(k.File), where)
	default:
		u, err := c.in.inline(k.Inline, c.unit, at+"/inline")
		if err == nil {
			u, err = c.in.inheriting(u, c.unit, k)
		}
		if err != nil {
			c.lookupFailed(err, where, "")
			return nil
		}
		return c.embed(i, u, "", where)
	}
}

func (c *compiler) lookupFailed(err error, at location, hint string) {
	code, rule := codeOf(err)
	c.fail(code, rule, at, fault.Message(err), hint)
}

// registered resolves the name of a registered recipe as far as it is known before a run
// starts.
func (c *compiler) registered(i int32, ref string, at location) *unit {
	name, version := plan.SplitRef(ref)
	key := plan.ChildRef{Name: name, Version: version}
	u, err := c.in.registered(key.Name, key.Version)
	if err != nil {
		hint := ""
		if code, _ := codeOf(err); code == fault.RecipeNotFound && c.in.opt.Recipes != nil {
			if names := c.in.opt.Recipes.Names(); !slices.Contains(names, key.Name) {
				hint = didYouMean(key.Name, names)
			}
		}
		c.lookupFailed(err, at, hint)
		return nil
	}
	c.use(i, u, key, at)
	if u != nil && u.r == nil {
		c.invalidChild(i, u, at)
	}
	return u
}

// embed compiles a recipe in a file or in the same text, so that its plan is a part of
// this one. file is "" for one in the same text.
func (c *compiler) embed(i int32, u *unit, file string, at location) *unit {
	if on := c.in.compiles(u); on != nil {
		u = on
		c.fail(fault.CircularDependency, "recipe-cycle", at, "recipes include each other in a circle: "+c.in.chain(u),
			"remove one of these steps; a registered recipe can run itself with ref and limits.max_depth")
		return u
	}
	if u.state == parsed {
		// No limit can be higher than this one; the others depend on the way that leads
		// here, and the linker checks them on every way.
		if depth, most := int64(len(c.in.path)), c.limits.Max.ChildDepth; depth > most {
			c.fail(fault.DepthExceeded, "child-too-deep", at,
				fmt.Sprintf("Maximum nesting depth (%d) exceeded: child runs nest %d levels deep here", most, depth), "flatten the recipes")
			return u
		}
		c.in.compile(u)
	}
	if u.p == nil {
		c.invalidChild(i, u, at)
		return u
	}
	if u.inline {
		c.adopt(u.diags) // warnings
	}
	c.use(i, u, plan.ChildRef{Name: u.r.Name, Version: u.r.Version, Key: u.p.Key(), File: file}, at)
	return u
}

// use records which recipe a step runs.
func (c *compiler) use(i int32, u *unit, ref plan.ChildRef, at location) {
	st := &c.p.Steps[i]
	idx, ok := c.children[ref]
	if !ok {
		idx = int32(len(c.p.Children))
		c.p.Children = append(c.p.Children, ref)
		c.children[ref] = idx
	}
	st.Child.Ref = idx
	c.unit.uses = append(c.unit.uses, use{pos: c.pos(at), ptr: at.ptr, step: st.ID, unit: u, ref: ref, depth: st.Child.Depth})
}

// invalidChild reports that the recipe of a step does not compile, and why.
func (c *compiler) invalidChild(i int32, u *unit, at location) {
	if u.inline {
		c.adopt(u.diags)
		return
	}
	code, msg := u.invalid()
	c.fail(code, invalidRecipe, at, msg, "")
	for _, d := range u.tell(c.place(at, fmt.Sprintf("%q runs it", c.p.Steps[i].ID))) {
		c.addForeign(d)
	}
}

// addForeign adds a problem of another file, up to a bound.
func (c *compiler) addForeign(d fault.Diagnostic) {
	if len(c.foreign) < form.MaxDiagnostics {
		c.foreign = append(c.foreign, d)
	}
}

// adopt takes over the problems of a recipe in the same text.
func (c *compiler) adopt(diags []fault.Diagnostic) {
	for _, d := range diags {
		switch {
		case d.Pos.File != c.unit.file:
			c.addForeign(d)
		case !c.full(d.Severity):
			c.count[d.Severity]++
			c.diags = append(c.diags, d)
		}
	}
}

// childWorkspace compiles the path of the child run's workspace (X162).
func (c *compiler) childWorkspace(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	if n.src.Recipe.Workspace == "" {
		return
	}
	var err error
	if st.Child.Workspace, err = plan.ChildWorkspace(n.src.Recipe.Workspace, st.ID); err != nil {
		c.fail(fault.RecipeInvalid, "bad-workspace", c.valueAt(n.ptr+"/recipe/workspace"), fault.Message(err), "")
	}
}

func (c *compiler) childLimits(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	want := n.src.Recipe.Limits
	if want == nil {
		return
	}
	depth := c.unit.depth
	if c.unit.inline {
		depth = c.limits.Max.ChildDepth // its limit counts from its run, which is never the first one
	}
	for _, f := range []struct {
		name       string
		want       int64
		to         *int64
		most, unit int64
		outer      int64 // the recipe's own limit
	}{
		{"max_depth", want.MaxDepth, &st.Child.Depth, c.limits.Max.ChildDepth, 1, depth},
		{"max_total_steps", want.MaxTotalSteps, &st.Child.TotalSteps, c.limits.Max.TotalSteps, 1, c.p.Limits.TotalSteps},
		{"memory_limit_mb", want.MemoryLimitMB, &st.Child.MemoryBytes, c.limits.Max.MemoryBytes, mebibyte, c.p.Limits.MemoryBytes},
	} {
		at := c.valueAt(n.ptr + "/recipe/limits/" + f.name)
		switch {
		case f.want == 0:
		case f.want < 0:
			c.fail(fault.RecipeInvalid, "bad-limit", at, fmt.Sprintf("%s is %d; want at least 1", f.name, f.want), "")
		case f.want > f.most/f.unit:
			c.fail(fault.RecipeInvalid, "limit-too-high", at, fmt.Sprintf("%s is %d; this server allows at most %d", f.name, f.want, f.most/f.unit), "")
		default:
			*f.to = f.want * f.unit
			if *f.to > f.outer {
				c.warn("limit-higher", at, fmt.Sprintf("%s is %d, but this recipe's own limit is %d", f.name, f.want, f.outer/f.unit),
					fmt.Sprintf(`raise it with "limits: {%s: …}" of the recipe`, f.name))
			}
		}
	}
}

// childOutputs compiles what the step takes of the child's result (X17).
func (c *compiler) childOutputs(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	first := map[string]location{}
	add := func(name string, path []string, at location) {
		if where, ok := first[name]; ok {
			c.fail(fault.RecipeInvalid, "output-twice", at, fmt.Sprintf("two outputs are called %q", name), `give one of them another name with "as"`, c.place(where, "the first one"))
			return
		}
		first[name] = at
		st.Child.Outputs = append(st.Child.Outputs, plan.ChildOutput{Name: name, Path: path})
	}
	for k, o := range n.src.Recipe.Outputs {
		ptr := fmt.Sprintf("%s/recipe/outputs/%d", n.ptr, k)
		at := c.valueAt(ptr)
		if o == nil || o.Path == "" {
			c.fail(fault.RecipeInvalid, "missing-field", at, `the output needs the field "path"`, "")
			continue
		}
		path := strings.Split(o.Path, ".")
		switch {
		case o.As != "" && len(o.Extract) > 0:
			c.fail(fault.RecipeInvalid, "two-outputs", c.keyAt(ptr+"/extract"), `an output has "as" or "extract", not both`, "make two outputs of it")
		case len(o.Extract) > 0:
			for e, field := range o.Extract {
				add(field, append(slices.Clone(path), field), c.valueAt(fmt.Sprintf("%s/extract/%d", ptr, e)))
			}
		case o.As != "":
			add(o.As, path, at)
		default:
			add(path[len(path)-1], path, at)
		}
	}
	list := st.Child.Outputs
	sort.Slice(list, func(i, k int) bool { return list[i].Name < list[k].Name }) // an instance of slices.SortFunc takes 12 KB
}

// requiredInputs refuses a step that does not give its recipe what that requires. Values
// of bindings are checked when the child run starts.
func (c *compiler) requiredInputs(i int32) {
	n, d := &c.nodes[i], c.nodes[i].decl
	given, at := c.fixedInputs(i)
	for _, ptr := range []string{at, n.ptr + "/inputBindings"} {
		_, fixed := given[fileHashes]
		_, bound := n.src.InputBindings[fileHashes]
		_, known := d.props[fileHashes]
		if (known || !d.closed) && (fixed && ptr == at || bound && ptr != at) {
			c.fail(fault.RecipeInvalid, "reserved-name", c.keyAt(ptr+"/"+fileHashes), "fileHashes is not an input of its own: the child run's files are", `give its files with "files"`)
		}
	}
	for _, name := range d.required {
		_, fixed := given[name]
		_, bound := n.src.InputBindings[name]
		switch {
		case fixed || bound || name == fileHashes && n.src.Recipe.Files != "":
		case name == fileHashes:
			c.fail(fault.RecipeInvalid, "missing-input", c.valueAt(n.ptr+"/recipe"), d.what+" needs files", `give them with "files", for example "files: fileHashes"`)
		default:
			c.fail(fault.RecipeInvalid, "missing-input", c.valueAt(n.ptr+"/recipe"), fmt.Sprintf("%s needs the input %q", d.what, name), "give it under inputs or inputBindings")
		}
	}
}

// fileHashes is the field of every input that holds the run's files.
const fileHashes = "fileHashes"

// checkOutputs refuses outputs that the result of the recipe cannot have.
func (c *compiler) checkOutputs(i int32, u *unit) {
	n := &c.nodes[i]
	known, closed := u.r.ResultFields()
	if !closed {
		return
	}
	for k, o := range n.src.Recipe.Outputs {
		if o == nil || o.Path == "" {
			continue
		}
		name, _, _ := strings.Cut(o.Path, ".")
		if slices.Contains(known, name) {
			continue
		}
		hint := didYouMean(name, known)
		switch {
		case hint != "":
		case u.r.HasStep(name) && len(u.r.Outputs) > 0:
			hint = fmt.Sprintf("%q is a step of it; name its output under the outputs of the recipe", name)
		case u.r.HasStep(name):
			hint = fmt.Sprintf("%q is a step of it; give that step an outputBinding", name)
		case len(known) == 0:
			hint = "its result is empty; give it outputs"
		default:
			hint = "its outputs are " + strings.Join(known[:min(len(known), 16)], ", ")
		}
		c.fail(fault.RecipeInvalid, "unknown-output", c.valueAt(fmt.Sprintf("%s/recipe/outputs/%d", n.ptr, k)),
			fmt.Sprintf("the recipe %q has no output %q", u.r.Name, name), hint)
	}
}
