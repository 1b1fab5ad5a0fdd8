// SPDX-License-Identifier: Apache-2.0

package importer

import "strings"

// A boolExpr is a condition of Argo: atoms with &&, || and !.
type boolExpr struct {
	op   string // atom, &&, ||, !
	text string
	args []*boolExpr
}

// and returns the condition that both hold; e may be nil.
func (e *boolExpr) and(f *boolExpr) *boolExpr {
	if e == nil {
		return f
	}
	return &boolExpr{op: "&&", args: []*boolExpr{e, f}}
}

func (e *boolExpr) walk(f func(*boolExpr)) {
	f(e)
	for _, a := range e.args {
		a.walk(f)
	}
}

// write writes the condition in CEL.
func (e *boolExpr) write(atom func(text string) string) string {
	switch e.op {
	case "atom":
		return atom(e.text)
	case "!":
		return "!(" + e.args[0].write(atom) + ")"
	}
	parts := make([]string, len(e.args))
	for i, a := range e.args {
		parts[i] = a.write(atom)
		if a.op == "||" && e.op == "&&" {
			parts[i] = "(" + parts[i] + ")"
		}
	}
	return strings.Join(parts, " "+e.op+" ")
}

// parseBool parses a condition. atom reads what stands between the operators.
func parseBool(src string, atom func(r *reader) (string, error)) (*boolExpr, error) {
	if len(src) > maxExpression {
		return nil, cannot("the condition has more than %d characters", maxExpression)
	}
	r := &reader{text: src}
	e, err := r.either(atom, 0)
	if err == nil {
		if r.space(); !r.done() {
			err = cannot("%q in the condition %q is not supported", r.rest(), short(src))
		}
	}
	return e, err
}

func (r *reader) either(atom func(*reader) (string, error), depth int) (*boolExpr, error) {
	return r.chain("||", atom, depth, func() (*boolExpr, error) {
		return r.chain("&&", atom, depth, func() (*boolExpr, error) { return r.not(atom, depth) })
	})
}

// chain parses operands with an operator between them.
func (r *reader) chain(op string, atom func(*reader) (string, error), depth int, operand func() (*boolExpr, error)) (*boolExpr, error) {
	e, err := operand()
	if err != nil {
		return nil, err
	}
	for r.space(); r.eat(op); r.space() {
		right, err := operand()
		if err != nil {
			return nil, err
		}
		if e.op == op {
			e.args = append(e.args, right)
		} else {
			e = &boolExpr{op: op, args: []*boolExpr{e, right}}
		}
	}
	return e, nil
}

func (r *reader) not(atom func(*reader) (string, error), depth int) (*boolExpr, error) {
	if depth > maxNesting {
		return nil, cannot("the condition nests more than %d deep", maxNesting)
	}
	r.space()
	switch {
	case strings.HasPrefix(r.text[r.at:], "!") && !strings.HasPrefix(r.text[r.at:], "!="):
		r.at++
		e, err := r.not(atom, depth+1)
		return &boolExpr{op: "!", args: []*boolExpr{e}}, err
	case r.eat("("):
		e, err := r.either(atom, depth+1)
		if err != nil {
			return nil, err
		}
		if r.space(); !r.eat(")") {
			return nil, cannot("a parenthesis in %q has no end", short(r.text))
		}
		return e, nil
	}
	text, err := atom(r)
	return &boolExpr{op: "atom", text: text}, err
}

// dependsStatuses are the ends of a task that depends may name.
var dependsStatuses = map[string]bool{"": true, "Succeeded": true, "Failed": true, "Errored": true, "Skipped": true, "Omitted": true, "Daemoned": true, "AnySucceeded": true, "AllFailed": true}

// dependsAtom reads NAME or NAME.Status.
func dependsAtom(r *reader) (string, error) {
	from := r.at
	for r.at < len(r.text) && (nameByte(r.text[r.at]) || r.text[r.at] == '-' || r.text[r.at] == '.') {
		r.at++
	}
	atom := r.text[from:r.at]
	name, status, _ := strings.Cut(atom, ".")
	if name == "" || !dependsStatuses[status] {
		return "", cannot("%q in depends is not supported: want a task, or one with .Succeeded, .Failed, .Errored, .Skipped, .Omitted or .Daemoned", short(atom+r.rest()))
	}
	return atom, nil
}

// whenAtom reads one comparison, up to an operator between comparisons.
func whenAtom(r *reader) (string, error) {
	from := r.at
	for r.at < len(r.text) {
		rest := r.text[r.at:]
		switch {
		case strings.HasPrefix(rest, "{{"):
			n := strings.Index(rest, "}}")
			if n < 0 {
				return "", cannot("a placeholder has no end")
			}
			r.at += n + 2
			continue
		case rest[0] == '\'' || rest[0] == '"':
			if _, err := r.quoted(); err != nil {
				return "", err
			}
			continue
		case strings.HasPrefix(rest, "&&"), strings.HasPrefix(rest, "||"), rest[0] == ')':
			return atomText(r.text[from:r.at])
		case rest[0] == '(':
			return "", cannot("%q in a condition is not supported", short(rest))
		}
		r.at++
	}
	return atomText(r.text[from:r.at])
}

func atomText(s string) (string, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return "", cannot("a condition ends too early")
	}
	return s, nil
}

// cutComparison splits a comparison at its operator.
func cutComparison(atom string) (left, op, right string) {
	r := &reader{text: atom}
	for r.at < len(atom) {
		rest := atom[r.at:]
		if strings.HasPrefix(rest, "{{") {
			if n := strings.Index(rest, "}}"); n >= 0 {
				r.at += n + 2
				continue
			}
		}
		if rest[0] == '\'' || rest[0] == '"' {
			if _, err := r.quoted(); err == nil {
				continue
			}
		}
		for _, op := range []string{"==", "!=", "=~", "!~", "<=", ">=", "<", ">"} {
			if strings.HasPrefix(rest, op) {
				return atom[:r.at], op, rest[len(op):]
			}
		}
		r.at++
	}
	return atom, "", ""
}
