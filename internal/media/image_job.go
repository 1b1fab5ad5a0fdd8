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

// Limits on images, whatever the caller's options.
const (
	MaxPixels  = 50_000_000 // of an image that is decoded or produced
	MaxSide    = 65_535     // pixels, of an image that is decoded
	MaxOutSide = 16_384     // pixels, of an image with a requested size

	maxEncoded = 256 << 20 // bytes of the resulting image
)

// The formats, as named in options and results.
var (
	ImageFormatsRead    = []string{"jpeg", "png", "gif", "bmp", "tiff", "webp"}
	ImageFormatsWritten = []string{"jpeg", "png", "gif", "bmp", "tiff"}
)

// A Fit determines how an image is fitted to a width and a height.
type Fit string

// The values of Fit. None enlarges the image unless ImageOptions.Enlarge is
// set.
const (
	// FitInside keeps the proportions; the result is as large as fits into width
	// and height.
	FitInside Fit = "inside"
	// FitOutside keeps the proportions; the result covers width and height.
	FitOutside Fit = "outside"
	// FitContain is FitInside, centred on a canvas of exactly the given size.
	FitContain Fit = "contain"
	// FitCover keeps the proportions and crops what exceeds the size, evenly on
	// both sides.
	FitCover Fit = "cover"
	// FitFill scales width and height independently.
	FitFill Fit = "fill"
)

// Colour is red, green, blue and alpha, not premultiplied.
type Colour struct{ R, G, B, A uint8 }

// ImageOptions describe the image to produce.
type ImageOptions struct {
	// Width and Height are in pixels after orientation. 0 leaves a side to the
	// proportions; with both 0 the size does not change.
	Width, Height int
	Fit           Fit // "" = FitInside
	Enlarge       bool
	// Format is one of ImageFormatsWritten. "" = that of the input; for WebP, png
	// if the image has transparency, else jpeg.
	Format  string
	Quality int // of JPEG, 1 to 100; 0 = 85
	// Background fills the canvas around the image, and what is transparent if the
	// format has no transparency. nil = transparent where possible, else white.
	Background *Colour
}

// An ImageJob is work on an image that has been checked but not begun.
type ImageJob struct {
	Source Image // header of the image to read
	Format string
	Width  int // of the result
	Height int

	reader *Reader
	src    io.ReaderAt
	size   int64
	job    imageJob
}

// An ImageResult describes the image that was produced.
type ImageResult struct {
	Width  int `json:"width"`
	Height int `json:"height"`
}

// imageJob holds the instructions for the child. The parent makes all
// decisions; the child only computes. Lengths apply to the image as stored,
// before orientation.
type imageJob struct {
	Format      string `json:"format"`
	Width       int    `json:"width"` // after scaling
	Height      int    `json:"height"`
	Orientation int    `json:"orientation"`
	// Crop is the part of the source to use; the zero value means all.
	Crop cropRect `json:"crop"`
	// Canvas is the size of the canvas under the oriented image; zero = none.
	Canvas     image.Point `json:"canvas"`
	Quality    int         `json:"quality"`
	Background *Colour     `json:"background,omitempty"`
}

// A cropRect is a rectangle in fractions of pixels.
type cropRect struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
	W float64 `json:"w"`
	H float64 `json:"h"`
}

// Image checks the options for an image of size bytes against its header and
// the limits. Nothing is decoded yet; a decompression bomb is refused here.
//
// It returns FILE_UNSUPPORTED for a format that cannot be read, FILE_TOO_LARGE,
// FILE_INVALID, or INPUT_INVALID for invalid options.
func (r *Reader) Image(src io.ReaderAt, size int64, opts ImageOptions) (*ImageJob, error) {
	info, err := ImageInfo(src, size)
	if errors.Is(err, ErrUnknownImage) {
		return nil, fault.Wrap(fault.FileUnsupported, err, "the file is no image of a format that is read: want %s", strings.Join(ImageFormatsRead, ", "))
	}
	if err != nil {
		return nil, err
	}
	if size > r.cfg.MaxBytes {
		return nil, errTooLarge(request{Op: opImage, MaxBytes: r.cfg.MaxBytes})
	}
	if err := checkCost(info, size, r.cfg.MaxMemory); err != nil {
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
	j.job = planSizes(info, opts)
	j.job.Format, j.job.Quality, j.job.Background = j.Format, cmp.Or(opts.Quality, 85), opts.Background
	j.Width, j.Height = j.job.Canvas.X, j.job.Canvas.Y
	if j.Width == 0 {
		j.Width, j.Height = orientedSize(info.Orientation, j.job.Width, j.job.Height)
	}
	if int64(j.Width)*int64(j.Height) > MaxPixels {
		return nil, fault.New(fault.InputInvalid, "the result would have %d × %d = %d pixels: at most %d are made; ask for a smaller width and height",
			j.Width, j.Height, int64(j.Width)*int64(j.Height), MaxPixels)
	}
	return j, nil
}

// Run does the work in a child process and writes the image to dst as it is
// produced. After an error the contents of dst are useless.
func (j *ImageJob) Run(ctx context.Context, dst io.Writer) error {
	req := request{Op: opImage, Image: &j.job, StallMS: j.reader.cfg.ImageStall.Milliseconds()}
	left := int64(maxEncoded)
	last, err := j.reader.run(ctx, io.NewSectionReader(j.src, 0, j.size), req, func(m message) error {
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

// checkCost refuses an image with too many pixels, or one that needs too much
// memory to decode, by its header alone.
func checkCost(info Image, size, maxMemory int64) error {
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

// bytesPerPixel is the most memory that decoding needs per pixel, including the
// copy from which the result is made.
func bytesPerPixel(info Image) int64 {
	switch info.Format {
	case "jpeg":
		samples := 4 + int64(info.chroma) // in quarters of a byte per pixel
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

// planSizes determines the crop of the source, the size of the scaled image,
// and the size of its canvas.
func planSizes(info Image, o ImageOptions) imageJob {
	j := imageJob{Width: info.Width, Height: info.Height, Orientation: info.Orientation}
	sw, sh := info.Shown()
	w, h := o.Width, o.Height
	if w == 0 && h == 0 {
		return j
	}
	x, y := float64(w)/float64(sw), float64(h)/float64(sh) // scales
	fit := o.Fit
	if w == 0 || h == 0 {
		fit = FitInside // only one side is given
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
		p := cropRect{W: float64(cw) / x, H: float64(ch) / y}
		p.W, p.H = min(p.W, float64(sw)), min(p.H, float64(sh))
		p.X, p.Y = (float64(sw)-p.W)/2, (float64(sh)-p.H)/2
		dw, dh = cw, ch
		if info.Orientation >= 5 {
			p = cropRect{X: p.Y, Y: p.X, W: p.H, H: p.W}
		}
		j.Crop = p
	case fit == FitContain && (dw != w || dh != h):
		j.Canvas = image.Pt(w, h)
	}
	j.Width, j.Height = orientedSize(info.Orientation, dw, dh)
	return j
}

func scaled(side int, scale float64) int { return max(1, int(float64(side)*scale+0.5)) }

// orientedSize swaps width and height for orientations that rotate by 90
// degrees.
func orientedSize(orientation, w, h int) (int, int) {
	if orientation >= 5 {
		return h, w
	}
	return w, h
}
