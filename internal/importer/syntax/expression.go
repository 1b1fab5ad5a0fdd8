// SPDX-License-Identifier: Apache-2.0

package syntax

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/jsonx"
)

// An Expr is an expression of jq or JSONata.
type Expr struct {
	Op    string // literal, root, var, field, index, each, call, list, object, text, negate, if, or an operator
	Name  string // of a var, field or call
	Value any    // of a literal
	Args  []*Expr
	Keys  []string // of an object
}

// A Grammar is what the languages of expressions differ in.
type Grammar struct {
	Name   string
	binary map[string]int // operators by how strongly they bind
	words  map[string]int // operators that are words
	right  string         // the operators that group from the right
	JQ     bool
}

// JQ is the grammar of jq.
var JQ = &Grammar{
	Name: "jq", JQ: true, right: "|//",
	binary: map[string]int{"|": 1, "//": 3, "==": 6, "!=": 6, "<=": 6, ">=": 6, "<": 6, ">": 6, "+": 7, "-": 7, "*": 8, "/": 8, "%": 8},
	words:  map[string]int{"or": 4, "and": 5},
}

// JSONata is the grammar of JSONata.
var JSONata = &Grammar{
	Name:   "JSONata",
	binary: map[string]int{"?": 2, "!=": 5, "<=": 5, ">=": 5, "=": 5, "<": 5, ">": 5, "+": 6, "-": 6, "&": 6, "*": 7, "/": 7, "%": 7},
	words:  map[string]int{"or": 3, "and": 4, "in": 5},
}

// A parser parses expressions.
type parser struct {
	Reader
	g     *Grammar
	depth int
	parts int
}

// Parse parses an expression of a language.
func Parse(g *Grammar, src string) (*Expr, error) {
	if len(src) > MaxExpression {
		return nil, Cannot("the expression has more than %d characters", MaxExpression)
	}
	p := &parser{Reader: Reader{Text: src}, g: g}
	e, err := p.expr(0)
	if err != nil {
		return nil, err
	}
	if p.Space(); !p.Done() {
		return nil, Cannot("%q in the expression %q is not supported", p.Rest(), Short(src))
	}
	return e, nil
}

