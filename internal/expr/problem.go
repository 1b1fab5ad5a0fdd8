// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"cel.dev/cel-go/cel"

	"github.com/roux-engine/roux/fault"
)

// The rules that a Problem can violate.
const (
	RuleSyntax         = "syntax"
	RuleUndefinedName  = "undefined-name"
	RuleUndefinedField = "undefined-field"
	RuleType           = "type"
	RuleCost           = "cost"
	RuleFilter         = "filter"
)

// A Problem is what is wrong with a source, and where.
type Problem struct {
	Offset, Len int    // runes in the source
	Msg         string // what was found and what would be right
	Hint        string // a near match or a remedy
	Rule        string // one of the rules above
	Pointer     string // the string of the tree (RFC 6901); "" without one
}

// problems is the result of a failed compilation; nil = none.
type problems []Problem

// fault converts problems into the error that Compile returns.
func (ps problems) fault(what, src string) *fault.Error {
	diags := make([]fault.Diagnostic, len(ps))
	for i, p := range ps {
		line, col := lineCol(src, p.Offset)
		diags[i] = fault.Diagnostic{
			Code: fault.TemplateError, Rule: p.Rule, Msg: p.Msg, Hint: p.Hint, Pointer: p.Pointer,
			Pos: fault.Pos{File: what, Line: line, Col: col, Len: p.Len},
		}
	}
	return fault.Invalid(fault.TemplateError, diags)
}

// lineCol converts a rune offset into a line and a column, both from 1.
func lineCol(src string, offset int) (line, col int) {
	line, col = 1, 1
	for _, r := range src {
		if offset == 0 {
			break
		}
		offset--
		if r == '\n' {
			line, col = line+1, 1
		} else {
			col++
		}
	}
	return line, col
}

// issues converts the issues of the CEL parser or checker into problems; nil = there are none. Issues.Err says the
// same, but writes each issue down with the line that it is in.
func issues(src string, offset int, iss *cel.Issues) problems {
	var ps problems
	for _, e := range iss.Errors() {
		at := 0
		if e.Location != nil && e.Location.Line() > 0 {
			at = max(0, runeOffset(src, e.Location.Line(), e.Location.Column()))
		}
		p := explainIssue(src, at, e.Message)
		p.Offset += offset
		ps = append(ps, p)
	}
	return ps
}

// explainIssue replaces a message of the CEL library by our own. at is its offset in src.
func explainIssue(src string, at int, msg string) Problem {
	p := Problem{Offset: at, Len: 1, Msg: msg, Rule: RuleType}
	letters := []rune(src)
	if p.parserLimit(msg) {
		p.Offset, p.Len = 0, len(letters)
		return p
	}
	switch {
	case strings.HasPrefix(msg, "Syntax error"):
		p.Rule = RuleSyntax
		p.Msg, _, _ = strings.Cut(strings.TrimPrefix(msg, "Syntax error: "), " expecting ")
		switch token := between(p.Msg, "'"); {
		case token == "<EOF>":
			p.Msg = "the expression ends too early"
		case token != "":
			p.Msg = "unexpected " + strconv.Quote(token)
			p.Len = max(1, min(runes(token), len(letters)-at))
		}
		p.Hint = dialectHint(src)
	case strings.HasPrefix(msg, "undeclared reference to "):
		// Variables are declared before the check, so this is a function. The offset is
		// that of its parenthesis.
		name := between(msg, "'")
		p.Rule = RuleUndefinedName
		p.Msg = "undefined function: " + name
		p.Offset, p.Len = wordBefore(letters, at, name)
		p.Hint = functionHint(lastName(name), strings.Contains(name, ".") || p.Offset > 0 && letters[p.Offset-1] == '.')
	case strings.HasPrefix(msg, "undefined field "):
		name := between(msg, "'")
		p.Rule = RuleUndefinedField
		p.Msg = "undefined field: " + name
		// The offset is that of the dot, the bracket or has.
		p.Offset, p.Len = wordAfter(letters, at, []rune(name))
	case strings.HasPrefix(msg, "found no matching overload for "):
		name := between(msg, "'")
		_, rest, _ := strings.Cut(msg, " applied to ")
		args := strings.Trim(rest, "'")
		if op := operatorText(name); op != "" {
			p.Msg = "operator " + op + " does not take " + args
			p.Len = runes(op)
		} else {
			p.Msg = "function " + name + " does not take " + args
			p.Offset, p.Len = wordBefore(letters, at, name)
			p.Hint = callFormHint(name, !strings.HasPrefix(args, "("))
		}
	case strings.HasPrefix(msg, "expected type '"):
		_, found, _ := strings.Cut(msg, " but found ")
		p.Msg = "want " + between(msg, "'") + ", got " + strings.Trim(found, "'")
	case strings.HasSuffix(msg, "(must be list, map, or dynamic)"):
		p.Msg = "want a list or a map to walk, got " + between(msg, "'")
	case strings.HasPrefix(msg, "type '") && strings.HasSuffix(msg, "does not support field selection"):
		p.Msg = between(msg, "'") + " has no fields"
	}
	return p
}

