// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"math"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A filter is a function after a | in a placeholder. Its arguments are the value before
// it and those in parentheses, all JSON values.
type filter struct {
	min, max int
	run      func(v any, args []any) (any, error)
}

type filterCall struct {
	name string
	filter
	args []*celExpr
}

func (f filter) arity() string {
	switch {
	case f.max == 0:
		return "no argument"
	case f.min == f.max:
		return fmt.Sprintf("%d argument(s)", f.min)
	}
	return fmt.Sprintf("%d to %d arguments", f.min, f.max)
}

var filterNames = []string{"default", "first", "join", "last", "length", "lower", "replace", "round", "tojson", "trim", "upper"}

// filters is the closed list of R11.
var filters = map[string]filter{
	"default": {1, 2, filterDefault},
	"first":   {0, 0, func(v any, _ []any) (any, error) { return firstOrLast(v, "first") }},
	"last":    {0, 0, func(v any, _ []any) (any, error) { return firstOrLast(v, "last") }},
	"join":    {0, 1, filterJoin},
	"length":  {0, 0, filterLength},
	"lower":   {0, 0, textFilter("lower", strings.ToLower)},
	"upper":   {0, 0, textFilter("upper", strings.ToUpper)},
	"trim":    {0, 0, textFilter("trim", strings.TrimSpace)},
	"replace": {2, 2, filterReplace},
	"round":   {0, 1, filterRound},
	"tojson":  {0, 0, filterToJSON},
}

func wrongType(name, want string, v any) error {
	if l, ok := v.(jsonx.Large); ok {
		return &contentError{l}
	}
	return fault.New(fault.TemplateError, "the filter %s wants %s, got %s", name, want, jsonx.TypeName(v))
}

// filterDefault replaces an empty value by the first argument if the second one is true.
// pipeline.eval replaces an absent value.
func filterDefault(v any, args []any) (any, error) {
	if len(args) == 2 && truthy(args[1]) && !truthy(v) {
		return args[0], nil
	}
	return v, nil
}

func textFilter(name string, f func(string) string) func(any, []any) (any, error) {
	return func(v any, _ []any) (any, error) {
		s, ok := v.(string)
		if !ok {
			return nil, wrongType(name, "a text", v)
		}
		return limitText(f(s))
	}
}

// limitText refuses computed text that is larger than a result may be.
func limitText(s string) (any, error) {
	if len(s) > MaxResult {
		return nil, resultTooLarge(MaxResult)
	}
	return s, nil
}

func firstOrLast(v any, name string) (any, error) {
	switch x := v.(type) {
	case []any:
		if len(x) == 0 {
			break
		}
		if name == "first" {
			return x[0], nil
		}
		return x[len(x)-1], nil
	case string:
		letters := []rune(x)
		if len(letters) == 0 {
			break
		}
		if name == "first" {
			return string(letters[0]), nil
		}
		return string(letters[len(letters)-1]), nil
	default:
		return nil, wrongType(name, "a list or a text", v)
	}
	return nil, &fault.Error{Code: fault.TemplateError, Msg: "the filter " + name + " of something empty", Err: errMissing}
}

func filterJoin(v any, args []any) (any, error) {
	l, ok := v.([]any)
	if !ok {
		return nil, wrongType("join", "a list", v)
	}
	sep := ""
	if len(args) == 1 {
		if sep, ok = args[0].(string); !ok {
			return nil, wrongType("join", "a text as separator", args[0])
		}
	}
	var b strings.Builder
	for i, e := range l {
		s, err := Text(e, MaxResult)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteString(sep)
		}
		if b.Len()+len(s)+len(sep) > MaxResult+len(sep) {
			return nil, resultTooLarge(MaxResult)
		}
		b.WriteString(s)
	}
	return limitText(b.String())
}

func filterLength(v any, _ []any) (any, error) {
	switch x := v.(type) {
	case string:
		return int64(runes(x)), nil
	case []any:
		return int64(len(x)), nil
	case map[string]any:
		return int64(len(x)), nil
	case jsonx.Large:
		return x.Size, nil
	}
	return nil, wrongType("length", "a text, a list or a map", v)
}

func filterReplace(v any, args []any) (any, error) {
	for _, a := range append([]any{v}, args...) {
		if l, ok := a.(jsonx.Large); ok {
			return nil, &contentError{l}
		}
	}
	s, ok := v.(string)
	old, ok1 := args[0].(string)
	new, ok2 := args[1].(string)
	if !ok || !ok1 || !ok2 {
		return nil, fault.New(fault.TemplateError, "the filter replace wants texts: {{ text | replace('old', 'new') }}")
	}
	if replaced([]string{s, old, new}, -1) > MaxResult {
		return nil, resultTooLarge(MaxResult)
	}
	return strings.ReplaceAll(s, old, new), nil
}

// filterRound rounds half away from zero. Without digits the result is an integer if it
// fits one.
func filterRound(v any, args []any) (any, error) {
	digits := int64(0)
	if len(args) == 1 {
		d, ok := args[0].(int64)
		if !ok || d < 0 || d > 15 {
			return nil, fault.New(fault.TemplateError, "the filter round wants 0 to 15 digits")
		}
		digits = d
	}
	switch x := v.(type) {
	case int64:
		return x, nil
	case float64:
		if digits == 0 {
			f := math.Round(x)
			if math.Abs(f) < 1<<63 {
				return int64(f), nil
			}
			return f, nil
		}
		scale := math.Pow10(int(digits))
		if f := math.Round(x*scale) / scale; finite(f) {
			return f, nil
		}
		return x, nil
	}
	return nil, wrongType("round", "a number", v)
}

func filterToJSON(v any, _ []any) (any, error) {
	if err := refuseLarge(v); err != nil {
		return nil, err
	}
	b, ok := jsonx.AppendLimited(nil, v, MaxResult)
	if !ok {
		return nil, resultTooLarge(MaxResult)
	}
	return string(b), nil
}
