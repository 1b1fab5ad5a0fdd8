// SPDX-License-Identifier: Apache-2.0

package form

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/yamlx"
)

// The limits on a source text.
const (
	DefaultBytes = 1 << 20
	MaxBytes     = 16 << 20
	// MaxDiagnostics is how many problems a text is told.
	MaxDiagnostics = 100

	// maxDepth is more than the deepest scopes that a server may allow (64, of up to
	// four brackets each), so that compile can report scopes that are too deep.
	maxDepth = 300
	// maxTokens bounds the memory of a large source; a step has 10 to 30.
	maxTokens = 1 << 20
)

// Options bound a source text. A zero field has the default that its comment names.
type Options struct {
	// MaxBytes is the size of the text. Default [DefaultBytes], at most [MaxBytes].
	MaxBytes int
	// Name is that of a text that has none, where its dialect needs none. Default: that of its
	// file.
	Name string
	// YAML parses a text in YAML. Default: [yamlx.Parse]. One of [yamlx.Parts] gives the same trees, and is
	// faster for versions of one text.
	YAML func([]byte, jsonx.Limits) (*jsonx.Node, []*jsonx.Error)
}

// Read reads the tree of a text in JSON or YAML. The tree is nil when nothing of the text could
// be read; the problems are those of the decoder, whose source is never nil. If a part of the text
// could not be read, the tree is that of the rest.
func Read(file string, src []byte, opt Options) (*jsonx.Node, *Decoder) {
	limit := min(cmp.Or(opt.MaxBytes, DefaultBytes), MaxBytes)
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	if len(src) > limit {
		return nil, &Decoder{file: file, src: newSource(file, nil, nil, false), diags: []fault.Diagnostic{{
			Code: fault.RecipeInvalid, Rule: jsonx.RuleLimit, Pos: fault.Pos{File: file},
			Msg:  fmt.Sprintf("the recipe has %d bytes, the limit is %d", len(src), limit),
			Hint: fmt.Sprintf("pass large data as a file; --max-source raises the limit up to %d", MaxBytes),
		}}}
	}
	lim := jsonx.Limits{Bytes: limit, Depth: maxDepth, Tokens: min(limit/8, maxTokens)}
	if opt.YAML == nil {
		opt.YAML = yamlx.Parse
	}
	tree, problems, yaml := opt.read(file, src, lim)
	source := newSource(file, src, tree, yaml)
	d := &Decoder{file: file, src: source}
	for _, p := range problems {
		d.diags = append(d.diags, d.problem(p))
	}
	if tree == nil && yaml {
		if tree = opt.parseWithoutStep(src, problems, lim); tree == nil {
			tree = opt.parsePrefix(src, problems, lim)
		}
		source.tree, source.partial = tree, tree != nil
	}
	return tree, d
}

// read builds the tree. A file whose name ends in .json is JSON. Otherwise text that
// begins with a bracket is JSON if it parses as JSON, and any other text is YAML. The
// problems of a text that is neither are those of the language of its file name, or of
// JSON.
func (opt Options) read(file string, src []byte, lim jsonx.Limits) (tree *jsonx.Node, problems []*jsonx.Error, yaml bool) {
	ext := strings.ToLower(path.Ext(file))
	text := bytes.TrimLeft(src, " \t\r\n")
	if ext != ".json" && !bytes.HasPrefix(text, []byte("{")) && !bytes.HasPrefix(text, []byte("[")) {
		tree, problems = opt.YAML(src, lim)
		return tree, problems, true
	}
	tree, problems = jsonx.Parse(src, lim)
	if tree == nil && ext != ".json" {
		flow, flowProblems := opt.YAML(src, lim)
		if flow != nil || ext == ".yaml" || ext == ".yml" {
			return flow, flowProblems, true
		}
	}
	return tree, problems, false
}

// problem converts an error of the JSON or YAML parser into a diagnostic.
func (d *Decoder) problem(p *jsonx.Error) fault.Diagnostic {
	diag := fault.Diagnostic{
		Code: fault.RecipeInvalid, Rule: p.Rule, Msg: p.Msg, Hint: p.Hint,
		Pos: place(d.file, p.Pos), Pointer: p.Pointer,
	}
	if p.First.Line > 0 {
		diag.Related = []fault.Place{{Pos: place(d.file, p.First), Msg: "first here"}}
	}
	return diag
}

// wrapper is a field that may hold the whole document, as the only one of an object (X26).
const wrapper = "plan_definition"

// Unwrapped returns the document in a text, which may be in plan_definition.
func Unwrapped(n *jsonx.Node) *jsonx.Node {
	if w := n.Child(wrapper); w != nil {
		return w
	}
	return n
}

// Document calls f with the document in a text, which may be in plan_definition: then nothing else is
// beside it.
func (d *Decoder) Document(n *jsonx.Node, f func(doc *jsonx.Node)) {
	doc := Unwrapped(n)
	if doc == n {
		f(n)
		return
	}
	for _, c := range n.Children {
		if c.Key != wrapper {
			d.path.Push(c.Key)
			d.Add(c.KeyPos, "unknown-field", fmt.Sprintf("%q is not allowed beside %s", shorten(c.Key), wrapper), "move it into "+wrapper+", or remove it")
			d.path.Pop()
		}
	}
	d.path.Push(wrapper)
	defer d.path.Pop()
	f(doc)
}

// Decode decodes a document into v, a pointer to what the form is of, and sets what has no problem.
// The functions are asked about objects within this document, but not within others that they
// decode.
func (d *Decoder) Decode(n *jsonx.Node, f *Form, v any, instead ...Instead) {
	outer := d.instead
	d.instead = instead
	defer func() { d.instead = outer }()
	d.Object(n, f, v)
}

// Object decodes an object into v, a pointer to one of the structs of the form.
func (d *Decoder) Object(n *jsonx.Node, f *Form, v any) {
	to := reflect.ValueOf(v).Elem()
	d.object(n, f.shapes().objects[to.Type()], to)
}

// Source returns the source of the text.
func (d *Decoder) Source() *Source { return d.src }

// Diagnostics returns the problems of the text in its order, at most MaxDiagnostics.
func (d *Decoder) Diagnostics() []fault.Diagnostic {
	if d.src.partial {
		d.diags = slices.DeleteFunc(d.diags, func(diag fault.Diagnostic) bool {
			inStep := slices.ContainsFunc(stepLists, func(list string) bool { return strings.Contains(diag.Pointer, "/"+list+"/") })
			return diag.Rule == "missing-field" && !inStep // it may be in the part that could not be read
		})
	}
	heap.Sort(d.diags, func(a, b fault.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Col, b.Pos.Col), cmp.Compare(a.Rule, b.Rule))
	})
	return d.diags[:min(len(d.diags), MaxDiagnostics)]
}

func shorten(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:57]) + "..."
	}
	return s
}
