// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// StreamLimits bound a text that is read incrementally. A zero field has the default that
// its comment names.
type StreamLimits struct {
	// Token is how long one string or number may be, which is also how much of the text
	// is buffered. Default 16 MiB.
	Token int
	// Depth is how many arrays and objects may be open at once. Default 512.
	Depth int
	// Names is how many names one object may have; they are kept in memory to find
	// duplicates. Default 1,000,000.
	Names int
	// Value bounds each value that is built. Default 32 MiB of text, 1,000,000
	// tokens, [DefaultDepth] deep.
	Value Limits
}

// A Stream reads JSON from a reader: one text, or several values separated by white space.
// It is as strict as [Decode], keeps one token at a time and builds only the values that
// the caller requests. Its errors are of type *[Error], with the byte offset in the
// message, or those of the reader.
type Stream struct {
	dec        *jsontext.Decoder
	src        *tokenReader
	lim        StreamLimits
	tokensLeft int     // tokens left for the value that is built
	begin      int64   // offset at which it begins
	names      []int64 // length of the names of each open array or object, in bytes
	held       int64   // their sum
}

// A tokenReader returns an error when a token is longer than the limit.
type tokenReader struct {
	r    io.Reader
	dec  *jsontext.Decoder
	read int64
	max  int64
	err  error
}

func (m *tokenReader) Read(p []byte) (int, error) {
	if m.dec != nil && m.read-m.dec.InputOffset() > m.max {
		m.err = &Error{Rule: RuleLimit, Msg: fmt.Sprintf("at byte %d: a string or number has more than %d bytes", m.dec.InputOffset(), m.max)}
		return 0, m.err
	}
	n, err := m.r.Read(p)
	m.read += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		m.err = err
	}
	return n, err
}

// NewStream returns a Stream that reads r.
func NewStream(r io.Reader, lim StreamLimits) *Stream {
	if lim.Token == 0 {
		lim.Token = 16 << 20
	}
	if lim.Depth == 0 {
		lim.Depth = 512
	}
	if lim.Names == 0 {
		lim.Names = 1_000_000
	}
	if lim.Value.Depth == 0 {
		lim.Value.Depth = DefaultDepth
	}
	if lim.Value.Bytes == 0 {
		lim.Value.Bytes = 32 << 20
	}
	if lim.Value.Tokens == 0 {
		lim.Value.Tokens = 1_000_000
	}
	src := &tokenReader{r: r, max: int64(lim.Token)}
	s := &Stream{src: src, lim: lim, dec: jsontext.NewDecoder(src)}
	src.dec = s.dec
	return s
}

// Offset returns how many bytes of the text have been read.
func (s *Stream) Offset() int64 { return s.dec.InputOffset() }

// Kind returns the kind of the next token: 'n', 't', 'f', '"', '0', '[', '{', ']', '}', or
// 0 at the end of the text and before an error, which the next read returns.
func (s *Stream) Kind() byte { return byte(s.dec.PeekKind()) }

// maxNames bounds the names of all open objects, in bytes.
const maxNames = 64 << 20

func (s *Stream) token() (jsontext.Token, error) {
	before := s.dec.InputOffset()
	tok, err := s.dec.ReadToken()
	if err != nil {
		return tok, s.wrapError(err)
	}
	switch tok.Kind() {
	case '[', '{':
		if s.dec.StackDepth() > s.lim.Depth {
			return tok, s.fail(RuleLimit, "arrays and objects are nested more than %d deep", s.lim.Depth)
		}
		s.names = append(s.names, 0)
	case ']', '}':
		last := len(s.names) - 1
		s.held -= s.names[last]
		s.names = s.names[:last]
	case '"':
		// The decoder keeps the names of open objects to find duplicates.
		kind, n := s.dec.StackIndex(s.dec.StackDepth())
		if kind != '{' || n%2 == 0 {
			break
		}
		size := s.dec.InputOffset() - before
		s.names[len(s.names)-1] += size
		if s.held += size; s.held > maxNames || n > 2*int64(s.lim.Names) {
			return tok, s.fail(RuleLimit, "an object has more than %d names, or names of more than %d MiB", s.lim.Names, maxNames>>20)
		}
	}
	return tok, nil
}

// Open enters the next array or object and returns its kind.
func (s *Stream) Open() (byte, error) {
	tok, err := s.token()
	if err != nil {
		return 0, err
	}
	if k := tok.Kind(); k == '[' || k == '{' {
		return byte(k), nil
	}
	return 0, s.fail(RuleSyntax, "want an array or object here, got %s", kindName(byte(tok.Kind())))
}

