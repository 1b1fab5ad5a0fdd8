// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/media"
)

// Common parts of resize-image and convert-image.

// imageTypes are the MIME types of images that can be read.
var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/bmp", "image/tiff", "image/webp"}

// Input properties of actions that produce an image.
const (
	formatSchema = `{"type": "string", "examples": ["jpeg", "png", "gif", "bmp", "tiff"],
		"description": "Format of the result: jpeg, png, gif, bmp or tiff."}`
	qualitySchema = `{"type": "integer", "minimum": 1, "maximum": 100, "default": 85,
		"description": "Of a JPEG; more is better and larger. Other formats lose nothing and ignore it."}`
	imageNameSchema  = `{"type": "string", "minLength": 1, "maxLength": 200, "description": "Name of the result; it ends as its format wants, whatever ending is given. Default: made from the name of the input."}`
	backgroundSchema = `{"type": "string", "pattern": "^(#[0-9a-fA-F]{3}|#[0-9a-fA-F]{6}|#[0-9a-fA-F]{8}|white|black|transparent)$",
		"description": "What shows behind: #rgb, #rrggbb, #rrggbbaa, white, black or transparent. It fills the canvas of fit contain, and what is transparent in a format without transparency (jpeg, bmp). Without it: transparent where the format can, else white."}`
)

// imageOutput is the output schema of actions that produce an image.
const imageOutput = `{
	"type": "object",
	"properties": {
		"file": ` + fileSchema + `,
		"name": {"type": "string", "description": "The name asked for, else made from the name of the input."},
		"mimeType": {"type": "string"},
		"sizeBytes": {"type": "integer", "minimum": 1},
		"format": {"type": "string", "enum": ["jpeg", "png", "gif", "bmp", "tiff"]},
		"width": {"type": "integer", "minimum": 1, "description": "In pixels."},
		"height": {"type": "integer", "minimum": 1, "description": "In pixels."},
		"source": {
			"type": "object",
			"description": "The image that came in, width and height as it is shown.",
			"properties": {
				"format": {"type": "string"},
				"width": {"type": "integer", "minimum": 1},
				"height": {"type": "integer", "minimum": 1}
			},
			"required": ["format", "width", "height"],
			"additionalProperties": false
		},
		"notes": {"type": "array", "items": {"type": "string"}, "description": "What is not as one may expect; missing when there is nothing."}
	},
	"required": ["file", "name", "mimeType", "sizeBytes", "format", "width", "height", "source"],
	"additionalProperties": false
}`

// imageLimits are the limits of both actions.
func imageLimits() []string {
	return []string{
		fmt.Sprintf("Images up to %d megapixels, 65,535 pixels a side and 128 MiB; larger ones are refused by their header, before anything is decoded.", media.MaxPixels/1_000_000),
		"Read: JPEG, PNG, GIF (first frame), BMP, TIFF (first page), WebP (no animations). Written: JPEG, PNG, GIF, BMP, TIFF, with 8 bits per channel.",
		"EXIF orientation is applied. No metadata goes along (EXIF, GPS, comments) but the colour profile, into a JPEG or PNG.",
		"An image takes at most 30 s of computing and 768 MiB of memory.",
	}
}

var imageFaults = []fault.Code{fault.FileNotFound, fault.FileUnsupported, fault.FileInvalid, fault.FileTooLarge}

// makeImage does the work on the image and stores the result as name, or as the
// name of the input with suffix.
func makeImage(ctx context.Context, task *action.Task, reader *media.Reader, hash, name, suffix string, opts media.ImageOptions) (action.Result, error) {
	file, err := openFile(ctx, task, hash)
	if err != nil {
		return action.Result{}, err
	}
	defer func() { _ = file.Close() }()
	info := file.Info()
	if info.Size == 0 {
		return action.Result{}, fault.New(fault.FileInvalid, "file %s is empty: want an image", cmp.Or(info.Name, info.Hash))
	}
	job, err := reader.Image(file, info.Size, opts)
	if errors.Is(err, media.ErrUnknownImage) {
		return action.Result{}, fault.New(fault.FileUnsupported, "file %s is %s: want an image as %s", cmp.Or(info.Name, info.Hash), info.MimeType, strings.Join(media.ImageFormatsRead, ", "))
	}
	if err != nil {
		return action.Result{}, err
	}
	if name != "" {
		suffix = ""
		if !imageExtension.MatchString(name) {
			name += extensions[job.Format] // a dot in the name does not begin an extension
		}
	}
	name = outputName(cmp.Or(name, info.Name), suffix, job.Format)
	stored, err := storeImage(ctx, task, name, "image/"+job.Format, func(w io.Writer) error { return job.Run(ctx, w) })
	if err != nil {
		return action.Result{}, err
	}
	width, height := job.Source.Shown()
	out := map[string]any{
		"file": stored.Hash, "name": name, "mimeType": stored.MimeType, "sizeBytes": stored.Size,
		"format": job.Format, "width": int64(job.Width), "height": int64(job.Height),
		"source": map[string]any{"format": job.Source.Format, "width": int64(width), "height": int64(height)},
	}
	if notes := imageNotes(job, opts); len(notes) > 0 {
		out["notes"] = notes
		for _, n := range notes {
			report(task).Log("info", n)
		}
	}
	return action.Result{Output: out}, nil
}

