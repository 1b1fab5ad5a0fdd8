// SPDX-License-Identifier: Apache-2.0

// Package jsonx parses JSON text within limits and defines the canonical form of values.
//
// It decides which texts are JSON here: RFC 8259 without duplicate names, invalid UTF-8 or
// trailing data, within limits on bytes, depth and tokens, and with integers that fit 64
// bits exactly ([Decode], [Valid]). It decides how a value is encoded when it is hashed,
// compared or stored ([Canonical]). And it has the tree of values with their positions in
// a text, which the strict decoders of definitions use ([Node]; [Parse] builds it from
// JSON, package yamlx from YAML).
//
// It never interprets values, knows no schema and does no I/O.
//
// Values are nil, bool, int64, float64, string, []any and map[string]any. A number without
// fraction and exponent is an int64; any other is a float64. On request, a reference to a
// value in a file is a [Large].
package jsonx

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// The default limits.
const (
	DefaultBytes = 1 << 20
	DefaultDepth = 64
)

// Limits bound a text before and while it is parsed. A zero field has the default that
// its comment names.
type Limits struct {
	// Bytes is the length of the text. Default [DefaultBytes].
	Bytes int
	// Depth is how many arrays and objects may be open at once. Default [DefaultDepth].
	Depth int
	// Tokens is how many names and values the text may hold. It bounds memory, because
	// small values need many times as much memory as text. Default Bytes/2+1, which no
	// array of one-digit numbers exceeds.
	Tokens int
	// Large decodes each reference as a [Large]. Default: as an object.
	Large bool
}

func (l Limits) orDefault() Limits {
	if l.Bytes == 0 {
		l.Bytes = DefaultBytes
	}
	if l.Depth == 0 {
		l.Depth = DefaultDepth
	}
	if l.Tokens == 0 {
		l.Tokens = l.Bytes/2 + 1
	}
	return l
}

// The rules of an [Error].
const (
	RuleSyntax    = "syntax"
	RuleEncoding  = "encoding"
	RuleDuplicate = "duplicate-key"
	RuleNumber    = "number"
	RuleLimit     = "limit"
)

// An Error is one problem at one position of a text. Callers add the error code for what
// they were parsing: a definition, a request, a stored value.
type Error struct {
	Rule    string
	Msg     string
	Hint    string
	Pos     Pos
	Pointer string // JSON pointer (RFC 6901) of the value, as far as known
	// Tokens is set, for RuleLimit, when the text has too many names and values.
	Tokens bool
	// First is the position of the first occurrence of a duplicate name.
	First Pos
}

