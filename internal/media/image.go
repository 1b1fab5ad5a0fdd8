// SPDX-License-Identifier: Apache-2.0

package media

import (
	"errors"
	"fmt"
	"io"

	"github.com/roux-engine/roux/fault"
)

// ErrUnknownImage reports that no decoder knows the format. It does not mean
// damage.
var ErrUnknownImage = errors.New("no decoder knows this image format")

// An Image holds what the header of an image file states. Pixels are not
// decoded, so a file that claims too many of them costs nothing here.
type Image struct {
	Width  int    // as stored
	Height int    // as stored
	Format string // jpeg, png, gif, bmp, tiff or webp
	// Orientation is the EXIF orientation in which to show the pixels, from 1 (as
	// stored) to 8; 1 when the file states none.
	Orientation int
	// Alpha is set when the pixel format has transparency, used or not.
	Alpha bool
	// Animated is set when there is more than one frame (GIF: within its first
	// MiB).
	Animated bool
	// Damaged is set when the header's checksum is wrong (PNG).
	Damaged bool

	// Facts that determine the cost of decoding.
	progressive bool // JPEG
	chroma      int  // JPEG: chroma samples per 4 luma samples, 0 to 8, or 12 for CMYK
	deep        bool // 16 bits a channel
}

// Shown returns the width and height after the orientation has been applied.
func (i Image) Shown() (width, height int) {
	if i.Orientation >= 5 {
		return i.Height, i.Width
	}
	return i.Width, i.Height
}

// ImageInfo reads the header of an image of size bytes, in a few small reads. A
// header that cannot be read is FILE_INVALID; a file in no known format is
// ErrUnknownImage.
func ImageInfo(src io.ReaderAt, size int64) (info Image, err error) {
	r := newBoundedReader(src, size)
	defer func() {
		if v := recover(); v != nil {
			info, err = Image{}, fault.Wrap(fault.FileInvalid, fmt.Errorf("panic: %v", v), "the image is damaged beyond repair")
		}
	}()
	read := headerOf(r)
	if read == nil {
		if r.budget.err != nil {
			return Image{}, r.budget.err
		}
		return Image{}, ErrUnknownImage
	}
	ok := read(r, &info)
	switch {
	case r.budget.err != nil:
		return Image{}, r.budget.err
	case !ok || info.Width <= 0 || info.Height <= 0:
		return Image{}, fault.New(fault.FileInvalid, "the image is damaged: its header cannot be read")
	}
	info.Orientation = max(info.Orientation, 1)
	return info, nil
}

// headerOf determines the format from the first bytes and returns the function
// that reads its header.
func headerOf(r *boundedReader) func(*boundedReader, *Image) bool {
	head := r.upToAt(0, 16)
	starts := func(mark string) bool { return len(head) >= len(mark) && string(head[:len(mark)]) == mark }
	switch {
	case starts("\xff\xd8\xff"):
		return jpegHeader
	case starts("\x89PNG\r\n\x1a\n"):
		return pngHeader
	case starts("GIF87a"), starts("GIF89a"):
		return gifHeader
	case starts("BM") && len(head) > 14:
		return bmpHeader
	case starts("II*\x00"), starts("MM\x00*"):
		return tiffHeader
	case starts("RIFF") && len(head) > 12 && string(head[8:12]) == "WEBP":
		return webpHeader
	}
	return nil
}
