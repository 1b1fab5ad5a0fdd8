// SPDX-License-Identifier: Apache-2.0

package media

import (
	"cmp"
	"context"
	"errors"
	"image"
	"io"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
)

// The bounds of images, whatever a caller asks for.
const (
	MaxPixels  = 50_000_000 // of an image that is decoded or made
	MaxSide    = 65_535     // pixels, of an image that is decoded
	MaxOutSide = 16_384     // pixels, of an image that is made larger or cut to size

	maxEncoded = 256 << 20 // bytes of an image that is made
)

// The formats, as they are named in results and asked for.
var (
	ImageFormatsRead    = []string{"jpeg", "png", "gif", "bmp", "tiff", "webp"}
	ImageFormatsWritten = []string{"jpeg", "png", "gif", "bmp", "tiff"}
)

// A Fit says how a picture comes to fit a width and a height.
type Fit string

// The fits. None enlarges unless ImageOptions.Enlarge says so.
const (
	// FitInside keeps the proportions; the result is as large as fits inside.
	FitInside Fit = "inside"
	// FitOutside keeps the proportions; the result covers both sides.
	FitOutside Fit = "outside"
	// FitContain is FitInside on a canvas of exactly the size, centred.
	FitContain Fit = "contain"
	// FitCover keeps the proportions and cuts what exceeds, evenly.
	FitCover Fit = "cover"
	// FitFill stretches each side by itself.
	FitFill Fit = "fill"
)

// Colour is red, green, blue and opacity, none of them multiplied.
type Colour struct{ R, G, B, A uint8 }

// ImageOptions say what becomes of an image.
type ImageOptions struct {
	// Width and Height are in pixels as shown; 0 leaves a side to the
	// proportions, both 0 keep the size.
	Width, Height int
	Fit           Fit // "" = FitInside
	Enlarge       bool
	// Format is one of ImageFormatsWritten; "" = that of the input, and for WebP
	// png with transparency, else jpeg.
	Format  string
	Quality int // of JPEG, 1 to 100; 0 = 85
	// Background fills what a picture does not cover, and what is transparent in
	// a format without transparency. nil = transparent where possible, else white.
	Background *Colour
}

// An ImageJob is checked work on an image that has not begun.
type ImageJob struct {
	Source Image // what is read
	Format string
	Width  int // of the result
	Height int

	reader *Reader
	src    io.ReaderAt
	size   int64
	job    imageJob
}

// A Picture is an image that has been made.
type Picture struct {
	Width  int `json:"width"`
	Height int `json:"height"`
}

// imageJob is what the child is told. Everything is decided here; the child
// computes. Measures are of the picture as stored, before it is turned.
type imageJob struct {
	Format      string `json:"format"`
	Width       int    `json:"width"` // of the scaled picture
	Height      int    `json:"height"`
	Orientation int    `json:"orientation"`
	// Part is what of the source is seen; zero = all.
	Part part `json:"part"`
	// Canvas is what the turned picture is put on; zero = none.
	Canvas     image.Point `json:"canvas"`
	Quality    int         `json:"quality"`
	Background *Colour     `json:"background,omitempty"`
}

// part is a rectangle with fractions of pixels.
type part struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
	W float64 `json:"w"`
	H float64 `json:"h"`
}

