// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/strikethrough"
	htmltable "github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

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

func toMarkdown(data []byte, req request) ([]byte, error) {
	doc, err := html.Parse(bytes.NewReader(data))
	if err != nil {
		return nil, fault.Wrap(fault.FileInvalid, err, "the HTML cannot be read: its elements are nested more than 512 deep")
	}
	var from *url.URL
	if req.Markup.Base != "" {
		if from, err = url.Parse(req.Markup.Base); err != nil || !from.IsAbs() || from.Host == "" {
			return nil, fault.New(fault.InputInvalid, "the base address %.80q is not absolute: want one such as https://example.org/page", req.Markup.Base)
		}
	}
	sanitize(doc, from)
	conv := converter.NewConverter(converter.WithPlugins(
		base.NewBasePlugin(),
		commonmark.NewCommonmarkPlugin(),
		strikethrough.NewStrikethroughPlugin(),
		htmltable.NewTablePlugin(htmltable.WithHeaderPromotion(true), htmltable.WithSkipEmptyRows(true)),
	))
	out, err := conv.ConvertNode(doc)
	if err != nil {
		return nil, fault.Wrap(fault.FileInvalid, err, "the HTML cannot be converted: %v", err)
	}
	return append(bytes.TrimSpace(out), '\n'), nil
}

// sanitize walks a parsed page, at most 512 deep, and removes what must not
// reach the converter: links that run code or carry data, and spans that cover
// more cells than a page can show.
func sanitize(n *html.Node, from *url.URL) {
	if n.Type == html.ElementNode {
		kept := n.Attr[:0]
		for _, a := range n.Attr {
			switch a.Key {
			case "href", "src":
				val, ok := safeURL(a.Val, from)
				if !ok {
					if n.DataAtom == atom.A {
						n.Data, n.DataAtom = "span", atom.Span // keep the text of the link
					}
					continue
				}
				a.Val = val
			case "colspan":
				a.Val = clampSpan(a.Val, maxColspan)
			case "rowspan":
				a.Val = clampSpan(a.Val, maxRowspan)
			}
			kept = append(kept, a)
		}
		n.Attr = kept
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		sanitize(c, from)
	}
}

// allowedSchemes are the URL schemes that a link may have.
var allowedSchemes = map[string]bool{"": true, "http": true, "https": true, "mailto": true, "tel": true, "ftp": true}

// safeURL returns an address that is safe to link to, made absolute where a
// base is known. ok is false for other schemes than allowedSchemes. Browsers
// ignore control characters inside a scheme, so they are removed first.
func safeURL(text string, from *url.URL) (string, bool) {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, text))
	u, err := url.Parse(text)
	if err != nil {
		// Not a valid URL, such as "50%". It is harmless unless it has a colon.
		return text, !strings.Contains(text, ":")
	}
	if !allowedSchemes[strings.ToLower(u.Scheme)] {
		return "", false
	}
	if from != nil && !strings.HasPrefix(text, "#") {
		return from.ResolveReference(u).String(), true
	}
	return text, true
}

func clampSpan(text string, most int) string {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return "1"
	}
	if errors.Is(err, strconv.ErrRange) {
		n = most
	}
	return strconv.Itoa(max(1, min(n, most)))
}

func toHTML(data []byte, m *markup) ([]byte, error) {
	md := goldmark.New(
		goldmark.WithExtensions(extension.GFM),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(rawHTML(m.RawHTML), 100))),
	)
	var b bytes.Buffer
	if m.Document {
		fmt.Fprintf(&b, "<!doctype html>\n<html lang=\"%s\">\n<head>\n<meta charset=\"utf-8\">\n<title>%s</title>\n</head>\n<body>\n",
			html.EscapeString(m.Language), html.EscapeString(m.Title))
	}
	if err := md.Convert(data, &b); err != nil {
		return nil, fault.Wrap(fault.FileInvalid, err, "the Markdown text cannot be converted: %v", err)
	}
	if m.Document {
		b.WriteString("</body>\n</html>\n")
	}
	return b.Bytes(), nil
}

// rawHTML renders the HTML inside a Markdown text. The library can only keep
// all of it or none, and keeping all would also keep links that run code.
type rawHTML string

// RegisterFuncs implements renderer.NodeRenderer.
func (raw rawHTML) RegisterFuncs(reg renderer.NodeRendererFuncRegisterer) {
	reg.Register(ast.KindHTMLBlock, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		block := n.(*ast.HTMLBlock)
		if entering {
			var text []byte
			for i := range block.Lines().Len() {
				line := block.Lines().At(i)
				text = append(text, line.Value(source)...)
			}
			if block.HasClosure() {
				text = append(text, block.ClosureLine.Value(source)...)
			}
			raw.write(w, text, true)
		}
		return ast.WalkContinue, nil
	})
	reg.Register(ast.KindRawHTML, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			segments := n.(*ast.RawHTML).Segments
			for i := range segments.Len() {
				part := segments.At(i)
				raw.write(w, part.Value(source), false)
			}
		}
		return ast.WalkSkipChildren, nil
	})
}

func (raw rawHTML) write(w util.BufWriter, text []byte, block bool) {
	switch {
	case raw == RawKeep:
		_, _ = w.Write(text)
	case raw == RawOmit:
	case block:
		_, _ = w.WriteString("<p>" + html.EscapeString(strings.TrimRight(string(text), "\n")) + "</p>\n")
	default:
		_, _ = w.WriteString(html.EscapeString(string(text)))
	}
}
