// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/media/pdftest"
)

// markdownOf reads pages of content.
func markdownOf(t *testing.T, plain bool, contents ...string) string {
	t.Helper()
	doc, err := Text(pdftest.Pages(contents...), Options{Plain: plain, MaxPages: 100})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i, p := range doc.Pages {
		if p.Problem != "" {
			t.Errorf("page %d: %s", i+1, p.Problem)
		}
		out = append(out, p.Markdown)
	}
	return strings.Join(out, "\n\n")
}

func want(t *testing.T, got string, blocks ...string) {
	t.Helper()
	if w := strings.Join(blocks, "\n\n"); got != w {
		t.Errorf("got:\n%s\n\nwant:\n%s", got, w)
	}
}

// X160: two columns under a common heading are read one after the other,
// without the header and the page number.
func TestTwoColumns(t *testing.T) {
	var p pdftest.Page
	p.Text("F1", 8, 60, 815, "A header of the journal")
	p.Centred("F2", 20, 60, 535, 760, "A Heading Across Both Columns")
	p.Centred("F1", 10, 60, 535, 738, "by somebody who wrote it")
	l1, l2 := pdftest.Prose("first", 6), pdftest.Prose("second", 5)
	r1, r2 := pdftest.Prose("third", 5), pdftest.Prose("fourth", 4)
	y := p.Column("F1", 10, 60, 700, 230, l1)
	y = p.Column("F1", 10, 60, y-8, 230, l2)
	p.Column("F1", 10, 305, p.Column("F1", 10, 305, 695, 230, r1)-8, 230, r2) // baselines differ from those at the left
	p.Centred("F1", 9, 60, 535, 40, "7")
	if y < 100 {
		t.Fatalf("the page is too full: %v", y)
	}
	want(t, markdownOf(t, false, p.String()), "A header of the journal", "# A Heading Across Both Columns", "by somebody who wrote it", l1, l2, r1, r2, "7")

	// The same when all baselines agree, as on a typographic grid.
	p.Reset()
	p.Centred("F2", 20, 60, 535, 760, "Aligned")
	p.Column("F1", 10, 60, 700, 230, l1)
	p.Column("F1", 10, 305, 700, 230, r1)
	want(t, markdownOf(t, false, p.String()), "# Aligned", l1, r1)
}

func TestThreeColumns(t *testing.T) {
	var p pdftest.Page
	a, b, c := pdftest.Prose("first", 4), pdftest.Prose("second", 4), pdftest.Prose("third", 3)
	p.Text("F2", 18, 50, 780, "News")
	p.Column("F1", 9, 50, 740, 155, a)
	p.Column("F1", 9, 220, 740, 155, b)
	p.Column("F1", 9, 390, 740, 155, c)
	foot := pdftest.Prose("last", 3)
	p.Column("F1", 9, 50, 500, 495, foot)
	want(t, markdownOf(t, false, p.String()), "# News", a, b, c, foot)
}

// Columns that are divided by a heading are read band by band.
func TestColumnsInBands(t *testing.T) {
	var p pdftest.Page
	a, b, c, d := pdftest.Prose("a", 4), pdftest.Prose("b", 4), pdftest.Prose("c", 4), pdftest.Prose("d", 4)
	p.Column("F1", 10, 60, 780, 230, a)
	p.Column("F1", 10, 305, 780, 230, b)
	p.Centred("F2", 16, 60, 535, 600, "The Second Half of This Page")
	p.Column("F1", 10, 60, 570, 230, c)
	p.Column("F1", 10, 305, 570, 230, d)
	want(t, markdownOf(t, false, p.String()), a, b, "# The Second Half of This Page", c, d)
}

