// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"cmp"
	"context"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/media"
)

// The bounds of the output, which has to stay under 1 MiB as a whole.
const (
	maxInline   = 900 << 10
	maxPages    = 1_000 // pages listed one by one
	maxProblems = 100
)

// pdfToMarkdown reads the text of a PDF (X160).
func pdfToMarkdown(reader *media.Reader) action.Action {
	return action.Action{
		Name:        "pdf-to-markdown",
		Version:     "1.0.0",
		Description: "Reads the text of a PDF file as Markdown, with headings, lists and simple tables.",
		Cost:        5,
		Input: schema(`{
			"type": "object",
			"properties": {
				"file": ` + fileSchema + `,
				"preserveFormatting": {
					"type": "boolean", "default": true,
					"description": "false leaves out all marks of headings, lists and tables."
				}
			},
			"required": ["file"],
			"additionalProperties": false
		}`),
		Output: schema(`{
			"type": "object",
			"properties": {
				"content": {"type": "string", "description": "The text; missing when it is long, see file."},
				"file": ` + fileSchema + `,
				"title": {"type": "string", "description": "The document's title, else its first heading; empty when it has neither."},
				"pageCount": {"type": "integer", "minimum": 1},
				"wordCount": {"type": "integer", "minimum": 0},
				"headings": {
					"type": "array", "maxItems": 500,
					"items": {
						"type": "object",
						"properties": {"level": {"type": "integer", "minimum": 1, "maximum": 4}, "text": {"type": "string"}, "page": {"type": "integer", "minimum": 1}},
						"required": ["level", "text", "page"],
						"additionalProperties": false
					}
				},
				"pages": {
					"type": "array", "maxItems": 1000, "description": "Missing when there are more than 1,000.",
					"items": {
						"type": "object",
						"properties": {"page": {"type": "integer", "minimum": 1}, "wordCount": {"type": "integer", "minimum": 0}},
						"required": ["page", "wordCount"],
						"additionalProperties": false
					}
				},
				"problems": {
					"type": "array", "maxItems": 100, "description": "Pages whose text may be incomplete.",
					"items": {
						"type": "object",
						"properties": {"page": {"type": "integer", "minimum": 1}, "message": {"type": "string"}},
						"required": ["page", "message"],
						"additionalProperties": false
					}
				}
			},
			"required": ["title", "pageCount", "wordCount", "headings"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  []action.TypeDefinition{{Name: "document", MimeTypes: []string{typePDF}, Description: "A PDF file that opens without a password."}},
			OutputTypes: []action.TypeDefinition{{Name: "markdown", MimeTypes: []string{"text/markdown"}, Description: "The text of the document."}},
			BranchConditions: []action.BranchCondition{
				{Name: "has-text", Expression: `output.wordCount > 0`, Description: "The document has text, and not only images of it."},
				{Name: "is-inline", Expression: `has(output.content)`, Description: "The text is in content and not in a file."},
			},
			Parallelizable: yes(),
			DurationRange:  &action.DurationRange{Min: "50ms", Max: "5m"},
		},
		Limits: []string{"Files up to 128 MiB.", "A text over 900 KiB is in a file and not in content."},
		Faults: []fault.Code{fault.FileNotFound, fault.FileUnsupported, fault.FileInvalid, fault.FileEncrypted, fault.FileTooLarge},
		Examples: []action.Example{
			{Title: "Read a document as Markdown.", Input: schema(`{"file": "file"}`)},
			{Title: "Read only its words.", Input: schema(`{"file": "file", "preserveFormatting": false}`)},
		},
		Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			var in struct {
				File               string `json:"file"`
				PreserveFormatting *bool  `json:"preserveFormatting"`
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
			if info.MimeType != typePDF {
				return action.Result{}, fault.New(fault.FileUnsupported, "file %s is %s: want %s", cmp.Or(info.Name, info.Hash), info.MimeType, typePDF)
			}
			doc, err := reader.Text(ctx, file, media.TextOptions{
				Plain: in.PreserveFormatting != nil && !*in.PreserveFormatting,
				Progress: func(done, total int) {
					report(task).Progress(float64(done)/float64(total), "reading pages")
				},
			})
			if err != nil {
				return action.Result{}, err
			}
			return markdownResult(ctx, task, info, doc)
		},
	}
}

func markdownResult(ctx context.Context, task *action.Task, info action.FileInfo, doc media.Document) (action.Result, error) {
	var texts []string
	var pages, problems, headings = []any{}, []any{}, []any{}
	words := 0
	for i, p := range doc.Pages {
		page := int64(i + 1)
		words += p.Words
		pages = append(pages, map[string]any{"page": page, "wordCount": int64(p.Words)})
		if p.Markdown != "" {
			texts = append(texts, p.Markdown)
		}
		if p.Problem != "" && len(problems) < maxProblems {
			problems = append(problems, map[string]any{"page": page, "message": p.Problem})
		}
	}
	for _, h := range doc.Headings {
		headings = append(headings, map[string]any{"level": int64(h.Level), "text": h.Text, "page": int64(h.Page)})
	}
	out := map[string]any{
		"title": doc.Title, "pageCount": int64(doc.PageCount), "wordCount": int64(words), "headings": headings,
	}
	if doc.Title == "" && len(doc.Headings) > 0 {
		out["title"] = doc.Headings[0].Text
	}
	if len(pages) <= maxPages {
		out["pages"] = pages
	}
	if len(problems) > 0 {
		out["problems"] = problems
		report(task).Log("warn", "the text of some pages may be incomplete; see problems in the output")
	}
	if words == 0 {
		report(task).Log("warn", "the document has no text; its pages may be images")
	}
	content := strings.Join(texts, "\n\n")
	out["content"] = content
	if data, err := jsonx.Canonical(out); err == nil && len(data) <= maxInline {
		return action.Result{Output: out}, nil
	}
	stored, err := task.Files.Put(ctx, strings.NewReader(content), stem(info.Name, "document")+".md", "text/markdown")
	if err != nil {
		return action.Result{}, err
	}
	delete(out, "content")
	out["file"] = stored.Hash
	return action.Result{Output: out}, nil
}
