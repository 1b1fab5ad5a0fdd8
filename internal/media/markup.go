// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
)

// MaxMarkup is the largest HTML or Markdown text that is converted. Both
// parsers need quadratic time for hostile inputs far below any useful size
// limit, so it is the CPU limit of the child, MarkupStall, that protects
// against those.
const MaxMarkup = 8 << 20

// MarkupStall limits the CPU time of one conversion of markup, where
// Config.Stall is not lower.
const MarkupStall = 3 * time.Second

// Limits on the spans of a table cell. The library writes every column and row
// that a span covers, and HTML allows 1,000 × 65,534 of them in one cell.
const (
	maxColspan = 100
	maxRowspan = 100
)

// markup holds the options of a conversion of HTML or Markdown.
type markup struct {
	Base     string `json:"base,omitempty"`
	Document bool   `json:"document,omitempty"`
	Title    string `json:"title,omitempty"`
	Language string `json:"language,omitempty"`
	RawHTML  string `json:"rawHtml,omitempty"`
}

// HTMLOptions shape the result of HTMLToMarkdown.
type HTMLOptions struct {
	// Base is the absolute address of the page, against which relative links are
	// resolved. "" keeps them as they are.
	Base string
}

// How HTML inside Markdown is treated.
const (
	RawEscape = "escape" // shown as text
	RawOmit   = "omit"
	RawKeep   = "keep" // copied unchanged, scripts included
)

// MarkdownOptions shape the result of MarkdownToHTML.
type MarkdownOptions struct {
	// RawHTML is one of the Raw constants. Default RawEscape.
	RawHTML string
	// Document produces a whole page with head and title instead of a fragment.
	Document        bool
	Title, Language string // of the page
}

// HTMLToMarkdown returns the text of an HTML page as Markdown with tables.
// Scripts, styles and links that run code are removed. Elements nested more
// than 512 deep are FILE_INVALID; a text above MaxMarkup, or one that needs
// more memory or CPU time than the Reader allows, is FILE_TOO_LARGE.
func (r *Reader) HTMLToMarkdown(ctx context.Context, src io.Reader, opts HTMLOptions) (string, error) {
	return r.convert(ctx, src, request{Op: opHTML, Markup: &markup{Base: opts.Base}})
}

// MarkdownToHTML renders Markdown (CommonMark with GitHub's tables, task lists,
// strikethrough and bare links) as HTML. Links that run code lose their
// address. It returns the same faults as HTMLToMarkdown.
func (r *Reader) MarkdownToHTML(ctx context.Context, src io.Reader, opts MarkdownOptions) (string, error) {
	m := &markup{Document: opts.Document, Title: opts.Title, Language: opts.Language, RawHTML: opts.RawHTML}
	return r.convert(ctx, src, request{Op: opMarkdown, Markup: m})
}

// convert carries out a request on markup.
func (r *Reader) convert(ctx context.Context, src io.Reader, req request) (string, error) {
	req.MaxBytes = MaxMarkup
	req.StallMS = min(r.cfg.Stall, MarkupStall).Milliseconds()
	last, err := r.run(ctx, src, req, func(message) error { return nil })
	if err != nil {
		return "", err
	}
	if last.Converted == nil {
		return "", fault.New(fault.InternalError, "the media child replied without a text")
	}
	return *last.Converted, nil
}

// convertMarkup runs in the child.
func convertMarkup(data []byte, req request) (string, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(data) {
		return "", fault.New(fault.FileInvalid, "%s is not valid UTF-8: convert its encoding first", req.subject())
	}
	var out []byte
	var err error
	if req.Op == opHTML {
		out, err = toMarkdown(data, req)
	} else {
		out, err = toHTML(data, req.Markup)
	}
	if err != nil {
		return "", err
	}
	if len(out) > maxText {
		return "", fault.New(fault.FileTooLarge, "%s becomes more than %d MiB, which is the limit of one conversion", req.subject(), maxText>>20)
	}
	// The libraries may cut the text within a rune. The result leaves the child as
	// JSON, where each invalid byte would become a replacement character of its
	// own; here each cut rune becomes one.
	return strings.ToValidUTF8(string(out), "\uFFFD"), nil
}
