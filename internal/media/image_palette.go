// SPDX-License-Identifier: Apache-2.0

package media

import (
	"image"
	"image/color"
	"slices"
)

// quantise reduces an image to 256 colours, for GIF. An image that has no more
// keeps its own colours. Otherwise the palette is chosen by median cut and the
// error is diffused to neighbouring pixels. Pixels less than half opaque become
// transparent.
func quantise(m *image.NRGBA) *image.Paletted {
	size := m.Rect.Size()
	out := image.NewPaletted(image.Rectangle{Max: size}, nil)
	clear := false // whether palette entry 0 is the transparent colour
	exact := map[[3]byte]bool{}
	var counts [1 << 15]int
	eachPixel(m, func(_, _ int, p []byte) {
		if p[3] < 128 {
			clear = true
			return
		}
		counts[colourBin(int(p[0]), int(p[1]), int(p[2]))]++
		if len(exact) <= 256 {
			exact[[3]byte(p)] = true
		}
	})
	most := 256
	if clear {
		out.Palette = color.Palette{color.NRGBA{}}
		most--
	}
	if len(exact) <= most {
		index := map[[3]byte]byte{}
		colours := make([][3]byte, 0, len(exact))
		for c := range exact {
			colours = append(colours, c)
		}
		slices.SortFunc(colours, func(a, b [3]byte) int { return slices.Compare(a[:], b[:]) })
		for _, c := range colours {
			index[c] = byte(len(out.Palette))
			out.Palette = append(out.Palette, color.NRGBA{c[0], c[1], c[2], 255})
		}
		eachPixel(m, func(x, y int, p []byte) {
			if p[3] >= 128 {
				out.Pix[y*out.Stride+x] = index[[3]byte(p)]
			}
		})
	} else {
		first := len(out.Palette)
		palette := medianCut(&counts, most)
		for _, c := range palette {
			out.Palette = append(out.Palette, color.NRGBA{byte(c[0]), byte(c[1]), byte(c[2]), 255})
		}
		dither(out, m, palette, first)
	}
	if len(out.Palette) == 0 {
		out.Palette = color.Palette{color.NRGBA{}}
	}
	return out
}

func eachPixel(m *image.NRGBA, do func(x, y int, p []byte)) {
	size := m.Rect.Size()
	for y := range size.Y {
		for x := range size.X {
			i := y*m.Stride + 4*x
			do(x, y, m.Pix[i:i+4:i+4])
		}
	}
}

// colourBin is the index of a colour in a cube of 32 × 32 × 32 bins.
func colourBin(r, g, b int) int { return r>>3<<10 | g>>3<<5 | b>>3 }

type colourBox struct {
	bins  []int
	count int
}

// widestChannel returns the channel with the largest range in the box, as its
// shift within a bin, and that range.
func (b colourBox) widestChannel() (shift, width int) {
	for _, s := range []int{5, 10, 0} { // of equal ranges, green wins
		low, high := 31, 0
		for _, n := range b.bins {
			low, high = min(low, n>>s&31), max(high, n>>s&31)
		}
		if high-low > width {
			shift, width = s, high-low
		}
	}
	return shift, width
}

// medianCut repeatedly halves the box with the largest product of range and
// pixel count.
func medianCut(counts *[1 << 15]int, n int) [][3]int {
	all := colourBox{}
	for b, c := range counts {
		if c > 0 {
			all.bins, all.count = append(all.bins, b), all.count+c
		}
	}
	boxes := []colourBox{all}
	for len(boxes) < n {
		at, score := -1, 0
		for i, b := range boxes {
			if _, width := b.widestChannel(); width*b.count > score {
				at, score = i, width*b.count
			}
		}
		if at < 0 {
			break
		}
		low, high := boxes[at].halve(counts)
		boxes[at] = low
		boxes = append(boxes, high)
	}
	palette := make([][3]int, len(boxes))
	for i, b := range boxes {
		for _, n := range b.bins {
			for c, s := range []int{10, 5, 0} {
				v := n >> s & 31
				palette[i][c] += (v<<3 | v>>2) * counts[n]
			}
		}
		for c := range 3 {
			palette[i][c] = (palette[i][c] + b.count/2) / max(b.count, 1)
		}
	}
	return palette
}

func (b colourBox) halve(counts *[1 << 15]int) (low, high colourBox) {
	shift, _ := b.widestChannel()
	slices.SortStableFunc(b.bins, func(x, y int) int { return x>>shift&31 - y>>shift&31 })
	at, sum := 0, 0
	for at < len(b.bins)-1 && (at == 0 || sum+counts[b.bins[at]] <= b.count/2) {
		sum += counts[b.bins[at]]
		at++
	}
	return colourBox{b.bins[:at:at], sum}, colourBox{b.bins[at:], b.count - sum}
}

// dither maps each pixel to the nearest colour and diffuses the error to the
// following pixels (Floyd–Steinberg).
func dither(out *image.Paletted, m *image.NRGBA, palette [][3]int, first int) {
	w := m.Rect.Dx()
	here, next := make([][3]int, w+2), make([][3]int, w+2)
	var known [1 << 15]int16 // palette index of a bin, plus one
	nearest := func(c [3]int) int {
		b := colourBin(c[0], c[1], c[2])
		if known[b] != 0 {
			return int(known[b]) - 1
		}
		best, least := 0, 1<<30
		for i, p := range palette {
			r, g, b := p[0]-c[0], p[1]-c[1], p[2]-c[2]
			if d := 2*r*r + 4*g*g + b*b; d < least {
				best, least = i, d
			}
		}
		known[b] = int16(best + 1)
		return best
	}
	row := 0
	eachPixel(m, func(x, y int, p []byte) {
		if y != row {
			here, next, row = next, here, y
			clear(next)
		}
		if p[3] < 128 {
			return
		}
		var c [3]int
		for k := range 3 {
			c[k] = min(max(int(p[k])+here[x+1][k]/16, 0), 255)
		}
		i := nearest(c)
		out.Pix[y*out.Stride+x] = byte(first + i)
		for k := range 3 {
			e := c[k] - palette[i][k]
			here[x+2][k] += 7 * e
			next[x][k] += 3 * e
			next[x+1][k] += 5 * e
			next[x+2][k] += e
		}
	})
}
