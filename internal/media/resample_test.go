// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	xdraw "golang.org/x/image/draw"
)

// photo is a JPEG of 4000 × 3000 pixels with gradients, edges and some noise,
// like a photo.
var photo = sync.OnceValue(func() []byte {
	m := image.NewRGBA(image.Rect(0, 0, 4000, 3000))
	rng := rand.New(rand.NewPCG(1, 2))
	for y := range 3000 {
		for x := range 4000 {
			n := rng.IntN(12)
			m.SetRGBA(x, y, color.RGBA{uint8(x/16 + n), uint8(y/12 + n), uint8((x/50^y/40)*4 + n), 255})
		}
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, m, &jpeg.Options{Quality: 90}); err != nil {
		panic(err)
	}
	return out.Bytes()
})

// Scaling 4000 × 3000 to 800 × 600 including the start of the child; the limit
// is 800 ms.
func BenchmarkResizePhoto(b *testing.B) {
	data := photo()
	r := New(Config{})
	b.ResetTimer()
	for b.Loop() {
		job, err := r.Image(bytes.NewReader(data), int64(len(data)), ImageOptions{Width: 800, Height: 600})
		if err != nil {
			b.Fatal(err)
		}
		if err := job.Run(context.Background(), io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodePhoto(b *testing.B) {
	data := photo()
	for b.Loop() {
		if _, err := decodeImage(data, DefaultMaxMemory); err != nil {
			b.Fatal(err)
		}
	}
}

// Only the resampling, by type of image; the limit is 300 ms on two cores.
func BenchmarkResample(b *testing.B) {
	m, err := decodeImage(photo(), DefaultMaxMemory)
	if err != nil {
		b.Fatal(err)
	}
	pixels := pixelsOf(m)
	clear := image.NewNRGBA(pixels.Rect)
	copy(clear.Pix, pixels.Pix)
	for i := 3; i < len(clear.Pix); i += 4 {
		clear.Pix[i] = byte(i)
	}
	whole := cropRect{W: 4000, H: 3000}
	for name, m := range map[string]image.Image{"jpeg": m, "opaque": pixels, "transparent": clear} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				scale(m, whole, 800, 600)
			}
		})
	}
	b.Run("library", func(b *testing.B) { // the alternative
		for b.Loop() {
			out := image.NewRGBA(image.Rect(0, 0, 800, 600))
			xdraw.CatmullRom.Scale(out, out.Rect, m, m.Bounds(), draw.Src, nil)
		}
	})
}

// resized returns m scaled to a new size.
func resized(m image.Image, w, h int) image.Image {
	size := m.Bounds().Size()
	return scale(m, cropRect{W: float64(size.X), H: float64(size.Y)}, w, h)
}

// noise is an image in which every pixel matters.
func noise(w, h int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range m.Pix {
		m.Pix[i] = byte(rng.Uint32())
	}
	return m
}

// resampleExactly scales an image the slow way: in floating point, with all
// weights of each pixel by the definition of the kernel, on premultiplied
// colours. It shares no code with the resampler.
func resampleExactly(m *image.NRGBA, w, h int) *image.NRGBA {
	out := image.NewNRGBA(image.Rect(0, 0, w, h))
	weigh := func(i, n, size int) []float64 {
		f := float64(size) / float64(n)
		wide := math.Max(f, 1)
		all, sum := make([]float64, size), 0.0
		for k := range all {
			x := math.Abs((float64(k) + 0.5 - (float64(i)+0.5)*f) / wide)
			switch {
			case x < 1:
				all[k] = 1 - 2.5*x*x + 1.5*x*x*x
			case x < 2:
				all[k] = 2 - 4*x + 2.5*x*x - 0.5*x*x*x
			}
			sum += all[k]
		}
		for k := range all {
			all[k] /= sum
		}
		return all
	}
	for y := range h {
		down := weigh(y, h, m.Rect.Dy())
		for x := range w {
			across := weigh(x, w, m.Rect.Dx())
			var s [4]float64
			for j, v := range down {
				for i, u := range across {
					if u == 0 || v == 0 {
						continue
					}
					p := m.Pix[m.PixOffset(i, j):]
					a := u * v * float64(p[3])
					s[0], s[1], s[2], s[3] = s[0]+a*float64(p[0]), s[1]+a*float64(p[1]), s[2]+a*float64(p[2]), s[3]+a
				}
			}
			o := out.Pix[out.PixOffset(x, y):]
			round := func(v float64) byte { return byte(math.Min(math.Max(math.Round(v), 0), 255)) }
			if o[3] = round(s[3]); o[3] > 0 {
				o[0], o[1], o[2] = round(s[0]/s[3]), round(s[1]/s[3]), round(s[2]/s[3])
			}
		}
	}
	return out
}