// storeImage stores the image while make writes it in a goroutine of its own.
func storeImage(ctx context.Context, task *action.Task, name, mimeType string, make func(io.Writer) error) (action.FileInfo, error) {
	from, to := io.Pipe()
	made := inGoroutine(func() error { return make(to) }, func(err error) { _ = to.CloseWithError(err) }) // nil means end of file
	defer func() { _ = from.CloseWithError(errNotStored) }()
	stored, err := task.Files.Put(ctx, from, name, mimeType)
	_ = from.CloseWithError(errNotStored)
	if failed := made(); failed != nil && !errors.Is(failed, errNotStored) {
		return action.FileInfo{}, failed
	}
	return stored, err
}

var errNotStored = errors.New("the image is no longer being stored")

func imageNotes(job *media.ImageJob, opts media.ImageOptions) []string {
	var notes []string
	if job.Source.Animated {
		notes = append(notes, "the image is an animation: only its first frame was taken")
	}
	if opts.Format == "" && job.Format != job.Source.Format {
		notes = append(notes, fmt.Sprintf("%s is read and not written: the result is %s", job.Source.Format, job.Format))
	}
	return notes
}

// formatOf reads the name of a format in its usual spellings.
func formatOf(text string) string {
	switch f := strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), "image/"), "."); f {
	case "jpg":
		return "jpeg"
	case "tif":
		return "tiff"
	default:
		return f
	}
}

// colourOf reads a background that matches its schema; "" = nil.
func colourOf(text string) *media.Colour {
	switch text {
	case "":
		return nil
	case "white":
		return &media.Colour{R: 255, G: 255, B: 255, A: 255}
	case "black":
		return &media.Colour{A: 255}
	case "transparent":
		return &media.Colour{}
	}
	digits := strings.TrimPrefix(text, "#")
	if len(digits) == 3 {
		digits = string([]byte{digits[0], digits[0], digits[1], digits[1], digits[2], digits[2]})
	}
	if len(digits) == 6 {
		digits += "ff"
	}
	n, err := strconv.ParseUint(digits, 16, 32)
	if err != nil {
		return nil // the schema rules this out
	}
	return &media.Colour{R: uint8(n >> 24), G: uint8(n >> 16), B: uint8(n >> 8), A: uint8(n)}
}

// extensions are the file name extensions of formats.
var extensions = map[string]string{"jpeg": ".jpg", "png": ".png", "gif": ".gif", "bmp": ".bmp", "tiff": ".tiff"}

// imageExtension matches the extension of an image's name.
var imageExtension = regexp.MustCompile(`(?i)\.(jpe?g|png|gif|bmp|tiff?|webp)$`)

// deviceName matches names that denote a device on some systems, with any
// extension.
var deviceName = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])([ .]|$)`)

// outputName derives the name of a result from that of its source. It is a safe
// file name on all systems, whatever the source's name (A15, A31).
func outputName(source, suffix, format string) string {
	name := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || strings.ContainsRune(" ._-()+,@", r) {
			return r
		}
		return '-'
	}, stem(strings.ToValidUTF8(source, "-"), "image"))
	name = strings.Trim(name, " .-")
	const most = 150
	for len(name) > most {
		_, n := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-n]
	}
	if name = cmp.Or(strings.TrimRight(name, " ."), "image"); deviceName.MatchString(name) {
		name = "image-" + name
	}
	if suffix != "" {
		name += "-" + suffix
	}
	return name + extensions[format]
}
