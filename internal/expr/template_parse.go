// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// CompileTemplate compiles a text with placeholders {{ expression | filter }} and the blocks if, for and set.
func CompileTemplate(src string) (*Program, error) { return CompileTemplateWithin(src, CostLimit) }

// CompileTemplateWithin is CompileTemplate with another cost limit, up to MaxCost.
func CompileTemplateWithin(src string, cost int64) (*Program, error) {
	return compileTemplate(src, cost, false)
}

func compileTemplate(src string, cost int64, secrets bool) (*Program, error) {
	most := within(cost)
	p := newParser(src, most)
	p.secrets = secrets
	prog, ps := p.parse()
	if len(ps) > 0 {
		return nil, ps.fault("template", src)
	}
	prog.inputs, prog.cost = distinctRefs(prog.refs), most
	return prog, nil
}

const (
	// maxBlocks bounds how deeply blocks nest.
	maxBlocks = 32
	// maxExprs bounds the expressions of one template.
	maxExprs = 1000
)

// A parser turns the tokens of one template into nodes.
type parser struct {
	src   string
	toks  []token
	pos   int
	depth int
	exprs int
	bound []string // names that for and set have bound so far
	refs  []Ref
	// secrets permits placeholders that are references to secrets.
	secrets bool
	probs   problems
	// compile compiles one expression; Check replaces it.
	compile func(src string, offset int) (*celExpr, problems)
}

func newParser(src string, most uint64) *parser {
	return &parser{src: src, compile: func(src string, offset int) (*celExpr, problems) {
		return compileAST(src, offset, most, nil)
	}}
}

func (p *parser) parse() (*Program, problems) {
	if len(p.src) > MaxTemplate {
		return nil, problems{{Len: 1, Rule: RuleSyntax, Msg: fmt.Sprintf("the template is longer than %d bytes", MaxTemplate)}}
	}
	toks, prob := tokenize(p.src)
	if prob != nil {
		return nil, problems{*prob}
	}
	p.toks = toks
	if len(toks) == 1 && toks[0].kind == '{' && !trimsText(p.src) && !p.isSecret(toks[0]) {
		lone := p.pipeline(fragment{toks[0].text, toks[0].at})
		return &Program{src: p.src, single: lone, refs: p.refs}, p.probs
	}
	nodes := p.block()
	if p.pos < len(p.toks) && len(p.probs) == 0 {
		t := p.toks[p.pos]
		w, _ := fragment{t.text, t.at}.word()
		p.fail(t.at, len(t.text), RuleSyntax, "", "{%% %s %%} without a block that it closes", w)
	}
	return &Program{src: p.src, nodes: nodes, refs: p.refs}, p.probs
}

// trimsText reports whether a single placeholder had text around it that its dashes or a
// comment removed. Then its result is text and not a typed value.
func trimsText(src string) bool {
	return !strings.HasPrefix(src, "{{") || !strings.HasSuffix(src, "}}")
}

// fail records a problem; at and n are in bytes of the source.
func (p *parser) fail(at, n int, rule, hint, format string, args ...any) {
	p.probs = append(p.probs, Problem{
		Offset: runes(p.src[:at]), Len: max(1, runes(p.src[at:min(len(p.src), at+n)])),
		Rule: rule, Hint: hint, Msg: fmt.Sprintf(format, args...),
	})
}

// block parses nodes up to a block tag that belongs to the caller.
func (p *parser) block() []node {
	var out []node
	for p.pos < len(p.toks) {
		t := p.toks[p.pos]
		switch t.kind {
		case 't':
			out = append(out, textNode(t.text))
		case '{':
			if p.isSecret(t) {
				name, _ := secretCall(t.text)
				out = append(out, secretNode(name))
				break
			}
			out = append(out, &outputNode{p.pipeline(fragment{t.text, t.at})})
		case '%':
			word, rest := fragment{t.text, t.at}.word()
			switch word {
			case "elif", "else", "endif", "endfor":
				return out
			case "if":
				out = append(out, p.ifBlock(t, rest))
			case "for":
				out = append(out, p.forBlock(t, rest))
			case "set":
				out = append(out, p.set(t, rest))
			default:
				p.fail(t.at, len(t.text), RuleSyntax, "the blocks are if, elif, else, endif, for, endfor and set", "unknown block %q", strings.TrimSpace(t.text))
			}
		}
		p.pos++
	}
	return out
}