// X160: every pixel agrees with the definition of the kernel: smaller, larger
// and stretched, opaque and not.
func TestX160_ResampleExactly(t *testing.T) {
	for _, opaque := range []bool{true, false} {
		for _, size := range []image.Point{{20, 15}, {33, 7}, {97, 61}, {150, 100}, {1, 1}, {60, 90}, {3, 2}} {
			m := noise(61, 47)
			if size.X == 3 {
				m = noise(30_000, 3) // thousands of weights for each pixel
			}
			for i := 3; opaque && i < len(m.Pix); i += 4 {
				m.Pix[i] = 255
			}
			got, want := resized(m, size.X, size.Y).(*image.NRGBA), resampleExactly(m, size.X, size.Y)
			worst := 0
			for i := 0; i < len(got.Pix); i += 4 {
				if a := min(got.Pix[i+3], want.Pix[i+3]); a < 8 {
					worst = max(worst, int(max(got.Pix[i+3], want.Pix[i+3]))-int(a)) // colours of almost transparent pixels matter little
					continue
				}
				for c := range 4 {
					worst = max(worst, int(got.Pix[i+c])-int(want.Pix[i+c]), int(want.Pix[i+c])-int(got.Pix[i+c]))
				}
			}
			if worst > 1 {
				t.Errorf("%v, opaque %v: off by up to %d", size, opaque, worst)
			}
		}
	}
}

// X160: the result agrees with the library that the resampler replaces, for
// chroma as JPEG stores it.
func TestX160_ResampleLikeTheLibrary(t *testing.T) {
	whole, err := decodeImage(photo(), DefaultMaxMemory)
	if err != nil {
		t.Fatal(err)
	}
	m := whole.(*image.YCbCr).SubImage(image.Rect(400, 600, 1000, 1001)).(*image.YCbCr) // an odd number of rows
	got := pixelsOf(resized(m, 211, 140))
	want := image.NewRGBA(image.Rect(0, 0, 211, 140))
	xdraw.CatmullRom.Scale(want, want.Rect, m, m.Bounds(), draw.Src, nil)
	sum, worst := 0, 0
	for i := range got.Pix {
		d := max(int(got.Pix[i])-int(want.Pix[i]), int(want.Pix[i])-int(got.Pix[i]))
		sum, worst = sum+d, max(worst, d)
	}
	if mean := float64(sum) / float64(len(got.Pix)); mean > 1 || worst > 24 {
		t.Errorf("off by %.2f in the mean, by %d at worst", mean, worst)
	}
}

