// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/base64"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/roux-engine/roux/internal/jsonx"
)

// maxPrecision is how many digits format may write after the decimal point.
const maxPrecision = 100

// numberText is the maximum length of a number as text with that precision, in bytes.
const numberText = 420

// stringLength returns an upper bound of the length of v as text, including quotes and
// escapes. It stops counting beyond most. It returns an error if v contains a large value.
func stringLength(v ref.Val, most int) (int, ref.Val) {
	switch x := v.(type) {
	case types.String:
		return 2 + 2*len(x), nil
	case types.Bytes:
		return 2 + 2*len(x), nil
	case types.Bool, types.Null:
		return 5, nil
	case types.Int, types.Uint, types.Double, types.Timestamp, types.Duration:
		return numberText, nil
	case large:
		return 0, x.contentError()
	case *types.Err:
		return 0, x
	case traits.Mapper:
		n := 2
		for it := x.Iterator(); it.HasNext() == types.True && n <= most; {
			k := it.Next()
			key, wrong := stringLength(k, most)
			if wrong != nil {
				return 0, wrong
			}
			value, wrong := stringLength(x.Get(k), most-n)
			if wrong != nil {
				return 0, wrong
			}
			n += 4 + key + value
		}
		return n, nil
	case traits.Lister:
		n := 2
		for i, end := 0, size(x); i < end && n <= most; i++ {
			element, wrong := stringLength(x.Get(types.Int(i)), most-n)
			if wrong != nil {
				return 0, wrong
			}
			n += 2 + element
		}
		return n, nil
	}
	return 64, nil
}

// maxStringLength bounds stringLength of a value that is converted to text.
const maxStringLength = 4 * maxString

func costString(a []ref.Val) uint64 {
	n := uint64(1)
	for _, v := range a {
		w, _ := stringLength(v, maxStringLength)
		n += uint64(min(w, maxStringLength)) / (4 * writeUnit)
	}
	return n
}

// checkStringSize refuses values that are too large to be converted to text.
func checkStringSize(a []ref.Val) ref.Val {
	n := 0
	for _, v := range a {
		w, wrong := stringLength(v, maxStringLength)
		if wrong != nil {
			return wrong
		}
		if n += w; n > maxStringLength {
			return types.NewErr(tooLarge+"the text of a value; expressions make at most %d bytes", maxString)
		}
	}
	return nil
}

func checkTextSize(v ref.Val) ref.Val {
	if s, ok := v.(types.String); ok && len(s) > maxString {
		return tooLong(len(s))
	}
	return v
}

// library returns the library's own implementation of an overload.
func library(function, overload string) func(args []ref.Val) ref.Val {
	find := sync.OnceValue(func() *functions.Overload {
		all, err := base().Functions()[function].Bindings()
		if err != nil {
			panic(err) // the declarations are constants, so every test would fail
		}
		return all[slices.IndexFunc(all, func(o *functions.Overload) bool { return o.Operator == overload })]
	})
	return func(a []ref.Val) ref.Val {
		switch f := find(); {
		case len(a) == 1 && f.Unary != nil:
			return f.Unary(a[0])
		case len(a) == 2 && f.Binary != nil:
			return f.Binary(a[0], a[1])
		case f.Function != nil:
			return f.Function(a...)
		}
		return noOverload()
	}
}

var (
	libraryFormat  = library("format", "string_format")
	libraryQuote   = library("strings.quote", "strings_quote")
	libraryReverse = library("reverse", "string_reverse")
	insertEntry    = library(mapInsert, "@mapInsert_map_key_value")
	insertMap      = library(mapInsert, "@mapInsert_map_map")
)

func costFormat(a []ref.Val) uint64 {
	if _, ok := a[0].(types.Timestamp); ok {
		return costText(a[1:])
	}
	return costString(a)
}

// runFormat is text.format(list) and timestamp.format(text).
func runFormat(a []ref.Val) ref.Val {
	switch x := a[0].(type) {
	case types.String:
		if _, ok := a[1].(traits.Lister); !ok {
			return noOverload()
		}
		if wrong := checkStringSize(a); wrong != nil {
			return wrong
		}
		return checkTextSize(libraryFormat(a))
	case types.Timestamp:
		return formatTime(x, a[1])
	}
	return noOverload()
}

func runQuote(a []ref.Val) ref.Val {
	if _, ok := a[0].(types.String); !ok {
		return noOverload()
	}
	return checkTextSize(libraryQuote(a))
}

func costReverse(a []ref.Val) uint64 {
	if s, ok := a[0].(types.String); ok {
		return 1 + uint64(len(s)/writeUnit)
	}
	return costList(a)
}

func runReverse(a []ref.Val) ref.Val {
	if _, ok := a[0].(types.String); ok {
		return libraryReverse(a)
	}
	vals, ok := elements(a[0])
	if !ok {
		return noOverload()
	}
	slices.Reverse(vals)
	return listOf(vals)
}

// runToJSON returns a value as it would be recorded: integers with all their digits, keys
// of objects sorted.
func runToJSON(a []ref.Val) ref.Val {
	if wrong := checkStringSize(a); wrong != nil {
		return wrong
	}
	v, err := toJSON(a[0], maxStringLength)
	if err != nil {
		return types.WrapErr(err)
	}
	raw, err := jsonx.Canonical(v)
	if err != nil {
		return types.WrapErr(err)
	}
	return checkTextSize(types.String(raw))
}

// jsonLimits bound the text that fromJson reads.
var jsonLimits = jsonx.Limits{Bytes: MaxInput, Depth: 500}

func parseJSON(a []ref.Val) (ref.Val, error) {
	s, ok := a[0].(types.String)
	if !ok {
		return noOverload(), nil
	}
	v, err := jsonx.Decode([]byte(s), jsonLimits)
	if err != nil {
		return nil, err
	}
	// Once recorded, it would be read as a reference to a file.
	if hasReservedName(v) {
		return nil, reservedKey()
	}
	return base().CELTypeAdapter().NativeToValue(v), nil
}

// hasReservedName reports whether a value contains an object that would be read as a
// reference to a file.
func hasReservedName(v any) bool {
	switch x := v.(type) {
	case []any:
		return slices.ContainsFunc(x, hasReservedName)
	case map[string]any:
		for k, e := range x {
			if k == jsonx.LargeName || hasReservedName(e) {
				return true
			}
		}
	}
	return false
}

func runFromJSON(a []ref.Val) ref.Val {
	v, err := parseJSON(a)
	if err != nil {
		return types.NewErr("fromJson: %v", err)
	}
	return v
}

// runParseJSON is fromJson that returns an optional, which is empty if the text is not
// JSON.
func runParseJSON(a []ref.Val) ref.Val {
	v, err := parseJSON(a)
	if err != nil {
		return types.OptionalNone
	}
	if types.IsError(v) {
		return v
	}
	return types.OptionalOf(v)
}

func runDecodeURL(a []ref.Val) ref.Val {
	s, ok := texts(a)
	if !ok {
		return noOverload()
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(s[0], "="))
	if err != nil {
		return types.NewErr("base64.decodeUrl: %v", err)
	}
	return types.Bytes(b)
}

func runEncodeURL(a []ref.Val) ref.Val {
	b, ok := a[0].(types.Bytes)
	if !ok {
		return noOverload()
	}
	return checkTextSize(types.String(base64.URLEncoding.EncodeToString(b)))
}
