// SPDX-License-Identifier: Apache-2.0

//go:build !small

package media

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

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
