// SPDX-License-Identifier: Apache-2.0

package yamlx

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// A comment is a comment of the text.
type comment struct {
	line, col int // from 1, in characters
	text      string
	own       bool // it is alone on its line
}

// A position is a place in the text.
type position struct{ line, col int }

func (s position) before(o position) bool {
	return s.line < o.line || s.line == o.line && s.col < o.col
}

func at(n *yaml.Node) position { return position{n.Line, n.Column} }

// A scan finds the comments of a text with their positions. The library attaches comments
// to nodes by guessing and moves some of them. Whether text is a comment depends on quotes,
// blocks and brackets, whose positions are in the library's tree.
type scan struct {
	lines    [][]rune // without line breaks
	quoted   map[position]*yaml.Node
	flows    map[position]*yaml.Node
	blocks   map[int]*yaml.Node      // block scalars, by the line of their header
	ends     map[*yaml.Node]position // the closing brackets of flow collections
	content  map[int]bool            // lines of block scalars
	body     map[*yaml.Node][]string
	comments []*comment
}

func newScan(text []byte) *scan {
	s := &scan{
		quoted: map[position]*yaml.Node{}, flows: map[position]*yaml.Node{}, blocks: map[int]*yaml.Node{},
		ends: map[*yaml.Node]position{}, content: map[int]bool{}, body: map[*yaml.Node][]string{},
	}
	// The positions of nodes count every kind of line break.
	t := NewText(text)
	for n := range t.Lines() {
		s.lines = append(s.lines, []rune(t.Line(n+1)))
	}
	return s
}

const blockStyle = yaml.LiteralStyle | yaml.FoldedStyle

// tree records where quotes, brackets and blocks begin.
func (s *scan) tree(n *yaml.Node) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		s.quoted[at(n)] = n
	case n.Kind == yaml.ScalarNode && n.Style&blockStyle != 0:
		s.blocks[n.Line] = n
	case n.Kind != yaml.ScalarNode && n.Style&yaml.FlowStyle != 0:
		s.flows[at(n)] = n
	}
	for _, c := range n.Content {
		s.tree(c)
	}
}

// line returns the characters of a line, or none outside the text.
func (s *scan) line(n int) []rune {
	if n < 1 || n > len(s.lines) {
		return nil
	}
	return s.lines[n-1]
}

// blank reports whether a line is empty and not part of a block scalar.
func (s *scan) blank(n int) bool {
	return n >= 1 && n <= len(s.lines) && !s.content[n] && strings.TrimSpace(string(s.line(n))) == ""
}

// run scans the text once.
func (s *scan) run() {
	var open []*yaml.Node
	for l, c := 1, 1; l <= len(s.lines); {
		line := s.line(l)
		switch {
		case s.content[l] || c > len(line):
			if n := s.blocks[l]; n != nil && !s.content[l] {
				s.readBlock(n)
			}
			l, c = l+1, 1
			continue
		case s.quoted[position{l, c}] != nil:
			l, c = s.closing(l, c)
			continue
		case s.flows[position{l, c}] != nil:
			open = append(open, s.flows[position{l, c}])
		case len(open) > 0 && (line[c-1] == ']' || line[c-1] == '}'):
			s.ends[open[len(open)-1]] = position{l, c}
			open = open[:len(open)-1]
		case line[c-1] == '#' && (c == 1 || line[c-2] == ' ' || line[c-2] == '\t'):
			before := strings.TrimSpace(string(line[:c-1]))
			s.comments = append(s.comments, &comment{
				line: l, col: c, text: strings.TrimRight(string(line[c-1:]), " \t"), own: before == "" || before == "---",
			})
			c = len(line)
		}
		c++
	}
}

// closing returns the place after the quote that closes the one at l, c.
func (s *scan) closing(l, c int) (int, int) {
	quote := s.line(l)[c-1]
	for c++; l <= len(s.lines); l, c = l+1, 1 {
		for line := s.line(l); c <= len(line); c++ {
			switch {
			case line[c-1] == '\\' && quote == '"':
				c++
			case line[c-1] == quote && quote == '\'' && c < len(line) && line[c] == quote:
				c++
			case line[c-1] == quote:
				return l, c + 1
			}
		}
	}
	return l, c
}

// readBlock reads the lines of a block scalar without their indentation. It reads none if
// there is an indentation indicator; such a block is encoded anew.
func (s *scan) readBlock(n *yaml.Node) {
	header := string(s.line(n.Line)[n.Column-1:])
	if i := strings.Index(header, " #"); i >= 0 {
		header = header[:i]
	}
	indent, last := -1, n.Line
	for l := n.Line + 1; l <= len(s.lines); l++ {
		text := string(s.line(l))
		if strings.TrimLeft(text, " ") == "" {
			continue
		}
		mine := len(text) - len(strings.TrimLeft(text, " "))
		if indent < 0 && n.Value != "" && strings.Trim(n.Value, "\n") != "" {
			indent = mine
		}
		if indent < 0 || mine < indent && !strings.ContainsAny(header, "123456789") {
			break
		}
		if strings.ContainsAny(header, "123456789") && mine < indent {
			indent = mine
		}
		last = l
	}
	if strings.Contains(header, "+") {
		for strings.TrimSpace(string(s.line(last+1))) == "" && (last+1 < len(s.lines) || len(s.line(last+1)) > 0) {
			last++
		}
	}
	var body []string
	for l := n.Line + 1; l <= last; l++ {
		s.content[l] = true
		text := string(s.line(l))
		body = append(body, text[min(len(text), max(0, indent)):])
	}
	header = strings.TrimSpace(header)
	if !strings.HasSuffix(n.Value, "\n") && !strings.Contains(header, "-") {
		header = strings.TrimSuffix(header, "+") + "-" // the text ends in the block, without the end of its last line
	}
	if !strings.ContainsAny(header, "123456789") && indent >= 0 {
		s.body[n] = append([]string{header}, body...)
	}
}
