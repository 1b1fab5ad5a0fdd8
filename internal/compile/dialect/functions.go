// SPDX-License-Identifier: Apache-2.0

//go:build !small

package dialect

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/texts"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// Functions are a way of writing: where an expression calls one, it means the expression of the function, with
// the arguments in place of the parameters. So nothing after this package knows of them.

const (
	// maxFunctions is how many functions a recipe has, and maxParams how many parameters one of them.
	maxFunctions, maxParams = 200, 20
	// maxCalls is how deep calls are nested in each other.
	maxCalls = 50
	// maxExpanded bounds what becomes of one expression, in bytes, and maxMade what becomes of all in a text.
	maxExpanded, maxMade = 32 << 10, 8 << 20
)

// Inherit replaces the calls of functions that a recipe inherits.
func Inherit(r *recipe.Recipe, src *recipe.Source, functions map[string]*recipe.Function) {
	replaceCalls(r, src, functions, false)
}

// Functions returns the functions that a recipe may call: its own ones, and those that it inherits. What their
// expressions call is replaced, so that they mean the same everywhere.
func Functions(r *recipe.Recipe, inherited map[string]*recipe.Function) map[string]*recipe.Function {
	return (&expander{}).all(r, inherited)
}

// replaceCalls replaces the calls of functions in a recipe, and in those within it, and reports functions that cannot be
// called if check is set.
func replaceCalls(r *recipe.Recipe, src *recipe.Source, inherited map[string]*recipe.Function, check bool) {
	(&expander{}).recipe(r, src, inherited, check)
}

func (e *expander) recipe(r *recipe.Recipe, src *recipe.Source, inherited map[string]*recipe.Function, check bool) {
	if check {
		e.check(r, src, inherited)
	}
	all := e.all(r, inherited)
	if len(all) > 0 {
		e.expand(r, src, all)
	}
	r.EachInline(func(s *recipe.Step, inner *recipe.Recipe) {
		if s.Recipe.Inherits(recipe.InheritFunctions) {
			e.recipe(inner, src, all, check)
		} else {
			e.recipe(inner, src, nil, check)
		}
	})
}

// know makes the functions of a recipe, and those that it inherits, those that are replaced.
func (e *expander) know(r *recipe.Recipe, inherited map[string]*recipe.Function) {
	e.functions, e.bodies, e.tokens, e.made = make(map[string]*recipe.Function, len(inherited)+len(r.Functions)), nil, nil, 0
	maps.Copy(e.functions, inherited)
	maps.Copy(e.functions, r.Functions)
}

// all is [Functions].
func (e *expander) all(r *recipe.Recipe, inherited map[string]*recipe.Function) map[string]*recipe.Function {
	if inherited != nil && len(r.Functions) == 0 {
		return inherited
	}
	all := make(map[string]*recipe.Function, len(inherited))
	maps.Copy(all, inherited)
	e.know(r, inherited)
	for _, name := range slices.Sorted(maps.Keys(r.Functions)) {
		f := r.Functions[name]
		if body, problem := e.body(name); f != nil && problem == "" && len(all) < 2*maxFunctions {
			all[name] = &recipe.Function{Params: f.Params, Expression: body}
		}
	}
	return all
}

// expand replaces the calls in a recipe. The functions are those of [Functions].
func (e *expander) expand(r *recipe.Recipe, src *recipe.Source, functions map[string]*recipe.Function) {
	e.functions, e.bodies, e.tokens = functions, make(map[string]string, len(functions)), nil
	for name, f := range functions {
		callsOwn := func(own string) bool { return strings.Contains(f.Expression, own) } // an inherited one may
		if !slices.ContainsFunc(slices.Collect(maps.Keys(r.Functions)), callsOwn) {
			e.bodies[name] = f.Expression
		}
	}
	(&texts.Rewriter{Source: src.Source, Code: func(at texts.Place, code string) (list []texts.Replacement) {
		if len(code) > 4*expr.MaxSource {
			return nil // it is too long for an expression
		}
		e.made = 0
		for _, c := range e.calls(code) {
			offset := at.Offset + utf8.RuneCountInString(code[:c.from])
			with, err := e.replace(c, code)
			if e.total += len(with); err == "" && e.total > maxMade {
				err = tooMuchMade
			}
			if err != "" {
				src.AddSemantic(fault.RecipeInvalid, at.Pointer, offset, len(c.name), "bad-call", err, "")
				with = "null" // nothing else is reported
			}
			list = append(list, texts.Replacement{From: c.from, To: c.to, With: with})
		}
		return list
	}}).Recipe(r)
}

