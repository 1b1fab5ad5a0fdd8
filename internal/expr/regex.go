// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/roux-engine/roux/internal/pattern"
)

// regexUnit is how many steps of a match are one unit of cost. A match takes at most
// instructions × bytes steps.
const regexUnit = 100

// matchCost is the cost of matching a text of n bytes.
func matchCost(p pattern.Pattern, n int) uint64 { return 1 + uint64(n)*uint64(p.Insts)/regexUnit }

// precompile compiles a constant pattern once, when the program is compiled.
func (c *implementedCall) precompile() error {
	lit, ok := c.args[1].(interpreter.InterpretableConst)
	if !ok {
		return nil
	}
	s, ok := lit.Value().(types.String)
	if !ok {
		return nil
	}
	p, err := pattern.Compile(string(s))
	if err != nil {
		return fmt.Errorf("matches: %w", err)
	}
	c.implementation = implementation{
		cost: func(a []ref.Val) uint64 { return matchCost(p, textSize(a[0])) },
		run: func(a []ref.Val) ref.Val {
			text, ok := a[0].(types.String)
			if !ok {
				return noOverload()
			}
			return types.Bool(p.MatchString(string(text)))
		},
	}
	return nil
}

// costMatches is the cost of compiling a pattern that is not constant and matching with it.
func costMatches(a []ref.Val) uint64 {
	s, ok := a[1].(types.String)
	if !ok || len(s) > pattern.MaxBytes {
		return 1
	}
	p, err := pattern.Compile(string(s))
	if err != nil {
		return 1 + uint64(len(s))
	}
	return matchCost(p, textSize(a[0])) + uint64(p.Insts) + uint64(len(s))
}

func runMatches(a []ref.Val) ref.Val {
	text, ok := a[0].(types.String)
	s, ok2 := a[1].(types.String)
	if !ok || !ok2 {
		return noOverload()
	}
	p, err := pattern.Compile(string(s))
	if err != nil {
		return types.NewErr("matches: %v", err)
	}
	return types.Bool(p.MatchString(string(text)))
}
