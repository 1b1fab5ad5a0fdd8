// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// This file is the fast path for plain JSON: canonical text without fractions, rare escapes
// and references to files. Nearly all recorded values are plain. It needs no decoder. All
// other JSON is left to the decoder, so that the fast path cannot give a wrong result.

// maxPlainDepth bounds the nesting of plain JSON.
const maxPlainDepth = 60

// Select returns the part of canonical JSON at a path of names. ok is false when there is
// none, and when raw or the part is not plain; the caller then decodes raw and selects from
// the value.
func Select(raw []byte, path []string) (part []byte, ok bool) {
	i := 0
	for _, name := range path {
		if i, ok = seek(raw, i, name); !ok {
			return nil, false
		}
	}
	end, ok := plain(raw, i, 0)
	if !ok || len(path) == 0 && end != len(raw) {
		return nil, false
	}
	return raw[i:end:end], true
}

// seek finds the value of a name in the object that begins at i. Everything before it must
// be plain.
func seek(b []byte, i int, name string) (at int, ok bool) {
	if i >= len(b) || b[i] != '{' {
		return 0, false
	}
	for i++; ; i++ {
		start := i
		if i, ok = plainName(b, i); !ok {
			return 0, false
		}
		if string(b[start+1:i-1]) == name {
			return i + 1, name != LargeName
		}
		if string(b[start+1:i-1]) == LargeName {
			return 0, false
		}
		if i, ok = plain(b, i+1, 1); !ok || i >= len(b) || b[i] != ',' {
			return 0, false
		}
	}
}

// plain finds the end of the plain value that begins at i.
func plain(b []byte, i, depth int) (end int, ok bool) {
	if i >= len(b) || depth > maxPlainDepth {
		return 0, false
	}
	switch b[i] {
	case '"':
		return plainString(b, i)
	case '{':
		return plainObject(b, i, depth)
	case '[':
		return plainList(b, i, depth)
	case 't':
		return literal(b, i, "true")
	case 'f':
		return literal(b, i, "false")
	case 'n':
		return literal(b, i, "null")
	}
	return plainInt(b, i)
}

func literal(b []byte, i int, word string) (end int, ok bool) {
	end = i + len(word)
	return end, end <= len(b) && string(b[i:end]) == word
}

// plainInt accepts only integers with so few digits that they fit 64 bits.
func plainInt(b []byte, i int) (end int, ok bool) {
	start := i
	if i < len(b) && b[i] == '-' {
		i++
	}
	digits := i
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	n := i - digits
	if n == 0 || n > 18 || b[digits] == '0' && (n > 1 || digits > start) {
		return 0, false
	}
	if i < len(b) && (b[i] == '.' || b[i] == 'e' || b[i] == 'E') {
		return 0, false
	}
	return i, true
}

// unescapedPrefix returns how many bytes at the start of b are certainly ASCII that a JSON
// string contains unescaped. It examines eight bytes at a time.
func unescapedPrefix(b []byte) (n int) {
	const each = 0x0101010101010101
	for ; len(b)-n >= 8; n += 8 {
		x := binary.LittleEndian.Uint64(b[n:])
		quotes, slashes := x^'"'*each, x^'\\'*each
		// A byte that is smaller than what is subtracted from it, or not ASCII, sets
		// its high bit. The borrow may also set that of its neighbour, which only ends
		// the prefix earlier.
		if ((x-' '*each)|(quotes-each)|(slashes-each))&(0x80*each) != 0 {
			break
		}
	}
	return n
}

func plainString(b []byte, i int) (end int, ok bool) {
	start, ascii := i, true
	i++
	for i += unescapedPrefix(b[i:]); i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, ascii || utf8.Valid(b[start:i])
		case c == '\\':
			if i++; i >= len(b) || bytes.IndexByte([]byte(`"\bfnrt`), b[i]) < 0 {
				return 0, false
			}
		case c < ' ':
			return 0, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return 0, false
}

