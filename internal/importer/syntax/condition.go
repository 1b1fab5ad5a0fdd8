// SPDX-License-Identifier: Apache-2.0

package syntax

import "strings"

// A Condition is a condition of Argo: atoms with &&, || and !.
type Condition struct {
	Op   string // atom, &&, ||, !
	Text string
	Args []*Condition
}

// And returns the condition that both hold; e may be nil.
func (e *Condition) And(f *Condition) *Condition {
	if e == nil {
		return f
	}
	return &Condition{Op: "&&", Args: []*Condition{e, f}}
}

// Walk calls f with the condition and those within it.
func (e *Condition) Walk(f func(*Condition)) {
	f(e)
	for _, a := range e.Args {
		a.Walk(f)
	}
}

// Write writes the condition in CEL.
func (e *Condition) Write(atom func(text string) string) string {
	switch e.Op {
	case "atom":
		return atom(e.Text)
	case "!":
		return "!(" + e.Args[0].Write(atom) + ")"
	}
	parts := make([]string, len(e.Args))
	for i, a := range e.Args {
		parts[i] = a.Write(atom)
		if a.Op == "||" && e.Op == "&&" {
			parts[i] = "(" + parts[i] + ")"
		}
	}
	return strings.Join(parts, " "+e.Op+" ")
}

// ParseCondition parses a condition. atom reads what stands between the operators.
func ParseCondition(src string, atom func(r *Reader) (string, error)) (*Condition, error) {
	if len(src) > MaxExpression {
		return nil, Cannot("the condition has more than %d characters", MaxExpression)
	}
	r := &Reader{Text: src}
	e, err := r.either(atom, 0)
	if err == nil {
		if r.Space(); !r.Done() {
			err = Cannot("%q in the condition %q is not supported", r.Rest(), Short(src))
		}
	}
	return e, err
}

func (r *Reader) either(atom func(*Reader) (string, error), depth int) (*Condition, error) {
	return r.chain("||", atom, depth, func() (*Condition, error) {
		return r.chain("&&", atom, depth, func() (*Condition, error) { return r.not(atom, depth) })
	})
}

// chain parses operands with an operator between them.
func (r *Reader) chain(op string, atom func(*Reader) (string, error), depth int, operand func() (*Condition, error)) (*Condition, error) {
	e, err := operand()
	if err != nil {
		return nil, err
	}
	for r.Space(); r.Eat(op); r.Space() {
		right, err := operand()
		if err != nil {
			return nil, err
		}
		if e.Op == op {
			e.Args = append(e.Args, right)
		} else {
			e = &Condition{Op: op, Args: []*Condition{e, right}}
		}
	}
	return e, nil
}

func (r *Reader) not(atom func(*Reader) (string, error), depth int) (*Condition, error) {
	if depth > MaxNesting {
		return nil, Cannot("the condition nests more than %d deep", MaxNesting)
	}
	r.Space()
	switch {
	case strings.HasPrefix(r.Text[r.At:], "!") && !strings.HasPrefix(r.Text[r.At:], "!="):
		r.At++
		e, err := r.not(atom, depth+1)
		return &Condition{Op: "!", Args: []*Condition{e}}, err
	case r.Eat("("):
		e, err := r.either(atom, depth+1)
		if err != nil {
			return nil, err
		}
		if r.Space(); !r.Eat(")") {
			return nil, Cannot("a parenthesis in %q has no end", Short(r.Text))
		}
		return e, nil
	}
	text, err := atom(r)
	return &Condition{Op: "atom", Text: text}, err
}

// dependsStatuses are the ends of a task that depends may name.
var dependsStatuses = map[string]bool{"": true, "Succeeded": true, "Failed": true, "Errored": true, "Skipped": true, "Omitted": true, "Daemoned": true, "AnySucceeded": true, "AllFailed": true}

// DependsAtom reads NAME or NAME.Status.
func DependsAtom(r *Reader) (string, error) {
	from := r.At
	for r.At < len(r.Text) && (nameByte(r.Text[r.At]) || r.Text[r.At] == '-' || r.Text[r.At] == '.') {
		r.At++
	}
	atom := r.Text[from:r.At]
	name, status, _ := strings.Cut(atom, ".")
	if name == "" || !dependsStatuses[status] {
		return "", Cannot("%q in depends is not supported: want a task, or one with .Succeeded, .Failed, .Errored, .Skipped, .Omitted or .Daemoned", Short(atom+r.Rest()))
	}
	return atom, nil
}

// WhenAtom reads one comparison, up to an operator between comparisons.
func WhenAtom(r *Reader) (string, error) {
	from := r.At
	for r.At < len(r.Text) {
		rest := r.Text[r.At:]
		switch {
		case strings.HasPrefix(rest, "{{"):
			n := strings.Index(rest, "}}")
			if n < 0 {
				return "", Cannot("a placeholder has no end")
			}
			r.At += n + 2
			continue
		case rest[0] == '\'' || rest[0] == '"':
			if _, err := r.Quoted(); err != nil {
				return "", err
			}
			continue
		case strings.HasPrefix(rest, "&&"), strings.HasPrefix(rest, "||"), rest[0] == ')':
			return atomText(r.Text[from:r.At])
		case rest[0] == '(':
			return "", Cannot("%q in a condition is not supported", Short(rest))
		}
		r.At++
	}
	return atomText(r.Text[from:r.At])
}

func atomText(s string) (string, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return "", Cannot("a condition ends too early")
	}
	return s, nil
}

// CutComparison splits a comparison at its operator.
func CutComparison(atom string) (left, op, right string) {
	r := &Reader{Text: atom}
	for r.At < len(atom) {
		rest := atom[r.At:]
		if strings.HasPrefix(rest, "{{") {
			if n := strings.Index(rest, "}}"); n >= 0 {
				r.At += n + 2
				continue
			}
		}
		if rest[0] == '\'' || rest[0] == '"' {
			if _, err := r.Quoted(); err == nil {
				continue
			}
		}
		for _, op := range []string{"==", "!=", "=~", "!~", "<=", ">=", "<", ">"} {
			if strings.HasPrefix(rest, op) {
				return atom[:r.At], op, rest[len(op):]
			}
		}
		r.At++
	}
	return atom, "", ""
}
