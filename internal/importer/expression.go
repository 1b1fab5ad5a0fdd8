// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/jsonx"
)

// An expr is an expression of jq or JSONata.
type expr struct {
	op   string // literal, root, var, field, index, each, call, list, object, text, negate, if, or an operator
	name string // of a var, field or call
	v    any    // of a literal
	args []*expr
	keys []string // of an object
}

// A grammar is what the languages of expressions differ in.
type grammar struct {
	name   string
	binary map[string]int // operators by how strongly they bind
	words  map[string]int // operators that are words
	right  string         // the operators that group from the right
	jq     bool
}

var jqGrammar = &grammar{
	name: "jq", jq: true, right: "|//",
	binary: map[string]int{"|": 1, "//": 3, "==": 6, "!=": 6, "<=": 6, ">=": 6, "<": 6, ">": 6, "+": 7, "-": 7, "*": 8, "/": 8, "%": 8},
	words:  map[string]int{"or": 4, "and": 5},
}

var jsonataGrammar = &grammar{
	name:   "JSONata",
	binary: map[string]int{"?": 2, "!=": 5, "<=": 5, ">=": 5, "=": 5, "<": 5, ">": 5, "+": 6, "-": 6, "&": 6, "*": 7, "/": 7, "%": 7},
	words:  map[string]int{"or": 3, "and": 4, "in": 5},
}

// A parser parses expressions.
type parser struct {
	reader
	g     *grammar
	depth int
	parts int
}

// parseExpr parses an expression of a language.
func parseExpr(g *grammar, src string) (*expr, error) {
	if len(src) > maxExpression {
		return nil, cannot("the expression has more than %d characters", maxExpression)
	}
	p := &parser{reader: reader{text: src}, g: g}
	e, err := p.expr(0)
	if err != nil {
		return nil, err
	}
	if p.space(); !p.done() {
		return nil, cannot("%q in the expression %q is not supported", p.rest(), short(src))
	}
	return e, nil
}

// operator returns the operator that comes next, and how strongly it binds.
func (p *parser) operator() (op string, power int) {
	p.space()
	rest := p.text[p.at:]
	for _, n := range []int{2, 1} {
		if len(rest) >= n {
			if power, ok := p.g.binary[rest[:n]]; ok {
				return rest[:n], power
			}
		}
	}
	for word, power := range p.g.words {
		if strings.HasPrefix(rest, word) && (len(rest) == len(word) || !nameByte(rest[len(word)])) {
			return word, power
		}
	}
	return "", 0
}