// plainName finds the colon after a name, which must be ASCII without escapes.
func plainName(b []byte, i int) (colon int, ok bool) {
	if i >= len(b) || b[i] != '"' {
		return 0, false
	}
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, i+1 < len(b) && b[i+1] == ':'
		case c < ' ' || c == '\\' || c >= utf8.RuneSelf:
			return 0, false
		}
	}
	return 0, false
}

func plainObject(b []byte, i, depth int) (end int, ok bool) {
	if i++; i < len(b) && b[i] == '}' {
		return i + 1, true
	}
	var last []byte
	for first := true; ; first = false {
		start := i
		if i, ok = plainName(b, i); !ok {
			return 0, false
		}
		name := b[start+1 : i-1]
		if !first && bytes.Compare(last, name) >= 0 || string(name) == LargeName {
			return 0, false
		}
		last = name
		if i, ok = plain(b, i+1, depth+1); !ok || i >= len(b) {
			return 0, false
		}
		switch b[i] {
		case '}':
			return i + 1, true
		case ',':
			i++
		default:
			return 0, false
		}
	}
}

func plainList(b []byte, i, depth int) (end int, ok bool) {
	if i++; i < len(b) && b[i] == ']' {
		return i + 1, true
	}
	for {
		if i, ok = plain(b, i, depth+1); !ok || i >= len(b) {
			return 0, false
		}
		switch b[i] {
		case ']':
			return i + 1, true
		case ',':
			i++
		default:
			return 0, false
		}
	}
}

// decodePlain builds the value that begins at i; left is how many names and
// values it may hold.
func decodePlain(b []byte, i, depth int, left *int) (v any, end int, ok bool) {
	if *left--; *left < 0 || i >= len(b) || depth > maxPlainDepth {
		return nil, 0, false
	}
	switch b[i] {
	case '"':
		if end, ok = plainString(b, i); !ok || bytes.IndexByte(b[i:end], '\\') >= 0 {
			return nil, 0, false
		}
		return string(b[i+1 : end-1]), end, true
	case 't':
		end, ok = literal(b, i, "true")
		return true, end, ok
	case 'f':
		end, ok = literal(b, i, "false")
		return false, end, ok
	case 'n':
		end, ok = literal(b, i, "null")
		return nil, end, ok
	case '{':
		return decodeObject(b, i, depth, left)
	case '[':
		return decodeList(b, i, depth, left)
	}
	if end, ok = plainInt(b, i); !ok {
		return nil, 0, false
	}
	n, digits := int64(0), b[i:end]
	if digits[0] == '-' {
		digits = digits[1:]
	}
	for _, c := range digits {
		n = 10*n + int64(c-'0')
	}
	if len(digits) < end-i {
		n = -n
	}
	return n, end, true
}

func decodeObject(b []byte, i, depth int, left *int) (v any, end int, ok bool) {
	m := map[string]any{}
	if i++; i < len(b) && b[i] == '}' {
		return m, i + 1, true
	}
	for n := 1; ; n++ {
		start := i
		if i, ok = plainName(b, i); !ok {
			return nil, 0, false
		}
		name := string(b[start+1 : i-1])
		if *left--; name == LargeName {
			return nil, 0, false
		}
		var member any
		if member, i, ok = decodePlain(b, i+1, depth+1, left); !ok || i >= len(b) {
			return nil, 0, false
		}
		if m[name] = member; len(m) != n {
			return nil, 0, false // a duplicate name
		}
		switch b[i] {
		case '}':
			return m, i + 1, true
		case ',':
			i++
		default:
			return nil, 0, false
		}
	}
}

func decodeList(b []byte, i, depth int, left *int) (v any, end int, ok bool) {
	list := []any{}
	if i++; i < len(b) && b[i] == ']' {
		return list, i + 1, true
	}
	for {
		var item any
		if item, i, ok = decodePlain(b, i, depth+1, left); !ok || i >= len(b) {
			return nil, 0, false
		}
		list = append(list, item)
		switch b[i] {
		case ']':
			return list, i + 1, true
		case ',':
			i++
		default:
			return nil, 0, false
		}
	}
}
