// SPDX-License-Identifier: Apache-2.0

package refactor

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// An edit replaces bytes of the text.
type edit struct {
	from, to int
	with     string
}

// apply returns a part of the text with the edits in it.
func apply(text []byte, edits []edit, from, to int) []byte {
	var out []byte
	at := from
	for _, e := range edits {
		if e.from < from || e.to > to {
			continue
		}
		out = append(append(out, text[at:e.from]...), e.with...)
		at = e.to
	}
	return append(out, text[at:to]...)
}

// checkText refuses texts whose steps cannot be cut out by lines.
func (m *move) checkText() error {
	switch {
	case m.recipe.Ptr != m.form().root:
		return refuse("the recipe is within plan_definition").advising("Make it a text of its own.")
	case m.mixed:
		return refuse("the text has line breaks of several kinds")
	case bytes.HasPrefix(bytes.TrimSpace(m.Bytes), []byte("{")):
		return refuse("the text is JSON, or in brackets").advising("`roux convert FILE --to " + m.d.Name + "` prints it as YAML.")
	}
	for i := m.first; i <= min(m.last+1, len(m.list.steps)-1); i++ {
		if _, err := m.dash(i); err != nil {
			return err
		}
	}
	return nil
}

// line returns the byte at which line n begins; beyond the last line it is the end of the text.
func (t *Text) line(n int) int {
	switch {
	case n <= 1:
		return 0
	case n-1 < len(t.starts):
		return t.starts[n-1]
	}
	return len(t.Bytes)
}

// startsOf returns the bytes at which lines begin.
func startsOf(text []byte) []int {
	starts := []int{0}
	for at, c := range text {
		if c == '\n' {
			starts = append(starts, at+1)
		}
	}
	return starts
}

// textOf returns line n without its line break.
func (t *Text) textOf(n int) string {
	return strings.TrimRight(string(t.Bytes[t.line(n):t.line(n+1)]), "\r\n")
}

// lineCount returns the number of lines.
func (t *Text) lineCount() int {
	n := bytes.Count(t.Bytes, []byte("\n"))
	if len(t.Bytes) > 0 && t.Bytes[len(t.Bytes)-1] != '\n' {
		n++
	}
	return n
}

// offset returns the byte of a position.
func (t *Text) offset(p fault.Pos) int {
	at := t.line(p.Line)
	line := []rune(t.textOf(p.Line))
	return at + len(string(line[:min(max(p.Col-1, 0), len(line))]))
}

// dash returns the line and the column, from 0, of the dash of a step.
func (m *move) dash(i int) (fault.Pos, error) {
	pos, err := m.dashOf(m.list.ptr + "/" + strconv.Itoa(i))
	if err != nil {
		return pos, refuse("%s does not begin on a line of its own with a dash before it", named(m.list.steps[i])).advising("`roux fmt FILE` may help.")
	}
	return pos, nil
}

// dashOf is dash for an item of any list.
func (m *move) dashOf(pointer string) (fault.Pos, error) {
	pos := m.source.Pos(pointer)
	line := []rune(m.textOf(pos.Line))
	before := string(line[:min(max(pos.Col-1, 0), len(line))])
	col := strings.IndexByte(before, '-')
	if col < 0 || strings.TrimSpace(before) != "-" {
		return pos, refuse("an item of a list does not begin on a line of its own with a dash before it").in(pointer).advising("`roux fmt FILE` may help.")
	}
	return fault.Pos{Line: pos.Line, Col: col}, nil
}

// blank reports whether a line has nothing, and comment whether it has only a comment, and at which column.
func blank(line string) bool { return strings.TrimSpace(line) == "" }

func comment(line string) (col int, ok bool) {
	text := strings.TrimLeft(line, " ")
	return len(line) - len(text), strings.HasPrefix(text, "#")
}

// lines returns the first line of the steps that move, with the comments right above it, the line after the last,
// and the column of the dashes.
func (m *move) lines() (from, to, col int, err error) {
	return m.itemLines(m.list.ptr, m.first, m.last, len(m.list.steps))
}

// itemLines is lines for items of a list of n.
func (m *move) itemLines(list string, first, last, n int) (from, to, col int, err error) {
	at, err := m.dashOf(list + "/" + strconv.Itoa(first))
	if err != nil {
		return 0, 0, 0, err
	}
	from, col = m.above(at.Line, at.Col), at.Col
	if last+1 < n {
		next, err := m.dashOf(list + "/" + strconv.Itoa(last+1))
		if err != nil {
			return 0, 0, 0, err
		}
		to = m.above(next.Line, col)
	} else {
		end, err := m.dashOf(list + "/" + strconv.Itoa(last))
		if err != nil {
			return 0, 0, 0, err
		}
		to = m.end(end.Line, col)
	}
	for to > from && blank(m.textOf(to-1)) {
		to--
	}
	return from, to, col, nil
}