// Close leaves the current array or object, which must have no further elements.
func (s *Stream) Close() error {
	tok, err := s.token()
	if err == nil && tok.Kind() != ']' && tok.Kind() != '}' {
		err = s.fail(RuleSyntax, "want the end of the array or object here, got %s", kindName(byte(tok.Kind())))
	}
	return err
}

// Name reads the name of the next member of an object.
func (s *Stream) Name() (string, error) {
	tok, err := s.token()
	if err != nil {
		return "", err
	}
	return tok.String(), nil
}

// Skip skips the next value.
func (s *Stream) Skip() error {
	for depth := 0; ; {
		tok, err := s.token()
		if err != nil {
			return err
		}
		switch tok.Kind() {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// Value reads the next value, within StreamLimits.Value.
func (s *Stream) Value() (any, error) {
	s.tokensLeft, s.begin = s.lim.Value.Tokens, s.dec.InputOffset()
	return s.value(0)
}

func (s *Stream) value(depth int) (any, error) {
	tok, err := s.token()
	if err != nil {
		return nil, err
	}
	if s.dec.InputOffset()-s.begin > int64(s.lim.Value.Bytes) {
		return nil, s.fail(RuleLimit, "the value has more than %d bytes", s.lim.Value.Bytes)
	}
	if s.tokensLeft--; s.tokensLeft < 0 {
		return nil, s.fail(RuleLimit, "the value holds more than %d names and values", s.lim.Value.Tokens)
	}
	switch tok.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return tok.Bool(), nil
	case '"':
		return tok.String(), nil
	case '0':
		n := parseNumber(tok.String())
		switch {
		case n.err != "":
			return nil, s.fail(RuleNumber, "%s", n.err)
		case n.isInt:
			return n.i, nil
		}
		return n.f, nil
	}
	if depth >= s.lim.Value.Depth {
		return nil, s.fail(RuleLimit, "the value is nested more than %d deep", s.lim.Value.Depth)
	}
	if tok.Kind() == '[' {
		list := []any{}
		for s.Kind() != ']' {
			v, err := s.value(depth + 1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, s.Close()
	}
	m := map[string]any{}
	for s.Kind() != '}' {
		name, err := s.Name()
		if err != nil {
			return nil, err
		}
		if m[name], err = s.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return m, s.Close()
}

// End returns an error if anything follows.
func (s *Stream) End() error {
	_, err := s.dec.ReadToken()
	switch {
	case err == nil:
		return s.fail(RuleSyntax, "the value ends before this; a text holds one value")
	case errors.Is(err, io.EOF) && s.src.err == nil:
		return nil
	}
	return s.wrapError(err)
}

// More reports whether another value follows at the top level.
func (s *Stream) More() bool {
	if s.Kind() != 0 {
		return true
	}
	_, err := s.dec.ReadToken() // Kind does not distinguish the end from an error
	return !errors.Is(err, io.EOF) || s.src.err != nil
}

func (s *Stream) fail(rule, format string, args ...any) *Error {
	return &Error{Rule: rule, Msg: fmt.Sprintf("at byte %d: ", s.dec.InputOffset()) + fmt.Sprintf(format, args...), Pointer: string(s.dec.StackPointer())}
}

// wrapError converts an error of the decoder into an [Error]; it returns an error of the
// reader unchanged.
func (s *Stream) wrapError(err error) error {
	if s.src.err != nil {
		return s.src.err
	}
	var serr *jsontext.SyntacticError
	if !errors.As(err, &serr) {
		return s.fail(RuleSyntax, "the text ends before its value does")
	}
	e := &Error{Rule: RuleSyntax, Pointer: string(serr.JSONPointer)}
	what := strings.TrimPrefix(serr.Err.Error(), "jsontext: ")
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		e.Rule, what = RuleDuplicate, fmt.Sprintf("the name %q occurs twice in one object", shorten(serr.JSONPointer.LastToken()))
	case strings.Contains(what, "UTF-8"):
		e.Rule, what = RuleEncoding, "the text is not valid UTF-8 here"
	case errors.Is(serr.Err, io.ErrUnexpectedEOF):
		what = "the text ends before its value does"
	}
	e.Msg = fmt.Sprintf("at byte %d: %s", serr.ByteOffset, what)
	return e
}

func kindName(k byte) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '[':
		return "an array"
	case '{':
		return "an object"
	}
	return "an end"
}
