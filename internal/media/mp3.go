// SPDX-License-Identifier: Apache-2.0

package media

// An mpegFrame is the header of one frame of MPEG audio.
type mpegFrame struct {
	rate    int // samples per second
	bits    int // bits per second
	samples int // in the frame
	size    int // bytes, with the header
	side    int // bytes of side information
}

// bitRates are indexed by version, layer and the header's index, in 1,000 bits
// per second; 0 = not a fixed rate.
var bitRates = map[[2]int][16]int{
	{1, 1}: {0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448, 0},
	{1, 2}: {0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 0},
	{1, 3}: {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0},
	{2, 1}: {0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256, 0},
	{2, 2}: {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0},
	{2, 3}: {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0},
}

// mpegHeader reads the four bytes that start a frame.
func mpegHeader(b []byte) (f mpegFrame, ok bool) {
	if len(b) < 4 || b[0] != 0xff || b[1]&0xe0 != 0xe0 {
		return f, false
	}
	version, layer := int(b[1]>>3&3), 4-int(b[1]>>1&3)
	index := int(b[2] >> 2 & 3)
	if version == 1 || layer == 4 || index == 3 {
		return f, false
	}
	f.rate = []int{44_100, 48_000, 32_000}[index]
	low := 1
	switch version {
	case 2: // MPEG 2
		f.rate, low = f.rate/2, 2
	case 0: // MPEG 2.5
		f.rate, low = f.rate/4, 2
	}
	f.bits = 1_000 * bitRates[[2]int{low, layer}][b[2]>>4]
	if f.bits == 0 {
		return f, false
	}
	padding := int(b[2] >> 1 & 1)
	switch {
	case layer == 1:
		f.samples, f.size = 384, 4*(12*f.bits/f.rate+padding)
	case layer == 3 && low == 2:
		f.samples, f.size = 576, 72*f.bits/f.rate+padding
	default:
		f.samples, f.size = 1_152, 144*f.bits/f.rate+padding
	}
	mono := b[3]>>6 == 3
	switch {
	case low == 1 && !mono:
		f.side = 32
	case low == 2 && mono:
		f.side = 9
	default:
		f.side = 17
	}
	return f, f.size > 4
}

// mp3 looks for the first frame that is followed by another, and for the table
// with the number of frames. Without that table, all frames are assumed to be
// like the first.
func mp3(r *boundedReader, tagged bool, s *AudioVideo) {
	reach := 4 << 10 // how much junk may precede the first frame
	if !tagged {
		reach = 1
	}
	b := r.upToAt(0, reach+4)
	for at := 0; at+4 <= len(b); at++ {
		f, ok := mpegHeader(b[at:])
		if !ok {
			continue
		}
		if _, ok := mpegHeader(r.bytesAt(int64(at+f.size), 4)); !ok {
			continue
		}
		s.Format = "mp3"
		frame := r.section(int64(at), int64(f.size))
		if frames := frameCount(frame, f); frames > 0 {
			s.Duration = durationOf(float64(frames)*float64(f.samples), float64(f.rate))
			return
		}
		bytes := r.size - int64(at)
		if r.matchesAt(r.size-128, "TAG") {
			bytes -= 128
		}
		s.Duration = durationOf(8*float64(bytes), float64(f.bits))
		s.Estimated = s.Duration > 0
		return
	}
}

// frameCount reads the number of frames from the table in the first frame: Xing
// (Info for a constant bit rate) or VBRI. It returns 0 when there is none.
func frameCount(r *boundedReader, f mpegFrame) uint64 {
	off := int64(4 + f.side)
	if r.matchesAt(off, "Xing") || r.matchesAt(off, "Info") {
		if flags, ok := r.uintAt(off+4, 4, big); ok && flags&1 != 0 {
			n, _ := r.uintAt(off+8, 4, big)
			return n
		}
		return 0
	}
	if r.matchesAt(4+32, "VBRI") {
		n, _ := r.uintAt(4+32+14, 4, big)
		return n
	}
	return 0
}
