// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// A Ref is a free name in a program, with the constant path of members after it:
// steps.fetch.output and steps['fetch'].output are {Name: "steps", Path: ["fetch", "output"]}.
type Ref struct {
	Name string
	Path []string
	// Dynamic is set when an index that is not constant follows Path.
	Dynamic bool
	// Offset and Len are the position of the name in the source, in runes.
	Offset, Len int
	// Pointer is the JSON pointer of the string of a tree that contains the name.
	Pointer string

	tested bool // only tested with has()
}

// A walker finds the free names of an expression.
type walker struct {
	env    *cel.Env
	info   *ast.SourceInfo
	offset int
	types  bool     // names of types are types, not variables
	bound  []string // names bound by enclosing comprehensions
	names  []string // free names, in order of appearance
	seen   map[string]bool
	refs   []Ref

	nest, deepest       int      // enclosing lists, maps and macros
	wrongKeys           problems // of maps: those that are there twice, or of type bytes
	mapComprehensions   []int64  // ids of the comprehensions that build maps
	comprehensionRanges []int64  // ids of what comprehensions iterate over
}

func walkAST(env *cel.Env, parsed *cel.Ast, offset int) *walker {
	w := &walker{env: env, info: parsed.NativeRep().SourceInfo(), offset: offset, seen: map[string]bool{}}
	w.types = callsType(parsed.NativeRep().Expr())
	w.walk(parsed.NativeRep().Expr())
	return w
}

// wrong returns the problems that the walk found, or nil.
func (w *walker) wrong(src string) problems {
	if w.deepest <= maxNest {
		return w.wrongKeys
	}
	return problems{{Offset: w.offset, Len: runes(src), Rule: RuleCost,
		Msg: fmt.Sprintf("lists, maps and macros nest deeper than %d levels", maxNest)}}
}

func (w *walker) walk(e ast.Expr) {
	switch e.Kind() {
	case ast.ListKind, ast.MapKind, ast.ComprehensionKind:
		w.nest++
		w.deepest = max(w.deepest, w.nest)
		defer func() { w.nest-- }()
	}
	switch e.Kind() {
	case ast.IdentKind, ast.SelectKind:
		w.selectionChain(e)
	case ast.CallKind:
		c := e.AsCall()
		switch c.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			w.selectionChain(e)
			return
		}
		if c.IsMemberFunction() {
			if name, ok := qualified(c.Target()); !ok || !w.env.HasFunction(name+"."+c.FunctionName()) {
				w.walk(c.Target())
			}
		}
		for _, a := range c.Args() {
			w.walk(a)
		}
	case ast.ListKind:
		for _, el := range e.AsList().Elements() {
			w.walk(el)
		}
	case ast.MapKind:
		w.keys(e.AsMap().Entries())
		for _, en := range e.AsMap().Entries() {
			w.walk(en.AsMapEntry().Key())
			w.walk(en.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, f := range e.AsStruct().Fields() {
			w.walk(f.AsStructField().Value())
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		if c.AccuInit().Kind() == ast.MapKind {
			w.mapComprehensions = append(w.mapComprehensions, e.ID())
		}
		w.comprehensionRanges = append(w.comprehensionRanges, c.IterRange().ID())
		w.walk(c.IterRange())
		w.walk(c.AccuInit())
		n := len(w.bound)
		w.bound = append(w.bound, c.AccuVar())
		w.walk(c.Result())
		w.bound = append(w.bound, c.IterVar())
		if v := c.IterVar2(); v != "" {
			w.bound = append(w.bound, v)
		}
		w.walk(c.LoopCondition())
		w.walk(c.LoopStep())
		w.bound = w.bound[:n]
	}
}

// bytesKey is the message for a key of type bytes, which the CEL library accepts and then cannot hash.
const bytesKey = "a map has no keys of type bytes: want strings, for example string(key)"

// keys finds wrong constant keys of a map. Others are found at run time: duplicates by mapNode.
func (w *walker) keys(entries []ast.EntryExpr) {
	seen := make(map[ref.Val]bool, len(entries))
	for _, en := range entries {
		entry := en.AsMapEntry()
		key := entry.Key()
		if key.Kind() != ast.LiteralKind {
			continue
		}
		rng, _ := w.info.GetOffsetRange(key.ID())
		p := Problem{Offset: w.offset + int(rng.Start), Len: max(1, int(rng.Stop-rng.Start)), Rule: RuleType, Msg: bytesKey}
		switch v := key.AsLiteral(); {
		case v.Type() == types.BytesType: // wrong, also if it is optional
		case entry.IsOptional():
			continue
		case !seen[v]:
			seen[v] = true
			continue
		default:
			p.Msg, p.Hint = duplicateKeyMessage(v), "name each key once"
		}
		w.wrongKeys = append(w.wrongKeys, p)
	}
}

// selectionChain follows selections and indexes inward to the name that they start from,
// and records the path. It walks index expressions on the way separately.
func (w *walker) selectionChain(e ast.Expr) {
	var path []string // innermost last while going in; reversed below
	dynamic, tested := false, false
	cut := func() { path, dynamic = nil, true }
	for {
		switch e.Kind() {
		case ast.SelectKind:
			s := e.AsSelect()
			path = append(path, s.FieldName())
			tested = tested || s.IsTestOnly()
			e = s.Operand()
			continue
		case ast.CallKind:
			c := e.AsCall()
			switch c.FunctionName() {
			case operators.Index, operators.OptIndex, operators.OptSelect:
			default:
				w.walk(e)
				return
			}
			args := c.Args()
			if lit := args[1]; lit.Kind() == ast.LiteralKind {
				if s, ok := lit.AsLiteral().(types.String); ok {
					path = append(path, string(s))
				} else {
					// A number indexes a list: the path ends before it, but the
					// reference is still constant.
					path, dynamic = nil, false
				}
			} else {
				cut()
				w.walk(args[1])
			}
			e = args[0]
			continue
		case ast.IdentKind:
			name := strings.TrimPrefix(e.AsIdent(), ".")
			if slices.Contains(w.bound, name) || w.types && isType(name) {
				return
			}
			slices.Reverse(path)
			w.add(Ref{Name: name, Path: path, Dynamic: dynamic, tested: tested && !dynamic}, e)
			return
		}
		w.walk(e)
		return
	}
}

func (w *walker) add(r Ref, ident ast.Expr) {
	if rng, ok := w.info.GetOffsetRange(ident.ID()); ok {
		r.Offset = w.offset + int(rng.Start)
	}
	if r.Len = runes(r.Name); r.Name == NowVar || r.Name == SeedVar {
		// The expansion of now() has the place of its parenthesis.
		r.Len--
		r.Offset -= r.Len
	}
	if !w.seen[r.Name] {
		w.seen[r.Name] = true
		w.names = append(w.names, r.Name)
	}
	w.refs = append(w.refs, r)
}

// qualified returns the dotted name of a chain of selections, such as math or sets.x, which
// may be the namespace of extension functions.
func qualified(e ast.Expr) (string, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent(), true
	case ast.SelectKind:
		s := e.AsSelect()
		in, ok := qualified(s.Operand())
		return in + "." + s.FieldName(), ok && !s.IsTestOnly()
	}
	return "", false
}

// callsType reports whether an expression calls type(). Only then do list, map, string and
// so on denote types, because they are also good names for variables.
func callsType(e ast.Expr) bool {
	found := false
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		found = found || e.Kind() == ast.CallKind && e.AsCall().FunctionName() == "type"
	}))
	return found
}