func TestTables(t *testing.T) {
	body := pdftest.Prose("body", 3)
	cells := [][]string{{"Quarter", "Crossings", "Passengers"}, {"January to March", "1,846", "24,118"}, {"April to June", "2,010", "31,402"}, {"July", "", "12,000"}}
	table := "| Quarter | Crossings | Passengers |\n| --- | --- | --- |\n| January to March | 1,846 | 24,118 |\n| April to June | 2,010 | 31,402 |\n| July |  | 12,000 |"
	at := []float64{65, 250, 400}
	for _, ruled := range []bool{true, false} {
		var p pdftest.Page
		y := p.Column("F1", 10, 60, 780, 470, body) - 20
		top := y + 14
		for _, row := range cells {
			for i, c := range row {
				p.Text("F1", 10, at[i], y, c)
			}
			y -= 18
		}
		if ruled {
			for i := range len(cells) + 1 {
				p.Line(60, top-18*float64(i), 530, top-18*float64(i))
			}
			for _, x := range []float64{60, 245, 395, 530} {
				p.Line(x, top, x, top-18*float64(len(cells)))
			}
		}
		p.Column("F1", 10, 60, y-20, 470, body)
		want(t, markdownOf(t, false, p.String()), body, table, body)
	}

	// Only the rules show that this table has two rows and not four.
	var tight pdftest.Page
	for i, row := range [][]string{{"one", "three"}, {"two", "four"}, {"five", "seven"}, {"six", "eight"}} {
		tight.Text("F1", 10, 103, 700-12*float64(i), row[0]).Text("F1", 10, 203, 700-12*float64(i), row[1])
	}
	for i := range 3 {
		tight.Line(100, 710-24*float64(i), 300, 710-24*float64(i)).Line(100+100*float64(i), 710, 100+100*float64(i), 662)
	}
	want(t, markdownOf(t, false, tight.String()), "| one two | three four |\n| --- | --- |\n| five six | seven eight |")

	// Multi-line cells: rules show which lines belong together; without rules, the
	// distance of rows does.
	for _, ruled := range []bool{true, false} {
		var p pdftest.Page
		p.Column("F1", 10, 60, 780, 470, body)
		p.Text("F2", 10, 65, 700, "Part").Text("F2", 10, 250, 700, "What it is for")
		p.Text("F1", 10, 65, 680, "Pump").Text("F1", 10, 250, 680, "Moves water out of the hull").Text("F1", 10, 250, 668, "and into the sea")
		p.Text("F1", 10, 65, 648, "Valve").Text("F1", 10, 250, 648, "Keeps it there").Text("F1", 10, 250, 636, "for as long as it holds")
		p.Text("F1", 10, 65, 616, "Horn").Text("F1", 10, 250, 616, "Warns")
		if ruled {
			for _, y := range []float64{714, 692, 660, 628, 606} {
				p.Line(60, y, 530, y)
			}
			for _, x := range []float64{60, 245, 530} {
				p.Line(x, 714, x, 606)
			}
		}
		want(t, markdownOf(t, false, p.String()), body, "| Part | What it is for |\n| --- | --- |\n| Pump | Moves water out of the hull and into the sea |\n"+
			"| Valve | Keeps it there for as long as it holds |\n| Horn | Warns |")
	}
}

func TestListsAndParagraphs(t *testing.T) {
	var p pdftest.Page
	y := p.Column("F1", 10, 60, 780, 470, pdftest.Prose("opening", 2)) - 10
	p.Text("F1", 10, 70, y, "• apples and all that grows on").Text("F1", 10, 79, y-12, "the same tree")
	p.Text("F1", 10, 90, y-24, "– green").Text("F1", 10, 90, y-36, "– red").Text("F1", 10, 70, y-48, "• pears")
	p.Text("F1", 10, 70, y-70, "1. first").Text("F1", 10, 90, y-82, "a number").Text("F1", 10, 70, y-94, "2. second").Text("F1", 10, 70, y-106, "10. tenth")
	// Paragraphs that differ in the indent of their first line.
	first, second := pdftest.Prose("indented", 2), pdftest.Prose("following", 3)
	y = p.Column("F1", 10, 60, y-140, 470, first)
	words := strings.Fields(second)
	n := 1
	for pdftest.Width("F1", 10, strings.Join(words[:n+1], " ")) < 455 {
		n++
	}
	p.Text("F1", 10, 75, y, strings.Join(words[:n], " "))
	p.Column("F1", 10, 60, y-12, 470, strings.Join(words[n:], " "))
	want(t, markdownOf(t, false, p.String()), pdftest.Prose("opening", 2),
		"- apples and all that grows on the same tree\n    - green\n    - red\n- pears\n1. first a number\n2. second\n10. tenth", first, second)
}

// X160: preserveFormatting marks bold, italic and code; without it there are
// only paragraphs.
func TestStyles(t *testing.T) {
	var p pdftest.Page
	body := pdftest.Prose("body", 3)
	y := p.Column("F1", 10, 60, 780, 470, body) - 10
	x := 60.0
	for _, part := range [][2]string{{"F1", "Here is "}, {"F2", "something bold"}, {"F1", " and "}, {"F3", "something slanted"}, {"F1", ", then "}, {"F4", "code()"}, {"F1", " again."}} {
		p.Text(part[0], 10, x, y, part[1])
		x += pdftest.Width(part[0], 10, part[1])
	}
	y -= 30
	for i, l := range []string{"if ready {", "    start(`now`)", "}"} {
		p.Text("F4", 10, 60+6*float64(len(l)-len(strings.TrimLeft(l, " "))), y-12*float64(i), strings.TrimLeft(l, " "))
	}
	want(t, markdownOf(t, false, p.String()), body, "Here is **something bold** and *something slanted*, then `code()` again.", "```\nif ready {\n    start(`now`)\n}\n```")
	want(t, markdownOf(t, true, p.String()), body, "Here is something bold and something slanted, then code() again.", "if ready {\n    start(`now`)\n}")
}

// Heading levels mean the same on each page, whatever else is on it.
func TestHeadingLevelsOverPages(t *testing.T) {
	var one, two pdftest.Page
	one.Text("F2", 24, 60, 780, "The Title").Text("F2", 16, 60, 740, "A Part")
	one.Column("F1", 10, 60, 710, 470, pdftest.Prose("one", 4))
	two.Text("F2", 16, 60, 780, "Another Part").Text("F2", 12, 60, 750, "A Detail")
	two.Column("F1", 10, 60, 720, 470, pdftest.Prose("two", 4))
	want(t, markdownOf(t, false, one.String(), two.String()), "# The Title", "## A Part", pdftest.Prose("one", 4), "## Another Part", "### A Detail", pdftest.Prose("two", 4))
}
