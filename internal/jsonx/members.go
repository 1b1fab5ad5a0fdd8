// SPDX-License-Identifier: Apache-2.0

package jsonx

// Members passes the names and the texts of the members of an object to visit, in their order, and
// Elements the texts of the elements of a list. They share the memory of raw. The result is false when
// visit has returned false, and when raw is not what it is to be, is not compact, or has a name with an
// escape: the caller then decodes raw. What an inner object or list contains is not checked.
func Members(raw []byte, visit func(name, value []byte) bool) bool {
	return each(raw, '{', '}', visit)
}

// Elements is as [Members] says.
func Elements(raw []byte, visit func(value []byte) bool) bool {
	return each(raw, '[', ']', func(_, value []byte) bool { return visit(value) })
}

func each(raw []byte, first, last byte, visit func(name, value []byte) bool) bool {
	if len(raw) < 2 || raw[0] != first {
		return false
	}
	if raw[1] == last {
		return len(raw) == 2
	}
	for i := 1; ; i++ {
		var name []byte
		if first == '{' {
			colon, ok := plainName(raw, i)
			if !ok {
				return false
			}
			name, i = raw[i+1:colon-1], colon+1
		}
		end, ok := extent(raw, i)
		if !ok || end >= len(raw) || !visit(name, raw[i:end:end]) {
			return false
		}
		if i = end; raw[i] != ',' {
			return raw[i] == last && i+1 == len(raw)
		}
	}
}

// extent finds the end of the value that begins at i.
func extent(raw []byte, i int) (end int, ok bool) {
	if i >= len(raw) || raw[i] != '{' && raw[i] != '[' {
		return plain(raw, i, 0)
	}
	for open := 0; i < len(raw); {
		switch raw[i] {
		case '"':
			if i, ok = plainString(raw, i); !ok {
				return 0, false
			}
			continue
		case '{', '[':
			open++
		case '}', ']':
			if open--; open == 0 {
				return i + 1, true
			}
		}
		i++
	}
	return 0, false
}
