// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"bytes"
	"strconv"
	"strings"
)

// A Large is a reference to a text or a list that is too large to be part of a value and
// is in a file instead (design section 7). In JSON it is
//
//	{"$roux":"ref","bytes":3145730,"hash":"sha256_…","size":3145728,"type":"string"}
//
// with "refs":true before "size" if Refs is set. Only Roux creates references: the worker
// that stored the file, and the engine for a loop's outputs. The name "$roux" is reserved:
// values from outside must not use it ([Reserved]), so that a user who only knows the hash
// of a file cannot create a reference to it.
type Large struct {
	Hash string // sha256_<64 hex> of the file
	List bool   // a JSON array; false = a text in UTF-8
	// Size is size() of the value: the characters of a text, the elements of a list.
	Size  int64
	Bytes int64 // of the file
	// Refs is set when the elements of the list may contain references, such as the
	// outputs of a loop. All of them are in the journal of the run whose loop that was.
	Refs bool
}

// LargeName is the reserved name.
const LargeName = "$roux"

// largeOpen is the beginning of every reference in canonical JSON, because "$" sorts before
// letters. It occurs nowhere else, because a quote inside a string is escaped.
var (
	largeOpen    = []byte(`{"$roux":`)
	reservedName = []byte(`"$roux":`)
)

// Reserved reports whether canonical JSON uses the reserved name in any object.
func Reserved(canonical []byte) bool {
	for {
		at := bytes.Index(canonical, reservedName)
		if at < 0 {
			return false
		}
		// After a backslash it is the end of another name.
		if at > 0 && (canonical[at-1] == '{' || canonical[at-1] == ',') {
			return true
		}
		canonical = canonical[at+len(reservedName):]
	}
}

// Type returns "string" or "list".
func (l Large) Type() string {
	if l.List {
		return "list"
	}
	return "string"
}

// Append appends the reference as canonical JSON.
func (l Large) Append(dst []byte) []byte {
	dst = append(dst, `{"$roux":"ref","bytes":`...)
	dst = strconv.AppendInt(dst, l.Bytes, 10)
	dst = append(dst, `,"hash":"`...)
	dst = append(dst, l.Hash...)
	dst = append(dst, '"')
	if l.Refs {
		dst = append(dst, `,"refs":true`...)
	}
	dst = append(dst, `,"size":`...)
	dst = strconv.AppendInt(dst, l.Size, 10)
	dst = append(dst, `,"type":"`...)
	dst = append(dst, l.Type()...)
	return append(dst, `"}`...)
}

// MarshalJSON returns the reference as canonical JSON.
func (l Large) MarshalJSON() ([]byte, error) { return l.Append(nil), nil }

// AsLarge converts the object form of a reference; ok is false for any other object.
func AsLarge(m map[string]any) (l Large, ok bool) {
	refs, _ := m["refs"].(bool)
	fields := 5
	if refs {
		fields++
	}
	if m[LargeName] != "ref" || len(m) != fields {
		return Large{}, false
	}
	kind, _ := m["type"].(string)
	hash, _ := m["hash"].(string)
	size, isInt := m["size"].(int64)
	n, isInt2 := m["bytes"].(int64)
	digits, named := strings.CutPrefix(hash, "sha256_")
	switch {
	case !isInt || !isInt2 || size < 0 || n < 0, kind != "list" && (kind != "string" || refs):
		return Large{}, false
	case !named || len(digits) != 64 || strings.Trim(digits, "0123456789abcdef") != "":
		return Large{}, false
	}
	return Large{Hash: hash, List: kind == "list", Size: size, Bytes: n, Refs: refs}, true
}

// NextLarge finds the first reference in canonical JSON, at canonical[start:end]. ok is
// false when there is none.
func NextLarge(canonical []byte) (l Large, start, end int, ok bool) {
	for from := 0; ; {
		at := bytes.Index(canonical[from:], largeOpen)
		if at < 0 {
			return Large{}, 0, 0, false
		}
		start = from + at
		n := bytes.IndexByte(canonical[start:], '}') // its fields contain no brace
		if n < 0 {
			return Large{}, 0, 0, false
		}
		end = start + n + 1
		v, err := Decode(canonical[start:end], Limits{})
		if m, isMap := v.(map[string]any); err == nil && isMap {
			if l, ok = AsLarge(m); ok {
				return l, start, end, true
			}
		}
		from = start + 1
	}
}
