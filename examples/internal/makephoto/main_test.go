// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"image/jpeg"
	"os"
	"testing"
)

// The photo in the tree is the one that this program generates. The encoder may
// change with a Go release, so the pixels are compared, and the EXIF data byte
// by byte.
func TestPhotoIsUpToDate(t *testing.T) {
	want, err := makePhoto()
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../photo.jpg")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(have, exif()) {
		t.Error("examples/photo.jpg lacks its EXIF note: run go generate ./examples/...")
	}
	a, errA := jpeg.Decode(bytes.NewReader(have))
	b, errB := jpeg.Decode(bytes.NewReader(want))
	if errA != nil || errB != nil || a.Bounds() != b.Bounds() {
		t.Fatalf("%v, %v: the photos differ in size", errA, errB)
	}
	for y := 0; y < width; y += 7 {
		for x := 0; x < height; x += 7 {
			r1, g1, b1, _ := a.At(x, y).RGBA()
			r2, g2, b2, _ := b.At(x, y).RGBA()
			if far(r1, r2) || far(g1, g2) || far(b1, b2) {
				t.Fatalf("the pixel at %d, %d differs: run go generate ./examples/...", x, y)
			}
		}
	}
	if len(have) > 200_000 {
		t.Errorf("the photo has %d bytes, want less than 200 kB", len(have))
	}
}

func far(a, b uint32) bool { return max(a, b)-min(a, b) > 0x0a00 }
