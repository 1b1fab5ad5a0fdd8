// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/cputime"
)

// A31, F19: an image that would cost too much is refused by its header, quickly
// and without memory. The child refuses it as well, should it receive it.
func TestA31_Bombs(t *testing.T) {
	progressive := func(sampling byte) string {
		return "\xff\xd8\xff\xc2" + be(uint16(17), uint8(8), uint16(7_000), uint16(7_000), uint8(3)) +
			string([]byte{1, sampling, 0, 2, 0x11, 0, 3, 0x11, 0})
	}
	bombs := map[string]struct{ data, says string }{
		"png":  {"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR" + be(uint32(50_000), uint32(50_000)) + "\x08\x06\x00\x00\x00crc.", "50000 × 50000 = 2500 million pixels: at most 50 million"},
		"gif":  {"GIF89a\xff\xff\xff\xff\x00\x00\x00", "65535 × 65535 = 4294 million pixels"},
		"bmp":  {"BM" + strings.Repeat("\x00", 12) + le(uint32(40), int32(20_000), int32(-20_000), uint16(1), uint16(32)), "20000 × 20000"},
		"tiff": {"II*\x00\x08\x00\x00\x00" + le(uint16(2), uint16(256), uint16(4), uint32(1), uint32(100_000), uint16(257), uint16(4), uint32(1), uint32(10), uint32(0)), "at most 65535 a side"},
		"webp": {"RIFF\x00\x00\x00\x00WEBP" + chunk("VP8X", "\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff"), "16777216 × 16777216 pixels: at most 65535 a side"},
		"jpeg": {"\xff\xd8\xff\xc0" + be(uint16(11), uint8(8), uint16(65_535), uint16(65_535), uint8(1), "\x01\x11\x00"), "65535 × 65535"},
		"a progressive one whose coefficients need more memory than there is": {progressive(0x11), "MiB of memory to decode"},
		"a deep one": {"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR" + be(uint32(10_000), uint32(5_000)) + "\x10\x06\x00\x00\x00crc.", ""},
	}
	for name, bomb := range bombs {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := cputime.Used()
			_, err := New(Config{}).Image(strings.NewReader(bomb.data), int64(len(bomb.data)), ImageOptions{Width: 10})
			took := cputime.Used() - began
			runtime.ReadMemStats(&after)
			if bomb.says == "" {
				if err != nil {
					t.Errorf("50 million pixels of 8 bytes: %v", err)
				}
				return
			}
			if !errors.Is(err, fault.FileTooLarge) || !strings.Contains(err.Error(), bomb.says) || !strings.Contains(err.Error(), "in another program first") {
				t.Errorf("error = %v, want FILE_TOO_LARGE with %q and a remedy", err, bomb.says)
			}
			if grew := after.TotalAlloc - before.TotalAlloc; took > 50*time.Millisecond || grew > 1<<20 {
				t.Errorf("took %v and %d bytes", took, grew)
			}
			if _, err := decodeImage([]byte(bomb.data), DefaultMaxMemory); !errors.Is(err, fault.FileTooLarge) && !errors.Is(err, fault.FileInvalid) {
				t.Errorf("the child: %v", err)
			}
		})
	}
}

// A31: a progressive JPEG may not have any number of scans.
func TestA31_ScanBomb(t *testing.T) {
	head := "\xff\xd8\xff\xc2" + be(uint16(11), uint8(8), uint16(5_000), uint16(5_000), uint8(1), "\x01\x11\x00")
	scan := "\xff\xda" + be(uint16(8), uint8(1), "\x01\x00", "\x01\x3f\x00") + "\x00"
	info := Image{Width: 5_000, Height: 5_000, progressive: true}
	for n, want := range map[int]bool{10: false, 100: true, 300: true} {
		data := []byte(head + strings.Repeat(scan, n) + "\xff\xd9")
		if err := jpegScans(data, info); errors.Is(err, fault.FileTooLarge) != want {
			t.Errorf("%d scans: %v", n, err)
		}
	}
}

// I16, F19: whatever a codec does, the parent gets a typed error in time and
// converts the next image.
func TestI16_F19_ImageChildMisbehaves(t *testing.T) {
	data := encoded(t, "png", corners(30, 20))
	for _, tt := range []struct {
		misbehaviour string
		want         fault.Code
		says         string
	}{
		{"hang", fault.FileInvalid, "the image cannot be read: it took more than 1s of computing"},
		{"panic", fault.FileInvalid, "the image is damaged beyond repair"},
		{"goroutine panic", fault.FileInvalid, "damaged"},
		{"memory", fault.FileTooLarge, "256 MiB of memory"},
		{"garbage", fault.FileInvalid, "damaged"},
	} {
		t.Run(tt.misbehaviour, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			r := New(Config{MaxMemory: 256 << 20, IdleTimeout: time.Minute, ImageStall: time.Second})
			r.misbehaviour = tt.misbehaviour
			_, _, err := runJob(t, r, data, ImageOptions{Width: 10})
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error = %v, want %s with %q", err, tt.want, tt.says)
			}
			r.misbehaviour = ""
			if _, _, err := runJob(t, r, data, ImageOptions{Width: 10}); err != nil {
				t.Errorf("the next image: %v", err)
			}
		})
	}
}

