// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxNesting bounds the nesting of a value, which could contain itself.
const maxNesting = 1000

// Canonical returns v in canonical form, which is hashed and compared: RFC 8785 (no white
// space, names in UTF-16 order, minimal escapes, shortest numbers) with one difference.
// RFC 8785 has only doubles; here an int64 is written in full, and a float64 beyond 2^53
// always with an exponent, so that [Decode] returns every number with its original value.
//
// Besides the value types it accepts int, [Large], [Secret] and json.RawMessage. NaN, infinities,
// invalid UTF-8 and other types are errors.
func Canonical(v any) ([]byte, error) { return AppendCanonical(make([]byte, 0, 64), v) }

// CanonicalRaw converts JSON text to canonical form. The caller has bounded its length;
// the depth is bounded as in [Decode].
func CanonicalRaw(raw []byte) ([]byte, error) {
	v, err := Decode(raw, Limits{Bytes: len(raw) + 1, Tokens: len(raw) + 1})
	if err != nil {
		return nil, err
	}
	return AppendCanonical(make([]byte, 0, len(raw)), v)
}

// AppendCanonical appends what [Canonical] returns to dst. On error the content
// beyond dst is meaningless.
func AppendCanonical(dst []byte, v any) ([]byte, error) { return appendValue(dst, v, 0) }

func appendValue(dst []byte, v any, depth int) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case string:
		return appendString(dst, v)
	case float64:
		return appendFloat(dst, v)
	case []any:
		return appendList(dst, v, depth)
	case map[string]any:
		return appendObject(dst, v, depth)
	case int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case Large:
		return v.Append(dst), nil
	case Secret:
		return v.Append(dst)
	case json.RawMessage:
		raw, err := CanonicalRaw(v)
		if err != nil {
			return nil, err
		}
		return append(dst, raw...), nil
	default:
		return nil, fmt.Errorf("canonical JSON: a value of type %T is no JSON value", v)
	}
}

func appendList(dst []byte, list []any, depth int) ([]byte, error) {
	if depth >= maxNesting {
		return nil, fmt.Errorf("canonical JSON: the value is nested more than %d deep", maxNesting)
	}
	dst = append(dst, '[')
	var err error
	for i, item := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendValue(dst, item, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func appendObject(dst []byte, m map[string]any, depth int) ([]byte, error) {
	if depth >= maxNesting {
		return nil, fmt.Errorf("canonical JSON: the value is nested more than %d deep", maxNesting)
	}
	var few [16]string // avoids an allocation for most objects
	names := few[:0]
	for name := range m {
		names = append(names, name)
	}
	slices.SortFunc(names, CompareNames)
	dst = append(dst, '{')
	var err error
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendString(dst, name); err != nil {
			return nil, err
		}
		dst = append(dst, ':')
		if dst, err = appendValue(dst, m[name], depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func appendString(dst []byte, s string) ([]byte, error) {
	start := len(dst)
	dst = append(slices.Grow(dst, len(s)+2), '"')
	dst = append(dst, s...)
	i := start + 1
	for i += unescapedPrefix(dst[i:]); i < len(dst); i++ {
		if c := dst[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return quote(dst[:start], s)
		}
	}
	return append(dst, '"'), nil
}

func quote(dst []byte, s string) ([]byte, error) {
	dst, err := jsontext.AppendQuote(dst, s)
	if err != nil {
		return nil, fmt.Errorf("canonical JSON: the string %q is not valid UTF-8", shorten(s))
	}
	return dst, nil
}

func appendFloat(dst []byte, f float64) ([]byte, error) {
	switch abs := math.Abs(f); {
	case f == 0: // also -0
		return append(dst, '0'), nil
	case math.IsNaN(f) || math.IsInf(f, 0):
		return nil, fmt.Errorf("canonical JSON: %v is no JSON number", f)
	case abs > 1<<53 && abs < 1e21:
		// Digits alone would be read as an integer, with another value or an error.
		return strconv.AppendFloat(dst, f, 'e', -1, 64), nil
	default:
		return jsontext.AppendFloat(dst, f, 64), nil
	}
}

// CompareNames compares names as in RFC 8785, by UTF-16 code units. That is the order of
// UTF-8 bytes except for characters beyond U+FFFF, whose surrogates sort before U+E000 to
// U+FFFF.
func CompareNames(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if x, y := a[i], b[i]; x != y {
			if x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0) {
				return cmp.Compare(y, x)
			}
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(len(a), len(b))
}
