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

// ErrUnknownSound says that a file is no sound or film of a kind whose header
// is read; it is no damage.
var ErrUnknownSound = errors.New("no header of a sound or film that is known")

// A Sound is what the header of a sound or film says.
type Sound struct {
	Format string // wav, mp3, flac, ogg, mp4, quicktime, matroska or webm
	// Duration is 0 when the header does not tell.
	Duration time.Duration
	// Estimated says that the duration is the file's size by its bit rate.
	Estimated bool
	// Width and Height are in pixels as stored; 0 = no film, or not told.
	Width, Height int
}

// SoundInfo reads the header of a sound or film of size bytes, in a few small
// reads. What a header does not tell, or tells wrongly, is left out: that is no
// fault. Only a kind of file that is not known is ErrUnknownSound, and an error
// of src comes back as it is.
func SoundInfo(src io.ReaderAt, size int64) (s Sound, err error) {
	w := look(src, size)
	defer func() {
		if v := recover(); v != nil {
			s, err = Sound{}, fault.Wrap(fault.FileInvalid, fmt.Errorf("panic: %v", v), "the header of the file is damaged")
		}
	}()
	// Some writers put tags for MP3 before everything.
	start := int64(0)
	if b := w.at(0, 10); b != nil && string(b[:3]) == "ID3" {
		start = 10 + int64(b[6]&0x7f)<<21 + int64(b[7]&0x7f)<<14 + int64(b[8]&0x7f)<<7 + int64(b[9]&0x7f)
		if b[5]&0x10 != 0 { // and a footer
			start += 10
		}
	}
	body := w.part(start, size)
	head := string(body.upTo(0, 16))
	is := func(off int, mark string) bool { return len(head) >= off+len(mark) && head[off:off+len(mark)] == mark }
	switch {
	case (is(0, "RIFF") || is(0, "RF64")) && is(8, "WAVE"):
		wave(body, &s)
	case is(0, "fLaC"):
		flac(body.part(4, size), &s)
	case is(0, "OggS"):
		ogg(body, &s)
	case is(4, "ftyp") || is(4, "moov") || is(4, "mdat") || is(4, "wide"):
		mp4(body, &s)
	case is(0, "\x1a\x45\xdf\xa3"):
		matroska(body, &s)
	default:
		mp3(body, start > 0, &s)
	}
	if w.spent.err != nil {
		return Sound{}, w.spent.err
	}
	if s.Format == "" {
		return Sound{}, ErrUnknownSound
	}
	return s, nil
}

// longest is the longest duration that is believed.
const longest = 10 * 365 * 24 * time.Hour

// lasting is the duration of so many units; 0 when it cannot be true.
func lasting(units, perSecond float64) time.Duration {
	seconds := units / perSecond
	if perSecond <= 0 || units <= 0 || math.IsNaN(seconds) || seconds > longest.Seconds() {
		return 0
	}
	return time.Duration(math.Round(seconds * float64(time.Second)))
}

// wave walks the chunks of a WAV file: fmt has the bytes per second, data their
// number.
func wave(w *window, s *Sound) {
	s.Format = "wav"
	var perSecond, wide uint64
	for off := int64(12); ; {
		head := w.at(off, 8)
		if head == nil {
			return
		}
		n := uint64(little.Uint32(head[4:]))
		switch string(head[:4]) {
		case "fmt ":
			perSecond, _ = w.number(off+16, 4, little)
		case "ds64": // sizes of more than 4 GiB
			wide, _ = w.number(off+16, 8, little)
		case "data":
			there := uint64(w.size - off - 8)
			switch {
			case n == math.MaxUint32 && wide > 0:
				n = wide
			case n == 0 || n == math.MaxUint32: // written to a pipe
				n, s.Estimated = there, true
			}
			s.Duration = lasting(float64(n), float64(perSecond))
			s.Estimated = s.Estimated && s.Duration > 0
			return
		}
		off += 8 + int64(n+n&1)
	}
}

// flac reads STREAMINFO, which comes first.
func flac(w *window, s *Sound) {
	s.Format = "flac"
	if b := w.at(0, 4+18); b != nil && b[0]&0x7f == 0 {
		rate := uint64(b[14])<<12 | uint64(b[15])<<4 | uint64(b[16])>>4
		samples := uint64(b[17]&15)<<32 | uint64(big.Uint32(b[18:]))
		s.Duration = lasting(float64(samples), float64(rate))
	}
}

// maxPage is the most that an Ogg page holds, header and all.
const maxPage = 27 + 255 + 255*255

// ogg takes the rate from the first page, and the number of samples from the
// last one of the same stream.
func ogg(w *window, s *Sound) {
	s.Format = "ogg"
	page := w.upTo(0, 27+255+64)
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
	end := w.upTo(max(0, w.size-2*maxPage), 2*maxPage)
	for i := len(end) - 27; i >= 0; i-- {
		if string(end[i:i+4]) != "OggS" || string(end[i+14:i+18]) != serial {
			continue
		}
		// All ones: no packet ends on this page.
		if samples := little.Uint64(end[i+6:]); samples != math.MaxUint64 && samples > skip {
			s.Duration = lasting(float64(samples-skip), float64(rate))
			return
		}
	}
}
