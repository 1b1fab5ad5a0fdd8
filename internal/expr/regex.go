// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"regexp"
	"regexp/syntax"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

const (
	// maxRegex bounds the instructions of a compiled regular expression:
	// counted repetition makes a short pattern large.
	maxRegex = 1000
	// maxPattern bounds its source in bytes.
	maxPattern = 1000
	// A regular expression does at most instructions × bytes steps; a unit of
	// cost is this many.
	regexUnit = 100
)

// A pattern is a compiled regular expression and its number of instructions.
type pattern struct {
	re    *regexp.Regexp
	insts int
}

func compilePattern(s string) (pattern, error) {
	if len(s) > maxPattern {
		return pattern{}, fmt.Errorf("the regular expression is longer than %d bytes", maxPattern)
	}
	tree, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return pattern{}, err
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return pattern{}, err
	}
	if n := len(prog.Inst); n > maxRegex {
		return pattern{}, fmt.Errorf("the regular expression compiles to %d instructions; %d are allowed", n, maxRegex)
	}
	re, err := regexp.Compile(s)
	return pattern{re: re, insts: len(prog.Inst)}, err
}

// price is the cost of matching a text of n bytes.
func (p pattern) price(n int) uint64 { return 1 + uint64(n)*uint64(p.insts)/regexUnit }

// precompile compiles a constant pattern once, with the plan.
func (c *guardedCall) precompile() error {
	lit, ok := c.args[1].(interpreter.InterpretableConst)
	if !ok {
		return nil
	}
	s, ok := lit.Value().(types.String)
	if !ok {
		return nil
	}
	p, err := compilePattern(string(s))
	if err != nil {
		return fmt.Errorf("matches: %w", err)
	}
	c.guarded = guarded{
		price: func(a []ref.Val) uint64 { return p.price(size2(a[0])) },
		run: func(a []ref.Val) ref.Val {
			text, ok := a[0].(types.String)
			if !ok {
				return noOverload()
			}
			return types.Bool(p.re.MatchString(string(text)))
		},
	}
	return nil
}

// priceMatches is the price with a pattern that is not known before: at least
// compiling it, at most matching with the largest one allowed for its length.
func priceMatches(a []ref.Val) uint64 {
	s, ok := a[1].(types.String)
	if !ok || len(s) > maxPattern {
		return 1
	}
	p, err := compilePattern(string(s))
	if err != nil {
		return 1 + uint64(len(s))
	}
	return p.price(size2(a[0])) + uint64(p.insts) + uint64(len(s))
}

func runMatches(a []ref.Val) ref.Val {
	text, ok := a[0].(types.String)
	s, ok2 := a[1].(types.String)
	if !ok || !ok2 {
		return noOverload()
	}
	p, err := compilePattern(string(s))
	if err != nil {
		return types.NewErr("matches: %v", err)
	}
	return types.Bool(p.re.MatchString(string(text)))
}