// isType reports whether a name denotes a CEL type.
func isType(name string) bool {
	switch name {
	case "bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint", "optional_type":
		return true
	}
	return false
}

// isSelection reports whether an expression only selects an existing value.
func isSelection(e ast.Expr) bool {
	switch e.Kind() {
	case ast.IdentKind:
		return true
	case ast.SelectKind:
		return !e.AsSelect().IsTestOnly() && isSelection(e.AsSelect().Operand())
	case ast.CallKind:
		switch c := e.AsCall(); c.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			return isSelection(c.Args()[0])
		case operators.Conditional:
			return isSelectionOrLiteral(c.Args()[1]) && isSelectionOrLiteral(c.Args()[2])
		}
	}
	return false
}

// constantPath returns the name and the members of an expression that only selects members
// by constant names, such as steps['a'].output.n, or nil for any other.
func constantPath(e ast.Expr) []string {
	switch e.Kind() {
	case ast.IdentKind:
		return []string{strings.TrimPrefix(e.AsIdent(), ".")}
	case ast.SelectKind:
		s := e.AsSelect()
		if in := constantPath(s.Operand()); in != nil && !s.IsTestOnly() {
			return append(in, s.FieldName())
		}
	case ast.CallKind:
		c := e.AsCall()
		if c.FunctionName() != operators.Index || c.Args()[1].Kind() != ast.LiteralKind {
			return nil
		}
		name, ok := c.Args()[1].AsLiteral().(types.String)
		if in := constantPath(c.Args()[0]); in != nil && ok {
			return append(in, string(name))
		}
	}
	return nil
}

// isSelectionOrLiteral also allows a literal, as one side of a conditional.
func isSelectionOrLiteral(e ast.Expr) bool { return e.Kind() == ast.LiteralKind || isSelection(e) }

// distinctRefs returns the distinct refs, without those that are only tested with has(),
// because their values are not read.
func distinctRefs(refs []Ref) []Ref {
	var out []Ref
	seen := map[string]bool{}
	for _, r := range refs {
		key := fmt.Sprintf("%q%q%v", r.Name, r.Path, r.Dynamic)
		if !r.tested && !seen[key] {
			seen[key] = true
			out = append(out, r)
		}
	}
	return out
}

// checkInputs checks the size of the values that the program refers to before it runs (I20).
func checkInputs(refs []Ref, vars Vars) error {
	for i := range refs {
		r := &refs[i]
		v, ok := vars.Lookup(r.Name)
		if !ok {
			continue
		}
		for _, p := range r.Path {
			m, isMap := v.(map[string]any)
			if !isMap {
				break
			}
			if v, ok = m[p]; !ok {
				break
			}
		}
		if !ok {
			continue
		}
		if err := checkInput(r, v); err != nil {
			return err
		}
	}
	return nil
}

func checkInput(r *Ref, v any) error {
	if r.Dynamic {
		// The index selects one member; each member may be as large as an input.
		if m, isMap := v.(map[string]any); isMap {
			for _, el := range m {
				if measure(el, MaxInput) > MaxInput {
					return inputTooLarge(r)
				}
			}
			return nil
		}
	}
	if measure(v, MaxInput) > MaxInput {
		return inputTooLarge(r)
	}
	return nil
}
