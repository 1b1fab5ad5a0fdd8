// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
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

// photo is a JPEG of 4000 × 3000 pixels: gradients, edges and some noise, as a
// camera makes them.
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

// The whole of 4000 × 3000 → 800 × 600 with the start of the child; the bar is
// 800 ms.
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

// The resampling alone, by the kind of picture; the bar is 300 ms on two cores.
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
	whole := part{W: 4000, H: 3000}
	for name, m := range map[string]image.Image{"jpeg": m, "opaque": pixels, "transparent": clear} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				scale(m, whole, 800, 600)
			}
		})
	}
	b.Run("library", func(b *testing.B) { // what it was chosen over
		for b.Loop() {
			out := image.NewRGBA(image.Rect(0, 0, 800, 600))
			xdraw.CatmullRom.Scale(out, out.Rect, m, m.Bounds(), draw.Src, nil)
		}
	})
}

var _ = math.Pi
