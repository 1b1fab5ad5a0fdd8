// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
)

// portrait is a JPEG of 300 × 200 pixels with an EXIF orientation: it is shown
// as 200 × 300, red at the top left.
func portrait(t testing.TB) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, 300, 200))
	for y := range 200 {
		for x := range 300 {
			c := color.RGBA{40, 90, 160, 255}
			if x < 100 && y >= 100 { // the bottom left is turned to the top left
				c = color.RGBA{220, 30, 30, 255}
			}
			m.SetRGBA(x, y, c)
		}
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, m, nil); err != nil {
		t.Fatal(err)
	}
	exif := "Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00GPS: a secret place"
	segment := append([]byte{0xff, 0xe1, 0, byte(len(exif) + 2)}, exif...)
	return append(append(out.Bytes()[:2:2], segment...), out.Bytes()[2:]...)
}

func pngOf(t testing.TB, m image.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := png.Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// half is a PNG whose left half is green and whose right half is transparent.
func half(t testing.TB) []byte {
	m := image.NewNRGBA(image.Rect(0, 0, 64, 48))
	for y := range 48 {
		for x := range 32 {
			m.SetNRGBA(x, y, color.NRGBA{0, 200, 0, 255})
		}
	}
	return pngOf(t, m)
}

func fileOf(t testing.TB, s *blob.Store, hash any) ([]byte, action.FileInfo) {
	t.Helper()
	f, err := s.Open(context.Background(), "acme", hash.(string))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return data, f.Info()
}

// X158, X160: named and exact sizes, every fit, formats; the resulting file
// agrees with the output.
func TestX158_X160_ResizeImage(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	s := store(t)
	photo := upload(t, s, "Ferry at dusk.JPG", portrait(t)).Hash
	logo := upload(t, s, "logo.png", half(t)).Hash
	for _, tt := range []struct {
		name  string
		file  string
		input map[string]any
		want  string
	}{
		{"medium is the default, and nothing grows", photo, nil, "Ferry at dusk-medium.jpg image/jpeg 200x300"},
		{"thumbnail", photo, map[string]any{"size": "thumbnail"}, "Ferry at dusk-thumbnail.jpg image/jpeg 133x200"},
		{"large and grown", photo, map[string]any{"size": "large", "enlarge": true}, "Ferry at dusk-large.jpg image/jpeg 1067x1600"},
		{"thumbnail as a square", photo, map[string]any{"size": "thumbnail", "fit": "cover"}, "Ferry at dusk-thumbnail.jpg image/jpeg 200x200"},
		{"one side", photo, map[string]any{"width": 50}, "Ferry at dusk-50w.jpg image/jpeg 50x75"},
		{"the other side", photo, map[string]any{"height": 30}, "Ferry at dusk-30h.jpg image/jpeg 20x30"},
		{"inside", photo, map[string]any{"width": 100, "height": 100}, "Ferry at dusk-100x100.jpg image/jpeg 67x100"},
		{"outside", photo, map[string]any{"width": 100, "height": 100, "fit": "outside"}, "Ferry at dusk-100x100.jpg image/jpeg 100x150"},
		{"contain", photo, map[string]any{"width": 100, "height": 90, "fit": "contain"}, "Ferry at dusk-100x90.jpg image/jpeg 100x90"},
		{"cover", photo, map[string]any{"width": 100, "height": 90, "fit": "cover"}, "Ferry at dusk-100x90.jpg image/jpeg 100x90"},
		{"fill", photo, map[string]any{"width": 100, "height": 30, "fit": "fill"}, "Ferry at dusk-100x30.jpg image/jpeg 100x30"},
		{"another format", photo, map[string]any{"width": 20, "format": "PNG"}, "Ferry at dusk-20w.png image/png 20x30"},
		{"jpg is jpeg", logo, map[string]any{"width": 20, "format": "jpg", "quality": 40}, "logo-20w.jpg image/jpeg 20x15"},
		{"a name", logo, map[string]any{"width": 21, "name": "wide 1.2"}, "wide 1.2.png image/png 21x16"},
		{"a name with another ending", logo, map[string]any{"width": 22, "name": "../wide.JPG"}, "wide.png image/png 22x17"},
		{"the format stays", logo, map[string]any{"width": 20}, "logo-20w.png image/png 20x15"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			input := map[string]any{"file": tt.file}
			for k, v := range tt.input {
				input[k] = v
			}
			got, err := call(t, s, "resize-image", input)
			if err != nil {
				t.Fatal(err)
			}
			if said := fmt.Sprintf("%v %v %vx%v", got["name"], got["mimeType"], got["width"], got["height"]); said != tt.want {
				t.Errorf("got  %s\nwant %s", said, tt.want)
			}
			data, info := fileOf(t, s, got["file"])
			cfg, format, err := image.DecodeConfig(bytes.NewReader(data))
			if err != nil || int64(cfg.Width) != got["width"] || int64(cfg.Height) != got["height"] || format != got["format"] {
				t.Errorf("the file is %s %d × %d, %v", format, cfg.Width, cfg.Height, err)
			}
			if info.Name != got["name"] || info.MimeType != got["mimeType"] || info.Size != got["sizeBytes"] || int64(len(data)) != info.Size {
				t.Errorf("stored as %+v", info)
			}
			if bytes.Contains(data, []byte("Exif")) || bytes.Contains(data, []byte("secret place")) {
				t.Error("the result carries EXIF")
			}
		})
	}
}

