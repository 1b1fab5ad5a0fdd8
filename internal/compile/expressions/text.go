// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"strings"
	"unicode/utf8"
)

// Selection returns the names that an expression of the form steps.a.output['b c'] selects; nil = it has
// another form.
func Selection(src string) (path []string) {
	rest, ok := strings.CutPrefix(src, "steps")
	ok = ok && len(src) < 1000 // far below the limits of expressions
	for ok && rest != "" {
		n, name := 1, ""
		switch quote := rest[min(1, len(rest)-1)]; {
		case rest[0] == '.':
			for n < len(rest) && WordByte(rest[n]) {
				n++
			}
			name = rest[1:n]
			ok = IsName(name)
		case rest[0] == '[' && (quote == '\'' || quote == '"'):
			name, _, ok = strings.Cut(rest[2:], string(quote)+"]")
			n = len(name) + len("['']")
			ok = ok && name != "" && !strings.ContainsFunc(name, func(r rune) bool { return strings.ContainsRune(`'"\`, r) || r < ' ' || r == utf8.RuneError })
		default:
			return nil
		}
		if !ok {
			return nil
		}
		path, rest = append(path, name), rest[n:]
	}
	return path
}

// CallOf returns the offset at which src calls a function of that name outside of
// strings, or -1. In a template only the text inside braces counts.
func CallOf(name, src string, template bool) int {
	quote, inside := byte(0), !template
	for i := 0; i < len(src); i++ {
		ch := src[i]
		switch {
		case quote != 0:
			switch ch {
			case '\\':
				i++
			case quote:
				quote = 0
			}
		case template && !inside:
			inside = strings.HasPrefix(src[i:], "{{") || strings.HasPrefix(src[i:], "{%")
		case template && (strings.HasPrefix(src[i:], "}}") || strings.HasPrefix(src[i:], "%}")):
			inside = false
		case ch == '"' || ch == '\'':
			quote = ch
		case strings.HasPrefix(src[i:], name) && (i == 0 || !WordByte(src[i-1]) && src[i-1] != '.'):
			if rest := strings.TrimLeft(src[i+len(name):], " "); strings.HasPrefix(rest, "(") {
				return i
			}
		}
	}
	return -1
}

// WordByte reports whether names may contain the byte.
func WordByte(b byte) bool {
	return b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// TestsPresence reports whether src tests that name is set before it uses it.
func TestsPresence(src, name string) bool {
	for off := 0; ; {
		k := strings.Index(src[off:], name)
		if k < 0 {
			return false
		}
		k += off
		off = k + len(name)
		if k > 0 && (WordByte(src[k-1]) || src[k-1] == '.') || off < len(src) && WordByte(src[off]) {
			continue
		}
		before := strings.TrimRight(src[:k], " ")
		if strings.HasSuffix(before, "has(") {
			return true
		}
		rest := src[off:]
		if end := strings.IndexAny(rest, " |}),"); end >= 0 && strings.Contains(rest[:end], ".?") || strings.HasPrefix(rest, ".?") {
			return true
		}
		if bar := strings.Index(rest, "|"); bar >= 0 && strings.HasPrefix(strings.TrimLeft(rest[bar+1:], " "), "default") && !strings.Contains(rest[:bar], "}}") {
			return true
		}
	}
}

// celReserved are words that cannot be identifiers in CEL.
var celReserved = map[string]bool{
	"as": true, "break": true, "const": true, "continue": true, "else": true, "false": true, "for": true,
	"function": true, "if": true, "import": true, "in": true, "let": true, "loop": true, "namespace": true,
	"null": true, "package": true, "return": true, "true": true, "var": true, "void": true, "while": true,
	// The names of CEL's types cannot be variables either.
	"bool": true, "bytes": true, "double": true, "int": true, "list": true, "map": true, "null_type": true,
	"string": true, "type": true, "uint": true, "optional_type": true,
}

// IsName reports whether expressions can use a name as it is.
func IsName(name string) bool {
	for i, r := range []byte(name) {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '_', i > 0 && r >= '0' && r <= '9':
		default:
			return false
		}
	}
	return name != "" && !celReserved[name]
}
