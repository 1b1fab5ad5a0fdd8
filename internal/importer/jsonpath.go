// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"strconv"
	"strings"
)

// A problem is why an expression of a definition has no equal in CEL.
type problem string

func (p problem) Error() string { return string(p) }

func cannot(format string, args ...any) error { return problem(fmt.Sprintf(format, args...)) }

// maxExpression bounds the text of an expression, as that of CEL is bounded.
const maxExpression = 16_384

// A reader reads a text from its beginning.
type reader struct {
	text string
	at   int
}

func (r *reader) space() {
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n", r.text[r.at]) >= 0 {
		r.at++
	}
}

func (r *reader) eat(s string) bool {
	if strings.HasPrefix(r.text[r.at:], s) {
		r.at += len(s)
		return true
	}
	return false
}

func (r *reader) done() bool { return r.at >= len(r.text) }

func (r *reader) rest() string { return short(r.text[r.at:]) }

func nameByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80
}

// name reads letters, digits and underscores.
func (r *reader) name() string {
	from := r.at
	for r.at < len(r.text) && nameByte(r.text[r.at]) {
		r.at++
	}
	return r.text[from:r.at]
}

// quoted reads a text in the quotes with which it begins; a backslash keeps the character after it.
func (r *reader) quoted() (string, error) {
	q := r.text[r.at]
	var b strings.Builder
	for i := r.at + 1; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == q:
			r.at = i + 1
			return b.String(), nil
		case c == '\\' && i+1 < len(r.text):
			i++
			b.WriteByte(r.text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", cannot("the text that begins with %s has no end", r.rest())
}

// A jsonPath is a reference of the States Language: into the document ($), the context ($$) or a variable ($name).
type jsonPath struct {
	root string
	path []hop
}

// parsePath parses a path that names one value.
func parsePath(src string) (jsonPath, error) {
	r := &reader{text: src}
	p, err := r.path()
	if err == nil && !r.done() {
		err = cannot("%q in the path %q is not supported: a path may have names and positions only", r.rest(), short(src))
	}
	return p, err
}

func (r *reader) path() (p jsonPath, err error) {
	if len(r.text) > maxExpression {
		return p, cannot("the expression has more than %d characters", maxExpression)
	}
	if !r.eat("$") {
		return p, cannot("%q is no path: it does not begin with $", r.rest())
	}
	switch {
	case r.eat("$"):
		p.root = "$$"
	default:
		p.root = "$" + r.name()
	}
	for !r.done() {
		switch {
		case strings.HasPrefix(r.text[r.at:], ".."):
			return p, cannot("the path %q searches at all depths (..)", short(r.text))
		case r.eat("."):
			name := r.dotted()
			if name == "" || name == "*" {
				return p, cannot("the path %q selects several values (*)", short(r.text))
			}
			p.path = append(p.path, hop{name: name})
		case r.eat("["):
			h, err := r.bracket()
			if err != nil {
				return p, err
			}
			p.path = append(p.path, h)
		default:
			return p, nil
		}
	}
	return p, nil
}

// dotted reads the name behind a dot, which may have dashes.
func (r *reader) dotted() string {
	from := r.at
	for r.at < len(r.text) && (nameByte(r.text[r.at]) || r.text[r.at] == '-' || r.text[r.at] == '*') {
		r.at++
	}
	return r.text[from:r.at]
}

func (r *reader) bracket() (hop, error) {
	r.space()
	if !r.done() && (r.text[r.at] == '\'' || r.text[r.at] == '"') {
		name, err := r.quoted()
		r.space()
		if err == nil && !r.eat("]") {
			err = cannot("the path %q selects several values", short(r.text))
		}
		return hop{name: name}, err
	}
	from := r.at
	for r.at < len(r.text) && r.text[r.at] >= '0' && r.text[r.at] <= '9' {
		r.at++
	}
	n, err := strconv.ParseInt(r.text[from:r.at], 10, 32)
	r.space()
	if err != nil || !r.eat("]") {
		return hop{}, cannot("the path %q has a filter, a slice or a position from the end", short(r.text))
	}
	return hop{index: n, list: true}, nil
}
