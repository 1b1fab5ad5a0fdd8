// SPDX-License-Identifier: Apache-2.0

// Package redact removes secrets from text, by value.
//
// It decides in which forms a secret is recognised: as it is, as part of a JSON string, in
// base64 (standard and URL alphabet, with and without padding, also in the middle of
// something longer, as the password in a header of basic authentication is), in
// hexadecimal, and escaped for a URL. It also recognises one that is cut short at an
// ellipsis or at the end of a text, if at least eight bytes of it are left.
//
// A [Set] finds all forms of all its secrets in one pass, whose cost is linear in the text,
// whatever text and secrets are. It does not find a secret that was transformed in another
// way: compressed, encrypted, reversed, or written with spaces between its letters.
//
// The package holds secrets in memory only. It never decides what is a secret.
package redact

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/jsonx"
)

// Mark replaces a secret.
const Mark = "[redacted]"

// The bounds of a set.
const (
	// MinLen is how many bytes a secret has at least. A shorter one would occur by chance
	// in texts that have nothing to do with it.
	MinLen = 6
	// MaxLen is how many bytes a secret has at most.
	MaxLen = 8 << 10
	// MaxTotal is how many bytes the secrets of a set have at most, together.
	MaxTotal = 32 << 10
	// cutLen is how many bytes of a form must be left where a text is cut.
	cutLen = 8
)

// Check returns what prevents a text from being a secret, without quoting it; nil if
// nothing does.
func Check(value string) error {
	switch n := len(value); {
	case n < MinLen:
		return fmt.Errorf("it has %d bytes; want at least %d, because a shorter one would be removed from every text that contains it by chance", n, MinLen)
	case n > MaxLen:
		return fmt.Errorf("it has %d bytes; want at most %d", n, MaxLen)
	case !utf8.ValidString(value):
		return fmt.Errorf("it is not text in UTF-8; encode it, for example in base64")
	case strings.TrimSpace(value) == "":
		return fmt.Errorf("it consists of white space")
	}
	return nil
}

// A Set removes the secrets that it was made of. It is immutable and safe for concurrent
// use. A nil *Set removes nothing.
type Set struct {
	trie *trie
}

// New returns the set of these secrets; nil if there are none. A value that [Check] refuses
// is an error, and so are too many.
func New(values ...string) (*Set, error) {
	total, b := 0, newBuilder()
	for i, v := range values {
		if err := Check(v); err != nil {
			return nil, fmt.Errorf("secret %d of %d cannot be removed from texts: %w", i+1, len(values), err)
		}
		if total += len(v); total > MaxTotal {
			return nil, fmt.Errorf("the secrets have more than %d bytes together", MaxTotal)
		}
		for _, form := range forms(v) {
			b.add(form)
		}
	}
	if len(values) == 0 {
		return nil, nil
	}
	return &Set{b.build()}, nil
}

// String returns text without the secrets.
func (s *Set) String(text string) string {
	if s == nil || len(text) < MinLen {
		return text
	}
	if !s.trie.occurs(text) {
		return text
	}
	st := stream{trie: s.trie}
	st.write([]byte(text), true)
	return string(st.out)
}

// Value returns a JSON value, as package jsonx decodes it, without the secrets: they are
// removed from its texts and names, and a number that contains one becomes a text. It never
// changes v.
func (s *Set) Value(v any) any {
	if s == nil {
		return v
	}
	switch v := v.(type) {
	case string:
		return s.String(v)
	case int64, float64:
		if text, err := jsonx.Canonical(v); err == nil {
			if short := s.String(string(text)); short != string(text) {
				return short
			}
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = s.Value(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out[s.String(name)] = s.Value(v[name])
		}
		return out
	}
	return v
}

// JSON returns canonical JSON without the secrets, as [Set.Value] removes them. What cannot
// be decoded within lim becomes the text [Mark].
func (s *Set) JSON(canonical []byte, lim jsonx.Limits) []byte {
	if s == nil {
		return canonical
	}
	v, err := jsonx.Decode(canonical, lim)
	if err == nil {
		canonical, err = jsonx.Canonical(s.Value(v))
	}
	if err != nil {
		return []byte(`"` + Mark + `"`)
	}
	return canonical
}

// A Stream removes secrets from a text that arrives in parts, also those that are split
// over several. It holds back the end of what it got while that may be the beginning of a
// secret, and so at most the longest form less one byte. It is not safe for concurrent use.
// The zero Stream removes nothing.
type Stream struct{ st stream }

// Stream returns a stream that removes the secrets of the set.
func (s *Set) Stream() *Stream {
	if s == nil {
		return &Stream{}
	}
	return &Stream{stream{trie: s.trie}}
}

// Next takes the next part, and returns what may be passed on now.
func (r *Stream) Next(part string) string {
	if r.st.trie == nil {
		return part
	}
	r.st.write([]byte(part), false)
	return r.st.take()
}

// End returns what is left when no part follows. Another text may follow then.
func (r *Stream) End() string {
	if r.st.trie == nil {
		return ""
	}
	r.st.write(nil, true)
	text := r.st.take()
	r.st = stream{trie: r.st.trie}
	return text
}

// Reader returns a reader of what r yields, without the secrets.
func (s *Set) Reader(r io.Reader) io.Reader {
	if s == nil {
		return r
	}
	return &reader{from: r, st: stream{trie: s.trie}, part: make([]byte, 32<<10)}
}

type reader struct {
	from io.Reader
	st   stream
	part []byte
	read int // how much of st.out was returned
	err  error
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	for r.read == len(r.st.out) && r.err == nil {
		r.st.out, r.read = r.st.out[:0], 0
		var n int
		n, r.err = r.from.Read(r.part)
		r.st.write(r.part[:n], r.err != nil)
	}
	if r.read == len(r.st.out) {
		return 0, r.err
	}
	n := copy(p, r.st.out[r.read:])
	r.read += n
	return n, nil
}
