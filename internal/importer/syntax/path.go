// SPDX-License-Identifier: Apache-2.0

// Package syntax parses the expressions of the definitions that package importer reads: paths, expressions of jq and
// JSONata, and conditions of Argo.
//
// It decides which texts are expressions, within limits on their length, depth and parts. It never decides
// what they mean.
package syntax

import (
	"fmt"
	"strconv"
	"strings"
)

// A problem is why an expression of a definition has no equal in CEL.
type problem string

func (p problem) Error() string { return string(p) }

// Cannot returns why an expression has no equal in CEL.
func Cannot(format string, args ...any) error { return problem(fmt.Sprintf(format, args...)) }

// MaxExpression bounds the text of an expression, as that of CEL is bounded.
const MaxExpression = 16_384

// A Reader reads a text from its beginning.
type Reader struct {
	Text string
	At   int
}

// Space passes over white space.
func (r *Reader) Space() {
	for r.At < len(r.Text) && strings.IndexByte(" \t\r\n", r.Text[r.At]) >= 0 {
		r.At++
	}
}

// Eat passes over a text, if it comes next.
func (r *Reader) Eat(s string) bool {
	if strings.HasPrefix(r.Text[r.At:], s) {
		r.At += len(s)
		return true
	}
	return false
}

// Done reports whether the text ends here.
func (r *Reader) Done() bool { return r.At >= len(r.Text) }

// Rest returns what comes next, for messages.
func (r *Reader) Rest() string { return Short(r.Text[r.At:]) }

func nameByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80
}

// Name reads letters, digits and underscores.
func (r *Reader) Name() string {
	from := r.At
	for r.At < len(r.Text) && nameByte(r.Text[r.At]) {
		r.At++
	}
	return r.Text[from:r.At]
}

// Quoted reads a text in the quotes with which it begins; a backslash keeps the character after it.
func (r *Reader) Quoted() (string, error) {
	q := r.Text[r.At]
	var b strings.Builder
	for i := r.At + 1; i < len(r.Text); i++ {
		switch c := r.Text[i]; {
		case c == q:
			r.At = i + 1
			return b.String(), nil
		case c == '\\' && i+1 < len(r.Text):
			i++
			b.WriteByte(r.Text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", Cannot("the text that begins with %s has no end", r.Rest())
}

// A JSONPath is a reference of the States Language: into the document ($), the context ($$) or a variable ($name).
type JSONPath struct {
	Root  string
	Steps []Hop
}

// ParsePath parses a path that names one value.
func ParsePath(src string) (JSONPath, error) {
	r := &Reader{Text: src}
	p, err := r.Path()
	if err == nil && !r.Done() {
		err = Cannot("%q in the path %q is not supported: a path may have names and positions only", r.Rest(), Short(src))
	}
	return p, err
}

// Path reads a path.
func (r *Reader) Path() (p JSONPath, err error) {
	if len(r.Text) > MaxExpression {
		return p, Cannot("the expression has more than %d characters", MaxExpression)
	}
	if !r.Eat("$") {
		return p, Cannot("%q is no path: it does not begin with $", r.Rest())
	}
	switch {
	case r.Eat("$"):
		p.Root = "$$"
	default:
		p.Root = "$" + r.Name()
	}
	for !r.Done() {
		switch {
		case strings.HasPrefix(r.Text[r.At:], ".."):
			return p, Cannot("the path %q searches at all depths (..)", Short(r.Text))
		case r.Eat("."):
			name := r.dotted()
			if name == "" || name == "*" {
				return p, Cannot("the path %q selects several values (*)", Short(r.Text))
			}
			p.Steps = append(p.Steps, Hop{Name: name})
		case r.Eat("["):
			h, err := r.bracket()
			if err != nil {
				return p, err
			}
			p.Steps = append(p.Steps, h)
		default:
			return p, nil
		}
	}
	return p, nil
}

// dotted reads the name behind a dot, which may have dashes.
func (r *Reader) dotted() string {
	from := r.At
	for r.At < len(r.Text) && (nameByte(r.Text[r.At]) || r.Text[r.At] == '-' || r.Text[r.At] == '*') {
		r.At++
	}
	return r.Text[from:r.At]
}

func (r *Reader) bracket() (Hop, error) {
	r.Space()
	if !r.Done() && (r.Text[r.At] == '\'' || r.Text[r.At] == '"') {
		name, err := r.Quoted()
		r.Space()
		if err == nil && !r.Eat("]") {
			err = Cannot("the path %q selects several values", Short(r.Text))
		}
		return Hop{Name: name}, err
	}
	from := r.At
	for r.At < len(r.Text) && r.Text[r.At] >= '0' && r.Text[r.At] <= '9' {
		r.At++
	}
	n, err := strconv.ParseInt(r.Text[from:r.At], 10, 32)
	r.Space()
	if err != nil || !r.Eat("]") {
		return Hop{}, Cannot("the path %q has a filter, a slice or a position from the end", Short(r.Text))
	}
	return Hop{Index: n, List: true}, nil
}

// A Hop is one part of a path: a name or, with List, a position.
type Hop struct {
	Name  string
	Index int64
	List  bool
}

// MaxNesting bounds how deep expressions nest.
const MaxNesting = 64

// Short bounds a text of a definition in a message.
func Short(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	if r := []rune(text[:min(len(text), 4*most+4)]); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}