// enter limits the nesting of blocks.
func (p *parser) enter(t token) bool {
	p.depth++
	if p.depth == maxBlocks+1 {
		p.fail(t.at, len(t.text), RuleSyntax, "", "blocks nest deeper than %d levels", maxBlocks)
	}
	return p.depth <= maxBlocks
}

// tag returns the block tag at the current position, or "" at the end of the source.
func (p *parser) tag() (string, fragment, token) {
	if p.pos >= len(p.toks) {
		return "", fragment{}, token{}
	}
	t := p.toks[p.pos]
	w, rest := fragment{t.text, t.at}.word()
	return w, rest, t
}

func (p *parser) ifBlock(open token, cond fragment) node {
	defer func() { p.depth-- }()
	n := &ifNode{}
	if !p.enter(open) {
		p.pos = len(p.toks)
		return n
	}
	for {
		c := p.pipeline(cond)
		p.pos++
		n.branches = append(n.branches, branch{c, p.block()})
		word, rest, t := p.tag()
		switch word {
		case "elif":
			cond = rest
			continue
		case "else":
			p.pos++
			n.otherwise = p.block()
			word, _, t = p.tag()
		}
		p.end(open, t, word, "endif")
		return n
	}
}

// end checks that a block is closed by its own end tag.
func (p *parser) end(open, t token, word, want string) {
	switch word {
	case want:
	case "":
		p.fail(open.at, len(open.text), RuleSyntax, "", "the block is not closed by {%% %s %%}", want)
	default:
		p.fail(t.at, len(t.text), RuleSyntax, "", "found {%% %s %%}, want {%% %s %%}", word, want)
	}
}

func (p *parser) forBlock(open token, head fragment) node {
	defer func() { p.depth-- }()
	n := &forNode{}
	if !p.enter(open) {
		p.pos = len(p.toks)
		return n
	}
	for {
		var name string
		name, head = head.word()
		if name == "" || name == "in" {
			p.fail(open.at, len(open.text), RuleSyntax, "{% for item in items %} or {% for key, value in map %}", "the loop has no variable")
			break
		}
		n.names = append(n.names, name)
		head = head.trimmed()
		if !strings.HasPrefix(head.text, ",") {
			break
		}
		head = fragment{head.text[1:], head.at + 1}
	}
	in, list := head.word()
	if in != "in" && len(p.probs) == 0 {
		p.fail(open.at, len(open.text), RuleSyntax, "{% for item in items %}", "the loop has no %q", "in")
	}
	if len(n.names) > 2 {
		p.fail(open.at, len(open.text), RuleSyntax, "", "a loop has one variable, or two for keys and values")
	}
	n.over = p.pipeline(list)
	p.pos++
	mark := len(p.bound)
	p.bound = append(append(p.bound, n.names...), "loop", loopName)
	n.body = p.block()
	p.bound = p.bound[:mark]
	word, _, t := p.tag()
	if word == "else" {
		p.pos++
		n.otherwise = p.block()
		word, _, t = p.tag()
	}
	p.end(open, t, word, "endfor")
	return n
}

func (p *parser) set(t token, head fragment) node {
	name, rest := head.word()
	rest = rest.trimmed()
	if name == "" || !strings.HasPrefix(rest.text, "=") || strings.HasPrefix(rest.text, "==") {
		p.fail(t.at, len(t.text), RuleSyntax, "{% set name = expression %}", "set needs a name and a value")
		return textNode("")
	}
	n := &setNode{name: name, value: p.pipeline(fragment{rest.text[1:], rest.at + 1})}
	p.bound = append(p.bound, name)
	return n
}

// pipe parses an expression with its filters.
func (p *parser) pipeline(src fragment) *pipeline {
	parts := split(src.text, '|')
	out := &pipeline{base: p.cel(fragment{parts[0].text, src.at + parts[0].at})}
	for _, part := range parts[1:] {
		f := fragment{part.text, src.at + part.at}
		if c, ok := p.filter(f); ok {
			out.filters = append(out.filters, c)
		}
	}
	return out
}

