// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// DecodeLenient decodes one JSON value whose length the caller has bounded. Unlike
// [Decode] it accepts duplicate names (the last one counts) and integers beyond 64
// bits, which become a float64.
func DecodeLenient(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errTrailing
	}
	return convertNumbers(v)
}

var errTrailing = errors.New("something follows the JSON value")

// convertNumbers replaces each json.Number by an int64 where the text is an integer
// that fits, else by a float64. A number that fits neither is an error, because
// arithmetic on a million digits could stop a server.
func convertNumbers(v any) (any, error) {
	var err error
	switch x := v.(type) {
	case json.Number:
		if i, err := strconv.ParseInt(x.String(), 10, 64); err == nil {
			return i, nil
		}
		f, err := x.Float64()
		if err != nil {
			return nil, fmt.Errorf("the number %q is too large", shorten(x.String()))
		}
		return f, nil
	case []any:
		for i := range x {
			if x[i], err = convertNumbers(x[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range x {
			if x[k], err = convertNumbers(x[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// TypeName returns what messages call the type of a value, with its article.
func TypeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case int64, float64:
		return "a number"
	case string:
		return "a text"
	case []any:
		return "a list"
	case map[string]any:
		return "a map"
	case Large:
		return "a large value in a file"
	case Secret:
		return "a secret"
	}
	return "a value of another type"
}

// HasLarge reports whether v is or contains a [Large].
func HasLarge(v any) bool {
	switch x := v.(type) {
	case Large:
		return true
	case []any:
		return slices.ContainsFunc(x, HasLarge)
	case map[string]any:
		for _, e := range x {
			if HasLarge(e) {
				return true
			}
		}
	}
	return false
}

// HasReserved reports whether an object in v uses the reserved name. A [Large] is no object.
func HasReserved(v any) bool {
	switch x := v.(type) {
	case []any:
		return slices.ContainsFunc(x, HasReserved)
	case map[string]any:
		for name, e := range x {
			if name == LargeName || HasReserved(e) {
				return true
			}
		}
	}
	return false
}

// PartBytes is how many bytes of text [Parts] counts as one part.
const PartBytes = 64

// Parts counts the values inside v, and their text by [PartBytes]: a measure of the
// work of reading v. It stops soon after most.
func Parts(v any, most int) int {
	n := 1
	switch x := v.(type) {
	case string:
		return 1 + len(x)/PartBytes
	case []any:
		for _, e := range x {
			if n += Parts(e, most-n); n >= most {
				return n
			}
		}
	case map[string]any:
		for k, e := range x {
			if n += 1 + len(k)/PartBytes + Parts(e, most-n); n >= most {
				return n
			}
		}
	}
	return n
}

// AppendLimited appends v as compact JSON with sorted names, for people: unlike
// [Canonical] it writes numbers as JavaScript does and accepts invalid UTF-8. ok is
// false when dst would become longer than limit; the content of dst is then meaningless.
func AppendLimited(dst []byte, v any, limit int) (out []byte, ok bool) {
	switch x := v.(type) {
	case nil:
		dst = append(dst, "null"...)
	case bool:
		dst = strconv.AppendBool(dst, x)
	case int64:
		dst = strconv.AppendInt(dst, x, 10)
	case float64:
		dst = AppendFloat(dst, x)
	case string:
		if len(dst)+len(x) > limit {
			return dst, false
		}
		dst = appendEscaped(dst, x)
	case []any:
		dst = append(dst, '[')
		for i, e := range x {
			if i > 0 {
				dst = append(dst, ',')
			}
			var ok bool
			if dst, ok = AppendLimited(dst, e, limit); !ok {
				return dst, false
			}
		}
		dst = append(dst, ']')
	case map[string]any:
		dst = append(dst, '{')
		for i, k := range slices.Sorted(maps.Keys(x)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendEscaped(dst, k), ':')
			var ok bool
			if dst, ok = AppendLimited(dst, x[k], limit); !ok {
				return dst, false
			}
		}
		dst = append(dst, '}')
	}
	return dst, len(dst) <= limit
}

const hexDigits = "0123456789abcdef"

func appendEscaped(b []byte, s string) []byte {
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

// AppendFloat appends a float64 as JavaScript writes it: digits up to 1e21, an
// exponent beyond.
func AppendFloat(b []byte, f float64) []byte {
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	b = strconv.AppendFloat(b, f, format, -1, 64)
	if format == 'e' {
		// e-09 is written e-9.
		if n := len(b); n >= 4 && b[n-4] == 'e' && b[n-3] == '-' && b[n-2] == '0' {
			b[n-2] = b[n-1]
			b = b[:n-1]
		}
	}
	return b
}
