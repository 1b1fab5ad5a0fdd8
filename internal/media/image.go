// SPDX-License-Identifier: Apache-2.0

package media

import (
	"errors"
	"fmt"
	"image"
	_ "image/gif"  // header of GIF
	_ "image/jpeg" // header of JPEG
	_ "image/png"  // header of PNG
	"io"

	_ "golang.org/x/image/bmp"  // header of BMP
	_ "golang.org/x/image/tiff" // header of TIFF
	_ "golang.org/x/image/webp" // header of WebP

	"github.com/roux-engine/roux/fault"
)

// maxHeader bounds what is read to find an image's size: metadata may come
// before it.
const maxHeader = 16 << 20

// ErrUnknownImage says that no decoder knows the format; it is no damage.
var ErrUnknownImage = errors.New("no decoder knows this image format")

// An Image is what an image file's header says. Pixels are not decoded, so a
// file that claims too many costs nothing here.
type Image struct {
	Width  int
	Height int
	Format string
}

// ImageInfo reads the header of an image.
func ImageInfo(src io.Reader) (info Image, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fault.Wrap(fault.FileInvalid, fmt.Errorf("panic: %v", v), "the image is damaged beyond repair")
		}
	}()
	cfg, format, err := image.DecodeConfig(io.LimitReader(src, maxHeader))
	switch {
	case errors.Is(err, image.ErrFormat):
		return Image{}, ErrUnknownImage
	case err != nil:
		return Image{}, fault.Wrap(fault.FileInvalid, err, "the image is damaged: its header cannot be read")
	}
	return Image{Width: cfg.Width, Height: cfg.Height, Format: format}, nil
}
