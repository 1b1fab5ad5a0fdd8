// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
)

// base is the CEL environment of all expressions: standard CEL, its extensions, and our
// own functions. It declares no variables.
var base = sync.OnceValue(func() *cel.Env {
	reg, err := types.NewRegistry()
	if err != nil {
		panic(err) // does not depend on input
	}
	return newEnv(&registry{Registry: reg})
})

func newEnv(reg *registry) *cel.Env {
	env, err := cel.NewEnv(
		cel.CustomTypeAdapter(reg),
		cel.CustomTypeProvider(reg),
		cel.CrossTypeNumericComparisons(true),
		cel.EnableIdentifierEscapeSyntax(),
		cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(MaxSource),
		cel.ParserRecursionLimit(maxDepth),
		cel.ParserErrorRecoveryLimit(4),
		cel.ExpressionNodeLimit(maxNodes),
		// cel.RegexProgramSizeLimit would replace our node for matches, which checks the
		// length before it compiles (regex.go).
		cel.OptionalTypes(),
		// Later versions of these extensions add costs of their own, which would count in
		// addition to ours, and YAML, whose aliases cannot be bounded. Their other
		// functions are among our own.
		ext.Strings(ext.StringsVersion(4), ext.StringsMaxPrecision(maxPrecision)),
		ext.Lists(ext.ListsVersion(2), ext.ListsMaxRangeSize(maxElements)),
		ext.Encoders(ext.EncodersVersion(0)),
		ext.Math(),
		ext.Sets(),
		ext.TwoVarComprehensions(),
		ext.Bindings(),
		sizeFunction(),
		ownFunctions(),
		arithmetic("multiply", types.Int.Multiply, func(a, b float64) float64 { return a * b }),
		arithmetic("add", types.Int.Add, func(a, b float64) float64 { return a + b }),
		arithmetic("subtract", types.Int.Subtract, func(a, b float64) float64 { return a - b }),
		arithmetic("divide", types.Int.Divide, func(a, b float64) float64 { return a / b }),
	)
	if err != nil {
		panic(err) // the options are constants, so every test would fail
	}
	return env
}

// named are environments by the names that they declare: to make one takes a third of the time to compile
// a short expression. Names come from recipes, so at most 1,000 are kept.
var (
	named      sync.Map // of *cel.Env
	namedCount atomic.Int64
)

// withNames returns the base environment with variables of any type.
func withNames(names []string) (*cel.Env, error) {
	key := strings.Join(names, " ")
	if known, ok := named.Load(key); ok {
		return known.(*cel.Env), nil
	}
	opts := make([]cel.EnvOption, len(names))
	for i, n := range names {
		opts[i] = cel.Variable(n, cel.DynType)
	}
	env, err := base().Extend(opts...)
	if err == nil && namedCount.Add(1) <= 1_000 {
		named.Store(key, env)
	}
	return env, err
}

// arithmetic declares a function of two numbers (R11). Unlike the operators it converts
// an integer to a double when the other argument is a double; two integers stay exact.
func arithmetic(name string, ints func(a types.Int, b ref.Val) ref.Val, doubles func(a, b float64) float64) cel.EnvOption {
	op := func(a, b ref.Val) ref.Val {
		x, xInt := a.(types.Int)
		y, yInt := b.(types.Int)
		if xInt && yInt {
			return ints(x, y)
		}
		f, ok := asDouble(a)
		g, ok2 := asDouble(b)
		if !ok || !ok2 {
			return types.NewErr("%s: want two numbers, got %s and %s", name, a.Type().TypeName(), b.Type().TypeName())
		}
		return types.Double(doubles(f, g))
	}
	overload := func(id string, a, b, result *cel.Type) cel.FunctionOpt {
		return cel.Overload(name+"_"+id, []*cel.Type{a, b}, result)
	}
	return cel.Function(name,
		overload("int_int", cel.IntType, cel.IntType, cel.IntType),
		overload("double_double", cel.DoubleType, cel.DoubleType, cel.DoubleType),
		overload("int_double", cel.IntType, cel.DoubleType, cel.DoubleType),
		overload("double_int", cel.DoubleType, cel.IntType, cel.DoubleType),
		cel.SingletonBinaryBinding(op),
	)
}

func asDouble(v ref.Val) (float64, bool) {
	switch n := v.(type) {
	case types.Int:
		return float64(n), true
	case types.Double:
		return float64(n), true
	}
	return 0, false
}

// finite reports whether JSON can represent f.
func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