// X160: the image is upright, and transparent where it was.
func TestX160_Pixels(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	s := store(t)
	near := func(c color.Color, want color.NRGBA, off int) bool {
		n := color.NRGBAModel.Convert(c).(color.NRGBA)
		d := func(a, b uint8) bool { return max(int(a)-int(b), int(b)-int(a)) <= off }
		return d(n.R, want.R) && d(n.G, want.G) && d(n.B, want.B) && d(n.A, want.A)
	}
	red, blue, green := color.NRGBA{220, 30, 30, 255}, color.NRGBA{40, 90, 160, 255}, color.NRGBA{0, 200, 0, 255}
	white, none := color.NRGBA{255, 255, 255, 255}, color.NRGBA{}
	photo := upload(t, s, "p.jpg", portrait(t)).Hash
	logo := upload(t, s, "l.png", half(t)).Hash
	for _, tt := range []struct {
		name, action  string
		input         map[string]any
		first, second color.NRGBA // at the top left and right
	}{
		{"turned and smaller", "resize-image", map[string]any{"file": photo, "size": "thumbnail"}, red, blue},
		{"turned and converted", "convert-image", map[string]any{"file": photo, "format": "png"}, red, blue},
		{"transparent stays", "resize-image", map[string]any{"file": logo, "width": 32}, green, none},
		{"transparent in a GIF", "convert-image", map[string]any{"file": logo, "format": "gif"}, green, none},
		{"transparent in a TIFF", "convert-image", map[string]any{"file": logo, "format": "tiff"}, green, none},
		{"white in a JPEG", "convert-image", map[string]any{"file": logo, "format": "jpeg"}, green, white},
		{"a background in a JPEG", "convert-image", map[string]any{"file": logo, "format": "jpeg", "background": "#28f"}, green, color.NRGBA{0x22, 0x88, 0xff, 255}},
		{"a background in a BMP", "convert-image", map[string]any{"file": logo, "format": "bmp", "background": "black"}, green, color.NRGBA{0, 0, 0, 255}},
		{"a canvas", "resize-image", map[string]any{"file": logo, "width": 30, "height": 40, "fit": "contain", "background": "#ff000080"},
			color.NRGBA{255, 0, 0, 128}, color.NRGBA{255, 0, 0, 128}},
		{"a canvas nobody coloured", "resize-image", map[string]any{"file": logo, "width": 30, "height": 40, "fit": "contain"}, none, none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := call(t, s, tt.action, tt.input)
			if err != nil {
				t.Fatal(err)
			}
			data, _ := fileOf(t, s, got["file"])
			m, _, err := image.Decode(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			b := m.Bounds()
			if first, second := m.At(2, 2), m.At(b.Max.X-3, 2); !near(first, tt.first, 12) || !near(second, tt.second, 12) {
				t.Errorf("%v and %v, want %v and %v", first, second, tt.first, tt.second)
			}
		})
	}
}

