// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"bytes"
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"

	"github.com/roux-engine/roux/internal/media/pdftest"
)

// hostileTexts are texts with a meaning in Markdown or HTML.
var hostileTexts = []string{
	"# heading", "> quote", "- item", "+ item", "1. one", "1) one", "***", "---", "===", "```", "~~~", "`code`", "**bold**", "_em_", "a_b_c",
	"snake_case and __init__", "[text](https://example.com)", "![image](x.png)", "[a]: https://example.com", "[a][b]", "[^1]: note", "- [ ] task", "[x] done",
	"<b>bold</b>", "<script>alert(1)</script>", "<!-- comment -->", "&lt;b&gt;", "&#60;", "AT&T", "a & b", "a | b | c", "| --- |", "~~gone~~", "~one~",
	`C:\path\*`, `\`, `a\`, "trailing #", "a  b", "!", "![", "](", "<https://example.com>", "$math$", ":smile:", ": definition", "www", "\x1b[31mred", "a\u202Eb",
	"(a)[b](c)", "`` ` ``", "*", "**", "_", "1.", "10000000000. x", "a*b*c", "2 * 3 * 4", "<a", "< b", "|", "||", "|-|-|", "=", ">", "-", "+", "#hash", "#",
}

// anyTag matches an HTML tag.
var anyTag = regexp.MustCompile(`<[^>]*>`)

// renderMarkdown renders Markdown without automatic links, which hide no text.
func renderMarkdown(t testing.TB, markdown string) string {
	var out bytes.Buffer
	md := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.TaskList, extension.Footnote, extension.DefinitionList))
	if err := md.Convert([]byte(markdown), &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// expectedTags are the tags of each kind of block. Any other tag would come
// from its text.
var expectedTags = map[blockKind]*regexp.Regexp{
	paragraph: regexp.MustCompile(`^<p>([^<]*)</p>\n$`),
	heading:   regexp.MustCompile(`^<h2>([^<]*)</h2>\n$`),
	item:      regexp.MustCompile(`^<ul>\n<li>([^<]*)</li>\n</ul>\n$`),
	table:     regexp.MustCompile(`^<table>\n<thead>\n<tr>\n<th>([^<]*)</th>\n<th>second</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>([^<]*)</td>\n<td>x</td>\n</tr>\n</tbody>\n</table>\n$`),
	code:      regexp.MustCompile(`^<pre><code>([^<]*)\n</code></pre>\n$`),
}

func checkText(t testing.TB, raw string) {
	t.Helper()
	text := strings.Join(strings.Fields(normalizeGlyphText(strings.ToValidUTF8(raw, ""))), " ")
	if text = tidy(text); text == "" {
		return
	}
	set := []styledText{{text: text}}
	for _, b := range []block{
		{kind: paragraph, text: set},
		{kind: heading, level: 2, text: set},
		{kind: item, marker: "-", text: set},
		{kind: table, rows: [][]cell{{set, {{text: "second"}}}, {set, {{text: "x"}}}}},
		{kind: code, lines: []string{text}},
	} {
		markdown := b.markdown(0)
		seen := renderMarkdown(t, markdown)
		m := expectedTags[b.kind].FindStringSubmatch(seen)
		if m == nil {
			t.Errorf("%q as %d became %q, which is shown as %q", text, b.kind, markdown, seen)
			continue
		}
		for _, got := range m[1:] {
			if got = html.UnescapeString(got); got != text {
				t.Errorf("%q as %d became %q, which reads %q", text, b.kind, markdown, got)
			}
		}
	}
	// The words are the same in any style.
	for l := range mono << 1 {
		markdown := block{text: []styledText{{"see ", 0}, {text, l}, {" there", 0}}}.markdown(0)
		seen := html.UnescapeString(anyTag.ReplaceAllString(renderMarkdown(t, markdown), ""))
		if got := strings.Join(strings.Fields(seen), " "); got != "see "+text+" there" {
			t.Errorf("%q in look %d became %q, which reads %q", text, l, markdown, got)
		}
	}
}

// A22, A31: a Markdown reader shows the text of a PDF as text: it makes no
// heading, list, link, image or HTML of its own.
func TestA31_TextStaysText(t *testing.T) {
	for _, text := range hostileTexts {
		checkText(t, text)
		checkText(t, text+" tail")
		checkText(t, "head "+text)
	}
}

func FuzzTextStaysText(f *testing.F) {
	for _, text := range hostileTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) < 500 {
			checkText(t, text)
		}
	})
}

// FuzzContent: no page content makes the interpreter fail or its output
// explode.
func FuzzContent(f *testing.F) {
	f.Add([]byte("BT /F1 11 Tf 50 700 Td [(two) -300 (words)] TJ ET"))
	f.Add([]byte("q 1 0 0 1 5 5 cm /X Do Q /Span << /ActualText (x) >> BDC (y) Tj EMC BI /W 1 ID abc EI 0 0 9 9 re S"))
	f.Add([]byte("BT /F4 9 Tf <48656C> Tj (\\101\\)\\\\) ' 1 2 (z) \" ET [[(a)] <</B [1]>>] TJ"))
	f.Fuzz(func(t *testing.T, content []byte) {
		doc, err := Text(pdftest.Pages(string(content)), Options{MaxPages: 5})
		if err != nil && !isFileFault(err) {
			t.Fatal(err)
		}
		if len(doc.Pages) == 1 && len(doc.Pages[0].Markdown) > 20*len(content)+100 {
			t.Errorf("%d bytes became %d", len(content), len(doc.Pages[0].Markdown))
		}
	})
}