// Image checks what is asked of an image of size bytes against its header and
// the limits. Nothing is decoded yet; a bomb is refused here.
//
// Its faults: FILE_UNSUPPORTED for a format that cannot be read,
// FILE_TOO_LARGE, FILE_INVALID, and INPUT_INVALID for options that are none.
func (r *Reader) Image(src io.ReaderAt, size int64, opts ImageOptions) (*ImageJob, error) {
	info, err := ImageInfo(src, size)
	if errors.Is(err, ErrUnknownImage) {
		return nil, fault.Wrap(fault.FileUnsupported, err, "the file is no image of a format that is read: want %s", strings.Join(ImageFormatsRead, ", "))
	}
	if err != nil {
		return nil, err
	}
	if size > r.cfg.MaxBytes {
		return nil, tooLarge(request{Op: opImage, MaxBytes: r.cfg.MaxBytes})
	}
	if err := affordable(info, size, r.cfg.MaxMemory); err != nil {
		return nil, err
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	j := &ImageJob{Source: info, reader: r, src: src, size: size}
	j.Format = opts.Format
	switch {
	case j.Format == "" && info.Format == "webp" && info.Alpha:
		j.Format = "png"
	case j.Format == "" && info.Format == "webp":
		j.Format = "jpeg"
	case j.Format == "":
		j.Format = info.Format
	}
	j.job = layOut(info, opts)
	j.job.Format, j.job.Quality, j.job.Background = j.Format, cmp.Or(opts.Quality, 85), opts.Background
	j.Width, j.Height = j.job.Canvas.X, j.job.Canvas.Y
	if j.Width == 0 {
		j.Width, j.Height = turned(info.Orientation, j.job.Width, j.job.Height)
	}
	if int64(j.Width)*int64(j.Height) > MaxPixels {
		return nil, fault.New(fault.InputInvalid, "the result would have %d × %d = %d pixels: at most %d are made; ask for a smaller width and height",
			j.Width, j.Height, int64(j.Width)*int64(j.Height), MaxPixels)
	}
	return j, nil
}

// Run does the work, in the child process, and writes the image to dst as it
// comes. After an error dst holds nothing of use.
func (j *ImageJob) Run(ctx context.Context, dst io.Writer) error {
	req := request{Op: opImage, Image: &j.job, StallMS: j.reader.cfg.ImageStall.Milliseconds()}
	left := int64(maxEncoded)
	last, err := j.reader.ask(ctx, io.NewSectionReader(j.src, 0, j.size), req, func(m message) error {
		if left -= int64(len(m.Data)); left < 0 {
			return errEncoded()
		}
		_, err := dst.Write(m.Data)
		return err
	})
	if err != nil {
		return err
	}
	if last.Image == nil || last.Image.Width != j.Width || last.Image.Height != j.Height {
		return fault.New(fault.InternalError, "the image was made as %+v: want %d × %d", last.Image, j.Width, j.Height)
	}
	return nil
}

func errEncoded() error {
	return fault.New(fault.FileTooLarge, "the result has more than %d MiB: ask for a smaller size, or for jpeg", maxEncoded>>20)
}

func (o ImageOptions) check() error {
	switch {
	case o.Format != "" && !slices.Contains(ImageFormatsWritten, o.Format):
		return fault.New(fault.InputInvalid, "format %q cannot be written: want %s", o.Format, strings.Join(ImageFormatsWritten, ", "))
	case o.Width < 0 || o.Width > MaxOutSide || o.Height < 0 || o.Height > MaxOutSide:
		return fault.New(fault.InputInvalid, "width %d, height %d: want 1 to %d pixels", o.Width, o.Height, MaxOutSide)
	case o.Quality < 0 || o.Quality > 100:
		return fault.New(fault.InputInvalid, "quality %d: want 1 to 100", o.Quality)
	case !slices.Contains([]Fit{"", FitInside, FitOutside, FitContain, FitCover, FitFill}, o.Fit):
		return fault.New(fault.InputInvalid, "fit %q: want inside, outside, contain, cover or fill", o.Fit)
	}
	return nil
}

// affordable refuses an image whose pixels would be too many, or would need too
// much memory, to decode: by its header alone.
func affordable(info Image, size, maxMemory int64) error {
	w, h := int64(info.Width), int64(info.Height)
	if w > MaxSide || h > MaxSide {
		return fault.New(fault.FileTooLarge, "the image has %d × %d pixels: at most %d a side are decoded; make it smaller in another program first", w, h, MaxSide)
	}
	if w*h > MaxPixels {
		return fault.New(fault.FileTooLarge, "the image has %d × %d = %d million pixels: at most %d million are decoded; make it smaller in another program first",
			w, h, w*h/1_000_000, MaxPixels/1_000_000)
	}
	if need, room := size+w*h*bytesPerPixel(info), maxMemory*7/8; need > room {
		return fault.New(fault.FileTooLarge, "the image of %d × %d pixels needs about %d MiB of memory to decode: the limit is %d MiB; make it smaller, or save it with fewer bits per pixel or without progressive coding, in another program first",
			w, h, need>>20, room>>20)
	}
	return nil
}

// bytesPerPixel is what decoding needs at most, with the copy that the result is
// made from.
func bytesPerPixel(info Image) int64 {
	switch info.Format {
	case "jpeg":
		samples := 4 + int64(info.chroma) // in quarters
		n := (samples + 3) / 4
		if info.progressive {
			n += samples // all coefficients, 32 bits each
		}
		return n + 4
	case "webp":
		return 12
	case "png", "tiff":
		if info.deep {
			return 12
		}
	}
	return 8
}

// layOut decides sizes: of the part of the source that is seen, of the scaled
// picture and of its canvas.
func layOut(info Image, o ImageOptions) imageJob {
	j := imageJob{Width: info.Width, Height: info.Height, Orientation: info.Orientation}
	sw, sh := info.Shown()
	w, h := o.Width, o.Height
	if w == 0 && h == 0 {
		return j
	}
	x, y := float64(w)/float64(sw), float64(h)/float64(sh) // scales
	fit := o.Fit
	if w == 0 || h == 0 {
		fit = FitInside // one side decides
		x = max(x, y)
		y = x
	}
	switch fit {
	case FitOutside, FitCover:
		x = max(x, y)
		y = x
	case FitFill:
	default:
		x = min(x, y)
		y = x
	}
	if !o.Enlarge {
		x, y = min(x, 1), min(y, 1)
	}
	dw, dh := scaled(sw, x), scaled(sh, y)
	switch {
	case fit == FitCover:
		cw, ch := min(dw, w), min(dh, h)
		p := part{W: float64(cw) / x, H: float64(ch) / y}
		p.W, p.H = min(p.W, float64(sw)), min(p.H, float64(sh))
		p.X, p.Y = (float64(sw)-p.W)/2, (float64(sh)-p.H)/2
		dw, dh = cw, ch
		if info.Orientation >= 5 {
			p = part{X: p.Y, Y: p.X, W: p.H, H: p.W}
		}
		j.Part = p
	case fit == FitContain && (dw != w || dh != h):
		j.Canvas = image.Pt(w, h)
	}
	j.Width, j.Height = turned(info.Orientation, dw, dh)
	return j
}

func scaled(side int, scale float64) int { return max(1, int(float64(side)*scale+0.5)) }

// turned swaps the sides for orientations that lie on their side.
func turned(orientation, w, h int) (int, int) {
	if orientation >= 5 {
		return h, w
	}
	return w, h
}