// X160: an image too fine for the result becomes gray, not a false pattern.
func TestX160_NothingAliases(t *testing.T) {
	const size = 800
	checks, rings := image.NewGray(image.Rect(0, 0, size, size)), image.NewGray(image.Rect(0, 0, size, size))
	for y := range size {
		for x := range size {
			checks.Pix[y*size+x] = byte((x + y) % 2 * 255)
			dx, dy := float64(x), float64(y)
			rings.Pix[y*size+x] = byte(127.5 + 127.5*math.Cos(math.Pi*(dx*dx+dy*dy)/(2*size)))
		}
	}
	for _, n := range []int{100, 133, 210} {
		small := resized(checks, n, n).(*image.Gray)
		for i, v := range small.Pix {
			if x, y := i%n, i/n; x > 0 && y > 0 && x < n-1 && y < n-1 && (v < 124 || v > 131) {
				t.Fatalf("checks at %d: pixel %d,%d is %d, want 127 or 128", n, x, y, v)
			}
		}
		small = resized(rings, n, n).(*image.Gray)
		keepGray(t, "rings", n, small)
		// At (x, y) the rings have x/size half waves per pixel across, so beyond
		// n/size of the side plus the slope of the kernel nothing may be left.
		sum, count := 0.0, 0
		for y := range n {
			for x := range n {
				if float64(max(x, y)) > 2*float64(n)*float64(n)/size+2 && max(x, y) < n-3 && min(x, y) > 2 {
					sum, count = sum+math.Pow(float64(small.Pix[y*n+x])-127.5, 2), count+1
				}
			}
		}
		if rms := math.Sqrt(sum / float64(count)); rms > 3 || count == 0 {
			t.Errorf("rings at %d: %.1f of contrast is left in %d pixels", n, rms, count)
		}
	}
}

func keepGray(t *testing.T, name string, n int, m image.Image) {
	keep(t, fmt.Sprintf("%s-%d.png", name, n), m)
}

// X160: a uniform colour does not change, in each type of image and with every
// fit.
func TestX160_PlainStaysPlain(t *testing.T) {
	for _, c := range []color.NRGBA{{1, 2, 3, 255}, {255, 255, 255, 255}, {250, 130, 7, 255}, {200, 100, 50, 3}, {9, 255, 77, 128}} {
		m := image.NewNRGBA(image.Rect(0, 0, 301, 203))
		fill(m, Colour{c.R, c.G, c.B, c.A})
		for _, size := range []image.Point{{100, 67}, {7, 200}, {640, 480}, {1, 1}} {
			got := resized(m, size.X, size.Y).(*image.NRGBA)
			for i := 0; i < len(got.Pix); i += 4 {
				if p := got.NRGBAAt(i/4%size.X, i/4/size.X); p != c {
					t.Fatalf("%v at %v became %v", c, size, p)
				}
			}
		}
		long := image.NewNRGBA(image.Rect(0, 0, 20_001, 3))
		fill(long, Colour{c.R, c.G, c.B, c.A})
		if got := resized(long, 1, 1).(*image.NRGBA).NRGBAAt(0, 0); got != c {
			t.Errorf("%v of 20,001 pixels became %v", c, got)
		}
		y := image.NewYCbCr(image.Rect(0, 0, 301, 203), image.YCbCrSubsampleRatio420)
		for i := range y.Y {
			y.Y[i] = c.R
		}
		for i := range y.Cb {
			y.Cb[i], y.Cr[i] = c.G, c.B
		}
		got := resized(y, 99, 98).(*image.YCbCr)
		for i := range got.Y {
			if got.Y[i] != c.R || got.Cb[i] != c.G || got.Cr[i] != c.B {
				t.Fatalf("JPEG %v became %d %d %d", c, got.Y[i], got.Cb[i], got.Cr[i])
			}
		}
	}
}

// X160: transparent pixels have no colour that could bleed: the edge of a white
// shape on transparent black stays white.
func TestX160_EdgesDoNotDarken(t *testing.T) {
	m := image.NewNRGBA(image.Rect(0, 0, 90, 90))
	for y := range 90 {
		for x := range 90 {
			if (x-45)*(x-45)+(y-45)*(y-45) < 1_600 {
				m.SetNRGBA(x, y, color.NRGBA{255, 255, 255, 255})
			}
		}
	}
	got := resized(m, 31, 31).(*image.NRGBA)
	soft := 0
	for i := 0; i < len(got.Pix); i += 4 {
		p := got.Pix[i : i+4]
		if p[3] > 0 && p[3] < 255 {
			soft++
		}
		if p[3] > 0 && (p[0] != 255 || p[1] != 255 || p[2] != 255) {
			t.Fatalf("pixel %d is %v: want white", i/4, p)
		}
	}
	if soft < 20 {
		t.Errorf("only %d pixels of the edge are soft", soft)
	}
}