// check reports functions that cannot be called.
func (e *expander) check(r *recipe.Recipe, src *recipe.Source, inherited map[string]*recipe.Function) {
	if len(r.Functions) > maxFunctions {
		src.AddSemantic(fault.RecipeInvalid, r.Ptr+"/functions", 0, 0, "bad-function", fmt.Sprintf("a recipe has at most %d functions", maxFunctions), "")
		clear(r.Functions)
	}
	e.know(r, inherited)
	for _, name := range slices.Sorted(maps.Keys(r.Functions)) {
		f, at := r.Functions[name], r.Ptr+"/functions/"+jsonx.EscapeToken(name)
		if f == nil {
			continue // reported as it was decoded
		}
		msg, hint := e.checkNames(name, f)
		if msg != "" {
			src.AddSemantic(fault.RecipeInvalid, at, 0, 0, "bad-function", msg, hint)
			continue
		}
		body, problem := e.body(name)
		if problem != "" {
			src.AddSemantic(fault.RecipeInvalid, at+"/expression", 0, 0, "bad-function", problem, "")
			continue
		}
		bad := func(offset, length int, msg, hint string) {
			if body != f.Expression { // it calls another function
				offset, length = 0, 0
			}
			src.AddSemantic(fault.RecipeInvalid, at+"/expression", offset, length, "bad-function", msg, hint)
		}
		p := expressions.NewCache().Program(body, false)
		for _, problem := range p.Problems {
			if problem.Rule != expr.RuleUndefinedName { // a function that is inherited by who calls it
				bad(problem.Offset, problem.Len, problem.Msg, problem.Hint)
			}
		}
		for _, ref := range p.Refs {
			if !slices.Contains(f.Params, ref.Name) {
				bad(ref.Offset, ref.Len, fmt.Sprintf("%q is no parameter of the function %q", ref.Name, name), "a function reads nothing but its parameters")
			}
		}
	}
}

// checkNames returns what is wrong with the names of a function and its parameters.
func (e *expander) checkNames(name string, f *recipe.Function) (msg, hint string) {
	switch {
	case !expressions.IsName(name):
		return fmt.Sprintf("%q cannot be the name of a function", name), "want letters, digits and underscores, not starting with a digit, and no keyword or type of CEL"
	case !free(name):
		return fmt.Sprintf("%q is a function of the language", name), "give this one another name"
	case len(f.Params) > maxParams:
		return fmt.Sprintf("a function has at most %d parameters", maxParams), ""
	}
	for i, p := range f.Params {
		if slices.Contains(f.Params[:i], p) || !expressions.IsName(p) || p == "cel" {
			return fmt.Sprintf("%q cannot be the name of a parameter, or is that of two", p), ""
		}
	}
	return "", ""
}

// free reports whether the language has no function of a name.
func free(name string) bool {
	p := expressions.NewCache().Program(name+"()", false)
	return len(p.Problems) > 0 && p.Problems[0].Rule == expr.RuleUndefinedName
}

// tooMuchMade is the problem of a call beyond maxMade.
var tooMuchMade = fmt.Sprintf("the functions make expressions of more than %d bytes together", maxMade)

// An expander replaces calls of functions, in the recipes of one text.
type expander struct {
	functions map[string]*recipe.Function
	bodies    map[string]string  // of those that were asked for
	tokens    map[string][][]int // of their bodies
	open      []string           // functions whose expressions are being made
	depth     int                // of the call that is being replaced
	made      int                // bytes, of the expression that is being made
	total     int                // bytes, of all in the text
}

// A call is a call of a function in some code.
type call struct {
	name     string
	from, to int
	args     []string
}

