// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"bytes"
	"cmp"
	"strconv"
)

// An operandKind is the type of an operand in a content stream.
type operandKind uint8

const (
	otherOperand operandKind = iota // null, true, a dictionary
	numberOperand
	stringOperand
	nameOperand
	arrayOperand
)

// An operand is an operand of a content stream operator, which follows it.
type operand struct {
	kind   operandKind
	num    float64
	text   []byte    // of a string or a name; valid until the next operator
	items  []operand // numbers and strings of an array; valid until the next operator
	actual []byte    // of a dictionary: its ActualText
}

// Limits of one operator. Excess operands are dropped.
const (
	maxOperands = 64
	maxItems    = 50_000
)

// A lexer splits the content of a page into operators with their operands. It
// never fails: it skips damage, because what follows may be undamaged. It does
// not recurse, so nesting costs nothing.
type lexer struct {
	b       []byte
	i       int
	args    []operand
	items   []operand // backs the arrays
	arena   []byte    // backs the strings
	maxArgs int       // operands kept for one operator; 0 = maxOperands
}

const (
	regular byte = iota
	space
	delimiter
)

var classes = func() (c [256]byte) {
	for _, b := range []byte("\x00\t\n\f\r ") {
		c[b] = space
	}
	for _, b := range []byte("()<>[]{}/%") {
		c[b] = delimiter
	}
	return c
}()

// next returns the next operator. ok is false at the end.
func (l *lexer) next() (op []byte, ok bool) {
	l.args, l.items, l.arena = l.args[:0], l.items[:0], l.arena[:0]
	array := -1 // index of the array's first item
	nested := 0 // depth of dictionaries and arrays, not counting the first array
	actual := 0 // 1 after the key ActualText, so that its value is next
	var span []byte
	most := cmp.Or(l.maxArgs, maxOperands)
	put := func(o operand) {
		switch {
		case nested > 0:
			if actual == 1 && o.kind == stringOperand {
				span = o.text
			}
			actual = 0
			if o.kind == nameOperand && string(o.text) == "ActualText" {
				actual = 1
			}
		case array >= 0:
			if len(l.items) < maxItems {
				l.items = append(l.items, o)
			}
		case len(l.args) < most:
			l.args = append(l.args, o)
		default:
			copy(l.args, l.args[1:])
			l.args[most-1] = o
		}
	}
	closeArray := func() {
		o := operand{kind: arrayOperand, items: l.items[array:len(l.items):len(l.items)]}
		array, nested = -1, 0
		put(o)
	}
	for l.i < len(l.b) {
		c := l.b[l.i]
		switch {
		case classes[c] == space:
			l.i++
		case c == '%':
			l.skipComment()
		case c == '(':
			put(operand{kind: stringOperand, text: l.literal()})
		case c == '<' && l.at(1) == '<':
			l.i += 2
			nested++
		case c == '<':
			put(operand{kind: stringOperand, text: l.hex()})
		case c == '>' && l.at(1) == '>':
			l.i += 2
			if nested > 0 {
				nested--
			}
			if nested == 0 {
				put(operand{actual: span})
				span, actual = nil, 0
			}
		case c == '[':
			l.i++
			if array >= 0 || nested > 0 {
				nested++
			} else {
				array = len(l.items)
			}
		case c == ']':
			l.i++
			switch {
			case nested > 0:
				nested--
			case array >= 0:
				closeArray()
			}
		case c == '/':
			put(operand{kind: nameOperand, text: l.name()})
		case classes[c] == delimiter:
			l.i++
		default:
			word := l.word()
			if n, ok := number(word); ok {
				put(operand{kind: numberOperand, num: n})
				continue
			}
			switch string(word) {
			case "true", "false", "null":
				put(operand{})
				continue
			}
			// An operator ends an array that was left open.
			if array >= 0 {
				closeArray()
			}
			if string(word) == "ID" {
				l.skipImage()
			}
			return word, true
		}
	}
	return nil, false
}

// skipComment skips the rest of the line.
func (l *lexer) skipComment() {
	for l.i < len(l.b) && l.b[l.i] != '\n' && l.b[l.i] != '\r' {
		l.i++
	}
}

// word reads the regular characters up to the next delimiter or space.
func (l *lexer) word() []byte {
	start := l.i
	for l.i < len(l.b) && classes[l.b[l.i]] == regular {
		l.i++
	}
	return l.b[start:l.i]
}

func (l *lexer) at(d int) byte {
	if l.i+d < len(l.b) {
		return l.b[l.i+d]
	}
	return 0
}

