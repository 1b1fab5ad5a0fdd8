// SPDX-License-Identifier: Apache-2.0

package refactor

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/yamlx"
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
	case m.d.Name == "flow":
		return refuse("in the dialect flow steps are tied by edges, which are at another place of the text; `roux convert FILE --to recipe` writes the same recipe with bindings")
	case m.d.Name == "pipeline":
		return refuse("in the dialect pipeline results have names of their own; `roux convert FILE --to recipe` writes the same recipe in which steps can be moved, and with --to pipeline what comes of it")
	case m.recipe.Ptr != "":
		return refuse("the recipe is within plan_definition")
	case yamlx.NewText(m.Bytes).Lines() != bytes.Count(m.Bytes, []byte("\n"))+1:
		return refuse("the text has line breaks of several kinds")
	case bytes.HasPrefix(bytes.TrimSpace(m.Bytes), []byte("{")):
		return refuse("the text is JSON, or in brackets; `roux convert FILE --to recipe` prints it as YAML")
	}
	for i := range m.list.steps {
		if _, err := m.dash(i); err != nil && i >= m.first && i <= m.last+1 {
			return err
		}
	}
	return nil
}

// line returns the byte at which line n begins; beyond the last line it is the end of the text.
func (t *Text) line(n int) int {
	at := 0
	for ; n > 1; n-- {
		k := bytes.IndexByte(t.Bytes[at:], '\n')
		if k < 0 {
			return len(t.Bytes)
		}
		at += k + 1
	}
	return at
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
	pos := m.source.Pos(m.list.ptr + "/" + strconv.Itoa(i))
	line := []rune(m.textOf(pos.Line))
	before := string(line[:min(max(pos.Col-1, 0), len(line))])
	col := strings.IndexByte(before, '-')
	if col < 0 || strings.TrimSpace(before) != "-" {
		return pos, refuse("%s does not begin on a line of its own with a dash before it; `roux fmt FILE` may help", named(m.list.steps[i]))
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
	at, err := m.dash(m.first)
	if err != nil {
		return 0, 0, 0, err
	}
	from, col = m.above(at.Line, at.Col), at.Col
	if m.last+1 < len(m.list.steps) {
		next, err := m.dash(m.last + 1)
		if err != nil {
			return 0, 0, 0, err
		}
		to = m.above(next.Line, col)
	} else {
		end, err := m.dash(m.last)
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
		got := string(m.Bytes[from:to])
		if plain := strings.TrimPrefix(got, "steps."); got != was && was != "steps['"+plain+"']" && !strings.HasPrefix(was, "steps['"+strings.SplitN(plain, ".", 2)[0]+"']") {
			return refuse("%s is in an expression of %s that is written on several lines, or with quotes in quotes", was, reader(r.e))
		}
		with := r.to
		if strings.ContainsAny(with, `'"`) && quoted(m.Bytes, from) {
			return refuse("the name %q would need quotes in quotes in an expression of %s", with, reader(r.e))
		}
		if !done[from] {
			m.edits = append(m.edits, edit{from, to, with})
		}
		done[from] = true
	}
	slices.SortFunc(m.edits, func(a, b edit) int { return a.from - b.from })
	return nil
}

// quoted reports whether a place may be within quotes on its line.
func quoted(text []byte, at int) bool {
	line := text[bytes.LastIndexByte(text[:at], '\n')+1 : at]
	return bytes.Count(line, []byte("'"))%2 == 1
}
