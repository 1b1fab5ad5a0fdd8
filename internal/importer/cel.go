// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/importer/syntax"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A shape is what is known of the type of an expression.
type shape uint8

const (
	unknown shape = iota
	isNull
	isBool
	isNumber
	isText
	isList
	isMap
)

// A cel is an expression of CEL. An atom needs no parentheses as an operand.
type cel struct {
	src   string
	shape shape
	atom  bool
}

func (c cel) String() string { return c.src }

// in returns the expression as an operand.
func (c cel) in() string {
	if c.atom {
		return c.src
	}
	return "(" + c.src + ")"
}

func atom(src string, s shape) cel { return cel{src, s, true} }

func term(s shape, format string, args ...any) cel {
	return cel{src: fmt.Sprintf(format, args...), shape: s}
}

func call(s shape, format string, args ...any) cel {
	return cel{src: fmt.Sprintf(format, args...), shape: s, atom: true}
}

// quote returns a text as a literal of CEL, in the quotes that need no escapes in YAML.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for _, r := range s {
		switch r {
		case '\'', '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		default:
			if r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0x85 {
				fmt.Fprintf(&b, `\u%04x`, r)
				continue
			}
			b.WriteRune(r)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

func text(s string) cel { return atom(quote(s), isText) }

// literal returns a JSON value as an expression.
func literal(v any) cel {
	switch x := v.(type) {
	case nil:
		return atom("null", isNull)
	case bool:
		return atom(strconv.FormatBool(x), isBool)
	case int64:
		return cel{strconv.FormatInt(x, 10), isNumber, x >= 0}
	case float64:
		s := strconv.FormatFloat(x, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return cel{s, isNumber, x >= 0}
	case string:
		return text(x)
	case []any:
		parts := make([]cel, len(x))
		for i, e := range x {
			parts[i] = literal(e)
		}
		return listOf(parts)
	case map[string]any:
		var fields []field
		for _, k := range slices.Sorted(maps.Keys(x)) {
			fields = append(fields, field{k, literal(x[k])})
		}
		return mapOf(fields)
	}
	return atom("null", isNull)
}

// A field is a name of an object with the expression of its value.
type field struct {
	name string
	cel  cel
}

func mapOf(fields []field) cel {
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = quote(f.name) + ": " + f.cel.src
	}
	return atom("{"+strings.Join(parts, ", ")+"}", isMap)
}

func listOf(parts []cel) cel {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.src
	}
	return atom("["+strings.Join(texts, ", ")+"]", isList)
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// celWords are the words that CEL does not accept as the name of a field.
var celWords = map[string]bool{
	"true": true, "false": true, "null": true, "in": true, "as": true, "break": true, "const": true, "continue": true, "else": true, "for": true,
	"function": true, "if": true, "import": true, "let": true, "loop": true, "package": true, "namespace": true, "return": true, "var": true, "void": true, "while": true,
}

func isName(s string) bool { return identifier.MatchString(s) && !celWords[s] }

// strict returns a field whose absence is an error.
func (c cel) strict(name string) cel {
	if isName(name) {
		return atom(c.in()+"."+name, unknown)
	}
	return atom(c.in()+"["+quote(name)+"]", unknown)
}

func (c cel) at(i int64) cel { return atom(c.in()+"["+strconv.FormatInt(i, 10)+"]", unknown) }

// follow returns the value at a path; the absence of a part is an error.
func (c cel) follow(path []syntax.Hop) cel {
	for _, h := range path {
		if h.List {
			c = c.at(h.Index)
		} else {
			c = c.strict(h.Name)
		}
	}
	return c
}

// optional returns the path as an optional value, which has none if a part is absent or the value before it is no object.
func (c cel) optional(path []syntax.Hop) string {
	src := c.loose()
	for _, h := range path {
		switch {
		case h.List:
			src += "[?" + strconv.FormatInt(h.Index, 10) + "]"
		case isName(h.Name):
			src += ".?" + h.Name
		default:
			src += "[?" + quote(h.Name) + "]"
		}
	}
	return src
}

// orNull returns the value at a path, or null if there is none.
func (c cel) orNull(path []syntax.Hop) cel {
	if len(path) == 0 {
		return c
	}
	return atom(c.optional(path)+".orValue(null)", unknown)
}

// loose returns the expression with a type that the checker does not know, so that it can be compared with
// a value of any type.
func (c cel) loose() string {
	if strings.HasPrefix(c.src, "parameters") && c.atom || strings.HasPrefix(c.src, "dyn(") && c.atom {
		return c.src
	}
	return "dyn(" + c.src + ")"
}

// output returns the output of a step.
func output(id string) cel { return atom(stepOf(id)+".output", unknown) }

func stepOf(id string) string {
	if isName(id) {
		return "steps." + id
	}
	return "steps[" + quote(id) + "]"
}

// parameter returns a value of the parameters of an action as JSON, or false if the texts in it would be
// read as templates.
func parameter(v any) (raw []byte, ok bool) {
	if templated(v) {
		return nil, false
	}
	raw, err := jsonx.Marshal(v)
	return raw, err == nil
}

// templated reports whether a text in v has the marks of a template.
func templated(v any) bool {
	switch x := v.(type) {
	case string:
		return strings.Contains(x, "{{") || strings.Contains(x, "{%") || strings.Contains(x, "{#")
	case []any:
		return slices.ContainsFunc(x, templated)
	case map[string]any:
		for k, e := range x {
			if templated(k) || templated(e) {
				return true
			}
		}
	}
	return false
}

// message returns a text as a template that yields it.
func message(s string) string {
	if !templated(s) {
		return s
	}
	return "{{ " + strings.ReplaceAll(strings.ReplaceAll(quote(s), "{", `\u007b`), "}", `\u007d`) + " }}"
}
