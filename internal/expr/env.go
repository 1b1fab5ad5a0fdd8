// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"math"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
)

// base is the one environment of the process: standard CEL, its extensions, and our
// own functions. It declares no variable.
var base = sync.OnceValue(func() *cel.Env {
	reg, err := types.NewRegistry()
	if err != nil {
		panic(err) // no input reaches this
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
		// Not cel.RegexProgramSizeLimit: it would replace our node for matches,
		// which refuses by length before it compiles (regex.go).
		cel.OptionalTypes(),
		// Later versions of these bring costs of their own, which would count beside
		// ours, and YAML, whose aliases a caller cannot bound. What else they bring
		// is among our own functions.
		ext.Strings(ext.StringsVersion(4), ext.StringsMaxPrecision(maxPrecision)),
		ext.Lists(ext.ListsVersion(2), ext.ListsMaxRangeSize(maxElements)),
		ext.Encoders(ext.EncodersVersion(0)),
		ext.Math(),
		ext.Sets(),
		ext.TwoVarComprehensions(),
		ext.Bindings(),
		sizeFunction(),
		ownFunctions(),
		arithmetic("multiply", multiplyInt, func(a, b float64) float64 { return a * b }),
		arithmetic("add", addInt, func(a, b float64) float64 { return a + b }),
		arithmetic("subtract", subtractInt, func(a, b float64) float64 { return a - b }),
		arithmetic("divide", divideInt, func(a, b float64) float64 { return a / b }),
	)
	if err != nil {
		panic(err) // the options are constants: a test would have seen it
	}
	return env
}

// arithmetic declares a function of two numbers (R11). Unlike the operators it
// promotes an integer that meets a double; two integers stay exact.
func arithmetic(name string, ints func(a, b types.Int) ref.Val, doubles func(a, b float64) float64) cel.EnvOption {
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

func multiplyInt(a, b types.Int) ref.Val { return a.Multiply(b) }
func addInt(a, b types.Int) ref.Val      { return a.Add(b) }
func subtractInt(a, b types.Int) ref.Val { return a.Subtract(b) }
func divideInt(a, b types.Int) ref.Val   { return a.Divide(b) }

// finite reports whether JSON can carry f.
func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
