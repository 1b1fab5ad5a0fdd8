// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	"golang.org/x/image/webp"

	"github.com/roux-engine/roux/fault"
)

// A codec has the decoding functions of one format.
type codec struct {
	decode func(io.Reader) (image.Image, error)
	config func(io.Reader) (image.Config, error)
}

var codecs = map[string]codec{
	"jpeg": {jpeg.Decode, jpeg.DecodeConfig},
	"png":  {png.Decode, png.DecodeConfig},
	"gif":  {gif.Decode, gif.DecodeConfig}, // the first frame
	"bmp":  {bmp.Decode, bmp.DecodeConfig},
	"tiff": {tiff.Decode, tiff.DecodeConfig},
	"webp": {webp.Decode, webp.DecodeConfig},
}

// makeImage carries out a job on the bytes of an image. It checks everything
// again, because the decoder may see another header than the parent did.
func makeImage(data []byte, job imageJob, maxMemory int64, emit func([]byte) error) (ImageResult, error) {
	m, err := decodeImage(data, maxMemory)
	if err != nil {
		return ImageResult{}, err
	}
	profile := profileOf(data)
	size := m.Bounds().Size()
	whole := cropRect{W: float64(size.X), H: float64(size.Y)}
	if job.Crop == (cropRect{}) {
		job.Crop = whole
	}
	_, coloured := m.(*image.YCbCr)
	if size != image.Pt(job.Width, job.Height) || job.Crop != whole || coloured && job.Orientation > 1 {
		m = scale(m, job.Crop, job.Width, job.Height)
	}
	m = orient(m, job.Orientation)
	if job.Canvas != (image.Point{}) {
		m = onCanvas(m, job)
	}
	size = m.Bounds().Size()
	return ImageResult{Width: size.X, Height: size.Y}, encode(m, job, profile, emit)
}