// operator returns the operator that comes next, and how strongly it binds.
func (p *parser) operator() (op string, power int) {
	p.Space()
	rest := p.Text[p.At:]
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

func (p *parser) expr(least int) (*Expr, error) {
	if p.depth++; p.depth > MaxNesting {
		return nil, Cannot("the expression nests more than %d deep", MaxNesting)
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
		p.At += len(op)
		if op == "?" {
			left, err = p.choice(left)
		} else {
			below := power
			if strings.Contains(p.g.right, op) && len(p.g.right) > 0 && p.g.JQ && (op == "|" || op == "//") {
				below--
			}
			var right *Expr
			if right, err = p.expr(below); err == nil {
				left = &Expr{Op: op, Args: []*Expr{left, right}}
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// choice parses a ? b : c behind the question mark.
func (p *parser) choice(cond *Expr) (*Expr, error) {
	then, err := p.expr(1)
	if err != nil {
		return nil, err
	}
	other := &Expr{Op: "literal"}
	if p.Space(); p.Eat(":") {
		if other, err = p.expr(1); err != nil {
			return nil, err
		}
	}
	return &Expr{Op: "if", Args: []*Expr{cond, then, other}}, nil
}

func (p *parser) unary() (*Expr, error) {
	p.Space()
	if p.Eat("-") {
		if p.depth++; p.depth > MaxNesting {
			return nil, Cannot("the expression nests more than %d deep", MaxNesting)
		}
		defer func() { p.depth-- }()
		e, err := p.unary()
		return &Expr{Op: "negate", Args: []*Expr{e}}, err
	}
	e, err := p.primary()
	for err == nil {
		switch rest := p.Text[p.At:]; {
		case strings.HasPrefix(rest, ".") && !strings.HasPrefix(rest, ".."):
			p.At++
			if p.g.JQ && strings.HasPrefix(rest, ".[") {
				continue
			}
			e, err = p.selected(e)
		case strings.HasPrefix(rest, "["):
			p.At++
			e, err = p.indexed(e)
		case p.g.JQ && strings.HasPrefix(rest, "?") && !strings.HasPrefix(rest, "?//"):
			p.At++ // what it hides is null here already
		default:
			return e, nil
		}
	}
	return nil, err
}

// selected parses a name behind a dot.
func (p *parser) selected(base *Expr) (*Expr, error) {
	if p.Done() {
		return nil, Cannot("an expression ends in a dot")
	}
	var name string
	var err error
	switch c := p.Text[p.At]; {
	case c == '"' || !p.g.JQ && c == '`':
		name, err = p.Quoted()
	default:
		name = p.Name()
	}
	if err == nil && name == "" {
		err = Cannot("%q behind a dot is not supported", p.Rest())
	}
	return &Expr{Op: "field", Name: name, Args: []*Expr{base}}, err
}

func (p *parser) indexed(base *Expr) (*Expr, error) {
	if p.Space(); p.Eat("]") {
		if !p.g.JQ {
			return base, nil
		}
		return &Expr{Op: "each", Args: []*Expr{base}}, nil
	}
	i, err := p.expr(0)
	if err != nil {
		return nil, err
	}
	if p.Space(); !p.Eat("]") {
		return nil, Cannot("%q in brackets is not supported", p.Rest())
	}
	return &Expr{Op: "index", Args: []*Expr{base, i}}, nil
}

func (p *parser) primary() (*Expr, error) {
	if p.parts++; p.parts > 2000 {
		return nil, Cannot("the expression has more than 2000 parts")
	}
	if p.Space(); p.Done() {
		return nil, Cannot("an expression ends too early")
	}
	c := p.Text[p.At]
	switch {
	case c == '(':
		return p.group()
	case c == '[':
		return p.listExpr()
	case c == '{':
		return p.objectExpr()
	case c == '"' || c == '\'' && !p.g.JQ:
		return p.textExpr()
	case c >= '0' && c <= '9':
		return p.numberExpr()
	case c == '$':
		p.At++
		name := p.Name()
		if !p.g.JQ && p.Eat("(") {
			args, err := p.args(",")
			return &Expr{Op: "call", Name: name, Args: args}, err
		}
		return &Expr{Op: "var", Name: name}, nil
	case c == '.' && p.g.JQ:
		p.At++
		root := &Expr{Op: "root"}
		if !p.Done() && (nameByte(p.Text[p.At]) || p.Text[p.At] == '"') {
			return p.selected(root)
		}
		if p.Eat(".") {
			return nil, Cannot("jq's .. is not supported")
		}
		return root, nil
	case nameByte(c):
		return p.word()
	}
	return nil, Cannot("%q in an expression of %s is not supported", p.Rest(), p.g.Name)
}

func (p *parser) group() (*Expr, error) {
	p.At++
	e, err := p.expr(0)
	if err != nil {
		return nil, err
	}
	if p.Space(); !p.Eat(")") {
		return nil, Cannot("%q in parentheses is not supported", p.Rest())
	}
	return e, nil
}

func (p *parser) listExpr() (*Expr, error) {
	p.At++
	l := &Expr{Op: "list"}
	for {
		if p.Space(); p.Eat("]") {
			return l, nil
		}
		if len(l.Args) > 0 && !p.Eat(",") {
			return nil, Cannot("%q in a list is not supported", p.Rest())
		}
		e, err := p.expr(0)
		if err != nil {
			return nil, err
		}
		l.Args = append(l.Args, e)
	}
}

func (p *parser) objectExpr() (*Expr, error) {
	p.At++
	o := &Expr{Op: "object"}
	for {
		if p.Space(); p.Eat("}") {
			return o, nil
		}
		if len(o.Keys) > 0 && !p.Eat(",") {
			return nil, Cannot("%q in an object is not supported", p.Rest())
		}
		p.Space()
		var key string
		var short *Expr
		var err error
		switch {
		case p.Done():
			return nil, Cannot("an object has no end")
		case p.Text[p.At] == '"' || p.Text[p.At] == '\'' && !p.g.JQ:
			key, err = p.plainText()
		case p.g.JQ && p.Eat("$"):
			key = p.Name()
			short = &Expr{Op: "var", Name: key}
		case p.g.JQ:
			key = p.Name()
			short = &Expr{Op: "field", Name: key, Args: []*Expr{{Op: "root"}}}
		}
		if err == nil && key == "" {
			err = Cannot("%q as the name of a field is not supported: names are fixed", p.Rest())
		}
		if err != nil {
			return nil, err
		}
		if p.Space(); p.Eat(":") {
			least := 0
			if p.g.JQ {
				least = p.g.binary["|"]
			}
			short, err = p.expr(least)
		} else if short == nil {
			err = Cannot("the field %q has no value", key)
		}
		if err != nil {
			return nil, err
		}
		o.Keys, o.Args = append(o.Keys, key), append(o.Args, short)
	}
}

// args parses arguments with a separator between them, up to the closing parenthesis.
func (p *parser) args(sep string) (list []*Expr, err error) {
	for {
		if p.Space(); p.Eat(")") {
			return list, nil
		}
		if len(list) > 0 && !p.Eat(sep) {
			return nil, Cannot("%q among arguments is not supported", p.Rest())
		}
		e, err := p.expr(0)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
}

func (p *parser) word() (*Expr, error) {
	switch name := p.Name(); {
	case name == "true" || name == "false":
		return &Expr{Op: "literal", Value: name == "true"}, nil
	case name == "null":
		return &Expr{Op: "literal"}, nil
	case !p.g.JQ:
		return nil, Cannot("%q in an expression of JSONata is not supported: paths begin with $states or a variable", Short(name))
	case name == "if":
		return p.ifExpr()
	case name == "reduce" || name == "foreach" || name == "def" || name == "try" || name == "label":
		return nil, Cannot("jq's %s is not supported", name)
	case p.Eat("("):
		args, err := p.args(";")
		return &Expr{Op: "call", Name: name, Args: args}, err
	default:
		return &Expr{Op: "call", Name: name}, nil
	}
}

func (p *parser) keyword(word string) bool {
	p.Space()
	rest := p.Text[p.At:]
	if strings.HasPrefix(rest, word) && (len(rest) == len(word) || !nameByte(rest[len(word)])) {
		p.At += len(word)
		return true
	}
	return false
}

// ifExpr parses if … then … elif … then … else … end behind the if.
func (p *parser) ifExpr() (*Expr, error) {
	cond, err := p.expr(0)
	if err != nil {
		return nil, err
	}
	if !p.keyword("then") {
		return nil, Cannot("an if without then")
	}
	then, err := p.expr(0)
	if err != nil {
		return nil, err
	}
	other := &Expr{Op: "root"}
	switch {
	case p.keyword("elif"):
		other, err = p.ifExpr()
		return &Expr{Op: "if", Args: []*Expr{cond, then, other}}, err
	case p.keyword("else"):
		other, err = p.expr(0)
	}
	if err == nil && !p.keyword("end") {
		err = Cannot("an if without end")
	}
	return &Expr{Op: "if", Args: []*Expr{cond, then, other}}, err
}

func (p *parser) numberExpr() (*Expr, error) {
	from := p.At
	for p.At < len(p.Text) {
		c := p.Text[p.At]
		next := byte(0)
		if p.At+1 < len(p.Text) {
			next = p.Text[p.At+1]
		}
		if c >= '0' && c <= '9' || c == '.' && next >= '0' && next <= '9' || (c == 'e' || c == 'E') && (next >= '0' && next <= '9' || next == '-' || next == '+') ||
			(c == '-' || c == '+') && (p.Text[p.At-1] == 'e' || p.Text[p.At-1] == 'E') {
			p.At++
			continue
		}
		break
	}
	v, ok, why := jsonx.ParseNumber(p.Text[from:p.At])
	if !ok || why != "" {
		return nil, Cannot("%q is no number", Short(p.Text[from:p.At]))
	}
	return &Expr{Op: "literal", Value: v}, nil
}

// plainText parses a text that has no expressions in it.
func (p *parser) plainText() (string, error) {
	e, err := p.textExpr()
	if err != nil {
		return "", err
	}
	if s, ok := e.Value.(string); ok {
		return s, nil
	}
	return "", Cannot("an expression in the name of a field is not supported")
}

// textExpr parses a text with the escapes of JSON, in jq also with expressions: \( … ).
func (p *parser) textExpr() (*Expr, error) {
	q := p.Text[p.At]
	p.At++
	var b strings.Builder
	t := &Expr{Op: "text"}
	flush := func() {
		if b.Len() > 0 {
			t.Args = append(t.Args, &Expr{Op: "literal", Value: b.String()})
			b.Reset()
		}
	}
	for !p.Done() {
		c := p.Text[p.At]
		p.At++
		switch {
		case c == q:
			flush()
			switch {
			case len(t.Args) == 0:
				return &Expr{Op: "literal", Value: ""}, nil
			case len(t.Args) == 1 && t.Args[0].Op == "literal":
				return t.Args[0], nil
			}
			return t, nil
		case c != '\\':
			b.WriteByte(c)
		case p.g.JQ && p.Eat("("):
			flush()
			e, err := p.expr(0)
			if err != nil {
				return nil, err
			}
			if p.Space(); !p.Eat(")") {
				return nil, Cannot("%q in a text is not supported", p.Rest())
			}
			t.Args = append(t.Args, e, &Expr{Op: "literal", Value: ""})
		default:
			if err := p.escape(&b); err != nil {
				return nil, err
			}
		}
	}
	return nil, Cannot("a text has no end")
}

// escape reads what follows a backslash.
func (p *parser) escape(b *strings.Builder) error {
	if p.Done() {
		return Cannot("a text has no end")
	}
	c := p.Text[p.At]
	p.At++
	switch c {
	case 'n':
		b.WriteByte('\n')
	case 't':
		b.WriteByte('\t')
	case 'r':
		b.WriteByte('\r')
	case 'b', 'f':
		return Cannot("the escape \\%c is not supported", c)
	case 'u':
		if len(p.Text) < p.At+4 {
			return Cannot("an escape needs four digits")
		}
		n, err := strconv.ParseUint(p.Text[p.At:p.At+4], 16, 16)
		if err != nil || !utf8.ValidRune(rune(n)) {
			return Cannot("the escape \\u%s is not supported", Short(p.Text[p.At:p.At+4]))
		}
		p.At += 4
		b.WriteRune(rune(n))
	default:
		b.WriteByte(c)
	}
	return nil
}
