// SPDX-License-Identifier: Apache-2.0

package media

import (
	"math"
	"math/bits"
)

// The Matroska and WebM elements on the way to the wanted values.
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
	mkvTimeScale = 1_000_000 // nanoseconds; the default of the format
)

// eachElement calls visit for each element of r, until it returns false.
func eachElement(r *boundedReader, visit func(id uint64, body *boundedReader) bool) {
	for off := int64(0); off < r.size; {
		head := r.upToAt(off, 12)
		id, n := ebmlNumber(head, false)
		if n == 0 || n > 4 {
			return
		}
		size, m := ebmlNumber(head[n:], true)
		if m == 0 {
			return
		}
		start := off + int64(n+m)
		if size == 1<<(7*m)-1 || size > math.MaxInt64/2 { // unknown size: the element extends to the end
			size = uint64(max(r.size-start, 0))
		}
		if !visit(id, r.section(start, int64(size))) {
			return
		}
		off = start + int64(size)
	}
}

// ebmlNumber reads a variable-length integer, whose length is given by its
// leading zero bits. n is 0 when there is none. In a size, the marker bit is
// not part of the value.
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

// uintOf returns the unsigned integer that fills r.
func uintOf(r *boundedReader) (v uint64) {
	if r.size > 8 {
		return 0
	}
	for _, c := range r.upToAt(0, 8) {
		v = v<<8 | uint64(c)
	}
	return v
}

func matroska(r *boundedReader, s *AudioVideo) {
	s.Format = "matroska"
	eachElement(r, func(id uint64, body *boundedReader) bool {
		switch id {
		case ebmlHeader:
			eachElement(body, func(id uint64, body *boundedReader) bool {
				if id == ebmlDocType && body.matchesAt(0, "webm") {
					s.Format = "webm"
				}
				return true
			})
		case mkvSegment:
			eachElement(body, func(id uint64, body *boundedReader) bool {
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

func matroskaInfo(r *boundedReader, s *AudioVideo) {
	scale, length := uint64(mkvTimeScale), 0.0
	eachElement(r, func(id uint64, body *boundedReader) bool {
		switch id {
		case mkvScale:
			scale = uintOf(body)
		case mkvDuration:
			switch v := uintOf(body); body.size {
			case 4:
				length = float64(math.Float32frombits(uint32(v)))
			case 8:
				length = math.Float64frombits(v)
			}
		}
		return true
	})
	s.Duration = durationOf(length*float64(scale), 1e9)
}

func matroskaTracks(r *boundedReader, s *AudioVideo) {
	eachElement(r, func(id uint64, track *boundedReader) bool {
		if id != mkvTrack {
			return true
		}
		eachElement(track, func(id uint64, video *boundedReader) bool {
			if id != mkvVideo {
				return true
			}
			width, height := uint64(0), uint64(0)
			eachElement(video, func(id uint64, body *boundedReader) bool {
				switch id {
				case mkvWidth:
					width = uintOf(body)
				case mkvHeight:
					height = uintOf(body)
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
