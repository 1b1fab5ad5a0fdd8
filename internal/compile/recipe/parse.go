// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/yamlx"
)

// The limits on a source text.
const (
	DefaultBytes = 1 << 20
	MaxBytes     = 16 << 20
	// MaxDiagnostics is how many problems Parse returns.
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
}

// Parse reads a recipe in JSON or YAML, which may be wrapped in plan_definition. The
// recipe is nil when there are diagnostics; they are all the problems of the text, in
// its order. The Source is never nil.
func Parse(file string, src []byte, opt Options) (*Recipe, *Source, []fault.Diagnostic) {
	limit := min(cmp.Or(opt.MaxBytes, DefaultBytes), MaxBytes)
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	if len(src) > limit {
		return nil, newSource(file, nil, nil, false), []fault.Diagnostic{{
			Code: fault.RecipeInvalid, Rule: jsonx.RuleLimit, Pos: fault.Pos{File: file},
			Msg:  fmt.Sprintf("the recipe has %d bytes, the limit is %d", len(src), limit),
			Hint: fmt.Sprintf("pass large data as a file; --max-source raises the limit up to %d", MaxBytes),
		}}
	}
	lim := jsonx.Limits{Bytes: limit, Depth: maxDepth, Tokens: min(limit/8, maxTokens)}
	tree, problems, yaml := read(file, src, lim)
	source := newSource(file, src, tree, yaml)
	d := &decoder{file: file, src: source}
	for _, p := range problems {
		d.diags = append(d.diags, d.problem(p))
	}
	var r *Recipe
	if tree == nil && yaml {
		if tree = parseWithoutStep(src, problems, lim); tree == nil {
			tree = parsePrefix(src, problems, lim)
		}
		source.tree, source.partial = tree, tree != nil
	}
	if tree != nil {
		r = d.document(tree)
	}
	if source.partial {
		d.diags = slices.DeleteFunc(d.diags, func(diag fault.Diagnostic) bool {
			return diag.Rule == "missing-field" && !strings.Contains(diag.Pointer, "/steps/") // it may be in the part that could not be read
		})
	}
	if len(d.diags) > 0 {
		source.recovered = r
		return nil, source, inOrder(d.diags)
	}
	return r, source, nil
}

// read builds the tree. A file whose name ends in .json is JSON. Otherwise text that
// begins with a bracket is JSON if it parses as JSON, and any other text is YAML. The
// problems of a text that is neither are those of the language of its file name, or of
// JSON.
func read(file string, src []byte, lim jsonx.Limits) (tree *jsonx.Node, problems []*jsonx.Error, yaml bool) {
	ext := strings.ToLower(path.Ext(file))
	text := bytes.TrimLeft(src, " \t\r\n")
	if ext != ".json" && !bytes.HasPrefix(text, []byte("{")) && !bytes.HasPrefix(text, []byte("[")) {
		tree, problems = yamlx.Parse(src, lim)
		return tree, problems, true
	}
	tree, problems = jsonx.Parse(src, lim)
	if tree == nil && ext != ".json" {
		flow, flowProblems := yamlx.Parse(src, lim)
		if flow != nil || ext == ".yaml" || ext == ".yml" {
			return flow, flowProblems, true
		}
	}
	return tree, problems, false
}

// problem converts an error of the JSON or YAML parser into a diagnostic.
func (d *decoder) problem(p *jsonx.Error) fault.Diagnostic {
	diag := fault.Diagnostic{
		Code: fault.RecipeInvalid, Rule: p.Rule, Msg: p.Msg, Hint: p.Hint,
		Pos: place(d.file, p.Pos), Pointer: p.Pointer,
	}
	if p.First.Line > 0 {
		diag.Related = []fault.Place{{Pos: place(d.file, p.First), Msg: "first here"}}
	}
	return diag
}

// document finds the recipe in a tree, refuses other dialects, and decodes it.
func (d *decoder) document(n *jsonx.Node) *Recipe {
	if w := n.Child("plan_definition"); w != nil {
		for _, c := range n.Children {
			if c.Key != w.Key {
				d.path.Push(c.Key)
				d.add(c.KeyPos, "unknown-field", fmt.Sprintf("%q is not allowed beside plan_definition", shorten(c.Key)), "move it into plan_definition, or remove it")
				d.path.Pop()
			}
		}
		d.path.Push(w.Key)
		defer d.path.Pop()
		n = w
	}
	if d.otherDialect(n) {
		return nil
	}
	r := &Recipe{}
	d.object(n, root.object, reflect.ValueOf(r).Elem())
	return r
}

// otherDialect recognises, by their keys, dialects that this release does not run.
func (d *decoder) otherDialect(n *jsonx.Node) bool {
	if n.Child("steps") != nil {
		return false
	}
	dialects := []struct{ key, name string }{{"workflow", "pipeline"}, {"edges", "flow"}, {"nodes", "dag"}}
	tell := n.Child("dialect")
	for _, other := range dialects {
		c := n.Child(other.key)
		var pos jsonx.Pos
		switch {
		case c != nil:
			pos = c.KeyPos
		case tell != nil && tell.Text == other.name:
			c, pos = tell, tell.Pos
		default:
			continue
		}
		d.path.Push(c.Key)
		d.add(pos, "dialect",
			fmt.Sprintf("%q is a key of the %s dialect; this release runs the recipe dialect only", c.Key, other.name),
			`write it as a recipe, with "name" and "steps"`)
		d.path.Pop()
		d.diags[len(d.diags)-1].Code = fault.NotAvailable
		return true
	}
	return false
}

// inOrder sorts diagnostics by position and keeps the first MaxDiagnostics.
func inOrder(diags []fault.Diagnostic) []fault.Diagnostic {
	slices.SortStableFunc(diags, func(a, b fault.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Col, b.Pos.Col), cmp.Compare(a.Rule, b.Rule))
	})
	return diags[:min(len(diags), MaxDiagnostics)]
}
