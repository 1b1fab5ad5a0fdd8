// SPDX-License-Identifier: Apache-2.0

package media

import (
	"errors"
	"fmt"
	"io"

	"github.com/roux-engine/roux/fault"
)

// ErrUnknownImage says that no decoder knows the format; it is no damage.
var ErrUnknownImage = errors.New("no decoder knows this image format")

// An Image is what an image file's header says. Pixels are not decoded, so a
// file that claims too many costs nothing here.
type Image struct {
	Width  int    // as stored
	Height int    // as stored
	Format string // jpeg, png, gif, bmp, tiff or webp
	// Orientation is what EXIF says about how to show the pixels, from 1 (as
	// stored) to 8; 1 when the file says nothing.
	Orientation int
	// Alpha says that the format of the pixels has transparency, used or not.
	Alpha bool
	// Animated says that there is more than one frame (GIF: as far as its first
	// MiB tells).
	Animated bool
	// Damaged says that the header's checksum is wrong (PNG).
	Damaged bool

	// What decoding costs.
	progressive bool // JPEG
	chroma      int  // JPEG: samples of colour for every 4 of brightness, 0 to 8, or 12 for CMYK
	deep        bool // 16 bits a channel
}

// Shown returns the width and height after the orientation has been applied.
func (i Image) Shown() (width, height int) {
	if i.Orientation >= 5 {
		return i.Height, i.Width
	}
	return i.Width, i.Height
}

// ImageInfo reads the header of an image of size bytes, in a few small reads.
// A header that cannot be read is FILE_INVALID; a kind of file that is none of
// the formats is ErrUnknownImage.
func ImageInfo(src io.ReaderAt, size int64) (info Image, err error) {
	w := look(src, size)
	defer func() {
		if v := recover(); v != nil {
			info, err = Image{}, fault.Wrap(fault.FileInvalid, fmt.Errorf("panic: %v", v), "the image is damaged beyond repair")
		}
	}()
	read := headerOf(w)
	if read == nil {
		if w.spent.err != nil {
			return Image{}, w.spent.err
		}
		return Image{}, ErrUnknownImage
	}
	ok := read(w, &info)
	switch {
	case w.spent.err != nil:
		return Image{}, w.spent.err
	case !ok || info.Width <= 0 || info.Height <= 0:
		return Image{}, fault.New(fault.FileInvalid, "the image is damaged: its header cannot be read")
	}
	info.Orientation = max(info.Orientation, 1)
	return info, nil
}

// headerOf tells the format from the first bytes, and returns who reads it.
func headerOf(w *window) func(*window, *Image) bool {
	head := w.upTo(0, 16)
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
