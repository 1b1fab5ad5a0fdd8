// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"bytes"
	"encoding/binary"
)

// Operators of a CFF dictionary, and limits.
const (
	cffCharset     = 15
	cffEncoding    = 16
	cffCharStrings = 17
	cffStrings     = 391 // number of standard strings; those of the font follow
	cffOperands    = 48
)

// cffStandardTexts are the texts of the CFF standard strings: the glyphs of the
// standard encoding in its order, further glyphs of Latin languages, and the
// ligatures of expert fonts.
var cffStandardTexts = func() (texts [cffStrings]string) {
	sid := 1
	for _, text := range standard {
		if text != "" {
			texts[sid] = text
			sid++
		}
	}
	for _, r := range "¹¬µ™Ð½±Þ¼÷¦°þ¾²®−ð×³©ÁÂÄÀÅÃÇÉÊËÈÍÎÏÌÑÓÔÖÒÕŠÚÛÜÙÝŸŽáâäàåãçéêëèíîïìñóôöòõšúûüùýÿž" {
		texts[sid] = string(r)
		sid++
	}
	texts[266], texts[267], texts[268] = "ﬀ", "ﬃ", "ﬄ"
	return texts
}()

// cffBuiltInEncoding reads the built-in encoding of a CFF font program, which
// may be inside an OpenType file. Every count in it has at most 16 bits, so a
// false one costs at most 65,536 steps.
func cffBuiltInEncoding(enc *simpleEncoding, program []byte) {
	program = cffTable(program)
	if len(program) < 4 || program[0] != 1 {
		return
	}
	_, rest, ok := readCFFIndex(program, int(program[2])) // Name INDEX
	if !ok {
		return
	}
	tops, rest, ok := readCFFIndex(program, rest)
	if !ok || tops.count == 0 {
		return
	}
	strings, _, ok := readCFFIndex(program, rest)
	if !ok {
		return
	}
	top := readCFFDict(tops.item(0))
	at := top[cffEncoding]
	if at <= 1 || at >= len(program) { // 0 and 1 are predefined encodings
		return
	}
	shapes, _, ok := readCFFIndex(program, top[cffCharStrings])
	if !ok {
		return
	}
	names := readCFFCharset(program, top[cffCharset], shapes.count)
	textOf := func(sid int) string {
		if sid < cffStrings {
			return cffStandardTexts[sid]
		}
		return glyphText(string(strings.item(sid - cffStrings)))
	}
	readCFFEncoding(program[at:], func(code, glyph int) {
		if glyph < len(names) {
			if t := textOf(names[glyph]); t != "" {
				enc[code] = t
			}
		}
	}, func(code, sid int) {
		if t := textOf(sid); t != "" {
			enc[code] = t
		}
	})
}

// cffTable finds the CFF font inside an OpenType file. Other programs are
// returned unchanged.
func cffTable(program []byte) []byte {
	if !bytes.HasPrefix(program, []byte("OTTO")) || len(program) < 12 {
		return program
	}
	for i := range int(binary.BigEndian.Uint16(program[4:])) {
		entry := 12 + 16*i
		if entry+16 > len(program) {
			return nil
		}
		if string(program[entry:entry+4]) == "CFF " {
			return program[min(int(binary.BigEndian.Uint32(program[entry+8:])), len(program)):]
		}
	}
	return nil
}

// A cffIndex is a CFF INDEX: a list of byte strings.
type cffIndex struct {
	count   int
	size    int    // of an offset, in bytes
	offsets []byte // count+1 of them
	data    []byte // offsets count from 1 at its start
}

// readCFFIndex reads the INDEX at an offset, and returns the offset after it.
func readCFFIndex(program []byte, at int) (list cffIndex, after int, ok bool) {
	if at < 0 || at+2 > len(program) {
		return list, 0, false
	}
	list.count = int(binary.BigEndian.Uint16(program[at:]))
	if list.count == 0 {
		return list, at + 2, true
	}
	if at+3 > len(program) {
		return list, 0, false
	}
	list.size = int(program[at+2])
	from := at + 3
	end := from + (list.count+1)*list.size
	if list.size < 1 || list.size > 4 || end > len(program) {
		return list, 0, false
	}
	list.offsets, list.data = program[from:end], program[end:]
	last := list.offset(list.count)
	return list, end + last - 1, last >= 1 && last-1 <= len(list.data)
}

