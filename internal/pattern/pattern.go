// SPDX-License-Identifier: Apache-2.0

// Package pattern compiles regular expressions of a bounded size, whose cost of
// matching is therefore known: at most instructions × bytes of the text.
//
// It decides which regular expressions are allowed. What a match may cost is the
// caller's decision.
package pattern

import (
	"fmt"
	"regexp"
	"regexp/syntax"
)

const (
	// MaxBytes bounds the source of a regular expression.
	MaxBytes = 1000
	// maxInsts bounds the instructions of a compiled one, because counted
	// repetition makes a short source large.
	maxInsts = 1000
)

// A Pattern is a compiled regular expression.
type Pattern struct {
	re *regexp.Regexp
	// Insts is its number of instructions.
	Insts int
}

// Compile compiles a regular expression in the syntax of package regexp.
func Compile(src string) (Pattern, error) {
	if len(src) > MaxBytes {
		return Pattern{}, fmt.Errorf("the regular expression is longer than %d bytes", MaxBytes)
	}
	tree, err := syntax.Parse(src, syntax.Perl)
	if err != nil {
		return Pattern{}, err
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return Pattern{}, err
	}
	if n := len(prog.Inst); n > maxInsts {
		return Pattern{}, fmt.Errorf("the regular expression compiles to %d instructions; %d are allowed", n, maxInsts)
	}
	re, err := regexp.Compile(src)
	return Pattern{re: re, Insts: len(prog.Inst)}, err
}

// MatchString reports whether the text contains a match.
func (p Pattern) MatchString(text string) bool { return p.re.MatchString(text) }