func (p *parser) expr(least int) (*expr, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, cannot("the expression nests more than %d deep", maxNesting)
	}
	defer func() { p.depth-- }()
	left, err := p.unary()
	if err != nil {
		return nil, err
	}
	for {
		op, power := p.operator()
		if op == "" || power <= least {
			return left, nil
		}
		p.at += len(op)
		if op == "?" {
			left, err = p.choice(left)
		} else {
			below := power
			if strings.Contains(p.g.right, op) && len(p.g.right) > 0 && p.g.jq && (op == "|" || op == "//") {
				below--
			}
			var right *expr
			if right, err = p.expr(below); err == nil {
				left = &expr{op: op, args: []*expr{left, right}}
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// choice parses a ? b : c behind the question mark.
func (p *parser) choice(cond *expr) (*expr, error) {
	then, err := p.expr(1)
	if err != nil {
		return nil, err
	}
	other := &expr{op: "literal"}
	if p.space(); p.eat(":") {
		if other, err = p.expr(1); err != nil {
			return nil, err
		}
	}
	return &expr{op: "if", args: []*expr{cond, then, other}}, nil
}

func (p *parser) unary() (*expr, error) {
	p.space()
	if p.eat("-") {
		if p.depth++; p.depth > maxNesting {
			return nil, cannot("the expression nests more than %d deep", maxNesting)
		}
		defer func() { p.depth-- }()
		e, err := p.unary()
		return &expr{op: "negate", args: []*expr{e}}, err
	}
	e, err := p.primary()
	for err == nil {
		switch rest := p.text[p.at:]; {
		case strings.HasPrefix(rest, ".") && !strings.HasPrefix(rest, ".."):
			p.at++
			if p.g.jq && strings.HasPrefix(rest, ".[") {
				continue
			}
			e, err = p.selected(e)
		case strings.HasPrefix(rest, "["):
			p.at++
			e, err = p.indexed(e)
		case p.g.jq && strings.HasPrefix(rest, "?") && !strings.HasPrefix(rest, "?//"):
			p.at++ // what it hides is null here already
		default:
			return e, nil
		}
	}
	return nil, err
}

// selected parses a name behind a dot.
func (p *parser) selected(base *expr) (*expr, error) {
	if p.done() {
		return nil, cannot("an expression ends in a dot")
	}
	var name string
	var err error
	switch c := p.text[p.at]; {
	case c == '"' || !p.g.jq && c == '`':
		name, err = p.quoted()
	default:
		name = p.name()
	}
	if err == nil && name == "" {
		err = cannot("%q behind a dot is not supported", p.rest())
	}
	return &expr{op: "field", name: name, args: []*expr{base}}, err
}

func (p *parser) indexed(base *expr) (*expr, error) {
	if p.space(); p.eat("]") {
		if !p.g.jq {
			return base, nil
		}
		return &expr{op: "each", args: []*expr{base}}, nil
	}
	i, err := p.expr(0)
	if err != nil {
		return nil, err
	}
	if p.space(); !p.eat("]") {
		return nil, cannot("%q in brackets is not supported", p.rest())
	}
	return &expr{op: "index", args: []*expr{base, i}}, nil
}

func (p *parser) primary() (*expr, error) {
	if p.parts++; p.parts > 2000 {
		return nil, cannot("the expression has more than 2000 parts")
	}
	if p.space(); p.done() {
		return nil, cannot("an expression ends too early")
	}
	c := p.text[p.at]
	switch {
	case c == '(':
		return p.group()
	case c == '[':
		return p.listExpr()
	case c == '{':
		return p.objectExpr()
	case c == '"' || c == '\'' && !p.g.jq:
		return p.textExpr()
	case c >= '0' && c <= '9':
		return p.numberExpr()
	case c == '$':
		p.at++
		name := p.name()
		if !p.g.jq && p.eat("(") {
			args, err := p.args(",")
			return &expr{op: "call", name: name, args: args}, err
		}
		return &expr{op: "var", name: name}, nil
	case c == '.' && p.g.jq:
		p.at++
		root := &expr{op: "root"}
		if !p.done() && (nameByte(p.text[p.at]) || p.text[p.at] == '"') {
			return p.selected(root)
		}
		if p.eat(".") {
			return nil, cannot("jq's .. is not supported")
		}
		return root, nil
	case nameByte(c):
		return p.word()
	}
	return nil, cannot("%q in an expression of %s is not supported", p.rest(), p.g.name)
}

func (p *parser) group() (*expr, error) {
	p.at++
	e, err := p.expr(0)
	if err != nil {
		return nil, err
	}
	if p.space(); !p.eat(")") {
		return nil, cannot("%q in parentheses is not supported", p.rest())
	}
	return e, nil
}

func (p *parser) listExpr() (*expr, error) {
	p.at++
	l := &expr{op: "list"}
	for {
		if p.space(); p.eat("]") {
			return l, nil
		}
		if len(l.args) > 0 && !p.eat(",") {
			return nil, cannot("%q in a list is not supported", p.rest())
		}
		e, err := p.expr(0)
		if err != nil {
			return nil, err
		}
		l.args = append(l.args, e)
	}
}

func (p *parser) objectExpr() (*expr, error) {
	p.at++
	o := &expr{op: "object"}
	for {
		if p.space(); p.eat("}") {
			return o, nil
		}
		if len(o.keys) > 0 && !p.eat(",") {
			return nil, cannot("%q in an object is not supported", p.rest())
		}
		p.space()
		var key string
		var short *expr
		var err error
		switch {
		case p.done():
			return nil, cannot("an object has no end")
		case p.text[p.at] == '"' || p.text[p.at] == '\'' && !p.g.jq:
			key, err = p.plainText()
		case p.g.jq && p.eat("$"):
			key = p.name()
			short = &expr{op: "var", name: key}
		case p.g.jq:
			key = p.name()
			short = &expr{op: "field", name: key, args: []*expr{{op: "root"}}}
		}
		if err == nil && key == "" {
			err = cannot("%q as the name of a field is not supported: names are fixed", p.rest())
		}
		if err != nil {
			return nil, err
		}
		if p.space(); p.eat(":") {
			least := 0
			if p.g.jq {
				least = p.g.binary["|"]
			}
			short, err = p.expr(least)
		} else if short == nil {
			err = cannot("the field %q has no value", key)
		}
		if err != nil {
			return nil, err
		}
		o.keys, o.args = append(o.keys, key), append(o.args, short)
	}
}

// args parses arguments with a separator between them, up to the closing parenthesis.
func (p *parser) args(sep string) (list []*expr, err error) {
	for {
		if p.space(); p.eat(")") {
			return list, nil
		}
		if len(list) > 0 && !p.eat(sep) {
			return nil, cannot("%q among arguments is not supported", p.rest())
		}
		e, err := p.expr(0)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
}

func (p *parser) word() (*expr, error) {
	switch name := p.name(); {
	case name == "true" || name == "false":
		return &expr{op: "literal", v: name == "true"}, nil
	case name == "null":
		return &expr{op: "literal"}, nil
	case !p.g.jq:
		return nil, cannot("%q in an expression of JSONata is not supported: paths begin with $states or a variable", short(name))
	case name == "if":
		return p.ifExpr()
	case name == "reduce" || name == "foreach" || name == "def" || name == "try" || name == "label":
		return nil, cannot("jq's %s is not supported", name)
	case p.eat("("):
		args, err := p.args(";")
		return &expr{op: "call", name: name, args: args}, err
	default:
		return &expr{op: "call", name: name}, nil
	}
}

func (p *parser) keyword(word string) bool {
	p.space()
	rest := p.text[p.at:]
	if strings.HasPrefix(rest, word) && (len(rest) == len(word) || !nameByte(rest[len(word)])) {
		p.at += len(word)
		return true
	}
	return false
}

// ifExpr parses if … then … elif … then … else … end behind the if.
func (p *parser) ifExpr() (*expr, error) {
	cond, err := p.expr(0)
	if err != nil {
		return nil, err
	}
	if !p.keyword("then") {
		return nil, cannot("an if without then")
	}
	then, err := p.expr(0)
	if err != nil {
		return nil, err
	}
	other := &expr{op: "root"}
	switch {
	case p.keyword("elif"):
		other, err = p.ifExpr()
		return &expr{op: "if", args: []*expr{cond, then, other}}, err
	case p.keyword("else"):
		other, err = p.expr(0)
	}
	if err == nil && !p.keyword("end") {
		err = cannot("an if without end")
	}
	return &expr{op: "if", args: []*expr{cond, then, other}}, err
}

func (p *parser) numberExpr() (*expr, error) {
	from := p.at
	for p.at < len(p.text) {
		c := p.text[p.at]
		next := byte(0)
		if p.at+1 < len(p.text) {
			next = p.text[p.at+1]
		}
		if c >= '0' && c <= '9' || c == '.' && next >= '0' && next <= '9' || (c == 'e' || c == 'E') && (next >= '0' && next <= '9' || next == '-' || next == '+') ||
			(c == '-' || c == '+') && (p.text[p.at-1] == 'e' || p.text[p.at-1] == 'E') {
			p.at++
			continue
		}
		break
	}
	v, ok, why := jsonx.ParseNumber(p.text[from:p.at])
	if !ok || why != "" {
		return nil, cannot("%q is no number", short(p.text[from:p.at]))
	}
	return &expr{op: "literal", v: v}, nil
}

// plainText parses a text that has no expressions in it.
func (p *parser) plainText() (string, error) {
	e, err := p.textExpr()
	if err != nil {
		return "", err
	}
	if s, ok := e.v.(string); ok {
		return s, nil
	}
	return "", cannot("an expression in the name of a field is not supported")
}

// textExpr parses a text with the escapes of JSON, in jq also with expressions: \( … ).
func (p *parser) textExpr() (*expr, error) {
	q := p.text[p.at]
	p.at++
	var b strings.Builder
	t := &expr{op: "text"}
	flush := func() {
		if b.Len() > 0 {
			t.args = append(t.args, &expr{op: "literal", v: b.String()})
			b.Reset()
		}
	}
	for !p.done() {
		c := p.text[p.at]
		p.at++
		switch {
		case c == q:
			flush()
			switch {
			case len(t.args) == 0:
				return &expr{op: "literal", v: ""}, nil
			case len(t.args) == 1 && t.args[0].op == "literal":
				return t.args[0], nil
			}
			return t, nil
		case c != '\\':
			b.WriteByte(c)
		case p.g.jq && p.eat("("):
			flush()
			e, err := p.expr(0)
			if err != nil {
				return nil, err
			}
			if p.space(); !p.eat(")") {
				return nil, cannot("%q in a text is not supported", p.rest())
			}
			t.args = append(t.args, e, &expr{op: "literal", v: ""})
		default:
			if err := p.escape(&b); err != nil {
				return nil, err
			}
		}
	}
	return nil, cannot("a text has no end")
}

// escape reads what follows a backslash.
func (p *parser) escape(b *strings.Builder) error {
	if p.done() {
		return cannot("a text has no end")
	}
	c := p.text[p.at]
	p.at++
	switch c {
	case 'n':
		b.WriteByte('\n')
	case 't':
		b.WriteByte('\t')
	case 'r':
		b.WriteByte('\r')
	case 'b', 'f':
		return cannot("the escape \\%c is not supported", c)
	case 'u':
		if len(p.text) < p.at+4 {
			return cannot("an escape needs four digits")
		}
		n, err := strconv.ParseUint(p.text[p.at:p.at+4], 16, 16)
		if err != nil || !utf8.ValidRune(rune(n)) {
			return cannot("the escape \\u%s is not supported", short(p.text[p.at:p.at+4]))
		}
		p.at += 4
		b.WriteRune(rune(n))
	default:
		b.WriteByte(c)
	}
	return nil
}
