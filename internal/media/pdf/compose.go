// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"strings"

	"github.com/roux-engine/roux/fault"
)

// maxHeadings bounds the list of headings of a document.
const maxHeadings = 500

// maxKept bounds the pieces of text that are kept in memory. The pages of a
// longer document are read a second time when the style of all is known.
const maxKept = 100_000

// typesetter turns pages into Markdown, or into plain paragraphs. It looks at
// all of them before it writes the first, because a heading is one only in
// comparison with the rest.
type typesetter struct {
	in     *interpreter
	pages  []node // of the document
	wanted []int  // numbers of those that are read
	plain  bool
	emit   func(Page) error
	report func(done, total int) error // may be nil

	kept   int
	firsts string // problem of the first page
}

// laid is a page in reading order.
type laid struct {
	problem string
	flows   []flow
	lines   [][]line
}

func (t *typesetter) set() (headings []Heading, err error) {
	var stats styleStats
	kept := make([]*laid, len(t.wanted))
	for i, number := range t.wanted {
		page, err := t.lay(number)
		if err != nil {
			return nil, err
		}
		for _, lines := range page.lines {
			stats.add(lines)
			t.kept += len(lines)
		}
		if i == 0 {
			t.firsts = page.problem
		}
		if t.kept <= maxKept {
			kept[i] = &page
		}
		if err := t.progress(i + 1); err != nil {
			return nil, err
		}
	}
	if in := t.in; in.shown == 0 && in.problems > 0 && in.problems == len(t.wanted) {
		return nil, fault.New(fault.FileInvalid, "no page of the PDF file can be read: %s", t.firsts)
	}
	st := stats.style()
	t.in.text, t.in.spent = 0, 0
	for i, number := range t.wanted {
		page := kept[i]
		if kept[i] = nil; page == nil {
			again, err := t.lay(number)
			if err != nil {
				return nil, err
			}
			page = &again
		}
		out, found := t.write(number, *page, st)
		headings = append(headings, found[:min(len(found), maxHeadings-len(headings))]...)
		if err := t.emit(out); err != nil {
			return nil, err
		}
		if err := t.progress(len(t.wanted) + i + 1); err != nil {
			return nil, err
		}
	}
	return headings, nil
}

// progress counts a page done when it has been looked at twice.
func (t *typesetter) progress(looks int) error {
	if t.report == nil {
		return nil
	}
	return t.report(looks/2, len(t.wanted))
}

func (t *typesetter) lay(number int) (page laid, err error) {
	s, err := t.in.page(number, t.pages[number-1])
	if err != nil {
		return laid{}, err
	}
	page.problem, page.flows = s.problem, layout(s)
	for _, f := range page.flows {
		page.lines = append(page.lines, linesOf(f))
	}
	return page, nil
}

func (t *typesetter) write(number int, page laid, st style) (Page, []Heading) {
	var blocks []block
	for i, f := range page.flows {
		blocks = append(blocks, blocksOf(page.lines[i], st, f.margin)...)
	}
	out := Page{Number: number, Problem: page.problem, Markdown: render(blocks, t.plain, st.look)}
	var headings []Heading
	for _, b := range blocks {
		out.Words += b.words()
		if b.kind == heading {
			headings = append(headings, Heading{Level: b.level, Text: oneLine(tidy(b.plain())), Page: number})
		}
	}
	return out, headings
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
