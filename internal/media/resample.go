// SPDX-License-Identifier: Apache-2.0

package media

import (
	"image"
	"math"
	"runtime"
	"sync"
)

// The resampler is separable and uses integers. It works on the bytes of a
// plane or on interleaved pixels, with one band of rows per core. Its kernel is
// Catmull-Rom, widened by the factor by which the image shrinks, so that every
// source pixel counts and nothing aliases. It needs memory for a few rows per
// band, whatever the sizes.

const (
	weightBits = 14
	weightOne  = 1 << weightBits
	// extraBits of precision are kept between the horizontal and the vertical
	// pass.
	extraBits = 6
)

// taps are the source pixels that contribute to one pixel of the result.
type taps struct {
	first   int
	weights []int32 // they add up to weightOne
}

// kernel is the Catmull-Rom kernel at distance x from its centre.
func kernel(x float64) float64 {
	x = math.Abs(x)
	switch {
	case x < 1:
		return (1.5*x-2.5)*x*x + 1
	case x < 2:
		return ((-0.5*x+2.5)*x-4)*x + 2
	}
	return 0
}

// tapsFor returns the taps of n pixels that cover the source from start to
// start+length. Pixels 0 to size-1 exist.
func tapsFor(n int, start, length float64, size int) []taps {
	scale := length / float64(n)
	wide := max(scale, 1)
	all := make([]taps, n)
	for i := range all {
		middle := start + (float64(i)+0.5)*scale
		first := max(int(math.Floor(middle-2*wide)), 0)
		last := min(int(math.Ceil(middle+2*wide)), size)
		first, last = min(first, size-1), max(last, 1)
		raw := make([]float64, last-first)
		sum := 0.0
		for k := range raw {
			raw[k] = kernel((float64(first+k) + 0.5 - middle) / wide)
			sum += raw[k]
		}
		all[i] = integerTaps(first, raw, sum)
	}
	return all
}

// integerTaps rounds the weights to integers. Each rounding error is carried to
// the next weight, so that they add up to weightOne exactly, a uniform colour
// does not change, and thousands of tiny weights are not all lost.
func integerTaps(first int, raw []float64, sum float64) taps {
	if sum == 0 { // no source pixel in range: use the nearest
		return taps{first: first, weights: []int32{weightOne}}
	}
	weights := make([]int32, len(raw))
	all, given := 0.0, int32(0)
	for k, w := range raw {
		all += w
		weights[k] = int32(math.Round(all/sum*weightOne)) - given
		given += weights[k]
	}
	// Zero weights at the ends only cost time.
	for len(weights) > 1 && weights[0] == 0 {
		weights, first = weights[1:], first+1
	}
	for len(weights) > 1 && weights[len(weights)-1] == 0 {
		weights = weights[:len(weights)-1]
	}
	return taps{first: first, weights: weights}
}

// A raster is a plane (step 1) or interleaved pixels (step 4).
type raster struct {
	pix    []byte
	stride int
	w, h   int
	step   int
}

// resample fills dst from the given part of src. Channels are treated
// independently, so pixels with alpha need resampleUnpremultiplied.
func resample(dst, src raster, p cropRect) {
	across, down := tapsFor(dst.w, p.X, p.W, src.w), tapsFor(dst.h, p.Y, p.H, src.h)
	inParallel(dst.h, func(from, to int) {
		n := dst.w * dst.step
		cache := newRowCache[int16](down[from:to], n)
		sums := make([]int32, n)
		for y := from; y < to; y++ {
			t := down[y]
			clear(sums)
			for k, w := range t.weights {
				row := cache.row(t.first+k, func(row []int16, y int) {
					line := src.pix[y*src.stride : y*src.stride+src.w*src.step]
					if src.step == 4 {
						horizontalPixels(row, line, across)
					} else {
						horizontalPlane(row, line, across)
					}
				})
				for i, v := range row[:len(sums)] {
					sums[i] += int32(v) * w
				}
			}
			out := dst.pix[y*dst.stride : y*dst.stride+n]
			for i, v := range sums {
				out[i] = toByte(v, weightBits+extraBits)
			}
		}
	})
}

func horizontalPlane(row []int16, line []byte, across []taps) {
	for x := range across {
		t := &across[x]
		src := line[t.first : t.first+len(t.weights)]
		var sum int32
		for k, w := range t.weights {
			sum += w * int32(src[k])
		}
		row[x] = int16((sum + 1<<(weightBits-extraBits-1)) >> (weightBits - extraBits))
	}
}

func horizontalPixels(row []int16, line []byte, across []taps) {
	const round, shift = 1 << (weightBits - extraBits - 1), weightBits - extraBits
	for x := range across {
		t := &across[x]
		src := line[4*t.first : 4*(t.first+len(t.weights))]
		var r, g, b, a int32
		for _, w := range t.weights {
			p := src[:4:4]
			r += w * int32(p[0])
			g += w * int32(p[1])
			b += w * int32(p[2])
			a += w * int32(p[3])
			src = src[4:]
		}
		out := row[4*x : 4*x+4 : 4*x+4]
		out[0], out[1] = int16((r+round)>>shift), int16((g+round)>>shift)
		out[2], out[3] = int16((b+round)>>shift), int16((a+round)>>shift)
	}
}

