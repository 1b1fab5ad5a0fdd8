// SPDX-License-Identifier: Apache-2.0

package media

import (
	"encoding/binary"
	"hash/crc32"
)

var (
	little = binary.LittleEndian
	big    = binary.BigEndian
)

// jpegHeader walks the segments up to the frame header.
func jpegHeader(r *boundedReader, info *Image) bool {
	info.Format = "jpeg"
	for off := int64(2); ; {
		mark := r.bytesAt(off, 4)
		if mark == nil || mark[0] != 0xff {
			return false
		}
		kind, n := mark[1], int64(big.Uint16(mark[2:]))
		switch {
		case kind == 0xff: // fill byte
			off++
			continue
		case kind == 0x01 || kind >= 0xd0 && kind <= 0xd7: // a marker without a length
			off += 2
			continue
		case n < 2 || kind == 0xd9 || kind == 0xda: // the pixel data starts, or the file ends, without a frame header
			return false
		case kind == 0xe1 && info.Orientation == 0 && r.matchesAt(off+4, "Exif\x00\x00"):
			info.Orientation = orientation(r.section(off+4, n-2))
		case kind >= 0xc0 && kind <= 0xcf && kind != 0xc4 && kind != 0xc8 && kind != 0xcc:
			return jpegFrame(r.section(off+4, n-2), kind, info)
		}
		off += 2 + n
	}
}

func jpegFrame(r *boundedReader, kind byte, info *Image) bool {
	b := r.bytesAt(0, 6)
	if b == nil {
		return false
	}
	info.Height, info.Width = int(big.Uint16(b[1:])), int(big.Uint16(b[3:]))
	info.progressive = kind == 0xc2
	samples := r.bytesAt(6, 3*int(b[5]))
	if len(samples) < 3 {
		return samples != nil
	}
	// The first component has the most samples; otherwise the ratio of the others
	// would be higher.
	of := func(i int) int { return int(samples[3*i+1]>>4) * int(samples[3*i+1]&15) }
	first := max(of(0), 1)
	for i := 1; i < int(b[5]); i++ {
		info.chroma += (4*of(i) + first - 1) / first
	}
	return true
}

// pngHeader reads IHDR, then scans the chunks for further facts.
func pngHeader(r *boundedReader, info *Image) bool {
	info.Format = "png"
	head := r.bytesAt(8, 25)
	if head == nil || string(head[4:8]) != "IHDR" {
		return false
	}
	width, height := big.Uint32(head[8:]), big.Uint32(head[12:])
	if width>>31 != 0 || height>>31 != 0 {
		return false
	}
	info.Width, info.Height = int(width), int(height)
	info.deep, info.Alpha = head[16] == 16, head[17] == 4 || head[17] == 6
	info.Damaged = crc32.ChecksumIEEE(head[4:21]) != big.Uint32(head[21:])
	for off := int64(33); ; {
		chunk := r.bytesAt(off, 8)
		if chunk == nil {
			return true
		}
		n := int64(big.Uint32(chunk))
		switch string(chunk[4:]) {
		case "tRNS":
			info.Alpha = true
		case "acTL":
			info.Animated = true
		case "eXIf":
			info.Orientation = orientation(r.section(off+8, n))
		case "IEND":
			return true
		}
		off += 12 + n
	}
}

// gifHeader reads the size of the logical screen, then the blocks of the first
// MiB.
func gifHeader(r *boundedReader, info *Image) bool {
	info.Format = "gif"
	b := r.upToAt(0, 1<<20)
	if len(b) < 13 {
		return false
	}
	info.Width, info.Height = int(little.Uint16(b[6:])), int(little.Uint16(b[8:]))
	b = skip(b[10:], 3+colourTableSize(b[10]))
	for frames := 0; len(b) > 9; {
		switch b[0] {
		case 0x21: // extension
			if b[1] == 0xf9 && b[3]&1 != 0 {
				info.Alpha = true
			}
			b = skipBlocks(b[2:])
		case 0x2c: // frame
			if frames++; frames > 1 {
				info.Animated = true
				return true
			}
			b = skipBlocks(skip(b, 10+colourTableSize(b[9])+1))
		default:
			return true
		}
	}
	return true
}

// colourTableSize is the size in bytes of the colour table that flags announce.
func colourTableSize(flags byte) int {
	if flags&0x80 == 0 {
		return 0
	}
	return 3 << (flags&7 + 1)
}

func skip(b []byte, n int) []byte { return b[min(n, len(b)):] }

// skipBlocks skips data sub-blocks up to and including the empty one that ends
// them.
func skipBlocks(b []byte) []byte {
	for len(b) > 0 && b[0] != 0 {
		b = skip(b, 1+int(b[0]))
	}
	return skip(b, 1)
}

func bmpHeader(r *boundedReader, info *Image) bool {
	info.Format = "bmp"
	b := r.bytesAt(14, 16)
	if b == nil {
		return false
	}
	if little.Uint32(b) == 12 { // BITMAPCOREHEADER, the oldest header
		info.Width, info.Height = int(little.Uint16(b[4:])), int(little.Uint16(b[6:]))
		return true
	}
	width, height := int64(int32(little.Uint32(b[4:]))), int64(int32(little.Uint32(b[8:])))
	info.Width, info.Height = int(width), int(max(height, -height)) // negative: rows are stored from the top
	info.Alpha = little.Uint16(b[14:]) == 32
	return true
}

func tiffHeader(r *boundedReader, info *Image) bool {
	info.Format = "tiff"
	t := tags(r)
	info.Width, info.Height = t[tagWidth], t[tagHeight]
	if o := t[tagOrientation]; o >= 1 && o <= 8 {
		info.Orientation = o
	}
	_, extra := t[tagExtraSamples]
	info.Alpha, info.deep = extra, t[tagBits] == 16
	return t != nil
}

// webpHeader walks the chunks. VP8X describes the whole file, VP8 and VP8L only
// themselves; EXIF comes last.
func webpHeader(r *boundedReader, info *Image) bool {
	info.Format = "webp"
	found := false
	for off := int64(12); ; {
		head := r.bytesAt(off, 8)
		if head == nil {
			return found
		}
		n := int64(little.Uint32(head[4:]))
		switch string(head[:4]) {
		case "VP8X":
			b := r.bytesAt(off+8, 10)
			if b == nil {
				return false
			}
			info.Alpha, info.Animated = b[0]&0x10 != 0, b[0]&0x02 != 0
			info.Width = 1 + (int(b[4]) | int(b[5])<<8 | int(b[6])<<16)
			info.Height = 1 + (int(b[7]) | int(b[8])<<8 | int(b[9])<<16)
			found = true
		case "VP8 ":
			b := r.bytesAt(off+8, 10)
			if !found && (b == nil || string(b[3:6]) != "\x9d\x01\x2a") {
				return false
			}
			if !found {
				info.Width, info.Height = int(little.Uint16(b[6:])&0x3fff), int(little.Uint16(b[8:])&0x3fff)
				return true
			}
		case "VP8L":
			b := r.bytesAt(off+8, 5)
			if !found && (b == nil || b[0] != 0x2f) {
				return false
			}
			if !found {
				bits := little.Uint32(b[1:])
				info.Width, info.Height = 1+int(bits&0x3fff), 1+int(bits>>14&0x3fff)
				info.Alpha = bits>>28&1 != 0
				return true
			}
		case "EXIF":
			info.Orientation = orientation(r.section(off+8, n))
		}
		off += 8 + n + n&1
	}
}
