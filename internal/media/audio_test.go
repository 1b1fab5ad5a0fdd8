// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

// The test files are built here from the specifications of the formats,
// independently of the readers.

func be(values ...any) string {
	var b bytes.Buffer
	for _, v := range values {
		if s, ok := v.(string); ok {
			b.WriteString(s)
			continue
		}
		if err := binary.Write(&b, binary.BigEndian, v); err != nil {
			panic(err)
		}
	}
	return b.String()
}

func le(values ...any) string {
	var b bytes.Buffer
	for _, v := range values {
		if s, ok := v.(string); ok {
			b.WriteString(s)
			continue
		}
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return b.String()
}

func chunk(kind, body string) string { return le(kind, uint32(len(body)), body) }

// waveFile has 8,000 samples of 16 bits a second, one channel.
func waveFile(size uint32, data string) string {
	fmtChunk := le(uint16(1), uint16(1), uint32(8_000), uint32(16_000), uint16(2), uint16(16))
	body := "WAVE" + chunk("LIST", "odd") + "\x00" + chunk("fmt ", fmtChunk) + le("data", size) + data
	return le("RIFF", uint32(len(body)), body)
}

// mpegOf returns n frames of MPEG 1 layer 3 with 128 kbit/s at 44.1 kHz,
// stereo. The first frame holds table.
func mpegOf(n int, offset int, table string) string {
	frame := make([]byte, 417)
	copy(frame, "\xff\xfb\x90\x00")
	first := bytes.Clone(frame)
	copy(first[offset:], table)
	return string(first) + strings.Repeat(string(frame), n-1)
}

func flacHead(rate, samples uint64) string {
	return be(uint32(34), strings.Repeat("\x00", 10), rate<<44|1<<41|15<<36|samples, strings.Repeat("\x00", 16))
}

func oggPage(serial uint32, granule uint64, body string) string {
	return le("OggS\x00\x00", granule, serial, uint32(0), uint32(0), uint8(1), uint8(len(body)), body)
}

func box(kind, body string) string { return be(uint32(8+len(body)), kind, body) }

func track(width, height uint16) string {
	return box("trak", box("tkhd", strings.Repeat("\x00", 76)+be(width, uint16(0), height, uint16(0))))
}

func movie(perSecond, length uint32) string {
	return box("mvhd", be(uint32(0), uint32(0), uint32(0), perSecond, length, strings.Repeat("\x00", 80)))
}

func element(id uint32, body string) string {
	marks := strings.TrimLeft(be(id), "\x00")
	return marks + be(uint32(0x10000000|len(body))) + body
}

func whole16(n uint16) string { return be(n) }

// X159: durations of audio and video from every kind of header; what is missing
// or absurd is left out.
func TestX159_Durations(t *testing.T) {
	vorbis := "\x01vorbis" + le(uint32(0), uint8(2), uint32(44_100), uint32(0), uint32(0), uint32(0), uint8(0))
	opus := "OpusHead\x01\x02" + le(uint16(312), uint32(44_100), uint16(0), uint8(0))
	info := func(length string) string {
		return element(mkvInfo, element(mkvScale, be(uint32(1_000_000)))+element(mkvDuration, length))
	}
	tracks := element(mkvTracks, element(mkvTrack, element(mkvVideo, element(mkvWidth, whole16(1280))+element(mkvHeight, whole16(720)))))
	ebml := func(kind, body string) string {
		return element(ebmlHeader, element(ebmlDocType, kind)) + element(mkvSegment, body)
	}
	for _, tt := range []struct {
		name, data, want string
	}{
		{"wav", waveFile(24_000, strings.Repeat("\x00", 24_000)), "wav 1.5s"},
		{"wav from a pipe", waveFile(math.MaxUint32, strings.Repeat("\x00", 16_000)), "wav 1s estimated"},
		{"wav without data", waveFile(0, "")[:40], "wav 0s"},
		{"wav of more than 4 GiB", "RF64\xff\xff\xff\xffWAVE" + chunk("ds64", le(uint64(0), uint64(16_000*600_000), uint64(0))) +
			chunk("fmt ", le(uint16(1), uint16(1), uint32(8_000), uint32(16_000), uint16(2), uint16(16))) + le("data", uint32(math.MaxUint32)), "wav 166h40m0s"},
		{"mp3 with a table", mpegOf(3, 36, be("Xing", uint32(1), uint32(3_828))), "mp3 1m39.997s"},
		{"mp3 of a constant rate, with a table", mpegOf(3, 36, be("Info", uint32(15), uint32(1_000))), "mp3 26.122s"},
		{"mp3 with the other table", mpegOf(3, 36, be("VBRI", uint16(1), uint16(0), uint16(0), uint32(0), uint32(2_000))), "mp3 52.245s"},
		{"mp3 without a table", mpegOf(384, 0, "\xff\xfb\x90\x00"), "mp3 10.008s estimated"},
		{"mp3 with tags", "ID3\x03\x00\x00\x00\x00\x01\x00" + strings.Repeat("\x00", 128) + mpegOf(384, 0, "\xff\xfb\x90\x00") + "TAG" + strings.Repeat(" ", 125), "mp3 10.008s estimated"},
		{"mp3 whose table says nothing", mpegOf(384, 36, be("Xing", uint32(0))), "mp3 10.008s estimated"},
		{"half a second of MPEG 2, mono", string(bytes.Repeat(append([]byte("\xff\xf3\x40\xc0"), make([]byte, 100)...), 14)), "mp3 364ms estimated"},
		{"one frame that nothing follows", mpegOf(1, 0, "\xff\xfb\x90\x00"), "unknown"},
		{"flac", "fLaC\x00\x00\x00\x22"[:4] + flacHead(44_100, 44_100*7), "flac 7s"},
		{"flac of no rate", "fLaC" + flacHead(0, 1_000), "flac 0s"},
		{"vorbis", oggPage(7, 0, vorbis) + oggPage(8, 1, "x") + oggPage(7, 441_000, "last") + oggPage(9, 5, "y"), "ogg 10s"},
		{"opus", oggPage(7, 0, opus) + oggPage(7, 48_000*3+312, "last"), "ogg 3s"},
		{"opus whose last page ends no packet", oggPage(7, 0, opus) + oggPage(7, 48_000+312, "a") + oggPage(7, math.MaxUint64, "b"), "ogg 1s"},
		{"ogg of something else", oggPage(7, 0, "other"), "ogg 0s"},
		{"mp4", box("ftyp", "isom") + box("mdat", "xxxx") + box("moov", movie(600, 6_300)+track(0, 0)+track(640, 360)), "mp4 10.5s 640x360"},
		{"mp4 in 64 bits", box("ftyp", "isom") + be(uint32(1), "mdat", uint64(20), "xxxx") +
			box("moov", box("mvhd", be(uint32(1<<24), uint64(0), uint64(0), uint32(1_000), uint64(2_500)))), "mp4 2.5s"},
		{"mp4 in fragments", box("ftyp", "iso5") + box("moov", movie(1_000, 0)+box("mvex", box("mehd", be(uint32(0), uint32(4_000))))), "mp4 4s"},
		{"mp4 of unknown length", box("ftyp", "isom") + box("moov", movie(1_000, math.MaxUint32)), "mp4 0s"},
		{"quicktime", box("ftyp", "qt  ") + box("moov", movie(90_000, 90_000)), "quicktime 1s"},
		{"old quicktime", box("moov", movie(90_000, 45_000)), "quicktime 500ms"},
		{"a box of no size", box("ftyp", "isom") + be(uint32(4), "moov"), "mp4 0s"},
		{"a time of no scale", box("ftyp", "isom") + box("moov", movie(0, 5)), "mp4 0s"},
		{"webm", ebml("webm", info(be(float64(2_500)))+tracks), "webm 2.5s 1280x720"},
		{"matroska", ebml("matroska", tracks+info(be(float32(1_000)))+element(mkvCluster, info(be(float64(9))))), "matroska 1s 1280x720"},
		{"matroska of no number", ebml("matroska", info(be(math.NaN()))), "matroska 0s"},
		{"matroska for ever", ebml("matroska", info(be(math.Inf(1)))), "matroska 0s"},
		{"a text", "no sound at all", "unknown"},
		{"nothing", "", "unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := AudioVideoInfo(strings.NewReader(tt.data), int64(len(tt.data)))
			got := fmt.Sprintf("%s %v", s.Format, s.Duration.Round(time.Millisecond))
			if s.Estimated {
				got += " estimated"
			}
			if s.Width > 0 {
				got += fmt.Sprintf(" %dx%d", s.Width, s.Height)
			}
			if errors.Is(err, ErrUnknownAudioVideo) {
				got = "unknown"
			} else if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// counting counts the bytes and reads of its source.
type counting struct {
	r     io.ReaderAt
	reads int
	bytes int
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	c.bytes += len(p)
	return c.r.ReadAt(p, off)
}

// endless is a file of any size whose contents repeat.
type endless string

func (e endless) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		p[i] = e[(off+int64(i))%int64(len(e))]
	}
	return len(p), nil
}

// I15: an endless header costs a bounded number of reads, whatever the size of
// the file.
func TestI15_HeadersAreBounded(t *testing.T) {
	const size = 1 << 50
	for name, part := range map[string]string{
		"boxes":    box("ftyp", "isom"),
		"one box":  box("moov", ""),
		"elements": "\x1a\x45\xdf\xa3\x81x",
		"chunks":   "RIFF\x04\x00\x00\x00WAVE",
		"segments": "\xff\xd8\xff\xe0\x00\x02",
		"png":      "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01",
		"gif":      "GIF89a\x01\x00\x01\x00\x00\x00\x00",
		"webp":     "RIFF\x04\x00\x00\x00WEBPVP8X",
		"tiff":     "II*\x00\x08\x00\x00\x00\xff\xff",
		"id3":      "ID3\x03\x00\x00\x7f\x7f\x7f\x7f",
		"ogg":      oggPage(1, 1, "\x01vorbis"),
	} {
		t.Run(name, func(t *testing.T) {
			src := &counting{r: endless(part)}
			_, _ = ImageInfo(src, size)
			_, _ = AudioVideoInfo(src, size)
			if src.reads == 0 || src.reads > 2*maxReads || src.bytes > 2*maxReadBytes {
				t.Errorf("%d reads of %d bytes", src.reads, src.bytes)
			}
		})
	}
}

// A read error of the disk is not reported as damage of the file.
func TestReadsKeepTheSourcesError(t *testing.T) {
	gone := errors.New("the disk is gone")
	src := readerAtFunc(func([]byte, int64) (int, error) { return 0, gone })
	if _, err := ImageInfo(src, 1_000); !errors.Is(err, gone) {
		t.Errorf("image: %v", err)
	}
	if _, err := AudioVideoInfo(src, 1_000); !errors.Is(err, gone) {
		t.Errorf("sound: %v", err)
	}
	half := readerAtFunc(func(p []byte, off int64) (int, error) {
		if off >= 8 {
			return 0, gone
		}
		return copy(p, "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR"[off:]), nil
	})
	if _, err := ImageInfo(half, 1_000); !errors.Is(err, gone) {
		t.Errorf("half an image: %v", err)
	}
}

type readerAtFunc func(p []byte, off int64) (int, error)

func (f readerAtFunc) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

// FuzzAudioVideoInfo: any bytes give plausible facts, or none.
func FuzzAudioVideoInfo(f *testing.F) {
	f.Add([]byte(waveFile(16, "0123456789abcdef")))
	f.Add([]byte(mpegOf(2, 36, be("Xing", uint32(1), uint32(9)))))
	f.Add([]byte("fLaC" + flacHead(44_100, 9)))
	f.Add([]byte(oggPage(7, 0, "OpusHead\x01\x02\x00\x00") + oggPage(7, 99, "x")))
	f.Add([]byte(box("ftyp", "isom") + box("moov", movie(600, 6_300)+track(640, 360))))
	f.Add([]byte(element(ebmlHeader, element(ebmlDocType, "webm")) + element(mkvSegment, element(mkvInfo, element(mkvDuration, be(float64(9)))))))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := AudioVideoInfo(bytes.NewReader(data), int64(len(data)))
		if err != nil && !errors.Is(err, ErrUnknownAudioVideo) {
			t.Fatal(err)
		}
		if s.Duration < 0 || s.Duration > maxDuration || s.Width < 0 || s.Height < 0 || s.Width > 1<<16 || s.Height > 1<<16 {
			t.Errorf("%+v", s)
		}
	})
}

// FuzzImageInfo: any bytes give a size, FILE_INVALID or ErrUnknownImage.
func FuzzImageInfo(f *testing.F) {
	for _, data := range smallImages(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		i, err := ImageInfo(bytes.NewReader(data), int64(len(data)))
		if err != nil && !errors.Is(err, ErrUnknownImage) && !isFileFault(err) {
			t.Fatal(err)
		}
		if err == nil && (i.Width <= 0 || i.Height <= 0 || i.Orientation < 1 || i.Orientation > 8) {
			t.Errorf("%+v", i)
		}
	})
}
