// SPDX-License-Identifier: Apache-2.0

//go:build !small

package dialect

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/rewrite"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// Functions are a way of writing: where an expression calls one, it means the expression of the function, with
// the arguments in place of the parameters. So nothing after this package knows of them.

// maxExpanded bounds an expression in which calls were replaced, in bytes; more than an expression may have.
const maxExpanded = 1 << 17

// Inherit replaces the calls of functions that a recipe inherits.
func Inherit(r *recipe.Recipe, src *recipe.Source, functions map[string]*recipe.Function) {
	if len(functions) > 0 {
		expand(r, src, functions)
	}
}

// replaceCalls replaces the calls of functions in a recipe, and in those within it that inherit them.
func replaceCalls(r *recipe.Recipe, src *recipe.Source, inherited map[string]*recipe.Function) {
	checkFunctions(r, src, inherited)
	all := maps.Clone(inherited)
	if all == nil {
		all = map[string]*recipe.Function{}
	}
	maps.Copy(all, r.Functions)
	if len(all) > 0 {
		expand(r, src, all)
	}
	r.Each(func(s *recipe.Step) {
		if s.Recipe == nil || s.Recipe.Inline == nil {
			return
		}
		if s.Recipe.Inherits(recipe.InheritFunctions) {
			replaceCalls(s.Recipe.Inline, src, all)
		} else {
			replaceCalls(s.Recipe.Inline, src, nil)
		}
	})
}

func expand(r *recipe.Recipe, src *recipe.Source, functions map[string]*recipe.Function) {
	e := &expander{functions: functions}
	(&rewrite.Rewriter{Source: src.Source, Code: func(at rewrite.Place, code string) (list []rewrite.Replacement) {
		for _, c := range e.calls(code) {
			offset := at.Offset + utf8.RuneCountInString(code[:c.from])
			with, err := e.replace(c, code)
			if err != "" {
				src.AddSemantic(at.Pointer, offset, len(c.name), "bad-call", err, "")
				with = "null" // nothing else is reported
			}
			list = append(list, rewrite.Replacement{From: c.from, To: c.to, With: with})
		}
		return list
	}}).Recipe(r)
}

// checkFunctions reports functions that cannot be called.
func checkFunctions(r *recipe.Recipe, src *recipe.Source, inherited map[string]*recipe.Function) {
	for _, name := range slices.Sorted(maps.Keys(r.Functions)) {
		f, at := r.Functions[name], r.Ptr+"/functions/"+jsonx.EscapeToken(name)
		bad := func(pointer string, offset, length int, msg, hint string) {
			src.AddSemantic(pointer, offset, length, "bad-function", msg, hint)
		}
		switch {
		case f == nil:
			continue // reported as it was decoded
		case !expressions.IsName(name):
			bad(at, 0, 0, fmt.Sprintf("%q cannot be the name of a function", name), "want letters, digits and underscores, not starting with a digit, and no CEL keyword")
			continue
		case !free(name):
			bad(at, 0, 0, fmt.Sprintf("%q is a function of the language", name), "give this one another name")
			continue
		}
		for i, p := range f.Params {
			if slices.Contains(f.Params[:i], p) || !expressions.IsName(p) {
				bad(at+"/params", 0, 0, fmt.Sprintf("%q cannot be the name of a parameter, or is that of two", p), "")
			}
		}
		e := &expander{functions: maps.Clone(inherited)}
		if e.functions == nil {
			e.functions = map[string]*recipe.Function{}
		}
		maps.Copy(e.functions, r.Functions)
		body, problem := e.body(name)
		if problem != "" {
			bad(at+"/expression", 0, 0, problem, "")
			continue
		}
		p := expressions.NewCache(nil).Program(body, false)
		for _, problem := range p.Problems {
			if problem.Rule != expr.RuleUndefinedName { // a function that is inherited by who calls it
				bad(at+"/expression", problem.Offset, problem.Len, problem.Msg, problem.Hint)
			}
		}
		for _, ref := range p.Refs {
			if !slices.Contains(f.Params, ref.Name) {
				bad(at+"/expression", ref.Offset, ref.Len, fmt.Sprintf("%q is no parameter of the function %q", ref.Name, name), "a function reads nothing but its parameters")
			}
		}
	}
}

// free reports whether the language has no function of a name.
func free(name string) bool {
	p := expressions.NewCache(nil).Program(name+"()", false)
	return len(p.Problems) > 0 && p.Problems[0].Rule == expr.RuleUndefinedName
}

// An expander replaces calls of functions.
type expander struct {
	functions map[string]*recipe.Function
	open      []string // functions whose expressions are being made
	made      int      // bytes
}

// A call is a call of a function in some code.
type call struct {
	name     string
	from, to int
	args     []string
}

