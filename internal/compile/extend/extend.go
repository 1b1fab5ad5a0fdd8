// SPDX-License-Identifier: Apache-2.0

//go:build !small

package extend

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/spell"
)

const (
	// maxDepth is how deep texts extend each other, and maxTexts how many one extends in all.
	maxDepth, maxTexts = 10, 100
	// maxBytes is how many bytes these have together.
	maxBytes = form.MaxBytes
	// maxParameters is how many template parameters a text has: the schema of each is compiled.
	maxParameters = 200
	// maxListed is how many of their names a message lists.
	maxListed = 16
)

// A reader reads what texts extend.
type reader struct {
	Options
	chain []string // files, each of which extends the next
	texts int
	bytes int
	refs  []*recipe.Base // registered recipes that were found
	diags []fault.Diagnostic
}

// complete puts a recipe together with those that it extends.
func complete(r *recipe.Recipe, src *recipe.Source, opt Options) []fault.Diagnostic {
	if !extends(r) {
		return refuseInline(r, src)
	}
	rd := &reader{Options: opt, chain: []string{src.File()}}
	t := &text{reader: rd, r: r, src: src, at: r.Ptr}
	for _, field := range []string{"/extends", "/override", "/templateParameters"} { // another dialect is written without them
		src.Drop(src.Tree().Find(src.Pointer(r.Ptr + field)))
	}
	t.complete(nil)
	for _, ref := range rd.refs { // also those of its bases
		if !slices.ContainsFunc(r.Extends, func(b *recipe.Base) bool { return b != nil && b.Ref == ref.Ref }) {
			r.Extends = append(r.Extends, &recipe.Base{Ref: ref.Ref})
		}
	}
	return rd.diags
}

// refuseInline reports recipes within a recipe that extend others.
func refuseInline(r *recipe.Recipe, src *recipe.Source) (diags []fault.Diagnostic) {
	eachInline(r, func(in *recipe.Recipe) {
		if extends(in) {
			diags = append(diags, fault.Diagnostic{
				Code: fault.RecipeInvalid, Rule: "inline-extends", Pos: src.KeyPos(in.Ptr + "/extends"), Pointer: src.Pointer(in.Ptr + "/extends"),
				Msg: "a recipe within a text extends nothing", Hint: "write it in a file of its own, and name that with `file`",
			})
		}
	})
	return diags
}

// A text is a recipe that is being put together.
type text struct {
	*reader
	r        *recipe.Recipe
	src      *recipe.Source
	at       string         // pointer of the recipe
	override map[string]int // the first entry of override with each name
	used     []bool         // entries of override that stand for something
}

// A base is a recipe that a text extends, complete.
type base struct {
	r    *recipe.Recipe
	src  *recipe.Source
	own  string // pointer of the recipe in its text
	at   string // pointer of the recipe in the model of the text that extends it
	from string // pointer of the entry that names it
}

// given are the values of template parameters, and where they are.
type given struct {
	with map[string]json.RawMessage
	src  *recipe.Source
	at   string
}

func (t *text) report(code fault.Code, rule, at, msg, hint string, related ...fault.Place) {
	if len(t.diags) < form.MaxDiagnostics {
		t.diags = append(t.diags, fault.Diagnostic{Code: code, Rule: rule, Pos: t.src.KeyPos(at), Pointer: t.src.Pointer(at), Msg: msg, Hint: hint, Related: related})
	}
}

func (t *text) place(at, msg string) fault.Place { return fault.Place{Pos: t.src.KeyPos(at), Msg: msg} }

// complete adds the parts of its bases to a text. with is what the text that extends it gives it; nil = none does.
func (t *text) complete(with *given) {
	t.diags = append(t.diags, refuseInline(t.r, t.src)...)
	t.used, t.override = make([]bool, len(t.r.Override)), map[string]int{}
	for k, name := range slices.Backward(t.r.Override) {
		t.override[name] = k
	}
	t.parameters(with)
	var bases []*base
	for i, b := range t.r.Extends {
		if b == nil {
			continue
		}
		if made := t.base(i, b); made != nil {
			bases = append(bases, made)
		}
	}
	if len(t.diags) > 0 {
		return // parts may be missing
	}
	t.steps(bases)
	t.parts(bases)
	t.settings(bases)
	t.inputs(bases)
	for k, name := range t.r.Override {
		if !t.used[k] {
			t.report(fault.RecipeInvalid, "override-of-nothing", t.at+"/override/"+strconv.Itoa(k), fmt.Sprintf("%q overrides nothing: what this text extends has no such part, or this text has none of its own", name),
				"an id of a step, values.NAME, functions.NAME, outputs.NAME, providers.NAME or inputSchema.NAME that both have")
		}
	}
}