// cel compiles one expression of the template and records its refs.
func (p *parser) cel(src fragment) *celExpr {
	src = src.trimmed()
	if src.text == "" {
		p.fail(src.at, 1, RuleSyntax, "", "an expression is missing")
		return nil
	}
	if p.exprs++; p.exprs > maxExprs {
		if p.exprs == maxExprs+1 {
			p.fail(src.at, len(src.text), RuleSyntax, "", "the template has more than %d expressions", maxExprs)
		}
		return nil
	}
	text := src.text
	if slices.Contains(p.bound, "loop") {
		text = renameLoop(text)
	}
	e, ps := p.compile(text, runes(p.src[:src.at]))
	if len(ps) > 0 {
		p.probs = append(p.probs, ps...)
		return nil
	}
	for _, r := range e.refs {
		if !slices.Contains(p.bound, r.Name) {
			p.refs = append(p.refs, r)
		}
	}
	return e
}

// loopName replaces the variable loop, which is a reserved word of CEL. It has the same
// length, so that positions stay the same.
const loopName = "l__p"

// renameLoop replaces the variable loop by loopName.
func renameLoop(src string) string {
	if !strings.Contains(src, "loop") {
		return src
	}
	out := []byte(src)
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case c == '"' || c == '\'':
			i = skipString(src, 0, i)
			continue
		case isWord(c):
			j := i
			for j < len(src) && isWord(src[j]) {
				j++
			}
			if src[i:j] == "loop" && !strings.HasSuffix(strings.TrimRight(src[:i], " \t\r\n"), ".") {
				copy(out[i:], loopName)
			}
			i = j
			continue
		}
		i++
	}
	return string(out)
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// filter parses name or name(arguments).
func (p *parser) filter(src fragment) (filterCall, bool) {
	src = src.trimmed()
	name, rest := src.word()
	f, ok := filters[name]
	if !ok {
		hint := suggest(name, filterNames)
		if hint == "" {
			hint = "the filters are " + strings.Join(filterNames, ", ")
		}
		p.fail(src.at, len(src.text), RuleFilter, hint, "unknown filter %q", name)
		return filterCall{}, false
	}
	call := filterCall{name: name, filter: f}
	rest = rest.trimmed()
	if rest.text != "" {
		if rest.text[0] != '(' || rest.text[len(rest.text)-1] != ')' {
			p.fail(rest.at, len(rest.text), RuleFilter, "", "after the filter %s: want (arguments) or another |", name)
			return filterCall{}, false
		}
		inner := fragment{rest.text[1 : len(rest.text)-1], rest.at + 1}
		if strings.TrimSpace(inner.text) != "" {
			for _, a := range split(inner.text, ',') {
				call.args = append(call.args, p.cel(fragment{a.text, inner.at + a.at}))
			}
		}
	}
	if n := len(call.args); n < f.min || n > f.max {
		p.fail(src.at, len(src.text), RuleFilter, "", "the filter %s takes %s, got %d", name, f.arity(), n)
		return filterCall{}, false
	}
	return call, true
}

// A pipeline is an expression and the filters that are applied to its value.
type pipeline struct {
	base    *celExpr
	filters []filterCall
}

func (p *pipeline) eval(vars Vars, b *budget) (any, error) {
	v, err := p.base.eval(vars, b)
	for i := range p.filters {
		f := &p.filters[i]
		if err != nil && (f.name != "default" || !errors.Is(err, errMissing)) {
			return nil, err
		}
		args := make([]any, len(f.args))
		for j, a := range f.args {
			var argErr error
			if args[j], argErr = a.eval(vars, b); argErr != nil {
				return nil, argErr
			}
		}
		if err != nil {
			v, err = args[0], nil
			continue
		}
		if e := b.spend(uint64(1 + measure(v, MaxInput)/writeUnit)); e != nil {
			return nil, e
		}
		v, err = f.run(v, args)
	}
	return v, err
}
