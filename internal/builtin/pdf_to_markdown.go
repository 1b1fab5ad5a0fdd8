// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/media"
	"github.com/roux-engine/roux/internal/media/pdf"
)

// Limits of the output other than its text, and of the requested pages.
const (
	maxPages    = 1_000 // pages listed one by one
	maxProblems = 100
	maxRanges   = 100
	// progressSteps is the most progress reports for one document.
	progressSteps = 20
)

// pdfToMarkdown returns the action pdf-to-markdown, which reads the text of a
// PDF (X160).
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
					"description": "Marks headings, lists, tables, bold, italic and code. false leaves out all marks: plain paragraphs."
				},
				"pages": {
					"type": "string", "minLength": 1, "maxLength": 1000,
					"description": "The pages to read, counted from 1: 1-3,7 or 10- for all from page 10 on. Default: all."
				},
				` + outputProp + `
			},
			"required": ["file"],
			"additionalProperties": false
		}`),
		Output: schema(`{
			"type": "object",
			"properties": {
				"content": {"type": "string", "description": "The text, pages one after the other; missing with output: file."},
				"file": {"type": "string", "format": "file", "description": "With output: file. The text as a Markdown file."},
				` + fileNameProp + `,
				"title": {"type": "string", "description": "The document's title, else its first heading; empty when it has neither."},
				"pageCount": {"type": "integer", "minimum": 1, "description": "Of the whole document."},
				"originalPageCount": {"type": "integer", "minimum": 1, "description": "The same, under a name that stays clear in the result of a run that makes another document."},
				"wordCount": {"type": "integer", "minimum": 0, "description": "Of the pages read."},
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
					"type": "array", "maxItems": 1000, "description": "The pages read, in order; missing when there are more than 1,000.",
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
				{Name: "is-complete", Expression: `!has(output.problems)`, Description: "No page is known to lack some of its text."},
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "50ms", Max: "5m"},
		},
		Limits: []string{
			"Files up to 128 MiB, 20,000 pages and 32 MiB of text.",
			"160 MiB of memory, more for files over 24 MiB, and 3 seconds of computing for a page, in a process of its own.",
			"A text in content that is over 1 MiB travels as a reference: it can be passed on whole, and .size works.",
			"Text inside of images is not read; a file that needs a password is refused.",
		},
		Faults: []fault.Code{fault.InputInvalid, fault.InputMissing, fault.FileNotFound, fault.FileUnsupported, fault.FileInvalid, fault.FileEncrypted, fault.FileTooLarge},
		Examples: []action.Example{
			{Title: "Read a document as Markdown.", Input: schema(`{"file": "file"}`)},
			{Title: "Read only its words.", Input: schema(`{"file": "file", "preserveFormatting": false}`)},
			{Title: "Read the first page, as a file.", Input: schema(`{"file": "file", "pages": "1", "output": "file"}`)},
		},
		Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			return readPDF(ctx, task, reader)
		},
	}
}

// readPDF carries out the action pdf-to-markdown.
func readPDF(ctx context.Context, task *action.Task, reader *media.Reader) (action.Result, error) {
	var in struct {
		File               string `json:"file"`
		PreserveFormatting *bool  `json:"preserveFormatting"`
		Pages              string `json:"pages"`
		target
	}
	if err := decode(task, &in); err != nil {
		return action.Result{}, err
	}
	ranges, err := pageRanges(in.Pages)
	if err != nil {
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
	told := 0
	doc, err := reader.Text(ctx, file, media.TextOptions{
		Plain: in.PreserveFormatting != nil && !*in.PreserveFormatting,
		Pages: ranges,
		Progress: func(done, total int) {
			// A few reports are enough for watchers; not every page belongs in the
			// journal.
			now := done * progressSteps / total
			if now == told {
				return
			}
			told = now
			report(task).Progress(float64(done)/float64(total), fmt.Sprintf("read %d of %d pages", done, total))
		},
	})
	if err != nil {
		return action.Result{}, err
	}
	return markdownResult(ctx, task, info, doc, in.target)
}

// pageRanges reads "1-3,7" and "10-"; nil = all pages.
func pageRanges(text string) ([]pdf.PageRange, error) {
	if text == "" {
		return nil, nil
	}
	wrong := func(part, why string) error {
		return fault.New(fault.InputInvalid, `pages %q: %s: want pages such as "1-3,7", or "10-" for all from page 10 on`, part, why)
	}
	var out []pdf.PageRange
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		first, last, isRange := strings.Cut(part, "-")
		from, ok := pageNumber(first)
		to := from
		switch {
		case isRange && strings.TrimSpace(last) == "":
			to = pdf.LastPage
		case isRange:
			var lastOK bool
			to, lastOK = pageNumber(last)
			ok = ok && lastOK
		}
		switch {
		case !ok:
			return nil, wrong(part, "it is no page number and no range")
		case from == 0 || to == 0:
			return nil, wrong(part, "pages count from 1")
		case from > to:
			return nil, wrong(part, "the range ends before it begins")
		}
		if out = append(out, pdf.PageRange{From: from, To: to}); len(out) > maxRanges {
			return nil, fault.New(fault.InputInvalid, "pages has more than %d ranges: join some, or read all pages", maxRanges)
		}
	}
	return out, nil
}

// pageNumber reads a number of up to eight digits, which is more than any
// number of pages.
func pageNumber(s string) (int, bool) {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > 8 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

func markdownResult(ctx context.Context, task *action.Task, info action.FileInfo, doc pdf.Document, to target) (action.Result, error) {
	var texts []string
	var pages, problems, headings = []any{}, []any{}, []any{}
	words := 0
	for _, p := range doc.Pages {
		page := int64(p.Number)
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
		"title": doc.Title, "pageCount": int64(doc.PageCount), "originalPageCount": int64(doc.PageCount), "wordCount": int64(words), "headings": headings,
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
	if to.Output != "file" {
		out["content"] = content
		return action.Result{Output: out}, nil
	}
	stored, err := task.Files.Put(ctx, strings.NewReader(content), to.fileName(stem(info.Name, "document")+".md"), "text/markdown")
	if err != nil {
		return action.Result{}, err
	}
	out["file"], out["name"] = stored.Hash, stored.Name
	return action.Result{Output: out}, nil
}