// X160: surprising results have a note.
func TestX160_Notes(t *testing.T) {
	s := store(t)
	frame := func(c uint8) *image.Paletted {
		p := image.NewPaletted(image.Rect(0, 0, 8, 6), color.Palette{color.Black, color.White})
		for i := range p.Pix {
			p.Pix[i] = c
		}
		return p
	}
	var moving bytes.Buffer
	if err := gif.EncodeAll(&moving, &gif.GIF{Image: []*image.Paletted{frame(0), frame(1)}, Delay: []int{5, 5}}); err != nil {
		t.Fatal(err)
	}
	// A lossless WebP of one pixel.
	webp := []byte("RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00")
	for _, tt := range []struct {
		name, says, format string
		data               []byte
	}{
		{"moving.gif", "only its first frame", "gif", moving.Bytes()},
		{"dot.webp", "webp is read and not written: the result is png", "png", webp},
	} {
		got, err := call(t, s, "resize-image", map[string]any{"file": upload(t, s, tt.name, tt.data).Hash})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if notes := fmt.Sprint(got["notes"]); !strings.Contains(notes, tt.says) || got["format"] != tt.format {
			t.Errorf("%s: %v, notes %s", tt.name, got["format"], notes)
		}
	}
}

// Invalid inputs are refused with a code and a remedy.
func TestX216_ImageRefusals(t *testing.T) {
	s := store(t)
	photo := upload(t, s, "photo.jpg", portrait(t)).Hash
	note := upload(t, s, "note.txt", []byte("no image")).Hash
	posing := upload(t, s, "posing.png", []byte("%PDF-1.4\n")).Hash
	empty := upload(t, s, "empty.jpg", nil).Hash
	cut := upload(t, s, "cut.jpg", portrait(t)[:2000]).Hash
	bomb := upload(t, s, "bomb.png", bombPNG()).Hash
	for _, tt := range []struct {
		name, action string
		input        map[string]any
		code         fault.Code
		says         string
	}{
		{"a text", "resize-image", map[string]any{"file": note}, fault.FileUnsupported, "file note.txt is text/plain: want an image as jpeg, png, gif, bmp, tiff, webp"},
		{"a PDF that poses", "convert-image", map[string]any{"file": posing, "format": "png"}, fault.FileUnsupported, "application/pdf"},
		{"an empty file", "resize-image", map[string]any{"file": empty}, fault.FileInvalid, "empty.jpg is empty"},
		{"a file cut off", "resize-image", map[string]any{"file": cut}, fault.FileInvalid, "cut off"},
		{"a bomb", "resize-image", map[string]any{"file": bomb}, fault.FileTooLarge, "30000 × 30000 = 900 million pixels: at most 50 million"},
		{"WebP as target", "convert-image", map[string]any{"file": photo, "format": "webp"}, fault.InputInvalid, `format "webp" cannot be written: want jpeg, png, gif, bmp, tiff`},
		{"AVIF as target", "resize-image", map[string]any{"file": photo, "format": "avif"}, fault.InputInvalid, "want jpeg, png, gif, bmp, tiff"},
		{"metadata kept", "convert-image", map[string]any{"file": photo, "format": "png", "stripMetadata": false}, fault.InputInvalid, "written anew"},
		{"size and width", "resize-image", map[string]any{"file": photo, "size": "large", "width": 5}, fault.InputInvalid, "want one of them"},
		{"too large a result", "resize-image", map[string]any{"file": photo, "width": 16000, "height": 16000, "fit": "fill", "enlarge": true}, fault.InputInvalid, "256000000 pixels: at most 50000000"},
		{"a side of nothing", "resize-image", map[string]any{"file": photo, "width": 0}, fault.InputContractViolation, "width"},
		{"an unknown fit", "resize-image", map[string]any{"file": photo, "fit": "crop"}, fault.InputContractViolation, "fit"},
		{"no colour", "resize-image", map[string]any{"file": photo, "background": "blueish"}, fault.InputContractViolation, "background"},
		{"no format", "convert-image", map[string]any{"file": photo}, fault.InputContractViolation, "format"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := call(t, s, tt.action, tt.input)
			if !errors.Is(err, tt.code) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error = %v, want %s with %q", err, tt.code, tt.says)
			}
		})
	}
}

// bombPNG claims 900 million pixels in a few bytes.
func bombPNG() []byte {
	return []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x75\x30\x00\x00\x75\x30\x01\x00\x00\x00\x00\x12\x34\x56\x78\x00\x00\x00\x00IDAT\x35\xaf\x06\x1e")
}

