// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"fmt"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/media"
)

// sizes are the longest sides of the named sizes, in pixels.
var sizes = map[string]int{"thumbnail": 200, "medium": 800, "large": 1600}

// resizeImage returns the action resize-image, which makes an image smaller, or
// larger on request (X160).
func resizeImage(reader *media.Reader) action.Action {
	return action.Action{
		Name:        "resize-image",
		Version:     "1.0.0",
		Description: "Makes an image of another size, turned upright and without metadata.",
		Cost:        2,
		Input: schema(`{
			"type": "object",
			"properties": {
				"file": ` + fileSchema + `,
				"size": {
					"type": "string", "enum": ["thumbnail", "medium", "large"],
					"description": "The longest side: thumbnail 200, medium 800, large 1600 pixels. Give this or width and height; without either it is medium."
				},
				"width": {"type": "integer", "minimum": 1, "maximum": 16384, "description": "In pixels, as the image is shown. Without height, that follows from the proportions."},
				"height": {"type": "integer", "minimum": 1, "maximum": 16384, "description": "In pixels, as the image is shown. Without width, that follows from the proportions."},
				"fit": {
					"type": "string", "enum": ["inside", "outside", "contain", "cover", "fill"], "default": "inside",
					"description": "How the image comes to fit width and height. inside: keeps its proportions, as large as fits within both. outside: keeps its proportions, as small as covers both. contain: inside, centred on a canvas of exactly width × height. cover: outside, and what exceeds width × height is cut off evenly. fill: each side is stretched by itself."
				},
				"enlarge": {"type": "boolean", "default": false, "description": "true lets an image that is smaller grow. Otherwise its pixels stay as many as they are; the canvas of contain has its size all the same."},
				"format": ` + formatSchema + `,
				"quality": ` + qualitySchema + `,
				"background": ` + backgroundSchema + `,
				"name": ` + imageNameSchema + `
			},
			"required": ["file"],
			"additionalProperties": false
		}`),
		Output: schema(imageOutput),
		Metadata: action.Metadata{
			InputTypes:  []action.TypeDefinition{{Name: "image", MimeTypes: imageTypes, Description: "An image of at most 50 megapixels."}},
			OutputTypes: []action.TypeDefinition{{Name: "resized", MimeTypes: []string{"image/jpeg", "image/png", "image/gif", "image/bmp", "image/tiff"}, Description: "The image in its new size; in the format of the input, and for WebP as png with transparency, else jpeg."}},
			BranchConditions: []action.BranchCondition{
				{Name: "is-portrait", Expression: `output.height > output.width`, Description: "The image is higher than wide."},
				{Name: "is-smaller", Expression: `output.width < output.source.width || output.height < output.source.height`, Description: "The image has lost pixels."},
				{Name: "is-small", Expression: `output.sizeBytes < 10485760`, Description: "The result has less than 10 MiB."},
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "30ms", Max: "30s"},
		},
		Limits: append([]string{"The result has at most 16,384 pixels a side and 50 megapixels."}, imageLimits()...),
		Faults: imageFaults,
		Examples: []action.Example{
			{Title: "Make a thumbnail.", Input: schema(`{"file": "file", "size": "thumbnail"}`)},
			{Title: "Cut to a square of exactly 300 pixels, as JPEG.", Input: schema(`{"file": "file", "width": 300, "height": 300, "fit": "cover", "format": "jpeg"}`)},
			{Title: "Centre on a white canvas of 1200 × 630.", Input: schema(`{"file": "file", "width": 1200, "height": 630, "fit": "contain", "background": "white"}`)},
		},
		Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			var in struct {
				File       string    `json:"file"`
				Name       string    `json:"name"`
				Size       string    `json:"size"`
				Width      int       `json:"width"`
				Height     int       `json:"height"`
				Fit        media.Fit `json:"fit"`
				Enlarge    bool      `json:"enlarge"`
				Format     string    `json:"format"`
				Quality    int       `json:"quality"`
				Background string    `json:"background"`
			}
			if err := decode(task, &in); err != nil {
				return action.Result{}, err
			}
			opts := media.ImageOptions{
				Width: in.Width, Height: in.Height, Fit: in.Fit, Enlarge: in.Enlarge,
				Format: formatOf(in.Format), Quality: in.Quality, Background: colourOf(in.Background),
			}
			exact := in.Width > 0 || in.Height > 0
			if exact && in.Size != "" {
				return action.Result{}, fault.New(fault.InputInvalid, "size %q is given and width or height too: want one of them", in.Size)
			}
			if !exact && in.Size == "" {
				in.Size = "medium"
			}
			suffix := in.Size
			if exact {
				suffix = requestedSize(in.Width, in.Height)
			} else {
				opts.Width, opts.Height = sizes[in.Size], sizes[in.Size]
			}
			return makeImage(ctx, task, reader, in.File, in.Name, suffix, opts)
		},
	}
}

// requestedSize returns the requested size as text: 300x200, 300w or 200h.
func requestedSize(width, height int) string {
	switch {
	case height == 0:
		return fmt.Sprintf("%dw", width)
	case width == 0:
		return fmt.Sprintf("%dh", height)
	}
	return fmt.Sprintf("%dx%d", width, height)
}
