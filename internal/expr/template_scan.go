// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// IsTemplate reports whether s contains a placeholder, a block or a comment.
func IsTemplate(s string) bool {
	for i := strings.IndexByte(s, '{'); i >= 0 && i+1 < len(s); {
		switch s[i+1] {
		case '{', '%', '#':
			return true
		}
		j := strings.IndexByte(s[i+1:], '{')
		if j < 0 {
			return false
		}
		i += 1 + j
	}
	return false
}

// HasTemplate reports whether a value contains a template.
func HasTemplate(v any) bool {
	switch v := v.(type) {
	case string:
		return IsTemplate(v)
	case []any:
		return slices.ContainsFunc(v, HasTemplate)
	case map[string]any:
		for _, e := range v {
			if HasTemplate(e) {
				return true
			}
		}
	}
	return false
}

// A token is a piece of a template: text, a placeholder or a block.
type token struct {
	kind byte   // 't' text, '{' placeholder, '%' block
	text string // what is between the delimiters
	at   int    // where text begins, in bytes of the source
}

// A Span is a part of a text, in bytes.
type Span struct{ From, To int }

// Code returns the parts of a template that are code: what is in its placeholders and blocks. A text
// whose delimiters do not fit has none.
func Code(src string) (parts []Span) {
	toks, _ := tokenize(src)
	for _, t := range toks {
		if t.kind != 't' {
			parts = append(parts, Span{t.at, t.at + len(t.text)})
		}
	}
	return parts
}

// tokenize splits a template into tokens. It drops comments; a dash inside a delimiter
// removes the white space next to it.
func tokenize(src string) ([]token, *Problem) {
	var toks []token
	trim := false // the previous delimiter has a dash
	text := func(from, to int, trimEnd bool) {
		s := src[from:to]
		if trim {
			cut := strings.TrimLeft(s, " \t\r\n")
			from += len(s) - len(cut)
			s = cut
		}
		if trimEnd {
			s = strings.TrimRight(s, " \t\r\n")
		}
		if s != "" {
			toks = append(toks, token{kind: 't', text: s, at: from})
		}
	}
	pos := 0
	for {
		open := nextOpen(src, pos)
		if open < 0 {
			text(pos, len(src), false)
			return toks, nil
		}
		kind := src[open+1]
		inner := open + 2
		before := inner < len(src) && src[inner] == '-'
		if before {
			inner++
		}
		text(pos, open, before)
		end := closing(src, inner, kind)
		if end < 0 {
			what := map[byte]string{'{': "a placeholder {{ is not closed by }}", '%': "a block {% is not closed by %}", '#': "a comment {# is not closed by #}"}[kind]
			return nil, &Problem{Offset: runes(src[:open]), Len: 2, Msg: what, Rule: RuleSyntax}
		}
		body := src[inner:end]
		trim = strings.HasSuffix(body, "-")
		if trim {
			body = body[:len(body)-1]
		}
		if kind != '#' {
			toks = append(toks, token{kind: kind, text: body, at: inner})
		}
		pos = end + 2
	}
}

// nextOpen finds the next opening delimiter.
func nextOpen(src string, from int) int {
	for i := from; ; {
		j := strings.IndexByte(src[i:], '{')
		if j < 0 || i+j+1 >= len(src) {
			return -1
		}
		switch i += j; src[i+1] {
		case '{', '%', '#':
			return i
		}
		i++
	}
}

// closing finds the closing delimiter of what begins at from. It ignores delimiters that
// are part of a string or end a map of the expression.
func closing(src string, from int, kind byte) int {
	if kind == '#' {
		if i := strings.Index(src[from:], "#}"); i >= 0 {
			return from + i
		}
		return -1
	}
	depth := 0
	for i := from; i < len(src); {
		switch c := src[i]; c {
		case '"', '\'':
			i = skipString(src, from, i)
			continue
		case '{':
			depth++
		case '}':
			if kind == '{' && depth == 0 {
				if i+1 < len(src) && src[i+1] == '}' {
					return i
				}
			} else if depth > 0 {
				depth--
			}
		case '%':
			if kind == '%' && i+1 < len(src) && src[i+1] == '}' {
				return i
			}
		}
		i++
	}
	return -1
}

// skipString returns the position after the CEL string that begins at i. start is where the
// expression begins: a prefix r makes backslashes literal.
func skipString(src string, start, i int) int {
	raw := false
	for j := i - 1; j >= start && j >= i-2; j-- {
		switch src[j] {
		case 'r', 'R':
			raw = true
		case 'b', 'B':
		default:
			j = start // ends the loop
		}
	}
	quote := src[i : i+1]
	if strings.HasPrefix(src[i:], strings.Repeat(quote, 3)) {
		quote = src[i : i+3]
	}
	for i += len(quote); i < len(src); {
		if src[i] == '\\' && !raw {
			i += 2
			continue
		}
		if strings.HasPrefix(src[i:], quote) {
			return i + len(quote)
		}
		i++
	}
	return len(src)
}

// split splits an expression at every separator that is outside strings and brackets and
// not doubled: "a || b | upper" has one '|'.
func split(src string, sep byte) []fragment {
	var out []fragment
	depth, begin := 0, 0
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case c == '"' || c == '\'':
			i = skipString(src, begin, i)
			continue
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
		case c == sep && depth == 0:
			if i+1 < len(src) && src[i+1] == sep {
				i += 2
				continue
			}
			out = append(out, fragment{src[begin:i], begin})
			begin = i + 1
		}
		i++
	}
	return append(out, fragment{src[begin:], begin})
}

// A fragment is a part of a source and its offset in bytes.
type fragment struct {
	text string
	at   int
}

// trimmed returns the fragment without white space around it.
func (p fragment) trimmed() fragment {
	s := strings.TrimLeft(p.text, " \t\r\n")
	return fragment{strings.TrimRight(s, " \t\r\n"), p.at + len(p.text) - len(s)}
}

// word splits the first name off a fragment.
func (p fragment) word() (string, fragment) {
	p = p.trimmed()
	n := 0
	for n < len(p.text) {
		r, w := utf8.DecodeRuneInString(p.text[n:])
		if r != '_' && (r < '0' || r > '9' || n == 0) && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			break
		}
		n += w
	}
	return p.text[:n], fragment{p.text[n:], p.at + n}
}
