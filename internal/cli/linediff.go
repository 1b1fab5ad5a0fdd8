// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
)

// An edit is a line of a difference: kept (in both), removed or added.
type edit struct {
	op   byte // ' ', '-', '+'
	x, y int  // the line's number in each text, from 0
}

// maxCells bounds the table of a difference; texts that differ in more are
// shown as removed and added as a whole.
const maxCells = 4 << 20

// lineEdits finds a shortest difference of two lists of lines.
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

// middle compares what lies between equal ends; at is where it begins.
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

// longest is the length of the longest common part of each pair of ends.
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

// A hunk is a part of a difference with the lines around it.
type hunk []edit

// hunks leaves out what lies further than around lines from a change.
func hunks(edits []edit, around int) (list []hunk) {
	begin, last := -1, -1
	for i, e := range edits {
		if e.op == ' ' {
			continue
		}
		if begin >= 0 && i-last > 2*around+1 {
			list = append(list, edits[max(0, begin-around):last+1+around])
			begin = -1
		}
		if begin < 0 {
			begin = i
		}
		last = i
	}
	if begin >= 0 {
		list = append(list, edits[max(0, begin-around):min(len(edits), last+1+around)])
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
