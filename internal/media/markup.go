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

// MaxMarkup is how much HTML or Markdown one conversion reads. Both parsers
// need time that grows with the square of hostile inputs far below any limit on
// bytes, so what bounds them is the time of the child process, MarkupStall.
const MaxMarkup = 8 << 20

// MarkupStall is how much CPU time one conversion of markup may take, where
// Config.Stall is not less.
const MarkupStall = 3 * time.Second

// The most that a table cell may span: the library writes every column and row
// that a span covers, and HTML allows 1,000 × 65,534 of them in one cell.
const (
	maxColspan = 100
	maxRowspan = 100
)

// markup is what to do with HTML or Markdown.
type markup struct {
	Base     string `json:"base,omitempty"`
	Document bool   `json:"document,omitempty"`
	Title    string `json:"title,omitempty"`
	Language string `json:"language,omitempty"`
	RawHTML  string `json:"rawHtml,omitempty"`
}

// HTMLOptions shape the result of HTMLToMarkdown.
type HTMLOptions struct {
	// Base is the absolute address of the page; relative links are resolved
	// against it. "" keeps them as they are.
	Base string
}

// What becomes of HTML inside Markdown.
const (
	RawEscape = "escape" // shown as text
	RawOmit   = "omit"
	RawKeep   = "keep" // passed on as it is, scripts included
)

// MarkdownOptions shape the result of MarkdownToHTML.
type MarkdownOptions struct {
	// RawHTML is one of the constants. Default RawEscape.
	RawHTML string
	// Document makes a whole page with head and title instead of a fragment.
	Document        bool
	Title, Language string // of the page
}

// HTMLToMarkdown returns the text of an HTML page as Markdown with tables.
// Scripts, styles and links that run code are left out. Elements nested more
// than 512 deep are FILE_INVALID; more than MaxMarkup, or more memory or
// computing than the Reader grants, is FILE_TOO_LARGE.
func (r *Reader) HTMLToMarkdown(ctx context.Context, src io.Reader, opts HTMLOptions) (string, error) {
	return r.convert(ctx, src, request{Op: opHTML, Markup: &markup{Base: opts.Base}})
}

// MarkdownToHTML renders Markdown (CommonMark with GitHub's tables, task lists,
// strikethrough and bare links) as HTML. Links that run code lose their
// address. Its faults are those of HTMLToMarkdown.
func (r *Reader) MarkdownToHTML(ctx context.Context, src io.Reader, opts MarkdownOptions) (string, error) {
	m := &markup{Document: opts.Document, Title: opts.Title, Language: opts.Language, RawHTML: opts.RawHTML}
	return r.convert(ctx, src, request{Op: opMark, Markup: m})
}

func (r *Reader) convert(ctx context.Context, src io.Reader, req request) (string, error) {
	req.MaxBytes = MaxMarkup
	req.StallMS = min(r.cfg.Stall, MarkupStall).Milliseconds()
	last, err := r.ask(ctx, src, req, func(message) error { return nil })
	if err != nil {
		return "", err
	}
	if last.Converted == nil {
		return "", fault.New(fault.InternalError, "the reader of files answered without a text")
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
	// Part of what comes out is cut from what went in by libraries, and leaves
	// the child as JSON: a rune cut in two must not become two replacement marks.
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
	tame(doc, from)
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

// tame goes through a parsed page, at most 512 deep, and takes out what must
// not reach the converter: links that run code or carry data, and spans that
// cover more cells than a page can show.
func tame(n *html.Node, from *url.URL) {
	if n.Type == html.ElementNode {
		kept := n.Attr[:0]
		for _, a := range n.Attr {
			switch a.Key {
			case "href", "src":
				val, ok := safeAddress(a.Val, from)
				if !ok {
					if n.DataAtom == atom.A {
						n.Data, n.DataAtom = "span", atom.Span // its text stays
					}
					continue
				}
				a.Val = val
			case "colspan":
				a.Val = clamp(a.Val, maxColspan)
			case "rowspan":
				a.Val = clamp(a.Val, maxRowspan)
			}
			kept = append(kept, a)
		}
		n.Attr = kept
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		tame(c, from)
	}
}

// schemes are those that a link may have.
var schemes = map[string]bool{"": true, "http": true, "https": true, "mailto": true, "tel": true, "ftp": true}

// safeAddress is an address with a scheme that only leads somewhere, made
// absolute where a base is known. Browsers pass over control characters inside
// a scheme, so they count as not written.
func safeAddress(text string, from *url.URL) (string, bool) {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, text))
	u, err := url.Parse(text)
	if err != nil {
		// Not an address by the rules, such as "50%": harmless without a colon.
		return text, !strings.Contains(text, ":")
	}
	if !schemes[strings.ToLower(u.Scheme)] {
		return "", false
	}
	if from != nil && !strings.HasPrefix(text, "#") {
		return from.ResolveReference(u).String(), true
	}
	return text, true
}

func clamp(text string, most int) string {
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

// rawHTML writes what a Markdown text says in HTML. The library's own way is
// all or nothing, and "all" would also let links run code.
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