// parserLimit explains the limits of the parser: the length of a source, its nesting, and
// its number of nodes after macro expansion.
func (p *Problem) parserLimit(msg string) bool {
	switch {
	case strings.HasPrefix(msg, "expression recursion limit exceeded"), msg == "max recursion depth exceeded":
		p.Msg = fmt.Sprintf("the expression nests deeper than %d levels; each operator of a chain such as a + b + c is one", maxDepth)
	case strings.HasPrefix(msg, "expression code point size exceeds limit"):
		_, sizes, _ := strings.Cut(msg, "size: ")
		size, _, _ := strings.Cut(sizes, ",")
		p.Msg = fmt.Sprintf("the expression has %s characters, the limit is %d", size, MaxSource)
	case strings.HasPrefix(msg, "expression node count exceeds limit"), strings.HasPrefix(msg, "expression count exceeds limit"):
		p.Msg = fmt.Sprintf("the expression has more than %d parts, macros such as map and exists written out", maxNodes)
	default:
		return false
	}
	p.Rule, p.Hint = RuleCost, "compute parts of it in transform steps of their own and name their outputs"
	return true
}

// wordBefore returns the place of a function whose parenthesis is at an offset.
func wordBefore(letters []rune, at int, name string) (offset, n int) {
	last := lastName(name)
	n = runes(last)
	if at >= n && at <= len(letters) && string(letters[at-n:at]) == last {
		return at - n, n
	}
	return at, 1
}

// wordAfter returns the next place of a field name.
func wordAfter(letters []rune, at int, name []rune) (offset, n int) {
	for i := max(0, at); i+len(name) <= len(letters); i++ {
		if slices.Equal(letters[i:i+len(name)], name) && (i == 0 || !isWordRune(letters[i-1])) &&
			(i+len(name) == len(letters) || !isWordRune(letters[i+len(name)])) {
			return i, len(name)
		}
	}
	return at, 1
}

func isWordRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// dialectHint recognises the syntax of other template languages.
func dialectHint(src string) string {
	for _, h := range [...]struct{ word, hint string }{
		{" and ", "CEL writes && for and"},
		{" or ", "CEL writes || for or"},
		{"not ", "CEL writes ! for not"},
		{" is defined", "CEL writes has(a.b) for is defined"},
		{" is not ", "CEL writes !has(a.b) for is not defined"},
		{" ~ ", "CEL writes + and string(x) for ~"},
		{" if ", "CEL writes condition ? a : b"},
		{" | ", "a filter ends an expression: {{ expression | filter }}"},
	} {
		if strings.Contains(src, h.word) {
			return h.hint
		}
	}
	return ""
}

// runeOffset returns the rune offset of a line (from 1) and column (from 0, in runes).
func runeOffset(src string, line, col int) int {
	n := 0
	for _, r := range src {
		if line == 1 {
			break
		}
		n++
		if r == '\n' {
			line--
		}
	}
	return n + col
}

// between returns the text between the first two marks.
func between(s, mark string) string {
	_, rest, _ := strings.Cut(s, mark)
	in, _, _ := strings.Cut(rest, mark)
	return in
}

func runes(s string) int { return utf8.RuneCountInString(s) }
