// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/media"
)

// fileInspect returns the action file-inspect, whose output is facts about a
// file (X159), on which a recipe can branch.
func fileInspect(reader *media.Reader) action.Action {
	return action.Action{
		Name:        "file-inspect",
		Version:     "1.0.0",
		Description: "Tells a file's type, size and name, the pages of a PDF, the dimensions of an image and the duration of an audio or video file.",
		Cost:        1,
		Input: schema(`{
			"type": "object",
			"properties": {"file": ` + fileSchema + `},
			"required": ["file"],
			"additionalProperties": false
		}`),
		Output: schema(`{
			"type": "object",
			"properties": {
				"hash": ` + fileSchema + `,
				"name": {"type": "string", "description": "Name it was uploaded with; empty when it had none."},
				"mimeType": {"type": "string", "description": "Told from the content."},
				"sizeBytes": {"type": "integer", "minimum": 0},
				"extended": {
					"type": "object",
					"description": "What only files of its kind have.",
					"properties": {
						"pageCount": {"type": "integer", "minimum": 1, "description": "PDF that opens without a password."},
						"title": {"type": "string", "description": "PDF."},
						"author": {"type": "string", "description": "PDF."},
						"encrypted": {"type": "boolean", "description": "PDF: true when it needs a password."},
						"damaged": {"type": "boolean", "description": "true when the file is damaged and could be looked at all the same: a PDF that had to be repaired, a PNG whose header has a wrong checksum."},
						"format": {"type": "string", "description": "Image: jpeg, png, gif, bmp, tiff or webp. Audio or video: wav, mp3, flac, ogg, mp4, quicktime, matroska or webm."},
						"durationMs": {"type": "integer", "minimum": 0, "description": "Audio or video whose header gives it, in milliseconds."},
						"durationEstimated": {"type": "boolean", "description": "Audio or video: true when durationMs is computed from the size and the bit rate."},
						"width": {"type": "integer", "minimum": 1, "description": "Image or video, in pixels as stored."},
						"height": {"type": "integer", "minimum": 1, "description": "Image or video, in pixels as stored."},
						"orientation": {"type": "integer", "minimum": 1, "maximum": 8, "description": "Image: how EXIF wants it shown; 1 = as stored."},
						"shownWidth": {"type": "integer", "minimum": 1, "description": "Image: width when shown as the orientation says."},
						"shownHeight": {"type": "integer", "minimum": 1, "description": "Image: height when shown as the orientation says."},
						"hasAlpha": {"type": "boolean", "description": "Image: true when its pixels can be transparent."},
						"animated": {"type": "boolean", "description": "Image: true when it has more than one frame."}
					},
					"additionalProperties": false
				}
			},
			"required": ["hash", "name", "mimeType", "sizeBytes", "extended"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  []action.TypeDefinition{{Name: "file", MimeTypes: []string{"*/*"}, Description: "Any file."}},
			OutputTypes: []action.TypeDefinition{{Name: "facts", MimeTypes: []string{"application/json"}, Description: "What is known of the file."}},
			BranchConditions: []action.BranchCondition{
				{Name: "is-pdf", Expression: `output.mimeType == "application/pdf"`, Description: "The file is a PDF."},
				{Name: "is-image", Expression: `output.mimeType.startsWith("image/")`, Description: "The file is an image."},
				{Name: "is-portrait", Expression: `has(output.extended.shownWidth) && output.extended.shownHeight > output.extended.shownWidth`, Description: "The file is an image that is shown higher than wide."},
				{Name: "is-small", Expression: `output.sizeBytes < 10485760`, Description: "The file has less than 10 MiB."},
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "1ms", Max: "10s"},
		},
		Limits:   []string{"The pages of a PDF are counted up to 128 MiB; other files may have any size.", "Of images, audio and video only headers are read, at most 4 MiB in all. Nothing is decoded, so the data after a header may be damaged."},
		Faults:   []fault.Code{fault.FileNotFound, fault.FileInvalid, fault.FileTooLarge},
		Examples: []action.Example{{Title: "Look at a file before deciding what to do with it.", Input: schema(`{"file": "file"}`)}},
		Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			var in struct {
				File string `json:"file"`
			}
			if err := decode(task, &in); err != nil {
				return action.Result{}, err
			}
			file, err := openFile(ctx, task, in.File)
			if err != nil {
				return action.Result{}, err
			}
			defer func() { _ = file.Close() }()
			info := file.Info()
			extended, err := Inspect(ctx, reader, file)
			if err != nil {
				return action.Result{}, err
			}
			return action.Result{Output: map[string]any{
				"hash": info.Hash, "name": info.Name, "mimeType": info.MimeType, "sizeBytes": info.Size, "extended": extended,
			}}, nil
		},
	}
}

// Inspect returns the facts that depend on the type of the file, under the
// names of file-inspect's output schema (pageCount, width, …). The result is
// empty for types without such facts. A PDF that needs a password is a fact, so
// that a recipe can branch on it; damage is a failure (FILE_INVALID,
// FILE_TOO_LARGE, STEP_TIMEOUT). The file is read within the limits of reader,
// until ctx ends.
func Inspect(ctx context.Context, reader *media.Reader, file action.File) (map[string]any, error) {
	out := map[string]any{}
	var err error
	switch t := file.Info().MimeType; {
	case t == typePDF:
		err = inspectPDF(ctx, reader, file, out)
	case strings.HasPrefix(t, "image/"):
		err = inspectImage(file, out)
	case strings.HasPrefix(t, "audio/"), strings.HasPrefix(t, "video/"), t == "application/ogg":
		err = inspectAudioVideo(file, out)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func inspectPDF(ctx context.Context, reader *media.Reader, file action.File, out map[string]any) error {
	doc, err := reader.Info(ctx, file)
	switch {
	case errors.Is(err, fault.FileEncrypted):
		out["encrypted"] = true
		return nil
	case err != nil:
		return err
	}
	out["pageCount"], out["encrypted"] = int64(doc.PageCount), false
	setText(out, "title", doc.Title)
	setText(out, "author", doc.Author)
	if doc.Repaired {
		out["damaged"] = true
	}
	return nil
}

func inspectImage(file action.File, out map[string]any) error {
	img, err := media.ImageInfo(file, file.Info().Size)
	switch {
	case errors.Is(err, media.ErrUnknownImage):
		return nil
	case err != nil:
		return err
	}
	shownWidth, shownHeight := img.Shown()
	out["format"], out["width"], out["height"] = img.Format, int64(img.Width), int64(img.Height)
	out["orientation"], out["shownWidth"], out["shownHeight"] = int64(img.Orientation), int64(shownWidth), int64(shownHeight)
	out["hasAlpha"], out["animated"] = img.Alpha, img.Animated
	if img.Damaged {
		out["damaged"] = true
	}
	return nil
}

func inspectAudioVideo(file action.File, out map[string]any) error {
	s, err := media.AudioVideoInfo(file, file.Info().Size)
	switch {
	case errors.Is(err, media.ErrUnknownAudioVideo):
		return nil
	case err != nil:
		return err
	}
	out["format"] = s.Format
	if s.Duration > 0 {
		out["durationMs"] = s.Duration.Round(time.Millisecond).Milliseconds()
	}
	if s.Estimated {
		out["durationEstimated"] = true
	}
	if s.Width > 0 && s.Height > 0 {
		out["width"], out["height"] = int64(s.Width), int64(s.Height)
	}
	return nil
}

// AtUpload returns Inspect in the form in which the file store calls it for
// every new file. It has a reader of its own, so that uploads do not wait while
// other files are read.
func AtUpload() func(ctx context.Context, file action.File) (json.RawMessage, error) {
	reader := media.New(media.Config{})
	return func(ctx context.Context, file action.File) (json.RawMessage, error) {
		found, problem := Inspect(ctx, reader, file)
		raw, err := json.Marshal(found)
		if err != nil {
			return nil, err
		}
		return raw, problem
	}
}

func setText(out map[string]any, key, text string) {
	if text != "" {
		out[key] = text
	}
}