// literal reads "(…)" with its escapes.
func (l *lexer) literal() []byte {
	start := len(l.arena)
	depth := 1
	l.i++
	for l.i < len(l.b) {
		c := l.b[l.i]
		l.i++
		switch c {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return l.arena[start:len(l.arena):len(l.arena)]
			}
		case '\r': // CR LF is one line end
			if l.at(0) == '\n' {
				l.i++
			}
			c = '\n'
		case '\\':
			var ok bool
			if c, ok = l.escape(); !ok {
				continue
			}
		}
		l.arena = append(l.arena, c)
	}
	return l.arena[start:len(l.arena):len(l.arena)]
}

// escape reads what follows a backslash. ok is false when it adds no character.
func (l *lexer) escape() (c byte, ok bool) {
	c = l.at(0)
	l.i++
	switch c {
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case '\r':
		if l.at(0) == '\n' {
			l.i++
		}
		return 0, false
	case '\n':
		return 0, false
	case '0', '1', '2', '3', '4', '5', '6', '7':
		v := c - '0'
		for range 2 {
			d := l.at(0)
			if d < '0' || d > '7' {
				break
			}
			v = v*8 + d - '0'
			l.i++
		}
		return v, true
	}
	return c, true
}

// hex reads "<…>". Characters other than digits are skipped.
func (l *lexer) hex() []byte {
	start := len(l.arena)
	l.i++
	half, have := byte(0), false
	for l.i < len(l.b) {
		c := l.b[l.i]
		l.i++
		if c == '>' {
			break
		}
		d := hexDigit(c)
		if d < 0 {
			continue
		}
		if have {
			l.arena = append(l.arena, half<<4|byte(d))
		}
		half, have = byte(d), !have
	}
	if have {
		l.arena = append(l.arena, half<<4)
	}
	return l.arena[start:len(l.arena):len(l.arena)]
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// name reads "/…", in which #xx is a byte.
func (l *lexer) name() []byte {
	l.i++
	start := l.i
	for l.i < len(l.b) && classes[l.b[l.i]] == regular {
		l.i++
	}
	raw := l.b[start:l.i]
	if bytes.IndexByte(raw, '#') < 0 {
		return raw
	}
	at := len(l.arena)
	for i := 0; i < len(raw); i++ {
		if raw[i] == '#' && i+2 < len(raw) && hexDigit(raw[i+1]) >= 0 && hexDigit(raw[i+2]) >= 0 {
			l.arena = append(l.arena, byte(hexDigit(raw[i+1])<<4|hexDigit(raw[i+2])))
			i += 2
			continue
		}
		l.arena = append(l.arena, raw[i])
	}
	return l.arena[at:len(l.arena):len(l.arena)]
}

// skipImage skips the bytes of an inline image, which may look like anything.
// They end with an EI between white space that is followed by plausible
// content.
func (l *lexer) skipImage() {
	for i := l.i; ; {
		j := bytes.Index(l.b[i:], []byte("EI"))
		if j < 0 {
			l.i = len(l.b)
			return
		}
		j += i
		i = j + 2
		if j > 0 && classes[l.b[j-1]] != space || i < len(l.b) && classes[l.b[i]] != space {
			continue
		}
		if looksLikeContent(l.b[i:min(len(l.b), i+16)]) {
			l.i = i
			return
		}
	}
}

func looksLikeContent(b []byte) bool {
	for _, c := range b {
		if c >= 0x7F || c < ' ' && classes[c] != space {
			return false
		}
	}
	return true
}

// number reads a PDF number, or the malformed ones that common programs write:
// "--5", "1.-2".
func number(w []byte) (float64, bool) {
	if c := w[0]; (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' {
		return 0, false
	}
	i, sign := 0, 1.0
	for i < len(w) && (w[i] == '-' || w[i] == '+') {
		if w[i] == '-' {
			sign = -1
		}
		i++
	}
	whole, frac, scale, digits := 0.0, 0.0, 1.0, 0
	for ; i < len(w) && w[i] >= '0' && w[i] <= '9'; i++ {
		whole = whole*10 + float64(w[i]-'0')
		digits++
	}
	if i < len(w) && w[i] == '.' {
		for i++; i < len(w) && w[i] >= '0' && w[i] <= '9'; i++ {
			if scale < 1e15 {
				scale *= 10
				frac = frac*10 + float64(w[i]-'0')
			}
			digits++
		}
	}
	if i < len(w) && w[i] != '-' { // a minus sign in the middle ends it
		n, err := strconv.ParseFloat(string(w), 64)
		return n, err == nil
	}
	if digits == 0 {
		return 0, len(w) == 1 && w[0] != '+' || w[0] == '.'
	}
	return sign * (whole + frac/scale), true
}