func decodeImage(data []byte, maxMemory int64) (image.Image, error) {
	info, err := ImageInfo(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	c := codecs[info.Format]
	cfg, err := c.config(bytes.NewReader(data))
	if err != nil {
		return nil, decodeFault(info, err)
	}
	info.Width, info.Height = cfg.Width, cfg.Height
	if err := checkCost(info, int64(len(data)), maxMemory); err != nil {
		return nil, err
	}
	if info.Format == "jpeg" {
		if err := jpegScans(data, info); err != nil {
			return nil, err
		}
	}
	m, err := c.decode(bytes.NewReader(data))
	if err != nil {
		return nil, decodeFault(info, err)
	}
	if m = normalise(m, image.Rect(0, 0, cfg.Width, cfg.Height)); m.Bounds().Empty() {
		return nil, fault.New(fault.FileInvalid, "the image is damaged: it has no pixels")
	}
	return m, nil
}

// decodeFault distinguishes damage from features that the decoder does not
// support.
func decodeFault(info Image, err error) error {
	var j jpeg.UnsupportedError
	var p png.UnsupportedError
	var t tiff.UnsupportedError
	switch {
	case info.Format == "webp" && info.Animated:
		return fault.Wrap(fault.FileUnsupported, err, "the image is an animated WebP, which is not read: save one of its frames first")
	case errors.As(err, &j), errors.As(err, &p), errors.As(err, &t), errors.Is(err, bmp.ErrUnsupported):
		return fault.Wrap(fault.FileUnsupported, err, "the %s image uses a feature that is not read (%v): save it as PNG or ordinary JPEG in another program first", info.Format, err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fault.Wrap(fault.FileInvalid, err, "the %s image is cut off before its end", info.Format)
	}
	return fault.Wrap(fault.FileInvalid, err, "the %s image is damaged: %v", info.Format, err)
}

// Limits of a progressive JPEG. Each scan covers all pixels and may take almost
// no bytes. Real files have about ten scans.
const (
	maxScans      = 200
	maxScanPixels = 2_000_000_000
)

// jpegScans refuses a JPEG with too many scans. It also refuses one that is cut
// off, of which the decoder would return the part that is there.
func jpegScans(data []byte, info Image) error {
	at := 2
	for at+4 <= len(data) && data[at] == 0xff && data[at+1] != 0xda {
		switch {
		case data[at+1] == 0xff:
			at++
		case data[at+1] == 0x01 || data[at+1] >= 0xd0 && data[at+1] <= 0xd7:
			at += 2
		default:
			at += 2 + int(big.Uint16(data[at+2:]))
		}
	}
	// Entropy-coded data cannot contain these markers.
	coded, _, whole := bytes.Cut(data[min(at, len(data)):], []byte{0xff, 0xd9})
	if !whole {
		return decodeFault(info, io.ErrUnexpectedEOF)
	}
	scans := bytes.Count(coded, []byte{0xff, 0xda})
	if total := int64(scans) * int64(info.Width) * int64(info.Height); scans > maxScans || info.progressive && total > maxScanPixels {
		return fault.New(fault.FileTooLarge, "the JPEG image goes over its %d × %d pixels in %d scans: save it with fewer in another program first", info.Width, info.Height, scans)
	}
	if info.progressive && !fullyRefined(coded) {
		return decodeFault(info, io.ErrUnexpectedEOF)
	}
	return nil
}

// fullyRefined reports whether the scans of a progressive JPEG contain all bits
// of every coefficient of every component. A file that was cut off and given a
// new end does not, and would be shown blurred.
func fullyRefined(coded []byte) bool {
	open := map[byte]uint64{} // by component: the coefficients that still lack bits
	for {
		at := bytes.Index(coded, []byte{0xff, 0xda})
		if at < 0 || at+5 > len(coded) {
			break
		}
		n := int(coded[at+4])
		scan := skip(coded[at:], 5)
		if len(scan) < 2*n+3 {
			return false
		}
		from, to, bits := scan[2*n], scan[2*n+1], scan[2*n+2]
		for i := range n {
			id := scan[2*i]
			if _, known := open[id]; !known {
				open[id] = math.MaxUint64
			}
			for c := from; c <= to && c < 64 && bits&15 == 0; c++ {
				open[id] &^= 1 << c
			}
		}
		coded = scan
	}
	for _, left := range open {
		if left != 0 {
			return false
		}
	}
	return len(open) > 0
}

// normalise returns the image as one of three types: YCbCr, Gray or NRGBA. It
// covers all of bounds and has 8 bits per channel.
func normalise(m image.Image, bounds image.Rectangle) image.Image {
	if m.Bounds() == bounds {
		switch m := m.(type) {
		case *image.YCbCr, *image.Gray, *image.NRGBA:
			return m
		case *image.Gray16:
			return &image.Gray{Pix: highBytes(m.Pix), Stride: m.Stride / 2, Rect: m.Rect}
		case *image.NRGBA64:
			return &image.NRGBA{Pix: highBytes(m.Pix), Stride: m.Stride / 2, Rect: m.Rect}
		case *image.RGBA64:
			return unpremultiply(&image.NRGBA{Pix: highBytes(m.Pix), Stride: m.Stride / 2, Rect: m.Rect})
		case *image.RGBA:
			return unpremultiply((*image.NRGBA)(m))
		case *image.CMYK:
			for i := 0; i+3 < len(m.Pix); i += 4 {
				p := m.Pix[i : i+4 : i+4]
				p[0], p[1], p[2] = color.CMYKToRGB(p[0], p[1], p[2], p[3])
				p[3] = 255
			}
			return &image.NRGBA{Pix: m.Pix, Stride: m.Stride, Rect: m.Rect}
		}
	}
	out := image.NewNRGBA(bounds)
	if p, ok := m.(*image.Paletted); ok {
		expandPalette(out, p)
		return out
	}
	draw.Draw(out, m.Bounds(), m, m.Bounds().Min, draw.Src)
	return out
}

// highBytes keeps the first of every two bytes, in place.
func highBytes(pix []byte) []byte {
	for i := range len(pix) / 2 {
		pix[i] = pix[2*i]
	}
	return pix[:len(pix)/2]
}

// unpremultiply divides premultiplied colours by their alpha, in place.
func unpremultiply(m *image.NRGBA) *image.NRGBA {
	for i := 0; i+3 < len(m.Pix); i += 4 {
		p := m.Pix[i : i+4 : i+4]
		if a := int(p[3]); a != 0 && a != 255 {
			for c := range 3 {
				p[c] = byte(min((int(p[c])*255+a/2)/a, 255))
			}
		}
	}
	return m
}

func expandPalette(out *image.NRGBA, m *image.Paletted) {
	var palette [256][4]byte
	for i, c := range m.Palette[:min(256, len(m.Palette))] {
		n, _ := color.NRGBAModel.Convert(c).(color.NRGBA)
		palette[i] = [4]byte{n.R, n.G, n.B, n.A}
	}
	r := m.Rect.Intersect(out.Rect)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		from := m.Pix[m.PixOffset(r.Min.X, y):]
		to := out.Pix[out.PixOffset(r.Min.X, y):]
		for x := range r.Dx() {
			copy(to[4*x:4*x+4], palette[from[x]][:])
		}
	}
}
