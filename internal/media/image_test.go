// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/roux-engine/roux/fault"
)

// made carries out work on an image in the child and decodes what comes out.
func made(t testing.TB, r *Reader, data []byte, opts ImageOptions) (image.Image, []byte, error) {
	t.Helper()
	job, err := r.Image(bytes.NewReader(data), int64(len(data)), opts)
	if err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	if err := job.Run(context.Background(), &out); err != nil {
		return nil, nil, err
	}
	m, err := codecs[job.Format].decode(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatalf("the result cannot be decoded: %v", err)
	}
	if m.Bounds() != image.Rect(0, 0, job.Width, job.Height) {
		t.Fatalf("result %v, announced %d × %d", m.Bounds(), job.Width, job.Height)
	}
	return m, out.Bytes(), nil
}

// undecoded are the shared images that cannot be decoded, and how each fails.
var undecoded = map[string]struct {
	code fault.Code
	says string
}{
	"images/bad-crc.png":                      {fault.FileInvalid, "damaged"},
	"images/truncated.png":                    {fault.FileInvalid, "cut off"},
	"images/truncated.jpeg":                   {fault.FileInvalid, "cut off"},
	"images/bomb-20000x20000-1bit.png":        {fault.FileTooLarge, "20000 × 20000 = 400 million pixels: at most 50 million"},
	"images/lies-65000x65000-header-only.png": {fault.FileTooLarge, "65000 × 65000 = 4225 million pixels: at most 50 million"},
}

// X159, X160: of every shared image the header's size and orientation, as other
// tools measured them; a thumbnail of each sound one, a typed error for the
// others.
func TestX159_X160_SharedImages(t *testing.T) {
	dir, facts := sharedData(t)
	r := New(Config{})
	seen := 0
	for name, f := range facts {
		if !strings.HasPrefix(name, "images/") {
			continue
		}
		seen++
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			info, err := ImageInfo(bytes.NewReader(data), int64(len(data)))
			if err != nil || info.Width != f.Width || info.Height != f.Height || info.Orientation != max(f.Orientation, 1) {
				t.Fatalf("%+v, %v, want %d × %d, orientation %d", info, err, f.Width, f.Height, f.Orientation)
			}
			if w, h := info.Shown(); f.ShownWidth > 0 && (w != f.ShownWidth || h != f.ShownHeight) {
				t.Errorf("shown %d × %d, want %d × %d", w, h, f.ShownWidth, f.ShownHeight)
			}
			start := time.Now()
			m, _, err := made(t, r, data, ImageOptions{Width: 40, Height: 40, Format: "png"})
			if bad, ok := undecoded[name]; ok {
				if !errors.Is(err, bad.code) || !strings.Contains(err.Error(), bad.says) {
					t.Errorf("error = %v, want %s with %q", err, bad.code, bad.says)
				}
				if took := time.Since(start); bad.code == fault.FileTooLarge && took > 50*time.Millisecond {
					t.Errorf("took %v to refuse", took)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			keep(t, filepath.Base(name)+".png", m)
			if f.Mime == "image/jpeg" { // cut off in its last scan
				if _, _, err := made(t, r, data[:len(data)-60], ImageOptions{Format: "png"}); !errors.Is(err, fault.FileInvalid) {
					t.Errorf("without its end: %v", err)
				}
			}
		})
	}
	if seen != 18 {
		t.Errorf("%d images, want 18", seen)
	}
}

// keep writes a picture for people to look at, when ROUX_KEEP names a directory.
func keep(t testing.TB, name string, m image.Image) {
	dir := os.Getenv("ROUX_KEEP")
	if dir == "" {
		return
	}
	var out bytes.Buffer
	if err := png.Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// exifOf is an EXIF directory with nothing but an orientation.
func exifOf(orientation byte) string {
	return "II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00" + string([]byte{orientation}) + "\x00\x00\x00\x00\x00\x00\x00"
}

// withEXIF puts an orientation into a JPEG or PNG file.
func withEXIF(data []byte, orientation byte) []byte {
	segment := ""
	at := 2
	if data[0] == 0xff {
		body := "Exif\x00\x00" + exifOf(orientation)
		segment = be(uint16(0xffe1), uint16(len(body)+2), body)
	} else {
		body := "eXIf" + exifOf(orientation)
		segment = be(uint32(len(body)-4), body, crc32.ChecksumIEEE([]byte(body)))
		at = 33
	}
	return slices.Concat(data[:at], []byte(segment), data[at:])
}

// corners is a picture whose corners differ: red, green, blue and yellow, from
// the top left clockwise.
func corners(w, h int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			i := 0
			switch {
			case x >= w/2 && y < h/2:
				i = 1
			case x >= w/2:
				i = 2
			case y >= h/2:
				i = 3
			}
			m.SetNRGBA(x, y, cornerColours[i])
		}
	}
	return m
}

