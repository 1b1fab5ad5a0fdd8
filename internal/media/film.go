// SPDX-License-Identifier: Apache-2.0

package media

import (
	"math"
	"math/bits"
)

// Films are boxes in boxes. Only the boxes that lead to what is wanted are
// opened, to a depth that is written here, and the window bounds how many are
// looked at.

// boxes calls visit for each box of w, until it returns false.
func boxes(w *window, visit func(kind string, body *window) bool) {
	for off := int64(0); ; {
		head := w.at(off, 8)
		if head == nil {
			return
		}
		n, skip := int64(big.Uint32(head)), int64(8)
		switch n {
		case 0: // up to the end
			n = w.size - off
		case 1: // the size follows, in 64 bits
			wide, ok := w.number(off+8, 8, big)
			if !ok || wide > math.MaxInt64/2 {
				return
			}
			n, skip = int64(wide), 16
		}
		if n < skip || !visit(string(head[4:]), w.part(off+skip, n-skip)) {
			return
		}
		off += n
	}
}

// mp4 reads MP4, M4A and QuickTime.
func mp4(w *window, s *Sound) {
	s.Format = "mp4"
	if !w.is(4, "ftyp") || w.is(8, "qt  ") {
		s.Format = "quicktime"
	}
	boxes(w, func(kind string, moov *window) bool {
		if kind != "moov" {
			return true
		}
		perSecond := uint64(0)
		boxes(moov, func(kind string, body *window) bool {
			switch kind {
			case "mvhd":
				perSecond = movieHeader(body, s)
			case "trak":
				boxes(body, func(kind string, body *window) bool {
					if kind == "tkhd" {
						trackHeader(body, s)
					}
					return kind != "tkhd"
				})
			case "mvex": // in fragments, each with a length of its own
				boxes(body, func(kind string, body *window) bool {
					if kind == "mehd" && s.Duration == 0 {
						s.Duration = lasting(versioned(body, 4, 4), float64(perSecond))
					}
					return kind != "mehd"
				})
			}
			return true
		})
		return false
	})
}

// versioned reads a number of a box that has 64 bits in version 1, where it is
// shifted by as many bytes as the numbers before it have grown.
func versioned(w *window, off, offWide int64) float64 {
	version, _ := w.number(0, 1, big)
	if version == 1 {
		n, _ := w.number(offWide, 8, big)
		return known(n, math.MaxUint64)
	}
	n, _ := w.number(off, 4, big)
	return known(n, math.MaxUint32)
}

// known is n, or 0 for the number that stands for none.
func known(n, none uint64) float64 {
	if n == none {
		return 0
	}
	return float64(n)
}

func movieHeader(w *window, s *Sound) (perSecond uint64) {
	at := int64(12)
	if version, _ := w.number(0, 1, big); version == 1 {
		at = 20
	}
	perSecond, _ = w.number(at, 4, big)
	s.Duration = lasting(versioned(w, 16, 24), float64(perSecond))
	return perSecond
}

// trackHeader takes width and height, which end the box; sound has none. The
// largest track is the film.
func trackHeader(w *window, s *Sound) {
	b := w.at(w.size-8, 8)
	if b == nil {
		return
	}
	width, height := int(big.Uint16(b)), int(big.Uint16(b[4:])) // 16.16
	if width*height > s.Width*s.Height {
		s.Width, s.Height = width, height
	}
}

// The elements of Matroska and WebM that lead to what is wanted.
const (
	ebmlHeader   = 0x1a45dfa3
	ebmlDocType  = 0x4282
	mkvSegment   = 0x18538067
	mkvInfo      = 0x1549a966
	mkvScale     = 0x2ad7b1
	mkvDuration  = 0x4489
	mkvTracks    = 0x1654ae6b
	mkvTrack     = 0xae
	mkvVideo     = 0xe0
	mkvWidth     = 0xb0
	mkvHeight    = 0xba
	mkvCluster   = 0x1f43b675
	mkvTimeScale = 1_000_000 // nanoseconds, where the file says none
)

// elements calls visit for each element of w, until it returns false.
func elements(w *window, visit func(id uint64, body *window) bool) {
	for off := int64(0); off < w.size; {
		head := w.upTo(off, 12)
		id, n := ebmlNumber(head, false)
		if n == 0 || n > 4 {
			return
		}
		size, m := ebmlNumber(head[n:], true)
		if m == 0 {
			return
		}
		start := off + int64(n+m)
		if size == 1<<(7*m)-1 || size > math.MaxInt64/2 { // unknown: up to the end
			size = uint64(max(w.size-start, 0))
		}
		if !visit(id, w.part(start, int64(size))) {
			return
		}
		off = start + int64(size)
	}
}

// ebmlNumber reads a number whose leading zeros tell its length; 0 bytes = none.
// In a size the bit that ends them does not count.
func ebmlNumber(b []byte, size bool) (v uint64, n int) {
	if len(b) == 0 || b[0] == 0 {
		return 0, 0
	}
	n = bits.LeadingZeros8(b[0]) + 1
	if len(b) < n {
		return 0, 0
	}
	v = uint64(b[0])
	if size {
		v &= 1<<(8-n) - 1
	}
	for _, c := range b[1:n] {
		v = v<<8 | uint64(c)
	}
	return v, n
}

// whole is the unsigned integer that fills w.
func whole(w *window) (v uint64) {
	if w.size > 8 {
		return 0
	}
	for _, c := range w.upTo(0, 8) {
		v = v<<8 | uint64(c)
	}
	return v
}

func matroska(w *window, s *Sound) {
	s.Format = "matroska"
	elements(w, func(id uint64, body *window) bool {
		switch id {
		case ebmlHeader:
			elements(body, func(id uint64, body *window) bool {
				if id == ebmlDocType && body.is(0, "webm") {
					s.Format = "webm"
				}
				return true
			})
		case mkvSegment:
			elements(body, func(id uint64, body *window) bool {
				switch id {
				case mkvInfo:
					matroskaInfo(body, s)
				case mkvTracks:
					matroskaTracks(body, s)
				}
				return id != mkvCluster
			})
			return false
		}
		return true
	})
}

func matroskaInfo(w *window, s *Sound) {
	scale, length := uint64(mkvTimeScale), 0.0
	elements(w, func(id uint64, body *window) bool {
		switch id {
		case mkvScale:
			scale = whole(body)
		case mkvDuration:
			switch v := whole(body); body.size {
			case 4:
				length = float64(math.Float32frombits(uint32(v)))
			case 8:
				length = math.Float64frombits(v)
			}
		}
		return true
	})
	s.Duration = lasting(length*float64(scale), 1e9)
}

func matroskaTracks(w *window, s *Sound) {
	elements(w, func(id uint64, track *window) bool {
		if id != mkvTrack {
			return true
		}
		elements(track, func(id uint64, video *window) bool {
			if id != mkvVideo {
				return true
			}
			width, height := uint64(0), uint64(0)
			elements(video, func(id uint64, body *window) bool {
				switch id {
				case mkvWidth:
					width = whole(body)
				case mkvHeight:
					height = whole(body)
				}
				return true
			})
			if width < 1<<16 && height < 1<<16 && int(width*height) > s.Width*s.Height {
				s.Width, s.Height = int(width), int(height)
			}
			return true
		})
		return true
	})
}