// Each image type that decoders return becomes one of three, with the same
// colours.
func TestNormalise(t *testing.T) {
	bounds := image.Rect(0, 0, 16, 8)
	want := image.NewNRGBA(bounds)
	for i := 0; i < len(want.Pix); i += 4 {
		copy(want.Pix[i:], []byte{byte(i * 3), byte(255 - i), byte(i), 255})
	}
	clear := image.NewNRGBA(bounds)
	copy(clear.Pix, want.Pix)
	for i := 3; i < len(clear.Pix); i += 4 {
		clear.Pix[i] = byte(64 + i/4)
	}
	palette := color.Palette{}
	for i := range 128 {
		palette = append(palette, clear.At(i%16, i/16))
	}
	for name, tt := range map[string]struct {
		m    draw.Image
		want *image.NRGBA
		off  int
	}{
		"RGBA":     {image.NewRGBA(bounds), clear, 4},
		"RGBA64":   {image.NewRGBA64(bounds), clear, 3},
		"NRGBA64":  {image.NewNRGBA64(bounds), clear, 2},
		"CMYK":     {image.NewCMYK(bounds), want, 1},
		"Paletted": {image.NewPaletted(bounds, palette), clear, 0},
		"NRGBA":    {image.NewNRGBA(bounds), clear, 2},
		"smaller":  {image.NewNRGBA(image.Rect(3, 2, 9, 7)), clear, 2},
	} {
		draw.Draw(tt.m, tt.m.Bounds(), tt.want, tt.m.Bounds().Min, draw.Src)
		got := normalise(tt.m, bounds).(*image.NRGBA)
		for y := range 8 {
			for x := range 16 {
				want := color.Color(tt.want.NRGBAAt(x, y))
				if !(image.Point{x, y}).In(tt.m.Bounds()) {
					want = color.NRGBA{} // a frame smaller than its logical screen
				}
				if d := maxDifference(got.At(x, y), want); d > tt.off {
					t.Fatalf("%s: %d,%d is %v, want %v", name, x, y, got.At(x, y), want)
				}
			}
		}
	}
	gray := image.NewGray16(bounds)
	gray.SetGray16(3, 4, color.Gray16{0xabcd})
	if got := normalise(gray, bounds).(*image.Gray).GrayAt(3, 4).Y; got != 0xab {
		t.Errorf("16 bits of gray became %#x", got)
	}
}

// A GIF keeps the colours of an image with few, and approximates those of one
// with many.
func TestQuantise(t *testing.T) {
	few := corners(40, 30)
	few.SetNRGBA(5, 5, color.NRGBA{1, 2, 3, 20}) // almost transparent
	got := quantise(few)
	for y := range 30 {
		for x := range 40 {
			want := few.NRGBAAt(x, y)
			if want.A < 128 {
				want = color.NRGBA{}
			}
			if got.At(x, y) != want {
				t.Fatalf("%d,%d is %v, want %v", x, y, got.At(x, y), want)
			}
		}
	}
	many := image.NewNRGBA(image.Rect(0, 0, 200, 150))
	for y := range 150 {
		for x := range 200 {
			many.SetNRGBA(x, y, color.NRGBA{uint8(x), uint8(y), uint8(x * y / 120), 255})
		}
	}
	got = quantise(many)
	keep(t, "gif.png", got)
	// Compare the means of 10 × 10 pixels.
	small, want := resized(normalise(got, got.Rect), 20, 15), resized(many, 20, 15)
	for y := range 15 {
		for x := range 20 {
			if d := maxDifference(small.At(x, y), want.At(x, y)); d > 10 {
				t.Errorf("around %d,%d: %v, want %v", x*10, y*10, small.At(x, y), want.At(x, y))
			}
		}
	}
	if len(got.Palette) != 256 {
		t.Errorf("%d colours", len(got.Palette))
	}
}