// A31: a decompression bomb costs neither memory nor a child.
func TestA31_BombsCostNothing(t *testing.T) {
	s := store(t)
	bomb := upload(t, s, "bomb.png", bombPNG()).Hash
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := call(t, s, "resize-image", map[string]any{"file": bomb}); !errors.Is(err, fault.FileTooLarge) {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if grew := after.TotalAlloc - before.TotalAlloc; grew > 8<<20 {
		t.Errorf("%d bytes were allocated", grew)
	}
}

// A15, A31: the name of a result is safe wherever it is used later.
func TestA15_A31_OutputNames(t *testing.T) {
	for source, want := range map[string]string{
		"photo.jpeg":             "photo-s.png",
		"":                       "image-s.png",
		".jpg":                   "image-s.png",
		"..":                     "image-s.png",
		"../../etc/passwd":       "etc-passwd-s.png",
		`..\..\boot.ini`:         "boot-s.png",
		"/absolute":              "absolute-s.png",
		"a%2e%2e%2fb.png":        "a-2e-2e-2fb-s.png",
		"nul\x00l.png":           "nul-l-s.png",
		"a\r\nSet-Cookie: x.png": "a--Set-Cookie- x-s.png",
		"\x1b[31mred.png":        "31mred-s.png",
		"con.png":                "image-con-s.png",
		"LPT1.tar.png":           "image-LPT1.tar-s.png",
		"=cmd()|x!A1.png":        "cmd()-x-A1-s.png",
		"a\u202egnp.exe":         "a-gnp-s.png",
		"Überfahrt 3.tif":        "Überfahrt 3-s.png",
		"broken\xff.png":         "broken-s.png",
	} {
		if got := outputName(source, "s", "png"); got != want {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
	if got := outputName(strings.Repeat("ö", 500)+".png", "", "jpeg"); len(got) > 154 || !strings.HasSuffix(got, "ö.jpg") {
		t.Errorf("a long name became %q", got)
	}
}

// X159: audio and video have a duration if the header states it, and an image
// is described as it is shown.
func TestX159_SoundsAndPictures(t *testing.T) {
	s := store(t)
	wav := "RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00\x01\x00\x08\x00data\xa0\x0f\x00\x00" + strings.Repeat("\x80", 4_000)
	film := "\x00\x00\x00\x14ftypisom\x00\x00\x02\x00isom\x00\x00\x00\x6cmoov\x00\x00\x00\x64mvhd\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
		"\x00\x00\x03\xe8\x00\x00\x09\xc4" + strings.Repeat("\x00", 72)
	for _, tt := range []struct {
		name, data, mime string
		want             map[string]any
	}{
		{"beep.wav", wav, "audio/", map[string]any{"format": "wav", "durationMs": int64(500)}},
		{"clip.mp4", film, "video/mp4", map[string]any{"format": "mp4", "durationMs": int64(2_500)}},
		{"noise.mp3", "\xff\xfb\x90\x00" + strings.Repeat("\x00", 413) + "\xff\xfb\x90\x00" + strings.Repeat("\x00", 413), "audio/mpeg",
			map[string]any{"format": "mp3", "durationMs": int64(52), "durationEstimated": true}},
		{"photo.jpg", string(portrait(t)), "image/jpeg", map[string]any{"format": "jpeg", "width": int64(300), "height": int64(200), "orientation": int64(6),
			"shownWidth": int64(200), "shownHeight": int64(300), "hasAlpha": false, "animated": false}},
		{"logo.png", string(half(t)), "image/png", map[string]any{"format": "png", "width": int64(64), "height": int64(48), "orientation": int64(1),
			"shownWidth": int64(64), "shownHeight": int64(48), "hasAlpha": true, "animated": false}},
	} {
		got, err := call(t, s, "file-inspect", map[string]any{"file": upload(t, s, tt.name, []byte(tt.data)).Hash})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if mime := got["mimeType"].(string); !strings.HasPrefix(mime, tt.mime) || fmt.Sprint(got["extended"]) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %s %v\nwant %s %v", tt.name, mime, got["extended"], tt.mime, tt.want)
		}
	}
}

// The whole action on a photo of 4000 × 3000 pixels, from the file store and
// back; the limit is 800 ms.
func BenchmarkResizeImage(b *testing.B) {
	m := image.NewRGBA(image.Rect(0, 0, 4_000, 3_000))
	for i := range m.Pix {
		m.Pix[i] = byte(i>>8) ^ byte(i*31>>7)
	}
	var photo bytes.Buffer
	if err := jpeg.Encode(&photo, m, &jpeg.Options{Quality: 90}); err != nil {
		b.Fatal(err)
	}
	s := store(b)
	file := upload(b, s, "photo.jpg", photo.Bytes()).Hash
	for b.Loop() {
		if _, err := call(b, s, "resize-image", map[string]any{"file": file, "width": 800, "height": 600}); err != nil {
			b.Fatal(err)
		}
	}
}