func (l cffIndex) offset(i int) int {
	n := 0
	for _, b := range l.offsets[i*l.size : (i+1)*l.size] {
		n = n<<8 | int(b)
	}
	return n
}

func (l cffIndex) item(i int) []byte {
	if i < 0 || i >= l.count {
		return nil
	}
	from, to := l.offset(i)-1, l.offset(i+1)-1
	if from < 0 || to < from || to > len(l.data) {
		return nil
	}
	return l.data[from:to]
}

// readCFFDict reads the one-byte operators whose operand is an integer.
func readCFFDict(data []byte) map[int]int {
	out := map[int]int{}
	var operands []int
	for i := 0; i < len(data); {
		b := int(data[i])
		n, size := 0, 1
		switch {
		case b == 12: // a two-byte operator
			operands, i = nil, i+2
			continue
		case b <= 21:
			if len(operands) > 0 {
				out[b] = operands[len(operands)-1]
			}
			operands, i = nil, i+1
			continue
		case b == 28 && i+3 <= len(data):
			n, size = int(int16(binary.BigEndian.Uint16(data[i+1:]))), 3
		case b == 29 && i+5 <= len(data):
			n, size = int(int32(binary.BigEndian.Uint32(data[i+1:]))), 5
		case b == 30: // a real number ends with the nibble 15
			for i+size < len(data) && data[i+size]&0x0F != 0x0F && data[i+size]>>4 != 0x0F {
				size++
			}
			size++
		case b >= 32 && b <= 246:
			n = b - 139
		case b >= 247 && b <= 250 && i+2 <= len(data):
			n, size = (b-247)*256+int(data[i+1])+108, 2
		case b >= 251 && b <= 254 && i+2 <= len(data):
			n, size = -(b-251)*256-int(data[i+1])-108, 2
		}
		if len(operands) < cffOperands {
			operands = append(operands, n)
		}
		i += size
	}
	return out
}

// readCFFCharset returns the string number of each glyph's name.
func readCFFCharset(program []byte, at, count int) []int {
	names := make([]int, 1, max(count, 1)) // glyph 0 is .notdef
	if at <= 2 {
		for sid := 1; sid < min(count, 229) && at == 0; sid++ {
			names = append(names, sid)
		}
		return names
	}
	if at >= len(program) {
		return names
	}
	format, data := program[at], program[at+1:]
	size := 2 + int(format)
	for format <= 2 && len(names) < count && len(data) >= size {
		sid, more := int(binary.BigEndian.Uint16(data)), 0
		switch format {
		case 1:
			more = int(data[2])
		case 2:
			more = int(binary.BigEndian.Uint16(data[2:]))
		}
		for ; more >= 0 && len(names) < count; more-- {
			names = append(names, sid)
			sid++
		}
		data = data[size:]
	}
	return names
}

// readCFFEncoding calls glyph for each code with its glyph, and name for each
// supplementary code with the string number of its name.
func readCFFEncoding(data []byte, glyph, name func(code, n int)) {
	if len(data) < 2 {
		return
	}
	format, count := data[0], int(data[1])
	data = data[2:]
	next := 1
	size := 1 + int(format&0x7F)
	if size > 2 {
		return
	}
	for ; count > 0 && len(data) >= size; count-- {
		first, more := int(data[0]), 0
		if size == 2 {
			more = int(data[1])
		}
		for code := first; code <= first+more; code++ {
			if code < 256 {
				glyph(code, next)
			}
			next++
		}
		data = data[size:]
	}
	if format&0x80 == 0 || len(data) == 0 {
		return
	}
	count, data = int(data[0]), data[1:]
	for ; count > 0 && len(data) >= 3; count-- {
		name(int(data[0]), int(binary.BigEndian.Uint16(data[1:])))
		data = data[3:]
	}
}
