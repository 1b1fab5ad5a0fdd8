// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bufio"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"github.com/roux-engine/roux/fault"
)

// fastPixels is the number of pixels from which PNG is compressed for speed.
const fastPixels = 8_000_000

// encode writes the image. Of the source's metadata it keeps only the colour
// profile.
func encode(m image.Image, job imageJob, profile []byte, emit func([]byte) error) error {
	if !transparent(job.Format) {
		if p, ok := m.(*image.NRGBA); ok {
			if !p.Opaque() {
				flatten(p, backgroundOf(job))
			}
			m = (*image.RGBA)(p) // the encoders are faster on it
		}
	}
	bounded := &boundedWriter{emit: emit, left: maxEncoded}
	out := bufio.NewWriterSize(bounded, 128<<10)
	if err := encodeTo(&segmentInserter{w: out, segment: profileSegment(job.Format, m, profile)}, m, job); err != nil {
		return encodeFault(bounded, err)
	}
	if err := out.Flush(); err != nil {
		return encodeFault(bounded, err)
	}
	return nil
}

func encodeTo(out *segmentInserter, m image.Image, job imageJob) error {
	_, gray := m.(*image.Gray)
	switch job.Format {
	case "jpeg":
		out.after = 2 // start of image
		return jpeg.Encode(out, m, &jpeg.Options{Quality: job.Quality})
	case "png":
		out.after = 33 // signature and IHDR
		if !gray {
			m = pixelsOf(m)
		}
		enc := png.Encoder{}
		if size := m.Bounds().Size(); size.X*size.Y >= fastPixels {
			enc.CompressionLevel = png.BestSpeed
		}
		return enc.Encode(out, m)
	case "gif":
		return gif.Encode(out, quantise(pixelsOf(m)), nil)
	case "bmp":
		if !gray {
			m = rgbaOf(m)
		}
		return bmp.Encode(out, m)
	case "tiff":
		if !gray {
			m = pixelsOf(m)
		}
		return tiff.Encode(out, m, &tiff.Options{Compression: tiff.Deflate, Predictor: true})
	}
	return fault.New(fault.FileUnsupported, "format %q cannot be written", job.Format)
}

func rgbaOf(m image.Image) *image.RGBA {
	if m, ok := m.(*image.RGBA); ok {
		return m
	}
	return (*image.RGBA)(pixelsOf(m))
}

// boundedWriter passes on what an encoder writes, up to a limit.
type boundedWriter struct {
	emit func([]byte) error
	left int
	err  error
}

func (b *boundedWriter) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		b.err = errEncoded()
	} else {
		b.err = b.emit(p)
	}
	if b.err != nil {
		return 0, b.err
	}
	return len(p), nil
}

// encodeFault returns the error of the receiver, if there is one, or else a
// fault of the encoder.
func encodeFault(b *boundedWriter, err error) error {
	if b.err != nil {
		return b.err
	}
	return fault.Wrap(fault.InternalError, err, "the image could not be written: %v", err)
}

// A segmentInserter inserts a segment after the given number of bytes that an
// encoder writes.
type segmentInserter struct {
	w       *bufio.Writer
	after   int
	segment []byte
	written int
}

func (i *segmentInserter) Write(p []byte) (int, error) {
	if i.segment != nil && i.written+len(p) >= i.after {
		head := i.after - i.written
		if _, err := i.w.Write(p[:head]); err != nil {
			return 0, err
		}
		if _, err := i.w.Write(i.segment); err != nil {
			return 0, err
		}
		i.segment, i.written = nil, i.after
		n, err := i.w.Write(p[head:])
		return head + n, err
	}
	i.written += len(p)
	return i.w.Write(p)
}