var cornerColours = [4]color.NRGBA{{255, 0, 0, 255}, {0, 255, 0, 255}, {0, 0, 255, 255}, {255, 255, 0, 255}}

func encoded(t testing.TB, format string, m image.Image) []byte {
	t.Helper()
	var out []byte
	err := encode(m, imageJob{Format: format, Quality: 95}, nil, func(p []byte) error {
		out = append(out, p...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// smallImages are files of each format that is written, and one WebP.
func smallImages(t testing.TB) map[string][]byte {
	all := map[string][]byte{}
	for _, format := range ImageFormatsWritten {
		all[format] = encoded(t, format, corners(24, 16))
	}
	all["jpeg turned"] = withEXIF(all["jpeg"], 6)
	all["png turned"] = withEXIF(all["png"], 8)
	all["png with holes"] = encoded(t, "png", image.NewNRGBA(image.Rect(0, 0, 9, 9)))
	all["gray"] = encoded(t, "png", image.NewGray(image.Rect(0, 0, 9, 9)))
	all["webp"] = []byte("RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00")
	return all
}

// X160: every orientation ends upright, in every format that carries one, made
// smaller or not.
func TestX160_Orientations(t *testing.T) {
	// Which of the stored corners comes to be shown at the top left, and so on
	// clockwise (EXIF 2.32, table 6).
	shown := [9][4]int{1: {0, 1, 2, 3}, 2: {1, 0, 3, 2}, 3: {2, 3, 0, 1}, 4: {3, 2, 1, 0}, 5: {0, 3, 2, 1}, 6: {3, 0, 1, 2}, 7: {2, 1, 0, 3}, 8: {1, 2, 3, 0}}
	r := New(Config{})
	for _, format := range []string{"jpeg", "png"} {
		plain := encoded(t, format, corners(40, 20))
		for o := byte(1); o <= 8; o++ {
			data := withEXIF(plain, o)
			info, err := ImageInfo(bytes.NewReader(data), int64(len(data)))
			if err != nil || info.Orientation != int(o) || info.Width != 40 || info.Height != 20 {
				t.Fatalf("%s %d: %+v, %v", format, o, info, err)
			}
			for _, opts := range []ImageOptions{{Format: "png"}, {Format: "jpeg", Width: 20, Height: 20}, {Format: "png", Width: 12, Height: 12, Fit: FitCover}} {
				m, out, err := made(t, r, data, opts)
				if err != nil {
					t.Fatal(err)
				}
				size := m.Bounds().Size()
				wantW, wantH := 40, 20
				switch {
				case opts.Fit == FitCover:
					wantW, wantH = 12, 12
				case opts.Width > 0:
					wantW, wantH = 20, 10
				}
				if wantW, wantH = turned(int(o), wantW, wantH); size != image.Pt(wantW, wantH) {
					t.Errorf("%s %d %+v: %v, want %d × %d", format, o, opts, size, wantW, wantH)
				}
				for i, p := range []image.Point{{1, 1}, {size.X - 2, 1}, {size.X - 2, size.Y - 2}, {1, size.Y - 2}} {
					if want := cornerColours[shown[o][i]]; far(m.At(p.X, p.Y), want) > 60 {
						t.Errorf("%s %d %+v: corner %d is %v, want %v", format, o, opts, i, m.At(p.X, p.Y), want)
					}
				}
				if after, err := ImageInfo(bytes.NewReader(out), int64(len(out))); err != nil || after.Orientation != 1 {
					t.Errorf("the result asks to be turned again: %+v, %v", after, err)
				}
			}
		}
	}
}

// far is the largest difference of a channel.
func far(a, b color.Color) int {
	x, _ := color.NRGBAModel.Convert(a).(color.NRGBA)
	y, _ := color.NRGBAModel.Convert(b).(color.NRGBA)
	d := func(p, q uint8) int { return max(int(p)-int(q), int(q)-int(p)) }
	return max(d(x.R, y.R), d(x.G, y.G), d(x.B, y.B), d(x.A, y.A))
}

// X160: the sizes of each fit, for a picture of 400 × 200 as shown, whichever
// way it is stored.
func TestX160_Fits(t *testing.T) {
	for _, tt := range []struct {
		fit     Fit
		w, h    int
		enlarge bool
		want    string // size of the result, the part of the shown source if not all
	}{
		{"", 0, 0, false, "400x200"},
		{FitInside, 100, 100, false, "100x50"},
		{FitInside, 100, 10, false, "20x10"},
		{FitInside, 800, 800, false, "400x200"},
		{FitInside, 800, 800, true, "800x400"},
		{FitInside, 1, 1, false, "1x1"},
		{FitInside, 100, 0, false, "100x50"},
		{FitCover, 0, 100, false, "200x100"},
		{FitOutside, 100, 100, false, "200x100"},
		{FitOutside, 600, 100, false, "400x200"},
		{FitOutside, 600, 100, true, "600x300"},
		{FitContain, 100, 100, false, "100x100"},
		{FitContain, 800, 800, false, "800x800"},
		{FitContain, 100, 50, false, "100x50"},
		{FitCover, 100, 100, false, "100x100 of 200x200+100+0"},
		{FitCover, 100, 20, false, "100x20 of 400x80+0+60"},
		{FitCover, 100, 50, false, "100x50"},
		{FitCover, 600, 100, false, "400x100 of 400x100+0+50"},
		{FitCover, 800, 800, true, "800x800 of 200x200+100+0"},
		{FitFill, 100, 150, false, "100x150"},
		{FitFill, 900, 50, false, "400x50"},
		{FitFill, 900, 50, true, "900x50"},
	} {
		for _, o := range []int{1, 6} {
			info := Image{Width: 400, Height: 200, Orientation: o}
			if o == 6 {
				info.Width, info.Height = 200, 400
			}
			j := layOut(info, ImageOptions{Width: tt.w, Height: tt.h, Fit: tt.fit, Enlarge: tt.enlarge})
			w, h := turned(o, j.Width, j.Height)
			if j.Canvas != (image.Point{}) {
				w, h = j.Canvas.X, j.Canvas.Y
			}
			got := fmt.Sprintf("%dx%d", w, h)
			p := j.Part
			if o == 6 {
				p = part{p.Y, p.X, p.H, p.W}
			}
			if p != (part{}) && p != (part{W: 400, H: 200}) {
				got += fmt.Sprintf(" of %gx%g%+g%+g", p.W, p.H, p.X, p.Y)
			}
			if got != tt.want {
				t.Errorf("%s %d × %d, enlarge %v, orientation %d: %s, want %s", tt.fit, tt.w, tt.h, tt.enlarge, o, got, tt.want)
			}
		}
	}
}

// A31, F19: what would cost too much is refused by its header, at once and
// without memory; the child refuses it as well, should it get it.
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
			start := time.Now()
			_, err := New(Config{}).Image(strings.NewReader(bomb.data), int64(len(bomb.data)), ImageOptions{Width: 10})
			took := time.Since(start)
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

// A31: a progressive JPEG may not go over its pixels again and again.
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
// makes the next image.
func TestI16_F19_ImageChildMisbehaves(t *testing.T) {
	data := encoded(t, "png", corners(30, 20))
	for _, tt := range []struct {
		probe string
		want  fault.Code
		says  string
	}{
		{"hang", fault.FileInvalid, "the image cannot be read: it took more than 1s of computing"},
		{"panic", fault.FileInvalid, "the image is damaged beyond repair"},
		{"goroutine panic", fault.FileInvalid, "damaged"},
		{"memory", fault.FileTooLarge, "256 MiB of memory"},
		{"garbage", fault.FileInvalid, "damaged"},
	} {
		t.Run(tt.probe, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			r := New(Config{MaxMemory: 256 << 20, Silence: time.Minute, ImageStall: time.Second})
			r.probe = tt.probe
			_, _, err := made(t, r, data, ImageOptions{Width: 10})
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error = %v, want %s with %q", err, tt.want, tt.says)
			}
			r.probe = ""
			if _, _, err := made(t, r, data, ImageOptions{Width: 10}); err != nil {
				t.Errorf("the next image: %v", err)
			}
		})
	}
}

// Without a child the same comes out; a writer that fails ends the work.
func TestImageWithoutChild(t *testing.T) {
	wired.Store(false)
	defer wired.Store(true)
	defer goleak.VerifyNone(t)
	r := New(Config{})
	data := encoded(t, "png", corners(300, 200))
	if _, _, err := made(t, r, data, ImageOptions{Width: 100, Format: "bmp"}); err != nil {
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
	wired.Store(true)
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

// F19, A31: damaged copies of images end in a picture or in a typed error, and
// the process lives. 120 of them with ROUX_LONG=1.
func TestF19_A31_DamagedImages(t *testing.T) {
	sources := smallImages(t)
	big := corners(300, 200)
	for i := range big.Pix {
		big.Pix[i] ^= byte(i * 7 & 31)
	}
	sources["large jpeg"], sources["large png"], sources["large tiff"] = encoded(t, "jpeg", big), encoded(t, "png", big), encoded(t, "tiff", big)
	names := slices.Sorted(maps.Keys(sources))
	n := 36
	if os.Getenv("ROUX_LONG") != "" {
		n = 120
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
		case 2: // a hole
			at := rng.IntN(len(data))
			data = append(data[:at], data[min(at+1+rng.IntN(9), len(data)):]...)
		case 3: // the header lies
			at := rng.IntN(min(40, len(data)))
			copy(data[at:], []byte{0xff, 0xff, 0xff, 0xff}[:min(4, len(data)-at)])
		}
		start := time.Now()
		_, _, err := made(t, r, data, ImageOptions{Width: 20, Format: "png"})
		if took := time.Since(start); took > 5*time.Second {
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

// What is written carries no metadata, and the colour profile of the source.
func TestMetadataIsStripped(t *testing.T) {
	profile := make([]byte, 300)
	copy(profile, be(uint32(300), "test", uint32(0), "mntrRGB XYZ ", strings.Repeat("\x00", 12), "acsp"))
	r := New(Config{})
	for _, from := range []string{"jpeg", "png"} {
		source := encoded(t, from, corners(30, 20))
		at, segment := 2, profileSegment(from, corners(1, 1), profile)
		if from == "png" {
			at = 33
		}
		source = slices.Concat(source[:at], segment, source[at:])
		source = withEXIF(source, 3)
		if got := profileOf(source); !bytes.Equal(got, profile) {
			t.Fatalf("%s: the source's profile is %d bytes", from, len(got))
		}
		for _, to := range ImageFormatsWritten {
			_, out, err := made(t, r, source, ImageOptions{Width: 20, Format: to})
			if err != nil {
				t.Fatal(err)
			}
			for _, mark := range []string{"Exif\x00", "eXIf", "\xff\xe1", "tEXt", "tIME"} {
				if bytes.Contains(out, []byte(mark)) {
					t.Errorf("%s to %s: the result holds %q", from, to, mark)
				}
			}
			if got := profileOf(out); (to == "jpeg" || to == "png") != bytes.Equal(got, profile) {
				t.Errorf("%s to %s: the profile has %d bytes", from, to, len(got))
			}
		}
	}
	// A profile about something else than the picture stays behind.
	copy(profile[16:], "CMYK")
	if profileSegment("jpeg", corners(1, 1), profile) != nil {
		t.Error("a CMYK profile went along")
	}
}

// I15: images just under the limits are made, with all copies that it takes,
// within the memory of the child. A minute of computing, so only with
// ROUX_LONG=1.
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

// FuzzMakeImage: any bytes give an image of the size that was asked for, or a
// typed error.
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
		if w, h := turned(job.Orientation, job.Width, job.Height); got != (Picture{w, h}) {
			t.Errorf("made %+v of %+v", got, job)
		}
	})
}

// X159: a header with a wrong checksum still says its size, and that it is
// damaged; it is not decoded.
func TestX159_DamagedHeader(t *testing.T) {
	data := encoded(t, "png", corners(24, 16))
	for _, broken := range []bool{false, true} {
		if broken {
			data[30] ^= 1 // in the checksum of IHDR
		}
		info, err := ImageInfo(bytes.NewReader(data), int64(len(data)))
		if err != nil || info.Width != 24 || info.Height != 16 || info.Damaged != broken {
			t.Errorf("broken %v: %+v, %v", broken, info, err)
		}
		if _, _, err := made(t, New(Config{}), data, ImageOptions{}); errors.Is(err, fault.FileInvalid) != broken {
			t.Errorf("broken %v: decoding: %v", broken, err)
		}
	}
}
