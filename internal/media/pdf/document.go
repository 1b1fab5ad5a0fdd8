// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"strings"

	"github.com/roux-engine/roux/fault"
)

// maxHeadings limits the list of headings of a document.
const maxHeadings = 500

// maxKeptLines limits the lines that are kept in memory. The pages of a longer
// document are read a second time when its style is known.
const maxKeptLines = 100_000

// A composer turns pages into Markdown, or into plain paragraphs. It lays out
// all pages before it writes the first, because a line is a heading only in
// comparison with all other lines.
type composer struct {
	in     *interpreter
	pages  []pageNode // all pages of the document
	wanted []int      // numbers of the pages to write
	plain  bool
	emit   func(Page) error
	report func(done, total int) error // may be nil

	keptLines    int
	firstProblem string // problem of the first page
}

// A pageLayout is a page in reading order.
type pageLayout struct {
	problem string
	flows   []flow
	lines   [][]line
}

// compose emits the pages and returns the headings.
func (t *composer) compose() (headings []Heading, err error) {
	var stats styleStats
	kept := make([]*pageLayout, len(t.wanted))
	for i, number := range t.wanted {
		page, err := t.layOut(number)
		if err != nil {
			return nil, err
		}
		for _, lines := range page.lines {
			stats.add(lines)
			t.keptLines += len(lines)
		}
		if i == 0 {
			t.firstProblem = page.problem
		}
		if t.keptLines <= maxKeptLines {
			kept[i] = &page
		}
		if err := t.progress(i + 1); err != nil {
			return nil, err
		}
	}
	if in := t.in; in.pagesWithText == 0 && in.pagesWithProblem > 0 && in.pagesWithProblem == len(t.wanted) {
		return nil, fault.New(fault.FileInvalid, "no page of the PDF file can be read: %s", t.firstProblem)
	}
	st := stats.docStyle()
	t.in.textBytes, t.in.contentBytes = 0, 0
	for i, number := range t.wanted {
		page := kept[i]
		if kept[i] = nil; page == nil {
			again, err := t.layOut(number)
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

// progress reports the number of finished pages. Each page is visited twice.
func (t *composer) progress(visits int) error {
	if t.report == nil {
		return nil
	}
	return t.report(visits/2, len(t.wanted))
}

func (t *composer) layOut(number int) (page pageLayout, err error) {
	s, err := t.in.page(number, t.pages[number-1])
	if err != nil {
		return pageLayout{}, err
	}
	page.problem, page.flows = s.problem, layout(s)
	for _, f := range page.flows {
		page.lines = append(page.lines, linesOf(f))
	}
	return page, nil
}

func (t *composer) write(number int, page pageLayout, st docStyle) (Page, []Heading) {
	var blocks []block
	for i, f := range page.flows {
		blocks = append(blocks, blocksOf(page.lines[i], st, f.margin)...)
	}
	out := Page{Number: number, Problem: page.problem, Markdown: render(blocks, t.plain, st.bodyStyle)}
	var headings []Heading
	for _, b := range blocks {
		out.Words += b.words()
		if b.kind == heading {
			headings = append(headings, Heading{Level: b.level, Text: oneLine(tidy(b.plain())), Page: number})
		}
	}
	return out, headings
}

// render writes blocks with an empty line between them, but none between the
// items of a list.
func render(blocks []block, plain bool, body fontStyle) string {
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
