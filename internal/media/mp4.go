// SPDX-License-Identifier: Apache-2.0

package media

import "math"

// An MP4 file is a tree of boxes. Only the boxes on the way to the wanted
// values are opened, to a fixed depth, and boundedReader limits how many are
// read.

// eachBox calls visit for each box of r, until it returns false.
func eachBox(r *boundedReader, visit func(kind string, body *boundedReader) bool) {
	for off := int64(0); ; {
		head := r.bytesAt(off, 8)
		if head == nil {
			return
		}
		n, skip := int64(big.Uint32(head)), int64(8)
		switch n {
		case 0: // the box extends to the end
			n = r.size - off
		case 1: // the size follows, in 64 bits
			wide, ok := r.uintAt(off+8, 8, big)
			if !ok || wide > math.MaxInt64/2 {
				return
			}
			n, skip = int64(wide), 16
		}
		if n < skip || !visit(string(head[4:]), r.section(off+skip, n-skip)) {
			return
		}
		off += n
	}
}

// mp4 reads MP4, M4A and QuickTime.
func mp4(r *boundedReader, s *AudioVideo) {
	s.Format = "mp4"
	if !r.matchesAt(4, "ftyp") || r.matchesAt(8, "qt  ") {
		s.Format = "quicktime"
	}
	eachBox(r, func(kind string, moov *boundedReader) bool {
		if kind != "moov" {
			return true
		}
		perSecond := uint64(0)
		eachBox(moov, func(kind string, body *boundedReader) bool {
			switch kind {
			case "mvhd":
				perSecond = movieHeader(body, s)
			case "trak":
				eachBox(body, func(kind string, body *boundedReader) bool {
					if kind == "tkhd" {
						trackHeader(body, s)
					}
					return kind != "tkhd"
				})
			case "mvex": // a fragmented file; each fragment has its own length
				eachBox(body, func(kind string, body *boundedReader) bool {
					if kind == "mehd" && s.Duration == 0 {
						s.Duration = durationOf(versionedField(body, 4, 4), float64(perSecond))
					}
					return kind != "mehd"
				})
			}
			return true
		})
		return false
	})
}

// versionedField reads a number that has 32 bits at off in version 0 of a box,
// and 64 bits at offWide in version 1.
func versionedField(r *boundedReader, off, offWide int64) float64 {
	version, _ := r.uintAt(0, 1, big)
	if version == 1 {
		n, _ := r.uintAt(offWide, 8, big)
		return zeroIfUnknown(n, math.MaxUint64)
	}
	n, _ := r.uintAt(off, 4, big)
	return zeroIfUnknown(n, math.MaxUint32)
}

// zeroIfUnknown returns n, or 0 when n is the value that means "unknown".
func zeroIfUnknown(n, none uint64) float64 {
	if n == none {
		return 0
	}
	return float64(n)
}

func movieHeader(r *boundedReader, s *AudioVideo) (perSecond uint64) {
	at := int64(12)
	if version, _ := r.uintAt(0, 1, big); version == 1 {
		at = 20
	}
	perSecond, _ = r.uintAt(at, 4, big)
	s.Duration = durationOf(versionedField(r, 16, 24), float64(perSecond))
	return perSecond
}

// trackHeader reads width and height, which end the box; both are 0 for audio.
// The largest track counts.
func trackHeader(r *boundedReader, s *AudioVideo) {
	b := r.bytesAt(r.size-8, 8)
	if b == nil {
		return
	}
	width, height := int(big.Uint16(b)), int(big.Uint16(b[4:])) // 16.16
	if width*height > s.Width*s.Height {
		s.Width, s.Height = width, height
	}
}
