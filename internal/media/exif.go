// SPDX-License-Identifier: Apache-2.0

package media

import "encoding/binary"

// The tags of a TIFF directory that matter here; EXIF is such a directory.
const (
	tagWidth        = 256
	tagHeight       = 257
	tagBits         = 258
	tagOrientation  = 274
	tagExtraSamples = 338
)

const maxTags = 512

// tags reads the first directory of a TIFF structure: the first value of each
// tag that is a whole number. nil = w is none.
func tags(w *window) map[int]int {
	var order binary.ByteOrder
	switch string(w.at(0, 4)) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return nil
	}
	off, ok := w.number(4, 4, order)
	if !ok {
		return nil
	}
	count, ok := w.number(int64(off), 2, order)
	if !ok {
		return nil
	}
	dir := w.upTo(int64(off)+2, 12*int(min(count, maxTags)))
	out := map[int]int{}
	for ; len(dir) >= 12; dir = dir[12:] {
		tag, kind, n := int(order.Uint16(dir)), order.Uint16(dir[2:]), order.Uint32(dir[4:])
		size := map[uint16]int{1: 1, 3: 2, 4: 4}[kind] // bytes, shorts, longs
		if size == 0 || n == 0 {
			continue
		}
		value := dir[8:12]
		if int64(n)*int64(size) > 4 { // the values are elsewhere
			if value = w.at(int64(order.Uint32(dir[8:])), size); value == nil {
				continue
			}
		}
		switch size {
		case 1:
			out[tag] = int(value[0])
		case 2:
			out[tag] = int(order.Uint16(value))
		case 4:
			out[tag] = int(order.Uint32(value))
		}
	}
	return out
}

// orientation is the EXIF orientation in w, from 1 to 8; 0 = it says none.
func orientation(w *window) int {
	if w.is(0, "Exif\x00\x00") { // some writers of PNG and WebP keep JPEG's mark
		w = w.part(6, w.size)
	}
	if o := tags(w)[tagOrientation]; o >= 1 && o <= 8 {
		return o
	}
	return 0
}
