// SPDX-License-Identifier: Apache-2.0

package yamlx

import (
	"bytes"
	"sort"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/jsonx"
)

// A Text is a YAML text with the offsets of its lines. YAML has more line breaks than JSON,
// and the positions of nodes follow its rules.
type Text struct {
	data   []byte
	starts []int // byte offset of each line
}

// NewText indexes the lines of data.
func NewText(data []byte) *Text {
	t := &Text{data: data, starts: make([]int, 1, 1+bytes.Count(data, []byte("\n")))}
	for i := 0; i < len(data); {
		if c := data[i]; c > '\r' && c < 0xC2 { // most bytes
			i++
			continue
		}
		if n := lineBreak(data[i:]); n > 0 {
			i += n
			t.starts = append(t.starts, i)
			continue
		}
		i++
	}
	return t
}

// lineBreak returns the length of the line break at the beginning of data, or 0.
func lineBreak(data []byte) int {
	switch data[0] {
	case '\n':
		return 1
	case '\r':
		if len(data) > 1 && data[1] == '\n' {
			return 2
		}
		return 1
	case 0xC2: // U+0085
		if bytes.HasPrefix(data, []byte("\u0085")) {
			return 2
		}
	case 0xE2:
		if bytes.HasPrefix(data, []byte("\u2028")) || bytes.HasPrefix(data, []byte("\u2029")) {
			return 3
		}
	}
	return 0
}

// Lines returns the number of lines.
func (t *Text) Lines() int { return len(t.starts) }

// Line returns line n (from 1) without its line break, or "" if there is none.
func (t *Text) Line(n int) string {
	if n < 1 || n > len(t.starts) {
		return ""
	}
	line := t.data[t.starts[n-1]:]
	if n < len(t.starts) {
		line = line[:t.starts[n]-t.starts[n-1]]
	}
	for i := max(0, len(line)-3); i < len(line); i++ { // it ends with the longest break, or a shorter one
		if lineBreak(line[i:]) > 0 {
			return string(line[:i])
		}
	}
	return string(line)
}

// Start returns the byte offset of line n (from 1), or -1 if there is none.
func (t *Text) Start(n int) int {
	if n < 1 || n > len(t.starts) {
		return -1
	}
	return t.starts[n-1]
}

// At returns the position of a byte offset.
func (t *Text) At(offset, length int) jsonx.Pos {
	line := sort.SearchInts(t.starts, offset+1)
	col := utf8.RuneCount(t.data[t.starts[line-1]:offset])
	return jsonx.Pos{Line: int32(line), Col: int32(col + 1), Len: int32(max(1, length))}
}