// tokens are comments, texts, numbers and names in backquotes, which are left alone, and names and brackets.
var tokens = regexp.MustCompile("//[^\n]*|[rR]\"\"\"(?s:.*?)\"\"\"|[rR]'''(?s:.*?)'''|[rR]\"[^\"]*\"|[rR]'[^']*'|" +
	"[bB]?\"\"\"(?s:(?:[^\\\\]|\\\\.)*?)\"\"\"|[bB]?'''(?s:(?:[^\\\\]|\\\\.)*?)'''|[bB]?\"(?:[^\"\\\\]|\\\\.)*\"|[bB]?'(?:[^'\\\\]|\\\\.)*'|" +
	"`[^`]*`|0[xX][0-9a-fA-F]+[uU]?|[0-9]+(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?[uU]?|[A-Za-z_][A-Za-z0-9_]*|[()\\[\\]{},]")

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
	if e.depth++; e.depth > maxCalls {
		return "", fmt.Sprintf("calls of functions are nested more than %d deep", maxCalls)
	}
	defer func() { e.depth-- }()
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
	if strings.Contains(b.String(), "//") {
		b.WriteString("\n") // the end of a comment
	}
	e.made, e.total = e.made+b.Len(), e.total+b.Len()
	switch {
	case e.made > maxExpanded:
		return "", fmt.Sprintf("the functions that it calls make an expression of more than %d bytes", maxExpanded)
	case e.total > maxMade:
		return "", tooMuchMade
	}
	return b.String(), ""
}

// replace returns what a call stands for.
func (e *expander) replace(c call, code string) (text, problem string) {
	if e.total > maxMade {
		return "", tooMuchMade
	}
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
	taken := words(body, words(code[c.from:c.to], map[string]bool{}))
	var args []string
	for _, arg := range c.args {
		text, problem := e.expanded(strings.TrimSpace(arg))
		if problem != "" {
			return "", problem
		}
		words(text, taken)
		args = append(args, text)
	}
	// A parameter becomes a name that nothing else has.
	names := map[string]string{}
	for _, p := range f.Params {
		name := c.name + "_" + p
		for n := 2; taken[name]; n++ {
			name = c.name + "_" + p + "_" + strconv.Itoa(n)
		}
		taken[name] = true
		names[p] = name
	}
	if text = body; len(names) > 0 {
		text = renamed(body, e.tokensOf(c.name, body), names)
	}
	for i, p := range slices.Backward(f.Params) {
		text = "cel.bind(" + names[p] + ", " + args[i] + ", " + text + ")"
	}
	if len(f.Params) == 0 {
		text = "(" + text + ")"
	}
	return text, ""
}

// words adds the words of code to a set.
func words(code string, to map[string]bool) map[string]bool {
	for _, w := range word.FindAllString(code, -1) {
		to[w] = true
	}
	return to
}

var word = regexp.MustCompile(`\w+`)

// body returns the expression of a function, with the calls in it replaced.
func (e *expander) body(name string) (text, problem string) {
	if slices.Contains(e.open, name) {
		return "", "functions call each other in a circle: " + strings.Join(append(e.open[slices.Index(e.open, name):], name), " → ")
	}
	if text, ok := e.bodies[name]; ok {
		return text, ""
	}
	f := e.functions[name]
	if f == nil {
		return "", ""
	}
	e.open = append(e.open, name)
	text, problem = e.expanded(strings.TrimSpace(f.Expression))
	e.open = e.open[:len(e.open)-1]
	if problem == "" {
		if e.bodies == nil {
			e.bodies = map[string]string{}
		}
		e.bodies[name] = text
	}
	return text, problem
}

// tokensOf returns where the tokens of the body of a function are.
func (e *expander) tokensOf(name, body string) [][]int {
	if e.tokens == nil {
		e.tokens = map[string][][]int{}
	}
	if e.tokens[name] == nil {
		e.tokens[name] = tokens.FindAllStringIndex(body, -1)
	}
	return e.tokens[name]
}

// renamed replaces names that are no fields, in code with these tokens.
func renamed(code string, tokens [][]int, names map[string]string) string {
	var b strings.Builder
	done := 0
	for _, t := range tokens {
		to, ok := names[code[t[0]:t[1]]]
		if before := strings.TrimRight(code[:t[0]], " \t\r\n"); !ok || strings.HasSuffix(before, ".") || strings.HasSuffix(before, ".?") {
			continue
		}
		b.WriteString(code[done:t[0]])
		b.WriteString(to)
		done = t[1]
	}
	b.WriteString(code[done:])
	return b.String()
}
