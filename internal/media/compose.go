// SPDX-License-Identifier: Apache-2.0

package media

import "strings"

// maxHeadings bounds the list of headings of a document.
const maxHeadings = 500

// compose turns pages of runs into Markdown, or into plain paragraphs.
func compose(sheets []sheet, plain bool) ([]Page, []Heading) {
	flows := make([][]flow, len(sheets))
	lines := make([][][]line, len(sheets))
	for i, s := range sheets {
		flows[i] = layout(s)
		lines[i] = make([][]line, len(flows[i]))
		for j, f := range flows[i] {
			lines[i][j] = linesOf(f)
		}
	}
	st := styleOf(lines)
	pages := make([]Page, len(sheets))
	var headings []Heading
	for i, s := range sheets {
		var blocks []block
		for j, f := range flows[i] {
			blocks = append(blocks, blocksOf(lines[i][j], st, f.margin)...)
		}
		pages[i] = Page{Number: s.number, Problem: s.problem, Markdown: render(blocks, plain, st.look)}
		for _, b := range blocks {
			pages[i].Words += b.words()
			if b.kind == heading && len(headings) < maxHeadings {
				headings = append(headings, Heading{Level: b.level, Text: oneLine(tidy(b.plain())), Page: s.number})
			}
		}
	}
	return pages, headings
}

// render writes blocks with an empty line between them, and none between the
// items of a list.
func render(blocks []block, plain bool, body emphasis) string {
	var out strings.Builder
	for i, b := range blocks {
		text := b.plainText()
		if !plain && text != "" {
			text = b.markdown(body)
		}
		if text == "" {
			continue
		}
		if out.Len() > 0 {
			out.WriteString("\n")
			if plain || b.kind != item || blocks[i-1].kind != item {
				out.WriteString("\n")
			}
		}
		out.WriteString(text)
	}
	return out.String()
}
