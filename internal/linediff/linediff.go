// SPDX-License-Identifier: Apache-2.0

// Package linediff compares two texts line by line.
//
// It decides which lines are shown as kept, removed and added. It never touches
// a file.
package linediff

import (
	"fmt"
	"strings"
)

// Unified returns the difference of two texts line by line, in the format that
// patch reads, with three lines of context. It is a heading alone when they are
// equal.
func Unified(name string, from, to []byte) string {
	x, y := split(from), split(to)
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", name, name)
	for _, h := range hunks(lineEdits(x, y), 3) {
		h.write(&b, x, y)
	}
	return b.String()
}

func split(text []byte) []string {
	lines := strings.SplitAfter(string(text), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// An edit is one line of a difference: kept (in both texts), removed or added.
type edit struct {
	op   byte // ' ', '-', '+'
	x, y int  // the line's number in each text, from 0
}

// maxCells bounds the table that middle fills. Texts that would need a larger
// one are shown as removed and added as a whole.
const maxCells = 4 << 20

// lineEdits returns a shortest difference of two lists of lines.
func lineEdits(x, y []string) (edits []edit) {
	head := 0
	for head < len(x) && head < len(y) && x[head] == y[head] {
		edits = append(edits, edit{' ', head, head})
		head++
	}
	tail := 0
	for tail < len(x)-head && tail < len(y)-head && x[len(x)-1-tail] == y[len(y)-1-tail] {
		tail++
	}
	edits = append(edits, middle(x[head:len(x)-tail], y[head:len(y)-tail], head)...)
	for i := tail; i > 0; i-- {
		edits = append(edits, edit{' ', len(x) - i, len(y) - i})
	}
	return edits
}

// middle compares the lines between the equal beginnings and ends of two texts.
// at is the number of the first of these lines.
func middle(x, y []string, at int) (edits []edit) {
	i, j := 0, 0
	if len(x)*len(y) <= maxCells {
		common := longest(x, y)
		for i < len(x) && j < len(y) {
			switch {
			case x[i] == y[j]:
				edits = append(edits, edit{' ', at + i, at + j})
				i++
				j++
			case common[i+1][j] >= common[i][j+1]:
				edits = append(edits, edit{'-', at + i, at + j})
				i++
			default:
				edits = append(edits, edit{'+', at + i, at + j})
				j++
			}
		}
	}
	for ; i < len(x); i++ {
		edits = append(edits, edit{'-', at + i, at + j})
	}
	for ; j < len(y); j++ {
		edits = append(edits, edit{'+', at + i, at + j})
	}
	return edits
}

// longest returns, for each pair of suffixes of x and y, the length of their
// longest common subsequence.
func longest(x, y []string) [][]int32 {
	table := make([][]int32, len(x)+1)
	for i := range table {
		table[i] = make([]int32, len(y)+1)
	}
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if x[i] == y[j] {
				table[i][j] = table[i+1][j+1] + 1
			} else {
				table[i][j] = max(table[i+1][j], table[i][j+1])
			}
		}
	}
	return table
}

// A hunk is a part of a difference with its context.
type hunk []edit

// hunks splits a difference and leaves out lines that are more than context
// lines away from a change.
func hunks(edits []edit, context int) (list []hunk) {
	begin, last := -1, -1
	for i, e := range edits {
		if e.op == ' ' {
			continue
		}
		if begin >= 0 && i-last > 2*context+1 {
			list = append(list, edits[max(0, begin-context):last+1+context])
			begin = -1
		}
		if begin < 0 {
			begin = i
		}
		last = i
	}
	if begin >= 0 {
		list = append(list, edits[max(0, begin-context):min(len(edits), last+1+context)])
	}
	return list
}

func (h hunk) write(b *strings.Builder, x, y []string) {
	removed, added := 0, 0
	for _, e := range h {
		if e.op != '+' {
			removed++
		}
		if e.op != '-' {
			added++
		}
	}
	fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", h[0].x+1, removed, h[0].y+1, added)
	for _, e := range h {
		line := ""
		if e.op == '+' {
			line = y[e.y]
		} else {
			line = x[e.x]
		}
		b.WriteString(string(e.op) + line)
		if !strings.HasSuffix(line, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
}
