// SPDX-License-Identifier: Apache-2.0

package media

import "encoding/binary"

// The tags used here. EXIF data is a TIFF directory.
const (
	tagWidth        = 256
	tagHeight       = 257
	tagBits         = 258
	tagOrientation  = 274
	tagExtraSamples = 338
)

const maxTags = 512

// tags reads the first directory of a TIFF structure. For each tag whose type
// is a whole number it returns the first value. The result is nil when r holds
// no TIFF structure.
func tags(r *boundedReader) map[int]int {
	var order binary.ByteOrder
	switch string(r.bytesAt(0, 4)) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return nil
	}
	off, ok := r.uintAt(4, 4, order)
	if !ok {
		return nil
	}
	count, ok := r.uintAt(int64(off), 2, order)
	if !ok {
		return nil
	}
	dir := r.upToAt(int64(off)+2, 12*int(min(count, maxTags)))
	out := map[int]int{}
	for ; len(dir) >= 12; dir = dir[12:] {
		tag, kind, n := int(order.Uint16(dir)), order.Uint16(dir[2:]), order.Uint32(dir[4:])
		size := map[uint16]int{1: 1, 3: 2, 4: 4}[kind] // BYTE, SHORT, LONG
		if size == 0 || n == 0 {
			continue
		}
		value := dir[8:12]
		if int64(n)*int64(size) > 4 { // the value field holds an offset
			if value = r.bytesAt(int64(order.Uint32(dir[8:])), size); value == nil {
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

// orientation returns the EXIF orientation in r, from 1 to 8, or 0 when there
// is none.
func orientation(r *boundedReader) int {
	if r.matchesAt(0, "Exif\x00\x00") { // some writers of PNG and WebP keep JPEG's prefix
		r = r.section(6, r.size)
	}
	if o := tags(r)[tagOrientation]; o >= 1 && o <= 8 {
		return o
	}
	return 0
}