// tokens are texts, which are left alone, names, and brackets.
var tokens = regexp.MustCompile(`"""(?s:.*?)"""|'''(?s:.*?)'''|[rRbB]?"(?:[^"\\]|\\.)*"|[rRbB]?'(?:[^'\\]|\\.)*'|[A-Za-z_][A-Za-z0-9_]*|[()\[\]{},]`)

// calls returns the outermost calls in code.
func (e *expander) calls(code string) (list []call) {
	all := tokens.FindAllStringIndex(code, -1)
	for i := 0; i < len(all); i++ {
		from, to := all[i][0], all[i][1]
		name := code[from:to]
		if e.functions[name] == nil || i+1 == len(all) || strings.TrimSpace(code[to:all[i+1][0]]) != "" || code[all[i+1][0]] != '(' {
			continue
		}
		before := strings.TrimRight(code[:from], " \t\r\n")
		if strings.HasSuffix(before, ".") || strings.HasSuffix(before, "|") && !strings.HasSuffix(before, "||") {
			continue // a method, or a filter
		}
		c := call{name: name, from: from}
		var last int
		c.args, last = arguments(code, all, i+1)
		if last < 0 {
			return list // the brackets do not fit, which compile reports
		}
		c.to = all[last][1]
		list = append(list, c)
		i = last
	}
	return list
}

// arguments returns what is between the bracket at a token and the one that closes it, by its commas, and the
// number of that token; -1 = nothing closes it.
func arguments(code string, all [][]int, open int) (args []string, last int) {
	depth, begin := 0, all[open][1]
	for k := open; k < len(all); k++ {
		switch code[all[k][0]] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case ',':
			if depth == 1 {
				args, begin = append(args, code[begin:all[k][0]]), all[k][1]
			}
		}
		if depth == 0 {
			if arg := code[begin:all[k][0]]; strings.TrimSpace(arg) != "" || len(args) > 0 {
				args = append(args, arg)
			}
			return args, k
		}
	}
	return nil, -1
}

// expanded replaces all calls in code.
func (e *expander) expanded(code string) (text, problem string) {
	var b strings.Builder
	done := 0
	for _, c := range e.calls(code) {
		with, problem := e.replace(c, code)
		if problem != "" {
			return "", problem
		}
		b.WriteString(code[done:c.from])
		b.WriteString(with)
		done = c.to
	}
	b.WriteString(code[done:])
	if e.made += b.Len(); e.made > maxExpanded {
		return "", fmt.Sprintf("the functions that it calls make an expression of more than %d bytes", maxExpanded)
	}
	return b.String(), ""
}

// replace returns what a call stands for.
func (e *expander) replace(c call, code string) (text, problem string) {
	f := e.functions[c.name]
	if len(c.args) != len(f.Params) {
		plural := "s"
		if len(f.Params) == 1 {
			plural = ""
		}
		return "", fmt.Sprintf("the function %q takes %d argument%s, and is called with %d", c.name, len(f.Params), plural, len(c.args))
	}
	body, problem := e.body(c.name)
	if problem != "" {
		return "", problem
	}
	var args []string
	for _, arg := range c.args {
		text, problem := e.expanded(strings.TrimSpace(arg))
		if problem != "" {
			return "", problem
		}
		args = append(args, text)
	}
	// A parameter becomes a name that nothing else has.
	names := map[string]string{}
	for _, p := range f.Params {
		name := c.name + "_" + p
		for strings.Contains(code+body+strings.Join(args, " "), name) {
			name += "_"
		}
		names[p] = name
	}
	text = renamed(body, names)
	for i, p := range slices.Backward(f.Params) {
		text = "cel.bind(" + names[p] + ", " + args[i] + ", " + text + ")"
	}
	if len(f.Params) == 0 {
		text = "(" + text + ")"
	}
	return text, ""
}

// body returns the expression of a function, with the calls in it replaced.
func (e *expander) body(name string) (text, problem string) {
	if slices.Contains(e.open, name) {
		return "", "functions call each other in a circle: " + strings.Join(append(e.open[slices.Index(e.open, name):], name), " → ")
	}
	f := e.functions[name]
	if f == nil {
		return "", ""
	}
	e.open = append(e.open, name)
	text, problem = e.expanded(strings.TrimSpace(f.Expression))
	e.open = e.open[:len(e.open)-1]
	return text, problem
}

// renamed replaces names that are no fields.
func renamed(code string, names map[string]string) string {
	var b strings.Builder
	done := 0
	for _, t := range tokens.FindAllStringIndex(code, -1) {
		to, ok := names[code[t[0]:t[1]]]
		if before := strings.TrimRight(code[:t[0]], " \t\r\n"); !ok || strings.HasSuffix(before, ".") || strings.HasSuffix(before, "?") && strings.HasSuffix(strings.TrimSuffix(before, "?"), ".") {
			continue
		}
		b.WriteString(code[done:t[0]])
		b.WriteString(to)
		done = t[1]
	}
	b.WriteString(code[done:])
	return b.String()
}
