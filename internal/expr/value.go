// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/base64"
	"errors"
	"math"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// tooLarge is the prefix of the messages of errors that become VALUE_TOO_LARGE.
const tooLarge = "too large: "

func inputTooLarge(r *Ref) error {
	name := strings.Join(append([]string{r.Name}, r.Path...), ".")
	return fault.New(fault.ValueTooLarge, "%s is larger than the %d bytes that an expression may read; pass it as a file", name, MaxInput)
}

func resultTooLarge(limit int) error {
	return fault.New(fault.ValueTooLarge, "the result is larger than %d bytes; let an action compute it", limit)
}

// measure returns the size of a JSON value in bytes. It is never more than the length of
// its text, so that a value that fits as text is never refused. It stops soon after the
// limit is exceeded.
func measure(v any, limit int) int {
	switch x := v.(type) {
	case string:
		return len(x) + 2
	case nil, bool:
		return 4
	case int64:
		return digits(x)
	case jsonx.Large:
		return largeForm
	case jsonx.Secret:
		return secretForm(x)
	case []any:
		n := 1
		for _, e := range x {
			if n += 1 + measure(e, limit-n); n > limit {
				return n
			}
		}
		return max(n, 2)
	case map[string]any:
		n := 1
		for k, e := range x {
			if n += 4 + len(k) + measure(e, limit-n); n > limit {
				return n
			}
		}
		return max(n, 2)
	}
	return 1
}

// largeForm is the maximum size of a reference as text.
const largeForm = 130

func digits(i int64) int {
	n := 1
	if i < 0 {
		n = 2
	}
	for i /= 10; i != 0; i /= 10 {
		n++
	}
	return n
}

// toJSON converts a result within a limit of bytes.
func toJSON(v ref.Val, limit int) (any, error) {
	c := converter{left: limit}
	out, err := c.convert(v)
	if errors.Is(err, errSize) {
		return nil, resultTooLarge(limit)
	}
	return out, err
}

var errSize = fault.New(fault.ValueTooLarge, "the value is too large")

// A converter converts CEL values into JSON values within a budget of bytes, because a
// small expression can describe an exponentially large value by repeatedly using the same
// part twice.
type converter struct {
	left  int
	depth int
}

func (c *converter) take(n int) bool {
	c.left -= n
	return c.left >= 0
}

func (c *converter) convert(v ref.Val) (any, error) {
	switch x := v.(type) {
	case types.String:
		if !c.take(len(x)) {
			return nil, errSize
		}
		return string(x), nil
	case types.Bool:
		c.take(4)
		return bool(x), nil
	case types.Int:
		c.take(2)
		return int64(x), nil
	case types.Uint:
		c.take(2)
		if uint64(x) > math.MaxInt64 {
			return nil, fault.New(fault.TemplateError, "%d does not fit into a 64-bit integer", uint64(x))
		}
		return int64(x), nil
	case types.Double:
		c.take(2)
		if !finite(float64(x)) {
			return nil, fault.New(fault.TemplateError, "the result is %v, which JSON cannot express", float64(x))
		}
		return float64(x), nil
	case types.Null:
		c.take(4)
		return nil, nil
	case types.Bytes:
		if !c.take(len(x) / 3 * 4) {
			return nil, errSize
		}
		return base64.StdEncoding.EncodeToString(x), nil
	case types.Timestamp:
		c.take(20)
		return x.Time.UTC().Format(time.RFC3339Nano), nil
	case types.Duration:
		c.take(4)
		return x.Duration.String(), nil
	case large:
		if !c.take(largeForm) {
			return nil, errSize
		}
		return x.Large, nil
	case *types.Type:
		return x.TypeName(), nil
	case *types.Optional:
		if !x.HasValue() {
			return nil, nil
		}
		return c.convert(x.GetValue())
	case *types.Err:
		return nil, evalError(x)
	case absent:
		return nil, evalError(x.undefined().(*types.Err))
	}
	if c.left < 0 {
		return nil, errSize
	}
	// Values that came from variables are returned as they are, without a copy.
	switch x := v.(type) {
	case *orderedMap:
		if x.src != nil {
			return c.native(x.src)
		}
	case *nativeList:
		return c.native(x.src)
	}
	if c.depth++; c.depth > maxDepth {
		return nil, fault.New(fault.TemplateError, "the result is nested deeper than %d levels", maxDepth)
	}
	defer func() { c.depth-- }()
	switch x := v.(type) {
	case traits.Mapper:
		return c.convertMap(x)
	case traits.Lister:
		return c.convertList(x)
	}
	return nil, fault.New(fault.TemplateError, "the result is of type %s, which JSON cannot express", v.Type().TypeName())
}

func (c *converter) native(v any) (any, error) {
	if !c.take(measure(v, c.left)) {
		return nil, errSize
	}
	return withoutBlanks(v), nil
}

func (c *converter) convertMap(m traits.Mapper) (any, error) {
	n, _ := m.Size().(types.Int)
	if !c.take(2 + 4*int(n)) {
		return nil, errSize
	}
	out := make(map[string]any, int(n))
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		k, ok := key.(types.String)
		if !ok {
			return nil, fault.New(fault.TemplateError, "a map of the result has a key of type %s: want strings, for example string(key)", key.Type().TypeName())
		}
		if k == jsonx.LargeName {
			return nil, reservedKey()
		}
		if !c.take(len(k)) {
			return nil, errSize
		}
		v, err := c.convert(m.Get(key))
		if err != nil {
			return nil, err
		}
		out[string(k)] = v
	}
	return out, nil
}

// reservedKey returns the error of a map that would be read as a reference to a file, which
// only the engine may create.
func reservedKey() error {
	return fault.New(fault.TemplateError, "the key %q is reserved: give it another name", jsonx.LargeName)
}

func (c *converter) convertList(l traits.Lister) (any, error) {
	n, _ := l.Size().(types.Int)
	if !c.take(2 + int(n)) {
		return nil, errSize
	}
	out := make([]any, 0, int(n))
	for i := types.Int(0); i < n; i++ {
		v, err := c.convert(l.Get(i))
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}
