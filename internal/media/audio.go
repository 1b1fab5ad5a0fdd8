// SPDX-License-Identifier: Apache-2.0

package media

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/roux-engine/roux/fault"
)

// ErrUnknownAudioVideo reports that a file is not in an audio or video format
// known here. It does not mean damage.
var ErrUnknownAudioVideo = errors.New("unknown audio or video format")

// AudioVideo holds what the header of an audio or video file states.
type AudioVideo struct {
	Format string // wav, mp3, flac, ogg, mp4, quicktime, matroska or webm
	// Duration is 0 when the header does not state it.
	Duration time.Duration
	// Estimated is set when Duration was computed from the file's size and bit
	// rate.
	Estimated bool
	// Width and Height are in pixels as stored; 0 = no video, or not stated.
	Width, Height int
}

// AudioVideoInfo reads the header of an audio or video file of size bytes, in a
// few small reads. Values that the header does not state, or states wrongly,
// are left out without an error. A file in no known format is
// ErrUnknownAudioVideo; an error of src is returned as it is.
func AudioVideoInfo(src io.ReaderAt, size int64) (s AudioVideo, err error) {
	r := newBoundedReader(src, size)
	defer func() {
		if v := recover(); v != nil {
			s, err = AudioVideo{}, fault.Wrap(fault.FileInvalid, fmt.Errorf("panic: %v", v), "the header of the file is damaged")
		}
	}()
	// Some programs put MP3 tags in front of any format.
	start := int64(0)
	if b := r.bytesAt(0, 10); b != nil && string(b[:3]) == "ID3" {
		start = 10 + int64(b[6]&0x7f)<<21 + int64(b[7]&0x7f)<<14 + int64(b[8]&0x7f)<<7 + int64(b[9]&0x7f)
		if b[5]&0x10 != 0 { // the tag has a footer
			start += 10
		}
	}
	body := r.section(start, size)
	head := string(body.upToAt(0, 16))
	is := func(off int, mark string) bool { return len(head) >= off+len(mark) && head[off:off+len(mark)] == mark }
	switch {
	case (is(0, "RIFF") || is(0, "RF64")) && is(8, "WAVE"):
		wav(body, &s)
	case is(0, "fLaC"):
		flac(body.section(4, size), &s)
	case is(0, "OggS"):
		ogg(body, &s)
	case is(4, "ftyp") || is(4, "moov") || is(4, "mdat") || is(4, "wide"):
		mp4(body, &s)
	case is(0, "\x1a\x45\xdf\xa3"):
		matroska(body, &s)
	default:
		mp3(body, start > 0, &s)
	}
	if r.budget.err != nil {
		return AudioVideo{}, r.budget.err
	}
	if s.Format == "" {
		return AudioVideo{}, ErrUnknownAudioVideo
	}
	return s, nil
}

// maxDuration is the longest duration that is believed.
const maxDuration = 10 * 365 * 24 * time.Hour

// durationOf returns units/perSecond seconds, or 0 when that is implausible.
func durationOf(units, perSecond float64) time.Duration {
	seconds := units / perSecond
	if perSecond <= 0 || units <= 0 || math.IsNaN(seconds) || seconds > maxDuration.Seconds() {
		return 0
	}
	return time.Duration(math.Round(seconds * float64(time.Second)))
}

// wav walks the chunks of a WAV file: "fmt " holds the bytes per second, "data"
// the number of bytes.
func wav(r *boundedReader, s *AudioVideo) {
	s.Format = "wav"
	var perSecond, wide uint64
	for off := int64(12); ; {
		head := r.bytesAt(off, 8)
		if head == nil {
			return
		}
		n := uint64(little.Uint32(head[4:]))
		switch string(head[:4]) {
		case "fmt ":
			perSecond, _ = r.uintAt(off+16, 4, little)
		case "ds64": // RF64: the size of data beyond 4 GiB
			wide, _ = r.uintAt(off+16, 8, little)
		case "data":
			there := uint64(r.size - off - 8)
			switch {
			case n == math.MaxUint32 && wide > 0:
				n = wide
			case n == 0 || n == math.MaxUint32: // written to a pipe, so its size was unknown
				n, s.Estimated = there, true
			}
			s.Duration = durationOf(float64(n), float64(perSecond))
			s.Estimated = s.Estimated && s.Duration > 0
			return
		}
		off += 8 + int64(n+n&1)
	}
}

// flac reads STREAMINFO, which is always first.
func flac(r *boundedReader, s *AudioVideo) {
	s.Format = "flac"
	if b := r.bytesAt(0, 4+18); b != nil && b[0]&0x7f == 0 {
		rate := uint64(b[14])<<12 | uint64(b[15])<<4 | uint64(b[16])>>4
		samples := uint64(b[17]&15)<<32 | uint64(big.Uint32(b[18:]))
		s.Duration = durationOf(float64(samples), float64(rate))
	}
}

// maxPage is the size of the largest Ogg page, header included.
const maxPage = 27 + 255 + 255*255

// ogg reads the sample rate from the first page, and the number of samples from
// the last page of the same stream.
func ogg(r *boundedReader, s *AudioVideo) {
	s.Format = "ogg"
	page := r.upToAt(0, 27+255+64)
	if len(page) < 28 || len(page) < 27+int(page[26]) {
		return
	}
	serial, codec := string(page[14:18]), string(page[27+int(page[26]):])
	has := func(mark string, n int) bool { return len(codec) >= n && codec[:len(mark)] == mark }
	var rate, skip uint64
	switch {
	case has("\x01vorbis", 16):
		rate = uint64(little.Uint32([]byte(codec[12:])))
	case has("OpusHead", 12):
		rate, skip = 48_000, uint64(little.Uint16([]byte(codec[10:])))
	case has("Speex   ", 40):
		rate = uint64(little.Uint32([]byte(codec[36:])))
	case has("\x7fFLAC", 13+4+18):
		b := codec[13+4:]
		rate = uint64(b[10])<<12 | uint64(b[11])<<4 | uint64(b[12])>>4
	default:
		return
	}
	end := r.upToAt(max(0, r.size-2*maxPage), 2*maxPage)
	for i := len(end) - 27; i >= 0; i-- {
		if string(end[i:i+4]) != "OggS" || string(end[i+14:i+18]) != serial {
			continue
		}
		// All ones means that no packet ends on this page.
		if samples := little.Uint64(end[i+6:]); samples != math.MaxUint64 && samples > skip {
			s.Duration = durationOf(float64(samples-skip), float64(rate))
			return
		}
	}
}