// resampleUnpremultiplied is resample for pixels that are not premultiplied.
// Each pixel is weighted by its alpha, so that the colour of transparent pixels
// does not bleed into visible ones.
func resampleUnpremultiplied(dst, src raster, p cropRect) {
	across, down := tapsFor(dst.w, p.X, p.W, src.w), tapsFor(dst.h, p.Y, p.H, src.h)
	inParallel(dst.h, func(from, to int) {
		n := dst.w * 4
		cache := newRowCache[int32](down[from:to], n)
		sums := make([]int64, n)
		for y := from; y < to; y++ {
			t := down[y]
			clear(sums)
			for k, w := range t.weights {
				row := cache.row(t.first+k, func(row []int32, y int) {
					horizontalUnpremultiplied(row, src.pix[y*src.stride:y*src.stride+src.w*4], across)
				})
				for i, v := range row[:len(sums)] {
					sums[i] += int64(v) * int64(w)
				}
			}
			divideByAlpha(dst.pix[y*dst.stride:y*dst.stride+n], sums)
		}
	})
}

func horizontalUnpremultiplied(row []int32, line []byte, across []taps) {
	for x := range across {
		t := &across[x]
		src := line[4*t.first : 4*(t.first+len(t.weights))]
		var r, g, b, a int32
		for _, w := range t.weights {
			p := src[:4:4]
			wa := w * int32(p[3])
			r += wa * int32(p[0])
			g += wa * int32(p[1])
			b += wa * int32(p[2])
			a += wa
			src = src[4:]
		}
		copy(row[4*x:], []int32{r, g, b, a})
	}
}

// divideByAlpha divides the weighted colours by alpha.
func divideByAlpha(out []byte, sums []int64) {
	for i := 0; i < len(sums); i += 4 {
		a := sums[i+3]
		opacity := toByte(int32(a>>weightBits), weightBits)
		if opacity == 0 {
			copy(out[i:i+4], []byte{0, 0, 0, 0})
			continue
		}
		for c := range 3 {
			out[i+c] = byte(min(max((sums[i+c]+a/2)/a, 0), 255))
		}
		out[i+3] = opacity
	}
}

func toByte(v int32, bits int) byte {
	return byte(min(max((v+1<<(bits-1))>>bits, 0), 255))
}

// A rowCache keeps the horizontally resampled rows that are still needed, as a
// ring.
type rowCache[T int16 | int32] struct {
	rows [][]T
	held []int // the source row that each one holds
}

func newRowCache[T int16 | int32](down []taps, n int) *rowCache[T] {
	most := 1
	for _, t := range down {
		most = max(most, len(t.weights))
	}
	r := &rowCache[T]{rows: make([][]T, most), held: make([]int, most)}
	for i := range r.rows {
		r.rows[i], r.held[i] = make([]T, n), -1
	}
	return r
}

func (r *rowCache[T]) row(y int, make func(row []T, y int)) []T {
	i := y % len(r.rows)
	if r.held[i] != y {
		make(r.rows[i], y)
		r.held[i] = y
	}
	return r.rows[i]
}

// inParallel splits n rows into one band per core and calls do for each. A
// panic of do ends the child. In a program without a child it is raised again
// here, in the caller's goroutine, which recovers it.
func inParallel(n int, do func(from, to int)) {
	count := min(runtime.GOMAXPROCS(0), 4, (n+15)/16)
	var wg sync.WaitGroup
	thrown := make(chan any, count)
	for i := range count {
		wg.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					thrown <- v
				}
			}()
			do(n*i/count, n*(i+1)/count)
		})
	}
	wg.Wait()
	select {
	case v := <-thrown:
		panic(v)
	default:
	}
}

// scale resamples an image of a type that normalise returns. The chroma planes
// of a JPEG are resampled as stored; the result has no subsampling.
func scale(m image.Image, p cropRect, w, h int) image.Image {
	r := image.Rect(0, 0, w, h)
	switch m := m.(type) {
	case *image.YCbCr:
		out := image.NewYCbCr(r, image.YCbCrSubsampleRatio444)
		size := m.Rect.Size()
		resample(raster{out.Y, out.YStride, w, h, 1}, raster{m.Y[m.YOffset(m.Rect.Min.X, m.Rect.Min.Y):], m.YStride, size.X, size.Y, 1}, p)
		fx, fy := subsampling(m.SubsampleRatio)
		c := cropRect{p.X / float64(fx), p.Y / float64(fy), p.W / float64(fx), p.H / float64(fy)}
		cw, ch := (size.X+fx-1)/fx, (size.Y+fy-1)/fy
		off := m.COffset(m.Rect.Min.X, m.Rect.Min.Y)
		resample(raster{out.Cb, out.CStride, w, h, 1}, raster{m.Cb[off:], m.CStride, cw, ch, 1}, c)
		resample(raster{out.Cr, out.CStride, w, h, 1}, raster{m.Cr[off:], m.CStride, cw, ch, 1}, c)
		return out
	case *image.Gray:
		out := image.NewGray(r)
		resample(raster{out.Pix, out.Stride, w, h, 1}, raster{m.Pix, m.Stride, m.Rect.Dx(), m.Rect.Dy(), 1}, p)
		return out
	case *image.NRGBA:
		out := image.NewNRGBA(r)
		to, from := raster{out.Pix, out.Stride, w, h, 4}, raster{m.Pix, m.Stride, m.Rect.Dx(), m.Rect.Dy(), 4}
		if m.Opaque() {
			resample(to, from, p)
		} else {
			resampleUnpremultiplied(to, from, p)
		}
		return out
	}
	panic("scale: an image type that normalise does not return")
}

func subsampling(r image.YCbCrSubsampleRatio) (x, y int) {
	switch r {
	case image.YCbCrSubsampleRatio422:
		return 2, 1
	case image.YCbCrSubsampleRatio420:
		return 2, 2
	case image.YCbCrSubsampleRatio440:
		return 1, 2
	case image.YCbCrSubsampleRatio411:
		return 4, 1
	case image.YCbCrSubsampleRatio410:
		return 4, 2
	}
	return 1, 1
}
