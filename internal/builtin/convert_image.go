// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/media"
)

// convertImage returns the action convert-image, which writes an image in
// another format (X160).
func convertImage(reader *media.Reader) action.Action {
	return action.Action{
		Name:        "convert-image",
		Version:     "1.0.0",
		Description: "Writes an image in another format, turned upright and without metadata.",
		Cost:        2,
		Input: schema(`{
			"type": "object",
			"properties": {
				"file": ` + fileSchema + `,
				"format": ` + formatSchema + `,
				"quality": ` + qualitySchema + `,
				"background": ` + backgroundSchema + `,
				"name": ` + imageNameSchema + `,
				"stripMetadata": {"type": "boolean", "default": true, "description": "Always true: the image is written anew, and EXIF, GPS and comments are not copied. false is refused."}
			},
			"required": ["file", "format"],
			"additionalProperties": false
		}`),
		Output: schema(imageOutput),
		Metadata: action.Metadata{
			InputTypes:  []action.TypeDefinition{{Name: "image", MimeTypes: imageTypes, Description: "An image of at most 50 megapixels."}},
			OutputTypes: []action.TypeDefinition{{Name: "converted", MimeTypes: []string{"image/jpeg", "image/png", "image/gif", "image/bmp", "image/tiff"}, Description: "The image in the format that was asked for."}},
			BranchConditions: []action.BranchCondition{
				{Name: "is-portrait", Expression: `output.height > output.width`, Description: "The image is higher than wide."},
				{Name: "is-small", Expression: `output.sizeBytes < 10485760`, Description: "The result has less than 10 MiB."},
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "30ms", Max: "30s"},
		},
		Limits: imageLimits(),
		Faults: imageFaults,
		Examples: []action.Example{
			{Title: "Write as PNG.", Input: schema(`{"file": "file", "format": "png"}`)},
			{Title: "Write as a small JPEG, with white where it was transparent.", Input: schema(`{"file": "file", "format": "jpeg", "quality": 70, "background": "white"}`)},
		},
		Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			var in struct {
				File          string `json:"file"`
				Name          string `json:"name"`
				Format        string `json:"format"`
				Quality       int    `json:"quality"`
				Background    string `json:"background"`
				StripMetadata *bool  `json:"stripMetadata"`
			}
			if err := decode(task, &in); err != nil {
				return action.Result{}, err
			}
			if in.StripMetadata != nil && !*in.StripMetadata {
				return action.Result{}, fault.New(fault.InputInvalid, "stripMetadata: false: metadata cannot be kept, since the image is written anew; leave the input out")
			}
			if in.Format == "" {
				return action.Result{}, fault.New(fault.InputMissing, `input "format" is missing: want %s`, strings.Join(media.ImageFormatsWritten, ", "))
			}
			return makeImage(ctx, task, reader, in.File, in.Name, "", media.ImageOptions{
				Format: formatOf(in.Format), Quality: in.Quality, Background: colourOf(in.Background),
			})
		},
	}
}
