// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/jsonx"
)

// text is how a value appears in a template: a string as it is, everything else
// as JSON, within a limit of bytes.
func text(v any, limit int) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	if err := whole(v); err != nil {
		return "", err
	}
	b, ok := appendJSON(nil, v, limit)
	if !ok {
		return "", resultTooLarge(MaxResult)
	}
	return string(b), nil
}

// whole refuses a value that holds a large one: its text is not here.
func whole(v any) error {
	switch x := v.(type) {
	case jsonx.Large:
		return &reached{x}
	case []any:
		for _, e := range x {
			if err := whole(e); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if err := whole(x[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendJSON writes compact JSON with sorted keys; false when it is longer than
// the limit.
func appendJSON(b []byte, v any, limit int) ([]byte, bool) {
	switch x := v.(type) {
	case nil:
		b = append(b, "null"...)
	case bool:
		b = strconv.AppendBool(b, x)
	case int64:
		b = strconv.AppendInt(b, x, 10)
	case float64:
		b = formatFloat(b, x)
	case string:
		if len(b)+len(x) > limit {
			return b, false
		}
		b = appendString(b, x)
	case []any:
		b = append(b, '[')
		for i, e := range x {
			if i > 0 {
				b = append(b, ',')
			}
			var ok bool
			if b, ok = appendJSON(b, e, limit); !ok {
				return b, false
			}
		}
		b = append(b, ']')
	case map[string]any:
		b = append(b, '{')
		for i, k := range slices.Sorted(maps.Keys(x)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, k), ':')
			var ok bool
			if b, ok = appendJSON(b, x[k], limit); !ok {
				return b, false
			}
		}
		b = append(b, '}')
	}
	return b, len(b) <= limit
}

const hexDigits = "0123456789abcdef"

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, w := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += w
			continue
		}
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '\b':
			b = append(b, '\\', 'b')
		case c == '\f':
			b = append(b, '\\', 'f')
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}
