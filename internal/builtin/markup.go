// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"cmp"
	"context"
	"io"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/media"
)

var markupLimits = []string{"8 MiB of input, 32 MiB of output.", "3 seconds of computing, in a process of its own: texts made to slow a parser down are refused."}

var markupFaults = []fault.Code{fault.InputInvalid, fault.FileNotFound, fault.FileInvalid, fault.FileUnsupported, fault.FileTooLarge}

const textOutput = `{
	"type": "object",
	"properties": {
		"text": {"type": "string", "description": "The converted text; missing with output: file."},
		"file": {"type": "string", "format": "file", "description": "With output: file. The converted text."},
		` + fileNameProp + `,
		"sizeBytes": {"type": "integer", "minimum": 0, "description": "Bytes of the converted text in UTF-8."}
	},
	"required": ["sizeBytes"],
	"additionalProperties": false
}`

var hasText = []action.BranchCondition{condition("has-text", `output.sizeBytes > 1`, "Something came out.")}

// htmlToMarkdown returns the action html-to-markdown, which converts an HTML
// page to Markdown.
func htmlToMarkdown(reader *media.Reader) action.Action {
	return action.Action{
		Name:        "html-to-markdown",
		Version:     "1.0.0",
		Description: "Turns an HTML page into Markdown, with headings, lists, links and tables; scripts and styles are left out.",
		Cost:        1,
		Input: sourceSchema(`
			"baseUrl": {"type": "string", "maxLength": 2000, "description": "Address of the page; relative links become absolute by it. Default: they stay relative."},
			` + outputProp),
		Output: schema(textOutput),
		Metadata: action.Metadata{
			InputTypes:       types("page", "HTML in UTF-8.", "text/html", "application/xhtml+xml"),
			OutputTypes:      types("markdown", "The page's text.", "text/markdown"),
			BranchConditions: hasText,
			Parallelizable:   boolTrue(),
			DurationRange:    &action.DurationRange{Min: "20ms", Max: "5s"},
		},
		Limits: append([]string{"Elements nested up to 512 deep.", "Links with other schemes than http, https, mailto, tel and ftp keep only their text."}, markupLimits...),
		Faults: markupFaults,
		Examples: []action.Example{
			example("A piece of a page.", map[string]any{"text": "<h1>Ferry</h1><p>It <b>sails</b> <a href=\"/times\">at noon</a>.</p>", "baseUrl": "https://example.org/"}),
			example("A page as a Markdown file.", map[string]any{"file": "file", "output": "file"}),
		},
		Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			var in struct {
				source
				BaseURL string `json:"baseUrl"`
				target
			}
			return convert(ctx, task, &in, &in.source, &in.target, "page.md", "text/markdown", func(r io.Reader, _ string) (string, error) {
				return reader.HTMLToMarkdown(ctx, r, media.HTMLOptions{Base: in.BaseURL})
			})
		},
	}
}

// markdownToHTML returns the action markdown-to-html, which renders Markdown as
// HTML.
func markdownToHTML(reader *media.Reader) action.Action {
	return action.Action{
		Name:        "markdown-to-html",
		Version:     "1.0.0",
		Description: "Renders Markdown as HTML, with tables and task lists; HTML inside it is shown as text unless it is asked for.",
		Cost:        1,
		Input: sourceSchema(`
			"rawHtml": {"enum": ["escape", "omit", "keep"], "default": "escape", "description": "HTML inside the Markdown: escape shows it as text, omit leaves it out, keep passes it on, scripts included: for texts that you trust."},
			"document": {"type": "boolean", "default": false, "description": "true makes a whole page with head and title instead of a fragment."},
			"title": {"type": "string", "maxLength": 1000, "description": "With document: the page's title. Default: the file's name."},
			"language": {"type": "string", "pattern": "^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$", "default": "en", "description": "With document: the page's language tag."},
			` + outputProp),
		Output: schema(textOutput),
		Metadata: action.Metadata{
			InputTypes:       types("markdown", "Markdown in UTF-8.", "text/markdown", "text/plain"),
			OutputTypes:      types("page", "HTML, a fragment or a whole page.", "text/html"),
			BranchConditions: hasText,
			Parallelizable:   boolTrue(),
			DurationRange:    &action.DurationRange{Min: "20ms", Max: "5s"},
		},
		Limits: append([]string{"Links that run code lose their address."}, markupLimits...),
		Faults: markupFaults,
		Examples: []action.Example{
			example("A fragment.", map[string]any{"text": "# Ferry\n\nIt **sails** at noon.\n"}),
			example("A whole page as a file.", map[string]any{"file": "file", "document": true, "title": "Report", "output": "file"}),
		},
		Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			var in struct {
				source
				RawHTML  string `json:"rawHtml"`
				Document bool   `json:"document"`
				Title    string `json:"title"`
				Language string `json:"language"`
				target
			}
			return convert(ctx, task, &in, &in.source, &in.target, "page.html", "text/html", func(r io.Reader, name string) (string, error) {
				return reader.MarkdownToHTML(ctx, r, media.MarkdownOptions{
					RawHTML: in.RawHTML, Document: in.Document, Title: cmp.Or(in.Title, stem(name, "Untitled")), Language: cmp.Or(in.Language, "en"),
				})
			})
		},
	}
}

// convert reads the input, converts its text and returns the result.
func convert(ctx context.Context, task *action.Task, in any, src *source, to *target, name, mimeType string,
	do func(r io.Reader, name string) (string, error)) (action.Result, error) {
	if err := decode(task, in); err != nil {
		return action.Result{}, err
	}
	s, err := src.open(ctx, task)
	if err != nil {
		return action.Result{}, err
	}
	defer func() { _ = s.Close() }()
	text, err := do(s, s.name)
	if err != nil {
		return action.Result{}, err
	}
	if s.name != "" {
		name = stem(s.name, "page") + name[len("page"):]
	}
	return textResult(ctx, task, *to, text, name, mimeType, map[string]any{"sizeBytes": int64(len(text))})
}