// Without a child the result is the same; a failing writer ends the work.
func TestImageWithoutChild(t *testing.T) {
	canStartItself.Store(false)
	defer canStartItself.Store(true)
	defer goleak.VerifyNone(t)
	r := New(Config{})
	data := encoded(t, "png", corners(300, 200))
	if _, _, err := runJob(t, r, data, ImageOptions{Width: 100, Format: "bmp"}); err != nil {
		t.Fatal(err)
	}
	full := fault.New(fault.StoreFull, "the disk is full")
	job, err := r.Image(bytes.NewReader(data), int64(len(data)), ImageOptions{Format: "bmp"})
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Run(context.Background(), failingWriter{full}); !errors.Is(err, full) {
		t.Errorf("error = %v, want the writer's", err)
	}
	canStartItself.Store(true)
	if err := job.Run(context.Background(), failingWriter{full}); !errors.Is(err, full) {
		t.Errorf("with a child: error = %v, want the writer's", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := job.Run(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

// F19, A31: damaged copies of images end in an image or in a typed error, and
// the process survives. 120 of them with ROUX_LONG=1.
func TestF19_A31_DamagedImages(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	sources := smallImages(t)
	big := corners(300, 200)
	for i := range big.Pix {
		big.Pix[i] ^= byte(i * 7 & 31)
	}
	sources["large jpeg"], sources["large png"], sources["large tiff"] = encoded(t, "jpeg", big), encoded(t, "png", big), encoded(t, "tiff", big)
	names := slices.Sorted(maps.Keys(sources))
	n := 36
	switch {
	case os.Getenv("ROUX_LONG") != "":
		n = 120
	case testing.Short():
		n = 14
	}
	rng := rand.New(rand.NewPCG(3, 4))
	r := New(Config{})
	read := 0
	for i := range n {
		name := names[i%len(names)]
		data := bytes.Clone(sources[name])
		switch i / len(names) % 4 {
		case 0: // a few bytes
			for range 1 + rng.IntN(4) {
				data[rng.IntN(len(data))] = byte(rng.Uint32())
			}
		case 1: // cut off
			data = data[:rng.IntN(len(data))]
		case 2: // bytes missing in the middle
			at := rng.IntN(len(data))
			data = append(data[:at], data[min(at+1+rng.IntN(9), len(data)):]...)
		case 3: // false values in the header
			at := rng.IntN(min(40, len(data)))
			copy(data[at:], []byte{0xff, 0xff, 0xff, 0xff}[:min(4, len(data)-at)])
		}
		var took time.Duration // CPU time of the child
		r.childEnded = func(s *os.ProcessState) { took = s.UserTime() + s.SystemTime() }
		_, _, err := runJob(t, r, data, ImageOptions{Width: 20, Format: "png"})
		if took > 5*time.Second {
			t.Errorf("copy %d of %s took %v", i, name, took)
		}
		switch {
		case err == nil:
			read++
		case !isFileFault(err) && !errors.Is(err, fault.FileUnsupported):
			t.Errorf("copy %d of %s: %v", i, name, err)
		}
	}
	if read == 0 || read == n {
		t.Errorf("%d of %d damaged copies were read", read, n)
	}
	t.Logf("%d of %d damaged copies were read", read, n)
}

// I15: images just under the limits are processed, with all the copies that
// takes, within the memory of the child. It needs a minute of CPU time, so only
// with ROUX_LONG=1.
func TestI15_LargestImages(t *testing.T) {
	if os.Getenv("ROUX_LONG") == "" {
		t.Skip("takes a minute; set ROUX_LONG=1")
	}
	size := image.Rect(0, 0, 8_000, 6_000)
	clear, deep := image.NewNRGBA(size), image.NewNRGBA64(size)
	for i := range clear.Pix {
		clear.Pix[i] = byte(i >> 4)
	}
	copy(deep.Pix, clear.Pix)
	fast := func(m image.Image) []byte {
		var out bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&out, m); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	sources := map[string][]byte{"png": fast(clear), "deep png": fast(deep)}
	sources["jpeg"] = withEXIF(encoded(t, "jpeg", clear), 6)
	sources["gif"] = encoded(t, "gif", clear)
	clear, deep = nil, nil
	r := New(Config{})
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		for _, opts := range []ImageOptions{{Width: 800}, {Format: "png"}, {Format: "jpeg"}, {Format: "gif"}, {Format: "bmp"}} {
			data := sources[name]
			job, err := r.Image(bytes.NewReader(data), int64(len(data)), opts)
			if err != nil {
				t.Errorf("%s %+v: %v", name, opts, err)
				continue
			}
			start := time.Now()
			var out countingWriter
			if err := job.Run(context.Background(), &out); err != nil {
				t.Errorf("%s %+v: %v", name, opts, err)
			}
			t.Logf("%s of %d MiB to %d × %d as %s, %d MiB: %v", name, len(data)>>20, job.Width, job.Height, job.Format, out>>20, time.Since(start).Round(time.Millisecond))
		}
	}
}

type countingWriter int

func (c *countingWriter) Write(p []byte) (int, error) {
	*c += countingWriter(len(p))
	return len(p), nil
}

// FuzzMakeImage: any bytes give an image of the requested size, or a typed
// error.
func FuzzMakeImage(f *testing.F) {
	for _, data := range smallImages(f) {
		f.Add(data, byte(0))
	}
	f.Fuzz(func(t *testing.T, data []byte, how byte) {
		formats := ImageFormatsWritten
		job := imageJob{Format: formats[int(how)%len(formats)], Width: 1 + int(how)%7, Height: 1 + int(how)/7%9, Orientation: 1 + int(how)%8, Quality: 50}
		got, err := makeImage(data, job, 32<<20, func([]byte) error { return nil })
		if err != nil {
			if !isFileFault(err) && !errors.Is(err, fault.FileUnsupported) && !errors.Is(err, ErrUnknownImage) {
				t.Fatal(err)
			}
			return
		}
		if w, h := orientedSize(job.Orientation, job.Width, job.Height); got != (ImageResult{w, h}) {
			t.Errorf("made %+v of %+v", got, job)
		}
	})
}
