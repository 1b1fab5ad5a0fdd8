// SPDX-License-Identifier: Apache-2.0

package term

import (
	"regexp"
	"strings"
)

var (
	markdownLink = regexp.MustCompile(`\[([^\]]*)\]\(#([a-z]+)\)`)
	strong       = regexp.MustCompile(`\*\*([^*]+)\*\*`)
)

// Markdown returns Markdown as plain text of that many columns: examples are
// indented, tables become wrapped lines, and links to sections of the page are
// replaced by link, in which $1 is the text of the link and $2 its section.
func Markdown(text string, columns int, link string) string {
	m := markdown{columns, link}
	var b strings.Builder
	var rows [][]string
	var paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			b.WriteString(Wrap(strings.Join(paragraph, " "), columns, 0) + "\n")
		}
		b.WriteString(m.table(rows))
		paragraph, rows = nil, nil
	}
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			flush()
			code = !code
		case code:
			b.WriteString("  " + line + "\n")
		case strings.HasPrefix(line, "|"):
			rows = append(rows, m.cells(line))
		case line == "":
			flush()
			b.WriteString("\n")
		default:
			paragraph = append(paragraph, m.line(line))
		}
	}
	flush()
	return b.String()
}

type markdown struct {
	columns int
	link    string
}

func (m markdown) line(text string) string {
	text = markdownLink.ReplaceAllString(text, m.link)
	return strong.ReplaceAllString(text, "$1")
}

// cells splits a row of a table. A bar that is part of the text is escaped.
func (m markdown) cells(row string) []string {
	const bar = "\x00"
	row = strings.Trim(strings.ReplaceAll(row, `\|`, bar), "|")
	cells := strings.Split(row, "|")
	for i := range cells {
		cells[i] = m.line(strings.TrimSpace(strings.ReplaceAll(cells[i], bar, "|")))
	}
	return cells
}

// table writes the rows below the head of a table: the first cell, and behind
// it the others, wrapped within a column of their own.
func (m markdown) table(rows [][]string) string {
	if len(rows) < 3 {
		return ""
	}
	const widest = 28
	width := 0
	for _, row := range rows[2:] {
		if n := len([]rune(row[0])); n <= widest {
			width = max(width, n)
		}
	}
	var b strings.Builder
	for _, row := range rows[2:] {
		rest := otherCells(rows[0], row)
		if len([]rune(row[0])) > widest {
			b.WriteString("  " + row[0] + "\n" + Wrap("  "+Pad("", width)+"  "+rest, m.columns, width+4) + "\n")
			continue
		}
		b.WriteString(Wrap("  "+Pad(row[0], width)+"  "+rest, m.columns, width+4) + "\n")
	}
	return b.String()
}

// otherCells joins the cells of a row after the first. In a table of more than
// two columns each is preceded by the name of its column.
func otherCells(head, row []string) string {
	if len(head) < 3 || len(row) != len(head) {
		return strings.Join(row[1:], "; ")
	}
	var parts []string
	for i, cell := range row[1:] {
		switch name := head[i+1]; {
		case head[0] != "field":
			parts = append(parts, name+": "+cell)
		case name == "default" && cell == "required":
			parts = append(parts, "Required")
		case name == "default":
			parts = append(parts, "Default: "+cell)
		default:
			parts = append(parts, cell)
		}
	}
	if head[0] != "field" {
		return strings.Join(parts, "; ")
	}
	return strings.Join(parts, ". ")
}
