// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"bytes"
	"strconv"
	"strings"
)

// A Large stands for a text or a list that is too large to travel inside a value
// and lies in a file instead (design section 7). Its one form in JSON is
//
//	{"$roux":"ref","bytes":3145730,"hash":"sha256_…","size":3145728,"type":"string"}
//
// with "refs":true before "size" if Refs is set. Only Roux makes one: the worker that
// put the file there, and the engine of a loop's outputs. The name "$roux" is reserved:
// what comes from outside may not use it ([Reserved]), so nobody can make a value
// look like a reference to a file that they only know by its hash.
type Large struct {
	Hash string // sha256_<64 hex> of the file
	List bool   // a JSON array; false = a text in UTF-8
	// Size is what size() says of the value: characters of a text, elements of a
	// list.
	Size  int64
	Bytes int64 // of the file
	// Refs says that the elements of the list hold references of their own: the
	// outputs of a loop may. All of them are in the journal of the run.
	Refs bool
}

// LargeName is the reserved name.
const LargeName = "$roux"

// largeOpen begins every reference in canonical JSON: "$" sorts before letters. It
// stands nowhere else, since a quote inside a string has a backslash before it.
var (
	largeOpen    = []byte(`{"$roux":`)
	reservedName = []byte(`"$roux":`)
)

// Reserved says whether canonical JSON uses the reserved name in any object.
func Reserved(canonical []byte) bool {
	for {
		at := bytes.Index(canonical, reservedName)
		if at < 0 {
			return false
		}
		// A backslash before it: the end of another name.
		if at > 0 && (canonical[at-1] == '{' || canonical[at-1] == ',') {
			return true
		}
		canonical = canonical[at+len(reservedName):]
	}
}

// Type is "string" or "list".
func (l Large) Type() string {
	if l.List {
		return "list"
	}
	return "string"
}

// Append writes the reference as canonical JSON.
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

// AsLarge reads the object form of a reference; ok is false for anything else.
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

// NextLarge finds the first reference in canonical JSON: it is at
// canonical[start:end]. ok is false when there is none.
func NextLarge(canonical []byte) (l Large, start, end int, ok bool) {
	for from := 0; ; {
		at := bytes.Index(canonical[from:], largeOpen)
		if at < 0 {
			return Large{}, 0, 0, false
		}
		start = from + at
		n := bytes.IndexByte(canonical[start:], '}') // its fields hold no brace
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
