// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"regexp"
	"strings"

	"github.com/roux-engine/roux/internal/reference"
)

// A topicView is a part of the language reference as `help -o json` gives it.
type topicView struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	What  string `json:"what"`
	Text  string `json:"text"` // Markdown
}

// topicNames lists the topics for a sentence.
func topicNames() string {
	var names []string
	for _, t := range reference.Topics() {
		names = append(names, t.Name)
	}
	return strings.Join(names, ", ")
}

var (
	linkTo = regexp.MustCompile(`\[([^\]]*)\]\(#([a-z]+)\)`)
	strong = regexp.MustCompile(`\*\*([^*]+)\*\*`)
)

// plainText writes the Markdown of the reference for a terminal: examples indented,
// tables as lines that are folded, links as the topics they lead to.
func plainText(markdown string) string {
	var b strings.Builder
	var rows [][]string
	var paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			b.WriteString(fold(strings.Join(paragraph, " "), helpColumns, 0) + "\n")
		}
		b.WriteString(plainTable(rows))
		paragraph, rows = nil, nil
	}
	code := false
	for line := range strings.Lines(markdown) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			flush()
			code = !code
		case code:
			b.WriteString("  " + line + "\n")
		case strings.HasPrefix(line, "|"):
			rows = append(rows, cellsOf(line))
		case line == "":
			flush()
			b.WriteString("\n")
		default:
			paragraph = append(paragraph, plainLine(line))
		}
	}
	flush()
	return b.String()
}

func plainLine(text string) string {
	text = linkTo.ReplaceAllString(text, "$1 (`roux help $2`)")
	return strong.ReplaceAllString(text, "$1")
}

// cellsOf splits a row of a table; a bar that is part of the text is escaped.
func cellsOf(row string) []string {
	const bar = "\x00"
	row = strings.Trim(strings.ReplaceAll(row, `\|`, bar), "|")
	cells := strings.Split(row, "|")
	for i := range cells {
		cells[i] = plainLine(strings.TrimSpace(strings.ReplaceAll(cells[i], bar, "|")))
	}
	return cells
}

// plainTable writes the rows below the head of a table: the first cell, and the
// others behind it, folded in a column of their own.
func plainTable(rows [][]string) string {
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
		rest := restOf(rows[0], row)
		if len([]rune(row[0])) > widest {
			b.WriteString("  " + row[0] + "\n" + fold("  "+toWidth("", width)+"  "+rest, helpColumns, width+4) + "\n")
			continue
		}
		b.WriteString(fold("  "+toWidth(row[0], width)+"  "+rest, helpColumns, width+4) + "\n")
	}
	return b.String()
}

// restOf is what stands behind the first cell of a row. Cells of a table of more than
// two columns say which column they are of.
func restOf(head, row []string) string {
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
