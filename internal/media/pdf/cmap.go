// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"strings"
	"unicode/utf16"

	"golang.org/x/text/encoding"

	"github.com/roux-engine/roux/internal/media/pdf/eastasian"
)

// Limits of one CMap. Ranges are stored as ranges, however wide.
const (
	maxMapEntries  = 100_000
	maxMapOperands = 4_096
)

// A codeRange maps the codes lo to hi, of n bytes, to texts that differ in
// their last character, to a list of texts, or to consecutive CIDs.
type codeRange struct {
	lo, hi uint32
	n      int
	text   []uint16
	list   []string
	cid    int
}

// A cmap is a PDF CMap: how bytes form codes, and what codes mean.
type cmap struct {
	spaces []codeRange       // codespace ranges
	chars  map[uint32]string // single codes with text
	ranges []codeRange       // ranges of codes with text
	cids   []codeRange
}

// readCMap reads the operators of a CMap. It skips unknown operators and
// damage.
func readCMap(b []byte) *cmap {
	m := &cmap{chars: map[uint32]string{}}
	l := lexer{b: b, maxArgs: maxMapOperands}
	for entries := 0; entries < maxMapEntries; {
		op, ok := l.next()
		if !ok {
			break
		}
		args := l.args
		entries += 1 + len(args)
		switch string(op) {
		case "endcodespacerange":
			for ; len(args) >= 2; args = args[2:] {
				m.spaces = append(m.spaces, codeSpan(args[0], args[1]))
			}
		case "endbfchar":
			for ; len(args) >= 2; args = args[2:] {
				m.chars[codeOf(args[0].text)] = utf16Text(args[1].text)
			}
		case "endbfrange":
			for ; len(args) >= 3; args = args[3:] {
				r := codeSpan(args[0], args[1])
				if args[2].kind == arrayOperand {
					for _, item := range args[2].items {
						r.list = append(r.list, utf16Text(item.text))
					}
					entries += len(r.list)
				} else {
					r.text = utf16Units(args[2].text)
				}
				m.ranges = append(m.ranges, r)
			}
		case "endcidchar":
			for ; len(args) >= 2; args = args[2:] {
				r := codeSpan(args[0], args[0])
				r.cid = int(args[1].num)
				m.cids = append(m.cids, r)
			}
		case "endcidrange":
			for ; len(args) >= 3; args = args[3:] {
				r := codeSpan(args[0], args[1])
				r.cid = int(args[2].num)
				m.cids = append(m.cids, r)
			}
		}
	}
	return m
}

func codeSpan(lo, hi operand) codeRange {
	return codeRange{lo: codeOf(lo.text), hi: codeOf(hi.text), n: len(lo.text)}
}

func codeOf(b []byte) uint32 {
	var c uint32
	for _, x := range b[:min(len(b), 4)] {
		c = c<<8 | uint32(x)
	}
	return c
}

func utf16Units(b []byte) []uint16 {
	if len(b) == 1 {
		return []uint16{uint16(b[0])}
	}
	u := make([]uint16, 0, len(b)/2)
	for i := 0; i+1 < len(b) && i < 64; i += 2 {
		u = append(u, uint16(b[i])<<8|uint16(b[i+1]))
	}
	return u
}

// text returns the text of a code.
func (m *cmap) text(c uint32) (string, bool) {
	if t, ok := m.chars[c]; ok {
		return t, true
	}
	for _, r := range m.ranges {
		if c < r.lo || c > r.hi {
			continue
		}
		i := c - r.lo
		if r.list != nil {
			if int(i) < len(r.list) {
				return r.list[i], true
			}
			continue
		}
		if len(r.text) == 0 {
			return "", true
		}
		u := append([]uint16(nil), r.text...)
		u[len(u)-1] += uint16(i)
		return string(utf16.Decode(u)), true
	}
	return "", false
}

// cid returns the CID of a code, by which fonts list widths.
func (m *cmap) cid(c uint32) (int, bool) {
	for _, r := range m.cids {
		if c >= r.lo && c <= r.hi {
			return r.cid + int(c-r.lo), true
		}
	}
	return 0, false
}

// length is the number of bytes of the code at the start of raw.
func (m *cmap) length(raw []byte) int {
	for n := 1; n <= 4 && n <= len(raw); n++ {
		c := codeOf(raw[:n])
		for _, s := range m.spaces {
			if s.n == n && c >= s.lo && c <= s.hi {
				return n
			}
		}
	}
	if len(m.spaces) > 0 {
		return m.spaces[0].n
	}
	return 2
}

// predefined returns how the codes of a predefined CMap are decoded: as UTF-16,
// or in a legacy encoding. It returns neither for Identity and for unknown
// names.
func predefined(name string) (utf16 bool, enc encoding.Encoding) {
	if strings.Contains(name, "UCS2") || strings.Contains(name, "UTF16") {
		return true, nil
	}
	return false, eastasian.Of(name)
}
