// SPDX-License-Identifier: Apache-2.0

package media

import (
	"image"
	"image/draw"
)

// orient applies an EXIF orientation. Images with subsampled chroma have been
// through scale before, which removes the subsampling.
func orient(m image.Image, orientation int) image.Image {
	if orientation <= 1 {
		return m
	}
	size := m.Bounds().Size()
	w, h := orientedSize(orientation, size.X, size.Y)
	r := image.Rect(0, 0, w, h)
	move := func(to, from []byte, toStride, fromStride, step int) {
		orientRaster(raster{to, toStride, w, h, step}, raster{from, fromStride, size.X, size.Y, step}, orientation)
	}
	switch m := m.(type) {
	case *image.YCbCr:
		out := image.NewYCbCr(r, image.YCbCrSubsampleRatio444)
		move(out.Y, m.Y, out.YStride, m.YStride, 1)
		move(out.Cb, m.Cb, out.CStride, m.CStride, 1)
		move(out.Cr, m.Cr, out.CStride, m.CStride, 1)
		return out
	case *image.Gray:
		out := image.NewGray(r)
		move(out.Pix, m.Pix, out.Stride, m.Stride, 1)
		return out
	case *image.NRGBA:
		out := image.NewNRGBA(r)
		move(out.Pix, m.Pix, out.Stride, m.Stride, 4)
		return out
	}
	panic("orient: an image type that normalise does not return")
}

// orientRaster copies the pixels in the order of the result.
func orientRaster(dst, src raster, orientation int) {
	right, down := src.step, src.stride
	endX, endY := (src.w-1)*src.step, (src.h-1)*src.stride
	// The source index of the first pixel, and the steps to the next pixel and the
	// next row.
	at, dx, dy := 0, right, down
	switch orientation {
	case 2:
		at, dx = endX, -right
	case 3:
		at, dx, dy = endX+endY, -right, -down
	case 4:
		at, dy = endY, -down
	case 5:
		dx, dy = down, right
	case 6:
		at, dx, dy = endY, -down, right
	case 7:
		at, dx, dy = endX+endY, -down, -right
	case 8:
		at, dx, dy = endX, down, -right
	}
	for y := range dst.h {
		row := dst.pix[y*dst.stride:]
		from := at + y*dy
		for x := range dst.w {
			if src.step == 1 {
				row[x] = src.pix[from]
			} else {
				copy(row[4*x:4*x+4], src.pix[from:from+4])
			}
			from += dx
		}
	}
}

// onCanvas centres the image on its canvas.
func onCanvas(m image.Image, job imageJob) image.Image {
	canvas := image.NewNRGBA(image.Rectangle{Max: job.Canvas})
	if b := job.Background; b != nil || !transparent(job.Format) {
		fill(canvas, backgroundOf(job))
	}
	size := m.Bounds().Size()
	off := image.Pt((job.Canvas.X-size.X)/2, (job.Canvas.Y-size.Y)/2)
	p := pixelsOf(m)
	for y := range size.Y {
		copy(canvas.Pix[canvas.PixOffset(off.X, off.Y+y):], p.Pix[y*p.Stride:y*p.Stride+4*size.X])
	}
	return canvas
}

// transparent reports whether a format is written with transparency. BMP could
// be, but few programs honour it.
func transparent(format string) bool { return format == "png" || format == "gif" || format == "tiff" }

func backgroundOf(job imageJob) Colour {
	if job.Background == nil {
		return Colour{255, 255, 255, 255}
	}
	b := *job.Background
	if !transparent(job.Format) {
		b.A = 255
	}
	return b
}

func fill(m *image.NRGBA, c Colour) {
	for i := 0; i+3 < len(m.Pix); i += 4 {
		m.Pix[i], m.Pix[i+1], m.Pix[i+2], m.Pix[i+3] = c.R, c.G, c.B, c.A
	}
}

// flatten composes the image over a colour, in place.
func flatten(m *image.NRGBA, c Colour) {
	under := [3]int{int(c.R), int(c.G), int(c.B)}
	for i := 0; i+3 < len(m.Pix); i += 4 {
		p := m.Pix[i : i+4 : i+4]
		if a := int(p[3]); a != 255 {
			for k := range 3 {
				p[k] = byte((int(p[k])*a + under[k]*(255-a) + 127) / 255)
			}
			p[3] = 255
		}
	}
}

// pixelsOf returns the image as NRGBA.
func pixelsOf(m image.Image) *image.NRGBA {
	if m, ok := m.(*image.NRGBA); ok {
		return m
	}
	out := image.NewRGBA(image.Rectangle{Max: m.Bounds().Size()})
	draw.Draw(out, out.Rect, m, m.Bounds().Min, draw.Src)
	return (*image.NRGBA)(out) // it is opaque, so premultiplied and not premultiplied are the same
}