func (e *Error) Error() string {
	s := fmt.Sprintf("line %d, column %d: %s", e.Pos.Line, e.Pos.Col, e.Msg)
	if e.Pos.Line == 0 {
		s = e.Msg
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Decode decodes the single value in data. Its errors are of type *[Error].
func Decode(data []byte, lim Limits) (any, error) {
	if full := lim.orDefault(); len(data) <= full.Bytes && full.Depth > maxPlainDepth {
		left := full.Tokens
		if v, end, ok := decodePlain(data, 0, 0, &left); ok && end == len(data) {
			return v, nil
		}
	}
	return decode(data, lim)
}

// decode is Decode without the fast path.
func decode(data []byte, lim Limits) (any, error) {
	r, err := newReader(data, lim, false)
	if err != nil {
		return nil, err
	}
	v, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return v, nil
}

// Valid returns the error that Decode would return, without building the value.
func Valid(data []byte, lim Limits) error {
	r, err := newReader(data, lim, false)
	if err != nil {
		return err
	}
	if err := r.skip(); err != nil {
		return err
	}
	return r.end()
}

// A reader reads the tokens of one text and enforces the limits.
type reader struct {
	dec        *jsontext.Decoder
	data       []byte
	tokensLeft int // names and values that may follow
	lim        Limits
}

func newReader(data []byte, lim Limits, duplicates bool) (*reader, error) {
	lim = lim.orDefault()
	if len(data) > lim.Bytes {
		return nil, &Error{Rule: RuleLimit, Msg: fmt.Sprintf("the text has %d bytes, the limit is %d", len(data), lim.Bytes)}
	}
	return &reader{
		// The decoder reads a bytes.Buffer in place.
		dec:        jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(duplicates)),
		data:       data,
		tokensLeft: lim.Tokens,
		lim:        lim,
	}, nil
}

// token reads one token; start is where it begins.
func (r *reader) token() (tok jsontext.Token, start int, err error) {
	start = int(r.dec.InputOffset())
	for start < len(r.data) && strings.IndexByte(" \t\r\n,:", r.data[start]) >= 0 {
		start++
	}
	if tok, err = r.dec.ReadToken(); err != nil {
		return tok, start, r.syntax(err)
	}
	if k := tok.Kind(); k == ']' || k == '}' {
		return tok, start, nil
	}
	if r.tokensLeft--; r.tokensLeft < 0 {
		e := r.fail(RuleLimit, start, 1, "the text holds more than %d names and values", r.lim.Tokens)
		e.Tokens = true
		return tok, start, e
	}
	return tok, start, nil
}

func (r *reader) value(depth int) (any, error) {
	tok, start, err := r.token()
	if err != nil {
		return nil, err
	}
	return r.valueFrom(tok, start, depth)
}

// valueFrom builds the value that begins with tok.
func (r *reader) valueFrom(tok jsontext.Token, start, depth int) (any, error) {
	switch tok.Kind() {
	case 'n':
		return nil, nil
	case 't':
		return true, nil
	case 'f':
		return false, nil
	case '"':
		return tok.String(), nil
	case '0':
		n := r.number(start)
		if n.err != "" {
			return nil, r.fail(RuleNumber, start, int(r.dec.InputOffset())-start, "%s", n.err)
		}
		if n.isInt {
			return n.i, nil
		}
		return n.f, nil
	case '[':
		if err := r.open(depth, start); err != nil {
			return nil, err
		}
		list := []any{}
		for {
			tok, start, err := r.token()
			if err != nil {
				return nil, err
			}
			if tok.Kind() == ']' {
				return list, nil
			}
			v, err := r.valueFrom(tok, start, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
	default: // '{'
		if err := r.open(depth, start); err != nil {
			return nil, err
		}
		m := map[string]any{}
		for {
			tok, _, err := r.token()
			if err != nil {
				return nil, err
			}
			if tok.Kind() == '}' {
				if r.lim.Large {
					if l, ok := AsLarge(m); ok {
						return l, nil
					}
				}
				return m, nil
			}
			name := tok.String()
			v, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			m[name] = v
		}
	}
}

// skip reads one value and discards it.
func (r *reader) skip() error {
	for depth := 0; ; {
		tok, start, err := r.token()
		if err != nil {
			return err
		}
		switch tok.Kind() {
		case '[', '{':
			if err := r.open(depth, start); err != nil {
				return err
			}
			depth++
		case ']', '}':
			depth--
		case '0':
			if n := r.number(start); n.err != "" {
				return r.fail(RuleNumber, start, int(r.dec.InputOffset())-start, "%s", n.err)
			}
		}
		if depth == 0 {
			return nil
		}
	}
}

func (r *reader) open(depth, start int) error {
	if depth >= r.lim.Depth {
		return r.fail(RuleLimit, start, 1, "arrays and objects are nested more than %d deep", r.lim.Depth)
	}
	return nil
}

// end returns an error if anything follows the value.
func (r *reader) end() error {
	at := int(r.dec.InputOffset())
	for at < len(r.data) && strings.IndexByte(" \t\r\n", r.data[at]) >= 0 {
		at++
	}
	if at < len(r.data) {
		return r.fail(RuleSyntax, at, 1, "the value ends before this; a text holds one value")
	}
	return nil
}

// number reads the number token that begins at start.
func (r *reader) number(start int) number {
	return parseNumber(string(r.data[start:r.dec.InputOffset()]))
}

type number struct {
	isInt bool
	i     int64
	f     float64
	err   string
}

// parseNumber parses text that matches JSON's grammar of numbers.
func parseNumber(text string) number {
	if !strings.ContainsAny(text, ".eE") {
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return number{err: fmt.Sprintf("the integer %s does not fit 64 bits; write it as a string", shorten(text))}
		}
		return number{isInt: true, i: i}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return number{err: fmt.Sprintf("the number %s is outside the range of a 64-bit float", shorten(text))}
	}
	return number{f: f}
}

// ParseNumber parses a JSON number into an int64 or a float64; ok is false when text is
// not a JSON number. If the number cannot be represented, problem says why.
func ParseNumber(text string) (v any, ok bool, problem string) {
	if !isNumber(text) {
		return nil, false, ""
	}
	switch n := parseNumber(text); {
	case n.err != "":
		return nil, true, n.err
	case n.isInt:
		return n.i, true, ""
	default:
		return n.f, true, ""
	}
}

// isNumber matches -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?.
func isNumber(s string) bool {
	digits := func() bool {
		n := len(s)
		s = strings.TrimLeft(s, "0123456789")
		return len(s) < n
	}
	s = strings.TrimPrefix(s, "-")
	if strings.HasPrefix(s, "0") {
		s = s[1:]
	} else if !digits() {
		return false
	}
	if strings.HasPrefix(s, ".") {
		if s = s[1:]; !digits() {
			return false
		}
	}
	if strings.HasPrefix(s, "e") || strings.HasPrefix(s, "E") {
		s = s[1:]
		if strings.HasPrefix(s, "+") || strings.HasPrefix(s, "-") {
			s = s[1:]
		}
		if !digits() {
			return false
		}
	}
	return s == ""
}

func shorten(s string) string {
	if len(s) > 40 {
		return s[:37] + "..."
	}
	return s
}

func (r *reader) fail(rule string, at, length int, format string, args ...any) *Error {
	return &Error{
		Rule:    rule,
		Msg:     fmt.Sprintf(format, args...),
		Pos:     posAt(r.data, at, length),
		Pointer: string(r.dec.StackPointer()),
	}
}

// syntax converts an error of the decoder into an [Error].
func (r *reader) syntax(err error) *Error {
	e := &Error{Rule: RuleSyntax, Pos: posAt(r.data, int(r.dec.InputOffset()), 1), Msg: "the text ends before its value does"}
	var serr *jsontext.SyntacticError
	if !errors.As(err, &serr) {
		e.Pos = posAt(r.data, len(r.data), 1)
		return e // io.EOF: the text is empty
	}
	at := int(serr.ByteOffset)
	e.Pos = posAt(r.data, at, 1)
	e.Pointer = string(serr.JSONPointer)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		name := serr.JSONPointer.LastToken()
		e.Rule = RuleDuplicate
		e.Msg = fmt.Sprintf("the name %q occurs twice in one object", shorten(name))
		e.Pos.Len = int32(len(strconv.Quote(name)))
	case strings.Contains(serr.Err.Error(), "UTF-8"):
		e.Rule = RuleEncoding
		e.Msg = "the text is not valid UTF-8 here"
	case at >= len(r.data):
		return e
	default:
		e.Msg = strings.TrimPrefix(serr.Err.Error(), "jsontext: ")
		after := bytes.TrimLeft(r.data[at+1:], " \t\r\n")
		switch c := r.data[at]; {
		case c == ',' && (bytes.HasPrefix(after, []byte("]")) || bytes.HasPrefix(after, []byte("}"))):
			e.Msg, e.Hint = "no value follows this comma", "remove it"
		case c == '\'':
			e.Hint = "JSON strings need double quotes"
		case c == '/':
			e.Hint = "JSON has no comments"
		}
	}
	return e
}

// posAt returns line and column (in characters, both from 1) of a byte offset.
func posAt(data []byte, at, length int) Pos {
	at = min(at, len(data))
	lineStart := bytes.LastIndexByte(data[:at], '\n') + 1
	return Pos{
		Line: int32(1 + bytes.Count(data[:at], []byte("\n"))),
		Col:  int32(1 + utf8.RuneCount(data[lineStart:at])),
		Len:  int32(max(1, length)),
	}
}
