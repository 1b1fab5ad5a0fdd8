// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"

	"github.com/roux-engine/roux/fault"
)

// The rules a Problem can break.
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

// fault turns problems into the error that Compile returns.
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

// lineCol turns a rune offset into a line and a column, both from 1.
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

// issues turns what the CEL parser or checker found into problems.
func issues(src string, offset int, iss *cel.Issues) problems {
	var ps problems
	for _, e := range iss.Errors() {
		p := Problem{Offset: offset, Len: 1, Msg: e.Message, Rule: RuleType}
		if e.Location != nil && e.Location.Line() > 0 {
			p.Offset = offset + runeOffset(src, e.Location.Line(), e.Location.Column())
		}
		switch {
		case strings.HasPrefix(e.Message, "Syntax error"):
			p.Rule = RuleSyntax
			p.Msg, _, _ = strings.Cut(strings.TrimPrefix(e.Message, "Syntax error: "), " expecting {")
			p.Hint = dialectHint(src)
		case strings.HasPrefix(e.Message, "undeclared reference to "):
			p.Rule = RuleUndefinedName
			name := between(e.Message, "'")
			p.Len = max(1, runes(name))
			p.Msg = "undefined: " + name
		case strings.HasPrefix(e.Message, "undefined field "):
			p.Rule = RuleUndefinedField
			p.Msg = "undefined field: " + between(e.Message, "'")
		default:
			p.Msg, _, _ = strings.Cut(p.Msg, " (in container")
		}
		ps = append(ps, p)
	}
	if len(ps) == 0 && iss.Err() != nil {
		ps = append(ps, Problem{Offset: offset, Len: runes(src), Msg: iss.Err().Error(), Rule: RuleSyntax})
	}
	return ps
}

// dialectHint recognises what other template languages write.
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

// runeOffset is the offset of a line (from 1) and column (from 0, in runes).
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
