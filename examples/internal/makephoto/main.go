// SPDX-License-Identifier: Apache-2.0

// Makephoto writes examples/photo.jpg: an evening at an invented strait, as a
// camera held upright stores it: rotated, with the EXIF orientation, and with the
// place where it was taken. It decides every pixel and reads nothing.
package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"image"
	"image/color"
	"image/jpeg"
	"log"
	"math"
	"os"
)

//go:generate go run . -o ../../photo.jpg

func main() {
	out := flag.String("o", "photo.jpg", "file to write")
	flag.Parse()
	data, err := makePhoto()
	if err == nil {
		err = os.WriteFile(*out, data, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// The image as it is shown, and how the camera stored it.
const (
	width, height = 900, 1200
	orientation   = 6 // shown rotated by 90 degrees clockwise
)

func makePhoto() ([]byte, error) {
	img := image.NewRGBA(image.Rect(0, 0, height, width))
	for y := range width {
		for x := range height {
			img.Set(x, y, scene(width-1-y, x))
		}
	}
	var buf bytes.Buffer
	if err := jpeg.Encode(&buf, img, &jpeg.Options{Quality: 85}); err != nil {
		return nil, err
	}
	// The EXIF segment follows the two bytes that begin the file.
	app1 := append([]byte("Exif\x00\x00"), exif()...)
	note := binary.BigEndian.AppendUint16([]byte{0xFF, 0xE1}, uint16(len(app1)+2))
	return append(append(append([]byte(nil), buf.Bytes()[:2]...), append(note, app1...)...), buf.Bytes()[2:]...), nil
}

// scene returns the colour at a point of the upright image: sky, a low sun,
// three rows of hills and the water that reflects them.
func scene(x, y int) color.RGBA {
	const horizon = 760
	mirrored := y > horizon
	fx, fy := float64(x), float64(y)
	if mirrored {
		fx += 6 * math.Sin(fy/7) * (fy - horizon) / 300
		fy = horizon - (fy-horizon)*0.9
	}
	r, g, b := mix(fy/horizon, 30, 52, 104, 250, 170, 96)
	if d := math.Hypot(fx-620, fy-600); d < 260 {
		glow := (1 - d/260) * (1 - d/260)
		r, g, b = r+glow*90, g+glow*80, b+glow*40
		if d < 52 {
			r, g, b = 255, 236, 190
		}
	}
	for i, base := range []float64{640, 690, 735} {
		k := float64(i + 1)
		top := base - 60*math.Abs(math.Sin(fx/(190+40*k)+k*1.7)) - 18*math.Sin(fx/(37*k)+k)
		if fy > top {
			r, g, b = mix(k/3, 112, 92, 120, 24, 28, 46)
		}
	}
	if mirrored {
		r, g, b = r*0.72, g*0.76, b*0.86+14
	}
	return color.RGBA{clamp(r), clamp(g), clamp(b), 255}
}

func mix(t, r0, g0, b0, r1, g1, b1 float64) (r, g, b float64) {
	return r0 + t*(r1-r0), g0 + t*(g1-g0), b0 + t*(b1-b0)
}

func clamp(v float64) uint8 { return uint8(max(0, min(v, 255))) }

// exif returns a TIFF structure with the orientation, the camera and the place.
func exif() []byte {
	le := binary.LittleEndian
	entry := func(tag, kind uint16, count uint32, value []byte) []byte {
		e := le.AppendUint16(nil, tag)
		e = le.AppendUint16(e, kind)
		e = le.AppendUint32(e, count)
		return append(append(e, value...), make([]byte, 4-len(value))...)
	}
	at := func(offset int) []byte { return le.AppendUint32(nil, uint32(offset)) }
	ratio := func(values ...uint32) (b []byte) {
		for _, v := range values {
			b = le.AppendUint32(le.AppendUint32(b, v), 1)
		}
		return b
	}
	const (
		main  = 8 // offset of the first directory: 3 entries
		model = main + 2 + 3*12 + 4
		gps   = model + 16 // 4 entries
		lat   = gps + 2 + 4*12 + 4
		long  = lat + 24
	)
	b := append([]byte("II*\x00"), at(main)...)
	b = le.AppendUint16(b, 3)
	b = append(b, entry(0x0110, 2, 16, at(model))...) // Model
	b = append(b, entry(0x0112, 3, 1, []byte{orientation, 0})...)
	b = append(b, entry(0x8825, 4, 1, at(gps))...) // offset of the GPS directory
	b = append(b, at(0)...)
	b = append(b, "Invented Camera\x00"...)
	b = le.AppendUint16(b, 4)
	b = append(b, entry(1, 2, 2, []byte("N\x00"))...)
	b = append(b, entry(2, 5, 3, at(lat))...)
	b = append(b, entry(3, 2, 2, []byte("W\x00"))...)
	b = append(b, entry(4, 5, 3, at(long))...)
	b = append(b, at(0)...)
	b = append(b, ratio(48, 52, 36)...) // in the middle of an ocean
	return append(b, ratio(123, 23, 36)...)
}