// overrides reports whether the text says that its own part of that name is in place of another one.
func (t *text) overrides(name string) bool {
	k, ok := t.override[name]
	if ok {
		t.used[k] = true
	}
	return ok
}

// base reads a text that this one extends, or reports why it cannot be used.
func (t *text) base(i int, b *recipe.Base) *base {
	from := t.at + "/extends/" + strconv.Itoa(i)
	tooMuch := func() *base {
		t.report(fault.RecipeInvalid, "extends-too-much", from, fmt.Sprintf("a recipe extends at most %d texts, with %d bytes together", maxTexts, maxBytes), "")
		return nil
	}
	if t.texts > maxTexts || t.bytes > maxBytes {
		return nil // reported
	}
	if t.texts++; t.texts > maxTexts { // also those count that are of no use: each is read
		return tooMuch()
	}
	found, err := t.find(b)
	if err != nil {
		code, rule := fault.RecipeNotFound, "unusable-recipe"
		var f *fault.Error
		if errors.As(err, &f) {
			code = f.Code
		}
		if code == fault.RecipeNotFound {
			rule = "unknown-recipe"
		}
		t.report(code, rule, from, fault.Message(err), "")
		return nil
	}
	file := path.Clean(found.File)
	if k := slices.IndexFunc(t.chain, func(on string) bool { return path.Clean(on) == file }); k >= 0 {
		t.report(fault.CircularDependency, "extends-cycle", from, "recipes extend each other in a circle: "+strings.Join(append(slices.Clone(t.chain[k:]), found.File), " → "), "remove one of these entries")
		return nil
	}
	t.bytes += len(found.Data)
	switch {
	case len(t.chain) > maxDepth:
		t.report(fault.DepthExceeded, "extends-too-deep", from, fmt.Sprintf("Maximum nesting depth (%d) exceeded: recipes extend each other deeper here", maxDepth), "write some of them in one text")
		return nil
	case t.bytes > maxBytes:
		return tooMuch()
	}
	r, src, diags := dialect.Read(found.File, found.Data, form.Options{MaxBytes: t.Form.MaxBytes, Name: found.Name})
	t.src.Include(src)
	if r == nil {
		for _, d := range diags[:min(len(diags), form.MaxDiagnostics-len(t.diags))] {
			d.Related = append(d.Related, t.place(from, fmt.Sprintf("%q extends it", t.r.Name)))
			t.diags = append(t.diags, d)
		}
		return nil
	}
	if b.Ref != "" {
		t.refs = append(t.refs, b)
	}
	made := &base{r: r, src: src, own: r.Ptr, at: from + "/base" + r.Ptr, from: from}
	inner := &text{reader: t.reader, r: r, src: src, at: r.Ptr}
	t.chain = append(t.chain, found.File)
	inner.complete(&given{b.With, t.src, from + "/with"})
	t.chain = t.chain[:len(t.chain)-1]
	t.src.AdoptSemantic(src.Source)
	t.src.Graft(from+"/base", src.Source, "")
	move(r, from+"/base")
	return made
}

func (t *text) find(b *recipe.Base) (*Text, error) {
	switch {
	case t.Recipes == nil:
		return nil, fault.New(fault.RecipeNotFound, "recipes cannot be read here: this one was given without its directory")
	case b.File != "":
		return t.Recipes.File(t.src.File(), b.File)
	}
	return t.Recipes.Find(plan.SplitRef(b.Ref))
}

// move puts a prefix before the pointers of a recipe.
func move(r *recipe.Recipe, prefix string) {
	r.Ptr = prefix + r.Ptr
	r.Each(func(s *recipe.Step) {
		if s.Ptr != "" {
			s.Ptr = prefix + s.Ptr
		}
	})
	r.EachInline(func(_ *recipe.Step, in *recipe.Recipe) { move(in, prefix) })
}