// above returns the first line of the comments right above a line.
func (m *move) above(n, col int) int {
	for n > 1 {
		at, ok := comment(m.textOf(n - 1))
		if !ok || at != col {
			break
		}
		n--
	}
	return n
}

// end returns the line after the last one of a step that begins at a line.
func (m *move) end(n, col int) int {
	last := n
	for k := n + 1; k <= m.lineCount(); k++ {
		text := m.textOf(k)
		indent := len(text) - len(strings.TrimLeft(text, " "))
		if blank(text) {
			continue
		}
		if indent <= col {
			break
		}
		last = k
	}
	return last + 1
}

// editList changes the list of what a step depends on.
func (m *move) editList(s *recipe.Step, now []string) error {
	at := s.Ptr + "/dependsOn"
	pos := m.source.Pos(at)
	from := m.offset(pos)
	rest := m.textOf(pos.Line)[from-m.line(pos.Line):]
	if strings.HasPrefix(rest, "[") {
		end := strings.IndexByte(rest, ']')
		if end < 0 || strings.ContainsAny(rest[:end], "#") {
			return refuse("what %s depends on is written on several lines", named(s))
		}
		m.edits = append(m.edits, edit{from, from + end + 1, "[" + strings.Join(now, ", ") + "]"})
		return nil
	}
	if !strings.HasPrefix(strings.TrimSpace(m.textOf(pos.Line)), "- ") {
		return refuse("what %s depends on is written in a way that cannot be changed", named(s))
	}
	seen := map[string]bool{}
	for i, id := range *s.DependsOn {
		item := m.source.Pos(at + "/" + strconv.Itoa(i))
		to := id
		if !slices.Contains(now, id) && slices.Contains(now, m.Name) {
			to = m.Name
		}
		switch start := m.offset(item); {
		case !slices.Contains(now, to) || seen[to]:
			m.edits = append(m.edits, edit{m.line(item.Line), m.line(item.Line + 1), ""})
		case to != id:
			m.edits = append(m.edits, edit{start, start + len(id), to})
		}
		seen[to] = true
	}
	if len(now) == 0 {
		key := m.source.KeyPos(at)
		colon := m.offset(key)
		k := bytes.IndexByte(m.Bytes[colon:], ':')
		m.edits = append(m.edits, edit{colon + k + 1, colon + k + 1, " []"})
	}
	return nil
}

// editNames changes the names in expressions.
func (m *move) editNames() error {
	done := map[int]bool{}
	for _, r := range m.rewrites {
		pos := m.source.PosIn(r.e.Pointer, r.at, r.n)
		from := m.offset(pos)
		was := string([]rune(r.e.Source)[r.at : r.at+r.n])
		to := from + len(string([]rune(string(m.Bytes[from:min(len(m.Bytes), from+4*pos.Len)]))[:pos.Len]))
		if got := string(m.Bytes[from:to]); !same(got, was) {
			if m.twin(r) {
				continue // the dialect has written the name twice, and the text has it at the other one
			}
			return refuse("%s is in an expression of %s that is written on several lines, in a call of a function, or with quotes in quotes", was, reader(r.e)).in(r.e.Pointer)
		}
		with := r.to
		if strings.ContainsAny(with, `'"`) && quoted(m.Bytes, from) {
			return refuse("the name %q would need quotes in quotes in an expression of %s", with, reader(r.e)).in(r.e.Pointer)
		}
		if !done[from] {
			m.edits = append(m.edits, edit{from, to, with})
		}
		done[from] = true
	}
	slices.SortStableFunc(m.edits, func(a, b edit) int { return a.from - b.from })
	return nil
}

// nameOf matches a name of a reference.
var nameOf = regexp.MustCompile(`[\w-]+`)

// same reports whether a text of the source and one of the model name the same step or value: dialects leave out what
// the model says, as in steps.a-b.field for steps['a-b'].output.field.
func same(got, was string) bool {
	if got == was {
		return true
	}
	names := func(text string) []string {
		list := nameOf.FindAllString(text, -1)
		if len(list) > 1 && list[0] == "steps" {
			list = list[1:]
		}
		if n := len(list); n > 1 && list[n-1] == "output" {
			list = list[:n-1]
		}
		return list
	}
	return strings.ContainsAny(was, ".[") && slices.Equal(names(got), names(was))
}

// twin reports whether another rewrite is of the second reference that [move.asked] is about.
func (m *move) twin(r rewrite) bool {
	code, end := []rune(r.e.Source), r.at+r.n
	if m.d.Name != "pipeline" || !strings.HasSuffix(string(code[:r.at]), asking) {
		return false
	}
	return slices.ContainsFunc(m.rewrites, func(o rewrite) bool {
		return o.e.Pointer == r.e.Pointer && o.to == r.to && o.at >= end && string(code[end:o.at]) == thenHas
	})
}

// quoted reports whether a place may be within quotes on its line.
func quoted(text []byte, at int) bool {
	line := text[bytes.LastIndexByte(text[:at], '\n')+1 : at]
	return bytes.Count(line, []byte("'"))%2 == 1
}
