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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/cputime"
)

// runJobInProcess runs a job without a child, for tests of many images.
func runJobInProcess(t testing.TB, data []byte, opts ImageOptions) (image.Image, []byte, error) {
	t.Helper()
	job, err := New(Config{}).Image(bytes.NewReader(data), int64(len(data)), opts)
	if err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	if _, err := makeImage(data, job.job, DefaultMaxMemory, func(p []byte) error { out.Write(p); return nil }); err != nil {
		return nil, nil, err
	}
	m, err := codecs[job.Format].decode(bytes.NewReader(out.Bytes()))
	return m, out.Bytes(), err
}

// runJob runs a job in the child and decodes the result.
func runJob(t testing.TB, r *Reader, data []byte, opts ImageOptions) (image.Image, []byte, error) {
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

// X159, X160: the size and orientation of every shared image, as measured by
// other tools; a thumbnail of each undamaged one, a typed error for the others.
func TestX159_X160_SharedImages(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
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
			began := cputime.Used()
			m, _, err := runJob(t, r, data, ImageOptions{Width: 40, Height: 40, Format: "png"})
			if bad, ok := undecoded[name]; ok {
				if !errors.Is(err, bad.code) || !strings.Contains(err.Error(), bad.says) {
					t.Errorf("error = %v, want %s with %q", err, bad.code, bad.says)
				}
				if took := cputime.Used() - began; bad.code == fault.FileTooLarge && took > 50*time.Millisecond {
					t.Errorf("took %v to refuse", took)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			keep(t, filepath.Base(name)+".png", m)
			if f.Mime == "image/jpeg" { // cut off in its last scan
				if _, _, err := runJob(t, r, data[:len(data)-60], ImageOptions{Format: "png"}); !errors.Is(err, fault.FileInvalid) {
					t.Errorf("without its end: %v", err)
				}
			}
		})
	}
	if seen != 18 {
		t.Errorf("%d images, want 18", seen)
	}
}

// keep writes an image for people to look at, when ROUX_KEEP names a directory.
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

// exifOf returns an EXIF directory with only an orientation.
func exifOf(orientation byte) string {
	return "II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00" + string([]byte{orientation}) + "\x00\x00\x00\x00\x00\x00\x00"
}

// withEXIF inserts an orientation into a JPEG or PNG file.
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

// corners returns an image with different corners: red, green, blue and yellow,
// clockwise from the top left.
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

// smallImages are files of each format that can be written, and one WebP.
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

// X160: every orientation ends upright, in every format that has one, scaled or
// not.
func TestX160_Orientations(t *testing.T) {
	// The stored corner that is shown at the top left, and so on clockwise (EXIF
	// 2.32, table 6).
	shown := [9][4]int{1: {0, 1, 2, 3}, 2: {1, 0, 3, 2}, 3: {2, 3, 0, 1}, 4: {3, 2, 1, 0}, 5: {0, 3, 2, 1}, 6: {3, 0, 1, 2}, 7: {2, 1, 0, 3}, 8: {1, 2, 3, 0}}
	for _, format := range []string{"jpeg", "png"} {
		plain := encoded(t, format, corners(40, 20))
		for o := byte(1); o <= 8; o++ {
			data := withEXIF(plain, o)
			info, err := ImageInfo(bytes.NewReader(data), int64(len(data)))
			if err != nil || info.Orientation != int(o) || info.Width != 40 || info.Height != 20 {
				t.Fatalf("%s %d: %+v, %v", format, o, info, err)
			}
			for _, opts := range []ImageOptions{{Format: "png"}, {Format: "jpeg", Width: 20, Height: 20}, {Format: "png", Width: 12, Height: 12, Fit: FitCover}} {
				m, out, err := runJobInProcess(t, data, opts)
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
				if wantW, wantH = orientedSize(int(o), wantW, wantH); size != image.Pt(wantW, wantH) {
					t.Errorf("%s %d %+v: %v, want %d × %d", format, o, opts, size, wantW, wantH)
				}
				for i, p := range []image.Point{{1, 1}, {size.X - 2, 1}, {size.X - 2, size.Y - 2}, {1, size.Y - 2}} {
					if want := cornerColours[shown[o][i]]; maxDifference(m.At(p.X, p.Y), want) > 60 {
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

// maxDifference is the largest difference of any channel.
func maxDifference(a, b color.Color) int {
	x, _ := color.NRGBAModel.Convert(a).(color.NRGBA)
	y, _ := color.NRGBAModel.Convert(b).(color.NRGBA)
	d := func(p, q uint8) int { return max(int(p)-int(q), int(q)-int(p)) }
	return max(d(x.R, y.R), d(x.G, y.G), d(x.B, y.B), d(x.A, y.A))
}

// X160: the sizes of each fit, for an image that is shown as 400 × 200,
// whatever its stored orientation.
func TestX160_Fits(t *testing.T) {
	for _, tt := range []struct {
		fit     Fit
		w, h    int
		enlarge bool
		want    string // size of the result, and the crop of the source if any
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
			j := planSizes(info, ImageOptions{Width: tt.w, Height: tt.h, Fit: tt.fit, Enlarge: tt.enlarge})
			w, h := orientedSize(o, j.Width, j.Height)
			if j.Canvas != (image.Point{}) {
				w, h = j.Canvas.X, j.Canvas.Y
			}
			got := fmt.Sprintf("%dx%d", w, h)
			p := j.Crop
			if o == 6 {
				p = cropRect{p.Y, p.X, p.H, p.W}
			}
			if p != (cropRect{}) && p != (cropRect{W: 400, H: 200}) {
				got += fmt.Sprintf(" of %gx%g%+g%+g", p.W, p.H, p.X, p.Y)
			}
			if got != tt.want {
				t.Errorf("%s %d × %d, enlarge %v, orientation %d: %s, want %s", tt.fit, tt.w, tt.h, tt.enlarge, o, got, tt.want)
			}
		}
	}
}

// The result has no metadata except the colour profile of the source.
func TestMetadataIsStripped(t *testing.T) {
	profile := make([]byte, 300)
	copy(profile, be(uint32(300), "test", uint32(0), "mntrRGB XYZ ", strings.Repeat("\x00", 12), "acsp"))
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
			_, out, err := runJobInProcess(t, source, ImageOptions{Width: 20, Format: to})
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
	// A profile for another type of image is dropped.
	copy(profile[16:], "CMYK")
	if profileSegment("jpeg", corners(1, 1), profile) != nil {
		t.Error("a CMYK profile went along")
	}
}

// X159: of a header with a wrong checksum the size is still returned, with
// Damaged set; the image is not decoded.
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
		if _, _, err := runJob(t, New(Config{}), data, ImageOptions{}); errors.Is(err, fault.FileInvalid) != broken {
			t.Errorf("broken %v: decoding: %v", broken, err)
		}
	}
}