// parameters makes values of the template parameters of the text. They are data: nothing of them is read as a part of the
// text, nor as a template.
func (t *text) parameters(with *given) {
	declared := t.r.TemplateParameters
	if len(declared) > maxParameters {
		t.report(fault.RecipeInvalid, "too-many-parameters", t.at+"/templateParameters", fmt.Sprintf("a recipe has at most %d template parameters, this one has %d", maxParameters, len(declared)), "give one of them several values as an object")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		at := t.at + "/templateParameters/" + jsonx.EscapeToken(name)
		if t.r.Values[name] != nil {
			t.report(fault.RecipeInvalid, "given-twice", at, fmt.Sprintf("%q is a value and a template parameter", name), "give one of them another name", t.place(t.at+"/values/"+jsonx.EscapeToken(name), "the value"))
			continue
		}
		value, by, src := t.parameter(name, at, with)
		if value == nil {
			continue
		}
		if t.r.Values == nil {
			t.r.Values = map[string]json.RawMessage{}
		}
		t.r.Values[name] = value
		t.src.Graft(t.at+"/values/"+jsonx.EscapeToken(name), src.Source, by)
	}
	if with == nil {
		return
	}
	known := slices.Sorted(maps.Keys(declared))
	for _, name := range slices.Sorted(maps.Keys(with.with)) {
		if _, ok := declared[name]; ok {
			continue
		}
		if len(t.diags) == form.MaxDiagnostics {
			return
		}
		hint := "it has no template parameters"
		if near := spell.Closest(name, known); near != "" {
			hint = "did you mean " + strconv.Quote(near) + "?"
		} else if len(known) > 0 {
			hint = "it has " + strings.Join(known[:min(len(known), maxListed)], ", ")
			if len(known) > maxListed {
				hint += ", …"
			}
		}
		outer := &text{reader: t.reader, src: with.src}
		outer.report(fault.RecipeInvalid, "unknown-parameter", with.at+"/"+jsonx.EscapeToken(name), fmt.Sprintf("the recipe in %s has no template parameter %q", t.src.File(), name), hint)
	}
}

// parameter returns the value of a template parameter, and where it is; nil = a problem was reported.
func (t *text) parameter(name, at string, with *given) (value json.RawMessage, by string, src *recipe.Source) {
	schema, err := jsonschema.Compile(t.r.TemplateParameters[name])
	if err != nil {
		t.report(fault.RecipeInvalid, "bad-schema", at, "this is not a JSON Schema: "+fault.Message(err), "")
		return nil, "", nil
	}
	outer := t
	by, src = at+"/default", t.src
	if with != nil {
		if value = with.with[name]; value != nil {
			outer, by, src = &text{reader: t.reader, src: with.src}, with.at+"/"+jsonx.EscapeToken(name), with.src
		}
	}
	if value == nil {
		var s struct {
			Default json.RawMessage `json:"default"`
		}
		if json.Unmarshal(t.r.TemplateParameters[name], &s) != nil || s.Default == nil {
			if with == nil {
				t.report(fault.RecipeInvalid, "missing-parameter", at, fmt.Sprintf("the template parameter %q has no value: this text is a template", name), "extend it and give the value under `with`, or give the parameter a default")
			} else {
				(&text{reader: t.reader, src: with.src}).report(fault.RecipeInvalid, "missing-parameter", strings.TrimSuffix(with.at, "/with"), fmt.Sprintf("the recipe in %s needs a value for %q", t.src.File(), name),
					"give it under `with`", t.place(at, "the template parameter"))
			}
			return nil, "", nil
		}
		value = s.Default
	}
	v, err := jsonx.Decode(value, jsonx.Limits{Bytes: len(value) + 1})
	if err != nil {
		outer.report(fault.RecipeInvalid, "bad-value", by, err.Error(), "")
		return nil, "", nil
	}
	for _, bad := range schema.Validate(v) {
		outer.report(fault.RecipeInvalid, "bad-parameter", by, fmt.Sprintf("%s: %s", name+bad.Pointer, bad.Msg), "", t.place(at, "the template parameter"))
		return nil, "", nil
	}
	return value, by, src
}
